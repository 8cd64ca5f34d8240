fn main() {
    let kernels = [
        "src/bodies.rs",
        "src/captured.rs",
        "src/chains.rs",
        "src/dense.rs",
        "src/endless.rs",
        "src/faults.rs",
        "src/helpers.rs",
        "src/inputs.rs",
        "src/launches.rs",
        "src/operations.rs",
        "src/random.rs",
        "src/readme.rs",
        "src/regions.rs",
        "src/split.rs",
        "src/uneven.rs",
    ];
    maco_build::Build::new(kernels).faults().run()
}
