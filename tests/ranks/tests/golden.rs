//! What holds for the PTX of kernels that other ranks read and write.
#[path = "../../kernels/tests/ptx/mod.rs"]
mod ptx;

use ranks::OUT_DIR;

#[test]
fn few_words_spill() {
    ptx::few_words_spill(OUT_DIR);
}
