//! Bodies that leave a value behind in an atomic, under names that no macro knows: the device half refuses them, by types and by its instructions.
//!
//! Needs a device toolchain (`cargo xtask setup`).
//!
//! Takes two minutes: a package of MACO's users is built, with MACO.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A package with these kernels, built as a user would; what cargo says.
fn build(kernels: &str, check: bool) -> (bool, String) {
    // There is one folder, so that MACO is built once.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("changing");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let maco = here.parent().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !fs::read_to_string(&path).is_ok_and(|old| old == text) {
            fs::write(path, text).unwrap();
        }
    };
    write(
        "Cargo.toml",
        &format!(
            "[package]\nname = \"changing\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[dependencies]\nmaco-gpu.path = {maco:?}\n\
             [build-dependencies]\nmaco-build.path = {here:?}\n[workspace]\n"
        ),
    );
    if !root.join("Cargo.lock").exists() {
        fs::copy(maco.join("Cargo.lock"), root.join("Cargo.lock")).unwrap();
    }
    write("build.rs", "fn main() {\n    maco_build::compile(\"src/kernels.rs\")\n}\n");
    write("src/lib.rs", "pub mod kernels;\n");
    write("src/kernels.rs", &format!("{BEFORE}{kernels}"));
    let target: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("target");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--manifest-path"]).arg(root.join("Cargo.toml"));
    cargo.env("CARGO_TARGET_DIR", target).env("MACO_REQUIRE_GPU", "1").env_remove("MACO_PROFILE").env_remove("MACO_DEVICE");
    if check {
        cargo.env("MACO_DEVICE", "check");
    }
    let output = cargo.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

const BEFORE: &str = r#"
use core::sync::atomic::{AtomicU32 as Count, Ordering};

fn count() -> Count {
    Count::new(0)
}
"#;

/// A task of rows with this closure, and a megakernel of it: number `n` of the file.
fn rows(n: usize, closure: &str) -> String {
    format!(
        "#[maco::task(tile(i = 16))]
        fn body{n}(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {{
            cta.rows(x, y, |x, y| {{ {closure} }})
        }}
        #[maco::megakernel]
        pub fn kernel{n}(x: In<f32, M, N>, y: Out<f32, M, N>) {{
            body{n}(x, y);
        }}
        "
    )
}

#[track_caller]
fn refused((built, said): &(bool, String), words: &[&str]) {
    assert!(!built && words.iter().all(|word| said.contains(word)), "{said}");
}

/// Lanes have an atomic each that a closure of rows makes, and part by it. Each closure is refused where it stands.
#[test]
fn closures_of_single_elements_hold_nothing_that_changes() {
    let parted = |n: usize, seen: &str, hold: &str| {
        rows(
            n,
            &format!(
                "let seen = {seen};
            {hold}
            y.zip(&x, |v| {{ // refused
                if v > 0.0 {{
                    seen.store(1, Ordering::Relaxed);
                }}
                v
            }});
            if seen.load(Ordering::Relaxed) > 0 {{
                let sum = x.sum(|v| v);
                y.map(|v| v + sum);
            }}"
            ),
        )
    };
    let seen =
        [("Count::new(0)", ""), ("count()", ""), ("count()", "let seen = &seen;"), ("(1, [count()])", "let seen = (&seen.1[0],).0;")];
    let mut kernels: String = (0..).zip(seen).map(|(n, (seen, hold))| parted(n, seen, hold)).collect();
    // Behind a function of rows too.
    kernels += "fn marked(x: &maco::Row<'_, f32, impl Sized>, seen: &Count) -> f32 {
        x.sum(|v| { // refused
            seen.store(1, Ordering::Relaxed);
            v
        })
    }
    ";
    kernels += &rows(4, "let seen = count(); let sum = marked(&x, &seen); y.set(|_| sum);");
    let (built, said) = build(&kernels, true);
    let lines = format!("{BEFORE}{kernels}");
    for (line, _) in (1..).zip(lines.lines()).filter(|(_, text)| text.ends_with("// refused")) {
        refused(&(built, said.clone()), &["MACO0101: a closure holds something that can change", &format!("src/kernels.rs:{line}:")]);
    }
    // What a row has in common, numbers and elements of it, are held as before.
    let held =
        rows(0, "let (sum, elements) = (x.sum(|v| v), x.elements()); let by = [sum, 2.0]; y.set(|j| elements.at(j) * by[1] + by[0]);");
    let (built, said) = build(&held, true);
    assert!(built, "{said}");
}

/// A static behind functions, with its address in a register: no rule knows the variable, and each instruction is one of `core`'s all the same.
#[test]
fn functions_of_bodies_use_no_atomics() {
    let of = |n: usize, change: &str| {
        format!(
            "#[inline(never)]
            fn bump{n}(at: &Count) -> f32 {{ // refused
                {change};
                1.0
            }}
            fn either{n}(v: f32) -> f32 {{
                v + bump{n}(if v > 2.0 {{ &A }} else {{ &B }})
            }}
            {}",
            rows(n, &format!("y.zip(&x, |v| either{n}(v));"))
        )
    };
    let changes = [
        "at.store(1, Ordering::SeqCst)",
        "at.swap(1, Ordering::Relaxed)",
        "at.fetch_add(1, Ordering::AcqRel)",
        "let _ = at.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Acquire)",
    ];
    let statics = "static A: Count = Count::new(0);\nstatic B: Count = Count::new(0);\n";
    let kernels: String = std::iter::once(statics.to_owned()).chain((0..).zip(changes).map(|(n, change)| of(n, change))).collect();
    let (built, said) = build(&kernels, false);
    assert_eq!(said.matches("the GPU half of").count(), changes.len(), "{said}");
    let lines = format!("{BEFORE}{kernels}");
    for (line, _) in (1..).zip(lines.lines()).filter(|(_, text)| text.ends_with("// refused")) {
        refused(&(built, said.clone()), &["MACO0101: an atomic of `core`", &format!("src/kernels.rs:{line}:")]);
    }
}
