//! A message under construction in const evaluation, where there is no `format!`.

use super::{Element, TaskSpec};

/// Room for one message; what does not fit is cut at a character.
const CAPACITY: usize = 720;

/// Bytes of a message.
#[derive(Clone, Copy)]
pub struct Text {
    bytes: [u8; CAPACITY],
    len: usize,
}

impl Text {
    /// No text yet.
    pub const fn new() -> Text {
        Text { bytes: [0; CAPACITY], len: 0 }
    }

    /// Adds a string.
    pub const fn push(&mut self, text: &str) {
        let text = text.as_bytes();
        let mut n = 0;
        while n < text.len() && self.len < CAPACITY {
            self.bytes[self.len] = text[n];
            self.len += 1;
            n += 1;
        }
    }

    /// Adds one ASCII character.
    pub const fn push_byte(&mut self, byte: u8) {
        if self.len < CAPACITY {
            self.bytes[self.len] = byte;
            self.len += 1;
        }
    }

    /// Adds a number in decimal.
    pub const fn push_number(&mut self, number: i64) {
        if number < 0 {
            self.push_byte(b'-');
        }
        let number = number.unsigned_abs();
        let mut power = 1;
        while number / power >= 10 {
            power *= 10;
        }
        while power > 0 {
            self.push_byte(b'0' + (number / power % 10) as u8);
            power /= 10;
        }
    }

    /// Adds a word of the user between backticks.
    pub const fn push_quoted(&mut self, word: &str) {
        self.push("`");
        self.push(word);
        self.push("`");
    }

    /// Adds `1 argument`, `2 arguments`.
    pub const fn push_count(&mut self, count: u32, noun: &str) {
        self.push_number(count as i64);
        self.push(" ");
        self.push(noun);
        if count != 1 {
            self.push("s");
        }
    }

    /// Adds `bf16`, `bf16 or f16`, `bf16, f16 or f32`.
    pub const fn push_elements(&mut self, elements: &[Element]) {
        let mut n = 0;
        while n < elements.len() {
            if n > 0 {
                self.push(if n + 1 == elements.len() { " or " } else { ", " });
            }
            self.push(elements[n].name());
            n += 1;
        }
    }

    /// Adds `64`, `64 or 128`.
    pub const fn push_numbers(&mut self, numbers: &[u32]) {
        let mut n = 0;
        while n < numbers.len() {
            if n > 0 {
                self.push(if n + 1 == numbers.len() { " or " } else { ", " });
            }
            self.push_number(numbers[n] as i64);
            n += 1;
        }
    }

    /// Adds the first `axes` sizes of a tile: `64 × 128`.
    pub const fn push_tile(&mut self, tile: &[u32], axes: usize) {
        let mut n = 0;
        while n < axes && n < tile.len() {
            self.push(if n > 0 { " × " } else { "" });
            self.push_number(tile[n] as i64);
            n += 1;
        }
    }

    /// Adds the tiles of a task's form: `(64 or 128) × (128 or 256)`.
    pub const fn push_tiles(&mut self, form: &TaskSpec) {
        let mut n = 0;
        while n < form.axes.len() {
            self.push(if n > 0 { ") × (" } else { "(" });
            self.push_numbers(form.axes[n].tiles);
            n += 1;
        }
        self.push(")");
    }

    /// The text so far.
    pub const fn as_str(&self) -> &str {
        let mut len = self.len;
        loop {
            let (head, _) = self.bytes.split_at(len);
            match core::str::from_utf8(head) {
                Ok(text) => return text,
                // Only a message cut inside a character gets here.
                Err(error) => len = error.valid_up_to(),
            }
        }
    }
}

impl Default for Text {
    fn default() -> Self {
        Text::new()
    }
}
