//! What can go wrong between a file of kernels and its PTX, in the user's terms.

use std::path::{Path, PathBuf};

use crate::ptx::Finding;

/// Why there is no PTX.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No compiler on this machine can make PTX.
    #[error(
        "no device toolchain: {tried}; run `rustup component add rust-src --toolchain nightly` (in a checkout of MACO: `cargo xtask setup`)"
    )]
    NoToolchain {
        /// What was looked at and why it did not do.
        tried: String,
    },
    /// MACO's own cache cannot be used, which is no fault of the kernels.
    #[error("{fault}; name a directory that can be written in `MACO_CACHE`")]
    Cache {
        /// What was tried there.
        fault: Box<Error>,
    },
    /// The file system refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried: "read", "write", …
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A variable that cargo sets for build scripts is missing.
    #[error("`{0}` is not set: `maco_build::compile` is for build scripts run by cargo")]
    NotABuildScript(&'static str),
    /// A variable with a value that means nothing.
    #[error("`{name}={value}` means nothing: write {known}, or leave it away to compile device code")]
    Setting {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        known: &'static str,
    },
    /// `MACO_WORKSPACE` names a workspace that is not the one that is being built.
    #[error("`{}` has no lock file beside it that locks `{package}`: `MACO_WORKSPACE` is the folder of the workspace that is being built", manifest.display())]
    Workspace {
        /// The manifest it would have.
        manifest: PathBuf,
        /// The package with kernels.
        package: String,
    },
    /// Two workspaces could be the one that is being built, and host and device would not have the same versions.
    #[error(
        "`{name}` is {} by the lock file of `{}`, but {} by that of `{}`: set `MACO_WORKSPACE` to the folder of the workspace that is being built",
        versions[0], manifests[0].display(), versions[1], manifests[1].display()
    )]
    Workspaces {
        /// Their manifests.
        manifests: [PathBuf; 2],
        /// The package that differs.
        name: String,
        /// Its versions there.
        versions: [String; 2],
    },
    /// The device half was built from another version than the host half.
    #[error(
        "`{name}` is {} by the lock file of `{}`, but {} for the GPU: run `cargo update -p {name}` there, or remove the folder `maco` in the target folder",
        versions[0], manifest.display(), versions[1]
    )]
    Versions {
        /// The manifest of the host half's workspace.
        manifest: PathBuf,
        /// The package that differs.
        name: String,
        /// Its versions on the host, and that on the device.
        versions: [String; 2],
    },
    /// The path given to `compile` is no file of kernels.
    #[error("`{}` cannot be a file of kernels: {why}", path.display())]
    Source {
        /// The path as given.
        path: PathBuf,
        /// The reason, with what to do.
        why: &'static str,
    },
    /// A program could not be run or failed.
    #[error("`{program}` failed: {output}")]
    Program {
        /// Its path.
        program: String,
        /// What it printed, or why it did not start.
        output: String,
    },
    /// What a program or a file said could not be understood.
    #[error("cannot understand {what}: {why}")]
    Format {
        /// Whose text.
        what: String,
        /// The parser's message.
        why: String,
    },
    /// What rustc made of the kernels, or what was embedded, is not PTX that MACO reads.
    #[error("the kernels' PTX cannot be read: {0}; please report it, with the file `maco.ptx` of the target folder")]
    Ptx(#[from] maco_ptx::Error),
    /// rustc refused the kernels for the GPU.
    #[error("{}", summary(.0))]
    Device(Vec<Diagnostic>),
    /// The PTX breaks a rule.
    #[error("{}", findings(.0))]
    Lint(Vec<Finding>),
}

impl Error {
    /// One text for each fault, as rustc shows it in a terminal.
    pub(crate) fn faults(&self) -> Vec<String> {
        match self {
            Error::Device(errors) => errors.iter().map(|error| error.rendered.trim_end().to_owned()).collect(),
            Error::Lint(findings) => findings.iter().map(ToString::to_string).collect(),
            other => vec![other.to_string()],
        }
    }

    /// For `map_err`: an [`Error::Io`] without its source.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Io { action, path: path.to_owned(), source }
    }
}

/// One error of rustc about the device half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// `file:line:column: message`.
    pub line: String,
    /// As rustc shows it in a terminal.
    pub rendered: String,
}

fn summary(diagnostics: &[Diagnostic]) -> String {
    match diagnostics {
        [] => "rustc failed without a message".to_owned(),
        [one] => one.line.clone(),
        [first, rest @ ..] => format!("{} (and {} more)", first.line, rest.len()),
    }
}

fn findings(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
