//! `expanded.rs`: what the macros made of the kernels, for users to read. Best effort: nothing depends on it.

use std::path::Path;
use std::process::Command;

/// A call of rustc as cargo prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    environment: Vec<(String, String)>,
    program: String,
    arguments: Vec<String>,
}

impl Invocation {
    /// Reads a line ``Running `NAME=value … rustc …` `` of `cargo -vv`.
    pub(crate) fn parse(line: &str) -> Option<Invocation> {
        let line = line.trim().strip_prefix("Running `")?.strip_suffix('`')?;
        let mut words = shell_words(line).into_iter().peekable();
        let mut environment = Vec::new();
        while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')).filter(|(name, _)| is_variable(name)) {
            environment.push((name.to_owned(), value.to_owned()));
            words.next();
        }
        Some(Invocation { environment, program: words.next()?, arguments: words.collect() })
    }

    /// Is this the call that compiles the crate of this name?
    pub(crate) fn compiles(&self, name: &str) -> bool {
        self.arguments.windows(2).any(|pair| pair[0] == "--crate-name" && pair[1] == name)
    }
}

/// Calls rustc once more, for the expansion only: it stops before it knows any type (about 0.2 s).
pub(crate) fn write(invocation: &Invocation, to: &Path) {
    let wanted = |argument: &&String| !["--emit", "--error-format", "--json"].iter().any(|output| argument.starts_with(output));
    let mut command = Command::new(&invocation.program);
    command
        .env_clear()
        .envs(invocation.environment.iter().map(|(name, value)| (name, value)))
        .env("RUSTC_BOOTSTRAP", "1")
        .args(invocation.arguments.iter().filter(wanted))
        .args(["--cap-lints=allow", "-Zunpretty=expanded", "-o"])
        .arg(to);
    // Cargo gives paths relative to the package.
    if let Some((_, directory)) = invocation.environment.iter().find(|(name, _)| name == "CARGO_MANIFEST_DIR") {
        command.current_dir(directory);
    }
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    let _ = command.output(); // an old file, or none, is what is left to read
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Words of a POSIX command line: quotes and backslashes are taken off.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(characters.next()),
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_cargo_is_read_back() {
        let line = r#"     Running `CARGO_PKG_AUTHORS='' CARGO_PKG_DESCRIPTION='a '\''b'\'' c' LD=/x:/y /bin/rustc --crate-name user_device --cfg 'feature="a"' src/lib.rs`"#;
        let call = Invocation::parse(line).unwrap();
        assert_eq!(call.program, "/bin/rustc");
        assert_eq!(call.environment[1], ("CARGO_PKG_DESCRIPTION".to_owned(), "a 'b' c".to_owned()));
        assert_eq!(call.environment.len(), 3);
        assert!(call.arguments.contains(&"feature=\"a\"".to_owned()));
        assert!(call.compiles("user_device") && !call.compiles("user"));
    }

    #[test]
    fn other_lines_are_no_calls() {
        assert_eq!(Invocation::parse("       Fresh maco v0.1.0"), None);
    }
}
