//! The text of the file that a token stands in: what rustc only finds when it is too late for an error of MACO's.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Item, UseTree};

/// What a file says, in words of its own: tokens are gone after the macro call that they were read in.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Functions of the file and of its modules, and whether the attribute of each was forgotten.
    functions: Vec<(String, bool)>,
    /// Constants, statics and imports.
    values: BTreeSet<String>,
    /// What follows `const` in functions: a task may stand there, with constants of its own.
    inner: BTreeSet<String>,
    /// Whether it imports all of a module but of MACO's prelude, or calls a macro: nobody knows what that makes.
    anything: bool,
}

/// A path, the text there, and what it says.
type Last = (PathBuf, String, Option<Rc<File>>);

thread_local! {
    /// A file is asked for by each macro call in it, and reading it takes longer the more there are.
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// What the file says. None without a file, as in rust-analyzer: rustc's own errors remain.
pub fn of(name: &Ident) -> Option<Rc<File>> {
    if !proc_macro::is_available() {
        return None;
    }
    let path = name.span().unwrap().local_file()?;
    let text = std::fs::read_to_string(&path).ok()?;
    LAST.with_borrow_mut(|last| match last {
        Some((of, then, file)) if *of == path && *then == text => file.clone(),
        _ => {
            let file = syn::parse_file(&text).ok().map(|file| Rc::new(File::new(&file.items)));
            *last = Some((path, text, file.clone()));
            file
        }
    })
}

impl File {
    fn new(items: &[Item]) -> File {
        let mut file = File::default();
        file.add(items);
        file
    }

    fn add(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Use(item) => self.import(&item.tree, false),
                Item::Const(item) => drop(self.values.insert(item.ident.to_string())),
                Item::Static(item) => drop(self.values.insert(item.ident.to_string())),
                Item::Macro(_) => self.anything = true,
                Item::Fn(function) => {
                    self.functions.push((function.sig.ident.to_string(), crate::kernel::forgotten::is_forgotten(function)));
                    self.constants(function.block.to_token_stream());
                }
                Item::Mod(module) => module.content.iter().for_each(|(_, items)| self.add(items)),
                _ => {}
            }
        }
    }

    /// `of_prelude`: the path before ends in `prelude`.
    fn import(&mut self, tree: &UseTree, of_prelude: bool) {
        match tree {
            UseTree::Path(inner) => self.import(&inner.tree, inner.ident == "prelude"),
            UseTree::Name(leaf) => drop(self.values.insert(leaf.ident.to_string())),
            UseTree::Rename(leaf) => drop(self.values.insert(leaf.rename.to_string())),
            UseTree::Glob(_) => self.anything |= !of_prelude,
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, of_prelude)),
        }
    }

    fn constants(&mut self, tokens: TokenStream) {
        let mut after = false;
        for token in tokens {
            match &token {
                TokenTree::Ident(name) if after => drop(self.inner.insert(name.to_string())),
                TokenTree::Group(group) => self.constants(group.stream()),
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            after = matches!(&token, TokenTree::Ident(word) if word == "const");
        }
    }

    /// Whether there are functions of this name, and the attribute of each was forgotten.
    pub fn forgets(&self, name: &Ident) -> bool {
        let mut named = self.functions.iter().filter(|(function, _)| name == function).peekable();
        named.peek().is_some() && named.all(|(_, forgotten)| *forgotten)
    }

    /// Whether nothing in the file can give a value of this name: no item, no import of it, no import of all of a module but of MACO's prelude, and no macro
    /// that could make one.
    pub fn has_no_value(&self, name: &Ident) -> bool {
        let name = name.to_string();
        !self.anything && !self.values.contains(&name) && !self.inner.iter().any(|inner| inner.starts_with(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File::new(&syn::parse_file(text).unwrap().items)
    }

    fn has_no_value(text: &str) -> bool {
        file(text).has_no_value(&syn::parse_str("N").unwrap())
    }

    #[test]
    fn whatever_may_give_a_value_counts() {
        assert!(has_no_value("use maco::prelude::*; fn f(n: usize) -> usize { n } mod m { const M: usize = 1; }"));
        let may = ["const N: usize = 1;", "mod m { static N: usize = 1; }", "use a::{b, c::N};", "use a::M as N;", "use a::*;", "make!();"];
        may.iter().for_each(|text| assert!(!has_no_value(text), "{text}"));
        assert!(!has_no_value("fn f() { if true { const N: usize = 1; } }"));
        assert!(has_no_value("fn f() { const M: usize = 1; let N = M; }"));
    }

    #[test]
    fn functions_of_modules_are_found() {
        let text = "mod m { pub fn f(#[read(i)] x: Tensor<f32, N>) {} } #[task] fn g(#[read(i)] x: Tensor<f32, N>) {} fn h(x: u32) {}";
        let forgets = |name| file(text).forgets(&syn::parse_str(name).unwrap());
        assert_eq!(["f", "g", "h", "i"].map(forgets), [true, false, false, false]);
    }
}
