//! The device code of the library's tasks: sixteen bytes an access, a row's loads on their way together, no local memory, no spills.
#[path = "../../kernels/tests/ptx/mod.rs"]
mod ptx;

use maco_build::ptx::{Rules, lint};
use ptx::device_code;

/// Of memory, and of what came through the ring.
const LOADS: [&str; 2] = ["ld.global.v4.b32", "ld.shared.v4.b32"];
const STORE: &str = "st.global.v4.b32";

/// Wide loads and stores at least, and loads that follow each other with no store and no barrier between them: as many as a warp has on their
/// way. Of a row four blocks, of two bytes an access each, of four bytes two blocks of two accesses; as much of the row beside it. Element-wise
/// tasks have four blocks of each tensor, rows that indices name are written four at a time.
const WIDE: [(&str, usize, usize, usize); 26] = [
    ("norms_bf16", 200, 24, 8),
    ("norms_f16", 200, 24, 8),
    ("norms_f32", 220, 28, 8),
    ("rows_bf16", 100, 0, 4),
    ("rows_f32", 110, 0, 4),
    ("columns_bf16", 56, 8, 8),
    ("columns_f32", 90, 8, 16),
    ("groups_bf16", 36, 4, 8),
    ("groups_f32", 44, 4, 16),
    ("elements_bf16", 260, 54, 8),
    ("elements_f32", 340, 108, 8),
    ("transposed_bf16", 16, 8, 8),
    ("transposed_f32", 24, 16, 16),
    ("converted", 200, 76, 8),
    ("quantised_bf16", 40, 5, 4),
    ("quantised_f32", 44, 10, 4),
    ("lookups_bf16", 70, 24, 8),
    ("lookups_f32", 80, 34, 8),
    ("rotated_bf16", 56, 12, 12),
    ("rotated_f32", 66, 24, 16),
    ("written_bf16", 50, 16, 8),
    ("written_f32", 72, 32, 16),
    ("plain_bf16", 300, 120, 8),
    ("plain_f16", 300, 120, 8),
    ("plain_f32", 360, 280, 16),
    ("copied_words", 140, 150, 8),
];

#[test]
fn accesses_are_wide_and_on_their_way_together() {
    let entries = device_code(tasks::OUT_DIR, "wide accesses");
    for (name, loads, stores, together) in WIDE {
        for entry in entries.iter().filter(|entry| entry.name == name) {
            let (mut found, mut run, mut longest) = ((0, 0), 0, 0);
            for statement in entry.module().functions.iter().flat_map(|function| &function.body) {
                match statement.opcode() {
                    load if LOADS.contains(&load) => {
                        found.0 += 1;
                        run += 1;
                        longest = longest.max(run);
                    }
                    STORE => {
                        found.1 += 1;
                        run = 0;
                    }
                    other if other.starts_with("st.") || other.starts_with("shfl") || other.starts_with("bar") => run = 0,
                    _ => {}
                }
            }
            let enough = found.0 >= loads && found.1 >= stores && longest >= together;
            assert!(enough, "`{name}` has {} and {}, {longest} together; expected {loads} and {stores}, {together}", found.0, found.1);
        }
        assert!(entries.is_empty() || entries.iter().any(|entry| entry.name == name), "`{name}` is missing");
    }
}

#[test]
fn nothing_is_in_local_memory() {
    for entry in device_code(tasks::OUT_DIR, "local memory") {
        assert_eq!(lint::check(&entry.text, &Rules::default()), [], "`{}`", entry.name);
        assert!(!entry.text.contains(".local"), "`{}`", entry.name);
    }
}

#[test]
fn few_words_spill() {
    ptx::few_words_spill(tasks::OUT_DIR);
}
