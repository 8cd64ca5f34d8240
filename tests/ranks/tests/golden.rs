//! What holds for the PTX of kernels that other ranks read and write. Each mistake is a pass of the lint over an entry: half a minute in all.
#[path = "../../kernels/tests/ptx/mod.rs"]
mod ptx;

use ptx::{device_code, unseen_fences};
use ranks::OUT_DIR;

#[test]
fn few_words_spill() {
    ptx::few_words_spill(OUT_DIR);
}

/// A GEMM that sends its tiles beside tasks that exchange theirs by packets and by signals; and channels in users' tasks.
#[test]
fn no_fence_can_be_spared() {
    let entries = device_code(OUT_DIR, "fences of ranks");
    for (name, has) in [("of_bf16", "wgmma"), ("exchanged", "")] {
        let entry = entries.iter().find(|entry| entry.name == name && entry.text.contains(has));
        assert!(entry.is_some() || entries.is_empty(), "there is no `{name}`");
        let Some(entry) = entry else { continue };
        let (unseen, _) = unseen_fences(entry);
        assert_eq!(unseen, Vec::<String>::new(), "{name}");
    }
}
