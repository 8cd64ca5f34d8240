fn main() {
    maco_build::compile_all(["src/renamed.rs", "src/through.rs"]);
}
