fn main() {
    maco_build::Build::new([
        "src/beside.rs",
        "src/built.rs",
        "src/channels.rs",
        "src/collectives.rs",
        "src/mixed.rs",
        "src/pushed.rs",
        "src/shares.rs",
        "src/sizes.rs",
        "src/symmetric.rs",
    ])
    .run();
}
