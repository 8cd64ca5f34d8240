//! The numbers of a layer: sizes, weights, and the part of them that a rank has.

use anyhow::ensure;
use maco::bf16;

use crate::kernels::layer::Dims;

/// Sizes of a layer with all its heads.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub batch: u64,
    pub tokens: u64,
    pub heads: u64,
    pub head_dim: u64,
    pub hidden: u64,
    pub ffn: u64,
}

impl Sizes {
    /// Rows of x: the tokens of all sequences.
    pub fn rows(&self) -> u64 {
        self.batch * self.tokens
    }

    /// Columns of all heads.
    pub fn width(&self) -> u64 {
        self.heads * self.head_dim
    }

    /// Whether so many ranks can share it.
    pub fn check(&self, ranks: u64) -> anyhow::Result<()> {
        let Sizes { batch, tokens, heads, head_dim, hidden, ffn } = *self;
        ensure!(
            [batch, tokens, heads, head_dim, hidden, ffn].iter().all(|size| (1..1 << 24).contains(size)),
            "a size is 1 or more, and below 2²⁴"
        );
        ensure!(head_dim % 2 == 0, "a head has pairs, which are turned: --head-dim {head_dim} is odd");
        ensure!(heads % ranks == 0, "{heads} heads cannot be divided among {ranks} ranks");
        ensure!(ffn % ranks == 0, "{ffn} columns of the feed-forward layer cannot be divided among {ranks} ranks");
        Ok(())
    }

    /// Those of one of `ranks` ranks.
    pub fn dims(&self, ranks: u64) -> Dims {
        Dims { B: self.batch, T: self.tokens, H: self.heads / ranks, D: self.head_dim, K: self.hidden, F: self.ffn / ranks }
    }
}

/// Input and weights of a whole layer, by rows.
pub struct Layer {
    pub sizes: Sizes,
    /// [rows, hidden]
    pub x: Vec<bf16>,
    /// [hidden], in front of the attention and of the feed-forward layer.
    pub norms: [Vec<bf16>; 2],
    /// [heads, head_dim, hidden] of queries, keys and values.
    pub qkv: [Vec<bf16>; 3],
    /// [hidden, heads · head_dim]
    pub out: Vec<bf16>,
    /// [ffn, hidden]
    pub gate: Vec<bf16>,
    /// [ffn, hidden]
    pub up: Vec<bf16>,
    /// [hidden, ffn]
    pub down: Vec<bf16>,
}

impl Layer {
    /// The same random numbers on all ranks. Both halves add about as much to x as is there, so that an error of theirs does not disappear in the residual.
    pub fn random(sizes: Sizes) -> Layer {
        let Sizes { hidden, ffn, .. } = sizes;
        let (width, mut random) = (sizes.width(), Random(1));
        // A sum of n products with weights below scale / √n is about as large as what is multiplied if the scale is √3.
        let scale = |scale: f32, n: u64| scale * (n as f32).powf(-0.5);
        let mut norm = || (0..hidden).map(|_| bf16::from_f32(1.0 + 0.25 * random.next())).collect();
        let norms = [norm(), norm()];
        let mut matrix = |rows: u64, columns: u64, scale: f32| -> Vec<bf16> {
            (0..rows * columns).map(|_| bf16::from_f32(random.next() * scale)).collect()
        };
        Layer {
            sizes,
            norms,
            x: matrix(sizes.rows(), hidden, 1.0),
            qkv: [0; 3].map(|_| matrix(width, hidden, scale(2.0, hidden))),
            out: matrix(hidden, width, scale(4.0, width)),
            gate: matrix(ffn, hidden, scale(2.0, hidden)),
            up: matrix(ffn, hidden, scale(2.0, hidden)),
            down: matrix(hidden, ffn, scale(4.0, ffn)),
        }
    }

    /// What rank `rank` of `ranks` has of the weights: its heads, and its columns of the feed-forward layer.
    pub fn shard(&self, rank: u64, ranks: u64) -> Shard {
        let Sizes { hidden, ffn, .. } = self.sizes;
        let rows = |matrix: &[bf16], rows: u64| {
            let share = rows / ranks * hidden;
            matrix[(rank * share) as usize..][..share as usize].to_vec()
        };
        let columns = |matrix: &[bf16], columns: u64| {
            let share = columns / ranks;
            matrix.chunks_exact(columns as usize).flat_map(|row| &row[(rank * share) as usize..][..share as usize]).copied().collect()
        };
        let width = self.sizes.width();
        Shard {
            qkv: [0, 1, 2].map(|of| rows(&self.qkv[of], width)),
            out: columns(&self.out, width),
            gate: rows(&self.gate, ffn),
            up: rows(&self.up, ffn),
            down: columns(&self.down, ffn),
        }
    }
}

/// The weights of one rank.
pub struct Shard {
    pub qkv: [Vec<bf16>; 3],
    pub out: Vec<bf16>,
    pub gate: Vec<bf16>,
    pub up: Vec<bf16>,
    pub down: Vec<bf16>,
}

/// Angles by which the pairs of a head turn, [tokens, head_dim / 2]: position · 10000^(−2f / head_dim) (Su et al., 2021).
pub fn angles(sizes: Sizes) -> Vec<f64> {
    let half = sizes.head_dim / 2;
    let angle = |t: u64, f: u64| t as f64 * 10000f64.powf(-(f as f64) / half as f64);
    (0..sizes.tokens).flat_map(|t| (0..half).map(move |f| angle(t, f))).collect()
}

/// A token sees itself and those before it: [tokens, tokens], 0 or negative infinity.
pub fn causal(tokens: u64) -> Vec<bf16> {
    (0..tokens).flat_map(|t| (0..tokens).map(move |other| if other <= t { bf16::ZERO } else { bf16::NEG_INFINITY })).collect()
}

/// xorshift64*: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}
