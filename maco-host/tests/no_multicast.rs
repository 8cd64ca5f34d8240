//! MACO does not use NVLink multicast: no source of the host calls `cuMulticast…`. Of PTX the lint says so.

use std::fs;
use std::path::Path;

/// Lines of Rust files below a folder that name it.
fn named_below(folder: &Path, found: &mut Vec<String>, files: &mut usize) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            named_below(&path, found, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *files += 1;
            let text = fs::read_to_string(&path).unwrap().to_lowercase();
            let lines = text.lines().enumerate().filter(|(_, line)| line.contains("cumulticast") || line.contains("cu_multicast"));
            found.extend(lines.map(|(line, text)| format!("{}:{}: {}", path.display(), line + 1, text.trim())));
        }
    }
}

#[test]
fn the_host_has_no_multicast() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut found, mut files) = (Vec::new(), 0);
    for package in ["src", "maco-host/src", "maco-ranks/src", "maco-device/src", "maco-build/src", "maco-graph/src"] {
        named_below(&root.join(package), &mut found, &mut files);
    }
    assert!(files > 100, "only {files} files were read");
    assert!(found.is_empty(), "{found:#?}");
    // A file that has it is found: this one.
    named_below(&root.join("maco-host/tests"), &mut found, &mut files);
    assert!(!found.is_empty());
}
