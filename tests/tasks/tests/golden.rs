//! The device code of the library's tasks: sixteen bytes an access, a row's loads on their way together, no local memory, no spills.
#[path = "../../kernels/tests/ptx/mod.rs"]
mod ptx;

use maco_build::ptx::{Rules, lint};
use ptx::device_code;

/// Of memory, and of what came through the ring.
const LOADS: [&str; 2] = ["ld.global.v4.b32", "ld.shared.v4.b32"];
const STORE: &str = "st.global.v4.b32";

/// Wide loads and stores at least, and loads that follow each other with no store and no barrier between them: as many as a warp has on their
/// way. Rows of two bytes keep 16 blocks of a lane in registers, those of four bytes 6 blocks of two accesses; element-wise tasks have eight
/// accesses on their way, whatever they read.
const WIDE: [(&str, usize, usize, usize); 18] = [
    ("norms_bf16", 96, 16, 16),
    ("norms_f16", 96, 16, 16),
    ("norms_f32", 96, 16, 12),
    ("rows_bf16", 32, 0, 16),
    ("rows_f32", 32, 0, 12),
    ("columns_bf16", 32, 8, 8),
    ("columns_f32", 64, 8, 16),
    ("groups_bf16", 24, 2, 8),
    ("groups_f32", 32, 4, 16),
    ("elements_bf16", 48, 12, 8),
    ("elements_f32", 48, 16, 8),
    ("transposed_bf16", 8, 8, 8),
    ("transposed_f32", 16, 16, 16),
    ("converted", 48, 16, 8),
    ("quantised_bf16", 24, 4, 16),
    ("quantised_f32", 24, 8, 12),
    ("lookups_bf16", 8, 4, 2),
    ("rotated_bf16", 8, 2, 2),
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
            println!("(\"{name}\", {}, {}, {longest}),", found.0, found.1);
            let enough = found.0 >= loads && found.1 >= stores && longest >= together;
            if !enough {
                println!("short");
            } else {
                continue;
            };
            assert!(
                enough || std::env::var("COUNT").is_ok(),
                "`{name}` has {} and {}, {longest} together; expected {loads} and {stores}, {together}",
                found.0,
                found.1
            );
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
fn nothing_spills() {
    ptx::nothing_spills(tasks::OUT_DIR);
}
