//! One PTX file per entry: a program loads the kernels it plans, and carries each text once.

/// The entries of `ptx`, each as a file of its own: everything outside functions, and that entry's body.
///
/// Functions that are called (panics: everything else is inlined) stay in every file.
pub fn entries(ptx: &str) -> Vec<(String, String)> {
    let mut pieces = Vec::new();
    let mut rest = ptx;
    let mut shared = String::new();
    while let Some((start, name)) = next_entry(rest) {
        let length = body_end(&rest[start..]);
        shared.push_str(&rest[..start]);
        pieces.push((name.to_owned(), shared.len(), &rest[start..start + length]));
        rest = &rest[start + length..];
    }
    shared.push_str(rest);
    pieces
        .into_iter()
        .map(|(name, at, body)| {
            let text = [&shared[..at], body, &shared[at..]].concat();
            (name, text)
        })
        .collect()
}

/// Where the next entry's header begins, and its name.
fn next_entry(text: &str) -> Option<(usize, &str)> {
    const HEADER: &str = ".visible .entry ";
    let start = if text.starts_with(HEADER) { 0 } else { text.find(&format!("\n{HEADER}"))? + 1 };
    let name = text[start + HEADER.len()..].split('(').next()?.trim();
    Some((start, name))
}

/// Length of an entry that begins the text: to the brace that closes its body.
fn body_end(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.6\n.target sm_90a\n.extern .shared .b8 maco_shared[];\n\
        .visible .entry a(\n.param .u64 p\n)\n.maxntid 384, 1, 1\n{\nasm {x;}\nret;\n}\n\
        .visible .entry b(\n.param .u64 p\n)\n{\nexit;\n}\n.file 1 \"kernels.rs\"\n";

    #[test]
    fn every_entry_gets_what_is_outside_and_its_own_body() {
        let entries = entries(PTX);
        assert_eq!(entries.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        for (name, text) in &entries {
            assert!(text.starts_with(".version 8.6\n.target sm_90a\n.extern .shared"), "{text}");
            assert!(text.ends_with(".file 1 \"kernels.rs\"\n"), "{text}");
            assert_eq!(text.matches(".entry").count(), 1, "{name}: {text}");
        }
        assert!(entries[0].1.contains("asm {x;}\nret;\n}") && !entries[0].1.contains("exit"));
        assert!(entries[1].1.contains("exit;\n}") && !entries[1].1.contains("asm"));
    }

    #[test]
    fn text_without_entries_gives_none() {
        assert!(entries(".version 8.6\n").is_empty());
    }
}
