//! The graph of a crate's imports: which module names what of which other one.
//!
//! What the arrows mean does not belong here. A path leads to the module that defines its item, through `use`, re-exports, globs and aliases. That a
//! module contains another, or hands on an item of one that it contains, is no import.

mod paths;
mod scope;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use scope::Scope;

/// For what a crate is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// `cfg(not(target_arch = "nvptx64"))`
    Host,
    /// `cfg(target_arch = "nvptx64")`
    Device,
}

/// The files of a crate, parsed.
pub enum Sources {
    /// Of this crate: where they are, and which have been read.
    Files(PathBuf, RefCell<BTreeSet<PathBuf>>),
    /// Of a test: the text of each module.
    Text(Vec<(String, String)>),
}

impl Sources {
    pub fn of_crate() -> Sources {
        Sources::of(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
    }

    /// Of the crate with this folder of sources.
    pub fn of(root: PathBuf) -> Sources {
        Sources::Files(root, RefCell::default())
    }

    pub fn of_text(modules: &[(&str, &str)]) -> Sources {
        Sources::Text(modules.iter().map(|(module, text)| (module.to_string(), text.to_string())).collect())
    }

    /// Files that no world has read.
    pub fn unread(&self) -> Vec<PathBuf> {
        let Sources::Files(root, read) = self else { return Vec::new() };
        let (mut folders, mut unread) = (vec![root.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder of sources") {
                let path = entry.expect("an entry of a folder").path();
                match path.is_dir() {
                    true => folders.push(path),
                    false if read.borrow().contains(&path) => {}
                    false => unread.push(path),
                }
            }
        }
        unread
    }

    /// The file of a module, of which `#[path]` says the name if it has one.
    fn read(&self, module: &[String], name: Option<&str>) -> syn::File {
        let path = module.join("::");
        let text = match self {
            Sources::Text(modules) => modules.iter().find(|(module, _)| *module == path).map(|(_, text)| text.clone()),
            Sources::Files(root, read) => {
                let parents = module.len().saturating_sub(1);
                let folder = module[..parents].iter().fold(root.clone(), |folder, module| folder.join(module));
                let files = match (module.last(), name) {
                    (None, _) => vec![root.join("lib.rs")],
                    (Some(_), Some(name)) => vec![folder.join(name)],
                    (Some(last), None) => vec![folder.join(format!("{last}.rs")), folder.join(last).join("mod.rs")],
                };
                files.into_iter().find_map(|file| {
                    let text = std::fs::read_to_string(&file).ok();
                    read.borrow_mut().extend(text.is_some().then_some(file));
                    text
                })
            }
        };
        let text = text.unwrap_or_else(|| panic!("no file of module `{path}`"));
        syn::parse_file(&text).unwrap_or_else(|error| panic!("module `{path}`: {error}"))
    }
}

/// Modules, and the imports between them.
pub struct Graph(BTreeMap<String, BTreeSet<String>>);

impl Graph {
    pub fn of(sources: &Sources, world: World) -> Graph {
        let scopes = Scope::all(sources, world);
        let mut graph = BTreeMap::new();
        for scope in scopes.values() {
            let imports: &mut BTreeSet<String> = graph.entry(scope.file.join("::")).or_default();
            for path in &scope.paths {
                imports.extend(paths::definitions(&scopes, scope, path).into_iter().map(|module| scopes[&module].file.join("::")));
            }
        }
        graph.iter_mut().for_each(|(module, imports)| _ = imports.remove(module));
        Graph(graph)
    }

    /// Pairs: who imports, and what.
    pub fn imports(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|(from, imports)| imports.iter().map(move |to| (from.as_str(), to.as_str())))
    }

    /// One circle of each set of modules that lie on a common one: its modules in order, the first one again at the end.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let mut known: BTreeSet<&str> = BTreeSet::new();
        let mut circles = Vec::new();
        for start in self.0.keys() {
            if !known.contains(start.as_str())
                && let Some(circle) = self.way(start, start)
            {
                known.extend(
                    self.0
                        .keys()
                        .map(String::as_str)
                        .filter(|&module| self.way(start, module).is_some() && self.way(module, start).is_some()),
                );
                circles.push(circle);
            }
        }
        circles
    }

    /// The shortest way along one import or more.
    fn way<'a>(&'a self, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut next = std::collections::VecDeque::from([from]);
        while let Some(at) = next.pop_front() {
            for import in self.0.get(at).into_iter().flatten() {
                if import == to {
                    let mut way = vec![import.as_str(), at];
                    while let Some(&earlier) = before.get(way[way.len() - 1]) {
                        way.push(earlier);
                    }
                    way.reverse();
                    return Some(way);
                }
                if import != from && !before.contains_key(import.as_str()) {
                    before.insert(import, at);
                    next.push_back(import);
                }
            }
        }
        None
    }
}
