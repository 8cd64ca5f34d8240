//! The device code of GEMMs with operands behind them, and with elementwise prologues on operand A: every one runs in the registers that there are.
//!
//! Takes half a minute: the lint reads a whole entry for every fence that is taken out.
#[path = "../../kernels/tests/ptx/mod.rs"]
mod ptx;

use epilogues::OUT_DIR;
use ptx::{device_code, unseen};

#[test]
fn few_words_spill() {
    ptx::few_words_spill(OUT_DIR);
}

/// Operands are read where the wait for them has been acquired, and operand A is multiplied when all have run their part of its prologue; nothing of that order
/// can be left out.
#[test]
fn no_fence_and_no_scope_can_be_spared() {
    let entries = device_code(OUT_DIR, "fences and scopes of epilogues");
    for name in ["residual", "tiles"] {
        let entry = entries.iter().find(|entry| entry.name == name);
        assert!(entry.is_some() || entries.is_empty(), "there is no `{name}`");
        let Some(entry) = entry else { continue };
        let (unseen, _) = unseen(entry);
        assert_eq!(unseen, Vec::<String>::new(), "{name}");
    }
}
