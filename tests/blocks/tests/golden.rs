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
            "scratch" => (4 * 4, 4),
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

/// Bodies with scratch: rules about what they write there, their barriers and copies, beside those of products.
#[test]
fn no_fence_of_a_body_can_be_spared() {
    for entry in device_code(OUT_DIR, "fences of bodies with scratch").iter().filter(|entry| entry.name == "scratch") {
        let (unseen, fences) = unseen(entry);
        assert_eq!(unseen, Vec::<String>::new());
        assert_eq!(fences, FENCES);
    }
}

/// One body has barriers of half of its threads and an mbarrier, one bulk copies and two of them, one moves squares by matrices.
#[test]
fn blocks_of_bodies_are_their_instructions() {
    for entry in device_code(OUT_DIR, "blocks of bodies").iter().filter(|entry| entry.name == "scratch") {
        for (start, times) in [
            ("ldmatrix.sync.aligned.m8n8.x1.trans", 2),
            ("ldmatrix.sync.aligned.m8n8.x2.trans", 1),
            ("ldmatrix.sync.aligned.m8n8.x4.trans", 1),
            ("stmatrix.sync.aligned.m8n8.x1.trans", 2),
            ("stmatrix.sync.aligned.m8n8.x2.trans", 1),
            // Two of the body, and one of each tile of the products' form for few rows.
            ("cp.async.bulk.shared::cluster.global", 6),
            ("cp.async.bulk.global.shared::cta.bulk_group", 1),
            ("mbarrier.inval", 3),
        ] {
            assert_eq!(count(entry, start), times, "{start}");
        }
        for barrier in ["bar.sync 6, 128", "bar.sync 7, 128"] {
            assert!(entry.text.contains(barrier), "{barrier}");
        }
    }
}

#[test]
fn nothing_spills() {
    ptx::nothing_spills(OUT_DIR);
    ptx::nothing_spills(custom_task::OUT_DIR);
}
