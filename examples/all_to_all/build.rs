fn main() {
    // Exchanges keep some bytes of registers in memory: not mended yet (docs/decisions/0059-ranks-exchange-tiles.md in MACO's repository).
    maco_build::Build::new(["src/kernels.rs"]).allow_local_memory().run();
}
