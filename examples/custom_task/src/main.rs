//! Runs the gated unit and its loss on the best device there is, checks them against `f64`, and on a GPU times the unit beside the same by
//! tasks of the library.
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use custom_task::kernels::{apart, fused, head, quantised};
use custom_task::reference::{Random, cross_entropy, geglu, scaled};
use maco::{Device, bf16};

/// Tasks of one's own: gelu(x · gate) · (x · up) in one task, the cross-entropy of the logits
/// behind it, and a GEMM of numbers of eight bits with their scales.
#[derive(Parser)]
struct Options {
    /// Run on the CPU even if there is a GPU.
    #[arg(long)]
    cpu: bool,
    /// Rows of x (tokens). Default: 4096 on a GPU, 96 on the CPU.
    #[arg(short)]
    m: Option<u64>,
    /// Columns of x (model width). Default: 4096 on a GPU, 256 on the CPU.
    #[arg(short)]
    k: Option<u64>,
    /// Columns of the gated unit. Default: 12288 on a GPU, 300 on the CPU.
    #[arg(short)]
    n: Option<u64>,
    /// Words. Default: 32000 on a GPU, 1000 on the CPU.
    #[arg(short)]
    v: Option<u64>,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let device = if options.cpu { Device::cpu() } else { Device::best()? };
    let default = if device.is_gpu() { [4096, 4096, 12288, 32000] } else { [96, 256, 300, 1000] };
    let [m, k, n, v] = [options.m, options.k, options.n, options.v];
    let [m, k, n, v] = [m.unwrap_or(default[0]), k.unwrap_or(default[1]), n.unwrap_or(default[2]), v.unwrap_or(default[3])];

    let mut random = Random(1);
    let scale = (3.0 / k.max(1) as f32).sqrt();
    let (x, gate, up) = (random.matrix(m * k, 1.0), random.matrix(n * k, 2.0 * scale), random.matrix(n * k, 2.0 * scale));
    let (words, target) = (random.matrix(v * n, 4.0 / (n.max(1) as f32).sqrt()), random.below(m, v));

    let (dx, dgate, dup) = (device.upload(&x, [m, k])?, device.upload(&gate, [n, k])?, device.upload(&up, [n, k])?);
    let (dwords, dtarget) = (device.upload(&words, [v, n])?, device.upload(&target, [m, 1])?);
    let (mut dy, mut dlogits) = (device.zeros::<bf16>([m, n])?, device.zeros::<bf16>([m, v])?);
    let mut dloss = device.zeros::<f32>([m, 1])?;
    let plan = head::plan(&device, head::Dims { M: m, K: k, N: n, V: v })?;
    plan.run(&dx, &dgate, &dup, &dwords, &dtarget, &mut dy, &mut dlogits, &mut dloss)?;

    println!("head M {m} K {k} N {n} V {v} on {device}");
    let (y, logits, loss) = (dy.download()?, dlogits.download()?, dloss.download()?);
    let (mut unit, mut entropy) = (Error::default(), Error::default());
    // Evenly spaced rows: all that a CPU can check of a transformer's size in time.
    for row in (0..m as usize).step_by((m as usize).div_ceil(16).max(1)) {
        let x = of(&x, row, k);
        for (col, found) in of(&y, row, n).iter().enumerate() {
            unit.add(found.to_f64(), geglu(x, of(&gate, col, k), of(&up, col, k)));
        }
        entropy.add(loss[row].into(), cross_entropy(of(&logits, row, v), target[row]));
    }
    println!("  gated unit: relative error {:.1e} against f64 (at most 4e-3: bf16 results)", unit.relative());
    println!("  loss: relative error {:.1e} against f64 of the same logits (at most 1e-5)", entropy.relative());

    // The width of the unit again, of numbers of eight bits with scales of their rows.
    let (x, w) = (random.eight(m * k), random.eight(n * k));
    let (scale_x, scale_w) = (random.scales(m, 1.0), random.scales(n, 1.0));
    let (dx8, dw8) = (device.upload(&x, [m, k])?, device.upload(&w, [n, k])?);
    let (dscale_x, dscale_w) = (device.upload(&scale_x, [m])?, device.upload(&scale_w, [n])?);
    let plan = quantised::plan(&device, quantised::Dims { M: m, K: k, N: n })?;
    plan.run(&dx8, &dw8, &dscale_x, &dscale_w, &mut dy)?;
    let (product, mut eight) = (dy.download()?, Error::default());
    for row in (0..m as usize).step_by((m as usize).div_ceil(16).max(1)) {
        for (col, found) in of(&product, row, n).iter().enumerate() {
            let scales = f64::from(scale_x[row]) * f64::from(scale_w[col]);
            eight.add(found.to_f64(), scaled(of(&x, row, k), of(&w, col, k), scales));
        }
    }
    println!("  scaled GEMM: relative error {:.1e} against f64 (at most 4e-3: bf16 results)", eight.relative());

    if device.is_gpu() {
        let together = fused::plan(&device, fused::Dims { M: m, K: k, N: n })?;
        let one_by_one = apart::plan(&device, apart::Dims { M: m, K: k, N: n })?;
        let mut times = [Vec::new(), Vec::new()];
        // In turns, so that both see the same clocks.
        for _ in 0..50 {
            times[0].push(together.run(&dx, &dgate, &dup, &mut dy)?.elapsed);
            times[1].push(one_by_one.run(&dx, &dgate, &dup, &mut dy)?.elapsed);
        }
        let [together, one_by_one] = times.map(median);
        println!("  gated unit: {together:.3} ms in one task, {one_by_one:.3} ms by tasks of the library");
    }
    let pass = unit.relative() < 4e-3 && entropy.relative() < 1e-5 && eight.relative() < 4e-3;
    println!("{}", if pass { "PASS" } else { "FAIL" });
    Ok(if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A row of a matrix.
fn of<E>(data: &[E], row: usize, cols: u64) -> &[E] {
    &data[row * cols as usize..][..cols as usize]
}

/// Milliseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// An error in the Frobenius norm.
#[derive(Default)]
struct Error {
    difference: f64,
    norm: f64,
}

impl Error {
    fn add(&mut self, found: f64, expected: f64) {
        self.difference += (found - expected).powi(2);
        self.norm += expected * expected;
    }

    /// NaN, which compares false and fails, if there was nothing.
    fn relative(&self) -> f64 {
        if self.norm > 0.0 { (self.difference / self.norm).sqrt() } else { f64::NAN }
    }
}
