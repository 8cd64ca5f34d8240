//! What can be wrong with a file of MACO's.

use std::path::Path;

/// A trace (MACO0064), a file of costs (MACO0065) or a tuning file (MACO0067) that could not be written or read: which file, where in it, and what was expected.
/// Traces that cannot be merged (MACO0102).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file system refused.
    #[error("{code}: {} cannot be {action}: {source}\nhelp: check the path and its permissions", path.display())]
    Io {
        /// `MACO0064`, `MACO0065` or `MACO0067`.
        code: &'static str,
        /// The file.
        path: Box<Path>,
        /// `read` or `written`.
        action: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no JSON, or ends too early.
    #[error("{code}: {} is not JSON: {why}\nhelp: {help}", path.display())]
    Json {
        /// `MACO0064`, `MACO0065` or `MACO0067`.
        code: &'static str,
        /// The file.
        path: Box<Path>,
        /// What the parser says, with line and column.
        why: Box<str>,
        /// What to do.
        help: &'static str,
    },
    /// JSON, but not of MACO.
    #[error("{code}: {} was not written by MACO: it has no `{missing}`\nhelp: {help}", path.display())]
    Foreign {
        /// `MACO0064`, `MACO0065` or `MACO0067`.
        code: &'static str,
        /// The file.
        path: Box<Path>,
        /// What shows that a file is MACO's.
        missing: &'static str,
        /// What to do.
        help: &'static str,
    },
    /// Written by another version of MACO.
    #[error("{code}: {} has version {found} of its format, but this program reads version {expected}\nhelp: {help}", path.display())]
    Version {
        /// `MACO0064`, `MACO0065` or `MACO0067`.
        code: &'static str,
        /// The file.
        path: Box<Path>,
        /// The file's.
        found: u64,
        /// This program's.
        expected: u64,
        /// What to do.
        help: &'static str,
    },
    /// A field is missing, or says something impossible.
    #[error("{code}: {}: {location}: field `{field}`: expected {expected}, found {found}\nhelp: {help}", path.display())]
    Field {
        /// `MACO0064`, `MACO0065` or `MACO0067`.
        code: &'static str,
        /// The file.
        path: Box<Path>,
        /// Where in it: `event 12`, `otherData.maco.tasks[3]`.
        location: Box<str>,
        /// The field.
        field: Box<str>,
        /// What should be there.
        expected: Box<str>,
        /// What is there.
        found: Box<str>,
        /// What to do.
        help: &'static str,
    },
    /// The same, of a file whose lines are known.
    #[error("{code}: {}, line {line}: field `{field}`: {why}\nhelp: {help}", path.display())]
    Line {
        /// `MACO0067`.
        code: &'static str,
        /// The file.
        path: Box<Path>,
        /// Which line, from 1.
        line: usize,
        /// The field, or the object that lacks one: `maco_tuning.entries[3].tile`.
        field: Box<str>,
        /// What was found, and what was expected.
        why: Box<str>,
        /// What to do.
        help: &'static str,
    },
    /// Traces that are not those of all ranks of one launch.
    #[error(
        "MACO0102: these traces make no timeline of all ranks: {what}\nhelp: pass one trace of each rank of one job, all written behind the same run of one megakernel"
    )]
    Merge {
        /// Which one, and why.
        what: Box<str>,
    },
}

impl FileError {
    /// The stable code: 64 for traces, 65 for costs, 67 for tuning files, 102 for traces that are not of all ranks of one launch.
    pub fn code(&self) -> u16 {
        let (FileError::Io { code, .. }
        | FileError::Json { code, .. }
        | FileError::Foreign { code, .. }
        | FileError::Version { code, .. }
        | FileError::Field { code, .. }
        | FileError::Line { code, .. }) = self
        else {
            return 102;
        };
        match *code {
            COSTS => 65,
            TUNING => 67,
            _ => 64,
        }
    }
}

/// The code of traces.
pub(crate) const TRACE: &str = "MACO0064";
/// The code of files of costs.
pub(crate) const COSTS: &str = "MACO0065";
/// The code of tuning files.
pub(crate) const TUNING: &str = "MACO0067";

const _: () = assert!(size_of::<FileError>() <= 128);
