fn main() {
    maco_build::compile_all(["src/decode.rs", "src/kernels.rs", "src/memory.rs", "src/tasks/mod.rs"])
}
