//! Launch bounds, which Rust has no attribute for: without them ptxas ignores `setmaxnreg` and cannot keep a CTA's registers.

use maco_abi::THREADS;
use maco_ptx::{Function, Module};

use crate::Error;

/// Inserts `.maxntid` and `.minnctapersm` after the parameter list of every entry; leaves an entry alone that has bounds already.
///
/// # Errors
/// The text is not PTX.
pub fn launch_bounds(ptx: &str) -> Result<String, Error> {
    let module = Module::parse(ptx)?;
    let mut patched = String::with_capacity(ptx.len() + 256);
    let mut at = 0;
    let bounded = |entry: &Function<'_>| [".maxntid", ".reqntid"].into_iter().any(|name| entry.directive(name).is_some());
    for entry in module.functions.iter().filter(|function| function.entry && !bounded(function)) {
        patched.push_str(&ptx[at..entry.open]);
        if !patched.ends_with('\n') {
            patched.push('\n');
        }
        patched.push_str(&format!(".maxntid {THREADS}, 1, 1\n.minnctapersm 1\n"));
        at = entry.open;
    }
    patched.push_str(&ptx[at..]);
    Ok(patched)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = ".visible .entry mlp(\n\t.param .u64 .ptr mlp_param_0\n)\n{\n\tret;\n}\n";

    #[test]
    fn bounds_follow_the_parameters_of_every_entry() {
        let two = format!("{ENTRY}.visible .entry other()\n{{\n\tret;\n}}\n");
        let patched = launch_bounds(&two).unwrap();
        assert!(patched.contains("mlp_param_0\n)\n.maxntid 384, 1, 1\n.minnctapersm 1\n{"), "{patched}");
        assert_eq!(patched.matches(".maxntid 384, 1, 1\n.minnctapersm 1\n{").count(), 2);
    }

    #[test]
    fn patching_twice_changes_nothing() {
        let once = launch_bounds(ENTRY).unwrap();
        assert_eq!(launch_bounds(&once).unwrap(), once);
    }

    #[test]
    fn functions_have_no_bounds() {
        let text = ".func helper(\n)\n{\n\tret;\n}\n";
        assert_eq!(launch_bounds(text).unwrap(), text);
    }
}
