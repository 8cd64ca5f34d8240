//! One PTX file per entry: a program loads the kernels it plans, and carries each text once.

use std::collections::{BTreeMap, BTreeSet};

use super::module::symbol;

/// A kernel by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its symbol.
    pub name: String,
    /// Everything outside functions, the entry, and the functions that it calls.
    pub ptx: String,
}

/// The entries of `ptx`, each as a file of its own.
pub fn entries(ptx: &str) -> Vec<Entry> {
    let pieces = pieces(ptx);
    let mut calls: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for piece in &pieces {
        if let Piece::Entry(name, text) | Piece::Function(name, text) = piece {
            calls.entry(name).or_default().extend(called(text));
        }
    }
    let file = |entry: &str| {
        let mut needed = BTreeSet::from([entry]);
        let mut new = vec![entry];
        while let Some(name) = new.pop() {
            new.extend(calls.get(name).into_iter().flatten().filter(|callee| needed.insert(callee)));
        }
        let kept = pieces.iter().filter_map(|piece| match piece {
            Piece::Outside(text) => Some(*text),
            Piece::Entry(name, text) => (*name == entry).then_some(*text),
            Piece::Function(name, text) => needed.contains(name).then_some(*text),
        });
        kept.collect::<String>()
    };
    let names = pieces.iter().filter_map(|piece| if let Piece::Entry(name, _) = piece { Some(*name) } else { None });
    names.map(|name| Entry { name: name.to_owned(), ptx: file(name) }).collect()
}

/// A part of a file.
enum Piece<'a> {
    /// Directives and declarations of variables.
    Outside(&'a str),
    /// An entry: its name and text.
    Entry(&'a str, &'a str),
    /// A function, or its declaration.
    Function(&'a str, &'a str),
}

fn pieces(ptx: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut outside, mut at) = (0, 0);
    while at < ptx.len() {
        let line = ptx[at..].split_inclusive('\n').next().unwrap_or_default();
        let code = line.split("//").next().unwrap_or_default();
        let is_entry = code.contains(".entry ");
        if !is_entry && !code.contains(".func ") {
            at += line.len();
            continue;
        }
        let (name, end) = (symbol(code.trim()), at + length(&ptx[at..]));
        pieces.push(Piece::Outside(&ptx[outside..at]));
        let text = &ptx[at..end];
        pieces.push(if is_entry { Piece::Entry(name, text) } else { Piece::Function(name, text) });
        (outside, at) = (end, end);
    }
    pieces.push(Piece::Outside(&ptx[outside..]));
    pieces
}

/// Length of an entry or function that begins the text: to the brace that closes its body, or to the end of a declaration.
fn length(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// What may be the name of a function in a call: `call.uni (retval), name, (parameters);`, over several lines.
fn called(text: &str) -> impl Iterator<Item = &str> {
    let calls = text.split("call.").skip(1).map(|rest| rest.split(';').next().unwrap_or_default());
    calls.flat_map(|call| call.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).filter(|word| !word.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.6\n.target sm_90a\n.extern .shared .b8 maco_shared[];\n\
        .visible .entry a(\n.param .u64 p\n)\n.maxntid 384, 1, 1\n{\nasm {x;}\nret;\n}\n\
        .visible .entry b(\n.param .u64 p\n)\n{\nexit;\n}\n.file 1 \"kernels.rs\"\n";

    #[test]
    fn every_entry_gets_what_is_outside_and_its_own_body() {
        let entries = entries(PTX);
        assert_eq!(entries.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        for Entry { name, ptx: text } in &entries {
            assert!(text.starts_with(".version 8.6\n.target sm_90a\n.extern .shared"), "{text}");
            assert!(text.ends_with(".file 1 \"kernels.rs\"\n"), "{text}");
            assert_eq!(text.matches(".entry").count(), 1, "{name}: {text}");
        }
        assert!(entries[0].ptx.contains("asm {x;}\nret;\n}") && !entries[0].ptx.contains("exit"));
        assert!(entries[1].ptx.contains("exit;\n}") && !entries[1].ptx.contains("asm"));
    }

    /// Functions go with whoever calls them, declared before or not, also from a function.
    #[test]
    fn functions_go_where_they_are_called() {
        let call = "{ // callseq 0, 0\ncall.uni (retval0), \n";
        let ptx = format!(
            ".version 8.6\n.func  (.param .b32 r) inner\n(\n.param .b32 p\n)\n;\n.func outer(\n.param .b32 p\n)\n{{\n{call}inner, \n(\np\n);\n}}\nret;\n}}\n\
             .visible .entry a(\n)\n{{\n{call}outer, \n(\np\n);\n}}\nret;\n}}\n.visible .entry b(\n)\n{{\nexit;\n}}\n\
             .func  (.param .b32 r) inner(\n.param .b32 p\n)\n{{\nadd;\n}}\n.file 1 \"kernels.rs\"\n"
        );
        let [Entry { ptx: a, .. }, Entry { ptx: b, .. }] = &*entries(&ptx) else { panic!("two entries") };
        assert_eq!(*a, ptx.replace(".visible .entry b(\n)\n{\nexit;\n}", ""));
        assert!(!b.contains("inner") && !b.contains("outer") && b.contains("exit") && b.contains(".file 1"), "{b}");
    }

    #[test]
    fn text_without_entries_gives_none() {
        assert!(entries(".version 8.6\n").is_empty());
    }
}
