//! What happens to PTX between rustc and the program: patched, linted, assembled once to see what the hardware thinks of it.
//!
//! Making PTX does not belong here. `cargo xtask lint` applies the same parts to the PTX of examples and tests.

mod flow;
pub mod lint;
pub mod module;
pub mod patch;
mod protocol;
pub mod ptxas;
pub mod split;

use std::fmt;
use std::fs;
use std::path::Path;

use crate::Error;
use crate::files::{fingerprint, read, write};

/// Exceptions to the rules.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Local memory (arrays that are indexed, spilled registers) is no error.
    pub allow_local_memory: bool,
}

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

/// Patches and checks what rustc made; leaves the result as `maco.ptx` in `workshop` and takes it from there when nothing changed.
///
/// `maco` is where a fetched `ptxas` may lie.
pub(crate) fn finish(raw: &str, rules: &Rules, maco: &Path, workshop: &Path) -> Result<String, Error> {
    let assembler = ptxas::find(maco);
    let file = workshop.join("maco.ptx");
    let stamp = workshop.join("maco.ptx.stamp");
    let settings = format!(
        "{} {rules:?} {assembler:?} {:?}",
        env!("CARGO_PKG_VERSION"),
        assembler.as_ref().and_then(|path| fs::metadata(path).ok()?.modified().ok())
    );
    let key = |ptx: &str| format!("{:016x} {:016x}", fingerprint([raw, &settings]), fingerprint([ptx]));
    if let (Ok(old), Ok(ptx)) = (read(&stamp), read(&file))
        && old == key(&ptx)
    {
        return Ok(ptx);
    }
    let permission = if rules.allow_local_memory { LOCAL_MEMORY } else { "" };
    let ptx = format!("{permission}{}", patch::launch_bounds(raw));
    write(&file, &ptx)?; // kept when a rule is broken, so that it can be looked at
    let mut findings = lint::check(&ptx, rules);
    if let Some(assembler) = assembler {
        findings.extend(ptxas::check(&assembler, &file, rules)?.into_iter().flat_map(|verdict| verdict.findings));
    }
    if !findings.is_empty() {
        return Err(Error::Lint(findings));
    }
    write(&stamp, key(&ptx))?;
    Ok(ptx)
}
