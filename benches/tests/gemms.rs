//! The GEMMs and layers that are measured compute what sums in `f64` say, on the CPU.

use benches::decode::{LAYERS, layers};
use benches::kernels::{self, CALLS};
use benches::layers::{ROUNDED, Weights, Widths};
use benches::matrix::{error, random};
use benches::mixture::{Mixture, Popularity, Sizes, scores};
use maco::{Arguments, Device, Plan, PlanOptions, Tensor, bf16};

const SETS: usize = 3;

fn numbers(tensor: &Tensor<bf16>) -> Vec<f64> {
    tensor.download().unwrap().into_iter().map(bf16::to_f64).collect()
}

/// x · wᵀ of rows of K.
fn gemm(x: &[f64], w: &[f64], k: usize) -> Vec<f64> {
    x.chunks(k).flat_map(|x| w.chunks(k).map(move |w| x.iter().zip(w).map(|(a, b)| a * b).sum())).collect()
}

/// Runs a plan of many GEMMs on operands that take turns.
fn gemms(device: &Device, plan: &Plan, m: u64, n: u64, k: u64) {
    let some = |rows: u64| (0..SETS as u64).map(|seed| random(device, rows, k, seed + 1, 1.0).unwrap()).collect::<Vec<_>>();
    let (x, w) = (some(m), some(n));
    let mut y: Vec<Tensor<bf16>> = (0..CALLS).map(|_| device.zeros([m, n]).unwrap()).collect();
    fn of<'a>(mut all: Arguments<'a>, tensors: &'a [Tensor<bf16>]) -> Arguments<'a> {
        for call in 0..CALLS {
            all = all.tensor(&tensors[call % tensors.len()]);
        }
        all
    }
    plan.run(of(of(Arguments::new(), &x), &w).tensors_mut(&mut y)).unwrap();
    for (call, y) in y.iter().enumerate() {
        let expected = gemm(&numbers(&x[call % SETS]), &numbers(&w[call % SETS]), k as usize);
        let error = error(&y.download().unwrap(), &expected);
        assert!(error < 3e-3, "call {call}: {error}");
    }
}

#[test]
fn every_call_has_operands_of_its_own() {
    let device = Device::cpu_with(2);
    let (n, k) = (40, 96);
    for m in [5, 24] {
        let plan = kernels::gemms::plan(&device, kernels::gemms::Dims { M: m, N: n, K: k }).unwrap();
        assert_eq!(plan.waves(), 1);
        gemms(&device, &plan, m, n, k);
    }
}

#[test]
fn the_mlp_has_a_gelu_between() {
    let device = Device::cpu_with(2);
    let (m, h, k) = (20, 72, 48);
    let (x, up, down) =
        (random(&device, m, k, 1, 1.0).unwrap(), random(&device, h, k, 2, 0.5).unwrap(), random(&device, k, h, 3, 0.5).unwrap());
    let mut y = device.zeros::<bf16>([m, k]).unwrap();
    let plan = kernels::mlp::plan(&device, kernels::mlp::Dims { M: m, K: k, H: h }).unwrap();
    plan.run(&x, &up, &down, &mut y).unwrap();
    let gelu = |v: f64| 0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v.powi(3))).tanh());
    let hidden: Vec<f64> = gemm(&numbers(&x), &numbers(&up), k as usize).into_iter().map(gelu).collect();
    let expected = gemm(&hidden, &numbers(&down), h as usize);
    let error = error(&y.download().unwrap(), &expected);
    assert!(error < 5e-3, "{error}");
}

#[test]
fn layers_compute_what_the_host_says() {
    let device = Device::cpu_with(2);
    let widths = Widths { hidden: 64, projected: 96, intermediate: 160 };
    let weights = Weights::random(widths, 3);
    let given = weights.upload(&device).unwrap();
    let plan = layers::plan(&device, widths.dims()).unwrap();
    // Six calls a layer, each behind the one before.
    assert_eq!(plan.waves() as usize, 6 * LAYERS);
    let mut y = device.zeros::<bf16>([1, widths.hidden]).unwrap();
    (*plan).run(given.arguments().tensor_mut(&mut y)).unwrap();
    let expected = weights.expected();
    let error = error(&y.download().unwrap(), &expected);
    assert!(error < ROUNDED, "{error}");
    // What the last layer adds counts.
    let input: Vec<f64> = weights.x.iter().map(|v| v.to_f64()).collect();
    let grown = expected.iter().map(|v| v * v).sum::<f64>() / input.iter().map(|v| v * v).sum::<f64>();
    assert!((1.0..100.0).contains(&grown), "{grown}");
}

#[test]
fn llama_has_as_many_bytes_as_is_said() {
    assert_eq!(format!("{:.2}", Widths::LLAMA.bytes() as f64 / 1e9), "1.95");
}

#[test]
fn tokens_get_what_their_experts_say() {
    let device = Device::cpu_with(2);
    let sizes = Sizes { tokens: 50, experts: 6, chosen: 2, hidden: 64, inner: 40, group: 128 };
    for popularity in [Popularity::Balanced, Popularity::Zipf] {
        let scores = scores(sizes, popularity, 3);
        let mut mixture = Mixture::new(&device, sizes, &scores).unwrap();
        let plan = mixture.plan(&device, &PlanOptions::new()).unwrap();
        assert!(mixture.check().is_err());
        plan.run(mixture.arguments()).unwrap();
        mixture.check().unwrap();
        // How often the first expert is among the two highest.
        let first = scores.chunks(6).filter(|scores| scores.iter().filter(|&&other| other > scores[0]).count() < 2).count();
        assert_eq!(first > 28, popularity == Popularity::Zipf, "{first} of 50");
    }
}
