//! GEMVs with an RMSNorm prologue: the same bits as with a task of its own, and within its bounds.
//!
//! Takes ten seconds: each shape is compared with sums in f64 and with a task of its own, in several schedules.
#[path = "../../tasks/tests/support/mod.rs"]
mod support;

use maco::{Device, PlanOptions, Schedule, Tensor, bf16, f16};
use skinny::kernels::{half_norm, layer, norms};
use support::{Kind, Number, Numbers, Setup, bits, exact, kind, near, poisoned, random, upload};

/// A test on every device: on a CPU by both executors, with one worker and with several, on a GPU under static lists and tickets.
macro_rules! everywhere {
    ($($name:ident up to $most:expr, edges $edges:ident);* $(;)?) => {
        mod cpu {
            $(#[test]
            fn $name() {
                for edge in super::$edges {
                    for pipelined in [false, true] {
                        super::$name(&super::on(pipelined, 1), edge, 0);
                        super::$name(&super::on(pipelined, 3), edge, 1);
                    }
                }
                super::random($most, |shape, seed| super::$name(&super::on(true, 1 + seed as u32 % 3), shape, seed));
            })*
        }
        mod gpu {
            $(#[test]
            #[ignore = "gpu"]
            fn $name() {
                for schedule in [super::Schedule::Static, super::Schedule::Tickets] {
                    let mut setup = super::Setup::gpu();
                    setup.options = setup.options.schedule(schedule);
                    for (nth, edge) in super::$edges.into_iter().enumerate() {
                        super::support::rounds::seeds(nth).for_each(|seed| super::$name(&setup, edge, seed));
                    }
                    super::random($most, |shape, seed| super::$name(&setup, shape, seed));
                }
            })*
        }
    };
}
everywhere! {
    layers up to [17, 200, 40], edges LAYERS;
    two_norms_of_one up to [17, 150, 30], edges NORMS;
    half_rows up to [17, 300, 20], edges HALVES;
    another_epsilon up to [3, 40, 20], edges LAYERS;
}

fn on(pipelined: bool, workers: u32) -> Setup {
    let options = PlanOptions::new().pipelined(pipelined);
    Setup::new(Device::cpu_with(workers), options)
}

/// Whether data carry flags there.
fn carries(setup: &Setup) -> bool {
    setup.device.is_gpu() || setup.options == setup.options.clone().pipelined(true)
}

/// Whether GEMVs make norms of `m` rows of `n`: whole eights, for which there is room in any tile.
fn made(setup: &Setup, [m, n]: [u64; 2]) -> bool {
    let bytes = |rows: u64| rows * ((n.next_multiple_of(64) + if rows > 1 { 32 } else { 0 }) * 2 + (n / 8 + 1) * 4);
    assert!(bytes(m.min(16)) <= 32 * 1024, "{m} × {n} may have no room");
    carries(setup) && m > 0 && n > 0 && n.is_multiple_of(8)
}

/// With the norm made by GEMVs, and by a task.
fn plans<P>(setup: &Setup, plan: impl Fn(&PlanOptions) -> P) -> [P; 2] {
    [true, false].map(|on| plan(&setup.options.clone().prologues(on)))
}

/// Whole eights, rows that end anywhere; more blocks than all threads have at a time, in rows of more blocks than lanes; more rows than warps,
/// and than a tile; rows beside which there is no room for the norm's weights.
const LAYERS: [[u64; 3]; 12] = [
    [1, 8, 8],
    [1, 64, 24],
    [1, 2048, 8],
    [2, 264, 40],
    [3, 520, 9],
    [8, 72, 16],
    [9, 72, 16],
    [16, 640, 8],
    [16, 760, 8],
    [17, 40, 8],
    [5, 37, 11],
    [1, 1, 1],
];

struct Layer {
    tensors: [Tensor<bf16>; 6],
    results: [Tensor<bf16>; 2],
    plans: [layer::Plan; 2],
}

impl Layer {
    fn new(setup: &Setup, [m, d, h]: [u64; 3], seed: u64) -> Layer {
        let mut numbers = Numbers::new(seed);
        // So small that rows neither grow nor die.
        let mut weights = |rows: u64, cols: u64| {
            let scale = 1.0 / (cols as f64).sqrt();
            let data: Vec<bf16> = (0..rows * cols).map(|_| bf16::from64(numbers.number(Kind::Plain) * scale)).collect();
            upload(setup, &data, &[rows, cols])
        };
        let [output, gate, up, down] = [(d, d), (h, d), (h, d), (d, h)].map(|(rows, cols)| weights(rows, cols));
        let (x, norm) = (numbers.fill(m * d, kind(seed)), numbers.fill(d, Kind::Plain));
        let tensors = [upload::<bf16>(setup, &x, &[m, d]), output, upload(setup, &norm, &[d]), gate, up, down];
        let plans = plans(setup, |options| layer::plan_with(&setup.device, layer::Dims { M: m, D: d, H: h }, options).expect("a plan"));
        let expected: &[u32] = if made(setup, [m, d]) && h > 0 { &[2, 3] } else { &[] };
        assert_eq!(plans[0].graph().fused_into(1), expected, "{m} × {d} × {h}");
        assert!(plans[1].graph().fused_into(1).is_empty());
        Layer { tensors, results: [(); 2].map(|()| poisoned(setup, &[m, d])), plans }
    }

    fn run(&mut self, which: usize, epsilon: f32) -> &Tensor<bf16> {
        let [x, output, norm, gate, up, down] = &self.tensors;
        let y = &mut self.results[which];
        self.plans[which].run(x, output, norm, gate, up, down, epsilon, y).expect("a run");
        y
    }

    /// Fails unless both plans come to the same.
    #[track_caller]
    fn same(&mut self, epsilon: f32, what: &str) {
        let expected = self.run(1, epsilon).download().expect("download");
        exact(self.run(0, epsilon), |at| expected[at], what);
    }
}

/// Random numbers, also NaN and infinities: the same bits, launch after launch, whatever comes late.
fn layers(setup: &Setup, shape: [u64; 3], seed: u64) {
    let mut layer = Layer::new(setup, shape, seed);
    for launch in 0..if setup.device.is_gpu() { support::rounds::rounds(20) as u32 } else { 2 } {
        layer.plans.iter().for_each(|plan| plan.set_delays(launch * 7 + seed as u32 % 5));
        layer.same(1e-5, &format!("{shape:?}, launch {launch}"));
    }
}

/// A scalar of the launch.
fn another_epsilon(setup: &Setup, shape: [u64; 3], seed: u64) {
    let mut layer = Layer::new(setup, shape, 2 * (seed % 1000));
    let results = [1e-5, 3.0, 1e-5, 500.0].map(|epsilon| {
        layer.same(epsilon, &format!("{shape:?}, {epsilon}"));
        bits(&layer.results[0])
    });
    assert_eq!(results[0], results[2]);
    // As long as it is not lost in a rounding, of results that are not 0.
    let counts = shape[1] >= 64 && shape[2] > 0 && shape[0] > 0;
    assert!(!counts || results[0] != results[1] && results[1] != results[3], "{shape:?}");
}

/// `rows` rows, each with one 1: whose product picks elements. The element is the second of these.
fn picks<E: Number>(rows: u64, cols: u64, step: u64) -> (Vec<E>, impl Fn(usize) -> usize) {
    let at = move |row: usize| (row as u64 * step + 3) as usize % cols as usize;
    let data = (0..rows * cols).map(|n| E::from64(if at((n / cols) as usize) as u64 == n % cols { 1.0 } else { 0.0 }));
    (data.collect(), at)
}

/// The norm of each row of `n`.
fn rms(x: &[f64], weights: &[f64], epsilon: f64) -> Vec<f64> {
    let row = |row: &[f64]| {
        let factor = 1.0 / (row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64 + epsilon).sqrt();
        row.iter().zip(weights).map(|(v, w)| v * factor * w).collect::<Vec<f64>>()
    };
    x.chunks(weights.len()).flat_map(row).collect()
}

/// The documented relative error of a norm of `n` elements, on the CPU, where it is the larger one.
fn error(n: u64) -> f64 {
    (n as f64 / 8.0 + 8.0) * 2f64.powi(-24) / 2.0 + 2f64.powi(-21)
}

fn values<E: Number>(data: &[E]) -> Vec<f64> {
    data.iter().map(|v| v.to64()).collect()
}

/// M, N, K.
const NORMS: [[u64; 3]; 8] = [[1, 8, 8], [1, 64, 24], [1, 2048, 8], [2, 264, 40], [9, 520, 9], [16, 72, 16], [17, 40, 8], [3, 37, 11]];

/// What one GEMV has a copy of is not what the next one needs, be it of the same elements: of other weights, in the same place or beside it, by
/// another epsilon, or no norm at all.
fn two_norms_of_one(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
    if m * n * k == 0 {
        return;
    }
    // Weights that begin at 16 bytes, others that do not, and the same ones.
    for beyond in [n, n + 3, 0] {
        let p = n + beyond;
        let mut numbers = Numbers::new(seed);
        let (first, picked) = picks::<f16>(n, k, 1);
        let (w, taken) = picks::<f16>(k, n, 5);
        let (x, weights): (Vec<f16>, Vec<f16>) = (numbers.fill(m * k, Kind::Plain), numbers.fill(p, Kind::Plain));
        let dims = norms::Dims { M: m, N: n, K: k, P: p };
        let plans = plans(setup, |options| norms::plan_with(&setup.device, dims, options).expect("a plan"));
        let expected: [&[u32]; 2] = if made(setup, [m, n]) { [&[3, 6], &[4]] } else { [&[], &[]] };
        assert_eq!([1, 2].map(|norm| plans[0].graph().fused_into(norm)), expected, "{m} × {n} × {k}");
        let given = [(); 3].map(|()| upload::<f16>(setup, &w, &[k, n]));
        let (a, b, c) = (upload(setup, &x, &[m, k]), upload(setup, &first, &[n, k]), upload(setup, &weights, &[p]));
        let results = plans.map(|plan| {
            let mut y: [Tensor<f16>; 4] = [(); 4].map(|()| poisoned(setup, &[m, k]));
            let [sum, one, other, plain] = &mut y;
            for seed in 0..2 {
                plan.set_delays(seed);
                plan.run(&a, &b, &c, &given, &mut *sum, &mut *one, &mut *other, &mut *plain).expect("a run");
            }
            y
        });
        let [fused, apart] = &results;
        for (fused, apart) in fused.iter().zip(apart) {
            assert_eq!(bits(fused), bits(apart), "{m} × {n} × {k}, {p} weights");
        }
        let (x, weights) = (values(&x), values(&weights));
        let wide: Vec<f64> = (0..(m * n) as usize).map(|at| x[at / n as usize * k as usize + picked(at % n as usize)]).collect();
        let (n, k) = (n as usize, k as usize);
        let (one, other) = (rms(&wide, &weights[..n], 0.25), rms(&wide, &weights[weights.len() - n..], 1e-5));
        let pick = |of: &[f64], at: usize| of[at / k * n + taken(at % k)];
        let what = |name: &str| format!("{name} of {m} × {n} × {k}, {p} weights");
        near(&fused[1], |at| pick(&one, at), error(n as u64), |_| 0.0, &what("the first norm"));
        near(&fused[2], |at| pick(&other, at).max(0.0), error(n as u64), |_| 0.0, &what("the second norm"));
        near(&fused[3], |at| pick(&wide, at), 0.0, |_| 0.0, &what("no norm"));
        let one = fused[1].download().expect("download");
        near(&fused[0], |at| one[at].to64() + x[at], 0.0, |_| 0.0, &what("the sum"));
    }
}

/// M, N, K.
const HALVES: [[u64; 3]; 7] = [[1, 8, 8], [1, 4096, 5], [2, 264, 40], [8, 520, 9], [17, 48, 8], [3, 28, 11], [16, 136, 3]];

/// The norm of part of each row of what arrives with in-band flags; special numbers.
fn half_rows(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
    if m * n * k == 0 {
        return;
    }
    let mut numbers = Numbers::new(seed);
    let (w, taken) = picks::<bf16>(k, n, 5);
    let (first, picked) = picks::<bf16>(2 * n, k, 1);
    let (x, weights): (Vec<bf16>, Vec<bf16>) = (numbers.fill(m * k, Kind::Plain), numbers.fill(n, Kind::Plain));
    let dims = half_norm::Dims { M: m, N: n, K: k, P: 2 * n };
    let plans = plans(setup, |options| half_norm::plan_with(&setup.device, dims, options).expect("a plan"));
    assert_eq!(plans[0].graph().fused_into(1).is_empty(), !made(setup, [m, n]), "{m} × {n} × {k}");
    let (a, b, c, d) =
        (upload(setup, &x, &[m, k]), upload(setup, &first, &[2 * n, k]), upload(setup, &weights, &[n]), upload(setup, &w, &[k, n]));
    let [fused, apart] = plans.map(|plan| {
        let mut y = poisoned::<bf16>(setup, &[m, k]);
        plan.run(&a, &b, &c, &d, &mut y).expect("a run");
        y
    });
    assert_eq!(bits(&fused), bits(&apart), "{m} × {n} × {k}");
    let x = values(&x);
    let (n, k) = (n as usize, k as usize);
    let wide: Vec<f64> = (0..m as usize * n).map(|at| x[at / n * k + picked(n + at % n)]).collect();
    let expected = rms(&wide, &values(&weights), 1e-6);
    near(&fused, |at| expected[at / k * n + taken(at % k)], error(n as u64), |_| 0.0, &format!("{m} × {n} × {k}"));
}
