//! Test programs that cargo has built, run as `cargo test` runs them, but several at once.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;
use std::{env, iter};

use crate::bundle::{Built, executables};
use crate::command::{capture, cargo, messages, shown};
use crate::failure::Failure;
use crate::packages::{Package, Suite};

/// Begun before others: each has a test that takes over half a minute, or builds packages with cargo.
const LONG: [&str; 12] = [
    "tiny_kernel",
    "ui",
    "faults",
    "models",
    "channels",
    "bodies",
    "getting_started",
    "blocks",
    "pipeline",
    "delays",
    "tensor_cores",
    "golden",
];

/// A test program and its package.
pub struct Program {
    /// What cargo built.
    pub built: Built,
    package: Package,
}

impl Program {
    /// Whether it is one that should not be the last to end.
    pub fn is_long(&self) -> bool {
        self.built.integration_test.as_ref().is_some_and(|(_, name)| LONG.contains(&name.as_str()))
    }

    /// The program, where and with what cargo would run it.
    pub fn command(&self, libraries: &Path) -> Command {
        let mut command = Command::new(&self.built.program);
        let Package { name, directory } = &self.package;
        command.current_dir(directory).env("CARGO_MANIFEST_DIR", directory).env("CARGO_PKG_NAME", name);
        // Tests of macros are linked to the compiler's libraries.
        let known = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let all = iter::once(libraries.to_owned()).chain(env::split_paths(&known));
        command.env("LD_LIBRARY_PATH", env::join_paths(all).unwrap_or(known));
        command
    }
}

/// Builds a suite's test programs. Those that were built, though others failed, and whether some did.
pub fn build(suite: &Suite) -> (Vec<Program>, Result<(), Failure>) {
    let mut command = cargo(&["test", "--no-run", "--no-fail-fast", "--message-format=json-render-diagnostics"]);
    let (text, result) = match messages(command.args(suite.arguments())) {
        Ok(ended) => ended,
        Err(failure) => return (Vec::new(), Err(failure)),
    };
    let programs = executables(&text).into_iter().filter(|built| built.test);
    let programs = programs.filter_map(|built| Some(Program { package: suite.package(&built.package)?.clone(), built })).collect();
    (programs, result)
}

/// Where the compiler keeps the libraries that its own programs are linked to.
pub fn compiler_libraries() -> Result<PathBuf, Failure> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    Ok(PathBuf::from(capture(Command::new(rustc).args(["--print", "sysroot"]))?.trim()).join("lib"))
}

/// Runs it, and prints what it said in one piece, whatever ends meanwhile.
pub fn run(command: &mut Command) -> Result<Output, Failure> {
    let begin = Instant::now();
    let output = command.output().map_err(|source| Failure::Start { program: shown(command), source })?;
    let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    eprintln!("$ {}, {} s\n{errors}{text}", shown(command), begin.elapsed().as_secs());
    Ok(output)
}
