fn main() {
    // Collectives and channels keep some bytes of registers in memory: not mended yet (docs/decisions/0059-ranks-exchange-tiles.md).
    maco_build::Build::new(["src/channels.rs", "src/collectives.rs"]).allow_local_memory().run();
}
