fn main() {
    maco_build::compile("src/collectives.rs")
}
