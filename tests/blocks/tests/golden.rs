//! The device code of users' tasks, and of the example: products that share an operand load it once, are not serialised, and nothing spills.
#[path = "../../kernels/tests/ptx/mod.rs"]
mod ptx;

use blocks::OUT_DIR;
use maco_build::ptx::{Rules, lint};
use ptx::{Entry, FENCES, device_code, unseen};

fn count(entry: &Entry, start: &str) -> usize {
    let module = entry.module();
    module.functions.iter().flat_map(|function| &function.body).filter(|statement| statement.opcode().starts_with(start)).count()
}

fn everything(what: &str) -> Vec<Entry> {
    [OUT_DIR, custom_task::OUT_DIR].into_iter().flat_map(|out| device_code(out, what)).collect()
}

/// Per variant eight `wgmma` for a pair, four for one product, and one group for a step of either. `apart` has two products, of which one
/// has an epilogue.
#[test]
fn a_step_of_a_pair_is_one_group() {
    for entry in everything("groups of products") {
        let (products, groups) = match entry.name.as_str() {
            "pairs_bf16" | "pairs_f16" => (2 * 8 + 4 * 4, 2 + 4),
            "pairs_across" => (8, 1),
            "fused" => (2 * 8, 2),
            "apart" => (2 * 4 * 4, 2 * 4),
            "head" => (2 * 8 + 4 * 4, 2 + 4),
            _ => (0, 0),
        };
        assert_eq!(count(&entry, "wgmma.mma_async"), products, "`{}`", entry.name);
        assert_eq!(count(&entry, "wgmma.commit_group"), groups, "`{}`", entry.name);
    }
}

#[test]
fn rules_hold() {
    for entry in everything("rules of waits, signals and copies") {
        assert_eq!(lint::check(&entry.text, &Rules::default()), [], "`{}`", entry.name);
        assert!(!entry.text.contains(".local"), "`{}`", entry.name);
    }
}

#[test]
fn no_fence_and_no_scope_can_be_spared() {
    for entry in device_code(OUT_DIR, "fences and scopes of pairs").iter().filter(|entry| entry.name == "pairs_bf16") {
        let (unseen, fences) = unseen(entry);
        assert_eq!(unseen, Vec::<String>::new());
        assert_eq!(fences, FENCES);
    }
}

#[test]
fn nothing_spills() {
    ptx::nothing_spills(OUT_DIR);
    ptx::nothing_spills(custom_task::OUT_DIR);
}
