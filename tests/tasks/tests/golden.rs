//! The device code of the library's tasks: sixteen bytes an access, a row's loads on their way together, no local memory, no spills.
#[path = "../../kernels/tests/ptx/mod.rs"]
mod ptx;

use std::fs;
use std::io::Write;
use std::path::Path;

use maco_build::ptx::{Rules, lint, ptxas};
use ptx::{Entry, entries};

const LOAD: &str = "ld.global.v4.b32";
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

fn device_code(what: &str) -> Vec<Entry> {
    let entries: Vec<Entry> = entries(Path::new(tasks::OUT_DIR)).into_values().collect();
    if entries.is_empty() {
        // On the terminal, past the capture of the test harness.
        let _ = writeln!(std::io::stderr(), "left out: {what}: this package was built without device code");
    }
    entries
}

#[test]
fn accesses_are_wide_and_on_their_way_together() {
    let entries = device_code("wide accesses");
    for (name, loads, stores, together) in WIDE {
        for entry in entries.iter().filter(|entry| entry.name == name) {
            let (mut found, mut run, mut longest) = ((0, 0), 0, 0);
            for statement in entry.module().functions.iter().flat_map(|function| &function.body) {
                match statement.opcode() {
                    LOAD => {
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
    for entry in device_code("local memory") {
        assert_eq!(lint::check(&entry.text, &Rules::default()), [], "`{}`", entry.name);
        assert!(!entry.text.contains(".local"), "`{}`", entry.name);
    }
}

/// What only the assembler knows.
#[test]
fn nothing_spills() {
    let entries = device_code("registers and spills");
    // target/release/build/tasks-0123/out
    let target = Path::new(tasks::OUT_DIR).ancestors().nth(4).unwrap_or(Path::new("."));
    let Some(program) = ptxas::find(&target.join("maco")) else {
        let _ = writeln!(std::io::stderr(), "left out: registers and spills: no ptxas; set MACO_PTXAS, or run `cargo xtask lint`");
        return;
    };
    let directory = std::env::temp_dir().join(format!("maco-tasks-golden-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a temporary directory");
    for entry in entries {
        let file = directory.join(format!("{}.ptx", entry.name));
        fs::write(&file, &entry.text).expect("PTX is written");
        let verdict = ptxas::check(&program, &file, &Rules::default()).unwrap_or_else(|error| panic!("`{}`: {error}", entry.name));
        for (findings, usage) in verdict.iter().map(|verdict| (&verdict.findings, &verdict.usage)) {
            assert_eq!(*findings, [], "`{}`", entry.name);
            for usage in usage {
                assert_eq!((usage.stack, usage.spills), (0, 0), "`{}`", entry.name);
            }
        }
    }
    let _ = fs::remove_dir_all(&directory);
}
