fn main() {
    maco_build::compile_all(["src/dense.rs", "src/inputs.rs", "src/random.rs", "src/readme.rs", "src/regions.rs"])
}
