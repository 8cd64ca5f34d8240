//! Does in an empty folder what docs/guide/getting_started.md says, up to its chapter on GPUs: device code is made if there is a toolchain.
//!
//! Takes a quarter of a minute: cargo builds a new package, and MACO for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/guide/getting_started.md");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/guide is in the repository").to_owned()
}

/// Runs commands of the page; what they print.
fn shell(folder: &Path, commands: &str) -> (bool, String, String) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target folder");
    let checkout = root().to_string_lossy().into_owned();
    let output = Command::new("sh")
        .args(["-e", "-c", &commands.replace("../maco", &checkout)])
        .current_dir(folder)
        // Shared with what is built already, and no registry is asked.
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TERM_COLOR", "never")
        .output()
        .expect("there is a shell");
    let [printed, told] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    (output.status.success(), printed, told)
}

/// The blocks of the page in this language, before its chapter on GPUs.
fn blocks(language: &str) -> Vec<&'static str> {
    let page = PAGE.split_once("\n## On a GPU\n").expect("the chapter is there").0;
    let fence = format!("```{language}\n");
    let rest: Vec<&str> = page.split(&*fence).skip(1).collect();
    rest.into_iter().map(|rest| rest.split_once("```").expect("a block ends").0).collect()
}

#[test]
fn an_empty_folder_becomes_a_program() {
    // Outside the repository, whose workspace `cargo init` would join.
    let place = tempfile::tempdir().expect("a folder can be made");
    let place = place.path();
    let folder = place.join("empty");
    fs::create_dir_all(&folder).expect("a folder can be made");
    // Not the page's: profiles and versions of this repository, so that little is built anew.
    fs::create_dir_all(place.join(".cargo")).expect("a folder can be made");
    fs::copy(root().join(".cargo/config.toml"), place.join(".cargo/config.toml")).expect("there is a configuration");
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).expect("there is a lock file");

    let [begin, run] = blocks("sh")[..] else { panic!("there are two blocks of commands") };
    let [printed, mistake] = blocks("text")[..] else { panic!("there are two blocks of output") };
    let (done, _, told) = shell(&folder, begin);
    assert!(done, "{told}");
    let mut files = Vec::new();
    for file in blocks("rust") {
        let (name, text) = file.split_once('\n').expect("a file has lines");
        let name = name.strip_prefix("// ").expect("its first line says its name");
        fs::write(folder.join(name), text).expect("the file can be written");
        files.push(name);
    }
    assert_eq!(files, ["build.rs", "src/kernels.rs", "src/main.rs"]);
    let (done, found, told) = shell(&folder, run);
    assert!(done && found == printed, "{found}\n{told}");

    let kernels = folder.join("src/kernels.rs");
    let [wrong, right] = ["axpy(a, y, y)", "axpy(a, z, y)"];
    assert!(PAGE.contains(&format!("`{wrong}` in place of `{right}`")));
    let text = fs::read_to_string(&kernels).expect("it has been written");
    fs::write(&kernels, text.replace(right, wrong)).expect("the file can be written");
    // With the settings that all else was built with: others would have MACO, and all that uses it, built again by the next cargo in this target folder.
    let (done, _, told) = shell(&folder, "cargo check");
    assert!(!done && told.contains(mistake.trim_end()), "{told}");
}
