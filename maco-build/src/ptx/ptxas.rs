//! The assembler: machine code, and what PTX does not show: registers, spills, serialised tensor-core instructions.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::split::Entry;
use super::{Finding, Rules, SPILLED};
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
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    /// Of the entry, and of the functions that it calls.
    pub usage: Vec<Usage>,
    /// Broken rules.
    pub findings: Vec<Finding>,
    /// A file with the machine code.
    pub cubin: PathBuf,
    /// How long the assembler took when it made that.
    pub seconds: f64,
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

/// Assembles one entry, or takes what lies in `folder` if the same assembler made it of the same text: large entries take it long. `folder` may be shared by
/// packages and profiles: files there are named by their content.
/// `Ok(None)` when this `ptxas` is too old for the PTX, which is no fault of the kernels.
pub fn assemble(ptxas: &Path, entry: &Entry, rules: &Rules, folder: &Path) -> Result<Option<Assembled>, Error> {
    let modified = fs::metadata(ptxas).and_then(|data| data.modified()).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let code = entry.code();
    let key = fingerprint([&code, &format!("{} {modified:?}", ptxas.display())]);
    let [ptx, cubin, log] = ["ptx", "cubin", "log"].map(|extension| folder.join(format!("{}-{key:016x}.{extension}", entry.name)));
    let text = match read(&log).ok().filter(|_| cubin.is_file()) {
        Some(text) => {
            used_now(&log);
            text
        }
        None => {
            write(&ptx, &code)?;
            let begun = Instant::now();
            let Some(said) = run(ptxas, &ptx, &cubin)? else { return Ok(None) };
            let text = format!("{SECONDS}{:.1}\n{said}", begun.elapsed().as_secs_f64());
            write(&log, &text)?;
            text
        }
    };
    let seconds = text.strip_prefix(SECONDS).and_then(|rest| rest.lines().next()?.parse().ok()).unwrap_or_default();
    let usage = usage(&text);
    let findings = findings(&text, &usage, rules);
    Ok(Some(Assembled { usage, findings, cubin, seconds }))
}

/// How the first line of a log begins: how long the assembler took.
const SECONDS: &str = "seconds: ";

/// Moves the time of a file, by which [`sweep`] knows what is in use.
fn used_now(file: &Path) {
    // If it cannot be moved, the entry is assembled once more some day.
    let _ = File::options().append(true).open(file).and_then(|file| file.set_modified(SystemTime::now()));
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

/// Makes `folder`, and takes away what nobody has used for a month.
pub fn sweep(folder: &Path) -> Result<(), Error> {
    const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);
    create_dir(folder)?;
    let age = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok().and_then(|time| time.elapsed().ok());
    for path in fs::read_dir(folder).map_err(Error::io("read", folder))?.flatten().map(|file| file.path()) {
        // Of what an assembler left that was killed, there is no log.
        if age(&path.with_extension("log")).or_else(|| age(&path)).is_some_and(|age| age > MONTH) {
            let _ = fs::remove_file(&path); // another build may have taken it away
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
        for Usage { function, stack, spills, .. } in usage.iter().filter(|usage| usage.stack > SPILLED) {
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
            "68 bytes stack frame, 40 bytes spill stores, 36 bytes spill loads",
            1,
        );
        let words = usage(&text.replacen("68 bytes stack", "64 bytes stack", 1));
        assert_eq!((words[0].stack, words[0].spills), (64, 76));
        assert_eq!(findings(&text, &words, &Rules::default()), []);
        let usage = usage(&text);
        assert_eq!((usage[0].stack, usage[0].spills), (68, 76));
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
        let one = |name: &str, ptx: &str| {
            let entry = Entry { name: name.to_owned(), ptx: ptx.to_owned() };
            sweep(&sass).unwrap();
            let assembled = assemble(&ptxas, &entry, &Rules::default(), &sass).unwrap().expect("a new one");
            assert_eq!(assembled.usage.len() + assembled.findings.len(), 0);
            let runs = fs::read_to_string(folder.join("runs")).unwrap().lines().count();
            format!("{}{runs}", fs::read_to_string(assembled.cubin).unwrap())
        };
        assert_eq!([one("mega", "a"), one("mega", "a"), one("mega", "b"), one("mega", "a")], ["a\n1", "a\n1", "b\n2", "a\n2"]);
        let files = || fs::read_dir(&sass).unwrap().flatten().map(|file| file.path()).collect::<Vec<_>>();
        files().iter().filter(|file| file.extension().is_some_and(|end| end == "cubin")).for_each(|file| fs::remove_file(file).unwrap());
        assert_eq!(one("mega", "a"), "a\n3");
        // What nobody has used for long goes away.
        let long_ago = SystemTime::now() - Duration::from_secs(60 * 24 * 60 * 60);
        for file in files() {
            File::options().append(true).open(&file).unwrap().set_modified(long_ago).unwrap();
        }
        sweep(&sass).unwrap();
        assert!(files().is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }
}
