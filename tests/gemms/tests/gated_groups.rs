//! Gated GEMMs of groups of rows with experts that data names, of every element, against f64.
mod gate;
#[path = "../../tasks/tests/support/mod.rs"]
mod support;

use gate::gated;
use gemms::kernels::{grouped_gated_bf16, grouped_gated_f16, grouped_gated_f32};
use maco::{Tensor, bf16, f16};
use support::{Kind, Number, Numbers, Setup, bits, kind, near, poisoned, upload};

on_every_device! {
    of_bf16 up to [5, 130, 200, 130, 4], edges GROUPS;
    of_f16 up to [5, 130, 200, 130, 4], edges GROUPS;
    of_f32 up to [5, 130, 200, 130, 4], edges GROUPS;
}

/// G, T, N, K, X.
const GROUPS: [[u64; 5]; 7] =
    [[0, 8, 8, 8, 2], [2, 0, 8, 8, 2], [3, 8, 8, 8, 0], [1, 1, 1, 1, 1], [4, 128, 256, 64, 3], [3, 130, 70, 65, 2], [2, 5, 8, 0, 2]];

/// Of a product of two numbers that are rounded to tf32 each, relative.
const ROUNDED: f64 = 1.001 / 1024.0;

macro_rules! of {
    ($($name:ident: $kernel:ident of $E:ty, off by $unit:expr;)*) => {$(
        fn $name(setup: &Setup, sizes: [u64; 5], seed: u64) {
            let [g, t, n, k, experts] = sizes;
            let dims = $kernel::Dims { G: g, T: t, K: k, X: experts, N: n };
            let plan = $kernel::plan_with(&setup.device, dims, &setup.options).expect("a plan");
            assert_eq!(plan.graph().workload(0).flops, 4 * g * t * n * k);
            check::<$E>(setup, sizes, seed, $unit, |expert, [x, gate, up], y| {
                plan.run(expert, x, gate, up, y).expect("a run");
            });
        }
    )*};
}
of! {
    of_bf16: grouped_gated_bf16 of bf16, off by 0.0;
    of_f16: grouped_gated_f16 of f16, off by 0.0;
    of_f32: grouped_gated_f32 of f32, off by ROUNDED;
}

/// Runs twice; `unit` is what a product of two numbers may be off, relative.
fn check<E: Number>(
    setup: &Setup,
    [g, t, n, k, experts]: [u64; 5],
    seed: u64,
    unit: f64,
    run: impl Fn(&Tensor<u32>, [&Tensor<E>; 3], &mut Tensor<E>),
) {
    let mut numbers = Numbers::new(seed);
    // Also numbers of no expert: the next one, and the largest.
    let expert: Vec<u32> = (0..g).map(|_| [numbers.below(experts + 1) as u32, u32::MAX][usize::from(numbers.below(8) == 0)]).collect();
    let mut fill = |count: u64, kind: Kind| -> Vec<E> { (0..count).map(|_| E::from64(numbers.number(kind) * 0.25)).collect() };
    // Rows of no expert become zeros if they are finite.
    let kinds = expert.iter().map(|&expert| if u64::from(expert) < experts { kind(seed) } else { Kind::Plain });
    let x: Vec<E> = kinds.flat_map(|kind| fill(t * k, kind)).collect();
    let (gate, up) = (fill(experts * n * k, kind(seed)), fill(experts * n * k, kind(seed)));
    let (names, a) = (upload(setup, &expert, &[g]), upload(setup, &x, &[g, t, k]));
    let [b, c] = [&gate, &up].map(|weights| upload(setup, weights, &[experts, n, k]));
    let [first, second] = [(); 2].map(|()| {
        let mut y = poisoned::<E>(setup, &[g, t, n]);
        run(&names, [&a, &b, &c], &mut y);
        y
    });
    let (t, n, step) = (t as usize, n as usize, k as usize);
    // The sum, and what it may be off.
    let sums = |at: usize, weights: &[E]| {
        let (row, col) = (at / n, at % n);
        let expert = expert[row / t];
        if u64::from(expert) >= experts {
            return (0.0, 0.0);
        }
        let terms = x[row * step..][..step].iter().zip(&weights[(expert as usize * n + col) * step..][..step]);
        let (sum, size) = terms.map(|(x, w)| x.to64() * w.to64()).fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
        (sum, (unit + (k as f64 + 16.0) * 2f64.powi(-24)) * size)
    };
    let found = first.download().expect("download");
    let expected = |at: usize| gated(sums(at, &gate), sums(at, &up), found[at].to64());
    near(&first, |at| expected(at).0, 0.0, |at| expected(at).1, &format!("{g} groups of {t} × {n} × {k}, {experts} experts"));
    assert_eq!(bits(&first), bits(&second), "other bits at the second run");
}
