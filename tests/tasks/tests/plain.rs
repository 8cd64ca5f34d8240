//! Sums, products and copies, element by element, bit by bit.
mod support;

use maco::{bf16, f16};
use support::{Number, Numbers, Setup, any_kind, bits, exact, poisoned, upload};
use tasks::plain;

on_every_device! {
    bf16_plain up to [150, 300], edges EDGES;
    f16_plain up to [150, 300], edges EDGES;
    f32_plain up to [150, 300], edges EDGES;
    words up to [150, 300], edges EDGES;
}

/// Nothing, one, ragged rows, rows of whole blocks; the last five come through the ring: whole tiles, ragged ones, tiles side by side.
const EDGES: [[u64; 2]; 15] = [
    [0, 3],
    [3, 0],
    [1, 1],
    [1, 8],
    [7, 9],
    [8, 8],
    [3, 1025],
    [64, 128],
    [65, 136],
    [128, 257],
    [200, 264],
    [64, 1024],
    [83, 1040],
    [99, 136],
    [33, 2056],
];

macro_rules! plain {
    ($name:ident, $kernel:ident, $ty:ty) => {
        fn $name(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
            let (mut numbers, kind) = (Numbers::new(seed), any_kind(seed));
            let [a, b, to_scale, to_bias] = [(); 4].map(|()| numbers.fill::<$ty>(m * n, kind));
            let row: Vec<$ty> = numbers.fill(n, kind);
            let by = numbers.number(kind) as f32;
            let run = || {
                let plan = plain::$kernel::plan_with(&setup.device, plain::$kernel::Dims { M: m, N: n }, &setup.options).unwrap();
                let mut outputs = [(); 3].map(|()| poisoned::<$ty>(setup, &shape));
                let [sum, product, copied] = &mut outputs;
                let [a, b, mut scaled, mut biased] = [&a, &b, &to_scale, &to_bias].map(|data| upload(setup, data, &shape));
                plan.run(&a, &b, &upload(setup, &row, &[n]), by, sum, product, copied, &mut scaled, &mut biased).unwrap();
                let [sum, product, copied] = outputs;
                [sum, product, copied, scaled, biased]
            };
            let outputs = run();
            let what = |name: &str| format!("{name} of {shape:?}");
            // Rounded to `f32`, then to the element.
            let value = |v: $ty| v.to64() as f32;
            let rounded = |v: f32| <$ty as Number>::from64(v.into());
            let [sum, product, copied, scaled, biased] = &outputs;
            exact(sum, |at| rounded(value(a[at]) + value(b[at])), &what("add"));
            exact(product, |at| rounded(value(a[at]) * value(b[at])), &what("mul"));
            exact(copied, |at| a[at], &what("copy"));
            exact(scaled, |at| rounded(value(to_scale[at]) * by), &what("scale"));
            exact(biased, |at| rounded(value(to_bias[at]) + value(row[at % n as usize])), &what("bias"));
            assert_eq!(outputs.each_ref().map(bits), run().each_ref().map(bits), "other bits in a second run of {shape:?}");
        }
    };
}
plain!(bf16_plain, plain_bf16, bf16);
plain!(f16_plain, plain_f16, f16);
plain!(f32_plain, plain_f32, f32);

/// Of integers every bit counts: none of them goes through a floating-point number.
fn words(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let signed: Vec<i32> = (0..m * n).map(|_| numbers.next() as i32).collect();
    let unsigned: Vec<u32> = (0..m * n).map(|_| numbers.next() as u32).collect();
    let run = || {
        let plan = plain::copied_words::plan_with(&setup.device, plain::copied_words::Dims { M: m, N: n }, &setup.options).unwrap();
        let (mut same, mut alike) = (poisoned::<i32>(setup, &shape), poisoned::<u32>(setup, &shape));
        plan.run(&upload(setup, &signed, &shape), &upload(setup, &unsigned, &shape), &mut same, &mut alike).unwrap();
        (same, alike)
    };
    let (same, alike) = run();
    exact(&same, |at| signed[at], &format!("copy of {shape:?} of i32"));
    exact(&alike, |at| unsigned[at], &format!("copy of {shape:?} of u32"));
    let again = run();
    assert_eq!([bits(&same), bits(&alike)], [bits(&again.0), bits(&again.1)], "other bits in a second run of {shape:?}");
}
