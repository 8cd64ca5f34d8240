//! The device code of products: few spills, every fence.
#[path = "../../kernels/tests/ptx/mod.rs"]
mod ptx;

#[test]
fn few_words_spill() {
    ptx::few_words_spill(products::OUT_DIR);
}
