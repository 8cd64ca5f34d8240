//! What the phases must compute, by a loop on the host.

use crate::graphs::Pattern;
use crate::tasks::boundary::{CHUNK, mix, salt};
use crate::tasks::plain::TILE;
use crate::timing::Random;

/// The data of a run: it arrives when everything is planned.
pub struct Data {
    /// What the first phase reads, row after row.
    pub x: Vec<u32>,
    /// A word of every row, which the first phase sums.
    pub parts: Vec<u32>,
    /// Rows that each tile reads, phase after phase.
    pub ids: Vec<u32>,
    /// Rows of weights, phase after phase.
    pub w: Vec<u32>,
}

impl Data {
    /// Random words, and a random permutation of the tiles in every phase.
    pub fn random(pattern: Pattern, tiles: u32, phases: u32, random: &mut Random) -> Data {
        let mut words = |count: usize| (0..count).map(|_| random.word()).collect::<Vec<u32>>();
        let x = words((tiles * TILE) as usize);
        let parts = words(tiles as usize);
        let w = words((tiles * phases * pattern.weights()) as usize);
        let mut ids = Vec::with_capacity((tiles * phases * pattern.needs()) as usize);
        for _ in 0..phases {
            for place in random.permutation(tiles) {
                match pattern {
                    Pattern::Halo => ids.extend([place.saturating_sub(1), place, (place + 1).min(tiles - 1)]),
                    _ => ids.push(place),
                }
            }
        }
        Data { x, parts, ids, w }
    }

    /// Rows and their words after all phases.
    pub fn expected(&self, pattern: Pattern, tiles: u32, phases: u32, seed: u32) -> (Vec<u32>, Vec<u32>) {
        let (tile, needs, weights) = (TILE as usize, pattern.needs() as usize, pattern.weights() as usize);
        let own = tile - weights;
        let (mut x, mut parts) = (self.x.clone(), self.parts.clone());
        let (mut y, mut next) = (vec![0; x.len()], parts.clone());
        for phase in 0..phases {
            let salt = salt(phase, seed);
            let add = if pattern.sums() { parts.iter().copied().fold(0, u32::wrapping_add) } else { 0 };
            for (n, row) in y.chunks_exact_mut(tile).enumerate() {
                let place = phase as usize * tiles as usize + n;
                let ids = &self.ids[place * needs..][..needs];
                for (chunk, words) in row[..own].chunks_mut(CHUNK as usize).enumerate() {
                    let from = ids[chunk % needs] as usize * tile + chunk * CHUNK as usize;
                    for (word, x) in words.iter_mut().zip(&x[from..]) {
                        *word = mix(x.wrapping_add(add), salt);
                    }
                }
                for (word, w) in row[own..].iter_mut().zip(&self.w[place * weights..]) {
                    *word = mix(w.wrapping_add(add), salt);
                }
                next[n] = row[0];
            }
            std::mem::swap(&mut x, &mut y);
            std::mem::swap(&mut parts, &mut next);
        }
        (x, parts)
    }
}
