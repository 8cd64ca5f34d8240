//! Reductions of columns, at once and by groups of rows, against f64.
mod support;

use support::{Number, Numbers, Setup, any_kind, bits, exact, near, poisoned, upload};
use tasks::{columns, rows};

on_every_device! {
    bf16_columns up to [600, 600], edges EDGES;
    f32_columns up to [600, 600], edges EDGES;
    bf16_groups up to [7, 200, 300], edges GROUPS;
    f32_groups up to [7, 200, 300], edges GROUPS;
}

const EDGES: [[u64; 2]; 9] = [[0, 5], [3, 0], [1, 1], [7, 9], [8, 8], [127, 128], [129, 130], [1000, 264], [9000, 16]];
const GROUPS: [[u64; 3]; 6] = [[0, 4, 4], [3, 0, 4], [1, 1, 1], [2, 130, 128], [5, 17, 257], [16, 64, 40]];

/// The documented error of the sum of a column, relative to Σ |x|.
fn error(setup: &Setup, rows: usize) -> f64 {
    let rows = rows as f64;
    setup.pick((rows / 16.0).min(4096.0) + rows / 65536.0 + 5.0, rows.min(4096.0) + rows / 4096.0) * 2f64.powi(-24)
}

/// Of so many ones that an `f32` which counts them one by one stops before.
fn many_ones(setup: &Setup) {
    const MANY: u64 = (1 << 24) + 4096;
    let plan = columns::sums_bf16::plan_with(&setup.device, columns::sums_bf16::Dims { M: MANY, N: 1 }, &setup.options).unwrap();
    let ones = vec![maco::bf16::ONE; MANY as usize];
    let mut sum = poisoned::<f32>(setup, &[1]);
    plan.run(&upload(setup, &ones, &[MANY, 1]), &mut sum).unwrap();
    exact(&sum, |_| MANY as f32, "a long column of ones");
    let plan = rows::sums_bf16::plan_with(&setup.device, rows::sums_bf16::Dims { M: 1, N: MANY }, &setup.options).unwrap();
    let mut sum = poisoned::<f32>(setup, &[1, 1]);
    plan.run(&upload(setup, &ones, &[1, MANY]), &mut sum).unwrap();
    exact(&sum, |_| MANY as f32, "a long row of ones");
}

#[test]
fn long_sums_count_all() {
    many_ones(&Setup::plain(1));
}

#[test]
fn long_sums_count_all_pipelined() {
    many_ones(&Setup::pipelined(1));
}

#[test]
#[ignore = "gpu"]
fn gpu_long_sums_count_all() {
    many_ones(&Setup::gpu());
}

macro_rules! columns {
    ($name:ident, $kernel:ident, $ty:ty) => {
        fn $name(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
            let mut x: Vec<$ty> = Numbers::new(seed).fill(m * n, any_kind(seed));
            for v in &mut x {
                if v.to64() == 0.0 {
                    *v = <$ty as Number>::from64(0.0);
                }
            }
            let run = || {
                let dims = columns::$kernel::Dims { M: m, N: n };
                let plan = columns::$kernel::plan_with(&setup.device, dims, &setup.options).unwrap();
                let mut outputs = [(); 4].map(|()| poisoned::<f32>(setup, &[n]));
                let [sum, mean, max, min] = &mut outputs;
                plan.run(&upload(setup, &x, &shape), sum, mean, max, min).unwrap();
                outputs
            };
            let outputs = run();
            let (m, n) = (m as usize, n as usize);
            let column = |c: usize| {
                let x = &x;
                (0..m).map(move |r| x[r * n + c].to64())
            };
            let larger = |a: f64, b: f64| if b > a || b.is_nan() { b } else { a };
            let smaller = |a: f64, b: f64| if b < a || b.is_nan() { b } else { a };
            let error = |c: usize| error(setup, m) * column(c).map(f64::abs).sum::<f64>();
            let [sum, mean, max, min] = &outputs;
            near(sum, |c| column(c).sum(), 0.0, error, &format!("sum_cols of {shape:?}"));
            near(mean, |c| column(c).sum::<f64>() / m as f64, 0.0, |c| error(c) / m as f64, &format!("mean_cols of {shape:?}"));
            exact(max, |c| column(c).fold(f64::NEG_INFINITY, larger) as f32, &format!("max_cols of {shape:?}"));
            exact(min, |c| column(c).fold(f64::INFINITY, smaller) as f32, &format!("min_cols of {shape:?}"));
            assert_eq!(outputs.each_ref().map(bits), run().each_ref().map(bits), "other bits in a second run of {shape:?}");
        }
    };
}
columns!(bf16_columns, columns_bf16, maco::bf16);
columns!(f32_columns, columns_f32, f32);

macro_rules! groups {
    ($name:ident, $kernel:ident, $ty:ty) => {
        fn $name(setup: &Setup, shape @ [p, m, n]: [u64; 3], seed: u64) {
            let x: Vec<$ty> = Numbers::new(seed).fill(p * m * n, any_kind(seed));
            let dims = columns::$kernel::Dims { P: p, M: m, N: n };
            let run = || {
                let plan = columns::$kernel::plan_with(&setup.device, dims, &setup.options).unwrap();
                let (mut parts, mut sum) = (poisoned::<f32>(setup, &[p, n]), poisoned::<f32>(setup, &[n]));
                plan.run(&upload(setup, &x, &shape), &mut parts, &mut sum).unwrap();
                [parts, sum]
            };
            let outputs @ [parts, sum] = &run();
            let (p, m, n) = (p as usize, m as usize, n as usize);
            let part = |at: usize| {
                let x = &x;
                (0..m).map(move |r| x[(at / n * m + r) * n + at % n].to64())
            };
            let all = |c: usize| (0..p).flat_map(move |p| part(p * n + c));
            let of_part = |at: usize| error(setup, m) * part(at).map(f64::abs).sum::<f64>();
            near(parts, |at| part(at).sum(), 0.0, of_part, &format!("groups of {shape:?}"));
            // Of the parts as they are, which are within their own error of the exact ones.
            let of_all = |c: usize| (error(setup, m) + error(setup, p) * (1.0 + error(setup, m))) * all(c).map(f64::abs).sum::<f64>();
            near(sum, |c| all(c).sum(), 0.0, of_all, &format!("all of {shape:?}"));
            assert_eq!(outputs.each_ref().map(bits), run().each_ref().map(bits), "other bits in a second run of {shape:?}");
        }
    };
}
groups!(bf16_groups, groups_bf16, maco::bf16);
groups!(f32_groups, groups_f32, f32);
