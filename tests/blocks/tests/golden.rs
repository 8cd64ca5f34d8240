//! The device code of users' tasks, and of the example: GEMMs that share an operand load it once, are not serialised, and nothing spills.
//!
//! Takes half a minute: the lint reads a whole entry for every fence that is taken out.
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

/// Per variant of a pair eight `wgmma`, and for all calls of one GEMM four for each of three widths of a sum; one group for a step of either. `apart` has
/// two GEMMs, of which one has an epilogue.
#[test]
fn a_step_of_a_pair_is_one_group() {
    for entry in everything("groups of products") {
        let (products, groups) = match entry.name.as_str() {
            "pairs_bf16" | "pairs_f16" => (2 * 8 + 3 * 4, 2 + 3),
            "pairs_across" => (8, 1),
            "fused" => (2 * 8, 2),
            "apart" => (3 * 4, 3),
            "head" => (2 * 8 + 3 * 4, 2 + 3),
            "scratch" => (3 * 4, 3),
            // Of bodies: see below.
            name if name.starts_with("products_") || name.starts_with("boxes_") || name == "quantised" => continue,
            _ => (0, 0),
        };
        assert_eq!(count(&entry, "wgmma.mma_async"), products, "`{}`", entry.name);
        assert_eq!(count(&entry, "wgmma.commit_group"), groups, "`{}`", entry.name);
    }
}

/// Each of 32 widths, four steps of K for one product.
#[test]
fn every_width_is_an_instruction() {
    let all = device_code(OUT_DIR, "widths of products");
    let entries: Vec<_> = all.iter().filter(|entry| entry.name.starts_with("products_widths")).collect();
    for n in (8..=256).step_by(8).filter(|_| !entries.is_empty()) {
        let instruction = format!("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16");
        assert_eq!(entries.iter().map(|entry| count(entry, &instruction)).sum::<usize>(), 4, "{n} columns");
    }
}

/// All types that go together, and operands in registers.
#[test]
fn every_type_is_an_instruction() {
    let all = device_code(OUT_DIR, "types of products");
    for (name, types) in [
        ("products_bf16", &["n8k16.f32.bf16.bf16"] as &[_]),
        ("products_f16", &["n8k16.f32.f16.f16", "n136k16.f16.f16.f16"]),
        ("products_tf32", &["n136k8.f32.tf32.tf32"]),
        (
            "products_fp8",
            &[
                "n24k32.f32.e4m3.e4m3",
                "n64k32.f32.e4m3.e5m2",
                "n136k32.f32.e5m2.e4m3",
                "n8k32.f32.e5m2.e5m2",
                "n72k32.f16.e4m3.e4m3",
                "n24k32.f16.e4m3.e5m2",
                "n256k32.f16.e5m2.e4m3",
                "n8k32.f16.e5m2.e5m2",
            ],
        ),
        ("products_integers", &["n8k32.s32.s8.s8", "n256k32.s32.s8.u8", "n24k32.s32.u8.s8", "n80k32.s32.u8.u8"]),
    ] {
        for entry in all.iter().filter(|entry| entry.name == name) {
            for types in types {
                assert!(count(entry, &format!("wgmma.mma_async.sync.aligned.m64{types}")) > 0, "`{name}` has no {types}");
            }
        }
    }
}

/// A body acquires its tensor maps, and what it copies, once for each tensor, and fences what it writes before that is copied: without any of
/// these, or without a barrier, the lint says so.
#[test]
fn no_fence_of_tensor_copies_can_be_spared() {
    for entry in device_code(OUT_DIR, "fences of tensor copies").iter().filter(|entry| entry.name == "boxes_through") {
        let (unseen, fences) = unseen(entry);
        // Two are idle here: the store role has nothing to store, and behind the body's last fence nothing is written to its scratch.
        let idle: Vec<&str> = unseen.iter().filter_map(|mistake| mistake.strip_suffix(" as ``")?.split('`').nth(1)).collect();
        assert_eq!(idle, ["fence.proxy.async.global", "fence.proxy.async.shared::cta"], "{unseen:?}");
        assert_eq!(unseen.len(), 2, "{unseen:?}");
        assert_eq!(fences, FENCES);
    }
}

/// A copy for each panel of a tile, in the mode that is written out, with a fence of each tensor's map.
#[test]
fn tensor_copies_are_their_instructions() {
    for entry in everything("tensor copies of bodies") {
        let (loads, stores, maps) = match entry.name.as_str() {
            // Two operands of one panel, and a result of two.
            "quantised" => (2, 2, 3),
            // Two operands of two panels.
            "boxes_across" => (4, 0, 2),
            _ => continue,
        };
        assert_eq!(count(&entry, "cp.async.bulk.tensor.3d.shared::cluster.global.tile"), loads, "`{}`", entry.name);
        assert_eq!(count(&entry, "cp.async.bulk.tensor.3d.global.shared::cta.tile"), stores, "`{}`", entry.name);
        assert_eq!(count(&entry, "fence.proxy.tensormap"), maps, "`{}`", entry.name);
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

/// Bodies with scratch: rules about what they write there, their barriers and copies, beside those of GEMMs.
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
            // Two of the body, and one of all tiles of the GEMV form of the GEMMs.
            ("cp.async.bulk.shared::cluster.global", 3),
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
fn few_words_spill() {
    ptx::few_words_spill(OUT_DIR);
    ptx::few_words_spill(custom_task::OUT_DIR);
}
