//! `$OUT_DIR/maco.rs`: the constant that the megakernel macro includes.

use std::path::Path;

use crate::Error;
use crate::core_cache::CPU;
use crate::files::{fingerprint, write as write_file};

/// What came of the device half.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Device<'a> {
    /// Checked PTX.
    Ptx(&'a str),
    /// None, and the host build is right without; why, and what to do.
    Missing(&'a str),
    /// None, and the host build must fail: one text for each fault.
    Broken(&'a [String]),
}

/// Writes `maco.rs` (and `maco.ptx`) into `out`; `crate_path` is what `maco` is called there.
pub(crate) fn write(out: &Path, crate_path: &str, device: Device<'_>) -> Result<(), Error> {
    if let Device::Ptx(ptx) = device {
        write_file(&out.join("maco.ptx"), ptx)?;
    }
    write_file(&out.join("maco.rs"), text(out, crate_path, device))
}

/// For a build on the device, where nothing is embedded.
pub(crate) fn empty(out: &Path) -> Result<(), Error> {
    write_file(&out.join("maco.rs"), "")
}

fn text(out: &Path, crate_path: &str, device: Device<'_>) -> String {
    let private = format!("{crate_path}::__private");
    let (modules, error) = match device {
        Device::Ptx(ptx) => {
            let file = out.join("maco.ptx");
            let hash = fingerprint([ptx]);
            let module = format!(
                "{private}::DeviceModule {{ target: {CPU:?}, ptx: include_str!({:?}), hash: 0x{hash:016x} }}",
                file.to_string_lossy()
            );
            (module, "None".to_owned())
        }
        Device::Missing(why) => (String::new(), format!("Some({why:?})")),
        Device::Broken(faults) => (String::new(), format!("Some({:?})", faults.join("; "))),
    };
    let faults = if let Device::Broken(faults) = device { faults } else { &[] };
    let stop: String = faults.iter().map(|fault| format!("compile_error!({:?});\n", format!("MACO: {fault}"))).collect();
    format!("{stop}pub const EMBEDDED: {private}::Embedded = {private}::Embedded {{ modules: &[{modules}], error: {error} }};\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_device_half_is_an_error_and_still_a_constant() {
        let text = text(Path::new("/out"), "::maco", Device::Broken(&["src/kernels.rs:3:1: \"no\"".to_owned()]));
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(r#"compile_error!("MACO: src/kernels.rs:3:1: \"no\"");"#));
        assert!(lines.next().is_some_and(|line| line.starts_with("pub const EMBEDDED") && line.contains("modules: &[]")));
    }

    #[test]
    fn ptx_is_included_from_its_file() {
        let text = text(Path::new("/out"), "crate", Device::Ptx("x"));
        assert!(
            text.contains(r#"crate::__private::DeviceModule { target: "sm_90a", ptx: include_str!("/out/maco.ptx"), hash: 0x"#),
            "{text}"
        );
        assert!(text.ends_with("error: None };\n"));
    }
}
