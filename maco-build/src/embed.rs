//! `$OUT_DIR/maco.rs`: the expression that the macros of megakernels and task sets include.
//!
//! It names `Embedded` and `DeviceModule`, which the macros bring into scope: what the crate is called where the kernels are, only they know. It is compiled under
//! the lint levels of the user's crate, so it must please all of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use crate::Error;
use crate::core_cache::CPU;
use crate::files::{create_dir, fingerprint, write as write_file};
use crate::ptx::{Code, Embeddable};

/// What came of the device half.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Device<'a> {
    /// Checked code, the same such that it records, and MACO's version there.
    Code(&'a Code, Option<&'a Code>, Option<&'a str>),
    /// None, and the host build is right without; why, and what to do.
    Missing(&'a str),
    /// None, and the host build must fail: why in a line, and one text for each fault, as long as it takes.
    Broken(&'a str, &'a [String]),
}

/// Writes `maco.rs` into `out`, and with device code a file for each entry: `maco/ENTRY.rs`, which includes `maco/ENTRY.ptx`, and
/// `maco/profile/ENTRY.ptx` where there is code that records; beside each, `ENTRY.cubin` if there was an assembler. The macro of a
/// megakernel takes its entry's file if there is one, else `maco.rs`, which says why there is none.
///
/// `maco.ptx` and `maco_profile.ptx` are all entries with lines of the source and comments, which programs do not carry: for who looks at the code.
///
/// `maco_plain.rs` is a slice of the names and the PTX of all plain kernels: entries that no macro of MACO made. Programs that launch
/// such kernels themselves include it; without device code it is empty.
pub(crate) fn write(out: &Path, device: Device<'_>) -> Result<(), Error> {
    let folder = out.join("maco");
    let _ = fs::remove_dir_all(&folder); // entries of the last time
    let mut plain = String::new();
    if let Device::Code(code, profiled, maco) = device {
        let same = maco.map_or_else(String::new, |maco| format!(".of_version({maco:?})"));
        create_dir(&folder)?;
        write_file(&out.join("maco.ptx"), &code.ptx)?;
        if let Some(profiled) = profiled {
            write_file(&out.join("maco_profile.ptx"), &profiled.ptx)?;
        }
        let mut recording = BTreeMap::new();
        for embeddable in profiled.into_iter().flat_map(|code| &code.entries) {
            recording.insert(&*embeddable.entry.name, module(&folder.join("profile"), embeddable)?);
        }
        for embeddable in &code.entries {
            let name = &*embeddable.entry.name;
            let module = module(&folder, embeddable)?;
            if !name.starts_with(GENERATED) {
                let file = folder.join(format!("{name}.ptx"));
                plain.push_str(&format!("    ({name:?}, include_str!({:?})),\n", file.to_string_lossy()));
            }
            let recording = recording.get(name).map_or("", |module| module);
            write_file(&folder.join(format!("{name}.rs")), expression(&module, recording, NONE, &same))?;
        }
    }
    write_file(&out.join("maco_plain.rs"), format!("&[\n{plain}]\n"))?;
    let mut stop = String::new();
    if let Device::Broken(_, faults) = device {
        create_dir(&folder)?;
        for (number, fault) in faults.iter().enumerate() {
            // In a file of its own: rustc shows the line of the error too, which would be all of it once more.
            let file = folder.join(format!("fault{number}.txt"));
            write_file(&file, fault)?;
            stop.push_str(&format!("::core::compile_error!(::core::include_str!({:?}));\n", file.to_string_lossy()));
        }
    }
    write_file(&out.join("maco.rs"), text(device, &stop))
}

/// How the names of the entries begin that MACO's macros make.
const GENERATED: &str = "maco_";

/// For a build on the device, where nothing is embedded.
pub(crate) fn empty(out: &Path) -> Result<(), Error> {
    write_file(&out.join("maco.rs"), "")
}

/// One module: PTX, and machine code if there is any and it is wanted, in files in `folder`, with the hash of the text.
fn module(folder: &Path, Embeddable { entry, cubin }: &Embeddable) -> Result<String, Error> {
    let file = |extension| folder.join(format!("{}.{extension}", entry.name));
    let (ptx, code) = (file("ptx"), entry.code());
    write_file(&ptx, &code)?;
    let mut machine = NONE.to_owned();
    if let Some(made) = cubin
        && env::var_os("MACO_SASS").is_none_or(|value| value != "0")
    {
        let cubin = file("cubin");
        write_file(&cubin, made)?;
        machine = format!("::core::option::Option::Some(::core::include_bytes!({:?}))", cubin.to_string_lossy());
    }
    let (hash, ptx) = (fingerprint([&code]), ptx.to_string_lossy());
    let [a, b, c, d] = [48, 32, 16, 0].map(|shift| hash >> shift & 0xffff);
    Ok(format!(
        "DeviceModule {{ target: {CPU:?}, ptx: ::core::include_str!({ptx:?}), cubin: {machine}, hash: 0x{a:04x}_{b:04x}_{c:04x}_{d:04x} }}"
    ))
}

const NONE: &str = "::core::option::Option::None";

fn expression(modules: &str, profiled: &str, error: &str, same: &str) -> String {
    format!(
        "{{\n    const MODULES: [&[DeviceModule]; 2] = [&[{modules}], &[{profiled}]];\n    \
         Embedded {{ modules: MODULES[0], profiled: MODULES[1], error: {error} }}{same}\n}}\n"
    )
}

/// What a megakernel without an entry gets.
fn text(device: Device<'_>, stop: &str) -> String {
    let error = match device {
        Device::Code(..) => "the build script compiled other files; name this megakernel's file in `maco_build::compile(..)`".to_owned(),
        Device::Missing(why) => why.to_owned(),
        Device::Broken(why, _) => why.to_owned(),
    };
    let expression = expression("", "", &format!("::core::option::Option::Some({error:?})"), "");
    if stop.is_empty() { expression } else { format!("{{\n{stop}{expression}}}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::split;

    fn code(ptx: &str) -> Code {
        let entries = split::entries(ptx).unwrap().into_iter().map(|entry| Embeddable { entry, cubin: None }).collect();
        Code { ptx: ptx.to_owned(), entries }
    }

    #[test]
    fn a_broken_device_half_is_an_error_and_still_an_expression() {
        let out = env::temp_dir().join(format!("maco-broken-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        write(&out, Device::Broken("no", &["src/kernels.rs:3:1: \"no\"".to_owned()])).unwrap();
        let text = fs::read_to_string(out.join("maco.rs")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("::core::compile_error!(::core::include_str!(") && lines[1].contains("fault0.txt"), "{text}");
        assert!(lines[3].contains("[&[], &[]]") && lines[4].contains("Embedded {"), "{text}");
        assert_eq!(fs::read_to_string(out.join("maco/fault0.txt")).unwrap(), "src/kernels.rs:3:1: \"no\"");
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn plain_kernels_are_listed_by_name() {
        let out = env::temp_dir().join(format!("maco-plain-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        let ptx = ".version 8.6\n.visible .entry maco_mlp_0123(\n)\n{\nret;\n}\n.visible .entry peer()\n{\nexit;\n}\n";
        let listed = || fs::read_to_string(out.join("maco_plain.rs")).unwrap();
        write(&out, Device::Code(&code(ptx), None, Some("0.1.0"))).unwrap();
        let text = listed();
        let entry = fs::read_to_string(out.join("maco/maco_mlp_0123.rs")).unwrap();
        assert!(entry.contains("}.of_version(\"0.1.0\")"), "{entry}");
        assert!(text.contains("(\"peer\", include_str!(") && text.contains("peer.ptx") && !text.contains("mlp"), "{text}");
        write(&out, Device::Missing("no toolchain")).unwrap();
        assert_eq!(listed(), "&[\n]\n");
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn code_that_records_lies_beside_the_ordinary() {
        let out = env::temp_dir().join(format!("maco-recording-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        let ptx = |body| code(&format!(".version 8.6\n.visible .entry a(\n)\n{{\n{body};\n}}\n"));
        write(&out, Device::Code(&ptx("ret"), Some(&ptx("exit")), None)).unwrap();
        let read = |name: &str| fs::read_to_string(out.join("maco").join(name)).unwrap();
        assert!(read("a.ptx").contains("ret;") && read("profile/a.ptx").contains("exit;"));
        let (modules, profiled) = read("a.rs").split_once("], &[").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert!(modules.contains("a.ptx") && !modules.contains("profile/a.ptx") && profiled.contains("profile/a.ptx"), "{profiled}");
        write(&out, Device::Code(&ptx("ret"), None, None)).unwrap();
        assert!(read("a.rs").contains("], &[]]") && !out.join("maco/profile/a.ptx").exists());
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn machine_code_lies_beside_the_ptx() {
        let out = env::temp_dir().join(format!("maco-machine-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        let mut code = code(".version 8.6\n.visible .entry a(\n)\n{\nret;\n}\n");
        code.entries[0].cubin = Some(vec![0, 159, 146, 150]);
        write(&out, Device::Code(&code, Some(&code), None)).unwrap();
        let text = fs::read_to_string(out.join("maco/a.rs")).unwrap();
        assert_eq!(text.matches("cubin: ::core::option::Option::Some(::core::include_bytes!(").count(), 2, "{text}");
        for file in ["maco/a.cubin", "maco/profile/a.cubin"] {
            assert!(text.contains(file) && fs::read(out.join(file)).unwrap() == [0, 159, 146, 150], "{text}");
        }
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn every_entry_has_its_own_file() {
        let out = env::temp_dir().join(format!("maco-embed-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        let ptx = ".version 8.6\n.visible .entry a(\n)\n{\nret;\n}\n.visible .entry b(\n)\n{\nexit;\n}\n";
        write(&out, Device::Code(&code(ptx), None, None)).unwrap();
        let a = fs::read_to_string(out.join("maco/a.rs")).unwrap();
        assert!(
            a.contains("[DeviceModule { target: \"sm_90a\"")
                && a.contains("a.ptx")
                && a.ends_with("error: ::core::option::Option::None }\n}\n"),
            "{a}"
        );
        assert!(!fs::read_to_string(out.join("maco/b.ptx")).unwrap().contains("ret;"));
        // The next build has lost `b`.
        write(&out, Device::Code(&code(ptx.split(".visible .entry b").next().unwrap()), None, None)).unwrap();
        assert!(!out.join("maco/b.rs").exists());
        fs::remove_dir_all(&out).unwrap();
    }
}
