fn main() {
    maco_build::Build::new(["src/casts.rs", "src/factors.rs", "src/kernels.rs"]).run();
}
