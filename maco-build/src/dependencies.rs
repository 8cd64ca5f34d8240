//! Which of the user's dependencies the device crate gets: the task libraries, from the very sources the host build uses.
//!
//! Cargo's own answer is used (`cargo metadata`), so that renamed, patched, inherited and vendored dependencies come out right.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use toml::{Table, Value};

use crate::Error;
use crate::core_cache::TARGET;
use crate::files::write;
use crate::package::Package as User;
use crate::toolchain::{Toolchain, run};
use crate::workspace::{Workspace, table};

/// What the device crate takes over from the user's package.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    /// `[dependencies]`
    pub table: Table,
    /// `[target]`: dependencies under a condition.
    pub conditional: Table,
    /// The user's edition.
    pub edition: String,
    /// Names of the user's features.
    pub features: Vec<String>,
    /// Manifests whose change changes the answer.
    pub manifests: Vec<PathBuf>,
    /// Where task libraries and what they need have their sources, for those that are no release: a build that fails does not say which
    /// files it read.
    pub sources: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
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
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
}

impl Package {
    /// The directory of its library and the file of its build script.
    fn sources(&self) -> impl Iterator<Item = PathBuf> {
        self.targets.iter().filter_map(|target| match target.kind.first()?.as_str() {
            "custom-build" => Some(target.src_path.clone()),
            "bin" | "example" | "test" | "bench" => None,
            _ => target.src_path.parent().map(Path::to_owned),
        })
    }

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
pub(crate) fn find(toolchain: &Toolchain, user: &User, workspace: &Workspace) -> Result<Dependencies, Error> {
    let manifest = user.root.join("Cargo.toml");
    let metadata = if has_library(&manifest)? { ask_as_dependent(toolchain, user, workspace) } else { ask(toolchain, &manifest, user) }?;
    let misses = |what: &str| Error::Format { what: ANSWER.to_owned(), why: format!("no {what} of {}", manifest.display()) };
    let package = metadata.packages.iter().find(|package| package.manifest_path == manifest).ok_or_else(|| misses("package"))?;
    let node = metadata.resolve.nodes.iter().find(|node| node.id == package.id).ok_or_else(|| misses("node"))?;

    let mut found = Dependencies {
        edition: package.edition.clone(),
        features: package.features.keys().filter(|name| *name != "default").cloned().collect(),
        ..Dependencies::default()
    };
    let mut libraries = Vec::new();
    for edge in node.deps.iter().filter(|edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none())) {
        let Some(library) = metadata.packages.iter().find(|package| package.id == edge.pkg && package.has_tasks()) else { continue };
        let wanted = |dependency: &&Dependency| dependency.name == library.name && dependency.kind.is_none();
        for dependency in package.dependencies.iter().filter(wanted) {
            found.declare(dependency);
        }
        if library.source.is_none() {
            found.manifests.push(library.manifest_path.clone());
        }
        libraries.push(&*library.id);
    }
    found.sources = metadata.sources(libraries);
    found.manifests.push(manifest);
    Ok(found)
}

impl Metadata {
    /// Sources of these packages and of all that they are built from. What came from a registry or a repository does not change.
    fn sources<'a>(&'a self, mut open: Vec<&'a str>) -> Vec<PathBuf> {
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if let Some(node) = self.resolve.nodes.iter().find(|node| node.id == id && seen.insert(id)) {
                let built = |edge: &&Edge| edge.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"));
                open.extend(node.deps.iter().filter(built).map(|edge| &*edge.pkg));
            }
        }
        self.packages.iter().filter(|package| package.source.is_none() && seen.contains(&*package.id)).flat_map(Package::sources).collect()
    }
}

const ANSWER: &str = "the answer of `cargo metadata`";

/// Can other packages depend on this one?
fn has_library(manifest: &Path) -> Result<bool, Error> {
    Ok(table(manifest)?.contains_key("lib") || manifest.with_file_name("src/lib.rs").exists())
}

/// Asks from a package that depends on the user's, as the package that is being built does: the user's own may be of no workspace, or of
/// one without a lock file, and what its tests need may never have been fetched.
fn ask_as_dependent(toolchain: &Toolchain, user: &User, workspace: &Workspace) -> Result<Metadata, Error> {
    let directory = user.workshop().join("dependent");
    let manifest = directory.join("Cargo.toml");
    let mut table = Table::from_iter([
        (
            "package".to_owned(),
            Table::from_iter([("name".to_owned(), "maco-dependent".into()), ("edition".to_owned(), "2024".into())]).into(),
        ),
        ("workspace".to_owned(), Table::new().into()),
        ("dependencies".to_owned(), Table::from_iter([(user.name.clone(), by_path(&user.root, &user.features).into())]).into()),
    ]);
    if !workspace.patch.is_empty() {
        table.insert("patch".to_owned(), workspace.patch.clone().into());
    }
    write(&manifest, table.to_string())?;
    write(&directory.join("src/lib.rs"), "")?;
    workspace.copy_lock(&directory, &user.name)?;
    metadata(|| {
        let mut command = toolchain.cargo_command();
        command.current_dir(&user.root).args(["metadata", "--manifest-path"]).arg(&manifest);
        command
    })
}

/// Asks about a program, which is always a member of the workspace that is being built.
fn ask(toolchain: &Toolchain, manifest: &Path, user: &User) -> Result<Metadata, Error> {
    metadata(|| {
        let mut command = toolchain.cargo_command();
        command.current_dir(&user.root).args(["metadata", "--no-default-features", "--features"]).arg(user.features.join(","));
        command.arg("--manifest-path").arg(manifest);
        command
    })
}

fn metadata(command: impl Fn() -> Command) -> Result<Metadata, Error> {
    let call = |network: &[&str]| run(command().args(["--format-version=1", "--filter-platform", TARGET]).args(network));
    // Offline first: the host build has fetched what it needs, though not what only the device or tests need.
    let text = call(&["--offline"]).or_else(|_| call(&[]))?;
    serde_json::from_str(&text).map_err(|error| Error::Format { what: ANSWER.to_owned(), why: error.to_string() })
}

fn by_path(path: &Path, features: &[String]) -> Table {
    Table::from_iter([
        ("path".to_owned(), Value::from(path.to_string_lossy().into_owned())),
        // Where they are on, cargo lists `default` among the features.
        ("default-features".to_owned(), false.into()),
        ("features".to_owned(), features.iter().map(|feature| Value::from(feature.as_str())).collect::<Vec<_>>().into()),
    ])
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
