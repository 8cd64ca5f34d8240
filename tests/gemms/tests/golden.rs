//! The device code of GEMMs: few spills, every fence.
#[path = "../../kernels/tests/ptx/mod.rs"]
mod ptx;

#[test]
fn few_words_spill() {
    ptx::few_words_spill(gemms::OUT_DIR);
}
