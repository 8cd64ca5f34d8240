//! The table at the end of what `dist/run.sh` prints, and the page in `docs/results/` made of it.
//!
//! Running the programs does not belong here (`bundle`, `sanitize`): only what both sides must agree on.

use crate::failure::Failure;

/// How the line before a table begins.
const HEAD: &str = "== results: ";

/// Shell: runs a test program, for so long at most: one that hangs must not keep the others from running.
pub const LIMITED: &str = r#"limited() {
    if command -v timeout > /dev/null; then
        timeout "${MACO_TEST_SECONDS:-600}" "$@"
    else
        "$@"
    fi
}
"#;

/// What was run, and the page that shows it.
#[derive(Debug)]
pub struct Kind {
    name: &'static str,
    /// Name of the page.
    file: &'static str,
    title: &'static str,
    bundle: &'static str,
    command: &'static str,
    /// Those before the last one, which is a sentence.
    columns: &'static [Column],
}

/// Every test program, as it is.
pub const TESTS: Kind = Kind {
    name: "tests",
    file: "gpu_tests.md",
    title: "GPU tests",
    bundle: "cargo xtask bundle",
    command: "dist/run.sh",
    columns: &[
        Column { name: "program", sum: Sum::Name },
        Column { name: "passed", sum: Sum::Count },
        Column { name: "failed", sum: Sum::Count },
        Column { name: "ignored", sum: Sum::Count },
        // Parts of tests that passed, but something they need was not there.
        Column { name: "left out", sum: Sum::Count },
        Column { name: "seconds", sum: Sum::Time },
    ],
};

/// Test programs under the tools of compute-sanitizer.
pub const SANITIZER: Kind = Kind {
    name: "sanitizer",
    file: "sanitizer.md",
    title: "GPU tests under compute-sanitizer",
    bundle: "cargo xtask bundle --sanitize",
    command: "dist/run.sh sanitize",
    columns: &[
        Column { name: "tool", sum: Sum::Name },
        Column { name: "program", sum: Sum::None },
        Column { name: "seconds", sum: Sum::Time },
    ],
};

#[derive(Debug)]
struct Column {
    name: &'static str,
    sum: Sum,
}

/// What the last row of a page has in a column.
#[derive(Debug)]
enum Sum {
    Name,
    None,
    Count,
    Time,
}

/// Shell: prints the rows in `$table`, as the end of the script, and an empty line. A row has the columns of its kind and then `ok`, or what went wrong.
pub fn shell(kind: &Kind, commit: &str) -> String {
    format!("printf '\\n{HEAD}{}, commit {commit}\\n%s\\n' \"$table\"", kind.name)
}

/// The last table of a log, and those of the same kind and commit before it, as a page: its name in `docs/results/` and its text. Of what was run
/// more than once the last row counts.
pub fn page(log: &str, machine: &str) -> Result<(&'static str, String), Failure> {
    let lines: Vec<&str> = log.lines().map(str::trim_end).collect();
    let tables: Vec<_> = lines.iter().enumerate().filter_map(|(at, line)| Some((at, head(line)?))).collect();
    let Some(&(last, (kind, commit))) = tables.last() else {
        return Err(Failure::Text(format!("no line begins with `{HEAD}`: is it the whole output of `dist/run.sh`?")));
    };
    let names = |row: &[&str]| -> Vec<String> {
        let names = kind.columns.iter().zip(row).filter(|(column, _)| matches!(column.sum, Sum::Name | Sum::None));
        names.map(|(_, cell)| (*cell).to_owned()).collect()
    };
    let mut rows: Vec<Vec<&str>> = Vec::new();
    for (at, _) in tables.iter().filter(|(_, (other, of))| other.name == kind.name && *of == commit) {
        for line in lines[at + 1..].iter().take_while(|line| !line.is_empty()) {
            let row = row(kind, line)?;
            rows.retain(|before| names(before) != names(&row));
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return Err(Failure::Text(format!("no rows behind `{}`", lines[last])));
    }
    rows.sort_by_key(|row| names(row).into_iter().rev().collect::<Vec<_>>());
    let names: Vec<&str> = kind.columns.iter().map(|column| column.name).chain(["result"]).collect();
    let table = format!(
        "{}|{}\n{}{}",
        written(&names),
        "---|".repeat(names.len()),
        rows.iter().map(|cells| written(cells)).collect::<String>(),
        written(&sum(kind, &rows))
    );
    let text = format!(
        "# {}\n\nCommit {commit}; {machine}. `{}`, then `{}` on the machine with the GPU. Made by `cargo xtask results`.\n\n{table}",
        kind.title, kind.bundle, kind.command
    );
    Ok((kind.file, text))
}

/// Kind and commit of the table behind this line.
fn head(line: &str) -> Option<(&'static Kind, &str)> {
    let (name, commit) = line.strip_prefix(HEAD)?.split_once(", commit ")?;
    Some(([&TESTS, &SANITIZER].into_iter().find(|kind| kind.name == name)?, commit))
}

/// The cells of a row.
fn row<'a>(kind: &Kind, line: &'a str) -> Result<Vec<&'a str>, Failure> {
    let refuse = || Failure::Text(format!("no row of results: `{line}`"));
    let mut rest = line;
    let mut cells = Vec::new();
    for column in kind.columns {
        let (cell, more) = rest.trim_start().split_once(' ').ok_or_else(refuse)?;
        // A program that never said how many tests it ran has dashes.
        if matches!(column.sum, Sum::Count | Sum::Time) && cell != "-" && cell.parse::<f64>().is_err() {
            return Err(refuse());
        }
        cells.push(cell);
        rest = more;
    }
    let result = rest.trim();
    if result.is_empty() {
        return Err(refuse());
    }
    cells.push(result);
    Ok(cells)
}

/// The last row.
fn sum(kind: &Kind, rows: &[Vec<&str>]) -> Vec<String> {
    let column = |at: usize| rows.iter().filter_map(move |row| row[at].parse::<f64>().ok()).sum::<f64>();
    let result = kind.columns.len();
    let bad = rows.iter().filter(|row| row[result] != "ok").count();
    let sums = kind.columns.iter().enumerate().map(|(at, of)| match of.sum {
        Sum::Name => "**sum**".to_owned(),
        Sum::None => String::new(),
        Sum::Count => column(at).to_string(),
        Sum::Time => format!("{:.2}", column(at)),
    });
    sums.chain([if bad == 0 { "all ok".to_owned() } else { format!("{bad} of {} not ok", rows.len()) }]).collect()
}

fn written<S: AsRef<str>>(cells: &[S]) -> String {
    format!("| {} |\n", cells.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "== test-a\ntest result: ok.\n\n\
        == results: tests, commit 0123abc\n\
        test-a        10      0       2      1     8.96  ok\n\
        test-b         3      1       0      0     1.50  failed (101)\n\
        test-c         -      -       -      -        -  failed (139)\n";

    #[test]
    fn a_log_becomes_a_page_with_its_sums() {
        let (file, text) = page(LOG, "NVIDIA H200").unwrap();
        assert_eq!(file, "gpu_tests.md");
        assert_eq!(
            text,
            "# GPU tests\n\n\
             Commit 0123abc; NVIDIA H200. `cargo xtask bundle`, then `dist/run.sh` on the machine with the GPU. Made by `cargo xtask results`.\n\n\
             | program | passed | failed | ignored | left out | seconds | result |\n|---|---|---|---|---|---|---|\n\
             | test-a | 10 | 0 | 2 | 1 | 8.96 | ok |\n| test-b | 3 | 1 | 0 | 0 | 1.50 | failed (101) |\n| test-c | - | - | - | - | - | failed (139) |\n\
             | **sum** | 13 | 1 | 2 | 1 | 10.46 | 2 of 3 not ok |\n"
        );
    }

    #[test]
    fn the_last_table_counts() {
        let log = format!(
            "{LOG}\n== results: sanitizer, commit 0123abc-dirty\nmemcheck   test-a    12  ok\nracecheck  test-a    30  errors found\n"
        );
        let (file, text) = page(&log, "m").unwrap();
        assert_eq!(file, "sanitizer.md");
        assert!(text.contains("Commit 0123abc-dirty; m.") && text.contains("`dist/run.sh sanitize`"), "{text}");
        assert!(text.ends_with("| racecheck | test-a | 30 | errors found |\n| **sum** |  | 42.00 | 1 of 2 not ok |\n"), "{text}");
    }

    #[test]
    fn tables_of_one_commit_are_joined() {
        let more = "== results: tests, commit 0123abc\ntest-b  4  0  0  0  2.00  ok\n";
        let (_, text) = page(&format!("{LOG}\n{more}"), "m").unwrap();
        assert!(text.contains("| test-a | 10 |") && text.contains("| test-b | 4 | 0 |") && !text.contains("failed (101)"), "{text}");
        // Of another commit.
        let (_, text) = page(&format!("{LOG}\n{}", more.replace("0123abc", "4567def")), "m").unwrap();
        assert!(!text.contains("test-a") && text.contains("| **sum** | 4 | 0 |"), "{text}");
    }

    #[test]
    fn a_log_that_was_cut_off_is_refused() {
        for (log, word) in [
            ("== test-a\n", "whole output"),
            ("== results: tests, commit 0\n", "no rows"),
            ("== results: tests, commit 0\ntest-a 10 0\n", "`test-a 10 0`"),
            ("== results: tests, commit 0\ntest-a 10 zero 0 0 1.0 ok\n", "zero"),
        ] {
            let failure = page(log, "m").unwrap_err().to_string();
            assert!(failure.contains(word), "{failure}");
        }
    }
}
