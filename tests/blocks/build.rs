fn main() {
    maco_build::Build::new(["src/kernels.rs", "src/tensor_cores.rs", "src/boxes.rs"]).faults().run()
}
