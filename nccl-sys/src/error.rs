//! What can go wrong between a program and NCCL.

use std::fmt;

use crate::bindings::ncclResult_t;
use crate::version::Version;

/// What went wrong, then a help line.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No library under any of its names.
    #[error("NCCL was not found:{}\nhelp: {}", lines(tried), not_found_help(tried))]
    NotFound {
        /// Each name, and why it could not be loaded.
        tried: Vec<Attempt>,
    },
    /// A library without a function that it should have.
    #[error(
        "NCCL{} has no function `{symbol}`\nhelp: the library is not NVIDIA's, or is incomplete: see {VARIABLE} and LD_LIBRARY_PATH, and install NCCL again", of(*version)
    )]
    MissingSymbol {
        /// The function.
        symbol: &'static str,
        /// Version of the library, if it could be asked.
        version: Option<Version>,
    },
    /// A version before the first that has something.
    #[error(
        "NCCL {found} is too old: `{what}` needs {needed}\nhelp: install NCCL {needed} or newer, or name another library by {VARIABLE}"
    )]
    TooOld {
        /// The function or crate that needs more.
        what: &'static str,
        /// Version of the library.
        found: Version,
        /// First version that has it.
        needed: Version,
    },
    /// A version that is known to do something wrong.
    #[error("NCCL {found} is known to be at fault: {reason}\nhelp: install NCCL {fixed} or newer, or name another library by {VARIABLE}")]
    KnownBad {
        /// Version of the library.
        found: Version,
        /// First version without the fault.
        fixed: Version,
        /// What it does.
        reason: &'static str,
    },
    /// A call of NCCL failed.
    #[error(
        "`{function}` failed: {text} (ncclResult_t {}){}\nhelp: set NCCL_DEBUG=WARN for what NCCL says of it; after an error of a communicator only `comm_abort` is left",
        result.0, because(last_error)
    )]
    Call {
        /// The function.
        function: &'static str,
        /// What it returned.
        result: ncclResult_t,
        /// NCCL's text for that.
        text: Box<str>,
        /// NCCL's last error, or nothing.
        last_error: Box<str>,
    },
}

/// The variable that names the library.
pub(crate) const VARIABLE: &str = "MACO_NCCL";

/// A name under which the library was looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The name or path.
    pub name: Box<str>,
    /// What the dynamic linker says.
    pub reason: Box<str>,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.name, self.reason)
    }
}

fn lines(tried: &[Attempt]) -> String {
    tried.iter().map(|attempt| format!("\n  {attempt}")).collect()
}

fn not_found_help(tried: &[Attempt]) -> String {
    match tried {
        [one] => format!("`{}` must be NCCL's shared library; without {VARIABLE} the system's is looked for", one.name),
        _ => format!("install NCCL, add its folder to LD_LIBRARY_PATH, or set {VARIABLE} to the path of its shared library"),
    }
}

fn of(version: Option<Version>) -> String {
    version.map(|version| format!(" {version}")).unwrap_or_default()
}

fn because(last_error: &str) -> String {
    if last_error.is_empty() { String::new() } else { format!("\nbecause: {last_error}") }
}
