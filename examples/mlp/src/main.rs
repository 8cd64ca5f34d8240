//! Runs the MLP on the best device there is and checks it against a sequential computation.
mod kernels;

use std::process::ExitCode;

use clap::Parser;
use maco::{Device, bf16};

/// A transformer's MLP, y = down · gelu(up · x), as one megakernel, checked against a sequential oracle.
#[derive(Parser)]
struct Options {
    /// Run on the CPU even if there is a GPU.
    #[arg(long)]
    cpu: bool,
    /// Rows of x (tokens). Default: 4096 on a GPU, 128 on the CPU.
    #[arg(short)]
    m: Option<u64>,
    /// Columns of x (model width). Default: 4096 on a GPU, 256 on the CPU.
    #[arg(short)]
    k: Option<u64>,
    /// Columns of the hidden layer. Default: 12288 on a GPU, 768 on the CPU.
    #[arg(long)]
    h: Option<u64>,
    /// Print the graph.
    #[arg(long)]
    graph: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let device = if options.cpu { Device::cpu() } else { Device::best()? };
    let default = if device.is_gpu() { (4096, 4096, 12288) } else { (128, 256, 768) };
    let (m, k, h) = (options.m.unwrap_or(default.0), options.k.unwrap_or(default.1), options.h.unwrap_or(default.2));

    let mut random = Random(1);
    let x = random.matrix(m * k, 1.0);
    let up = random.matrix(h * k, (k as f32).powf(-0.5));
    let down = random.matrix(k * h, (h as f32).powf(-0.5));

    let mlp = kernels::mlp::plan(&device, kernels::mlp::Dims { M: m, K: k, H: h })?;
    if options.graph {
        println!("{}", mlp.graph());
    }
    let (dx, dup, ddown) = (device.upload(&x, [m, k])?, device.upload(&up, [h, k])?, device.upload(&down, [k, h])?);
    let mut dy = device.zeros::<bf16>([m, k])?;
    mlp.run(&dx, &dup, &ddown, &mut dy)?;
    let report = mlp.run(&dx, &dup, &ddown, &mut dy)?;
    let y = dy.download()?;

    let error = check(&x, &up, &down, &y, m as usize, k as usize, h as usize);
    let pass = error < 1e-2;
    println!("mlp M {m} K {k} H {h} on {device}");
    println!("  {} tasks, {} edges, {} waves", mlp.tasks(), mlp.edges(), mlp.waves());
    println!("  relative error {error:.1e} against the sequential oracle (at most 1e-2: bf16 results)");
    let flop = 4.0 * m as f64 * k as f64 * h as f64;
    println!("  {:.3} ms, {:.1} GFLOP/s", report.elapsed.as_secs_f64() * 1e3, flop / report.elapsed.as_secs_f64() / 1e9);
    println!("{}", if pass { "PASS" } else { "FAIL" });
    Ok(if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Relative error, in the Frobenius norm, of up to 16 evenly spaced rows (all that a CPU can check of a transformer's size in time).
fn check(x: &[bf16], up: &[bf16], down: &[bf16], y: &[bf16], m: usize, k: usize, h: usize) -> f64 {
    let dot = |a: &[f64], b: &[bf16]| a.iter().zip(b).map(|(a, b)| a * b.to_f64()).sum::<f64>();
    let gelu = |v: f64| 0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v * v * v)).tanh());
    let (mut difference, mut norm) = (0f64, 0f64);
    for row in (0..m).step_by(m.div_ceil(16).max(1)) {
        let x: Vec<f64> = x[row * k..][..k].iter().map(|v| v.to_f64()).collect();
        let hidden: Vec<f64> = up.chunks_exact(k).map(|w| bf16::from_f64(gelu(dot(&x, w))).to_f64()).collect();
        for (w, y) in down.chunks_exact(h).zip(&y[row * k..][..k]) {
            let expected = dot(&hidden, w);
            difference += (y.to_f64() - expected).powi(2);
            norm += expected * expected;
        }
    }
    // NaN compares false and fails.
    if norm > 0.0 { (difference / norm).sqrt() } else { f64::NAN }
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

    fn matrix(&mut self, len: u64, scale: f32) -> Vec<bf16> {
        (0..len).map(|_| bf16::from_f32(self.next() * scale)).collect()
    }
}
