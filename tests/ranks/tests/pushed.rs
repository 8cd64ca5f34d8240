//! GEMMs that send their tiles to other ranks as they store them, against their definition and against tasks that send: exact.

mod support;

use std::time::Duration;

use maco::{CallShape, Communicator, Device, Fault, PlanOptions, TensorElement, Via, bf16};
use ranks::pushed::{of_bf16, of_f32, ways};
use support::{Value, World, everywhere, number, short};

everywhere!(halves, whole, in_parts, every_way, every_way_of_all);

/// Rows that end in a tile, of the GEMM or of the all-reduce; several tiles, and one GEMM.
fn shapes(world: &World) -> &'static [[u64; 3]] {
    match () {
        () if short() => &[[200, 256, 72]],
        () if world.device.is_gpu() => &[[200, 512, 72], [65, 256, 136]],
        () => &[[200, 256, 40], [65, 256, 24]],
    }
}

fn halves(world: &World) {
    each::<bf16>(world, |device, [m, n, k], options| {
        let plan = of_bf16::plan_with(device, of_bf16::Dims { M: m, N: n, K: k }, options).unwrap();
        let pushed = [1, 3].map(|call| plan.graph().calls[call].pushed_by.is_some());
        (pushed, Box::new(move |x, w, y, other| plan.run(x, w, y, other).map(drop)))
    });
}

fn whole(world: &World) {
    each::<f32>(world, |device, [m, n, k], options| {
        let plan = of_f32::plan_with(device, of_f32::Dims { M: m, N: n, K: k }, options).unwrap();
        let pushed = [1, 3].map(|call| plan.graph().calls[call].pushed_by.is_some());
        (pushed, Box::new(move |x, w, y, other| plan.run(x, w, y, other).map(drop)))
    });
}

/// A GEMM of six tiles of which the last two are split: it sends the first ones, tasks the others.
fn in_parts(world: &World) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let device = &world.device;
    let [m, n, k] = [328, 512, 136];
    let shape = |call, tile: [u32; 2]| CallShape { call, tile: Some(tile.to_vec()), ..CallShape::default() };
    let gemm = CallShape { split: Some(2), whole: 4, ..shape(0, [128, 256]) };
    let options = world.options.clone().shapes(vec![gemm, shape(1, [64, 256]), shape(2, [64, 128]), shape(3, [64, 256])]);
    let plan = of_bf16::plan_with(device, of_bf16::Dims { M: m, N: n, K: k }, &options.via(Via::OneShot)).unwrap();
    if world.pushes && ranks > 1 {
        assert_eq!((plan.graph().calls[1].pushed_by, plan.graph().calls[1].whole), (Some(0), 8));
    }
    let [mut y, mut other] = [(); 2].map(|()| device.zeros::<bf16>([m, n]).unwrap());
    for launch in 0..3 {
        // Row r of x and row c of w are equal numbers, so that their product is known.
        let [a, b] = [rank + launch, 1].map(|salt| move |row: u64| ((row + u64::from(salt)) % 3) as i64 - 1);
        let rows = |count: u64, of: &dyn Fn(u64) -> i64| {
            let values: Vec<bf16> = (0..count * k).map(|at| bf16::of(if at % k < 8 { of(at / k) } else { 0 })).collect();
            device.upload(&values, [count, k]).unwrap()
        };
        let (x, w) = (rows(m, &a), rows(n, &b));
        plan.run(&x, &w, &mut y, &mut other).unwrap();
        for (found, what) in [(&y, "in parts"), (&other, "of other tiles")] {
            for (at, value) in (0..).zip(found.download().unwrap()) {
                let of = |rank: u32| 8 * (((at / n + u64::from(rank + launch)) % 3) as i64 - 1) * b(at % n);
                let expected = bf16::of((0..ranks).map(of).sum());
                assert!(value == expected, "{what}, of rank {rank} of {ranks}, launch {launch}, {at}: {value:?}, not {expected:?}");
            }
        }
    }
}

/// Numbers whose sums are rounded, once, whichever way their tiles go: the bits of all ways and of all ranks are the same.
fn every_way(world: &World) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let device = &world.device;
    let [m, n, k] = if device.is_gpu() && !short() { [200, 512, 136] } else { [136, 256, 24] };
    let plan = ways::plan_with(device, ways::Dims { M: m, N: n, K: k }, &world.options).unwrap();
    let text = plan.graph().to_string();
    for (way, times) in [("  packets", 1), ("  one-shot", if ranks > 1 { 1 } else { 3 }), ("  two-shot", if ranks > 1 { 2 } else { 0 })] {
        assert_eq!(text.matches(way).count(), times, "{way}: {text}");
    }
    if world.pushes && ranks > 1 {
        let pushed = [1, 2, 3, 5].map(|call: usize| plan.graph().calls[call].pushed_by);
        assert_eq!(pushed, [None, Some(0), None, Some(4)], "{text}");
    }
    for launch in 0..3 {
        let rows = |count: u64, salt: u64| {
            // Of many exponents, so that most sums are not exact in bf16.
            let value = |at: u64| bf16::from_f64(number(rank, at, salt) as f64 * 1.37 * f64::powi(2.0, (at % 7) as i32 - 3));
            device.upload(&(0..count * k).map(value).collect::<Vec<_>>(), [count, k]).unwrap()
        };
        let (x, w) = (rows(m, launch), rows(n, launch + 100));
        let mut sums = [(); 4].map(|()| device.upload(&vec![bf16::NAN; (m * n) as usize], [m, n]).unwrap());
        let [a, b, c, d] = &mut sums;
        plan.run(&x, &w, a, b, c, d).unwrap();
        let bits = sums.map(|sum| sum.download().unwrap().into_iter().map(bf16::to_bits).collect::<Vec<u16>>());
        assert!(!bits[0].iter().any(|&bits| bf16::from_bits(bits).is_nan()));
        for (way, other) in ["one-shot", "two-shot", "two-shot of another GEMM"].into_iter().zip(&bits[1..]) {
            let differ = bits[0].iter().zip(other).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 0, "of rank {rank} of {ranks}, launch {launch}: {way} has other bits than packets");
        }
        let own: Vec<u8> = bits[0].iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let all = world.communicator.all_gather_bytes(&own).unwrap();
        assert!(all.iter().all(|bits| *bits == own), "ranks have other bits, launch {launch}");
    }
}

/// The options say which way all sums go whose calls do not: the same bits, each way that kernels have. On CPU ranks NCCL is left to what the plan chooses; what it does on GPUs is
/// in `beside`.
fn every_way_of_all(world: &World) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let device = &world.device;
    let [m, n, k] = if device.is_gpu() && !short() { [200, 512, 136] } else { [136, 256, 24] };
    let rows = |count: u64, salt: u64| {
        let value = |at: u64| bf16::from_f64(number(rank, at, salt) as f64 * 1.37 * f64::powi(2.0, (at % 7) as i32 - 3));
        device.upload(&(0..count * k).map(value).collect::<Vec<_>>(), [count, k]).unwrap()
    };
    let (x, w) = (rows(m, 3), rows(n, 103));
    let mut first: Option<Vec<u16>> = None;
    for via in Via::ALL.into_iter().filter(|via| *via != Via::Nccl || !device.is_gpu()) {
        let plan = of_bf16::plan_with(device, of_bf16::Dims { M: m, N: n, K: k }, &world.options.clone().via(via)).unwrap();
        for way in [1, 3].map(|call| plan.graph().exchange(call).unwrap()) {
            let (begin, why) = match via {
                Via::Packets => ("packets", "(option)"),
                Via::OneShot => ("one-shot, ", "(option)"),
                Via::TwoShot if ranks == 1 => ("one-shot, ", "(only way)"),
                Via::TwoShot => ("two-shot, ", "(option)"),
                _ => ("", if ranks == 1 { "(only way)" } else { "(model)" }),
            };
            assert!(way.starts_with(begin) && way.ends_with(why), "{via:?}, {ranks} ranks: {way}");
        }
        let mut sums = [(); 2].map(|()| device.upload(&vec![bf16::NAN; (m * n) as usize], [m, n]).unwrap());
        let [y, other] = &mut sums;
        plan.run(&x, &w, y, other).unwrap();
        for sum in sums {
            let bits: Vec<u16> = sum.download().unwrap().into_iter().map(bf16::to_bits).collect();
            assert!(!bits.iter().any(|&bits| bf16::from_bits(bits).is_nan()), "{via:?}");
            assert!(first.get_or_insert_with(|| bits.clone()) == &bits, "of rank {rank} of {ranks}: {via:?} has other bits");
        }
    }
}

type Run<E> = Box<dyn FnMut(&maco::Tensor<E>, &maco::Tensor<E>, &mut maco::Tensor<E>, &mut maco::Tensor<E>) -> Result<(), maco::Error>>;

/// `plan`: its plan with these options, and which of its all-reduces have their tiles sent by GEMMs.
fn each<E: Value + TensorElement>(world: &World, plan: impl Fn(&maco::Device, [u64; 3], &PlanOptions) -> ([bool; 2], Run<E>)) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let device = &world.device;
    let columns = if size_of::<E>() == 4 { 128 } else { 256 };
    let shape = |call, tile: [u32; 2]| CallShape { call, tile: Some(tile.to_vec()), ..CallShape::default() };
    let shapes_of_calls = vec![shape(0, [128, 256]), shape(1, [64, 256]), shape(2, [64, columns]), shape(3, [64, 64])];
    for &[m, n, k] in shapes(world) {
        let options = world.options.clone().shapes(shapes_of_calls.clone());
        let (pushes, mut run) = plan(device, [m, n, k], &options);
        let (none, mut sent) = plan(device, [m, n, k], &options.clone().push_tiles(false));
        assert_eq!(none, [false; 2]);
        if world.pushes {
            // The second has tiles of 8 KiB of half precision: packets.
            assert_eq!(pushes, [ranks > 1, ranks > 1 && columns == 128], "[{m}, {n}]");
        }
        // Small, so that all sums are exact in every element.
        let value = |rank: u32, at: u64, salt: u64| number(rank, at, salt).signum();
        for launch in 0..3 {
            let x: Vec<i64> = (0..m * k).map(|at| value(rank, at, launch)).collect();
            let w: Vec<i64> = (0..n * k).map(|at| value(rank, at, launch + 100)).collect();
            let own: Vec<i64> = products(&x, &w, [m, n, k]);
            let of = |numbers: &[i64]| numbers.iter().map(|&number| E::of(number)).collect::<Vec<E>>();
            let (x, w) = (device.upload(&of(&x), [m, k]).unwrap(), device.upload(&of(&w), [n, k]).unwrap());
            let new = || device.upload(&vec![E::of(99); (m * n) as usize], [m, n]).unwrap();
            let (mut y, mut other, mut y_sent, mut other_sent) = (new(), new(), new(), new());
            run(&x, &w, &mut y, &mut other).unwrap();
            sent(&x, &w, &mut y_sent, &mut other_sent).unwrap();
            let bytes: Vec<u8> = own.iter().flat_map(|sum| (*sum as i32).to_le_bytes()).collect();
            let all = world.communicator.all_gather_bytes(&bytes).unwrap();
            for (found, what) in [(&y, "pushed"), (&other, "of other tiles"), (&y_sent, "sent"), (&other_sent, "sent, of other tiles")] {
                for (at, value) in found.download().unwrap().into_iter().enumerate() {
                    let of = |bytes: &Vec<u8>| i64::from(i32::from_le_bytes(bytes[4 * at..][..4].try_into().unwrap()));
                    let expected = E::of(all.iter().map(of).sum::<i64>());
                    assert!(
                        value == expected,
                        "{what} [{m}, {n}, {k}] of rank {rank} of {ranks}, launch {launch}, {at}: {value:?}, not {expected:?}"
                    );
                }
            }
        }
    }
}

/// x · wᵀ.
fn products(x: &[i64], w: &[i64], [m, n, k]: [u64; 3]) -> Vec<i64> {
    let [m, n, k] = [m, n, k].map(|extent| extent as usize);
    let row = |of: &[i64], at: usize| of[at * k..][..k].iter().map(|&value| value as i8).collect::<Vec<i8>>();
    let w: Vec<Vec<i8>> = (0..n).map(|column| row(w, column)).collect();
    let dot = |a: &[i8], b: &[i8]| a.iter().zip(b).map(|(a, b)| i64::from(a * b)).sum::<i64>();
    (0..m).flat_map(|at| w.iter().map(|column| dot(&row(x, at), column)).collect::<Vec<i64>>()).collect()
}

/// A GEMM of rank 0 stops in the midst of a tile. Nobody is told that the tile is there: all ranks have errors, those of others name rank 0, and all go on when they have
/// recovered.
///
/// On CPU ranks alone: code for a GPU has the fault only if it is built with it.
#[test]
fn a_gemm_that_stops_tells_nobody() {
    let results = Communicator::threads(2, |communicator| {
        let device = Device::cpu_with(2);
        let shape = |call, tile: [u32; 2]| CallShape { call, tile: Some(tile.to_vec()), ..CallShape::default() };
        let shapes = vec![shape(0, [128, 256]), shape(1, [64, 256]), shape(2, [128, 256]), shape(3, [64, 256])];
        let deadline = Duration::from_millis(if communicator.rank() == 0 { 200 } else { 1500 });
        let options = PlanOptions::new().communicator(communicator.clone()).pipelined(true).shapes(shapes).deadline(deadline);
        let plan = of_bf16::plan_with(&device, of_bf16::Dims { M: 128, N: 256, K: 64 }, &options).unwrap();
        assert_eq!(plan.graph().pushes(0), Some(1));
        let ones = |rows| device.upload(&vec![bf16::ONE; rows as usize * 64], [rows, 64]).unwrap();
        let (x, w) = (ones(128), ones(256));
        let run = || {
            let [mut y, mut other] = [(); 2].map(|()| device.zeros::<bf16>([128, 256]).unwrap());
            plan.run(&x, &w, &mut y, &mut other)?;
            assert!([y, other].iter().all(|sums| sums.download().unwrap().iter().all(|sum| sum.to_f32() == 128.0)));
            Ok::<(), maco::Error>(())
        };
        run().unwrap();
        if communicator.rank() == 0 {
            plan.inject(Some(Fault::ExtraBytes(plan.graph().calls[0].tasks.start))).unwrap();
        }
        let error = run().unwrap_err().to_string();
        plan.inject(None).unwrap();
        plan.recover().unwrap();
        (0..3).for_each(|_| run().unwrap());
        error
    });
    let errors = results.unwrap();
    assert!(errors[0].contains("linear"), "{}", errors[0]);
    assert!(errors[1].contains(" waits for rank 0 "), "{}", errors[1]);
}
