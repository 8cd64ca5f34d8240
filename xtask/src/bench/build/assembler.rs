//! How long `ptxas` works on each piece that it is given: a script in its place says so.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::fetch::make_executable;

/// A file of PTX and the seconds that `ptxas` worked on it.
#[derive(Debug, PartialEq)]
pub struct Piece {
    pub ptx: String,
    /// Of one core, whatever else the machine did.
    pub seconds: f64,
}

/// Writes a script to `to` that does what `ptxas` does and leaves a file in `log` for each of its runs.
pub fn replace(ptxas: &Path, to: &Path, log: &Path) -> Result<(), Failure> {
    fs::create_dir_all(log).map_err(Failure::io("create", log))?;
    let folder = to.parent().unwrap_or(to);
    fs::create_dir_all(folder).map_err(Failure::io("create", folder))?;
    // Its second line is about what the shell has run.
    let text = format!(
        "#!/bin/sh\n'{}' \"$@\"\ncode=$?\n{{ times; printf '%s\\n' \"$@\"; }} > '{}'/$$-$(date +%s%N)\nexit $code\n",
        ptxas.display(),
        log.display()
    );
    fs::write(to, text).map_err(Failure::io("write", to))?;
    make_executable(to)
}

/// The piece that took longest of those in the log.
pub fn longest(log: &Path) -> Result<Option<Piece>, Failure> {
    let files: Vec<PathBuf> = fs::read_dir(log).map_err(Failure::io("read", log))?.flatten().map(|entry| entry.path()).collect();
    let mut longest: Option<Piece> = None;
    for file in files {
        let text = fs::read_to_string(&file).map_err(Failure::io("read", &file))?;
        if let Some(piece) = piece(&text)
            && longest.as_ref().is_none_or(|before| piece.seconds > before.seconds)
        {
            longest = Some(piece);
        }
    }
    Ok(longest)
}

/// Of one run; nothing if it was given no PTX, but asked for its version.
fn piece(text: &str) -> Option<Piece> {
    let mut lines = text.lines().skip(1);
    let seconds = lines.next()?.split_whitespace().map(seconds).sum::<Option<f64>>()?;
    let ptx = lines.find(|argument| argument.ends_with(".ptx"))?.to_owned();
    Some(Piece { ptx, seconds })
}

/// `1m2.5s`
fn seconds(text: &str) -> Option<f64> {
    let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
    Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::bundle::trial::program;

    #[test]
    fn user_and_system_time_of_the_child_count() {
        let text = "0m0.00s 0m0.01s\n6m59.500000s 0m0.75s\n-v\n-o\na.cubin\n/t/a.ptx\n";
        assert_eq!(piece(text), Some(Piece { ptx: "/t/a.ptx".into(), seconds: 420.25 }));
        assert_eq!(piece("0m0.00s 0m0.01s\n0m0.00s 0m0.01s\n--version\n"), None);
    }

    /// With a script for an assembler that works for a while on one piece.
    #[test]
    fn every_run_leaves_its_time() {
        let folder = std::env::temp_dir().join(format!("maco-shim-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (real, shim, log) = (folder.join("real"), folder.join("tools/ptxas"), folder.join("log"));
        program(&real, "case $1 in long*) n=0; while [ $n -lt 300000 ]; do n=$((n + 1)); done ;; bad*) exit 3 ;; esac\necho \"did $*\"");
        replace(&real, &shim, &log).unwrap();
        assert_eq!(longest(&log).unwrap(), None);
        let run = |ptx: &str| Command::new(&shim).args([ptx, "-o", "a b"]).output().unwrap();
        let output = run("short.ptx");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "did short.ptx -o a b\n");
        assert!(run("long.ptx").status.success());
        assert_eq!(run("bad.ptx").status.code(), Some(3));
        let found = longest(&log).unwrap().unwrap();
        assert!(found.ptx == "long.ptx" && found.seconds > 0.02, "{found:?}");
        assert_eq!(fs::read_dir(&log).unwrap().count(), 3);
        fs::remove_dir_all(&folder).unwrap();
    }
}
