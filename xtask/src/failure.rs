//! Why a command of xtask failed.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

/// Why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A program that was given the terminal: it has said why.
    #[error("`{command}` failed ({status})")]
    Command {
        /// As typed.
        command: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// A program that ran unseen.
    #[error("`{command}` failed: {output}")]
    Quiet {
        /// As typed.
        command: String,
        /// The end of what it printed.
        output: String,
    },
    /// A program that is not there.
    #[error("cannot run `{program}`: {source}")]
    Start {
        /// Its name.
        program: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The file system refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// "read", "write", …
        action: &'static str,
        /// What.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// No way to a device toolchain worked.
    #[error(
        "no device toolchain, and no way to one worked:\n{tried}\nBy hand, with a network: rustup component add rust-src --toolchain nightly"
    )]
    NoToolchain {
        /// One line for each way.
        tried: String,
    },
    /// Checks that failed, named.
    #[error("{} failed: {}", if .0.len() == 1 { "one check".to_owned() } else { format!("{} checks", .0.len()) }, .0.join(", "))]
    Checks(Vec<String>),
    /// Anything that is a sentence.
    #[error("{0}")]
    Text(String),
    /// From the build.
    #[error(transparent)]
    Build(#[from] maco_build::Error),
}

impl Failure {
    /// For `map_err`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
        move |source| Failure::Io { action, path: path.to_owned(), source }
    }

    /// The exit code: that of a program that was run for the user, otherwise 1.
    pub fn code(&self) -> ExitCode {
        match self {
            Failure::Command { status, .. } => {
                status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
            }
            _ => ExitCode::FAILURE,
        }
    }
}
