//! Whether all ranks have the same: lines of text that are compared by their hash, and in full only where they differ.

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::group::{Group, all_of};

/// Lines that are compared one by one.
const LINES: usize = 1 << 16;
/// Longest line that an error shows.
const LONGEST: usize = 512;

/// What some of the ranks have, where they differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Who has it.
    pub ranks: Box<[u32]>,
    /// The line.
    pub text: Box<str>,
}

impl Group {
    /// Votes on `lines`, which must be the same on all ranks, and on `outcome`, an error of this rank that is to be everybody's.
    ///
    /// # Errors
    /// MACO0097 with the first line that differs; else MACO0096 for the outcome of a rank; MACO0095 when a rank does not come. The same on every rank.
    pub fn agree(&self, operation: &str, lines: &[String], outcome: Result<(), &str>) -> Result<(), Error> {
        if self.ranks() == 1 {
            return self.vote(operation, outcome.map(|()| &[][..])).map(drop);
        }
        let mut hash = Sha256::new();
        for line in lines {
            hash.update((line.len() as u64).to_le_bytes());
            hash.update(line);
        }
        let mut value = hash.finalize().to_vec();
        value.push(u8::from(outcome.is_err()));
        value.extend(outcome.err().unwrap_or("").bytes().take(LONGEST * 16));
        let values = self.vote(operation, Ok(&value))?;
        if values.iter().any(|value| value.get(..32) != values[0].get(..32)) {
            return Err(self.difference(operation, lines)?);
        }
        let outcomes = values.into_iter().map(|value| match value.get(32..) {
            Some([1, text @ ..]) => Err(String::from_utf8_lossy(text).into_owned()),
            _ => Ok(Vec::new()),
        });
        all_of(operation, outcomes.collect()).map(drop)
    }

    /// The first difference: where it is, by the hashes of lines, then what each rank has there.
    fn difference(&self, operation: &str, lines: &[String]) -> Result<Error, Error> {
        let hashes: Vec<u8> = lines.iter().take(LINES).flat_map(|line| Sha256::digest(line)[..8].to_vec()).collect();
        let all = self.vote(&format!("{operation}: where it differs"), Ok(&hashes))?;
        let longest = all.iter().map(|hashes| hashes.len() / 8).max().unwrap_or(0);
        let hash = |rank: usize, line: usize| all[rank].get(8 * line..8 * line + 8);
        let at = (0..longest).find(|&line| (1..all.len()).any(|rank| hash(rank, line) != hash(0, line)));
        let own = match at {
            Some(line) => lines.get(line).map_or("nothing more", String::as_str),
            None => "the same at first, but not behind its first 65536 lines",
        };
        let own = &own[..own.floor_char_boundary(LONGEST)];
        let texts = self.vote(&format!("{operation}: what differs"), Ok(own.as_bytes()))?;
        let texts = texts.iter().map(|text| String::from_utf8_lossy(text).into_owned());
        Ok(Error::Differs { operation: operation.into(), variants: variants(texts) })
    }
}

/// What each rank has, in their order, and who has the same.
pub(crate) fn variants(texts: impl Iterator<Item = String>) -> Box<[Variant]> {
    let mut variants: Vec<(Vec<u32>, String)> = Vec::new();
    for (rank, text) in (0..).zip(texts) {
        match variants.iter_mut().find(|(_, known)| *known == text) {
            Some((ranks, _)) => ranks.push(rank),
            None => variants.push((vec![rank], text)),
        }
    }
    variants.into_iter().map(|(ranks, text)| Variant { ranks: ranks.into(), text: text.into() }).collect()
}
