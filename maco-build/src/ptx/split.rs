//! One PTX file per entry: a program loads the kernels it plans, and carries each text once.

use std::collections::BTreeSet;

use maco_ptx::{Function, Module};

use super::calls;
use crate::Error;

/// A kernel by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its symbol.
    pub name: String,
    /// Everything outside functions, the entry, and the functions that it calls.
    pub ptx: String,
}

impl Entry {
    /// The same instructions without what only readers need: lines of the source and comments, tags among them. Assembler and driver get this text, and programs carry it: it
    /// is two thirds as long, has no path of the machine that it was made on, and stays as it is when a comment in the source makes other lines.
    pub fn code(&self) -> String {
        let mut code = String::with_capacity(self.ptx.len());
        let mut section = false;
        for line in self.ptx.lines() {
            let word = line.trim_start();
            // Sections hold what debuggers read. They end with the brace that closes them.
            section |= word.starts_with(".section");
            let begins = |what: &str| word.strip_prefix(what).is_some_and(|rest| rest.starts_with(char::is_whitespace));
            if !(section || word.is_empty() || word.starts_with("//") || begins(".loc") || begins(".file") || is_place(word)) {
                code.push_str(line);
                code.push('\n');
            }
            section &= !word.contains('}');
        }
        code
    }
}

/// Whether a line is a label of LLVM's for debuggers, which no branch names: `$L__tmp12:`.
fn is_place(line: &str) -> bool {
    line.trim_end().strip_prefix("$L__tmp").and_then(|rest| rest.strip_suffix(':')).is_some_and(|n| n.bytes().all(|c| c.is_ascii_digit()))
}

/// The entries of `ptx`, each as a file of its own.
///
/// # Errors
/// The text is not PTX.
pub fn entries(ptx: &str) -> Result<Vec<Entry>, Error> {
    let module = Module::parse(ptx)?;
    let mut pieces: Vec<&Function<'_>> = module.functions.iter().chain(&module.declarations).collect();
    pieces.sort_unstable_by_key(|function| function.span.start);
    let file = |entry: &Function<'_>| {
        let mut needed: BTreeSet<&str> = calls::called(&module, entry);
        needed.insert(entry.name);
        let (mut text, mut at) = (String::new(), 0);
        for piece in &pieces {
            text.push_str(&ptx[at..piece.span.start]);
            if needed.contains(piece.name) {
                text.push_str(&ptx[piece.span.clone()]);
            }
            at = piece.span.end;
        }
        text + &ptx[at..]
    };
    let entries = module.functions.iter().filter(|function| function.entry);
    Ok(entries.map(|entry| Entry { name: entry.name.to_owned(), ptx: file(entry) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.6\n.target sm_90a\n.extern .shared .b8 maco_shared[];\n\
        .visible .entry a(\n.param .u64 p\n)\n.maxntid 384, 1, 1\n{\nasm {x;}\nret;\n}\n\
        .visible .entry b(\n.param .u64 p\n)\n{\nexit;\n}\n.file 1 \"kernels.rs\"\n";

    #[test]
    fn every_entry_gets_what_is_outside_and_its_own_body() {
        let entries = entries(PTX).unwrap();
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
        let [Entry { ptx: a, .. }, Entry { ptx: b, .. }] = &*entries(&ptx).unwrap() else { panic!("two entries") };
        assert_eq!(*a, ptx.replace(".visible .entry b(\n)\n{\nexit;\n}", ""));
        assert!(!b.contains("inner") && !b.contains("outer") && b.contains("exit") && b.contains(".file 1"), "{b}");
    }

    /// Read again it is the same statements, but for those of debuggers.
    #[test]
    fn code_has_the_same_instructions() {
        let ptx = "// maco:allow(local)\n.version 8.6\n.target sm_90a\n.visible .entry a(\n.param .u64 p\n)\n{\n\t.reg .b32 %r<3>;\n$L__func_begin0:\n\t.loc\t1 155 0\n\n\
            $L__tmp73:\n\t.loc 11 1378 16, function_name $L__info_string0, inlined_at 1 3 4\n\t@%p25 bra \t$L__BB0_45;\n\t// begin inline asm\n\t// maco: wait.gpu\n\
            \tld.u32 %r1, [%rd1]; // one\n\t// end inline asm\n$L__BB0_45:\n\tret;\n}\n\t.file\t1 \"/home/me/kernels.rs\"\n\
            \t.section\t.debug_str {\n$L__info_string0:\n.b8 97\n\t}\n\t.section .debug_macinfo\t{\t}\n.global .b8 behind;\n";
        let [entry] = &*entries(ptx).unwrap() else { panic!("one entry") };
        let code = entry.code();
        let statements = |text: &str| -> Vec<String> {
            let module = Module::parse(text).unwrap();
            module.functions[0].body.iter().map(|s| format!("{:?} {:?} {}", s.kind, s.guard, s.text)).collect()
        };
        let before: Vec<String> = statements(ptx).into_iter().filter(|statement| !statement.contains("$L__tmp")).collect();
        assert_eq!(statements(&code), before);
        for gone in ["loc", "/home", "begin inline", "maco:", "$L__tmp", "section", "debug", "$L__info"] {
            assert!(!code.contains(gone), "{gone} in {code}");
        }
        assert!(code.starts_with(".version") && code.ends_with("}\n.global .b8 behind;\n"), "{code}");
    }

    #[test]
    fn text_without_entries_gives_none() {
        assert!(entries(".version 8.6\n").unwrap().is_empty());
    }
}
