//! PyTorch as a peer: a child process that measures what it is asked for, a line of JSON each way.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// The child's program.
const SCRIPT: &str = include_str!("../peers/memory.py");

/// What is asked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Request<'a> {
    /// The operation's name in `operations.rs`.
    pub operation: &'a str,
    /// Rows of its first operand.
    pub rows: u64,
    /// Columns of its first operand.
    pub columns: u64,
    /// How many sets of operands take turns.
    pub sets: usize,
    /// How many times are wanted.
    pub rounds: usize,
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
    /// What it said first.
    pub greeting: Greeting,
}

impl PyTorch {
    /// Starts `interpreter`, on a GPU that this process uses too.
    ///
    /// # Errors
    /// There is no such program, or it has no PyTorch for the GPU.
    pub fn start(interpreter: &str, gpu: u32) -> anyhow::Result<PyTorch> {
        let mut command = Command::new(interpreter);
        command.args(["-u", "-c", SCRIPT, &gpu.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting `{interpreter}`"))?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take().context("the child has no output")?);
        let mut answers = BufReader::new(answers);
        let greeting = read(&mut answers);
        let mut started = PyTorch { child, requests, answers, greeting: Greeting { torch: String::new(), device: String::new() } };
        started.greeting = greeting.context("PyTorch did not start")?;
        Ok(started)
    }

    /// Microseconds of one run, `rounds` times.
    ///
    /// # Errors
    /// It cannot do what was asked, or has ended.
    pub fn measure(&mut self, request: Request<'_>) -> anyhow::Result<Vec<f64>> {
        let line = serde_json::to_string(&request)? + "\n";
        self.requests.as_mut().context("the child is gone")?.write_all(line.as_bytes()).context("asking PyTorch")?;
        match read(&mut self.answers)? {
            Answer::Measured { microseconds } if microseconds.len() == request.rounds => Ok(microseconds),
            Answer::Measured { microseconds } => bail!("PyTorch was asked for {} times and gave {}", request.rounds, microseconds.len()),
            Answer::Failed { error } => bail!("PyTorch: {error}"),
        }
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
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    const REQUEST: Request<'_> = Request { operation: "copy", rows: 2, columns: 8, sets: 2, rounds: 2 };

    /// An interpreter that runs this shell script instead of its arguments.
    fn fake(name: &str, script: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("maco-{name}-{}", std::process::id()));
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn start(name: &str, script: &str) -> anyhow::Result<PyTorch> {
        let path = fake(name, script);
        let started = PyTorch::start(path.to_str().unwrap(), 0);
        std::fs::remove_file(path).unwrap();
        started
    }

    #[test]
    fn a_line_is_asked_and_a_line_is_answered() {
        let script = r#"echo '{"torch": "2.9", "device": "none"}'
            while read -r line; do
                case "$line" in
                    *'"operation":"copy","rows":2,"columns":8,"sets":2,"rounds":2'*) echo '{"microseconds": [1.5, 2]}' ;;
                    *) echo '{"error": "unknown"}' ;;
                esac
            done"#;
        let mut torch = start("answers", script).unwrap();
        assert_eq!(torch.greeting.torch, "2.9");
        assert_eq!(torch.measure(REQUEST).unwrap(), [1.5, 2.0]);
        assert_eq!(torch.measure(Request { operation: "fly", ..REQUEST }).unwrap_err().to_string(), "PyTorch: unknown");
        assert_eq!(torch.measure(REQUEST).unwrap(), [1.5, 2.0]);
    }

    #[test]
    fn a_child_that_is_not_there_or_ends_is_an_error() {
        assert!(PyTorch::start("/nonexistent/python3", 0).is_err());
        assert!(start("silent", "exit 1").is_err());
        let mut torch = start("ends", r#"echo '{"torch": "2.9", "device": "none"}'"#).unwrap();
        assert!(torch.measure(REQUEST).is_err());
    }
}
