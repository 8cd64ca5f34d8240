//! The assembler: machine code, and what PTX does not show: registers, spills, serialised tensor-core instructions.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::UNIX_EPOCH;

use super::split::Entry;
use super::{Finding, Rules};
use crate::Error;
use crate::core_cache::CPU;
use crate::files::{create_dir, fingerprint, read, write};

/// What one function costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Its symbol.
    pub function: String,
    /// Registers of a thread; 0 for functions that are no entries.
    pub registers: u32,
    /// Bytes of stack of a thread.
    pub stack: u32,
    /// Bytes of spilled registers, stores and loads.
    pub spills: u32,
}

/// One entry as the hardware runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembled {
    /// Of the entry, and of the functions that it calls.
    pub usage: Vec<Usage>,
    /// Broken rules.
    pub findings: Vec<Finding>,
    /// A file with the machine code.
    pub cubin: PathBuf,
}

/// `$MACO_PTXAS`, the one `cargo xtask lint` fetched into `target/maco/ptxas`, `$PATH`, `$CUDA_HOME`.
pub fn find(maco: &Path) -> Option<PathBuf> {
    let wish = env::var_os("MACO_PTXAS").filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|directory| directory.join("ptxas"));
    let of_cuda = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(|home| Path::new(&home).join("bin/ptxas"));
    let all =
        wish.into_iter().chain([maco.join("ptxas")]).chain(on_path).chain(of_cuda).chain([PathBuf::from("/usr/local/cuda/bin/ptxas")]);
    all.into_iter().find(|candidate| candidate.is_file())
}

/// Assembles one entry in `folder`, or takes what lies there if the same assembler made it of the same text: large entries take it minutes.
/// `Ok(None)` when this `ptxas` is too old for the PTX, which is no fault of the kernels.
pub fn assemble(ptxas: &Path, entry: &Entry, rules: &Rules, folder: &Path) -> Result<Option<Assembled>, Error> {
    let [ptx, cubin, log] = ["ptx", "cubin", "log"].map(|extension| folder.join(format!("{}.{extension}", entry.name)));
    let modified = fs::metadata(ptxas).and_then(|data| data.modified()).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let key = format!("{:016x}", fingerprint([&entry.ptx, &format!("{} {modified:?}", ptxas.display())]));
    let kept = read(&log).ok().and_then(|text| text.strip_prefix(&key).map(str::to_owned)).filter(|_| cubin.is_file());
    let text = match kept {
        Some(text) => text,
        None => {
            write(&ptx, &entry.ptx)?;
            let Some(text) = run(ptxas, &ptx, &cubin)? else { return Ok(None) };
            write(&log, format!("{key}\n{text}"))?;
            text
        }
    };
    let usage = usage(&text);
    let findings = findings(&text, &usage, rules);
    Ok(Some(Assembled { usage, findings, cubin }))
}

/// Assembles a file; what `ptxas` said about it.
fn run(ptxas: &Path, ptx: &Path, cubin: &Path) -> Result<Option<String>, Error> {
    let new = cubin.with_extension(format!("cubin.{}", process::id()));
    let output = Command::new(ptxas)
        .args(["-v", "-arch", CPU, "--warn-on-spills", "-o"])
        .args([&new, ptx])
        .output()
        .map_err(|error| Error::Program { program: ptxas.display().to_string(), output: error.to_string() })?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        let _ = fs::remove_file(&new); // usually not there
        if text.contains("Unsupported .version") || text.contains("is not defined for option 'gpu-name'") {
            return Ok(None);
        }
        return Err(Error::Program { program: ptxas.display().to_string(), output: text.trim().to_owned() });
    }
    fs::rename(&new, cubin).map_err(Error::io("write", cubin))?;
    Ok(Some(text))
}

/// Makes `folder`, and takes away what lies there of entries that are no more.
pub fn sweep(folder: &Path, entries: &[Entry]) -> Result<(), Error> {
    create_dir(folder)?;
    for file in fs::read_dir(folder).map_err(Error::io("read", folder))?.flatten() {
        let path = file.path();
        let known = path.file_stem().is_some_and(|stem| entries.iter().any(|entry| stem == &*entry.name));
        if !known {
            let _ = fs::remove_file(&path); // of an assembler that was killed, too
        }
    }
    Ok(())
}

/// Reads the output of `ptxas -v`.
fn usage(text: &str) -> Vec<Usage> {
    let mut all: Vec<Usage> = Vec::new();
    let number = |word: Option<&str>| word.and_then(|word| word.trim().parse::<u32>().ok()).unwrap_or(0);
    let before =
        |line: &str, what: &str| number(line.split(what).next().and_then(|head| head.split([',', ' ']).rfind(|word| !word.is_empty())));
    let mut entry = String::new();
    for line in text.lines() {
        if let Some((_, name)) = line.split_once("Compiling entry function '") {
            entry = name.split('\'').next().unwrap_or(name).to_owned();
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            all.push(Usage { function: name.trim().to_owned(), ..Usage::default() });
        } else if line.contains("bytes stack frame") {
            if let Some(last) = all.last_mut() {
                last.stack = before(line, " bytes stack frame");
                last.spills = before(line, " bytes spill stores") + before(line, " bytes spill loads");
            }
        } else if let Some((_, rest)) = line.split_once("Used ") {
            let registers = number(rest.split_whitespace().next());
            all.iter_mut().filter(|usage| usage.function == entry).for_each(|usage| usage.registers = registers);
        }
    }
    all
}

fn findings(text: &str, usage: &[Usage], rules: &Rules) -> Vec<Finding> {
    let finding = |function: &str, text: String| Finding { function: function.to_owned(), place: None, text };
    let mut found = Vec::new();
    if !rules.allow_local_memory {
        for Usage { function, stack, spills, .. } in usage.iter().filter(|usage| usage.spills > 0 || usage.stack > 0) {
            found.push(finding(
                function,
                format!(
                    "{stack} bytes of stack and {spills} bytes of spilled registers a thread: consumers have 216, other warps 72; a smaller tile \
                     takes fewer, and a body with fewer loads on their way"
                ),
            ));
        }
    }
    // C7507 to C7520: setmaxnreg ignored, wgmma serialised.
    for line in text.lines() {
        let code = line.split_once("(C").and_then(|(_, rest)| rest.split(')').next()).and_then(|code| code.parse::<u32>().ok());
        if code.is_some_and(|code| (7507..=7520).contains(&code)) {
            let function = line.rsplit_once("function '").and_then(|(_, rest)| rest.split('\'').next()).unwrap_or("module");
            let message = line.split_once(": ").map_or(line, |(_, message)| message);
            found.push(finding(function, message.trim().to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'mega' for 'sm_90a'
ptxas info    : Function properties for mega
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 2 barriers
ptxas info    : Function properties for panic
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
";

    #[test]
    fn registers_belong_to_the_entry() {
        let usage = usage(CLEAN);
        assert_eq!(usage[0], Usage { function: "mega".to_owned(), registers: 168, stack: 0, spills: 0 });
        assert_eq!((usage[1].function.as_str(), usage[1].registers), ("panic", 0));
        assert_eq!(findings(CLEAN, &usage, &Rules::default()), []);
    }

    #[test]
    fn spills_are_found_unless_allowed() {
        let text = CLEAN.replacen(
            "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
            "48 bytes stack frame, 40 bytes spill stores, 36 bytes spill loads",
            1,
        );
        let usage = usage(&text);
        assert_eq!((usage[0].stack, usage[0].spills), (48, 76));
        let found = findings(&text, &usage, &Rules::default());
        assert!(found.len() == 1 && found[0].text.contains("76 bytes of spilled"), "{found:?}");
        assert_eq!(findings(&text, &usage, &Rules { allow_local_memory: true }), []);
    }

    #[test]
    fn serialised_tensor_cores_are_found() {
        let text = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions defining accumulator registers of a wgmma between start and end of the pipeline stage in the function 'mega'";
        let found = findings(text, &[], &Rules::default());
        assert!(found.len() == 1 && found[0].function == "mega" && found[0].text.starts_with("(C7510) Potential"), "{found:?}");
        assert_eq!(findings(&text.replace("C7510", "C7520"), &[], &Rules::default()).len(), 1);
        assert_eq!(findings("ptxas info : (C7600) something else", &[], &Rules::default()), []);
    }

    /// With a script for an assembler, which counts how often it ran.
    #[cfg(unix)]
    #[test]
    fn what_has_not_changed_is_not_assembled_again() {
        use std::os::unix::fs::PermissionsExt;
        let folder = env::temp_dir().join(format!("maco-assembler-{}", process::id()));
        create_dir(&folder).unwrap();
        let ptxas = folder.join("ptxas");
        fs::write(
            &ptxas,
            "#!/bin/sh\necho run >> \"${0%/*}/runs\"\ncp \"$7\" \"$6\"\necho \"    8 bytes stack frame, 0 bytes spill stores\" >&2\n",
        )
        .unwrap();
        fs::set_permissions(&ptxas, fs::Permissions::from_mode(0o755)).unwrap();
        let sass = folder.join("sass");
        let one = |ptx: &str| {
            let entry = Entry { name: "mega".to_owned(), ptx: ptx.to_owned() };
            sweep(&sass, std::slice::from_ref(&entry)).unwrap();
            let assembled = assemble(&ptxas, &entry, &Rules::default(), &sass).unwrap().expect("a new one");
            (fs::read_to_string(assembled.cubin).unwrap(), fs::read_to_string(folder.join("runs")).unwrap().lines().count())
        };
        assert_eq!([one("a"), one("a"), one("b"), one("a")].map(|(cubin, runs)| format!("{cubin}{runs}")), ["a1", "a1", "b2", "a3"]);
        fs::write(sass.join("gone.cubin"), "").unwrap();
        fs::remove_file(sass.join("mega.cubin")).unwrap();
        assert_eq!(one("a"), ("a".to_owned(), 4));
        assert!(!sass.join("gone.cubin").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
