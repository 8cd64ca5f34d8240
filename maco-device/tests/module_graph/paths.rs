//! From a path to the module that defines what it names.

use std::collections::{BTreeMap, BTreeSet};

use super::scope::{Scope, USE};

type Scopes = BTreeMap<Vec<String>, Scope>;
type Module = Vec<String>;

/// The modules that define what `path` in `scope` names: none for names of other crates and of bodies, for modules outside of `use`, and for what the module's
/// `use` hands on from a module that it contains. One name may stand for a type and a function, so there may be several.
pub fn definitions(scopes: &Scopes, scope: &Scope, path: &[String]) -> BTreeSet<Module> {
    let (path, is_use) = match path.split_last() {
        Some((last, path)) if last == USE => (path, true),
        _ => (path, false),
    };
    let mut found = BTreeSet::new();
    resolve(scopes, scope, path, &mut BTreeSet::new(), &mut found);
    found.retain(|(module, is_module)| if is_use { !module.starts_with(&scope.file) } else { !is_module });
    found.into_iter().map(|(module, _)| module).collect()
}

/// Follows `path` from `scope` to where an item is defined, or to a module itself. `seen` are the `use` followed on the way here: none leads to itself.
fn resolve<'a>(
    scopes: &'a Scopes,
    scope: &'a Scope,
    path: &[String],
    seen: &mut BTreeSet<*const Vec<String>>,
    found: &mut BTreeSet<(Module, bool)>,
) {
    let Some((first, rest)) = path.split_first() else {
        found.insert((scope.module.clone(), true));
        return;
    };
    match first.as_str() {
        "crate" => return resolve(scopes, &scopes[&Module::new()], rest, seen, found),
        "super" => return resolve(scopes, &scopes[&scope.module[..scope.module.len().saturating_sub(1)]], rest, seen, found),
        "self" => return resolve(scopes, scope, rest, seen, found),
        _ => {}
    }
    let inner: Module = scope.module.iter().chain([first]).cloned().collect();
    if let Some(inner) = scopes.get(&inner) {
        resolve(scopes, inner, rest, seen, found);
    } else if scope.items.contains(first) {
        // Behind a type come its functions and constants, wherever they are.
        found.insert((scope.module.clone(), false));
    }
    let named = scope.names.iter().filter(|(name, _)| name == first).map(|(_, target)| (target, rest));
    // What is declared or named here hides what a glob would bring. Without this each glob would be followed behind each other one.
    let hides = scopes.contains_key(&inner) || scope.items.contains(first) || named.clone().next().is_some();
    let globs = scope.globs.iter().filter(|_| !hides).map(|target| (target, path));
    for (target, behind) in named.chain(globs) {
        if seen.insert(target) {
            let whole: Vec<String> = target.iter().chain(behind).cloned().collect();
            resolve(scopes, scope, &whole, seen, found);
            seen.remove(&std::ptr::from_ref(target));
        }
    }
}
