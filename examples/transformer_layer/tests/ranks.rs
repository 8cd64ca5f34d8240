//! The program on CPU ranks, with sizes that take a moment: what it says, and whether it is right.

use std::process::Command;

/// What it prints and whether it succeeds.
fn run(arguments: &[&str]) -> (String, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_transformer_layer")).arg("--cpu").args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).unwrap(), output.status.success())
}

#[test]
fn ranks_have_the_same_bits_and_the_result_of_one_and_of_f64() {
    for ranks in ["1", "2", "4"] {
        let (text, success) = run(&["--ranks", ranks, "--check", "--time", "2"]);
        let first = format!("transformer_layer 3 × 24 tokens, 4 heads of 16, hidden 96, ffn 160, {ranks} × CPU");
        assert!(success && text.starts_with(&first), "{text}");
        assert!(text.contains("\n  all ranks have the same bits\n  against one rank: "), "{text}");
        assert!(
            text.contains("\n  against f64, 24 tokens of each of 3 sequences: ") && text.contains("the median of 2 launches"),
            "{text}"
        );
        assert!(text.lines().filter(|line| line.contains("all_reduce")).count() == 2, "{text}");
        assert!(text.lines().any(|line| line == "PASS"), "{text}");
    }
}

#[test]
fn sizes_may_be_any_that_the_ranks_can_share() {
    let sizes = ["--batch", "1", "--tokens", "67", "--heads", "6", "--head-dim", "10", "--hidden", "50", "--ffn", "33"];
    let (text, success) = run(&[&["--ranks", "3", "--check"], &sizes[..]].concat());
    assert!(success && text.contains("against f64, 67 tokens of each of 1 sequences"), "{text}");
}

#[test]
fn a_layer_that_cannot_be_divided_is_refused() {
    for (option, size, words) in [
        ("--heads", "3", "3 heads cannot be divided among 2 ranks"),
        ("--ffn", "7", "7 columns of the feed-forward layer cannot be divided among 2 ranks"),
        ("--head-dim", "5", "--head-dim 5 is odd"),
        ("--tokens", "0", "a size is 1 or more"),
    ] {
        let (text, success) = run(&["--ranks", "2", option, size]);
        assert!(!success && text.contains(words), "{text}");
    }
}
