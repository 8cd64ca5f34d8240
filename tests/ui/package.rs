//! Many programs that need not compile, checked as programs of one package: one resolution and one check of `maco`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What all cases, and MACO for them, are compiled with: `trybuild` has other flags for cases than for what they depend on, and would check
/// MACO twice.
pub const FLAGS: (&str, &str) = ("CARGO_ENCODED_RUSTFLAGS", "--verbose\x1f-Adead_code\x1f--diagnostic-width=140");

/// Where packages of cases are built.
pub fn target() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("tests/trybuild")
}

/// Settings of the folder in which packages of cases are built, for cargo there: no kernel is compiled, so what would compile it need not be optimised.
pub fn settle() {
    let folder = target().join(".cargo");
    fs::create_dir_all(&folder).expect("cannot make the folder");
    let (file, text) = (folder.join("config.toml"), ["maco-build", "maco-ptx", "maco-abi", "maco-graph"].map(quickly).concat());
    // Tests do this side by side, and cargo may be reading it.
    if !fs::read_to_string(&file).is_ok_and(|old| old == text) {
        let new = folder.join(format!("config.toml.{}.{:?}", std::process::id(), std::thread::current().id()));
        fs::write(&new, text).expect("cannot write the settings");
        fs::rename(new, file).expect("cannot move the settings");
    }
}

fn quickly(package: &str) -> String {
    format!("[profile.dev.package.{package}]\nopt-level = 0\n")
}

/// Checks these files, each a program `case0`, `case1`, and so on, of a package of this name: what the compiler says of each, one line a diagnostic,
/// `tests/ui/flow/a.rs:5:9: error[E0080]: evaluation panicked: MACO0007: ..`.
pub fn check(name: &str, cases: &[PathBuf]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    settle();
    let target = target();
    let package = target.join(name);
    fs::create_dir_all(&package).expect("cannot make the package");
    let mut manifest = format!(
        "[package]\nname = \"ui\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\nmaco-gpu = {{ path = {root:?} }}\n"
    );
    for (number, case) in cases.iter().enumerate() {
        let _ = write!(manifest, "[[bin]]\nname = \"case{number}\"\npath = {:?}\n", root.join(case));
    }
    fs::write(package.join("Cargo.toml"), manifest).expect("cannot write the manifest");
    // The versions the workspace was resolved with: no registry is asked.
    let _ = fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock"));
    let version = version();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host");
    let output = Command::new(env!("CARGO"))
        .args(["check", "--bins", "--keep-going", "--offline", "--message-format=short", "--target", host])
        .current_dir(&package)
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_INCREMENTAL", "0")
        .env(FLAGS.0, FLAGS.1)
        .output()
        .expect("cannot run cargo");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("Finished") || text.contains("could not compile `ui`"), "{text}");
    text
}

/// `MACO0007` in a message.
pub fn code(text: &str) -> Option<String> {
    let start = text.find("MACO")?;
    let code = text.get(start..start + 8)?;
    code[4..].bytes().all(|byte| byte.is_ascii_digit()).then(|| code.to_owned())
}

pub fn version() -> String {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().expect("cannot run rustc");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
