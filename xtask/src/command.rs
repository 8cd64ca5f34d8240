//! Programs run on behalf of the user: seen, with the terminal, or unseen, for what they print.

use std::env;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::packages::{root, target};

/// Cargo in the root, with one target directory for the workspace and the packages beside it.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).env("CARGO_TARGET_DIR", target()).args(arguments);
    command
}

/// The command as one would type it.
pub fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or(&program).to_owned();
    command.get_args().map(|argument| argument.to_string_lossy().into_owned()).fold(program, |line, argument| format!("{line} {argument}"))
}

/// Runs with the terminal.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    eprintln!("$ {}", shown(command));
    let status = command.status().map_err(|source| Failure::Start { program: shown(command), source })?;
    if status.success() { Ok(()) } else { Err(Failure::Command { command: shown(command), status }) }
}

/// Runs unseen; what it printed.
pub fn capture(command: &mut Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| Failure::Start { program: shown(command), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(Failure::Quiet { command: shown(command), output: last_lines(&text) })
}

/// Runs unseen and silent, but not for ever: programs that wait for a network they do not have do not say so.
pub fn attempt(command: &mut Command, limit: Duration) -> Result<(), Failure> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| Failure::Start { program: shown(command), source })?;
    let begin = Instant::now();
    let quiet = |output: String| Failure::Quiet { command: shown(command), output };
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(quiet(status.to_string())),
            Ok(None) if begin.elapsed() < limit => sleep(Duration::from_millis(50)),
            Ok(None) | Err(_) => {
                let _ = child.kill(); // already gone: just as well
                let _ = child.wait();
                return Err(quiet(format!("no end after {} s", limit.as_secs())));
            }
        }
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended() {
        let begin = Instant::now();
        let failure = attempt(Command::new("sleep").arg("60"), Duration::from_millis(100)).unwrap_err();
        assert!(failure.to_string().contains("`sleep 60` failed: no end"), "{failure}");
        assert!(begin.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn the_exit_code_of_a_program_is_kept() {
        let failure = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(format!("{:?}", failure.code()), format!("{:?}", std::process::ExitCode::from(3)));
    }

    #[test]
    fn output_is_captured_and_failures_end_with_it() {
        assert_eq!(capture(Command::new("sh").args(["-c", "echo out"])).unwrap(), "out\n");
        let failure = capture(Command::new("sh").args(["-c", "echo why >&2; exit 1"])).unwrap_err();
        assert!(failure.to_string().ends_with("why"), "{failure}");
    }
}
