fn main() {
    maco_build::Build::new(["src/casts.rs", "src/kernels.rs", "src/large.rs"]).run();
}
