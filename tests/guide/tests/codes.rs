//! docs/guide/codes.md: a section for each code, made from the cases of tests/ui, which `cargo test` of the root compiles, and from the programs in `src/mistakes.rs`, which
//! run here. `MACO_BLESS=1` writes the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use guide::mistakes::{ALL, Desk};

const PAGE: &str = "docs/guide/codes.md";

/// What is found while compiling, by the case that shows it.
const CASES: [(u16, &str); 35] = [
    (1, "call/aliased"),
    (2, "flow/unwritten_temp"),
    (3, "flow/never_read"),
    (4, "call/rank"),
    (5, "call/dimension"),
    (6, "call/element"),
    (7, "call/too_few"),
    (8, "call/tensor_for_scalar"),
    (9, "call/writes_in"),
    (10, "flow/never_written"),
    (11, "dimension/unknown"),
    (12, "attribute/twice"),
    (13, "region/unknown_index"),
    (14, "region/missing_axis"),
    (15, "signature/no_cta"),
    (16, "body/value_of_call"),
    (17, "call/tile_size"),
    (18, "call/split_without_sum"),
    (19, "placement/partial_read"),
    (20, "resource/scratch"),
    (21, "resource/workers"),
    (22, "call/index"),
    (23, "view/rank"),
    (24, "region/data_write"),
    (25, "view/slice"),
    (26, "dimension/by_zero"),
    (28, "region/no_dimension"),
    (68, "body/operation_beside_gemm"),
    (73, "access/zip_reads_write"),
    (74, "body/never_written"),
    (75, "axes/zip_turned"),
    (80, "constant/names"),
    (81, "body/std"),
    (82, "call/ordinary_function"),
    (101, "body/changing"),
];

/// Codes that the types of tiles have: there is nothing in the table of codes for their meaning.
const OF_TYPES: [(u16, &str); 2] = [
    (73, "A body touches a parameter in a way that its `#[read]`, `#[write]` or `#[update]` does not allow."),
    (75, "An operation combines tiles that do not lie beside each other."),
];

const HEAD: &str = "\
# Codes

Every error of MACO has a code.
Codes keep their meaning; the words may change.
`Error::code()` is the number of an error at run time.

- [While compiling](#while-compiling): rustc shows them on the token that is wrong. The line shown here is that of the test case that is linked.
- [When a plan is made or run](#when-a-plan-is-made-or-run): a `Result`. In the examples `plan` is one of `quadruple(x: In<f32, M, N>, y: Out<f32, M, N>)`
  for 16 × 8 elements on a CPU with two workers. What a test cannot provoke has its text only.
  Programs: [`tests/guide/src/mistakes.rs`](../../tests/guide/src/mistakes.rs).
- Sizes are often known at run time only, and graphs may be built then: a plan may then be refused with a code of the first kind.

<!-- Written by `MACO_BLESS=1 cargo test -p guide --test codes` in tests/ from test cases and sources. -->
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/guide is in the repository").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_page_is_what_the_tests_show() {
    let root = root();
    let page = page(&root);
    if env::var("MACO_BLESS").is_ok_and(|value| value == "1") {
        fs::write(root.join(PAGE), &page).expect("the page can be written");
    }
    let shown = read(&root.join(PAGE));
    let differs = page.lines().zip(shown.lines()).find(|(a, b)| a != b);
    assert!(page == shown, "{PAGE} differs, first where {differs:?}; MACO_BLESS=1 rewrites it, if this is meant");
}

#[test]
fn every_code_has_a_section() {
    let root = root();
    let page = read(&root.join(PAGE));
    let sections: BTreeSet<String> = page.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_owned).collect();
    let mut known: BTreeSet<String> = meanings(&root).into_keys().map(label).collect();
    for folder in ["maco-build/src", "maco-device/src", "maco-graph/src", "maco-host/src", "maco-macros/src", "maco-ranks/src", "src"] {
        codes_below(&root.join(folder), &mut known);
    }
    assert!(known.len() >= 83, "only {} codes found", known.len());
    let missing: Vec<&String> = known.symmetric_difference(&sections).collect();
    assert!(missing.is_empty(), "in the sources or in {PAGE}, and not in both: {missing:?}");
}

fn label(code: u16) -> String {
    format!("MACO{code:04}")
}

/// Every code that these sources name.
fn codes_below(folder: &Path, codes: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            codes_below(&path, codes);
        } else {
            let text = read(&path);
            let after = text.match_indices("MACO").filter_map(|(at, word)| text.get(at..at + word.len() + 4));
            codes.extend(after.filter(|code| code[4..].bytes().all(|byte| byte.is_ascii_digit())).map(str::to_owned));
        }
    }
}

/// The table of codes: `/// Meaning.` above `Name = 7,`.
fn meanings(root: &Path) -> BTreeMap<u16, String> {
    let table = read(&root.join("maco-graph/src/spec/code.rs"));
    let mut meaning = Vec::new();
    let mut meanings = BTreeMap::from(OF_TYPES.map(|(code, meaning)| (code, meaning.to_owned())));
    for line in table.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            meaning.push(text);
            continue;
        }
        if let Some(code) = line.strip_suffix(',').and_then(|line| line.split_once(" = ")?.1.parse().ok()) {
            meanings.insert(code, meaning.join(" "));
        }
        meaning.clear();
    }
    meanings
}

fn page(root: &Path) -> String {
    let meanings = meanings(root);
    let mut page = format!("{HEAD}\n## While compiling\n");
    for (code, case) in CASES {
        let meaning = meanings.get(&code).unwrap_or_else(|| panic!("{code} is in no table"));
        let (line, message) = shown(root, code, case);
        section(&mut page, code, meaning, "rust", &format!("{line}\n{message}"));
        let _ = writeln!(page, "\nCase: [`{case}.rs`](../../tests/ui/{case}.rs)");
    }
    page.push_str("\n## When a plan is made or run\n");
    let source = read(&root.join("tests/guide/src/mistakes.rs"));
    for (name, mistake) in ALL {
        let (meaning, body) = function(&source, name);
        // One worker: which task is the first to fail is always the same.
        let error = mistake(Desk::new(if matches!(*name, "maco0048" | "maco0051" | "maco0069") { 1 } else { 2 }));
        let code = error.code();
        assert_eq!(*name, label(code).to_lowercase(), "{error}");
        let text = without_times(&error.to_string());
        let text = text.strip_prefix(&format!("{}: ", label(code))).expect("the code is in front");
        // A program that only makes the error shows nothing.
        if body.contains("Error::") {
            section(&mut page, code, &meaning, "text", text);
        } else {
            section(&mut page, code, &meaning, "rust", &format!("{body}\n{}", comment(text)));
        }
    }
    page
}

fn section(page: &mut String, code: u16, meaning: &str, language: &str, block: &str) {
    let _ = write!(page, "\n### {}\n\n{meaning}\n\n```{language}\n{block}\n```\n", label(code));
}

fn comment(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("// {}", line.trim_start_matches([' ', '=']))).collect();
    lines.join("\n")
}

/// `waited 200.4ms for` is another number each time.
fn without_times(text: &str) -> String {
    let Some((before, after)) = text.split_once("waited ") else { return text.to_owned() };
    let Some((_, after)) = after.split_once(' ').filter(|(time, _)| time.ends_with("ms")) else { return text.to_owned() };
    format!("{before}waited 200.0ms {after}")
}

/// The line of a case that has the first error of this code, and what rustc says of it.
fn shown(root: &Path, code: u16, case: &str) -> (String, String) {
    let [source, expected] = ["rs", "stderr"].map(|end| read(&root.join("tests/ui").join(case).with_extension(end)));
    let label = format!("{}: ", label(code));
    let mut lines = expected.lines().skip_while(|line| !(line.starts_with("error") && line.contains(&label)));
    let heading = lines.next().unwrap_or_else(|| panic!("{case} has no {label}"));
    let mut message = vec![heading.split_once(&label).expect("it has the code").1.to_owned()];
    let mut place = None;
    let mut notes = lines.take_while(|line| !line.starts_with("error") && !line.starts_with("help: ") && !line.starts_with("note: "));
    for line in notes.by_ref() {
        if let Some(at) = line.trim_start().strip_prefix("--> tests/ui/") {
            place = at.split(':').nth(1).and_then(|line| line.parse::<usize>().ok());
            break;
        }
        message.push(line.trim().trim_start_matches("= ").to_owned());
    }
    // What a trait says is rustc's, but for MACO's own notes.
    let own = |note: &&str| {
        note.starts_with("note: ") && ![" required for", " `At<", " 1 redundant"].iter().any(|start| note[5..].starts_with(start))
    };
    message.extend(notes.filter_map(|line| line.split_once("= ").map(|(_, note)| note)).find(own).map(str::to_owned));
    let line = source.lines().nth(place.unwrap_or_else(|| panic!("{case}: no place")) - 1).expect("the place is in the case");
    (line.trim().to_owned(), comment(&message.join("\n")))
}

/// Documentation and body of a function.
fn function(source: &str, name: &str) -> (String, String) {
    let (before, after) = source.split_once(&format!("fn {name}(")).unwrap_or_else(|| panic!("no {name}"));
    let documentation: Vec<&str> = before.lines().rev().map_while(|line| line.strip_prefix("/// ")).collect();
    let documentation: Vec<&str> = documentation.into_iter().rev().collect();
    let body = after.split_once("{\n").and_then(|(_, rest)| rest.split_once("\n}\n")).expect("a body").0;
    let body: Vec<&str> = body.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    (documentation.join(" "), body.join("\n"))
}
