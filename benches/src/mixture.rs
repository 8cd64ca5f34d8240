//! Layers of a mixture of experts with random operands, and what some of their tokens must get, by a loop on the host.
//!
//! The megakernel is in `experts.rs`.

use anyhow::ensure;
use maco::{Arguments, Device, Plan, PlanOptions, Tensor, bf16};

use crate::experts::layer;
use crate::matrix::{error, numbers};
use crate::timing::Random;

/// Relative error of which a result may be off: three results on the way are rounded to bf16.
const ROUNDED: f64 = 2e-2;
/// Tokens that are computed on the host too.
const CHECKED: usize = 6;

/// Which experts tokens like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popularity {
    /// All alike.
    Balanced,
    /// The n-th 1 / n as much as the first (Zipf's law, exponent 1).
    Zipf,
}

/// Sizes of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Rows of the input.
    pub tokens: u64,
    /// How many there are.
    pub experts: u64,
    /// How many of them each token goes to.
    pub chosen: u64,
    /// Columns of the input.
    pub hidden: u64,
    /// Columns between the GEMMs of an expert.
    pub inner: u64,
    /// Rows of a group, of which an expert fills whole ones: those of a tile, 128 or 64.
    pub group: u64,
}

impl Sizes {
    fn dims(self) -> layer::Dims {
        let groups = self.tokens * self.chosen / self.group + self.experts;
        layer::Dims { M: self.tokens, H: self.hidden, X: self.experts, I: self.inner, K: self.chosen, G: groups, R: groups * self.group }
    }

    /// Floating-point operations of the experts.
    pub fn operations(self) -> u64 {
        6 * self.tokens * self.chosen * self.hidden * self.inner
    }
}

/// Scores so that the experts with the highest ones are chosen as often as `popularity` says, one after the other without putting back:
/// logarithms of what they are liked, and Gumbel's noise.
pub fn scores(sizes: Sizes, popularity: Popularity, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let liked = |expert: u64| match popularity {
        Popularity::Balanced => 0.0,
        Popularity::Zipf => -((expert + 1) as f32).ln(),
    };
    let tokens = 0..sizes.tokens;
    tokens
        .flat_map(|_| 0..sizes.experts)
        .map(|expert| {
            let uniform = (random.word() >> 8) as f32 / (1 << 24) as f32 + 0.5 / (1 << 24) as f32;
            liked(expert) - (-uniform.ln()).ln()
        })
        .collect()
}

/// A layer on a device: its operands and results.
pub struct Mixture {
    sizes: Sizes,
    x: Vec<bf16>,
    /// Of gate and up, and of down; the tensors repeat them.
    pattern: Vec<bf16>,
    inputs: [Tensor<bf16>; 4],
    scores: Tensor<f32>,
    weights: Tensor<f32>,
    ids: Tensor<u32>,
    expert: Tensor<u32>,
    rows: Tensor<u32>,
    counts: Tensor<u32>,
    y: Tensor<bf16>,
}

/// Numbers that weights repeat: a prime, so that no two rows are alike.
const PATTERN: usize = 1_000_003;

impl Mixture {
    /// With random operands and these scores.
    pub fn new(device: &Device, sizes: Sizes, scores: &[f32]) -> anyhow::Result<Mixture> {
        let Sizes { tokens, experts, chosen, hidden, inner, .. } = sizes;
        let random = |count: usize, seed: u64| -> Vec<bf16> { numbers(seed, 1.0).take(count).map(bf16::from_f32).collect() };
        let (x, pattern) = (random((tokens * hidden) as usize, 1), random(PATTERN, 2));
        let scale = 1.0 / (hidden as f32).sqrt();
        let pattern: Vec<bf16> = pattern.into_iter().map(|v| bf16::from_f32(v.to_f32() * scale * 2.0)).collect();
        let weights = |first: usize, shape: [u64; 3]| {
            let count = shape.iter().product::<u64>() as usize;
            let data: Vec<bf16> = pattern.iter().copied().cycle().skip(first).take(count).collect();
            device.upload(&data, shape)
        };
        let dims = sizes.dims();
        Ok(Mixture {
            inputs: [
                device.upload(&x, [tokens, hidden])?,
                weights(FIRST[0], [experts, inner, hidden])?,
                weights(FIRST[1], [experts, inner, hidden])?,
                weights(FIRST[2], [experts, hidden, inner])?,
            ],
            scores: device.upload(scores, [tokens, experts])?,
            weights: device.zeros([tokens, chosen])?,
            ids: device.zeros([tokens, chosen])?,
            expert: device.zeros([dims.G])?,
            rows: device.zeros([dims.R])?,
            counts: device.zeros([experts])?,
            y: device.zeros([tokens, hidden])?,
            sizes,
            x,
            pattern,
        })
    }

    /// The plan of its layer.
    pub fn plan(&self, device: &Device, options: &PlanOptions) -> anyhow::Result<Plan> {
        Ok((*layer::plan_with(device, self.sizes.dims(), options)?).clone())
    }

    /// Of the plan.
    pub fn arguments(&mut self) -> Arguments<'_> {
        let [x, gate, up, down] = &self.inputs;
        let given = Arguments::new().tensor(x).tensor(&self.scores).tensor(gate).tensor(up).tensor(down);
        let routed = given.tensor_mut(&mut self.weights).tensor_mut(&mut self.ids).tensor_mut(&mut self.expert);
        routed.tensor_mut(&mut self.rows).tensor_mut(&mut self.counts).tensor_mut(&mut self.y)
    }

    /// Fails unless every token went to as many experts as it should, and some tokens got what sums in `f64` say.
    pub fn check(&self) -> anyhow::Result<()> {
        let Sizes { tokens, experts, chosen, hidden, inner, .. } = self.sizes;
        let (hidden, inner, chosen) = (hidden as usize, inner as usize, chosen as usize);
        let (ids, weights, y) = (self.ids.download()?, self.weights.download()?, self.y.download()?);
        ensure!(ids.iter().all(|&id| u64::from(id) < experts), "a token went to an expert that there is not");
        let rows = self.rows.download()?;
        let routed = rows.iter().filter(|&&token| token != u32::MAX).count();
        ensure!(routed == ids.len(), "{routed} of {} rows reached an expert", ids.len());
        let row = |first: usize, row: usize, length: usize| {
            (0..length).map(move |at| self.pattern[(first + row * length + at) % PATTERN].to_f64())
        };
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        for n in 0..CHECKED.min(tokens as usize) {
            let token = n * (tokens as usize - 1) / (CHECKED - 1);
            let x: Vec<f64> = self.x[token * hidden..][..hidden].iter().map(|v| v.to_f64()).collect();
            let mut sum = vec![0.0; hidden];
            for k in token * chosen..token * chosen + chosen {
                let expert = ids[k] as usize;
                let dot = |x: &[f64], w: &mut dyn Iterator<Item = f64>| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
                let product = |first: usize, at: usize| dot(&x, &mut row(first, expert * inner + at, hidden));
                let open: Vec<f64> = (0..inner)
                    .map(|at| {
                        let (gate, up) = (product(FIRST[0], at), product(FIRST[1], at));
                        gate / (1.0 + (-gate).exp()) * up
                    })
                    .collect();
                for (at, sum) in sum.iter_mut().enumerate() {
                    *sum += f64::from(weights[k]) * dot(&open, &mut row(FIRST[2], expert * hidden + at, inner));
                }
            }
            found.extend_from_slice(&y[token * hidden..][..hidden]);
            expected.extend(sum);
        }
        let error = error(&found, &expected);
        ensure!(error < ROUNDED, "tokens got something else than the host computed: relative error {error:.1e}");
        Ok(())
    }
}

/// Where gate, up and down begin in the pattern.
const FIRST: [usize; 3] = [0, 333_333, 666_667];
