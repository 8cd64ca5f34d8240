//! GEMMs against f64: every form, batches; under every schedule, groups of rows with experts that data names.
//!
//! Takes ten seconds: every form, schedule and random shape is compared with sums in f64.
mod gate;
#[path = "../../tasks/tests/support/mod.rs"]
mod support;
mod turned;

use gate::gated;
use gemms::kernels::{self, batched, batched_bf16, forms, forms_f16, grouped, moe, routed, sorted};
use maco::{PlanOptions, Schedule, Tensor, bf16, f16};
use support::{Kind, Number, Numbers, Setup, bits, kind, near, poisoned, upload};
use turned::{turned, turned_planes};

on_every_device! {
    every_form up to [150, 300, 200], edges FORMS;
    every_form_of_f16 up to [150, 300, 200], edges FORMS;
    gates up to [150, 200, 200], edges FORMS;
    batches up to [4, 140, 260, 130], edges BATCHES;
    batches_of_bf16 up to [4, 140, 260, 130], edges BATCHES;
    groups up to [5, 130, 260, 130, 4], edges GROUPS;
    routes up to [5, 130, 260, 130, 4], edges GROUPS;
    sorts up to [400, 9, 600, 40], edges SORTS;
    layers up to [150, 70, 90, 9, 4], edges LAYERS;
}

/// M, N, K.
const FORMS: [[u64; 3]; 6] = [[0, 8, 8], [8, 0, 8], [8, 8, 0], [1, 1, 1], [128, 256, 64], [129, 257, 100]];
/// B, M, N, K.
const BATCHES: [[u64; 4]; 5] = [[0, 8, 8, 8], [1, 1, 1, 1], [3, 64, 128, 64], [2, 130, 70, 65], [3, 5, 8, 0]];
/// G, T, N, K, X.
const GROUPS: [[u64; 5]; 7] =
    [[0, 8, 8, 8, 2], [2, 0, 8, 8, 2], [3, 8, 8, 8, 0], [1, 1, 1, 1, 1], [4, 128, 256, 64, 3], [3, 130, 70, 65, 2], [2, 5, 8, 0, 2]];

/// M, K, X, T. More experts than are counted at a time, more ids of a token than there are threads, and more of all than find room.
const SORTS: [[u64; 4]; 11] = [
    [0, 2, 3, 4],
    [5, 0, 3, 4],
    [5, 2, 0, 4],
    [1, 1, 1, 1],
    [9, 3, 4, 2],
    [1000, 8, 64, 128],
    [300, 2, 256, 16],
    [300, 33, 257, 16],
    [70, 3, 1000, 5],
    [3, 300, 5, 4],
    [4500, 8, 70, 64],
];
/// M, H, I, X, K.
const LAYERS: [[u64; 5]; 4] = [[1, 8, 8, 1, 1], [100, 64, 128, 8, 2], [33, 72, 40, 5, 3], [300, 16, 24, 16, 4]];
/// Rows of a group.
const GROUP: u64 = 128;

/// y = a · b, both given by element: the error of a sum in `f32`, and one rounding.
fn check<E: Number>(y: &Tensor<E>, cols: u64, k: u64, a: impl Fn(usize, usize) -> f64, b: impl Fn(usize, usize) -> f64, what: &str) {
    let (cols, k) = (cols as usize, k as usize);
    let terms = |at: usize| {
        let (a, b) = (&a, &b);
        (0..k).map(move |i| a(at / cols, i) * b(i, at % cols))
    };
    let error = |at: usize| (k as f64 + 16.0) * 2f64.powi(-24) * terms(at).map(f64::abs).sum::<f64>();
    near(y, |at| terms(at).sum(), 0.0, error, what);
}

fn every_form(setup: &Setup, sizes: [u64; 3], seed: u64) {
    let [m, n, k] = sizes;
    let plan = forms::plan_with(&setup.device, forms::Dims { M: m, K: k, N: n }, &setup.options).expect("a plan");
    assert!((0..4).all(|call| plan.graph().workload(call).flops == 2 * m * n * k));
    check_forms::<bf16>(setup, sizes, seed, |[x, xt, w, wt], [nt, nn, tn, tt]| {
        plan.run(x, xt, w, wt, nt, nn, tn, tt).expect("a run");
    });
}

fn every_form_of_f16(setup: &Setup, sizes: [u64; 3], seed: u64) {
    let [m, n, k] = sizes;
    let plan = forms_f16::plan_with(&setup.device, forms_f16::Dims { M: m, K: k, N: n }, &setup.options).expect("a plan");
    assert!((0..4).all(|call| plan.graph().workload(call).flops == 2 * m * n * k));
    check_forms::<f16>(setup, sizes, seed, |[x, xt, w, wt], [nt, nn, tn, tt]| {
        plan.run(x, xt, w, wt, nt, nn, tn, tt).expect("a run");
    });
}

/// `run` gets x, xᵀ, w and wᵀ, and runs the GEMM in four ways.
fn check_forms<E: Number>(setup: &Setup, [m, n, k]: [u64; 3], seed: u64, run: impl Fn([&Tensor<E>; 4], &mut [Tensor<E>; 4])) {
    let mut numbers = Numbers::new(seed);
    let (x, w): (Vec<E>, Vec<E>) = (numbers.fill(m * k, kind(seed)), numbers.fill(n * k, kind(seed)));
    let (a, b) = (upload(setup, &x, &[m, k]), upload(setup, &w, &[n, k]));
    let (at, bt) = (upload(setup, &turned(&x, m, k), &[k, m]), upload(setup, &turned(&w, n, k), &[k, n]));
    let [first, second] = [(); 2].map(|()| {
        let mut y: [Tensor<E>; 4] = std::array::from_fn(|_| poisoned(setup, &[m, n]));
        run([&a, &at, &b, &bt], &mut y);
        y
    });
    for ((y, again), name) in first.iter().zip(&second).zip(["linear", "matmul", "matmul_tn", "matmul_tt"]) {
        let (x, w) = (|row: usize, i: usize| x[row * k as usize + i].to64(), |i: usize, col: usize| w[col * k as usize + i].to64());
        check(y, n, k, x, w, &format!("{name} {m} × {n} × {k}"));
        assert_eq!(bits(y), bits(again), "other bits at the second run of {name} {m} × {n} × {k}");
    }
}

fn gates(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let mut fill = |count: u64| -> Vec<f16> { (0..count).map(|_| f16::from_f64(numbers.number(kind(seed)) * 0.25)).collect() };
    let (x, gate, up) = (fill(m * k), fill(n * k), fill(n * k));
    let plan = kernels::gated::plan_with(&setup.device, kernels::gated::Dims { M: m, K: k, N: n }, &setup.options).expect("a plan");
    let (a, b, c) = (upload(setup, &x, &[m, k]), upload(setup, &gate, &[n, k]), upload(setup, &up, &[n, k]));
    assert_eq!(plan.graph().workload(0).flops, 4 * m * n * k);
    let [first, second] = [(); 2].map(|()| {
        let mut y = poisoned::<f16>(setup, &[m, n]);
        plan.run(&a, &b, &c, &mut y).expect("a run");
        y
    });
    let (n, k) = (n as usize, k as usize);
    // The sum, and what it may be off.
    let sums = |at: usize, w: &[f16]| {
        let terms = x[at / n * k..][..k].iter().zip(&w[at % n * k..][..k]).map(|(x, w)| x.to64() * w.to64());
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
        (sum, (k as f64 + 16.0) * 2f64.powi(-24) * size)
    };
    let found = first.download().expect("download");
    let expected = |at: usize| gated(sums(at, &gate), sums(at, &up), found[at].to64());
    near(&first, |at| expected(at).0, 0.0, |at| expected(at).1, &format!("{m} × {n} × {k}"));
    assert_eq!(bits(&first), bits(&second), "other bits at the second run");
}

fn batches(setup: &Setup, sizes: [u64; 4], seed: u64) {
    let [count, m, n, k] = sizes;
    let plan = batched::plan_with(&setup.device, batched::Dims { B: count, M: m, K: k, N: n }, &setup.options).expect("a plan");
    assert!((0..4).all(|call| plan.graph().workload(call).flops == 2 * count * m * n * k));
    check_batches::<f16>(setup, sizes, seed, |[x, xt, w, wt], [nt, nn, tn, tt]| {
        plan.run(x, xt, w, wt, nt, nn, tn, tt).expect("a run");
    });
}

fn batches_of_bf16(setup: &Setup, sizes: [u64; 4], seed: u64) {
    let [count, m, n, k] = sizes;
    let plan = batched_bf16::plan_with(&setup.device, batched_bf16::Dims { B: count, M: m, K: k, N: n }, &setup.options).expect("a plan");
    assert!((0..4).all(|call| plan.graph().workload(call).flops == 2 * count * m * n * k));
    check_batches::<bf16>(setup, sizes, seed, |[x, xt, w, wt], [nt, nn, tn, tt]| {
        plan.run(x, xt, w, wt, nt, nn, tn, tt).expect("a run");
    });
}

/// `run` gets x, xᵀ, w and wᵀ of all batches, and runs their GEMMs in four ways.
fn check_batches<E: Number>(setup: &Setup, [count, m, n, k]: [u64; 4], seed: u64, run: impl Fn([&Tensor<E>; 4], &mut [Tensor<E>; 4])) {
    let mut numbers = Numbers::new(seed);
    let (x, w): (Vec<E>, Vec<E>) = (numbers.fill(count * m * k, kind(seed)), numbers.fill(count * n * k, kind(seed)));
    let (a, at) = (upload(setup, &x, &[count, m, k]), upload(setup, &turned_planes(&x, m, k), &[count, k, m]));
    let (b, bt) = (upload(setup, &w, &[count, n, k]), upload(setup, &turned_planes(&w, n, k), &[count, k, n]));
    let [first, second] = [(); 2].map(|()| {
        let mut results: [Tensor<E>; 4] = std::array::from_fn(|_| poisoned(setup, &[count, m, n]));
        run([&a, &at, &b, &bt], &mut results);
        results
    });
    let (m, n, k) = (m as usize, n as usize, k as usize);
    for ((result, again), name) in
        first.iter().zip(&second).zip(["batched_linear", "batched_matmul", "batched_matmul_tn", "batched_matmul_tt"])
    {
        // Rows of all batches: each has its own columns.
        let terms = |at: usize| {
            let (row, col) = (at / n, at % n);
            let (x, w) = (&x[row * k..][..k], &w[(row / m * n + col) * k..][..k]);
            x.iter().zip(w).map(|(x, w)| x.to64() * w.to64()).collect::<Vec<f64>>()
        };
        let error = |at: usize| (k as f64 + 16.0) * 2f64.powi(-24) * terms(at).into_iter().map(f64::abs).sum::<f64>();
        near(result, |at| terms(at).into_iter().sum(), 0.0, error, &format!("{name} {count} × {m} × {n} × {k}"));
        assert_eq!(bits(result), bits(again), "other bits at the second run of {name} {count} × {m} × {n} × {k}");
    }
}

/// How tasks get to workers beside lists: drawn by tickets, pushed by a scheduler CTA, pushed by a worker's spare warp.
const OTHERS: [Schedule; 3] = [Schedule::Tickets, Schedule::Schedulers(1), Schedule::SpareWarps(1)];

/// Lists, and for three seeds in four [`OTHERS`], one of them where everything is slow. All have as many workers, so that they have the same
/// tiles: on a GPU those that a scheduler CTA leaves.
fn schedules(setup: &Setup, seed: u64) -> Vec<PlanOptions> {
    let workers = setup.device.workers() - u32::from(setup.device.is_gpu());
    let others = match (seed % 4).checked_sub(1) {
        None => &[],
        Some(nth) if support::rounds::short() => &OTHERS[nth as usize..][..1],
        Some(_) => &OTHERS[..],
    };
    [Schedule::Static].iter().chain(others).map(|&schedule| setup.options.clone().schedule(schedule).workers(workers)).collect()
}

/// The first of what `run` gives with each of [`schedules`]: twice, with the bits of all results, which are always the same.
#[track_caller]
fn agreed<T>(setup: &Setup, seed: u64, run: impl Fn(&PlanOptions) -> [(T, Vec<u32>); 2]) -> T {
    let mut agreed: Option<(T, Vec<u32>)> = None;
    for options in schedules(setup, seed) {
        for (nth, (results, bits)) in run(&options).into_iter().enumerate() {
            let (_, expected) = agreed.get_or_insert_with(|| (results, bits.clone()));
            assert!(bits == *expected, "other bits at run {nth} with {options:?}");
        }
    }
    agreed.expect("a schedule").0
}

/// Elements of `bf16` of a step.
const STEP: usize = 64;

fn groups(setup: &Setup, [g, t, n, k, experts]: [u64; 5], seed: u64) {
    let mut numbers = Numbers::new(seed);
    // Also numbers of no expert: the next one, and the largest.
    let expert: Vec<u32> = (0..g).map(|_| [numbers.below(experts + 1) as u32, u32::MAX][usize::from(numbers.below(8) == 0)]).collect();
    // Rows of no expert become zeros if they are finite.
    let kinds = expert.iter().map(|&expert| if u64::from(expert) < experts { kind(seed) } else { Kind::Plain });
    let mut x: Vec<bf16> = kinds.flat_map(|kind| numbers.fill::<bf16>(t * k, kind)).collect();
    // Of these only the first step is looked at.
    for (group, x) in x.chunks_mut((t * k).max(1) as usize).enumerate().filter(|&(group, _)| u64::from(expert[group]) >= experts) {
        for row in x.chunks_mut(k as usize) {
            row.iter_mut().skip(STEP).for_each(|v| *v = [bf16::NAN, bf16::INFINITY][group % 2]);
        }
    }
    let w: Vec<bf16> = numbers.fill(experts * n * k, kind(seed));
    let dims = grouped::Dims { G: g, T: t, K: k, X: experts, N: n };
    let (e, a, b) = (upload(setup, &expert, &[g]), upload(setup, &x, &[g, t, k]), upload(setup, &w, &[experts, n, k]));
    let y = agreed(setup, seed, |options| {
        let plan = grouped::plan_with(&setup.device, dims, options).expect("a plan");
        assert_eq!(plan.graph().workload(0).flops, 2 * g * t * n * k);
        [(); 2].map(|()| {
            let mut y = poisoned::<bf16>(setup, &[g, t, n]);
            plan.run(&e, &a, &b, &mut y).expect("a run");
            let bits = bits(&y);
            (y, bits)
        })
    });
    let weight = |expert: u32, col: usize, i: usize| w[(expert as usize * n as usize + col) * k as usize + i].to64();
    let terms = |at: usize| {
        let (row, col) = (at / n as usize, at % n as usize);
        let expert = expert[row / t as usize];
        let count = if u64::from(expert) < experts { k as usize } else { 0 };
        (0..count).map(|i| x[row * k as usize + i].to64() * weight(expert, col, i)).collect::<Vec<f64>>()
    };
    let error = |at: usize| (k as f64 + 16.0) * 2f64.powi(-24) * terms(at).into_iter().map(f64::abs).sum::<f64>();
    near(&y, |at| terms(at).into_iter().sum(), 0.0, error, &format!("{g} groups of {t} × {n} × {k}, {experts} experts"));
}

/// As if each group had been computed alone. In between the groups have other experts, which the plan does not know of.
fn routes(setup: &Setup, [g, t, h, k, experts]: [u64; 5], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let (x, scores): (Vec<bf16>, Vec<f32>) = (numbers.fill(g * t * k, Kind::Plain), numbers.fill(g * experts, Kind::Plain));
    let (up, down): (Vec<bf16>, Vec<bf16>) = (numbers.fill(experts * h * k, Kind::Plain), numbers.fill(experts * k * h, Kind::Plain));
    let dims = routed::Dims { G: g, X: experts, T: t, K: k, H: h };
    let others: Vec<f32> = scores.iter().map(|score| -score).collect();
    let [s, others] = [&scores, &others].map(|scores| upload(setup, scores, &[g, experts]));
    let (a, b, c) = (upload(setup, &x, &[g, t, k]), upload(setup, &up, &[experts, h, k]), upload(setup, &down, &[experts, k, h]));
    let (expert, y) = agreed(setup, seed, |options| {
        let plan = routed::plan_with(&setup.device, dims, options).expect("a plan");
        let [first, _, third] = [&s, &others, &s].map(|scores| {
            let (mut expert, mut y) = (poisoned::<u32>(setup, &[g]), poisoned::<bf16>(setup, &[g, t, k]));
            plan.run(scores, &a, &b, &c, &mut expert, &mut y).expect("a run");
            let bits = [bits(&expert), bits(&y)].concat();
            ((expert, y), bits)
        });
        [first, third]
    });
    let (t, h, k) = (t as usize, h as usize, k as usize);
    let best = |group: usize| {
        let scores = &scores[group * experts as usize..][..experts as usize];
        (0..scores.len()).fold(0, |best, at| if scores[at] > scores[best] { at } else { best })
    };
    let expert = expert.download().expect("download");
    assert_eq!(expert, (0..g as usize).map(|group| best(group) as u32).collect::<Vec<u32>>());
    if experts == 0 {
        return near(&y, |_| 0.0, 0.0, |_| 0.0, "no experts");
    }
    // silu(x upᵀ), rounded to bf16 as it is stored; then its product with down.
    let rows = g as usize * t;
    let open: Vec<f64> = (0..rows * h)
        .map(|at| {
            let (row, col) = (at / h, at % h);
            let up = &up[(best(row / t) * h + col) * k..][..k];
            let sum: f64 = x[row * k..][..k].iter().zip(up).map(|(x, w)| x.to64() * w.to64()).sum();
            sum / (1.0 + (-sum).exp())
        })
        .collect();
    let terms = |at: usize| {
        let (row, col) = (at / k, at % k);
        let down = &down[(best(row / t) * k + col) * h..][..h];
        open[row * h..][..h].iter().zip(down).map(|(x, w)| x * w.to64()).collect::<Vec<f64>>()
    };
    let error = |at: usize| (bf16::UNIT * 1.1 + 2f64.powi(-18)) * terms(at).into_iter().map(f64::abs).sum::<f64>() + 1e-4;
    near(&y, |at| terms(at).into_iter().sum(), 0.0, error, &format!("{g} groups of {t}, H {h}, K {k}, {experts} experts"));
}

/// Every token in the groups of its experts, in order; what is left over is nobody's.
fn sorts(setup: &Setup, [m, k, experts, t]: [u64; 4], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let t = t.max(1);
    // Some ids are of no expert, and sometimes there is too little room.
    let ids: Vec<u32> = (0..m * k).map(|_| numbers.below(experts + u64::from(seed.is_multiple_of(3))) as u32).collect();
    let enough = m * k / t + experts;
    let g = if seed % 4 == 1 { enough / 2 } else { enough };
    let plan = sorted::plan_with(&setup.device, sorted::Dims { M: m, K: k, X: experts, G: g, R: g * t }, &setup.options).expect("a plan");
    let input = upload(setup, &ids, &[m, k]);
    let (mut counts, mut expert, mut rows, mut at) = (
        poisoned::<u32>(setup, &[experts]),
        poisoned::<u32>(setup, &[g]),
        poisoned::<u32>(setup, &[g * t]),
        poisoned::<u32>(setup, &[m, k]),
    );
    plan.run(&input, &mut counts, &mut expert, &mut rows, &mut at).expect("a run");
    let (mut of, mut tokens, mut places) = (Vec::new(), Vec::new(), vec![u32::MAX; ids.len()]);
    let mut named = Vec::new();
    for x in 0..experts as u32 {
        let own: Vec<usize> = (0..ids.len()).filter(|&n| ids[n] == x).collect();
        named.push(own.len() as u32);
        for group in own.chunks(t as usize) {
            if (of.len() as u64) < g {
                group.iter().enumerate().for_each(|(row, &n)| places[n] = (of.len() * t as usize + row) as u32);
                tokens.extend(group.iter().map(|&n| (n as u64 / k) as u32).chain(std::iter::repeat(u32::MAX)).take(t as usize));
                of.push(x);
            }
        }
    }
    of.resize(g as usize, u32::MAX);
    tokens.resize((g * t) as usize, u32::MAX);
    let what = format!("{m} tokens of {k} of {experts} experts in {g} groups of {t}");
    assert_eq!(counts.download().expect("download"), named, "{what}: counts");
    assert_eq!(expert.download().expect("download"), of, "{what}: experts");
    assert_eq!(rows.download().expect("download"), tokens, "{what}: tokens");
    assert_eq!(at.download().expect("download"), places, "{what}: places");
}

/// A whole layer beside one that goes token by token in `f64`, with the experts that the device chose. In between it gets other tokens.
fn layers(setup: &Setup, [m, h, i, experts, k]: [u64; 5], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let (experts, k) = (experts.max(1), k.min(experts.max(1)));
    let g = m * k / GROUP + experts;
    let mut fill =
        |count: u64, scale: f64| -> Vec<bf16> { (0..count).map(|_| bf16::from_f64(numbers.number(Kind::Plain) * scale)).collect() };
    let (x, router) = (fill(m * h, 0.25), fill(experts * h, 0.25));
    let (gate, up, down) = (fill(experts * i * h, 0.25), fill(experts * i * h, 0.25), fill(experts * h * i, 0.25));
    let dims = moe::Dims { M: m, H: h, X: experts, I: i, K: k, G: g, R: g * GROUP };
    let inputs =
        [(&x, [m, h].as_slice()), (&router, &[experts, h]), (&gate, &[experts, i, h]), (&up, &[experts, i, h]), (&down, &[experts, h, i])]
            .map(|(data, shape)| upload(setup, data, shape));
    let [a, b, c, d, e] = &inputs;
    let others: Vec<bf16> = x.iter().map(|value| -value).collect();
    let others = upload(setup, &others, &[m, h]);
    let (weights, ids, y) = agreed(setup, seed, |options| {
        let plan = moe::plan_with(&setup.device, dims, options).expect("a plan");
        let [first, _, third] = [a, &others, a].map(|x| {
            let (mut weights, mut ids) = (poisoned::<f32>(setup, &[m, k]), poisoned::<u32>(setup, &[m, k]));
            let (mut expert, mut rows) = (poisoned::<u32>(setup, &[g]), poisoned::<u32>(setup, &[g * GROUP]));
            let (mut counts, mut y) = (poisoned::<u32>(setup, &[experts]), poisoned::<bf16>(setup, &[m, h]));
            plan.run(x, b, c, d, e, &mut weights, &mut ids, &mut expert, &mut rows, &mut counts, &mut y).expect("a run");
            let bits = [bits(&weights), bits(&ids), bits(&expert), bits(&rows), bits(&counts), bits(&y)].concat();
            ((weights, ids, y), bits)
        });
        [first, third]
    });
    let (weights, ids) = (weights.download().expect("download"), ids.download().expect("download"));
    let (h, i, k) = (h as usize, i as usize, k as usize);
    let dot = |a: &[f64], w: &[bf16]| a.iter().zip(w).map(|(a, w)| a * w.to64()).sum::<f64>();
    // The sum, and that of what it is made of without signs.
    let mut expected = vec![(0.0, 0.0); m as usize * h];
    for token in 0..m as usize {
        let x: Vec<f64> = x[token * h..][..h].iter().map(|v| v.to64()).collect();
        for n in token * k..token * k + k {
            let (expert, weight) = (ids[n] as usize, f64::from(weights[n]));
            let inner: Vec<f64> = (0..i)
                .map(|row| {
                    let [open, raised] = [&gate, &up].map(|w| dot(&x, &w[(expert * i + row) * h..][..h]));
                    open / (1.0 + (-open).exp()) * raised
                })
                .collect();
            let absolute: Vec<f64> = inner.iter().map(|v| v.abs()).collect();
            for col in 0..h {
                let w = &down[(expert * h + col) * i..][..i];
                let sizes: Vec<bf16> = w.iter().map(|w| bf16::from_f64(w.to64().abs())).collect();
                let to = &mut expected[token * h + col];
                *to = (to.0 + weight * dot(&inner, w), to.1 + weight * dot(&absolute, &sizes));
            }
        }
    }
    // Four roundings to bf16 on the way.
    let error = |at: usize| expected[at].1 * 4.5 * bf16::UNIT + 1e-4;
    near(&y, |at| expected[at].0, 0.0, error, &format!("{m} tokens, H {h}, I {i}, {k} of {experts} experts"));
}
