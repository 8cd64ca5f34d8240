//! What a user sees at compile time: the cases of `tests/ui/<topic>/`.
//!
//! On the pinned compiler `trybuild` compares the rendered text of each case with the `.stderr` beside it; `TRYBUILD=overwrite cargo test
//! --test ui` rewrites them. Other compilers word and draw diagnostics differently: there the code, line and column of every MACO error are
//! compared. The cases of `tests/ui/pass` compile, with the warnings of their `.stderr`.
//!
//! Takes a minute: rustc compiles each case by itself.

#[path = "ui/names.rs"]
mod names;
#[path = "ui/package.rs"]
mod package;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use package::{FLAGS, code, settle, target, version};

/// The compiler whose rendering the `.stderr` files hold.
const PINNED: &str = "release: 1.95.0\n";
/// The topic of cases without errors.
const PASS: &str = "pass";
/// Where the cases are, as diagnostics name it.
const CASES: &str = "tests/ui/";

#[test]
fn diagnostics() {
    let rejected = cases(|topic| topic != PASS);
    assert!(rejected.len() >= 168, "only {} cases found", rejected.len());
    if version().contains(PINNED) {
        // SAFETY: only the standard library reads the environment here, and it locks it.
        unsafe { env::set_var(FLAGS.0, FLAGS.1) };
        settle();
        let cases = trybuild::TestCases::new();
        rejected.iter().for_each(|case| cases.compile_fail(case));
        return;
    }
    compare("rejected", &rejected, |place| place.level == "error" && place.code.is_some());
}

#[test]
fn what_compiles() {
    let accepted = cases(|topic| topic == PASS);
    assert!(accepted.len() >= 11, "only {} cases found", accepted.len());
    // Other compilers warn of other things.
    let pinned = version().contains(PINNED);
    compare("accepted", &accepted, |_| pinned);
}

/// README says what happens to one wrong call in its program.
#[test]
fn the_readme_shows_the_error_that_appears() {
    let readme = include_str!("../README.md");
    let between = |text: &'static str, start: &str, end: &str| text.split_once(start)?.1.split_once(end).map(|(part, _)| part);
    let program = between(readme, "```rust\n// src/kernels.rs", "```").expect("README's kernels");
    let (wrong, shown) = (
        between(readme, "appears. `", "` does not compile").expect("README's mistake"),
        between(readme, "```text\nerror", "```").expect("README's error"),
    );
    let program = format!("// {}fn main() {{}}\n", program.replace("linear(h, down, y)", wrong));
    assert!(program.contains(wrong), "{program}");
    let file = target().join("readme.rs");
    fs::create_dir_all(target()).expect("cannot make the folder");
    fs::write(&file, program).expect("cannot write the program");
    let (output, _) = check("readme", &[file]);
    for line in format!("error{shown}").lines() {
        assert!(output.contains(line), "{line}\n{output}");
    }
}

#[test]
fn names_of_the_macros_own() {
    let folder = target();
    fs::create_dir_all(&folder).expect("cannot make the folder");
    let programs = [
        ("everything", names::of_everything()),
        ("constants", names::beside("const NAME: u8 = 0;")),
        ("statics", names::beside("static NAME: u8 = 0;")),
        ("structs", names::beside("struct NAME;")),
    ];
    let files = programs.map(|(name, text)| {
        let file = folder.join(format!("names_of_{name}.rs"));
        fs::write(&file, text).expect("cannot write the program");
        file
    });
    let (output, _) = check("names", &files);
    assert!(!output.contains("error"), "{output}");
}

/// Checks the cases, and compares the places of those diagnostics that `counts` is about with the `.stderr` files.
fn compare(name: &str, cases: &[PathBuf], counts: impl Fn(&Place) -> bool) {
    let (output, found) = check(name, cases);
    let mut wrong = String::new();
    for case in cases {
        let stderr = case.with_extension("stderr");
        let rendered = fs::read_to_string(&stderr).unwrap_or_default();
        let expected = rendered_places(&rendered);
        let found = found.get(case).map_or(&[][..], Vec::as_slice);
        let fails = |places: &[Place]| places.iter().any(|place| place.level == "error");
        let [expected_places, found_places] = [&expected[..], found].map(|places| {
            let mut places: Vec<&Place> = places.iter().filter(|place| counts(place)).collect();
            places.sort();
            places
        });
        if fails(found) != fails(&expected) || found_places != expected_places {
            let _ = writeln!(wrong, "== {}\n-- expected: {expected_places:?}\n-- found: {found:?}", case.display());
        }
    }
    assert!(wrong.is_empty(), "{wrong}\n{output}");
}

/// Where a diagnostic is in its case.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// `error` or `warning`.
    level: String,
    /// `MACO0007`, if it is one of MACO's.
    code: Option<String>,
    line: u32,
    column: u32,
}

impl Place {
    /// Of `error[E0080]: evaluation panicked: MACO0007: ..` at `tests/ui/flow/a.rs:5:9`.
    fn new(text: &str, place: &str) -> Option<(PathBuf, Place)> {
        let level = ["error", "warning"].into_iter().find(|level| text.starts_with(level))?;
        let mut parts = place.get(place.find(CASES)?..)?.split(':');
        let (file, line, column) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some((file.into(), Place { level: level.to_owned(), code: code(text), line, column }))
    }
}

/// Of the text of a `.stderr` file: the first place after each heading is the diagnostic's own.
fn rendered_places(rendered: &str) -> Vec<Place> {
    let mut heading = "";
    let mut places = Vec::new();
    for line in rendered.lines() {
        if let Some(place) = line.trim_start().strip_prefix("--> ") {
            places.extend(Place::new(std::mem::take(&mut heading), place).map(|(_, place)| place));
        } else if line.starts_with(|c: char| c.is_ascii_lowercase()) {
            heading = if line.starts_with("error") || line.starts_with("warning") { line } else { heading };
        }
    }
    places
}

/// Checks all cases as programs of one package of this name: what the compiler printed, and the places of its diagnostics, by case.
fn check(name: &str, cases: &[PathBuf]) -> (String, BTreeMap<PathBuf, Vec<Place>>) {
    let text = package::check(name, cases);
    let mut found: BTreeMap<PathBuf, Vec<Place>> = BTreeMap::new();
    // `tests/ui/flow/a.rs:5:9: error[E0080]: evaluation panicked: MACO0007: ..`
    for (place, text) in text.lines().filter_map(|line| line.split_once(": ")) {
        if let Some((case, place)) = Place::new(text, place) {
            found.entry(case).or_default().push(place);
        }
    }
    (text, found)
}

/// The `.rs` files of these topics, from the root.
fn cases(wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("readable").path());
    let topics = entries(&root.join(CASES)).filter(|topic| topic.file_name().and_then(|name| name.to_str()).is_some_and(&wanted));
    let files = topics.flat_map(|topic| entries(&topic)).filter(|file| file.extension().is_some_and(|end| end == "rs"));
    let mut cases: Vec<PathBuf> = files.map(|file| file.strip_prefix(root).expect("below the root").to_owned()).collect();
    cases.sort();
    cases
}
