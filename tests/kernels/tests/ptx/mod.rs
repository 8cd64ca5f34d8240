//! The entries that the build script embedded, and what holds for those of every package. What one of them should look like does not
//! belong here.
#![allow(dead_code, reason = "not every test that includes this file asks everything")]

mod order;
mod registers;
#[path = "../support/rounds.rs"]
mod rounds;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use maco_build::ptx::{Module, split};

#[allow(unused_imports, reason = "as above")]
pub use order::{FENCES, unseen, unseen_fences};
#[allow(unused_imports, reason = "as above")]
pub use registers::few_words_spill;
pub use rounds::left_out;

/// One entry of the embedded device code.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The megakernel or task set: `gemm` of `maco_gemm_15a7d8663a0b7782`.
    pub name: String,
    /// `maco_gemm_15a7d8663a0b7782`
    pub symbol: String,
    /// The file of its own: with the functions that it calls.
    pub text: String,
}

/// Every entry of the code that the build script left in `out`, with the tags that programs do not carry; none without device code.
pub fn entries(out: &Path) -> BTreeMap<String, Entry> {
    let Ok(text) = fs::read_to_string(out.join("maco.ptx")) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for split::Entry { name: symbol, ptx: text } in split::entries(&text).expect("PTX is read") {
        let Some((name, _hash)) = symbol.strip_prefix("maco_").and_then(|name| name.rsplit_once('_')) else { continue };
        let entry = Entry { name: name.to_owned(), symbol: symbol.clone(), text: statements(&text) };
        found.insert(symbol, entry);
    }
    found
}

/// The text without places in the source and comments but tags, more than half of its lines: tests read it again and again.
fn statements(text: &str) -> String {
    let says = |line: &&str| !line.is_empty() && !["//", ".loc", "$L__tmp"].iter().any(|start| line.starts_with(start));
    let lines = text.lines().filter(|line| is_tag(line) || says(&line.trim_start()));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Whether a line says what the instruction in the next one is for.
pub fn is_tag(line: &str) -> bool {
    line.trim_start().starts_with("// maco: ")
}

/// The entries under `out`, or a word on the terminal that there are none.
pub fn device_code(out: &str, what: &str) -> Vec<Entry> {
    let entries: Vec<Entry> = entries(Path::new(out)).into_values().collect();
    if entries.is_empty() {
        left_out(what, "this package was built without device code");
    }
    entries
}

impl Entry {
    pub fn module(&self) -> Module<'_> {
        Module::parse(&self.text).expect("PTX is read")
    }

    /// Directives between the parameters and the body.
    pub fn bounds(&self) -> Vec<&str> {
        let entry = self.text.find(".entry ").map_or("", |at| &self.text[at..]);
        let head = entry.split_once('{').map_or("", |(head, _)| head);
        head.lines()
            .map(str::trim)
            .filter(|line| line.starts_with(".max") || line.starts_with(".min") || line.starts_with(".req"))
            .collect()
    }
}
