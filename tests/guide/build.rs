fn main() {
    maco_build::compile("src/language.rs")
}
