//! Words and punctuation of PTX. Comments and spaces are skipped; lines are counted, since faults name them.

/// A token; numbers are words too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    Word(&'a str),
    Text(&'a str),
    Mark(u8),
    End,
}

/// Reads tokens of a text from a place on.
#[derive(Clone)]
pub struct Lexer<'a> {
    text: &'a str,
    pub at: usize,
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
    pub fn new(text: &'a str, at: usize, line: u32) -> Lexer<'a> {
        Lexer { text, at, line }
    }

    fn skip(&mut self) {
        let bytes = self.text.as_bytes();
        while let Some(&c) = bytes.get(self.at) {
            match c {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'/' if bytes.get(self.at + 1) == Some(&b'/') => self.skip_line(),
                b'/' if bytes.get(self.at + 1) == Some(&b'*') => {
                    while self.at < bytes.len() && !bytes[self.at..].starts_with(b"*/") {
                        self.line += (bytes[self.at] == b'\n') as u32;
                        self.at += 1;
                    }
                    self.at += 2;
                }
                _ => break,
            }
        }
    }

    /// To the end of the line, for directives that end there.
    pub fn skip_line(&mut self) {
        let bytes = self.text.as_bytes();
        while self.at < bytes.len() && bytes[self.at] != b'\n' {
            self.at += 1;
        }
    }

    pub fn next(&mut self) -> Token<'a> {
        self.skip();
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
            self.at += 1;
            while bytes.get(self.at).is_some_and(|&c| c != b'"') {
                self.at += 1;
            }
            self.at += 1;
            return Token::Text(&self.text[from + 1..self.at - 1]);
        }
        self.at += 1;
        Token::Mark(c)
    }

    pub fn peek(&mut self) -> Token<'a> {
        self.clone().next()
    }

    pub fn take(&mut self, mark: u8) -> bool {
        let mut ahead = self.clone();
        let found = ahead.next() == Token::Mark(mark);
        if found {
            *self = ahead;
        }
        found
    }
}
