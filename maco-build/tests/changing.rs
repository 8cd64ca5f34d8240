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

/// A task of rows with this closure.
fn rows(closure: &str) -> String {
    format!(
        "#[maco::task(tile(i = 16))]
        fn body(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {{
            cta.rows(x, y, |x, y| {{ {closure} }})
        }}
        #[maco::megakernel]
        pub fn kernel(x: In<f32, M, N>, y: Out<f32, M, N>) {{
            body(x, y);
        }}"
    )
}

#[track_caller]
fn refused((built, said): &(bool, String), words: &[&str]) {
    assert!(!built && words.iter().all(|word| said.contains(word)), "{said}");
}

/// Lanes have an atomic each that a closure of rows makes, and part by it.
#[test]
fn closures_of_single_elements_hold_nothing_that_changes() {
    let parted = |seen: &str, hold: &str| {
        rows(&format!(
            "let seen = {seen};
            {hold}
            y.zip(&x, |v| {{
                if v > 0.0 {{
                    seen.store(1, Ordering::Relaxed);
                }}
                v
            }});
            if seen.load(Ordering::Relaxed) > 0 {{
                let sum = x.sum(|v| v);
                y.map(|v| v + sum);
            }}"
        ))
    };
    let code = "MACO0101: a closure holds something that can change";
    for (seen, hold) in
        [("Count::new(0)", ""), ("count()", ""), ("count()", "let seen = &seen;"), ("(1, [count()])", "let seen = (&seen.1[0],).0;")]
    {
        refused(&build(&parted(seen, hold), true), &[code, "src/kernels.rs:"]);
    }
    // Behind a function of rows too.
    let (built, said) = build(
        &format!(
            "fn marked(x: &maco::Row<'_, f32, impl Sized>, seen: &Count) -> f32 {{
                x.sum(|v| {{
                    seen.store(1, Ordering::Relaxed);
                    v
                }})
            }}
            {}",
            rows("let seen = count(); let sum = marked(&x, &seen); y.set(|_| sum);")
        ),
        true,
    );
    refused(&(built, said), &[code]);
    // What a row has in common, numbers and elements of it, are held as before.
    let held = rows("let (sum, elements) = (x.sum(|v| v), x.elements()); let by = [sum, 2.0]; y.set(|j| elements.at(j) * by[1] + by[0]);");
    let (built, said) = build(&held, true);
    assert!(built, "{said}");
}

/// A static behind functions, with its address in a register: no rule knows the variable, and the instruction is one of `core`'s all the same.
#[test]
fn functions_of_bodies_use_no_atomics() {
    let of = |change: &str| {
        format!(
            "static A: Count = Count::new(0);
            static B: Count = Count::new(0);
            #[inline(never)]
            fn bump(at: &Count) -> f32 {{
                {change};
                1.0
            }}
            fn either(v: f32) -> f32 {{
                v + bump(if v > 2.0 {{ &A }} else {{ &B }})
            }}
            {}",
            rows("y.zip(&x, |v| either(v));")
        )
    };
    for change in [
        "at.store(1, Ordering::SeqCst)",
        "at.swap(1, Ordering::Relaxed)",
        "at.fetch_add(1, Ordering::AcqRel)",
        "let _ = at.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Acquire)",
    ] {
        let (built, said) = build(&of(change), false);
        refused(&(built, said.clone()), &["MACO0101: an atomic of `core`", "src/kernels.rs:"]);
        assert_eq!(said.matches("the GPU half of").count(), 1, "{said}");
    }
}
