fn main() {
    maco_build::compile("src/kernels.rs")
}
