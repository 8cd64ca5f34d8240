//! PyTorch as a peer: a child process that measures what it is asked for, a line of JSON each way.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// Memory-bound operations, asked for by [`Operation`].
pub const MEMORY: &str = include_str!("../peers/memory.py");
/// Layers of a mixture of experts, asked for by [`Layer`].
pub const MOE: &str = include_str!("../peers/moe.py");
/// What the programs import.
const SERVER: &str = include_str!("../peers/server.py");

/// What [`MEMORY`] is asked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Operation<'a> {
    /// The operation's name in `operations.rs`.
    pub operation: &'a str,
    /// Rows of its first operand.
    pub rows: u64,
    /// Columns of its first operand.
    pub columns: u64,
    /// How many sets of operands take turns.
    pub sets: usize,
}

/// What [`MOE`] is asked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Layer<'a> {
    /// `grouped`, `padded` or `per-expert`.
    pub how: &'a str,
    /// Rows of the input.
    pub tokens: u64,
    /// How many there are.
    pub experts: u64,
    /// How many of them each token goes to.
    pub chosen: u64,
    /// Columns of the input.
    pub hidden: u64,
    /// Columns between the GEMMs of an expert.
    pub inner: u64,
    /// A file of `f32`: a row of scores for each token.
    pub scores: &'a Path,
}

/// A request, and how many times are wanted.
#[derive(Serialize)]
struct Request<'a, R> {
    #[serde(flatten)]
    request: &'a R,
    rounds: usize,
}

/// What it says first.
#[derive(Debug, Deserialize)]
pub struct Greeting {
    /// PyTorch's version.
    pub torch: String,
    /// Where it runs.
    pub device: String,
}

/// Its answer.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Measured { microseconds: Vec<f64> },
    Failed { error: String },
}

/// The child. It ends when this is dropped.
pub struct PyTorch {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Held while it runs: `torch.compile` leaves functions alone that are in no file.
    _script: Script,
    /// What it said first.
    pub greeting: Greeting,
}

impl PyTorch {
    /// Starts `interpreter` with [`MEMORY`] or [`MOE`], on a GPU that this process uses too, and says so; without, that there will be no rows.
    pub fn found(interpreter: &str, program: &str, gpu: u32) -> Option<PyTorch> {
        match PyTorch::start(interpreter, program, gpu) {
            Ok(torch) => {
                eprintln!("PyTorch {} on {}", torch.greeting.torch, torch.greeting.device);
                Some(torch)
            }
            Err(error) => {
                eprintln!("no rows beside PyTorch: {error:#}");
                None
            }
        }
    }

    fn start(interpreter: &str, program: &str, gpu: u32) -> anyhow::Result<PyTorch> {
        let script = Script::write(program)?;
        let mut command = Command::new(interpreter);
        command.arg("-u").arg(script.0.join("peer.py")).arg(gpu.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting `{interpreter}`"))?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take().context("the child has no output")?);
        let mut answers = BufReader::new(answers);
        match read(&mut answers).context("PyTorch did not start") {
            Ok(greeting) => Ok(PyTorch { child, requests, answers, _script: script, greeting }),
            Err(error) => {
                drop(requests);
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Microseconds of one run, `rounds` times.
    ///
    /// # Errors
    /// It cannot do what was asked, or has ended.
    pub fn measure(&mut self, request: &impl Serialize, rounds: usize) -> anyhow::Result<Vec<f64>> {
        let line = serde_json::to_string(&Request { request, rounds })? + "\n";
        self.requests.as_mut().context("the child is gone")?.write_all(line.as_bytes()).context("asking PyTorch")?;
        match read(&mut self.answers)? {
            Answer::Measured { microseconds } if microseconds.len() == rounds => Ok(microseconds),
            Answer::Measured { microseconds } => bail!("PyTorch was asked for {rounds} times and gave {}", microseconds.len()),
            Answer::Failed { error } => bail!("PyTorch: {error}"),
        }
    }
}

/// The program and what it imports in a folder, removed in the end.
struct Script(PathBuf);

impl Script {
    fn write(program: &str) -> anyhow::Result<Script> {
        static WRITTEN: AtomicU32 = AtomicU32::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("maco-peer-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("making `{}`", folder.display()))?;
        let script = Script(folder);
        for (name, text) in [("peer.py", program), ("server.py", SERVER)] {
            fs::write(script.0.join(name), text).with_context(|| format!("writing into `{}`", script.0.display()))?;
        }
        Ok(script)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // What cannot be removed is left to the system.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn read<T: for<'a> Deserialize<'a>>(answers: &mut impl BufRead) -> anyhow::Result<T> {
    let mut line = String::new();
    if answers.read_line(&mut line)? == 0 {
        bail!("PyTorch's process has ended");
    }
    serde_json::from_str(&line).with_context(|| format!("PyTorch answered `{}`", line.trim_end()))
}

impl Drop for PyTorch {
    fn drop(&mut self) {
        // It ends when nobody can ask any more.
        drop(self.requests.take());
        let _ = self.child.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const REQUEST: Operation<'_> = Operation { operation: "copy", rows: 2, columns: 8, sets: 2 };

    /// A shell and a script of its own instead of Python and ours.
    fn start(script: &str) -> anyhow::Result<PyTorch> {
        PyTorch::start("sh", script, 0)
    }

    #[test]
    fn a_request_line_gets_an_answer_line() {
        let script = r#"echo '{"torch": "2.9", "device": "none"}'
            while read -r line; do
                case "$line" in
                    *'"operation":"copy","rows":2,"columns":8,"sets":2,"rounds":2'*) echo '{"microseconds": [1.5, 2]}' ;;
                    *) echo '{"error": "unknown"}' ;;
                esac
            done"#;
        let mut torch = start(script).unwrap();
        assert_eq!(torch.greeting.torch, "2.9");
        assert_eq!(torch.measure(&REQUEST, 2).unwrap(), [1.5, 2.0]);
        assert_eq!(torch.measure(&Operation { operation: "fly", ..REQUEST }, 2).unwrap_err().to_string(), "PyTorch: unknown");
        assert_eq!(torch.measure(&REQUEST, 2).unwrap(), [1.5, 2.0]);
    }

    #[test]
    fn a_missing_or_ended_child_is_an_error() {
        assert!(PyTorch::start("/nonexistent/python3", MEMORY, 0).is_err());
        assert!(start("exit 1").is_err());
        let mut torch = start(r#"echo '{"torch": "2.9", "device": "none"}'"#).unwrap();
        assert!(torch.measure(&REQUEST, 2).is_err());
    }
}
