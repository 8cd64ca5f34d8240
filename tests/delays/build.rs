fn main() {
    maco_build::Build::new(["src/kernels.rs", "src/ranks.rs"]).delayed().run();
}
