//! What a user sees at compile time: every file under `tests/ui` is compiled, and its diagnostics are compared with the `.stderr`
//! beside it.
//!
//! On the pinned toolchain the rendered text is compared, with lines of MACO's own files as `LL`: they move whenever something is
//! written above them, and say nothing about the diagnostic. Others word and draw it differently, so there the code, file, line and column
//! of every MACO error are. `UI_BLESS=1 cargo test --test ui` on the pinned toolchain rewrites the `.stderr` files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The toolchain whose rendering the `.stderr` files hold.
const PINNED: &str = "rustc 1.95.0 ";

/// Where the cases are, as diagnostics name it.
const CASES: &str = "tests/ui/";

/// Diagnostics of one case.
#[derive(Default)]
struct Found {
    rendered: String,
    /// MACO errors as `(code, line, column)`, sorted.
    coded: Vec<(String, u64, u64)>,
    failed: bool,
}

#[test]
fn diagnostics() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cases = cases(&root.join("tests/ui"));
    assert!(cases.len() >= 36, "only {} cases found", cases.len());
    let found = compile(root, &cases);
    let pinned = version().starts_with(PINNED);
    let bless = env::var_os("UI_BLESS").is_some();
    assert!(pinned || !bless, "bless on {PINNED}only");

    let mut wrong = String::new();
    for (name, case) in &cases {
        let found = found.get(name).unwrap_or_else(|| panic!("{} was not compiled", case.display()));
        let stderr = case.with_extension("stderr");
        let expected = fs::read_to_string(&stderr).unwrap_or_default();
        let passes = case.parent().is_some_and(|topic| topic.ends_with("pass"));
        if found.failed == passes {
            let verb = if passes { "did not compile" } else { "compiled" };
            let _ = writeln!(wrong, "== {} {verb}:\n{}", case.display(), found.rendered);
        } else if bless {
            if found.rendered.is_empty() {
                let _ = fs::remove_file(&stderr);
            } else {
                fs::write(&stderr, &found.rendered).expect("cannot write the .stderr file");
            }
        } else if pinned && found.rendered != expected {
            let _ = writeln!(wrong, "== {}\n-- expected:\n{expected}\n-- found:\n{}", case.display(), found.rendered);
        } else if !pinned && found.coded != coded(&expected) {
            let _ = writeln!(wrong, "== {}\n-- expected: {:?}\n-- found: {:?}", case.display(), coded(&expected), found.coded);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Every `.rs` file below `directory`, by a name that can be a target's.
fn cases(directory: &Path) -> BTreeMap<String, PathBuf> {
    let mut cases = BTreeMap::new();
    for topic in fs::read_dir(directory).expect("tests/ui exists").map(|entry| entry.expect("readable").path()) {
        let Ok(files) = fs::read_dir(&topic) else { continue };
        for file in files.map(|entry| entry.expect("readable").path()).filter(|file| file.extension().is_some_and(|end| end == "rs")) {
            let part = |path: &Path| path.file_stem().expect("has a name").to_string_lossy().into_owned();
            cases.insert(format!("{}_{}", part(&topic), part(&file)), file);
        }
    }
    cases
}

/// Compiles all cases as programs of one package, which costs one resolution and one build of `maco`.
fn compile(root: &Path, cases: &BTreeMap<String, PathBuf>) -> BTreeMap<String, Found> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("ui");
    let package = target.join("package");
    fs::create_dir_all(package.join("src")).expect("cannot make the package");
    let mut manifest = format!(
        "[package]\nname = \"ui\"\nversion = \"0.0.0\"\nedition = \"2024\"\nautobins = false\n[workspace]\n[dependencies]\nmaco = {{ path = {root:?} }}\n",
    );
    for (name, case) in cases {
        let _ = write!(manifest, "[[bin]]\nname = {name:?}\npath = {case:?}\n");
    }
    fs::write(package.join("Cargo.toml"), manifest).expect("cannot write the manifest");
    // The versions the workspace was resolved with: no registry is asked.
    let _ = fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock"));
    let output = Command::new(env!("CARGO"))
        .args(["check", "--bins", "--keep-going", "--message-format=json"])
        .current_dir(&package)
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cannot run cargo");
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    let text = String::from_utf8_lossy(&output.stdout);
    for message in text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()) {
        let Some(name) = message["target"]["name"].as_str().filter(|name| cases.contains_key(*name)) else { continue };
        let case = found.entry(name.to_owned()).or_default();
        if message["reason"] == "compiler-message" {
            case.add(&message["message"], root);
        }
    }
    assert!(!found.is_empty(), "cargo check said nothing:\n{}", String::from_utf8_lossy(&output.stderr));
    for case in found.values_mut() {
        case.coded.sort();
    }
    found
}

impl Found {
    fn add(&mut self, message: &serde_json::Value, root: &Path) {
        let text = message["message"].as_str().unwrap_or_default();
        // Only a count of what has been said already.
        if message["spans"].as_array().is_none_or(Vec::is_empty) {
            return;
        }
        let root = format!("{}/", root.display());
        self.rendered += &steady(&message["rendered"].as_str().unwrap_or_default().replace(&root, ""));
        if message["level"] == "error" {
            self.failed = true;
            let span = message["spans"].as_array().and_then(|spans| spans.iter().find(|span| span["is_primary"] == true));
            if let (Some(code), Some(span)) = (code(text), span) {
                let number = |key: &str| span[key].as_u64().unwrap_or_default();
                self.coded.push((code, number("line_start"), number("column_start")));
            }
        }
    }
}

/// A rendered diagnostic without what depends on where things stand in MACO's own files: their lines, and the width of the margin,
/// which is that of the longest line number. One that shows none of them is as it was.
fn steady(rendered: &str) -> String {
    let mut places = rendered.lines().filter_map(|line| line.trim_start().strip_prefix("--> "));
    if places.all(|place| place.starts_with(CASES)) {
        return rendered.to_owned();
    }
    let mut own = false;
    let mut steady = String::new();
    for line in rendered.lines() {
        let text = line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit());
        let margin = &line[..line.len() - text.len()];
        if let Some(place) = text.strip_prefix("--> ").or_else(|| text.strip_prefix("::: ")) {
            own = !place.starts_with(CASES);
            let place = if own { place.split(':').next().unwrap_or_default() } else { place };
            let _ = write!(steady, "   {}{place}", &text[..4]);
        } else if text.starts_with('|') || text.starts_with("= ") {
            let number = if own && !margin.trim().is_empty() { "LL" } else { margin.trim() };
            let _ = write!(steady, "{number:>3} {text}");
        } else {
            steady += line;
        }
        steady.push('\n');
    }
    steady
}

/// The MACO errors of a rendered text.
fn coded(rendered: &str) -> Vec<(String, u64, u64)> {
    let mut all = Vec::new();
    let mut open = None;
    for line in rendered.lines() {
        if line.starts_with("error") {
            open = code(line);
        } else if let (Some(place), Some(code)) = (line.trim_start().strip_prefix("--> "), &open) {
            let mut parts = place.rsplit(':').map(|part| part.parse().unwrap_or_default());
            let (column, line) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            all.push((code.clone(), line, column));
            open = None;
        }
    }
    all.sort();
    all
}

/// `MACO0007` in a message.
fn code(text: &str) -> Option<String> {
    let start = text.find("MACO")?;
    let code = text.get(start..start + 8)?;
    code[4..].bytes().all(|byte| byte.is_ascii_digit()).then(|| code.to_owned())
}

fn version() -> String {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().expect("cannot run rustc");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
