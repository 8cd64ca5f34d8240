//! Imports of this crate point one way: from the worker down to the hardware; below it is `maco-abi` alone, which imports nothing.
//!
//! The test reads all source files, once as the host compiles them and once as nvptx64 does, resolves every path in them, and draws an arrow
//! from each module to the module that defines what the path names. Code of tests (`#[cfg(test)]`) is left out.

mod module_graph;

use module_graph::{Graph, Sources, World};

/// From top to bottom: a module may import from its own layer and from those below. The longest prefix of a module's path says its layer.
const LAYERS: &[(&str, &[&str])] = &[
    ("worker", &["worker"]),
    ("dispatch", &["dispatch"]),
    ("what bodies call", &["cta"]),
    ("roles", &["roles"]),
    ("role trait", &["role"]),
    ("operations", &["operations"]),
    ("SIMT bodies", &["simt"]),
    ("data", &["data"]),
    ("ring and waits", &["sync"]),
    ("warps as executors of the protocol", &["machine"]),
    ("protocol", &["protocol"]),
    ("channels", &["channel"]),
    ("records", &["profile"]),
    ("layout of shared memory", &["shared_memory", "profile::words"]),
    ("hardware, or its model", &["ptx", "model", "math"]),
];

/// The layer of a module.
fn layer(module: &str) -> Option<usize> {
    let under = |prefix: &str| module.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let prefixes = LAYERS.iter().enumerate().flat_map(|(layer, (_, prefixes))| prefixes.iter().map(move |prefix| (layer, *prefix)));
    prefixes.filter(|(_, prefix)| under(prefix)).max_by_key(|(_, prefix)| prefix.len()).map(|(layer, _)| layer)
}

/// What is wrong with the imports of a graph.
fn faults(graph: &Graph) -> Vec<String> {
    let mut faults: Vec<String> = graph.circles().iter().map(|circle| format!("circle of imports: {}", circle.join(" → "))).collect();
    for (from, to) in graph.imports() {
        match (layer(from), layer(to)) {
            (Some(above), Some(below)) if above <= below => {}
            (Some(above), Some(below)) => {
                faults.push(format!("{from} (layer `{}`) imports {to} (layer `{}`), which is above it", LAYERS[above].0, LAYERS[below].0));
            }
            (None, _) => faults.push(format!("{from} has no layer: add it to `LAYERS`")),
            (_, None) => faults.push(format!("{to} has no layer: add it to `LAYERS`")),
        }
    }
    faults
}

#[test]
fn imports_point_down() {
    let sources = Sources::of_crate();
    let in_world = |world| faults(&Graph::of(&sources, world)).into_iter().map(move |fault| format!("{world:?}: {fault}"));
    let faults: Vec<String> = [World::Host, World::Device].into_iter().flat_map(in_world).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(sources.unread().is_empty(), "no module has these files: {:?}", sources.unread());
}

/// `maco-abi` is the lowest: it depends on no crate, and its modules form no circle.
#[test]
fn the_binary_interface_imports_nothing() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("maco-abi");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("the manifest of maco-abi");
    let needs = |line: &str| line.starts_with('[') && line.contains("dependencies") && line != "[dev-dependencies]";
    assert!(!manifest.lines().any(needs), "maco-abi has dependencies:\n{manifest}");
    let sources = Sources::of(folder.join("src"));
    for world in [World::Host, World::Device] {
        let graph = Graph::of(&sources, world);
        assert!(graph.circles().is_empty(), "{world:?}: {:?}", graph.circles());
        assert!(graph.imports().count() > 0, "{world:?}: no import was found");
    }
    assert!(sources.unread().is_empty(), "no module has these files: {:?}", sources.unread());
}

/// A crate of a few lines: its modules and what is in them.
fn small(files: &[(&str, &str)]) -> Graph {
    Graph::of(&Sources::of_text(files), World::Host)
}

#[test]
fn a_circle_through_a_re_export_is_found() {
    let graph = small(&[
        ("", "mod low; mod high; pub use high::Top;"),
        ("low", "use crate::Top; pub struct Bottom(Option<Box<Top>>);"),
        ("high", "pub struct Top(crate::low::Bottom);"),
    ]);
    assert_eq!(graph.circles(), [["high", "low", "high"]]);
}

#[test]
fn paths_are_resolved_however_they_are_written() {
    let graph = small(&[
        ("", "mod a; mod b; mod c; mod d; mod e; use c as hardware;"),
        ("a", "mod inner; use inner::Inner; pub use inner::Other; fn f(_: Inner) { super::b::g(); let _ = crate::hardware::C; }"),
        ("a::inner", "pub struct Inner; pub struct Other; mod here { macro_rules! m { () => { $crate::d::D } } }"),
        ("b", "use crate::a::*; pub fn g() { #[cfg(target_arch = \"nvptx64\")] crate::e::h(); let _ = Other; }"),
        ("c", "pub struct C; #[cfg(test)] mod tests { use crate::a; }"),
        ("d", "pub struct D;"),
        ("e", "pub fn h() {}"),
    ]);
    let expected = [("a", "a::inner"), ("a", "b"), ("a", "c"), ("a::inner", "d"), ("b", "a"), ("b", "a::inner")];
    assert_eq!(graph.imports().collect::<Vec<_>>(), expected);
    assert_eq!(graph.circles(), [["a", "b", "a"]]);
}

#[test]
fn an_import_of_a_layer_above_is_a_fault() {
    let graph = small(&[("", "mod ptx; mod worker;"), ("ptx", "use crate::worker::W;"), ("worker", "pub struct W;")]);
    assert_eq!(faults(&graph).len(), 1, "{:?}", faults(&graph));
    let graph = small(&[("", "mod ptx; mod worker;"), ("ptx", "pub struct A;"), ("worker", "use crate::ptx::A;")]);
    assert!(faults(&graph).is_empty());
}
