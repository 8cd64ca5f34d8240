//! What the pages of docs/guide show is in this package, word for word, and what they link is there.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/guide is in the repository").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names and texts of the guide's pages.
fn pages() -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join("docs/guide")).expect("the guide is there");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("readable").path()).filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    paths.sort();
    paths.iter().map(|path| (path.file_name().expect("a file").to_string_lossy().into_owned(), read(path))).collect()
}

/// The blocks of a page in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&fence as &str).skip(1).map(|rest| rest.split_once("\n```").expect("a block ends").0).collect()
}

/// Without indentation and empty lines: a block may be a part of a function.
fn bare(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn code_of_the_guide_is_compiled() {
    let sources = ["src/language.rs", "src/overlap.rs", "src/ranks.rs", "src/running.rs"]
        .map(|file| bare(&read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file))));
    let mut found = 0;
    for (name, page) in pages() {
        // These have tests of their own: `getting_started.rs` and `codes.rs`.
        if ["getting_started.md", "codes.md"].contains(&&*name) {
            continue;
        }
        assert!(!page.contains("ignore"), "{name} leaves code out");
        for block in blocks(&page, "rust") {
            assert!(sources.iter().any(|source| source.contains(&bare(block))), "{name} shows what is in no file of tests/guide:\n{block}");
            found += 1;
        }
    }
    assert!(found >= 12, "only {found} blocks found");
}

#[test]
fn every_decision_is_in_the_index() {
    let folder = root().join("docs/decisions");
    let index = read(&folder.join("README.md"));
    for file in fs::read_dir(&folder).expect("there are decisions").map(|entry| entry.expect("readable").path()) {
        let name = file.file_name().expect("a file").to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        let text = read(&file);
        let heading = text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("a heading");
        let (number, title) = heading.split_once(". ").expect("`# 1. Title`");
        assert_eq!(name.get(..4), Some(&*format!("{number:0>4}")), "{name}");
        assert!(index.contains(&format!("| {number} | [{title}]({name}) |")), "{name} is not in the index, or under another title");
    }
}

#[test]
fn links_of_the_guide_lead_somewhere() {
    let root = root();
    let mut texts: Vec<(PathBuf, String)> = pages().into_iter().map(|(name, text)| (root.join("docs/guide").join(name), text)).collect();
    for file in ["README.md", "CONTRIBUTING.md", "docs/building_blocks.md", "docs/soundness.md"] {
        texts.push((root.join(file), read(&root.join(file))));
    }
    let mut found = 0;
    for (path, text) in &texts {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            if file.contains("://") {
                continue;
            }
            let target = if file.is_empty() { path.clone() } else { path.with_file_name("").join(file) };
            assert!(target.exists(), "{}: {link}", path.display());
            assert!(heading.is_empty() || headings(&read(&target)).any(|known| known == heading), "{}: {link}", path.display());
            found += 1;
        }
    }
    assert!(found >= 60, "only {found} links found");
}

/// The anchors of a page's headings, as GitHub makes them.
fn headings(page: &str) -> impl Iterator<Item = String> + '_ {
    let anchor = |title: &str| {
        title.to_lowercase().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    page.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))).map(anchor)
}

#[test]
fn every_variable_is_on_a_page() {
    let page = read(&root().join("docs/guide/gpus.md"));
    let mut found = Vec::new();
    for folder in ["maco-build/src", "maco-host/src", "maco-ranks/src"] {
        variables_below(&root().join(folder), &mut found);
    }
    // Build scripts tell the compiler these, for the macros and for `maco-host`. Nobody sets them.
    found.retain(|name| !["MACO_PACKAGE_DIR", "MACO_NO_DEVICE_CODE"].contains(&name.as_str()));
    assert!(found.len() >= 16, "only {found:?} found");
    let missing: Vec<&String> = found.iter().filter(|name| !page.contains(&format!("`{name}"))).collect();
    assert!(missing.is_empty(), "gpus.md says nothing of {missing:?}");
}

/// The variables of the environment that these sources name, as `"MACO_GRAPH"`.
fn variables_below(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("sources are there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            variables_below(&path, found);
            continue;
        }
        let text = read(&path);
        let names = text.split("\"MACO_").skip(1).filter_map(|rest| rest.split_once('"')).map(|(name, _)| name);
        found.extend(
            names.filter(|name| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')).map(|name| format!("MACO_{name}")),
        );
    }
    found.sort();
    found.dedup();
}

#[test]
fn the_readme_is_short() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= 90, "README.md has {lines} lines");
}
