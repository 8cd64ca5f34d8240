fn main() {
    maco_build::compile_all(["src/decode.rs", "src/kernels.rs", "src/tasks/mod.rs"])
}
