fn main() {
    maco_build::compile_all(["src/kernels.rs"])
}
