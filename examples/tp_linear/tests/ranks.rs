//! The program on CPU ranks, with sizes that take a moment: what it says, and whether it is right.

use std::process::Command;

/// What it prints and whether it succeeds.
fn run(arguments: &[&str]) -> (String, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_tp_linear")).args(["--cpu", "--runs", "2"]).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).unwrap(), output.status.success())
}

#[test]
fn ranks_have_the_same_bits_and_the_result_of_one() {
    for ranks in ["2", "3"] {
        let (text, success) = run(&["--ranks", ranks, "-m", "20", "-n", "40", "-k", "198"]);
        let first = format!("tp_linear M 20 N 40 K 198, {ranks} × CPU");
        assert!(success && text.starts_with(&first), "{text}");
        assert!(text.contains("\n  all ranks have the same bits\n  against one rank: "), "{text}");
        assert!(text.lines().any(|line| line == "PASS"), "{text}");
    }
}

#[test]
fn a_layer_that_cannot_be_divided_is_refused() {
    let (text, success) = run(&["--ranks", "2", "-k", "7"]);
    assert!(!success && text.contains("K 7 cannot be divided among 2 ranks"), "{text}");
}
