fn main() {
    maco_build::Build::new(["src/channels.rs", "src/collectives.rs", "src/mixed.rs", "src/pushed.rs", "src/sizes.rs"]).run();
}
