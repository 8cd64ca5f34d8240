//! The text of the file that a token stands in: what rustc only finds when it is too late for an error of MACO's.

use proc_macro2::Ident;
use quote::ToTokens;
use syn::{Item, ItemFn, UseTree};

/// What the file says. None without a file, as in rust-analyzer: rustc's own errors remain.
pub fn of(name: &Ident) -> Option<syn::File> {
    if !proc_macro::is_available() {
        return None;
    }
    let text = std::fs::read_to_string(name.span().unwrap().local_file()?).ok()?;
    syn::parse_file(&text).ok()
}

/// The functions of these items and of their modules.
pub fn functions(items: &[Item]) -> Vec<&ItemFn> {
    let mut found = Vec::new();
    for item in items {
        match item {
            Item::Fn(function) => found.push(function),
            Item::Mod(module) => found.extend(module.content.iter().flat_map(|(_, items)| functions(items))),
            _ => {}
        }
    }
    found
}

/// Whether nothing in the file can give a value of this name: no item, no import of it, no import of all of a module but of MACO's prelude, and no macro that
/// could make one.
pub fn has_no_value(file: &syn::File, name: &Ident) -> bool {
    !may_give(&file.items, &name.to_string())
}

fn may_give(items: &[Item], name: &str) -> bool {
    items.iter().any(|item| match item {
        Item::Use(item) => imports(&item.tree, name, false),
        Item::Const(item) => item.ident == name,
        Item::Static(item) => item.ident == name,
        // Nobody knows what they make.
        Item::Macro(_) => true,
        // A function in which a task may stand, with constants of its own.
        Item::Fn(function) => function.block.to_token_stream().to_string().contains(&format!("const {name}")),
        Item::Mod(module) => module.content.as_ref().is_some_and(|(_, items)| may_give(items, name)),
        _ => false,
    })
}

/// `of_prelude`: the path before ends in `prelude`.
fn imports(tree: &UseTree, name: &str, of_prelude: bool) -> bool {
    match tree {
        UseTree::Path(inner) => imports(&inner.tree, name, inner.ident == "prelude"),
        UseTree::Name(leaf) => leaf.ident == name,
        UseTree::Rename(leaf) => leaf.rename == name,
        UseTree::Glob(_) => !of_prelude,
        UseTree::Group(group) => group.items.iter().any(|tree| imports(tree, name, of_prelude)),
    }
}
