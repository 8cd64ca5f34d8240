//! Rows and elements by index, read and written, weighted sums of rows, rotary embedding.
mod support;

use support::{Kind, Number, Numbers, Setup, any_kind, bits, exact, kind, near, poisoned, upload};
use tasks::lookups::{self, HEADS};

on_every_device! {
    bf16_lookups up to [60, 1200, 40, 9], edges LOOKUPS;
    f32_lookups up to [60, 1200, 40, 9], edges LOOKUPS;
    bf16_written up to [300, 1200, 40, 90], edges WRITTEN;
    f32_written up to [300, 1200, 40, 90], edges WRITTEN;
    bf16_rotated up to [150, 80, 40], edges ROTATED;
    f32_rotated up to [150, 80, 40], edges ROTATED;
}

/// M, N, V, K: nothing, ragged rows, rows of whole blocks with an even number of terms and an odd one, rows that come through the ring, since much of
/// them is picked, and tables large enough that theirs do.
const LOOKUPS: [[u64; 4]; 16] = [
    [0, 4, 3, 2],
    [3, 0, 3, 2],
    [3, 4, 0, 2],
    [3, 4, 5, 0],
    [1, 1, 1, 1],
    [17, 130, 9, 3],
    [16, 1024, 5, 2],
    [5, 2100, 7, 8],
    [19, 264, 4, 5],
    [9, 1024, 3, 512],
    [18, 512, 6, 130],
    [70, 2048, 40, 2],
    [13, 5000, 30, 1],
    [41, 4096, 10, 2],
    [21, 2056, 20, 3],
    [6, 8200, 9, 1],
];
/// M, N, V, K: nothing, one row that all indices name, a few rows that several indices of a warp name, more indices than elements, and
/// indices of as many rows as find room in a table, and of more.
const WRITTEN: [[u64; 4]; 15] = [
    [0, 4, 3, 2],
    [3, 0, 3, 2],
    [3, 4, 0, 2],
    [3, 4, 5, 0],
    [1, 1, 1, 1],
    [70, 8, 1, 3],
    [130, 1024, 3, 33],
    [33, 264, 40, 128],
    [40, 257, 9, 300],
    [9, 2056, 3, 65],
    [200, 512, 7, 32],
    [700, 512, 600, 3],
    [300, 136, 1000, 3],
    [40, 64, 5000, 2],
    [5000, 32, 4500, 2],
];
/// T, F, P.
const ROTATED: [[u64; 3]; 8] = [[0, 8, 4], [4, 8, 0], [1, 1, 1], [64, 64, 64], [65, 32, 10], [3, 7, 5], [130, 24, 9], [2, 100, 3]];

macro_rules! lookups {
    ($name:ident, $kernel:ident, $ty:ty) => {
        fn $name(setup: &Setup, shape @ [m, n, v, k]: [u64; 4], seed: u64) {
            let mut numbers = Numbers::new(seed);
            let table: Vec<$ty> = numbers.fill(v * n, kind(seed));
            // A few are outside, and the largest that there is.
            let mut id = || match numbers.below(20) {
                0 => u32::MAX,
                1 => i32::MAX as u32,
                _ => numbers.below(v + 1) as u32,
            };
            let ids: Vec<u32> = (0..m).map(|_| id()).collect();
            let many: Vec<u32> = (0..m * k).map(|_| id()).collect();
            let weights: Vec<f32> = numbers.fill(m * k, Kind::Plain);
            let run = || {
                let dims = lookups::$kernel::Dims { M: m, N: n, V: v, K: k };
                let plan = lookups::$kernel::plan_with(&setup.device, dims, &setup.options).unwrap();
                let (mut embedded, mut combined) = (poisoned::<$ty>(setup, &[m, n]), poisoned::<$ty>(setup, &[m, n]));
                let mut picked = poisoned::<$ty>(setup, &[m, k]);
                let (ids, many) = (upload(setup, &ids, &[m]), upload(setup, &many, &[m, k]));
                let (table, weights) = (upload(setup, &table, &[v, n]), upload(setup, &weights, &[m, k]));
                plan.run(&table, &ids, &many, &weights, &mut embedded, &mut combined, &mut picked).unwrap();
                (embedded, combined, picked)
            };
            let (embedded, combined, picked) = run();
            let (n, k) = (n as usize, k as usize);
            let row = |id: u32, c: usize| if u64::from(id) < v { table[id as usize * n + c] } else { <$ty as Number>::from64(0.0) };
            exact(&embedded, |at| row(ids[at / n], at % n), &format!("embedding {shape:?}"));
            exact(
                &picked,
                |at| {
                    let c = many[at] as usize;
                    if c < n { row(ids[at / k], c) } else { <$ty as Number>::from64(0.0) }
                },
                &format!("gather {shape:?}"),
            );
            let term = |at: usize, i: usize| f64::from(weights[at / n * k + i]) * row(many[at / n * k + i], at % n).to64();
            let terms = |at: usize| (0..k).map(move |i| term(at, i));
            let error = |at: usize| k as f64 * 2f64.powi(-24) * terms(at).map(f64::abs).sum::<f64>();
            near(&combined, |at| terms(at).sum(), 0.0, error, &format!("gather_sum {shape:?}"));
            let again = run();
            assert_eq!([bits(&embedded), bits(&combined), bits(&picked)], [bits(&again.0), bits(&again.1), bits(&again.2)]);
        }
    };
}
lookups!(bf16_lookups, lookups_bf16, maco::bf16);
lookups!(f32_lookups, lookups_f32, f32);

/// The documented sum: `start` and terms one after the other in `f32`, in parts of 64 terms, and then these.
fn sum(start: f64, terms: impl Iterator<Item = f64>) -> f64 {
    let (mut total, mut part) = (-0.0f32, start as f32);
    for (nth, term) in terms.enumerate() {
        if nth > 0 && nth % 64 == 0 {
            (total, part) = (total + part, -0.0);
        }
        part += term as f32;
    }
    f64::from(total + part)
}

macro_rules! written {
    ($name:ident, $kernel:ident, $ty:ty) => {
        fn $name(setup: &Setup, shape @ [m, n, v, k]: [u64; 4], seed: u64) {
            let mut numbers = Numbers::new(seed);
            let mut id = |end: u64| match numbers.below(20) {
                0 => u32::MAX,
                1 => i32::MAX as u32,
                _ => numbers.below(end + 1) as u32,
            };
            let many: Vec<u32> = (0..m * k).map(|_| id(n)).collect();
            let ids: Vec<u32> = (0..m).map(|_| id(v)).collect();
            let [x, mut y, rows, mut copied] = [m * k, m * n, m * n, v * n].map(|count| numbers.fill::<$ty>(count, kind(seed)));
            let mut added: Vec<$ty> = numbers.fill(v * n, kind(seed));
            let run = || {
                let dims = lookups::$kernel::Dims { M: m, N: n, V: v, K: k };
                let plan = lookups::$kernel::plan_with(&setup.device, dims, &setup.options).unwrap();
                let [mut y, mut copied] = [(&y, m), (&copied, v)].map(|(data, rows)| upload(setup, data, &[rows, n]));
                let mut added = upload(setup, &added, &[v, n]);
                let (many, ids) = (upload(setup, &many, &[m, k]), upload(setup, &ids, &[m]));
                let (x, rows) = (upload(setup, &x, &[m, k]), upload(setup, &rows, &[m, n]));
                plan.run(&many, &x, &mut y, &ids, &rows, &mut copied, &mut added).unwrap();
                [y, copied, added]
            };
            let ([on_device, copied_there, added_there], again) = (run(), run());
            for (at, &id) in many.iter().enumerate().filter(|&(_, &id)| u64::from(id) < n) {
                y[at / k as usize * n as usize + id as usize] = x[at];
            }
            for (i, &id) in ids.iter().enumerate().filter(|&(_, &id)| u64::from(id) < v) {
                for c in 0..n as usize {
                    copied[id as usize * n as usize + c] = rows[i * n as usize + c];
                }
            }
            for row in 0..v as usize {
                let named: Vec<usize> = (0..ids.len()).filter(|&i| ids[i] as usize == row).collect();
                for c in 0..n as usize {
                    let to = &mut added[row * n as usize + c];
                    *to = <$ty as Number>::from64(sum(to.to64(), named.iter().map(|i| rows[i * n as usize + c].to64())));
                }
            }
            exact(&on_device, |at| y[at], &format!("scatter {shape:?}"));
            exact(&copied_there, |at| copied[at], &format!("index_copy {shape:?}"));
            exact(&added_there, |at| added[at], &format!("index_add {shape:?}"));
            assert_eq!([on_device, copied_there, added_there].map(|tensor| bits(&tensor)), again.map(|tensor| bits(&tensor)));
        }
    };
}
written!(bf16_written, written_bf16, maco::bf16);
written!(f32_written, written_f32, f32);

macro_rules! ones_added {
    ($name:ident, $kernel:ident, $ty:ty) => {
        /// More ones than the element can count one by one, in turn to `rows` rows; every row has a 1 of its own. 100,000 are infinite in f16, and half as many
        /// are not.
        fn $name(setup: &Setup) {
            for [m, n, v, rows] in [
                [1000, 8, 1, 1],
                [1000, 257, 5, 3],
                [16_000, 40, 3, 2],
                [16_384, 1, 40_000, 1],
                [16_385, 9, 40, 40],
                [40_000, 8, 1, 1],
                [40_000, 3, 700, 120],
                [100_000, 3, 7, 2],
                [100_000, 8, 1, 1],
            ] {
                let plan = lookups::$kernel::plan_with(&setup.device, lookups::$kernel::Dims { M: m, N: n, V: v }, &setup.options).unwrap();
                let one = <$ty as Number>::from64(1.0);
                let ids: Vec<u32> = (0..m).map(|i| (i % rows) as u32).collect();
                let mut added = upload(setup, &vec![one; (v * n) as usize], &[v, n]);
                plan.run(&upload(setup, &ids, &[m]), &upload(setup, &vec![one; (m * n) as usize], &[m, n]), &mut added).unwrap();
                let named = |row: u64| if row < rows { m / rows + u64::from(row < m % rows) } else { 0 };
                let count = |at: usize| (named(at as u64 / n) + 1) as f64;
                let what = format!("{m} ones to {rows} of {v} rows of {n}");
                near(&added, count, 0.0, |_| 0.0, &what);
            }
        }
    };
}
ones_added!(bf16_ones_added, added_bf16, maco::bf16);
ones_added!(f16_ones_added, added_f16, maco::f16);

/// Beside another operation there are no pages for chains.
fn ones_added_twice(setup: &Setup) {
    for [m, n, v, rows] in [[1000, 264, 5, 3], [300, 9, 40, 37]] {
        let plan = lookups::added_twice::plan_with(&setup.device, lookups::added_twice::Dims { M: m, N: n, V: v }, &setup.options).unwrap();
        let ids: Vec<u32> = (0..m).map(|i| (i % rows) as u32).collect();
        let [mut added, mut again] = [(); 2].map(|()| upload(setup, &vec![maco::bf16::ONE; (v * n) as usize], &[v, n]));
        plan.run(&upload(setup, &ids, &[m]), &upload(setup, &vec![maco::bf16::ONE; (m * n) as usize], &[m, n]), &mut added, &mut again)
            .unwrap();
        let count = |at: usize| {
            let row = at as u64 / n;
            maco::bf16::from_f32(if row < rows { m / rows + u64::from(row < m % rows) + 1 } else { 1 } as f32)
        };
        exact(&added, count, "ones beside another operation");
        exact(&again, count, "ones behind another operation");
    }
}

macro_rules! many_added {
    ($name:ident, $kernel:ident, $ty:ty) => {
        /// More indices than find room in shared memory: of many rows and of few, of one row and some others, and some outside.
        fn $name(setup: &Setup) {
            for (seed, [m, n, v, most]) in (1..).zip([
                [40_000, 8, 3000, 0],
                [40_000, 16, 30_000, 0],
                [40_000, 8, 3000, 2],
                [20_000, 9, 700, 2],
                [17_000, 264, 40, 0],
                [60_000, 8, 500, 8],
            ]) {
                let mut numbers = Numbers::new(seed);
                let mut id = || if numbers.below(10) < most { v as u32 / 2 } else { numbers.below(v + 2) as u32 };
                let ids: Vec<u32> = (0..m).map(|_| id()).collect();
                let [rows, mut expected] = [m, v].map(|rows| numbers.fill::<$ty>(rows * n, Kind::Plain));
                let plan = lookups::$kernel::plan_with(&setup.device, lookups::$kernel::Dims { M: m, N: n, V: v }, &setup.options).unwrap();
                let mut added = upload(setup, &expected, &[v, n]);
                plan.run(&upload(setup, &ids, &[m]), &upload(setup, &rows, &[m, n]), &mut added).unwrap();
                let mut named = vec![Vec::new(); v as usize];
                for (i, &id) in ids.iter().enumerate().filter(|&(_, &id)| u64::from(id) < v) {
                    named[id as usize].push(i);
                }
                let n = n as usize;
                for (at, to) in expected.iter_mut().enumerate() {
                    *to = <$ty as Number>::from64(sum(to.to64(), named[at / n].iter().map(|i| rows[i * n + at % n].to64())));
                }
                exact(&added, |at| expected[at], &format!("{m} rows of {n} to {v}, of ten {most} to one"));
            }
        }
    };
}
many_added!(bf16_many_added, added_bf16, maco::bf16);
many_added!(f16_many_added, added_f16, maco::f16);

#[test]
fn sums_of_rows_are_rounded_once() {
    for setup in [Setup::plain(2), Setup::pipelined(2)] {
        bf16_ones_added(&setup);
        f16_ones_added(&setup);
        bf16_many_added(&setup);
        f16_many_added(&setup);
        ones_added_twice(&setup);
    }
}

#[test]
#[ignore = "gpu"]
fn gpu_sums_of_rows_are_rounded_once() {
    let setup = Setup::gpu();
    bf16_ones_added(&setup);
    f16_ones_added(&setup);
    bf16_many_added(&setup);
    f16_many_added(&setup);
    ones_added_twice(&setup);
}

macro_rules! rotated {
    ($name:ident, $kernel:ident, $ty:ty) => {
        fn $name(setup: &Setup, shape @ [t, f, p]: [u64; 3], seed: u64) {
            let mut numbers = Numbers::new(seed);
            let width = 2 * HEADS as u64 * f;
            let x: Vec<$ty> = numbers.fill(t * width, any_kind(seed));
            // A few are outside, and the largest that there is.
            let positions: Vec<u32> = (0..t)
                .map(|_| match numbers.below(20) {
                    0 => u32::MAX,
                    1 => i32::MAX as u32,
                    2 => numbers.next() as u32,
                    _ => numbers.below(p + 1) as u32,
                })
                .collect();
            let angles: Vec<f64> =
                (0..p * f).map(|at| (at / f.max(1)) as f64 * 10000f64.powf(-((at % f.max(1)) as f64) / f as f64)).collect();
            let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|v| (v.cos() as f32, v.sin() as f32)).unzip();
            let dims = lookups::$kernel::Dims { T: t, F: f, P: p };
            let run = || {
                let plan = lookups::$kernel::plan_with(&setup.device, dims, &setup.options).unwrap();
                let [mut halves, mut neighbours] = [(); 2].map(|()| poisoned::<$ty>(setup, &[t, width]));
                let (x, positions) = (upload(setup, &x, &[t, width]), upload(setup, &positions, &[t]));
                let (cos, sin) = (upload(setup, &cos, &[p, f]), upload(setup, &sin, &[p, f]));
                plan.run(&x, &positions, &cos, &sin, &mut halves, &mut neighbours).unwrap();
                [halves, neighbours]
            };
            let turned = run();
            let (f, width) = (f as usize, width as usize);
            // Of an element of a head: the other one of its pair, the column of their angle, and whether it is the first of them.
            let halves = |at: usize| if at < f { (at + f, at, true) } else { (at - f, at - f, false) };
            let neighbours = |at: usize| (at ^ 1, at / 2, at % 2 == 0);
            let pairings: [(&str, &dyn Fn(usize) -> (usize, usize, bool)); 2] = [("rope", &halves), ("rope_interleaved", &neighbours)];
            for (y, (name, pairing)) in turned.iter().zip(pairings) {
                let other = |at: usize| at - at % (2 * f) + pairing(at % (2 * f)).0;
                let parts = |at: usize| {
                    let (position, (_, column, is_first)) = (positions[at / width] as usize, pairing(at % (2 * f)));
                    let angle = |table: &[f32]| if (position as u64) < p { f64::from(table[position * f + column]) } else { 0.0 };
                    let sign = if is_first { -1.0 } else { 1.0 };
                    (x[at].to64() * angle(&cos), sign * x[other(at)].to64() * angle(&sin))
                };
                let error = |at: usize| 2f64.powi(-23) * (x[at].to64().abs() + x[other(at)].to64().abs());
                near(y, |at| parts(at).0 + parts(at).1, 0.0, error, &format!("{name} {shape:?}"));
            }
            assert_eq!(turned.each_ref().map(bits), run().each_ref().map(bits), "other bits in a second run of {shape:?}");
        }
    };
}
rotated!(bf16_rotated, rotated_bf16, maco::bf16);
rotated!(f32_rotated, rotated_f32, f32);
