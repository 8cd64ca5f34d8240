//! Launch bounds, which Rust has no attribute for: without them ptxas ignores `setmaxnreg` and cannot keep a CTA's registers.

/// Threads of a CTA: one service warpgroup and two consumer warpgroups (`maco_device::abi::THREADS`).
pub const THREADS: u32 = 384;

/// Inserts `.maxntid` and `.minnctapersm` after the parameter list of every entry; leaves an entry alone that has bounds already.
pub fn launch_bounds(ptx: &str) -> String {
    let mut patched = String::with_capacity(ptx.len() + 256);
    let mut rest = ptx;
    while let Some(start) = rest.find(".entry ") {
        let Some(end) = rest[start..].find('{').map(|at| start + at) else { break };
        let head = &rest[..end];
        patched.push_str(head);
        if !head[start..].contains(".maxntid") && !head[start..].contains(".reqntid") {
            if !head.ends_with('\n') {
                patched.push('\n');
            }
            patched.push_str(&format!(".maxntid {THREADS}, 1, 1\n.minnctapersm 1\n"));
        }
        patched.push('{');
        rest = &rest[end + 1..];
    }
    patched.push_str(rest);
    patched
}

/// Names of the entries, in order.
pub fn entries(ptx: &str) -> Vec<&str> {
    ptx.lines().filter_map(|line| line.split_once(".entry ").map(|(_, rest)| rest.split(['(', ' ']).next().unwrap_or(rest))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = ".visible .entry mlp(\n\t.param .u64 .ptr mlp_param_0\n)\n{\n\tret;\n}\n";

    #[test]
    fn bounds_follow_the_parameters_of_every_entry() {
        let two = format!("{ENTRY}.visible .entry other()\n{{\n\tret;\n}}\n");
        let patched = launch_bounds(&two);
        assert!(patched.contains("mlp_param_0\n)\n.maxntid 384, 1, 1\n.minnctapersm 1\n{"), "{patched}");
        assert_eq!(patched.matches(".maxntid 384, 1, 1\n.minnctapersm 1\n{").count(), 2);
        assert_eq!(entries(&two), ["mlp", "other"]);
    }

    #[test]
    fn patching_twice_changes_nothing() {
        let once = launch_bounds(ENTRY);
        assert_eq!(launch_bounds(&once), once);
    }

    #[test]
    fn functions_have_no_bounds() {
        let text = ".func helper(\n)\n{\n\tret;\n}\n";
        assert_eq!(launch_bounds(text), text);
    }

    #[test]
    fn the_device_runtime_has_as_many_threads() {
        let abi = include_str!("../../../maco-device/src/abi.rs");
        assert!(abi.contains(&format!("pub const THREADS: u32 = {THREADS};")));
    }
}
