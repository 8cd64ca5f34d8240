fn main() {
    maco_build::Build::new(["src/kernels.rs"]).delayed().run();
}
