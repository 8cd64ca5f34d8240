//! Weights of a decoder's layers, and what the layers must compute, by a loop on the host.
//!
//! The megakernel is in `decode.rs`.

use maco::{Arguments, Device, Error, Tensor, bf16};

use crate::decode::{EPSILON, LAYERS, layers};
use crate::matrix::numbers;

/// Relative error of which a result may be off. Layers round to bf16 some hundred times, by 2⁻⁹ / √3 in the mean; where one rounding
/// differs, the later ones do, so that two right results are as far apart as if all were independent: 1.6e-2, and more where norms enlarge it.
pub const ROUNDED: f64 = 4e-2;

/// Widths of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Widths {
    /// What goes from layer to layer.
    pub hidden: u64,
    /// Queries, keys and values together; the first `hidden` go on.
    pub projected: u64,
    /// Between gate, up and down.
    pub intermediate: u64,
}

impl Widths {
    /// Llama-3.2-1B: 32 heads of 64 with 8 of keys and values.
    pub const LLAMA: Widths = Widths { hidden: 2048, projected: 3072, intermediate: 8192 };

    /// Of a plan for one token.
    pub fn dims(self) -> layers::Dims {
        layers::Dims { M: 1, D: self.hidden, P: self.projected, H: self.intermediate }
    }

    /// Rows and columns of a layer's weights, and by how much a GEMV with them scales what is random: so that neither the layers' input
    /// nor their own part drowns the other.
    fn weights(self) -> [(u64, u64, f32); 4] {
        let Widths { hidden, projected, intermediate } = self;
        [(projected, hidden, 1.0), (hidden, hidden, 0.25), (2 * intermediate, hidden, 1.0), (hidden, intermediate, 1.0)]
    }

    /// Bytes of the weights of all layers.
    pub fn bytes(self) -> u64 {
        let layer: u64 = self.weights().iter().map(|(rows, columns, _)| rows * columns).sum();
        (layer + self.hidden) * 2 * LAYERS as u64
    }
}

/// On the host: what every layer is given, and the first one's input.
pub struct Weights {
    widths: Widths,
    /// The input of the first layer.
    pub x: Vec<bf16>,
    /// Of every layer: projection, output, gate and up, down.
    matrices: Vec<[Vec<bf16>; 4]>,
    norms: Vec<Vec<bf16>>,
}

/// The same on a device: layer after layer.
pub struct Layers {
    /// The input of the first layer.
    pub x: Tensor<bf16>,
    /// Queries, keys and values.
    pub projection: Vec<Tensor<bf16>>,
    /// After attention.
    pub output: Vec<Tensor<bf16>>,
    /// The norm's weights.
    pub norm: Vec<Tensor<bf16>>,
    /// Gates, and behind them what they gate.
    pub gate_up: Vec<Tensor<bf16>>,
    /// Back to the hidden width.
    pub down: Vec<Tensor<bf16>>,
}

impl Weights {
    /// Random ones.
    pub fn random(widths: Widths, seed: u64) -> Weights {
        let some = |count: u64, n: u64, middle: f32, scale: f32| -> Vec<bf16> {
            numbers(seed * 1000 + n, scale).take(count as usize).map(|v| bf16::from_f32(middle + v)).collect()
        };
        let layers = 0..LAYERS as u64;
        let matrix = |layer: u64, n: usize| {
            let (rows, columns, gain) = widths.weights()[n];
            some(rows * columns, layer * 8 + n as u64, 0.0, gain * (3.0 / columns as f32).sqrt())
        };
        Weights {
            widths,
            x: some(widths.hidden, 999, 0.0, 1.0),
            matrices: layers.clone().map(|layer| [0, 1, 2, 3].map(|n| matrix(layer, n))).collect(),
            norms: layers.map(|layer| some(widths.hidden, layer * 8 + 4, 1.0, 0.25)).collect(),
        }
    }

    /// On a device.
    pub fn upload(&self, device: &Device) -> Result<Layers, Error> {
        let matrices = |n: usize| -> Result<Vec<_>, Error> {
            let (rows, columns, _) = self.widths.weights()[n];
            self.matrices.iter().map(|layer| device.upload(&layer[n], [rows, columns])).collect()
        };
        Ok(Layers {
            x: device.upload(&self.x, [1, self.widths.hidden])?,
            projection: matrices(0)?,
            output: matrices(1)?,
            norm: self.norms.iter().map(|norm| device.upload(norm, [self.widths.hidden])).collect::<Result<_, _>>()?,
            gate_up: matrices(2)?,
            down: matrices(3)?,
        })
    }

    /// The result: sums in `f64`, rounded where the megakernel stores a tensor.
    pub fn expected(&self) -> Vec<f64> {
        let hidden = self.widths.hidden as usize;
        let mut x: Vec<f64> = self.x.iter().map(|v| v.to_f64()).collect();
        for ([projection, output, gate_up, down], norm) in self.matrices.iter().zip(&self.norms) {
            let projected = rounded(gemv(&x, projection));
            let attended = rounded(sum(gemv(&projected[..hidden], output), &x));
            let mean = attended.iter().map(|v| v * v).sum::<f64>() / hidden as f64;
            let factor = 1.0 / (mean + f64::from(EPSILON)).sqrt();
            let normal = rounded(attended.iter().zip(norm).map(|(v, w)| v * factor * w.to_f64()).collect());
            let both = gemv(&normal, gate_up);
            let (gate, up) = both.split_at(both.len() / 2);
            let gate = rounded(gate.iter().map(|v| v / (1.0 + (-v).exp())).collect());
            let wide = rounded(gate.iter().zip(up).map(|(gate, up)| gate * up).collect());
            x = rounded(sum(gemv(&wide, down), &attended));
        }
        x
    }
}

/// w · x.
fn gemv(x: &[f64], w: &[bf16]) -> Vec<f64> {
    w.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w.to_f64() * x).sum()).collect()
}

fn sum(a: Vec<f64>, b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn rounded(values: Vec<f64>) -> Vec<f64> {
    values.into_iter().map(|v| bf16::from_f64(v).to_f64()).collect()
}

impl Layers {
    /// Of the plan, but for its result.
    pub fn arguments(&self) -> Arguments<'_> {
        let x = Arguments::new().tensor(&self.x);
        x.tensors(&self.projection).tensors(&self.output).tensors(&self.norm).tensors(&self.gate_up).tensors(&self.down)
    }
}
