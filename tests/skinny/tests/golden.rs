//! The device code of GEMVs: copies by rows, `mma`, and every fence that these need.
#[path = "../../kernels/tests/ptx/mod.rs"]
mod ptx;

use maco_build::ptx::{Rules, lint};
use ptx::{Entry, FENCES, device_code, unseen};
use skinny::OUT_DIR;

/// How often an instruction is in an entry.
fn count(entry: &Entry, start: &str) -> usize {
    let module = entry.module();
    module.functions.iter().flat_map(|function| &function.body).filter(|statement| statement.opcode().starts_with(start)).count()
}

/// Weights come in bulk, and go from shared memory 16 bytes at a time, as an operand as they are: for two products, or for four if there are more
/// than eight rows.
#[test]
fn weights_come_in_bulk_to_the_tensor_cores() {
    for entry in device_code(OUT_DIR, "instructions of GEMVs") {
        let products = count(&entry, "mma.sync.aligned.m16n8k16");
        assert!(products > 0 && products.is_multiple_of(16), "`{}` has {products} products", entry.name);
        assert!(count(&entry, "ld.shared.v4") * 4 >= products, "`{}`", entry.name);
        assert!(count(&entry, "cp.async.bulk.shared::cluster.global.mbarrier") > 0, "`{}` copies no rows", entry.name);
        // What calls `linear`, or has it beside.
        let staged = ["stored", "forms", "fused", "mixed"].contains(&&*entry.name);
        assert_eq!(count(&entry, "wgmma.mma_async") > 0, staged, "`{}`", entry.name);
    }
}

#[test]
fn no_fence_and_no_scope_can_be_spared() {
    let entries = device_code(OUT_DIR, "fences and scopes of GEMVs");
    // It has a GEMM by larger tiles too: without those, some fences have nothing to do.
    let Some(entry) = entries.iter().find(|entry| entry.name == "stored") else { return };
    let (unseen, fences) = unseen(entry);
    assert_eq!(unseen, Vec::<String>::new());
    assert_eq!(fences, FENCES);
}

/// Who runs an elementwise prologue meets the others behind what was received, and behind the prologue; who has no prologues has no code for them.
#[test]
fn consumers_meet_before_and_behind_a_map() {
    const MADE: &str = "// maco: elementwise";
    let entries = device_code(OUT_DIR, "elementwise prologues");
    for entry in &entries {
        assert_eq!(entry.text.contains(MADE), ["maps", "half_map", "kept"].contains(&&*entry.name), "`{}`", entry.name);
    }
    let Some(Entry { text, .. }) = entries.iter().find(|entry| entry.name == "half_map") else { return };
    let barriers = |place: usize| -> Vec<usize> {
        let (begin, end) = (text[..place].rfind(".func").expect("a function"), place + text[place..].find("\n}").expect("its end"));
        text[begin..end].match_indices("bar.sync").map(|(at, _)| begin + at).collect()
    };
    let received = barriers(text.find("elementwise_prologue7receive").expect("a function that receives"));
    let mapped = barriers(text.find(MADE).expect("a map"));
    assert!(
        !received.is_empty() && !mapped.is_empty(),
        "{} barriers behind what is received, {} behind maps",
        received.len(),
        mapped.len()
    );
    for at in received.into_iter().chain(mapped) {
        let behind = at + text[at..].find(';').expect("a statement") + 1;
        let findings = lint::check(&format!("{}{}", &text[..at], &text[behind..]), &Rules::default());
        assert!(!findings.is_empty(), "the barrier at byte {at} can be spared");
    }
}

#[test]
fn few_words_spill() {
    ptx::few_words_spill(OUT_DIR);
}
