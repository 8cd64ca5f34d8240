fn main() {
    maco_build::Build::new(["src/casts.rs", "src/prologues.rs", "src/kernels.rs"]).run();
}
