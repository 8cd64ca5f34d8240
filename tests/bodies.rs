//! Bodies and calls that break one rule, written by a generator: each is refused with that rule's code, on that line.
//!
//! `MACO_BODIES=first..last cargo test --test bodies` is for other seeds than those of CI. The bodies that keep the rules run in `tests/bodies`.
//!
//! Takes half a minute: rustc compiles a package of all bodies and calls that the seeds make.

#[path = "bodies/generator/mod.rs"]
mod generator;
#[path = "ui/package.rs"]
mod package;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use generator::{FAULTS, Wrong, make, seeds};

/// All faults are in them.
const SEEDS: std::ops::Range<u64> = 0..5;

/// An error of a case.
#[derive(Debug)]
struct Found {
    line: u32,
    /// `E0277`, if it has one.
    rustc: Option<String>,
    /// `MACO0073`, if it has one.
    maco: Option<String>,
}

impl Found {
    /// Of `/target/seed0_1_Swapped.rs:5:9: error[E0277]: MACO0073: ..`: the case, and the error.
    fn new(line: &str) -> Option<(&str, Found)> {
        let (place, text) = line.split_once(": error")?;
        let mut parts = place.rsplit(':').skip(1);
        let (line, file) = (parts.next()?.parse().ok()?, parts.next()?);
        let case = file.rsplit('/').next()?.strip_suffix(".rs")?;
        let rustc = text.strip_prefix('[').and_then(|text| Some(text.split_once(']')?.0.to_owned()));
        Some((case, Found { line, rustc, maco: package::code(text) }))
    }

    fn has(&self, code: &str) -> bool {
        // What has a code of MACO's is not rustc's alone.
        self.maco.as_deref().or(self.rustc.as_deref()) == Some(code)
    }
}

/// What is wrong with how a case was refused.
fn complaint(wrong: &Wrong, found: &[Found]) -> Option<String> {
    let Wrong { code, line, .. } = wrong;
    if !found.iter().any(|found| found.line == *line && found.has(code)) {
        return Some(format!("no {code} on line {line}"));
    }
    let other = found.iter().find(|found| found.maco.as_deref().is_some_and(|maco| maco != *code));
    let elsewhere = || found.iter().find(|found| found.line != *line);
    other.or_else(elsewhere).map(|other| format!("more than {code} on line {line}: {other:?}"))
}

#[test]
fn what_breaks_a_rule_is_refused() {
    let seeds = seeds(SEEDS);
    let made: Vec<_> = seeds.clone().map(make).collect();
    let right: usize = made.iter().map(|made| made.right).sum();
    let cases: Vec<Wrong> = made.into_iter().flat_map(|made| made.wrong).collect();
    assert!(cases.len() >= right, "{} wrong bodies beside {right} right ones", cases.len());
    if seeds == SEEDS {
        let missing: Vec<_> = FAULTS.iter().filter(|fault| !cases.iter().any(|case| case.fault == **fault)).collect();
        assert!(missing.is_empty(), "nothing breaks these rules: {missing:?}");
    }

    let folder = package::target().join("bodies");
    let _ = fs::remove_dir_all(&folder); // other seeds
    fs::create_dir_all(&folder).expect("cannot make the folder");
    let files: Vec<PathBuf> = cases
        .iter()
        .map(|case| {
            let file = folder.join(&case.name).with_extension("rs");
            fs::write(&file, &case.source).expect("cannot write the case");
            file
        })
        .collect();
    let output = package::check("bodies", &files);
    let mut found: BTreeMap<&str, Vec<Found>> = BTreeMap::new();
    for (case, error) in output.lines().filter_map(Found::new) {
        found.entry(case).or_default().push(error);
    }
    let mut complaints = String::new();
    for case in &cases {
        if let Some(what) = complaint(case, found.get(case.name.as_str()).map_or(&[], Vec::as_slice)) {
            let said: Vec<&str> = output.lines().filter(|line| line.contains(&format!("{}.rs", case.name))).collect();
            let _ = writeln!(complaints, "== {}: {what}\n{}\n{}", case.name, said.join("\n"), case.source);
        }
    }
    assert!(complaints.is_empty(), "{complaints}");
    println!("{} refused, of seeds {seeds:?}", cases.len());
}
