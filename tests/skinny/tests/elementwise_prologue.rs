//! GEMVs with an elementwise prologue: the same bits as with tasks of their own, and what these give.
#[path = "../../tasks/tests/support/mod.rs"]
mod support;

use maco::{Device, PlanOptions, Schedule, Tensor, bf16, f16};
use skinny::kernels::{beside_warps, half_map, kept, maps};
use support::{Kind, Number, Numbers, Setup, bits, kind, near, poisoned, random, upload};

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
    three_maps_of_one up to [17, 150, 30], edges MAPS;
    half_rows up to [17, 300, 20], edges HALVES;
    what_has_tasks up to [4, 24, 1], edges KEPT;
    beside_tasks_of_one_warp up to [4, 24, 9], edges KEPT;
}

fn on(pipelined: bool, workers: u32) -> Setup {
    let options = PlanOptions::new().pipelined(pipelined);
    Setup::new(Device::cpu_with(workers), options)
}

/// Whether data carry flags there.
fn carries(setup: &Setup) -> bool {
    setup.device.is_gpu() || setup.options == setup.options.clone().pipelined(true)
}

/// Whether GEMVs map `m` rows of `n`: whole eights, for which there is room in any tile.
fn made(setup: &Setup, [m, n]: [u64; 2]) -> bool {
    let bytes = m.min(16) * (n.next_multiple_of(64) + 32) * 2 + 256 + m.min(16) * (n / 8 + 1) * 4;
    assert!(bytes <= 32 * 1024, "{m} × {n} may have no room");
    carries(setup) && m > 0 && n > 0 && n.is_multiple_of(8)
}

/// With maps made by GEMVs, and by tasks.
fn plans<P>(setup: &Setup, plan: impl Fn(&PlanOptions) -> P) -> [P; 2] {
    [true, false].map(|on| plan(&setup.options.clone().prologues(on)))
}

/// `rows` rows, each with one 1: whose product picks elements. The element is the second of these.
fn picks<E: Number>(rows: u64, cols: u64, step: u64) -> (Vec<E>, impl Fn(usize) -> usize) {
    let at = move |row: usize| (row as u64 * step + 3) as usize % cols as usize;
    let data = (0..rows * cols).map(|n| E::from64(if at((n / cols) as usize) as u64 == n % cols { 1.0 } else { 0.0 }));
    (data.collect(), at)
}

fn values<E: Number>(data: &[E]) -> Vec<f64> {
    data.iter().map(|v| v.to64()).collect()
}

/// M, N, K: whole eights, rows that end anywhere; more blocks than all threads have at a time; more rows than a tile; no eights.
const MAPS: [[u64; 3]; 8] = [[1, 8, 8], [1, 64, 24], [1, 4096, 8], [2, 264, 40], [9, 520, 9], [16, 72, 16], [17, 40, 8], [3, 37, 11]];

/// The bits of every element; of NaN one pattern, since on a CPU Rust does not say which of them an operation makes.
fn numbers_of(tensor: &Tensor<f16>) -> Vec<u32> {
    let one = |bits: u32| if bits & 0x7fff > 0x7c00 { 0x7e00 } else { bits };
    bits(tensor).into_iter().map(one).collect()
}

/// What one GEMV has a copy of is not what the next one needs, be it of the same elements: of another map, by another scalar, or no map at all.
/// Random numbers, also NaN and infinities.
fn three_maps_of_one(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
    if m * n * k == 0 {
        return;
    }
    let mut numbers = Numbers::new(seed);
    let (first, picked) = picks::<f16>(n, k, 1);
    let (w, taken) = picks::<f16>(k, n, 5);
    let plain: Vec<f16> = numbers.fill(m * k, Kind::Plain);
    let wild: Vec<f16> = numbers.fill(m * k, kind(seed));
    let plans = plans(setup, |options| maps::plan_with(&setup.device, maps::Dims { M: m, N: n, K: k }, options).expect("a plan"));
    let expected: [&[u32]; 3] = if made(setup, [m, n]) { [&[4, 8], &[5], &[7]] } else { [&[], &[], &[]] };
    assert_eq!([1, 2, 3].map(|map| plans[0].graph().fused_into(map)), expected, "{m} × {n} × {k}");
    assert!([1, 2, 3].iter().all(|&map| plans[1].graph().fused_into(map).is_empty()));
    let text = plans[0].graph().to_string();
    assert_eq!(text.contains("fused into #4, #8") && text.contains("prologue #2"), !expected[0].is_empty(), "{text}");
    let given = [(); 3].map(|()| upload::<f16>(setup, &w, &[k, n]));
    let b = upload(setup, &first, &[n, k]);
    for (data, what) in [(&wild, "wild"), (&plain, "plain")] {
        let a = upload(setup, data, &[m, k]);
        let mut results = [const { Vec::new() }; 2];
        for (plan, results) in plans.iter().zip(&mut results) {
            for (launch, by) in [0.5, -3.0, 0.5].into_iter().enumerate() {
                let mut y: [Tensor<f16>; 5] = [(); 5].map(|()| poisoned(setup, &[m, k]));
                let [sum, one, other, plain, bent] = &mut y;
                plan.set_delays(launch as u32 * 7 + seed as u32 % 5);
                plan.run(&a, &b, &given, by, sum, one, other, plain, bent).expect("a run");
                results.push(y);
            }
        }
        let [fused, apart] = &results;
        for (launch, (fused, apart)) in fused.iter().zip(apart).enumerate() {
            for (nth, (fused, apart)) in fused.iter().zip(apart).enumerate() {
                assert_eq!(numbers_of(fused), numbers_of(apart), "{m} × {n} × {k}, {what}, launch {launch}, result {nth}");
            }
        }
    }
    // Of the last launch, of plain numbers.
    let a = upload(setup, &plain, &[m, k]);
    let mut y: [Tensor<f16>; 5] = [(); 5].map(|()| poisoned(setup, &[m, k]));
    let [sum, one, other, same, bent] = &mut y;
    plans[0].run(&a, &b, &given, -3.0, sum, one, other, same, bent).expect("a run");
    let x = values(&plain);
    let (n, k) = (n as usize, k as usize);
    let wide = |at: usize| x[at / k * k + picked(taken(at % k) % n)];
    let what = |name: &str| format!("{name} of {m} × {n} × {k}");
    let gelu = |v: f64| 0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044_715 * v * v * v)).tanh());
    near(&y[1], |at| gelu(wide(at)), 2f64.powi(-10), |_| 2f64.powi(-20), &what("gelu"));
    let own = |v: f64| if v < 0.0 { v } else { v * -3.0 };
    near(&y[2], |at| own(wide(at)).max(0.0), 2f64.powi(-20), |_| 0.0, &what("a scalar"));
    near(&y[3], wide, 0.0, |_| 0.0, &what("no map"));
    near(&y[4], |at| wide(at) - wide(at) * wide(at) * 0.25, 2f64.powi(-10), |_| 2f64.powi(-10), &what("a function"));
}

/// M, N, K.
const HALVES: [[u64; 3]; 6] = [[1, 8, 8], [1, 4096, 5], [2, 264, 40], [17, 48, 8], [3, 28, 11], [16, 136, 3]];

/// Part of each row of what arrives with in-band flags; special numbers. Beside it a norm.
fn half_rows(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
    if m * n * k == 0 {
        return;
    }
    let mut numbers = Numbers::new(seed);
    let (w, first): (Vec<bf16>, Vec<bf16>) = (numbers.fill(k * n, Kind::Plain), numbers.fill(2 * n * k, Kind::Plain));
    let (x, weights): (Vec<bf16>, Vec<bf16>) = (numbers.fill(m * k, kind(seed)), numbers.fill(n, Kind::Plain));
    let dims = half_map::Dims { M: m, N: n, K: k, P: 2 * n };
    let plans = plans(setup, |options| half_map::plan_with(&setup.device, dims, options).expect("a plan"));
    for call in [1, 2] {
        assert_eq!(plans[0].graph().fused_into(call).is_empty(), !made(setup, [m, n]), "{m} × {n} × {k}");
    }
    let (a, b, c, d) =
        (upload(setup, &x, &[m, k]), upload(setup, &first, &[2 * n, k]), upload(setup, &weights, &[n]), upload(setup, &w, &[k, n]));
    let [fused, apart] = plans.map(|plan| {
        let (mut y, mut z) = (poisoned::<bf16>(setup, &[m, k]), poisoned::<bf16>(setup, &[m, k]));
        for seed in 0..2 {
            plan.set_delays(seed);
            plan.run(&a, &b, &c, &d, &mut y, &mut z).expect("a run");
        }
        [bits(&y), bits(&z)]
    });
    assert_eq!(fused, apart, "{m} × {n} × {k}");
}

/// M, K / 8.
const KEPT: [[u64; 3]; 2] = [[2, 6, 1], [1, 1, 1]];

/// Results that others read too are made by tasks.
fn what_has_tasks(setup: &Setup, [m, k, _]: [u64; 3], seed: u64) {
    let (k, h) = (k * 16, k * 8);
    if m * k == 0 {
        return;
    }
    let mut numbers = Numbers::new(seed);
    let data: Vec<bf16> = numbers.fill(m * k + k * k + h * h, Kind::Plain);
    let (x, rest) = data.split_at((m * k) as usize);
    let (w, v) = rest.split_at((k * k) as usize);
    let plans = plans(setup, |options| kept::plan_with(&setup.device, kept::Dims { M: m, K: k, H: h }, options).expect("a plan"));
    let (a, b, c) = (upload::<bf16>(setup, x, &[m, k]), upload::<bf16>(setup, w, &[k, k]), upload::<bf16>(setup, v, &[h, h]));
    assert!((1..7).all(|map| plans[0].graph().fused_into(map).is_empty()));
    let [fused, apart] = plans.map(|plan| {
        let (mut shown, mut half) = (poisoned::<bf16>(setup, &[m, k]), poisoned::<bf16>(setup, &[m, h]));
        let mut y: [Tensor<bf16>; 4] = [(); 4].map(|()| poisoned(setup, &[m, k]));
        plan.run(&a, &b, &mut shown, &mut y, &mut half, &c).expect("a run");
        (bits(&shown), y.each_ref().map(bits), bits(&half))
    });
    assert_eq!(fused, apart, "{m} × {k}");
}

/// A megakernel that has tasks of one warp has no code for maps: its plans have tasks for them.
fn beside_tasks_of_one_warp(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
    let (n, k) = (n * 8, k * 8);
    if m * n * k == 0 {
        return;
    }
    let mut numbers = Numbers::new(seed);
    let [x, first, w] = [m * k, n * k, k * n].map(|count| numbers.fill::<bf16>(count, Kind::Plain));
    let (a, b, c) = (upload::<bf16>(setup, &x, &[m, k]), upload::<bf16>(setup, &first, &[n, k]), upload::<bf16>(setup, &w, &[k, n]));
    let dims = beside_warps::Dims { M: m, N: n, K: k };
    let [fused, apart] = plans(setup, |options| beside_warps::plan_with(&setup.device, dims, options).expect("a plan")).map(|plan| {
        assert!(plan.graph().fused_into(1).is_empty());
        let (mut seen, mut y) = (upload::<f32>(setup, &vec![2.0; (m * n) as usize], &[m, n]), poisoned::<bf16>(setup, &[m, k]));
        plan.run(&a, &b, &c, &mut seen, &mut y).expect("a run");
        near(&seen, |_| 3.0, 0.0, |_| 0.0, "marks");
        bits(&y)
    });
    assert_eq!(fused, apart, "{m} × {n} × {k}");
}
