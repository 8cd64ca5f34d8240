//! The state of an mbarrier, in the eight bytes that the program gives it.
//!
//! Bits 0–19: arrivals still expected in this phase; 20–39: of each phase; 40–61: bytes still to come, signed; 62: parity of the phase;
//! 63: always set.

#[derive(Clone, Copy, Debug)]
pub struct State {
    pub pending: u32,
    pub expected: u32,
    pub bytes: i32,
    pub phase: bool,
}

const COUNT: u64 = (1 << 20) - 1;

impl State {
    pub fn new(count: u32) -> State {
        State { pending: count, expected: count, bytes: 0, phase: false }
    }

    pub fn unpack(word: u64) -> State {
        let bytes = ((word >> 40 & 0x3F_FFFF) as i32) << 10 >> 10;
        State { pending: (word & COUNT) as u32, expected: (word >> 20 & COUNT) as u32, bytes, phase: word >> 62 & 1 == 1 }
    }

    pub fn pack(self) -> u64 {
        u64::from(self.pending)
            | u64::from(self.expected) << 20
            | (self.bytes as u64 & 0x3F_FFFF) << 40
            | (self.phase as u64) << 62
            | 1 << 63
    }

    /// Ends the phase if nothing is missing.
    pub fn settle(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.phase = !self.phase;
            self.pending = self.expected;
        }
    }

    pub fn expect(&mut self, bytes: u32) -> Result<(), String> {
        self.bytes = self.bytes.wrapping_add(bytes as i32);
        if self.bytes.unsigned_abs() >= 1 << 20 {
            Err(format!("the mbarrier expects {} bytes, more than it can count", self.bytes))
        } else {
            Ok(())
        }
    }

    pub fn complete(&mut self, bytes: u32) -> Result<(), String> {
        self.bytes = self.bytes.wrapping_sub(bytes as i32);
        if self.bytes.unsigned_abs() >= 1 << 20 {
            return Err(format!("{} bytes beyond what the mbarrier expects, more than it can count", -i64::from(self.bytes)));
        }
        self.settle();
        Ok(())
    }

    pub fn arrive(&mut self, count: u32) -> Result<(), String> {
        if count > self.pending {
            return Err(format!("{count} arrivals where the mbarrier's phase misses {}", self.pending));
        }
        self.pending -= count;
        self.settle();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_end_when_nothing_is_missing() {
        let mut state = State::new(2);
        state.expect(64).unwrap();
        state.arrive(2).unwrap();
        assert!(!State::unpack(state.pack()).phase);
        state.complete(64).unwrap();
        assert!(state.phase && state.pending == 2);
        state.complete(32).unwrap();
        assert_eq!(State::unpack(state.pack()).bytes, -32);
        assert!(state.arrive(3).is_err());
    }
}
