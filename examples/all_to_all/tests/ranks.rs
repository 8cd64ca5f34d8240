//! The program on CPU ranks, with sizes that take a moment: what it says, and whether it is right.

use std::process::Command;

/// What it prints and whether it succeeds.
fn run(arguments: &[&str]) -> (String, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_all_to_all")).args(["--cpu", "--runs", "2"]).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).unwrap(), output.status.success())
}

#[test]
fn ranks_have_the_bits_of_one() {
    for ranks in ["2", "3"] {
        let (text, success) = run(&["--ranks", ranks, "-m", "20", "-n", "40"]);
        let first = format!("all_to_all M 20 N 40, {ranks} × CPU");
        assert!(success && text.starts_with(&first), "{text}");
        for channel in ["memory", "port"] {
            assert!(text.contains(&format!("\n  over a {channel} channel: the same bits as one rank, ")), "{text}");
        }
        assert!(text.lines().any(|line| line == "PASS"), "{text}");
    }
}
