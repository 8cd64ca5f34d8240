//! What happens to PTX between rustc and the program: patched, linted, and assembled, if there is an assembler,
//! which also says what the hardware thinks of it.
//!
//! Making PTX does not belong here, nor does reading it (`maco-ptx`). `cargo xtask lint` applies the same parts to the PTX of examples and tests.

mod calls;
mod flow;
pub mod lint;
pub mod patch;
mod protocol;
pub mod ptxas;
pub mod split;
mod tags;

use std::fmt;
use std::fs;
use std::path::Path;

pub use maco_ptx::{Function, Module, Statement};
use split::Entry;

use crate::files::{fingerprint, read, write};
use crate::{Error, parallel};

/// Exceptions to the rules.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Local memory (arrays that are indexed, more than [`SPILLED`] bytes of spilled registers) is no error.
    pub allow_local_memory: bool,
}

/// Bytes of spilled registers a thread that are no error. ptxas keeps a few words of a worker's state there around the functions that bodies call:
/// stored and loaded once a task, from L1. Which entries have some changes with unrelated code (docs/decisions/0061).
pub const SPILLED: u32 = 64;

/// First line of PTX that may use local memory: whoever looks at the file later applies the same rules.
const LOCAL_MEMORY: &str = "// maco:allow(local)\n";

impl Rules {
    /// The rules a finished PTX file was checked by.
    pub fn of(ptx: &str) -> Rules {
        Rules { allow_local_memory: ptx.starts_with(LOCAL_MEMORY) }
    }
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The entry or function it is in.
    pub function: String,
    /// `file:line` of the Rust source, where known.
    pub place: Option<String>,
    /// What is wrong and what to do.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        write!(f, "{} (in `{}`)", self.text, self.function)
    }
}

/// What a package's kernels have become.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    /// All of them.
    pub ptx: String,
    /// Each by itself.
    pub entries: Vec<Embeddable>,
}

/// One kernel as programs carry it.
#[derive(Clone, Debug)]
pub(crate) struct Embeddable {
    pub entry: Entry,
    /// Its machine code, if there is an assembler. Not where it lies: the folder is this build's no longer than its lock is held.
    pub cubin: Option<Vec<u8>>,
}

/// Patches, checks and assembles what rustc made; leaves the result as `maco.ptx` in `workshop`, and machine code in `maco/sass`, and takes them
/// from there when nothing changed.
///
/// `maco` is what all packages share: a fetched `ptxas` may lie there.
pub(crate) fn finish(raw: &str, rules: &Rules, maco: &Path, workshop: &Path) -> Result<Code, Error> {
    let file = workshop.join("maco.ptx");
    let permission = if rules.allow_local_memory { LOCAL_MEMORY } else { "" };
    let ptx = format!("{permission}{}", patch::launch_bounds(raw)?);
    write(&file, &ptx)?; // kept when a rule is broken, so that it can be looked at
    let mut findings = checked(&ptx, rules, &workshop.join("maco.ptx.stamp"))?;
    let entries = split::entries(&ptx)?;
    let assembled = match ptxas::find(maco) {
        Some(assembler) => assemble(&assembler, &entries, rules, &maco.join("sass"))?,
        None => vec![None; entries.len()],
    };
    findings.extend(assembled.iter().flatten().flat_map(|assembled| assembled.findings.clone()));
    if !findings.is_empty() {
        return Err(Error::Lint(findings));
    }
    let embeddable = |(entry, assembled): (Entry, Option<ptxas::Assembled>)| {
        let cubin = assembled.map(|made| fs::read(&made.cubin).map_err(Error::io("read", &made.cubin))).transpose()?;
        Ok(Embeddable { entry, cubin })
    };
    let entries = entries.into_iter().zip(assembled).map(embeddable).collect::<Result<_, Error>>()?;
    Ok(Code { ptx, entries })
}

/// Broken rules that can be seen in PTX. `stamp` remembers a text without any.
fn checked(ptx: &str, rules: &Rules, stamp: &Path) -> Result<Vec<Finding>, Error> {
    let key = format!("{:016x}", fingerprint([ptx, env!("CARGO_PKG_VERSION"), &format!("{rules:?}")]));
    if read(stamp).is_ok_and(|old| old == key) {
        return Ok(Vec::new());
    }
    let findings = lint::check(ptx, rules);
    if findings.is_empty() {
        write(stamp, key)?;
    }
    Ok(findings)
}

/// Every entry, several at once; none of those for which the assembler is too old.
fn assemble(assembler: &Path, entries: &[Entry], rules: &Rules, folder: &Path) -> Result<Vec<Option<ptxas::Assembled>>, Error> {
    ptxas::sweep(folder)?;
    parallel::each(entries, |entry| entry.ptx.len(), |entry| ptxas::assemble(assembler, entry, rules, folder)).into_iter().collect()
}
