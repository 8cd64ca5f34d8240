//! The device code of products: no spills, every fence.
#[path = "../../kernels/tests/ptx/mod.rs"]
mod ptx;

#[test]
fn nothing_spills() {
    ptx::nothing_spills(products::OUT_DIR);
}
