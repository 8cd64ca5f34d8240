fn main() {
    maco_build::compile_all([
        "src/decode.rs",
        "src/exchanges.rs",
        "src/experts.rs",
        "src/forms.rs",
        "src/kernels.rs",
        "src/memory.rs",
        "src/overlaps.rs",
        "src/tasks/mod.rs",
    ])
}
