fn main() {
    maco_build::Build::new(["src/casts.rs", "src/kernels.rs"]).run();
}
