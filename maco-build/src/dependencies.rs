//! Which of the user's dependencies the device crate gets: the task libraries, from the very sources the host build uses.
//!
//! Cargo's own answer is used (`cargo metadata`), so that renamed, patched, inherited and vendored dependencies come out right.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

use crate::Error;
use crate::core_cache::TARGET;
use crate::files::read;
use crate::package::Package as User;
use crate::toolchain::{Toolchain, run};

/// What the device crate takes over from the user's package.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    /// `[dependencies]`
    pub table: Table,
    /// `[target]`: dependencies under a condition.
    pub conditional: Table,
    /// `[patch]` of the user's workspace.
    pub patch: Table,
    /// The user's edition.
    pub edition: String,
    /// Names of the user's features.
    pub features: Vec<String>,
    /// The lock file of the host build, if it has been found.
    pub lock: Option<PathBuf>,
    /// Manifests whose change changes the answer.
    pub manifests: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    edition: String,
    source: Option<String>,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    features: BTreeMap<String, Vec<String>>,
    metadata: Option<serde_json::Value>,
}

impl Package {
    fn has_tasks(&self) -> bool {
        self.metadata.as_ref().and_then(|metadata| metadata.get("maco")?.get("tasks")?.as_bool()) == Some(true)
    }
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    rename: Option<String>,
    source: Option<String>,
    req: String,
    kind: Option<String>,
    features: Vec<String>,
    uses_default_features: bool,
    registry: Option<String>,
    path: Option<PathBuf>,
    target: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

/// Asks cargo about the user's package.
///
/// `itself`: the package is `maco` (or stands for it), and its own kernels need it as a dependency.
pub(crate) fn find(toolchain: &Toolchain, user: &User, itself: bool) -> Result<Dependencies, Error> {
    let manifest = user.root.join("Cargo.toml");
    let metadata = ask(toolchain, &manifest, &user.features)?;
    let misses = |what: &str| Error::Format { what: ANSWER.to_owned(), why: format!("no {what} of {}", manifest.display()) };
    let package = metadata.packages.iter().find(|package| package.manifest_path == manifest).ok_or_else(|| misses("package"))?;
    let node = metadata.resolve.nodes.iter().find(|node| node.id == package.id).ok_or_else(|| misses("node"))?;

    let mut found = Dependencies {
        edition: package.edition.clone(),
        features: package.features.keys().filter(|name| *name != "default").cloned().collect(),
        ..Dependencies::default()
    };
    found.manifests.extend([manifest.clone(), metadata.workspace_root.join("Cargo.toml")]);
    for edge in node.deps.iter().filter(|edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none())) {
        let Some(library) = metadata.packages.iter().find(|package| package.id == edge.pkg && package.has_tasks()) else { continue };
        let wanted = |dependency: &&Dependency| dependency.name == library.name && dependency.kind.is_none();
        for dependency in package.dependencies.iter().filter(wanted) {
            found.declare(dependency);
        }
        if library.source.is_none() {
            found.manifests.push(library.manifest_path.clone());
        }
    }
    if itself {
        let path = Value::from(user.root.to_string_lossy().into_owned());
        found.table.insert(package.name.clone(), Table::from_iter([("path".to_owned(), path)]).into());
    }
    found.patch = patches(&metadata.workspace_root)?;
    let beside_target = user.maco.ancestors().nth(2);
    let locks =
        [Some(metadata.workspace_root.as_path()), beside_target].into_iter().flatten().map(|directory| directory.join("Cargo.lock"));
    found.lock = locks.into_iter().find(|lock| lock.exists());
    found.manifests.extend(found.lock.clone());
    Ok(found)
}

const ANSWER: &str = "the answer of `cargo metadata`";

fn ask(toolchain: &Toolchain, manifest: &Path, features: &[String]) -> Result<Metadata, Error> {
    let call = |network: &[&str]| {
        let mut command = toolchain.cargo_command();
        command.args(["metadata", "--format-version=1", "--filter-platform", TARGET, "--no-default-features"]).args(network);
        command.arg("--features").arg(features.join(","));
        run(command.arg("--manifest-path").arg(manifest))
    };
    // A package outside the workspace that is being built has no lock file, and must not get one.
    let unwanted = lock_file_to_be(toolchain, manifest);
    // Offline first: the host build has fetched what it needs. It has not fetched dependencies of tests, which metadata asks for too.
    let text = call(&["--offline"]).or_else(|_| call(&[]));
    if let Some(lock) = unwanted {
        let _ = fs::remove_file(lock); // not there when cargo failed
    }
    serde_json::from_str(&text?).map_err(|error| Error::Format { what: ANSWER.to_owned(), why: error.to_string() })
}

/// The lock file that cargo would write, unless there is one.
fn lock_file_to_be(toolchain: &Toolchain, manifest: &Path) -> Option<PathBuf> {
    let mut command = toolchain.cargo_command();
    command.args(["locate-project", "--workspace", "--message-format=plain", "--manifest-path"]).arg(manifest);
    let lock = Path::new(run(&mut command).ok()?.trim()).with_file_name("Cargo.lock");
    (!lock.exists()).then_some(lock)
}

impl Dependencies {
    /// Adds a dependency to the table it stands in.
    fn declare(&mut self, dependency: &Dependency) {
        let table = match &dependency.target {
            None => &mut self.table,
            Some(condition) => table_in(table_in(&mut self.conditional, condition), "dependencies"),
        };
        table.insert(dependency.rename.clone().unwrap_or_else(|| dependency.name.clone()), declaration(dependency).into());
    }
}

fn table_in<'a>(table: &'a mut Table, key: &str) -> &'a mut Table {
    let entry = table.entry(key).or_insert_with(|| Value::Table(Table::new()));
    entry.as_table_mut().expect("only tables are inserted")
}

/// The dependency as a manifest elsewhere must say it.
fn declaration(dependency: &Dependency) -> Table {
    let mut table = Table::new();
    let mut set = |key: &str, value: Value| drop(table.insert(key.to_owned(), value));
    if dependency.rename.is_some() {
        set("package", dependency.name.clone().into());
    }
    match (&dependency.path, dependency.source.as_deref()) {
        (Some(path), _) => set("path", path.to_string_lossy().into_owned().into()),
        (None, Some(source)) if source.starts_with("git+") => {
            let (url, query) = source["git+".len()..].split_once('?').unwrap_or((&source["git+".len()..], ""));
            set("git", url.split('#').next().unwrap_or(url).into());
            let query = query.split('#').next().unwrap_or(query);
            for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
                set(key, value.into());
            }
        }
        _ => {
            set("version", dependency.req.clone().into());
            if let Some(index) = &dependency.registry {
                set("registry-index", index.clone().into());
            }
        }
    }
    if !dependency.uses_default_features {
        set("default-features", false.into());
    }
    if !dependency.features.is_empty() {
        set("features", dependency.features.iter().map(|feature| Value::from(feature.as_str())).collect::<Vec<_>>().into());
    }
    table
}

/// `[patch]` of the workspace, its paths made absolute.
fn patches(workspace: &Path) -> Result<Table, Error> {
    let manifest = workspace.join("Cargo.toml");
    let text = read(&manifest)?;
    let mut table: Table = text
        .parse()
        .map_err(|error: toml::de::Error| Error::Format { what: format!("`{}`", manifest.display()), why: error.to_string() })?;
    let Some(Value::Table(mut patch)) = table.remove("patch") else { return Ok(Table::new()) };
    for (_, source) in patch.iter_mut() {
        for (_, entry) in source.as_table_mut().into_iter().flatten() {
            if let Some(path) = entry.get_mut("path") {
                let absolute = workspace.join(path.as_str().unwrap_or_default());
                *path = absolute.to_string_lossy().into_owned().into();
            }
        }
    }
    Ok(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(json: &str) -> Table {
        declaration(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn a_registry_dependency_keeps_its_requirement_and_features() {
        let table = dependency(
            r#"{"name":"maco","rename":null,"source":"registry+https://x","req":"^0.1","kind":null,"features":["a"],"uses_default_features":false,"registry":null,"path":null,"target":null}"#,
        );
        assert_eq!(table.to_string(), "default-features = false\nfeatures = [\"a\"]\nversion = \"^0.1\"\n");
    }

    #[test]
    fn a_git_dependency_keeps_its_branch() {
        let table = dependency(
            r#"{"name":"lib","rename":"other","source":"git+https://x/lib?branch=main#abc","req":"*","kind":null,"features":[],"uses_default_features":true,"registry":null,"path":null,"target":null}"#,
        );
        assert_eq!(table.to_string(), "branch = \"main\"\ngit = \"https://x/lib\"\npackage = \"lib\"\n");
    }

    #[test]
    fn a_conditional_dependency_keeps_its_condition() {
        let mut all = Dependencies::default();
        let json = r#"{"name":"lib","rename":null,"source":null,"req":"*","kind":null,"features":[],"uses_default_features":true,"registry":null,"path":"/lib","target":"cfg(unix)"}"#;
        all.declare(&serde_json::from_str(json).unwrap());
        assert_eq!(all.conditional.to_string(), "[\"cfg(unix)\".dependencies.lib]\npath = \"/lib\"\n");
    }
}
