//! Classifies the 1,797 handwritten digits of the UCI set and shows a few.
mod kernels;

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use maco::{Device, Tensor, bf16};
use safetensors::SafeTensors;

static DATA: &[u8] = include_bytes!("../data/digits.safetensors");

/// Pixels of an image.
const PIXELS: usize = 64;
const CLASSES: usize = 10;

/// A three-layer perceptron as one megakernel classifies handwritten digits.
#[derive(Parser)]
struct Options {
    /// Run on the CPU even if there is a GPU.
    #[arg(long)]
    cpu: bool,
    /// How many digits to show.
    #[arg(long, default_value_t = 4)]
    show: usize,
    /// Print the graph.
    #[arg(long)]
    graph: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let device = if options.cpu { Device::cpu() } else { Device::best()? };
    let file = SafeTensors::deserialize(DATA).context("data/digits.safetensors")?;
    let (_, header) = SafeTensors::read_metadata(DATA)?;
    let trained: usize = header.metadata().as_ref().and_then(|m| m.get("train")).context("no `train` in the file's metadata")?.parse()?;
    let weight = |name: &str| load(&device, &file, name);
    let (w1, b1, w2, b2, w3, b3) = (weight("w1")?, weight("b1")?, weight("w2")?, weight("b2")?, weight("w3")?, weight("b3")?);
    let (images, labels) = (file.tensor("images")?.data(), file.tensor("labels")?.data());

    let count = labels.len() as u64;
    let pixels: Vec<bf16> = images.iter().map(|&v| bf16::from_f32(v as f32 / 16.0)).collect();
    let x = device.upload(&pixels, [count, PIXELS as u64])?;
    let mut scores = device.zeros::<bf16>([count, CLASSES as u64])?;

    let dims = kernels::classify::Dims { M: count, P: PIXELS as u64, A: w1.shape()[0], B: w2.shape()[0], C: CLASSES as u64 };
    let classify = kernels::classify::plan(&device, dims)?;
    if options.graph {
        println!("{}", classify.graph());
    }
    classify.run(&x, &w1, &b1, &w2, &b2, &w3, &b3, &mut scores)?;
    let report = classify.run(&x, &w1, &b1, &w2, &b2, &w3, &b3, &mut scores)?;

    let scores = scores.download()?;
    let guesses: Vec<u8> = scores.chunks_exact(CLASSES).map(best).collect();
    let right = |range: std::ops::Range<usize>| {
        let hits = range.clone().filter(|&n| guesses[n] == labels[n]).count();
        hits as f64 / range.len() as f64
    };
    let (all, unseen) = (right(0..labels.len()), right(trained..labels.len()));

    for n in (trained..labels.len()).step_by(97).take(options.show) {
        show(&images[n * PIXELS..][..PIXELS]);
        println!("  predicted {}, is {}\n", guesses[n], labels[n]);
    }
    println!("digits on {device}");
    println!("  {} tasks, {} edges, {} waves", classify.tasks(), classify.edges(), classify.waves());
    println!("  {} images in {:.3} ms", labels.len(), report.elapsed.as_secs_f64() * 1e3);
    println!("  accuracy {:.2} % (of the {} images not trained on: {:.2} %)", all * 100.0, labels.len() - trained, unseen * 100.0);
    // What the weights reach with exact arithmetic is 97.8 %.
    let pass = all > 0.97;
    println!("{}", if pass { "PASS" } else { "FAIL" });
    Ok(if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A bf16 tensor of the file on the device.
fn load(device: &Device, file: &SafeTensors, name: &str) -> anyhow::Result<Tensor<bf16>> {
    let tensor = file.tensor(name).with_context(|| format!("tensor `{name}`"))?;
    let values: Vec<bf16> = tensor.data().chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]])).collect();
    let shape: Vec<u64> = tensor.shape().iter().map(|&n| n as u64).collect();
    Ok(device.upload(&values, shape.as_slice())?)
}

/// The class with the largest score.
fn best(scores: &[bf16]) -> u8 {
    let mut best = 0;
    for (class, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = class;
        }
    }
    best as u8
}

/// Prints an image of 8 × 8 pixels of 0 to 16.
fn show(image: &[u8]) {
    for row in image.chunks_exact(8) {
        let line: String = row.iter().flat_map(|&v| [[' ', '.', ':', '+', '#'][v as usize / 4]; 2]).collect();
        println!("    {line}");
    }
}
