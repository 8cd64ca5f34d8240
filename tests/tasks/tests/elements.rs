//! Activations, conversions and transposes, element by element.
mod support;

use maco::{bf16, f16};
use support::{Number, Numbers, Setup, any_kind, bits, exact, kind, near, poisoned, upload};
use tasks::{elements, layouts};

on_every_device! {
    bf16_elements up to [150, 300], edges EDGES;
    f32_elements up to [150, 300], edges EDGES;
    bf16_transposed up to [300, 300], edges EDGES;
    f32_transposed up to [300, 300], edges EDGES;
    converted up to [150, 300], edges EDGES;
    bf16_quantised up to [40, 5000], edges LONG;
    f32_quantised up to [40, 5000], edges LONG;
}

/// The last four come through the ring: whole tiles, ragged ones, in pages of more rows than those of whole tiles, side by side.
const EDGES: [[u64; 2]; 13] =
    [[0, 3], [3, 0], [1, 1], [7, 9], [8, 8], [64, 128], [65, 136], [128, 257], [200, 264], [64, 1024], [83, 1040], [99, 136], [33, 2056]];

const LONG: [[u64; 2]; 11] = [[0, 3], [3, 0], [1, 1], [7, 9], [8, 8], [9, 1000], [3, 4096], [2, 4107], [1, 9000], [21, 4096], [5, 16384]];

macro_rules! elements {
    ($name:ident, $kernel:ident, $ty:ty) => {
        fn $name(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
            let both: Vec<$ty> = Numbers::new(seed).fill(m * 2 * n, any_kind(seed));
            let run = || {
                let plan = elements::$kernel::plan_with(&setup.device, elements::$kernel::Dims { M: m, N: n }, &setup.options).unwrap();
                let mut outputs = [(); 6].map(|()| poisoned::<$ty>(setup, &shape));
                let [product, one, two, three, four, five] = &mut outputs;
                plan.run(&upload(setup, &both, &[m, 2 * n]), product, one, two, three, four, five).unwrap();
                outputs
            };
            let outputs = run();
            let n = n as usize;
            let gate = |at: usize| both[at / n * 2 * n + at % n].to64();
            let up = |at: usize| both[at / n * 2 * n + n + at % n].to64();
            let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
            let [product, one, two, three, four, five] = &outputs;
            let what = |name: &str| format!("{name} of {shape:?}");
            // The documented errors: of a sigmoid, the part of it, and where it is too small for a normal number and may be 0, as much of the result.
            let scaled = |error: f64, result: f64, factor: f64| error * result.abs() + factor.abs() * 2f64.powi(-126);
            let error = |at: usize| 2f64.powi(-21) * (1.0 + gate(at).abs() / 4.0);
            let silu = |at: usize| gate(at) * sigmoid(gate(at));
            let both = |at: usize| silu(at) * up(at);
            near(product, both, 0.0, |at| scaled(error(at), both(at), gate(at) * up(at)), &what("silu_mul"));
            exact(one, |at| <$ty as Number>::from64(if gate(at) < 0.0 { 0.0 } else { gate(at) }), &what("relu"));
            near(two, |at| gate(at).tanh(), 2f64.powi(-19), |_| 0.0, &what("tanh"));
            near(three, |at| sigmoid(gate(at)), 0.0, |at| scaled(error(at), sigmoid(gate(at)), 1.0), &what("sigmoid"));
            near(four, silu, 0.0, |at| scaled(error(at), silu(at), gate(at)), &what("silu"));
            let gelu = |v: f64| v * sigmoid(2.0 * (2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v * v * v));
            let error = |v: f64| scaled(2f64.powi(-20) * (1.0 + v.abs().powi(3) / 16.0), gelu(v), v);
            near(five, |at| gelu(gate(at)), 0.0, |at| error(gate(at)), &what("gelu"));
            assert_eq!(outputs.each_ref().map(bits), run().each_ref().map(bits), "other bits in a second run of {shape:?}");
        }
    };
}
elements!(bf16_elements, elements_bf16, bf16);
elements!(f32_elements, elements_f32, f32);

macro_rules! transposed {
    ($name:ident, $kernel:ident, $ty:ty) => {
        fn $name(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
            let x: Vec<$ty> = Numbers::new(seed).fill(m * n, kind(seed));
            let plan = layouts::$kernel::plan_with(&setup.device, layouts::$kernel::Dims { M: m, N: n }, &setup.options).unwrap();
            let mut y = poisoned::<$ty>(setup, &[n, m]);
            plan.run(&upload(setup, &x, &shape), &mut y).unwrap();
            let (m, n) = (m as usize, n as usize);
            exact(&y, |at| x[at % m * n + at / m], &format!("transpose of {shape:?}"));
        }
    };
}
transposed!(bf16_transposed, transposed_bf16, bf16);
transposed!(f32_transposed, transposed_f32, f32);

fn converted(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
    let mut numbers = Numbers::new(seed);
    // Every exponent, ties between two f16 and two bf16, too large for either.
    let x: Vec<f32> = (0..m * n)
        .map(|at| match at % 4 {
            0 => f32::from_bits(numbers.next() as u32),
            1 => f32::from_bits((numbers.next() as u32) << 12),
            2 => f32::from_bits((numbers.next() as u32) << 15),
            _ => numbers.number(kind(seed)) as f32,
        })
        .collect();
    let plan = layouts::converted::plan_with(&setup.device, layouts::converted::Dims { M: m, N: n }, &setup.options).unwrap();
    let (mut brain, mut half) = (poisoned::<bf16>(setup, &shape), poisoned::<f16>(setup, &shape));
    let (mut back, mut other) = (poisoned::<f32>(setup, &shape), poisoned::<f32>(setup, &shape));
    let (mut across, mut over) = (poisoned::<f16>(setup, &shape), poisoned::<bf16>(setup, &shape));
    plan.run(&upload(setup, &x, &shape), &mut brain, &mut half, &mut back, &mut other, &mut across, &mut over).unwrap();
    exact(&brain, |at| bf16::from_f32(x[at]), "to_bf16");
    exact(&half, |at| f16::from_f32(x[at]), "to_f16");
    exact(&back, |at| bf16::from_f32(x[at]).to_f32(), "to_f32 of bf16");
    exact(&other, |at| f16::from_f32(x[at]).to_f32(), "to_f32 of f16");
    exact(&across, |at| f16::from_f32(bf16::from_f32(x[at]).to_f32()), "to_f16 of bf16");
    exact(&over, |at| bf16::from_f32(f16::from_f32(x[at]).to_f32()), "to_bf16 of f16");
}

macro_rules! quantised {
    ($name:ident, $kernel:ident, $ty:ty) => {
        fn $name(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
            let x: Vec<$ty> = Numbers::new(seed).fill(m * n, any_kind(seed));
            let run = || {
                let plan = layouts::$kernel::plan_with(&setup.device, layouts::$kernel::Dims { M: m, N: n }, &setup.options).unwrap();
                let (mut q, mut scale, mut y) =
                    (poisoned::<i8>(setup, &shape), poisoned::<f32>(setup, &[m, 1]), poisoned::<$ty>(setup, &shape));
                plan.run(&upload(setup, &x, &shape), &mut q, &mut scale, &mut y).unwrap();
                (q, scale, y)
            };
            let (q, scale, y) = run();
            let n = n as usize;
            let steps: Vec<f64> = (0..m as usize)
                .map(|r| {
                    x[r * n..(r + 1) * n].iter().map(|v| v.to64().abs()).fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a }) / 127.0
                })
                .collect();
            let finite = |at: usize| steps[at / n].is_finite();
            near(&scale, |r| steps[r], 0.0, |_| 0.0, &format!("scales of {shape:?}"));
            let (integers, scales) = (q.download().unwrap(), scale.download().unwrap());
            let product = |at: usize| f64::from(integers[at]) * f64::from(scales[at / n]);
            near(&y, |at| if finite(at) { product(at) } else { f64::NAN }, 2f64.powi(-24), |_| 0.0, &format!("dequantised {shape:?}"));
            // Within half a step, and where it is not close to a tie the very number.
            for (at, &q) in integers.iter().enumerate().filter(|&(at, _)| finite(at)) {
                let (step, scale) = (steps[at / n], f64::from(scales[at / n]));
                // Documented: the factor of such rows would be infinite.
                if step * 127.0 < 2f64.powi(-116) {
                    assert_eq!(q, 0, "element {at} of {shape:?}, in a row of the smallest numbers");
                    continue;
                }
                let (x, ratio) = (x[at].to64(), x[at].to64() / step);
                let tie = (ratio - ratio.floor() - 0.5).abs() < 2f64.powi(-15);
                assert!(tie || f64::from(q) == ratio.round(), "element {at} of {shape:?}: {q} for {ratio}");
                assert!((product(at) - x).abs() <= scale * (0.5 + 2f64.powi(-15)), "element {at} of {shape:?}: {q} · {scale} for {x}");
            }
            let again = run();
            let second = "other bits in a second run";
            assert_eq!((bits(&q), bits(&scale), bits(&y)), (bits(&again.0), bits(&again.1), bits(&again.2)), "{second} of {shape:?}");
        }
    };
}
quantised!(bf16_quantised, quantised_bf16, bf16);
quantised!(f32_quantised, quantised_f32, f32);

/// More numbers than inputs of the other tests have: small steps through every tie of a row of integers.
#[test]
fn ties_are_rounded_to_even() {
    let setup = Setup::plain(1);
    let mut x: Vec<f32> = (-253..=253).map(|v| v as f32 * 0.5).collect();
    x.push(127.0);
    let n = x.len() as u64;
    let plan = layouts::quantised_f32::plan_with(&setup.device, layouts::quantised_f32::Dims { M: 1, N: n }, &setup.options).unwrap();
    let (mut q, mut scale, mut y) = (poisoned::<i8>(&setup, &[1, n]), poisoned::<f32>(&setup, &[1, 1]), poisoned::<f32>(&setup, &[1, n]));
    plan.run(&upload(&setup, &x, &[1, n]), &mut q, &mut scale, &mut y).unwrap();
    exact(&q, |at| x[at].round_ties_even() as i8, "rows whose scale is 1");
}
