//! Words and punctuation of PTX (PTX ISA §4.1 to §4.5). Lines are counted, since faults name them.

/// A token; numbers are words too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// A name, directive, opcode, register or number.
    Word(&'a str),
    /// What is between quotes.
    Text(&'a str),
    /// One character of punctuation.
    Mark(u8),
    /// The text has ended.
    End,
}

/// Reads tokens of a text from a place on.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    text: &'a str,
    /// Bytes read.
    pub at: usize,
    /// The line that it is in, from 1.
    pub line: u32,
}

fn of_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

/// A number as PTX writes it; floating ones are their bits.
pub fn number(word: &str) -> Option<u64> {
    let bytes = word.as_bytes();
    if !bytes.first()?.is_ascii_digit() {
        return None;
    }
    if bytes.len() >= 2 && bytes[0] == b'0' {
        match bytes[1] {
            b'f' | b'F' | b'd' | b'D' => return u64::from_str_radix(&word[2..], 16).ok(),
            b'x' | b'X' => return u64::from_str_radix(word[2..].trim_end_matches('U'), 16).ok(),
            b'b' | b'B' => return u64::from_str_radix(word[2..].trim_end_matches('U'), 2).ok(),
            _ => {}
        }
    }
    if word.contains('.') {
        return word.parse::<f64>().ok().map(f64::to_bits);
    }
    word.trim_end_matches('U').parse::<u64>().ok()
}

impl<'a> Lexer<'a> {
    /// From byte `at` of a text, which is in that line.
    pub fn new(text: &'a str, at: usize, line: u32) -> Lexer<'a> {
        Lexer { text, at, line }
    }

    /// To the next token or comment, or to the end of the line if that comes first and `within` is said.
    fn skip_spaces(&mut self, within: bool) {
        while let Some(&c) = self.text.as_bytes().get(self.at) {
            match c {
                b'\n' if within => break,
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' => {}
                _ => break,
            }
            self.at += 1;
        }
    }

    /// The comment that comes before the next token, if there is one: what is in it.
    pub fn comment(&mut self) -> Option<&'a str> {
        self.skip_spaces(false);
        self.comment_here()
    }

    /// The comment to the end of this line, if nothing else is there.
    pub fn comment_behind(&mut self) -> Option<&'a str> {
        self.skip_spaces(true);
        self.text[self.at..].starts_with("//").then(|| self.comment_here()).flatten()
    }

    fn comment_here(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        if let Some(inside) = rest.strip_prefix("//") {
            let inside = inside.split('\n').next().unwrap_or_default();
            self.at += 2 + inside.len();
            return Some(inside.trim());
        }
        let inside = rest.strip_prefix("/*")?;
        let (inside, end) = inside.split_once("*/").map_or((inside, 0), |(inside, _)| (inside, 2));
        self.line += inside.matches('\n').count() as u32;
        self.at += 2 + inside.len() + end;
        Some(inside.trim())
    }

    /// To the end of the line, for directives that end there.
    pub fn skip_line(&mut self) {
        self.at += self.text[self.at..].find('\n').unwrap_or(self.text.len() - self.at);
    }

    /// The next token; comments before it are skipped.
    #[allow(clippy::should_implement_trait, reason = "it does not end")]
    pub fn next(&mut self) -> Token<'a> {
        while self.comment().is_some() {}
        let bytes = self.text.as_bytes();
        let Some(&c) = bytes.get(self.at) else { return Token::End };
        let from = self.at;
        if of_word(c) {
            self.at += 1;
            while let Some(&c) = bytes.get(self.at) {
                if of_word(c) {
                    self.at += 1;
                } else if c == b':' && bytes.get(self.at + 1) == Some(&b':') {
                    self.at += 2;
                } else {
                    break;
                }
            }
            return Token::Word(&self.text[from..self.at]);
        }
        if c == b'"' {
            let inside = self.text[from + 1..].split('"').next().unwrap_or_default();
            self.at = (from + inside.len() + 2).min(self.text.len());
            return Token::Text(inside);
        }
        // Outside ASCII there is nothing but in comments and quotes.
        self.at += self.text[from..].chars().next().map_or(1, char::len_utf8);
        Token::Mark(c)
    }

    /// The next token, which stays the next.
    pub fn peek(&mut self) -> Token<'a> {
        self.clone().next()
    }

    /// Reads this mark if it comes next.
    pub fn take(&mut self, mark: u8) -> bool {
        let mut ahead = self.clone();
        let found = ahead.next() == Token::Mark(mark);
        if found {
            *self = ahead;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_marks_and_comments() {
        let mut lexer = Lexer::new("/* a\n */ ld.shared::cta.b32 %r1, [x+4]; // end\n$L:", 0, 1);
        assert_eq!(lexer.comment(), Some("a"));
        let words = ["ld.shared::cta.b32", "%r1", ",", "[", "x", "+", "4", "]", ";"];
        for expected in words {
            match lexer.next() {
                Token::Word(word) => assert_eq!(word, expected),
                Token::Mark(mark) => assert_eq!(char::from(mark).to_string(), expected),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((lexer.line, lexer.comment_behind()), (2, Some("end")));
        assert_eq!((lexer.comment_behind(), lexer.comment()), (None, None));
        assert_eq!((lexer.next(), lexer.take(b':'), lexer.next(), lexer.line), (Token::Word("$L"), true, Token::End, 3));
    }

    #[test]
    fn numbers() {
        for (word, value) in [("12U", 12), ("0x1f", 31), ("0b101", 5), ("0f3F800000", 0x3f80_0000), ("0.5", 0.5f64.to_bits())] {
            assert_eq!(number(word), Some(value), "{word}");
        }
        assert_eq!(number("%r1"), None);
    }
}
