//! More than 2³¹ elements beyond what `far::` and `gpu_far::` of the other programs have: columns far apart, ids up to the last row there can be, and tensors
//! without gaps.
//!
//! Those without gaps are read and written from end to end, which is GPUs' alone: 2³¹ elements of several tensors are more memory than a machine for
//! tests has. Of most of them a few places are looked at.
mod support;

use maco::{Tensor, bf16};
use support::far::{cpu_memory, gpu_memory, in_turns, on_cpu};
use support::{Kind, Number, Numbers, Setup, exact, near, poisoned, upload};
use tasks::{columns, layouts, lookups, plain, rows};

on_every_device! {
    turned up to [300, 300], edges EDGES;
}

/// Of few rows that are far the distance of two alone has more than 32 bits, in bytes; rows of one side are columns of the other.
const EDGES: [[u64; 2]; 10] = [[3, 1], [2, 3], [3, 2], [7, 9], [8, 8], [64, 130], [65, 136], [3, 1040], [130, 17], [200, 264]];

fn turned(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let (x, z): (Vec<bf16>, Vec<f32>) = (numbers.fill(m * n, Kind::Plain), numbers.fill(m * n, Kind::Plain));
    let plan = layouts::turned::plan_with(&setup.device, layouts::turned::Dims { M: m, N: n }, &setup.options).unwrap();
    let [mut y, mut u] = [(); 2].map(|()| poisoned::<bf16>(setup, &[n, m]));
    let [mut w, mut v] = [(); 2].map(|()| poisoned::<f32>(setup, &[n, m]));
    plan.run(&upload(setup, &x, &shape), &mut y, &upload(setup, &z, &shape), &mut w, &mut u, &mut v).unwrap();
    let (m, n) = (m as usize, n as usize);
    exact(&y, |at| x[at % m * n + at / m], &format!("columns of {shape:?} read"));
    exact(&w, |at| z[at % m * n + at / m], &format!("columns of {shape:?} written"));
    exact(&u, |at| x[at % m * n + at / m], &format!("blocks of columns of {shape:?}, two bytes"));
    exact(&v, |at| z[at % m * n + at / m], &format!("blocks of columns of {shape:?}, four bytes"));
}

/// A matrix that lies somewhere, or a piece of one.
#[derive(Clone, Copy)]
struct Matrix {
    address: u64,
    /// Elements from one row to the next.
    stride: u64,
}

impl Matrix {
    /// What begins at (`row`, `col`), as a tensor.
    fn piece<E: Number>(self, setup: &Setup, [row, col]: [u64; 2], shape: [u64; 2]) -> Tensor<E> {
        let at = self.address as *mut E;
        // SAFETY: the callers' memory is large enough for it, and stays until the tensors of a test are gone.
        unsafe { Tensor::from_raw(&setup.device, at.add((row * self.stride + col) as usize), shape, self.stride) }.expect("a piece")
    }

    fn fill<E: Number>(self, setup: &Setup, at: [u64; 2], shape: [u64; 2], data: &[E]) {
        self.piece(setup, at, shape).upload_from(data).expect("upload");
    }
}

/// Rows of tables as long as there can be any.
const LAST: u64 = i32::MAX as u64;
/// Some of them, the ends and those where offsets of 32 bits wrap, and one that is outside.
const IDS: [u32; 10] =
    [0, LAST as u32 - 1, 1 << 29, (1 << 29) - 1, (1 << 30) + 5, LAST as u32 / 8 * 7, LAST as u32 - 65, 7, LAST as u32, u32::MAX];

fn read_by_ids(setup: &Setup, address: u64) {
    const N: u64 = 8;
    let (table, mut numbers) = (Matrix { address, stride: N }, Numbers::new(3));
    let inside = |id: u32| u64::from(id) < LAST;
    let held: Vec<Vec<bf16>> = IDS.iter().map(|_| numbers.fill(N, Kind::Plain)).collect();
    for (&id, row) in IDS.iter().zip(&held).filter(|(id, _)| inside(**id)) {
        table.fill(setup, [id.into(), 0], [1, N], row);
    }
    let (m, k) = (IDS.len() as u64, 2);
    let many: Vec<u32> = (0..m as usize).flat_map(|i| [IDS[i], IDS[(i + 3) % IDS.len()]]).collect();
    let weights: Vec<f32> = numbers.fill(m * k, Kind::Plain);
    let dims = lookups::lookups_bf16::Dims { M: m, N, V: LAST, K: k };
    let plan = lookups::lookups_bf16::plan_with(&setup.device, dims, &setup.options).unwrap();
    let [mut embedded, mut combined] = [(); 2].map(|()| poisoned::<bf16>(setup, &[m, N]));
    let mut picked = poisoned::<bf16>(setup, &[m, k]);
    let whole = table.piece(setup, [0, 0], [LAST, N]);
    let (ids, many_ids) = (upload(setup, &IDS, &[m]), upload(setup, &many, &[m, k]));
    plan.run(&whole, &ids, &many_ids, &upload(setup, &weights, &[m, k]), &mut embedded, &mut combined, &mut picked).unwrap();
    let value = |i: usize, col: usize| if inside(IDS[i % IDS.len()]) { held[i % IDS.len()][col] } else { bf16::ZERO };
    let n = N as usize;
    exact(&embedded, |at| value(at / n, at % n), "embedding");
    let terms = |at: usize| [0, 1].map(|j| f64::from(weights[at / n * 2 + j]) * value(at / n + 3 * j, at % n).to64());
    let error = |at: usize| 2f64.powi(-23) * terms(at).map(f64::abs).iter().sum::<f64>();
    near(&combined, |at| terms(at).iter().sum(), 0.0, error, "gather_sum");
}

/// Bytes of both tables of [`written_by_ids`], one behind the other.
const WRITTEN: u64 = 2 * LAST.next_multiple_of(8) * 4 * 2;

fn written_by_ids(setup: &Setup, address: u64) {
    const N: u64 = 4;
    let mut numbers = Numbers::new(5);
    let (copied, added) = (Matrix { address, stride: N }, Matrix { address: address + WRITTEN / 2, stride: N });
    let (m, k) = (IDS.len() as u64, 1);
    let rows: Vec<bf16> = numbers.fill(m * N, Kind::Plain);
    let before: Vec<bf16> = numbers.fill(m * N, Kind::Plain);
    let of = |data: &[bf16], i: usize| data[i * N as usize..][..N as usize].to_vec();
    let inside = || IDS.iter().enumerate().filter(|(_, id)| u64::from(**id) < LAST).map(|(i, &id)| (i, u64::from(id)));
    for (i, id) in inside() {
        copied.fill(setup, [id, 0], [1, N], &[bf16::from_f32(12345.0); N as usize]);
        added.fill(setup, [id, 0], [1, N], &of(&before, i));
    }
    let dims = lookups::written_bf16::Dims { M: m, N, V: LAST, K: k };
    let plan = lookups::written_bf16::plan_with(&setup.device, dims, &setup.options).unwrap();
    let (many, x, mut y) =
        (upload(setup, &[0; IDS.len()], &[m, k]), upload(setup, &rows[..IDS.len()], &[m, k]), upload(setup, &rows, &[m, N]));
    let [mut all_copied, mut all_added] = [copied, added].map(|table| table.piece::<bf16>(setup, [0, 0], [LAST, N]));
    let (ids, given) = (upload(setup, &IDS, &[m]), upload(setup, &rows, &[m, N]));
    plan.run(&many, &x, &mut y, &ids, &given, &mut all_copied, &mut all_added).unwrap();
    for (i, id) in inside() {
        let (new, old) = (of(&rows, i), of(&before, i));
        exact(&copied.piece(setup, [id, 0], [1, N]), |at| new[at], &format!("index_copy to row {id}"));
        let sum = |at: usize| bf16::from64(f64::from(old[at].to64() as f32 + new[at].to64() as f32));
        exact(&added.piece(setup, [id, 0], [1, N]), sum, &format!("index_add to row {id}"));
    }
}

#[test]
fn ids_up_to_the_last_row_there_can_be() {
    cpu_memory(LAST * 16, read_by_ids);
    cpu_memory(WRITTEN, written_by_ids);
}

#[test]
#[ignore = "gpu"]
fn gpu_ids_up_to_the_last_row_there_can_be() {
    gpu_memory(LAST * 16, read_by_ids);
    gpu_memory(WRITTEN, written_by_ids);
}

/// First rows or columns of pieces of 8 × 8 that are looked at: the ends, around powers of two, and some between.
fn positions(extent: u64) -> impl Iterator<Item = u64> + Clone {
    let powers = (4..40).map(|n| 1u64 << n).flat_map(|power| [power - 8, power]);
    let between = (1..5).map(move |n| extent / 5 * n);
    powers.chain(between).chain([0]).filter(move |at| at + 8 <= extent).chain([extent - 8])
}

const PIECE: [u64; 2] = [8, 8];

/// Pieces all over `matrix` get numbers, the same for the same seed.
fn scatter<E: Number>(setup: &Setup, matrix: Matrix, [rows, cols]: [u64; 2], seed: u64, number: impl Fn(u64) -> E) {
    for row in positions(rows) {
        for col in positions(cols).step_by(3) {
            let data: Vec<E> = (0..64).map(|n| number(mixed(seed, row + n / 8, col + n % 8))).collect();
            matrix.fill(setup, [row, col], PIECE, &data);
        }
    }
}

/// A number of a position.
fn mixed(seed: u64, row: u64, col: u64) -> u64 {
    Numbers::new(seed ^ row << 32 ^ col).next()
}

#[test]
#[ignore = "gpu"]
fn gpu_copies_without_gaps() {
    const SHAPE: [u64; 2] = [(1 << 21) + 3, 1024];
    const BYTES: u64 = SHAPE[0] * SHAPE[1] * 4;
    gpu_memory(4 * BYTES, |setup, address| {
        let at = |n: u64| Matrix { address: address + n * BYTES, stride: SHAPE[1] };
        scatter(setup, at(0), SHAPE, 1, |v| v as i32);
        scatter(setup, at(1), SHAPE, 2, |v| v as u32);
        scatter(setup, at(2), SHAPE, 3, |_| 12345i32);
        scatter(setup, at(3), SHAPE, 3, |_| 12345u32);
        let dims = plain::copied_words::Dims { M: SHAPE[0], N: SHAPE[1] };
        let plan = plain::copied_words::plan_with(&setup.device, dims, &setup.options).unwrap();
        let (signed, unsigned) = (at(0).piece::<i32>(setup, [0, 0], SHAPE), at(1).piece::<u32>(setup, [0, 0], SHAPE));
        plan.run(&signed, &unsigned, &mut at(2).piece(setup, [0, 0], SHAPE), &mut at(3).piece(setup, [0, 0], SHAPE)).unwrap();
        for row in positions(SHAPE[0]) {
            for col in positions(SHAPE[1]).step_by(3) {
                let of = |seed: u64, n: usize| mixed(seed, row + n as u64 / 8, col + n as u64 % 8);
                exact(&at(2).piece(setup, [row, col], PIECE), |n| of(1, n) as i32, &format!("i32 from ({row}, {col}) on"));
                exact(&at(3).piece(setup, [row, col], PIECE), |n| of(2, n) as u32, &format!("u32 from ({row}, {col}) on"));
            }
        }
    });
}

#[test]
#[ignore = "gpu"]
fn gpu_transposes_without_gaps() {
    const SHAPE: [u64; 2] = [(1 << 16) + 8, (1 << 15) + 8];
    const BYTES: u64 = SHAPE[0] * SHAPE[1] * 2;
    gpu_memory(2 * BYTES, |setup, address| {
        let (from, to) = (Matrix { address, stride: SHAPE[1] }, Matrix { address: address + BYTES, stride: SHAPE[0] });
        // Any two bytes are a number or not one; those that are not have no other bits.
        let number = |v: u64| bf16::from_f32((v % 65536) as f32);
        scatter(setup, from, SHAPE, 1, number);
        let dims = layouts::transposed_bf16::Dims { M: SHAPE[0], N: SHAPE[1] };
        let plan = layouts::transposed_bf16::plan_with(&setup.device, dims, &setup.options).unwrap();
        let mut y = to.piece::<bf16>(setup, [0, 0], [SHAPE[1], SHAPE[0]]);
        plan.run(&from.piece(setup, [0, 0], SHAPE), &mut y).unwrap();
        for row in positions(SHAPE[0]) {
            for col in positions(SHAPE[1]).step_by(3) {
                let of = |n: usize| number(mixed(1, row + n as u64 % 8, col + n as u64 / 8));
                exact(&to.piece(setup, [col, row], PIECE), of, &format!("from ({col}, {row}) on"));
            }
        }
    });
}

/// A matrix of zeros but for a few numbers, each of which is in a column and a row of its own.
fn sparse(setup: &Setup, [m, n]: [u64; 2], count: u64) -> (Tensor<bf16>, Vec<(u64, u64, f32)>) {
    let mut x = setup.device.zeros::<bf16>([m, n]).expect("zeros");
    assert_eq!(x.row_stride(), n);
    let matrix = Matrix { address: x.as_mut_ptr() as u64, stride: n };
    let one =
        |i: u64| (i * (m - 1) / (count - 1), i * (n - 1) / (count - 1), if i.is_multiple_of(2) { 1.0 + i as f32 } else { -1.0 - i as f32 });
    let given: Vec<(u64, u64, f32)> = (0..count).map(one).collect();
    for &(row, col, value) in &given {
        matrix.fill(setup, [row, col], [1, 1], &[bf16::from_f32(value)]);
    }
    (x, given)
}

#[test]
#[ignore = "gpu"]
fn gpu_columns_without_gaps() {
    let setup = Setup::gpu();
    let [m, n] = [(1 << 21) + 5, 1024];
    let (x, given) = sparse(&setup, [m, n], 100);
    let plan = columns::columns_bf16::plan(&setup.device, columns::columns_bf16::Dims { M: m, N: n }).unwrap();
    let [mut sum, mut mean, mut max, mut min] = [(); 4].map(|()| poisoned::<f32>(&setup, &[n]));
    plan.run(&x, &mut sum, &mut mean, &mut max, &mut min).unwrap();
    let of = |col: usize| given.iter().find(|(_, at, _)| *at == col as u64).map_or(0.0, |&(_, _, value)| value);
    near(&sum, |col| of(col).into(), 0.0, |_| 0.0, "sum_cols");
    near(&mean, |col| f64::from(of(col)) / m as f64, 0.0, |_| 0.0, "mean_cols");
    exact(&max, |col| of(col).max(0.0), "max_cols");
    exact(&min, |col| of(col).min(0.0), "min_cols");
}

#[test]
#[ignore = "gpu"]
fn gpu_rows_without_gaps() {
    let setup = Setup::gpu();
    let [m, n, k] = [(1 << 17) + 9, (1 << 14) + 8, 2];
    let (x, given) = sparse(&setup, [m, n], 100);
    let plan = rows::rows_bf16::plan(&setup.device, rows::rows_bf16::Dims { M: m, N: n, K: k }).unwrap();
    let [mut sum, mut mean, mut max, mut min] = [(); 4].map(|()| poisoned::<f32>(&setup, &[m, 1]));
    let (mut arg, mut values, mut indices) = (poisoned(&setup, &[m, 1]), poisoned(&setup, &[m, k]), poisoned(&setup, &[m, k]));
    plan.run(&x, &mut sum, &mut mean, &mut max, &mut min, &mut arg, &mut values, &mut indices).unwrap();
    let mut of = vec![(0, 0.0); m as usize];
    for &(row, col, value) in &given {
        of[row as usize] = (col as u32, value);
    }
    near(&sum, |row| of[row].1.into(), 0.0, |_| 0.0, "sum_rows");
    near(&mean, |row| f64::from(of[row].1) / n as f64, 0.0, |_| 0.0, "mean_rows");
    exact(&max, |row| of[row].1.max(0.0), "max_rows");
    exact(&min, |row| of[row].1.min(0.0), "min_rows");
    // The largest, the first of equal ones: of a row with a negative number in front the first zero is behind it.
    let first = |row: usize| match of[row] {
        (col, value) if value > 0.0 => col,
        (0, value) if value < 0.0 => 1,
        _ => 0,
    };
    exact(&arg, first, "argmax");
    exact(&values, |at| bf16::from_f32(if at % 2 == 0 { of[at / 2].1.max(0.0) } else { 0.0 }), "values of top_k");
    // Behind the largest comes the first of the others that is not negative.
    let second = |row: usize| (0..3).find(|&col| col != first(row) && !(of[row].0 == col && of[row].1 < 0.0)).expect("one of three");
    exact(&indices, |at| if at % 2 == 0 { first(at / 2) } else { second(at / 2) }, "indices of top_k");
}

/// The tests above would pass if nothing were far.
#[test]
fn far_tensors_are_far() {
    let shape = [5, 40];
    let far = on_cpu(|setup| {
        let tensors = [(); 3].map(|()| poisoned::<f32>(setup, &shape));
        for tensor in &tensors {
            assert!(4 * tensor.row_stride() > 1 << 32, "the last row is beyond 2³² elements");
        }
        let ends = tensors.map(|tensor| (tensor.as_ptr() as u64, tensor.as_ptr() as u64 + (4 * tensor.row_stride() + 40) * 4));
        assert!(ends.iter().all(|a| ends.iter().all(|b| a == b || a.1 <= b.0 || b.1 <= a.0)), "they share memory");
    });
    assert_eq!(far, 6);
    // One row is not far from any other, and of an axis there is one.
    assert_eq!(on_cpu(|setup| drop((poisoned::<f32>(setup, &[1, 40]), poisoned::<f32>(setup, &[40]), poisoned::<f32>(setup, &[5, 0])))), 0);
}

/// Memory for two tensors of four bytes, and a test of seven: what is done on a GPU, on the CPU.
#[test]
fn each_tensor_has_its_turn() {
    const BYTES: u64 = 40 << 30;
    let turns = std::cell::RefCell::new(Vec::new());
    cpu_memory(BYTES, |setup, address| {
        let far = in_turns(setup, address, BYTES, |setup| {
            let tensors: Vec<Tensor<f32>> = (0..7).map(|_| poisoned(setup, &[136, 40])).collect();
            turns.borrow_mut().push(tensors.iter().map(|tensor| tensor.row_stride() > 40).collect::<Vec<_>>());
        });
        assert_eq!(far, 7);
        let expected: Vec<Vec<bool>> = (0..4).map(|turn| (0..7).map(|n| n / 2 == turn).collect()).collect();
        assert_eq!(turns.take(), expected);
    });
}
