//! Bodies that copy boxes of their tensors: ragged GEMMs through a pipeline, operands that lie across, and every swizzle there and back.
#[path = "../../tasks/tests/support/mod.rs"]
mod support;

use blocks::boxes as kernels;
use kernels::{COLS, LEFT, ROWS, UP};
use maco::{Error, Tensor, bf16, f16};
use support::{Kind, Number, Numbers, Setup, bits, exact, kind, near, poisoned, upload};

on_every_device! {
    through up to [200, 300, 500], edges GEMMS;
    across up to [200, 300, 500], edges GEMMS;
    mirrored up to [3, 80, 200], edges PLANES;
}

/// M, N, K: none, parts of a tile and of a step, as many steps as there are stages, and more.
const GEMMS: [[u64; 3]; 9] =
    [[0, 5, 8], [1, 0, 8], [3, 9, 0], [1, 1, 1], [64, 128, 64], [65, 129, 65], [128, 256, 192], [200, 136, 257], [17, 300, 999]];

/// B, M, N.
const PLANES: [[u64; 3]; 7] = [[0, 5, 8], [1, 0, 8], [2, 1, 1], [1, 32, 64], [2, 33, 65], [3, 64, 128], [2, 70, 131]];

/// Small integers: sums and products are exact.
fn integers(numbers: &mut Numbers, count: u64) -> Vec<bf16> {
    (0..count).map(|_| bf16::from64(numbers.below(5) as f64 - 2.0)).collect()
}

fn through(setup: &Setup, shape @ [m, n, k]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let [x, w, v]: [Vec<bf16>; 3] = [m * k, n * k, n * n].map(|count| integers(&mut numbers, count));
    let dims = kernels::boxes_through::Dims { M: m, N: n, K: k };
    let plan = kernels::boxes_through::plan_with(&setup.device, dims, &setup.options).unwrap();
    plan.set_delays(seed as u32);
    let [dx, dw, dv] = [(&x, [m, k]), (&w, [n, k]), (&v, [n, n])].map(|(data, shape)| upload(setup, data, &shape));
    let run = || {
        let mut h = poisoned::<bf16>(setup, &[m, k]);
        let [mut y, mut z] = [(); 2].map(|()| poisoned::<bf16>(setup, &[m, n]));
        plan.run(&dx, &dw, &dv, &mut h, &mut y, &mut z).unwrap();
        [h, y, z]
    };
    let results = run();
    let cols = n as usize;
    let row = |data: &[bf16], at: usize, cols: u64| data[at * cols as usize..][..cols as usize].to_vec();
    let dot = |a: &[bf16], b: &[bf16]| a.iter().zip(b).map(|(a, b)| a.to64() * b.to64()).sum::<f64>();
    near(&results[1], |at| dot(&row(&x, at / cols, k), &row(&w, at % cols, k)), 0.0, |_| 0.0, &format!("product of {shape:?}"));
    // What is read again, by copies, is what copies have written.
    let y = results[1].download().unwrap();
    near(&results[2], |at| dot(&row(&y, at / cols, n), &row(&v, at % cols, n)), 0.0, |_| 0.0, &format!("second of {shape:?}"));
    assert_eq!(results.each_ref().map(bits), run().each_ref().map(bits), "{shape:?}: other bits at the second run");
}

fn across(setup: &Setup, shape @ [m, n, k]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let [x, w]: [Vec<bf16>; 2] = [m, n].map(|cols| integers(&mut numbers, k * cols));
    let dims = kernels::boxes_across::Dims { M: m, N: n, K: k };
    let plan = kernels::boxes_across::plan_with(&setup.device, dims, &setup.options).unwrap();
    plan.set_delays(seed as u32);
    let [dx, dw] = [(&x, m), (&w, n)].map(|(data, cols)| upload(setup, data, &[k, cols]));
    let mut y = poisoned::<f32>(setup, &[m, n]);
    plan.run(&dx, &dw, &mut y).unwrap();
    let value = |data: &[bf16], cols: u64, col: usize, at: usize| data[at * cols as usize + col].to64();
    let dot = |i: usize, j: usize| (0..k as usize).map(|k| value(&x, m, i, k) * value(&w, n, j, k)).sum::<f64>();
    near(&y, |at| dot(at / n as usize, at % n as usize), 0.0, |_| 0.0, &format!("across {shape:?}"));
}

/// What [`kernels::mirror128`] and its like make of element `at`.
fn mirror<E: Number>([_, m, n]: [u64; 3], x: &[E], at: usize) -> E {
    let (m, n) = (m as usize, n as usize);
    let (plane, row, col) = (at / n / m, (at / n % m) as i32 - UP, at % n);
    let col = (col / COLS * COLS + COLS - 1 - col % COLS) as i32 - LEFT;
    // The box of the tile is whole: its rows too begin before it.
    assert!(ROWS as i32 > UP);
    if row < 0 || col < 0 || col as usize >= n { E::from64(0.0) } else { x[(plane * m + row as usize) * n + col as usize] }
}

fn mirrored(setup: &Setup, shape @ [b, m, n]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let count = b * m * n;
    let (one, two, three) =
        (numbers.fill::<bf16>(count, kind(seed)), numbers.fill::<f16>(count, kind(seed)), numbers.fill(count, Kind::Plain));
    let four: Vec<i8> = (0..count).map(|_| numbers.below(256) as u8 as i8).collect();
    let dims = kernels::boxes_mirrored::Dims { B: b, M: m, N: n };
    let plan = kernels::boxes_mirrored::plan_with(&setup.device, dims, &setup.options).unwrap();
    plan.set_delays(seed as u32);
    let (a, b, c, d) =
        (upload(setup, &one, &shape), upload(setup, &two, &shape), upload::<f32>(setup, &three, &shape), upload(setup, &four, &shape));
    let [mut p, mut twice] = [(); 2].map(|()| poisoned::<bf16>(setup, &shape));
    let (mut q, mut r, mut s) = (poisoned::<f16>(setup, &shape), poisoned::<f32>(setup, &shape), poisoned::<i8>(setup, &shape));
    plan.run(&a, &b, &c, &d, &mut p, &mut q, &mut r, &mut s, &mut twice).unwrap();
    exact(&p, |at| mirror(shape, &one, at), &format!("128 bytes, {shape:?}"));
    exact(&q, |at| mirror(shape, &two, at), &format!("64 bytes, {shape:?}"));
    exact(&r, |at| mirror(shape, &three, at), &format!("32 bytes, {shape:?}"));
    exact(&s, |at| mirror(shape, &four, at), &format!("16 bytes, {shape:?}"));
    let once = p.download().unwrap();
    exact(&twice, |at| mirror(shape, &once, at), &format!("twice, {shape:?}"));
}

/// A tensor that TMA cannot copy is named, with what is wrong about it: its rows are 18 bytes apart.
fn unmapped(setup: &Setup) {
    let dims = kernels::boxes_across::Dims { M: 8, N: 8, K: 8 };
    let plan = kernels::boxes_across::plan_with(&setup.device, dims, &setup.options).unwrap();
    let mut memory = vec![bf16::from64(1.0); 8 * 9];
    // SAFETY: memory of this process, as a CPU's tensor has it, that outlives the tensor and is not used meanwhile.
    let x = unsafe { Tensor::from_raw(&setup.device, memory.as_mut_ptr(), [8, 8], 9) }.unwrap();
    let w = upload(setup, &[bf16::from64(1.0); 64], &[8, 8]);
    let mut y = poisoned::<f32>(setup, &[8, 8]);
    let error = plan.run(&x, &w, &mut y).unwrap_err();
    let Error::NotStageable { task, parameter, .. } = &error else { panic!("{error}") };
    assert_eq!((&**task, &**parameter), ("across", "x"), "{error}");
}

#[test]
fn a_tensor_without_a_map_is_named() {
    unmapped(&Setup::pipelined(2));
}
