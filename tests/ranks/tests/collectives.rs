//! Every collective against its definition: worlds of one to eight ranks, ragged sizes, every schedule, delays; exact.
//!
//! Takes half a minute: worlds of up to eight ranks, each with its threads, on a few cores, for every collective, size and schedule.

mod support;

use maco::{Communicator, Device, PlanOptions, TensorElement, bf16, f16};
use ranks::collectives;
use support::{Value, World, everywhere, number, numbers, short};

/// Sizes that no tile divides, one element, nothing, several tiles.
const SHAPES: [[u64; 2]; 6] = [[1, 1], [0, 3], [7, 9], [8, 256], [65, 300], [3, 1025]];

fn shapes() -> &'static [[u64; 2]] {
    if short() { &SHAPES[2..5] } else { &SHAPES }
}

everywhere!(of_bf16, of_f16, of_f32, of_i32, large, norms, one_way, chains, bits_are_the_same);

macro_rules! of_element {
    ($name:ident, $element:ty) => {
        fn $name(world: &World) {
            for &shape in shapes() {
                every::<$element>(world, shape, |device, [m, n], options| {
                    let ranks = u64::from(world.communicator.ranks());
                    let dims = collectives::$name::Dims { M: m, N: n, R: ranks };
                    let plan = collectives::$name::plan_with(device, dims, options).unwrap();
                    Box::new(move |x, mine, [sum, most, least, scattered], [gathered, swapped]| {
                        plan.run(x, mine, sum, most, least, gathered, scattered, swapped).map(drop)
                    })
                });
            }
        }
    };
}
of_element!(of_bf16, bf16);
of_element!(of_f16, f16);
of_element!(of_f32, f32);
of_element!(of_i32, i32);

type Run<E> =
    Box<dyn FnMut(&maco::Tensor<E>, &maco::Tensor<E>, [&mut maco::Tensor<E>; 4], [&mut maco::Tensor<E>; 2]) -> Result<(), maco::Error>>;

/// Several launches of one plan, each with other numbers.
fn every<E: Value + TensorElement>(world: &World, [m, n]: [u64; 2], plan: impl Fn(&Device, [u64; 2], &PlanOptions) -> Run<E>) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let (device, elements) = (&world.device, m * n);
    let mut run = plan(device, [m, n], &world.options);
    for launch in 0..if short() { 3 } else { 5 } {
        let x = device.upload(&numbers::<E>(rank, elements, launch), [m, n]).unwrap();
        let mine = device.upload(&numbers::<E>(rank, u64::from(ranks) * elements, launch + 100), [u64::from(ranks), m, n]).unwrap();
        let flat = || device.upload(&vec![E::of(99); elements as usize], [m, n]).unwrap();
        let deep = || device.upload(&vec![E::of(99); (u64::from(ranks) * elements) as usize], [u64::from(ranks), m, n]).unwrap();
        let (mut sum, mut most, mut least, mut scattered, mut gathered, mut swapped) = (flat(), flat(), flat(), flat(), deep(), deep());
        run(&x, &mine, [&mut sum, &mut most, &mut least, &mut scattered], [&mut gathered, &mut swapped]).unwrap();
        let of = |rank: u32, at: u64| number(rank, at, launch);
        let of_mine = |rank: u32, plane: u32, at: u64| number(rank, u64::from(plane) * elements + at, launch + 100);
        let check = |found: &maco::Tensor<E>, expected: &dyn Fn(u32, u64) -> i64, what: &str| {
            for (place, value) in found.download().unwrap().into_iter().enumerate() {
                let (plane, at) = (place as u64 / elements, place as u64 % elements);
                let expected = E::of(expected(plane as u32, at));
                assert!(
                    value == expected,
                    "{what} [{m}, {n}] of rank {rank} of {ranks}, launch {launch}, plane {plane}, {at}: {value:?}, not {expected:?}"
                );
            }
        };
        check(&sum, &|_, at| (0..ranks).map(|rank| of(rank, at)).sum(), "all_reduce");
        check(&most, &|_, at| (0..ranks).map(|rank| of(rank, at)).max().unwrap(), "all_reduce_max");
        check(&least, &|_, at| (0..ranks).map(|rank| of(rank, at)).min().unwrap(), "all_reduce_min");
        check(&gathered, &of, "all_gather");
        check(&scattered, &|_, at| (0..ranks).map(|from| of_mine(from, rank, at)).sum(), "reduce_scatter");
        check(&swapped, &|plane, at| of_mine(plane, rank, at), "all_to_all");
    }
}

/// Tiles that go with signals, beside ones that go as packets: a whole one, ones that end inside a tile, with whole blocks of eight and without.
fn large(world: &World) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let device = &world.device;
    let shapes: &[[u64; 2]] = if short() { &[[66, 136], [65, 131]] } else { &[[64, 128], [130, 264], [65, 300], [1, 1]] };
    for &[m, n] in shapes {
        let plan =
            collectives::large::plan_with(device, collectives::large::Dims { M: m, N: n, R: u64::from(ranks) }, &world.options).unwrap();
        let elements = m * n;
        for launch in 0..if short() { 3 } else { 5 } {
            let all = u64::from(ranks) * elements;
            let x = device.upload(&numbers::<bf16>(rank, elements, launch), [m, n]).unwrap();
            let x32 = device.upload(&numbers::<f32>(rank, elements, launch), [m, n]).unwrap();
            let mine = device.upload(&numbers::<bf16>(rank, all, launch + 100), [u64::from(ranks), m, n]).unwrap();
            let [mut sum, mut scattered] = [(); 2].map(|()| device.zeros::<bf16>([m, n]).unwrap());
            let mut sum32 = device.zeros::<f32>([m, n]).unwrap();
            let [mut small, mut gathered, mut swapped] = [(); 3].map(|()| device.zeros::<bf16>([u64::from(ranks), m, n]).unwrap());
            plan.run(&x, &mine, &x32, &mut sum, &mut sum32, &mut small, &mut gathered, &mut scattered, &mut swapped).unwrap();
            let of = |rank: u64, at: u64| number(rank as u32, at, launch);
            let of_mine = |rank: u64, plane: u64, at: u64| number(rank as u32, plane * elements + at, launch + 100);
            let (every, own) = (|| 0..u64::from(ranks), u64::from(rank));
            let check = |found: &maco::Tensor<bf16>, expected: &dyn Fn(u64, u64) -> i64, what: &str| {
                for (place, value) in (0..).zip(found.download().unwrap()) {
                    let expected = bf16::of(expected(place / elements, place % elements));
                    assert!(
                        value == expected,
                        "{what} [{m}, {n}] of rank {rank} of {ranks}, launch {launch}, {place}: {value:?}, not {expected:?}"
                    );
                }
            };
            check(&sum, &|_, at| every().map(|rank| of(rank, at)).sum(), "all_reduce");
            check(&small, &of, "all_gather of small tiles");
            check(&gathered, &of, "all_gather");
            check(&scattered, &|_, at| every().map(|from| of_mine(from, own, at)).sum(), "reduce_scatter");
            check(&swapped, &|plane, at| of_mine(plane, own, at), "all_to_all");
            let sum32 = sum32.download().unwrap();
            let expected = (0..elements).map(|at| every().map(|rank| of(rank, at)).sum::<i64>() as f32);
            assert_eq!(sum32, expected.collect::<Vec<f32>>(), "all_reduce of f32 [{m}, {n}] of rank {rank} of {ranks}, launch {launch}");
        }
    }
}

/// Rows of one block, of several for each thread, and what no block divides.
const ROWS: [[u64; 2]; 6] = [[1, 1], [0, 3], [7, 9], [3, 1025], [6, 6144], [2, 20_003]];

fn norms(world: &World) {
    for &[m, n] in if short() { &ROWS[2..4] } else { &ROWS[..] } {
        norm::<bf16>(world, [m, n], 0.005, |device, options| {
            let plan = collectives::norm_of_bf16::plan_with(device, collectives::norm_of_bf16::Dims { M: m, N: n }, options).unwrap();
            Box::new(move |[x, residual, weight], [sum, y, sum_of_two, y_of_two]| {
                plan.run(x, residual, weight, sum, y, sum_of_two, y_of_two, 1e-5).unwrap();
            })
        });
        norm::<f16>(world, [m, n], 0.001, |device, options| {
            let plan = collectives::norm_of_f16::plan_with(device, collectives::norm_of_f16::Dims { M: m, N: n }, options).unwrap();
            Box::new(move |[x, residual, weight], [sum, y, sum_of_two, y_of_two]| {
                plan.run(x, residual, weight, sum, y, sum_of_two, y_of_two, 1e-5).unwrap();
            })
        });
        norm::<f32>(world, [m, n], 1e-5, |device, options| {
            let plan = collectives::norm_of_f32::plan_with(device, collectives::norm_of_f32::Dims { M: m, N: n }, options).unwrap();
            Box::new(move |[x, residual, weight], [sum, y, sum_of_two, y_of_two]| {
                plan.run(x, residual, weight, sum, y, sum_of_two, y_of_two, 1e-5).unwrap();
            })
        });
    }
}

type RunNorm<E> = Box<dyn FnMut([&maco::Tensor<E>; 3], [&mut maco::Tensor<E>; 4])>;

/// One task and two have the same sums, and the norm is that of a row in `f64` to `error` of the largest.
fn norm<E: Value + TensorElement>(world: &World, [m, n]: [u64; 2], error: f64, plan: impl Fn(&Device, &PlanOptions) -> RunNorm<E>) {
    let (rank, ranks, device) = (world.communicator.rank(), world.communicator.ranks(), &world.device);
    let mut run = plan(device, &world.options);
    for launch in 0..if short() { 2 } else { 4 } {
        let x = device.upload(&numbers::<E>(rank, m * n, launch), [m, n]).unwrap();
        let residual = device.upload(&numbers::<E>(0, m * n, launch + 50), [m, n]).unwrap();
        let weight = device.upload(&numbers::<E>(0, n, launch + 60), [n]).unwrap();
        let [mut sum, mut y, mut sum_of_two, mut y_of_two] =
            [(); 4].map(|()| device.upload(&vec![E::of(99); (m * n) as usize], [m, n]).unwrap());
        run([&x, &residual, &weight], [&mut sum, &mut y, &mut sum_of_two, &mut y_of_two]);
        let (sum, two, y) = (sum.download().unwrap(), sum_of_two.download().unwrap(), y.download().unwrap());
        let expected = |at: u64| (0..ranks).map(|rank| number(rank, at, launch)).sum::<i64>() + number(0, at, launch + 50);
        for row in 0..m {
            let sums: Vec<f64> = (0..n).map(|col| expected(row * n + col) as f64).collect();
            let factor = 1.0 / (sums.iter().map(|v| v * v).sum::<f64>() / n as f64 + 1e-5).sqrt();
            for col in 0..n {
                let at = (row * n + col) as usize;
                let place = format!("[{m}, {n}] of rank {rank} of {ranks}, launch {launch}, row {row}, column {col}");
                assert_eq!(sum[at], E::of(expected(at as u64)), "sum {place}");
                assert_eq!(sum[at], two[at], "sum of two tasks {place}");
                let normed = sums[col as usize] * factor * number(0, col, launch + 60) as f64;
                let found = y[at].number();
                assert!((found - normed).abs() <= error * (1.0 + normed.abs()), "norm {place}: {found}, not {normed}");
            }
        }
    }
}

/// Who sends changes from launch to launch, and nobody answers.
fn one_way(world: &World) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    for &[m, n] in shapes() {
        let device = &world.device;
        let plan = collectives::one_way::plan_with(device, collectives::one_way::Dims { M: m, N: n }, &world.options).unwrap();
        for launch in 0..if short() { 4 } else { 12 } {
            let pick = |salt: u64| (number(0, launch, salt) + 7) as u32;
            let (root, from, to, by) = (pick(1), pick(2), pick(3), number(1, launch, 4) as i32);
            let x = device.upload(&numbers::<f32>(rank, m * n, launch), [m, n]).unwrap();
            let [mut told, mut sent, mut passed] = [(); 3].map(|()| device.zeros::<f32>([m, n]).unwrap());
            plan.run(&x, &mut told, &mut sent, &mut passed, root, from, to, by).unwrap();
            let check = |found: &maco::Tensor<f32>, of: u32, what: &str| {
                let expected = numbers::<f32>(of, m * n, launch);
                assert_eq!(found.download().unwrap(), expected, "{what} [{m}, {n}] on rank {rank} of {ranks}, launch {launch}");
            };
            check(&told, root % ranks, "broadcast");
            check(&sent, if to % ranks == rank { from % ranks } else { rank }, "send");
            check(&passed, (i64::from(rank) - i64::from(by)).rem_euclid(i64::from(ranks)) as u32, "ring");
        }
    }
}

fn chains(world: &World) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let [m, n] = [20, 300];
    let device = &world.device;
    let plan = collectives::chain::plan_with(device, collectives::chain::Dims { M: m, N: n }, &world.options).unwrap();
    for launch in 0..if short() { 4 } else { 20 } {
        let x = device.upload(&numbers::<f32>(rank, m * n, launch), [m, n]).unwrap();
        let [mut y, mut mean] = [(); 2].map(|()| device.zeros::<f32>([m, n]).unwrap());
        plan.run(&x, &mut y, &mut mean).unwrap();
        let of = |rank: u32, at: u64| number(rank, at, launch);
        let all = |at: u64| 2 * (0..ranks).map(|rank| of(rank, at)).sum::<i64>();
        let (y, mean) = (y.download().unwrap(), mean.download().unwrap());
        for at in 0..m * n {
            assert_eq!(y[at as usize], (all(at) + of((rank + 1) % ranks, at)) as f32, "rank {rank} of {ranks}, launch {launch}, {at}");
            let sum: i64 = (0..ranks).map(|rank| all(at) + of(rank, at)).sum();
            assert_eq!(mean[at as usize], sum as f32 / ranks as f32, "rank {rank} of {ranks}, launch {launch}, {at}");
        }
    }
}

/// Sums of numbers that no element has exactly: the same bits on all ranks, in every run, and those of adding in the order of ranks and rounding once.
fn bits_are_the_same(world: &World) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let [m, n] = [33, 65];
    let device = &world.device;
    let dims = collectives::of_bf16::Dims { M: m, N: n, R: u64::from(ranks) };
    let plan = collectives::of_bf16::plan_with(device, dims, &world.options).unwrap();
    let of = |rank: u32| -> Vec<bf16> {
        (0..m * n).map(|at| bf16::from_f32(number(rank, at, 7) as f32 * 1.001f32.powi(number(rank, at, 8) as i32 * 40))).collect()
    };
    let x = device.upload(&of(rank), [m, n]).unwrap();
    let planes = [u64::from(ranks), m, n];
    let mine = device.zeros::<bf16>(planes).unwrap();
    for _ in 0..3 {
        let [mut sum, mut most, mut least, mut scattered] = [(); 4].map(|()| device.zeros::<bf16>([m, n]).unwrap());
        let [mut gathered, mut swapped] = [(); 2].map(|()| device.zeros::<bf16>(planes).unwrap());
        plan.run(&x, &mine, &mut sum, &mut most, &mut least, &mut gathered, &mut scattered, &mut swapped).unwrap();
        let parts: Vec<Vec<bf16>> = (0..ranks).map(of).collect();
        let expected = (0..(m * n) as usize).map(|at| {
            let terms = parts.iter().map(|part| part[at].to_f32());
            bf16::from_f32(terms.reduce(|sum, term| sum + term).unwrap()).to_bits()
        });
        let found: Vec<u16> = sum.download().unwrap().iter().map(|value| value.to_bits()).collect();
        assert_eq!(found, expected.collect::<Vec<u16>>());
    }
}

/// Plans come and go, in one order on all ranks, and find room again; two communicators at once.
#[test]
fn memory_of_messages_is_reused() {
    let run = |communicator: Communicator| {
        communicator.set_message_memory(8 << 20).unwrap();
        let device = Device::cpu_with(2);
        let options = PlanOptions::new().communicator(communicator.clone());
        for n in (0..60).map(|n| 100 + n * 7) {
            let plan = collectives::chain::plan_with(&device, collectives::chain::Dims { M: 30, N: n }, &options).unwrap();
            let x = device.upload(&numbers::<f32>(communicator.rank(), 30 * n, n), [30, n]).unwrap();
            let [mut y, mut mean] = [(); 2].map(|()| device.zeros::<f32>([30, n]).unwrap());
            plan.run(&x, &mut y, &mut mean).unwrap();
        }
        let used = communicator.message_memory_high_water();
        assert!(used > 1 << 20 && used <= 8 << 20, "{used}");
        assert_eq!(communicator.set_message_memory(1).unwrap_err().code(), 100);
        // What nobody answers has a place for each tile.
        let error =
            ranks::sizes::sent_of_f32::plan_with(&device, ranks::sizes::sent_of_f32::Dims { M: 3000, N: 3000 }, &options).err().unwrap();
        assert!(error.code() == 100 && error.to_string().contains("messages of megakernel sent_of_f32"), "{error}");
        // The ranks go on.
        communicator.barrier().unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| Communicator::threads(3, run).unwrap());
        scope.spawn(|| Communicator::threads(2, run).unwrap());
    });
}
