//! Every collective of every element, in megakernels and outside, from nothing to a gibibyte; odd sizes, and tensors that begin anywhere; exact.
//!
//! Gibibytes are for GPUs. Of four elements they take half a minute, in which numbers are stored and looked at: they are sent in a second.
//! On the CPU all of it takes half a minute, too: sixteen collectives of each element and size, in seven worlds of up to eight ranks.

mod support;

use maco::{RankElement, Reduce, Schedule, TensorElement, bf16, f16};
use ranks::sizes;
use support::periodic::{Memory, Numbers, plane, slice};
use support::{Value, World, everywhere, number, on_gpus, short};

/// Nothing, one element, no multiple of anything, whole tiles, more than a tile of each kind, mebibytes.
const SHAPES: [[u64; 2]; 7] = [[0, 5], [1, 1], [3, 7], [37, 41], [64, 256], [129, 1031], [1030, 1030]];

everywhere!(of_bf16, of_f16, of_f32, of_i32, means, slices);

/// On the CPU the largest are for one world: each takes some seconds there, where a GPU takes a millisecond.
fn shapes(world: &World) -> &'static [[u64; 2]] {
    match (world.communicator.ranks(), world.device.workers()) {
        _ if short() => &SHAPES[..4],
        _ if world.device.is_gpu() => &SHAPES,
        (2, 1) => &SHAPES,
        (3, _) => &SHAPES[..6],
        _ => &SHAPES[..4],
    }
}

/// Makes the memory for messages as large as the largest of these shapes needs it, and a mebibyte more.
fn make_room(world: &World, shapes: &[[u64; 2]], bytes: usize) {
    let most = shapes.iter().map(|[m, n]| m.next_multiple_of(64) * n.next_multiple_of(256)).max().unwrap() as usize;
    // The three that nobody answers go as packets, of which each rank has two places for each: 4·R times as much.
    world.communicator.set_message_memory((1 << 20) + 12 * world.communicator.ranks() as usize * most * bytes).unwrap();
}

/// What rank `rank` has.
fn of<E: Value + TensorElement>(rank: u32) -> Numbers<E> {
    Numbers::new(|at| E::of(number(rank, at, 3)))
}

/// The sums of what all ranks have.
fn sums<E: Value + TensorElement>(ranks: u32) -> Numbers<E> {
    Numbers::new(|at| E::of((0..ranks).map(|rank| number(rank, at, 3)).sum()))
}

macro_rules! of_element {
    ($test:ident, $inside:ident, $gibibyte:ident, $element:ident, $sum:ident, $planes:ident, $sent:ident) => {
        fn $test(world: &World) {
            make_room(world, shapes(world), size_of::<$element>());
            for &shape in shapes(world) {
                let memory = || Memory::own(&world.device);
                $inside(world, &memory(), shape, shape);
                outside::<$element>(world, &memory(), shape[0] * shape[1]);
            }
        }

        #[test]
        #[ignore = "gpu"]
        fn $gibibyte() {
            gibibyte(size_of::<$element>() as u64, |world, flat, deep| {
                let memory = || Memory::own(&world.device);
                $inside(world, &memory(), flat, deep);
                outside::<$element>(world, &memory(), flat[0] * flat[1]);
            });
        }

        /// In megakernels: on tensors of m by n, and of a plane of k by l for each rank.
        fn $inside(world: &World, memory: &Memory<$element>, [m, n]: [u64; 2], [k, l]: [u64; 2]) {
            let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
            let (device, options, own) = (&world.device, &world.options, of::<$element>(rank));
            let what = |what: &str| format!("{what} of {m} by {n} and {k} by {l}, rank {rank} of {ranks}");
            let launches = if m * n < 1 << 24 { 3 } else { 1 };

            let x = memory.filled(&own, &[m, n]);
            let [mut y, mut sent, mut passed] = [(); 3].map(|()| memory.tensor(&[m, n]));
            let plan = sizes::$sum::plan_with(device, sizes::$sum::Dims { M: m, N: n }, options).unwrap();
            for _ in 0..launches {
                plan.run(&x, &mut y).unwrap();
            }
            sums(ranks).check(&y, 0, &what("all_reduce"));
            drop(plan);

            let plan = sizes::$sent::plan_with(device, sizes::$sent::Dims { M: m, N: n }, options).unwrap();
            for turn in 0..launches {
                let (root, from, to, by) = (turn + 1, turn, turn + 2, turn + 1);
                plan.run(&x, &mut y, &mut sent, &mut passed, root, from, to, by as i32).unwrap();
                of(root % ranks).check(&y, 0, &what("broadcast"));
                of(if to % ranks == rank { from % ranks } else { rank }).check(&sent, 0, &what("send"));
                of((rank + ranks - by % ranks) % ranks).check(&passed, 0, &what("ring"));
            }
            drop((plan, x, y, sent, passed));

            let (x, mine) = (memory.filled(&own, &[k, l]), memory.filled(&own, &[ranks.into(), k, l]));
            let [mut gathered, mut swapped] = [(); 2].map(|()| memory.tensor(&[ranks.into(), k, l]));
            let mut scattered = memory.tensor(&[k, l]);
            let dims = sizes::$planes::Dims { M: k, N: l, R: ranks.into() };
            let plan = sizes::$planes::plan_with(device, dims, options).unwrap();
            for _ in 0..launches {
                plan.run(&x, &mine, &mut gathered, &mut scattered, &mut swapped).unwrap();
            }
            if k * l == 0 {
                return;
            }
            let first = (u64::from(rank) * k * l) as usize;
            sums(ranks).check(&scattered, first, &what("reduce_scatter"));
            for from in 0..ranks {
                let theirs = of(from);
                theirs.check(&plane(&gathered, from), 0, &what("all_gather"));
                theirs.check(&plane(&swapped, from), first, &what("all_to_all"));
            }
        }
    };
}
of_element!(of_bf16, bf16_inside, gpu_a_gibibyte_of_bf16, bf16, sum_of_bf16, planes_of_bf16, sent_of_bf16);
of_element!(of_f16, f16_inside, gpu_a_gibibyte_of_f16, f16, sum_of_f16, planes_of_f16, sent_of_f16);
of_element!(of_f32, f32_inside, gpu_a_gibibyte_of_f32, f32, sum_of_f32, planes_of_f32, sent_of_f32);
of_element!(of_i32, i32_inside, gpu_a_gibibyte_of_i32, i32, sum_of_i32, planes_of_i32, sent_of_i32);

/// Outside of megakernels, on `len` elements.
fn outside<E: Value + RankElement>(world: &World, memory: &Memory<E>, len: u64) {
    let communicator = &world.communicator;
    let (rank, ranks, own) = (communicator.rank(), communicator.ranks(), of::<E>(communicator.rank()));
    let what = |what: &str| format!("{what} outside of a megakernel, of {len} elements, rank {rank} of {ranks}");

    let mut x = memory.filled(&own, &[len]);
    communicator.all_reduce(&mut x).unwrap();
    sums(ranks).check(&x, 0, &what("all_reduce"));
    // The same is everywhere: the greatest of it is it.
    communicator.all_reduce_by(&mut x, Reduce::Max).unwrap();
    sums(ranks).check(&x, 0, &what("all_reduce of the same"));
    own.fill(&x);
    communicator.broadcast(&mut x, ranks - 1).unwrap();
    of(ranks - 1).check(&x, 0, &what("broadcast"));
    drop(x);

    let each = len / u64::from(ranks);
    let (count, first) = (each as usize, (each * u64::from(rank)) as usize);
    let (x, mut y) = (memory.filled(&own, &[each]), memory.tensor(&[each * u64::from(ranks)]));
    communicator.all_gather(&x, &mut y).unwrap();
    let mine = memory.filled(&own, &[each * u64::from(ranks)]);
    let (mut scattered, mut swapped) = (memory.tensor(&[each]), memory.tensor(&[each * u64::from(ranks)]));
    communicator.reduce_scatter(&mine, &mut scattered, Reduce::Sum).unwrap();
    communicator.all_to_all(&mine, &mut swapped).unwrap();
    if each == 0 {
        return;
    }
    sums(ranks).check(&scattered, first, &what("reduce_scatter"));
    for from in 0..ranks {
        let theirs = of(from);
        theirs.check(&slice(&y, from as usize * count, count), 0, &what("all_gather"));
        theirs.check(&slice(&swapped, from as usize * count, count), first, &what("all_to_all"));
    }
}

/// Runs `test` on two and on four GPUs: shapes of a gibibyte, and of a gibibyte of all planes.
fn gibibyte(bytes: u64, test: impl Fn(&World, [u64; 2], [u64; 2]) + Sync) {
    if short() {
        return;
    }
    for ranks in [2, 4] {
        on_gpus(ranks, Schedule::Static, |world| {
            let [rows, columns] = [1 << 14, (1 << 16) / bytes];
            make_room(world, &[[rows, columns + 512]], bytes as usize);
            test(world, [rows, columns], [rows / u64::from(ranks), columns]);
        });
    }
}

/// Of elements that have a mean: multiples of the number of ranks, so that it is exact.
fn means(world: &World) {
    macro_rules! mean {
        ($element:ident, $kernel:ident, $shape:expr) => {
            let (rank, ranks, [m, n]) = (world.communicator.rank(), world.communicator.ranks(), $shape);
            let memory = Memory::own(&world.device);
            let own = Numbers::new(|at| $element::of(i64::from(ranks) * number(rank, at, 3)));
            let (x, mut y) = (memory.filled(&own, &[m, n]), memory.tensor(&[m, n]));
            let plan = sizes::$kernel::plan_with(&world.device, sizes::$kernel::Dims { M: m, N: n }, &world.options).unwrap();
            for _ in 0..3 {
                plan.run(&x, &mut y).unwrap();
                sums(ranks).check(&y, 0, &format!("the mean of {m} by {n}, rank {rank} of {ranks}"));
            }
        };
    }
    make_room(world, shapes(world), 4);
    for &shape in shapes(world) {
        mean!(bf16, mean_of_bf16, shape);
        mean!(f16, mean_of_f16, shape);
        mean!(f32, mean_of_f32, shape);
    }
}

/// Tensors that begin at no boundary, with something between rows: none of it changes.
fn slices(world: &World) {
    macro_rules! slices {
        ($element:ident, $inside:ident) => {
            for [first, gap] in [[1, 0], [3, 5], [8, 3]] {
                for shape in [[1, 1], [5, 19], [37, 136]] {
                    let memory = Memory::within(&world.device, first, gap);
                    $inside(world, &memory, shape, shape);
                    outside::<$element>(world, &memory, shape[0] * shape[1]);
                    memory.check(&format!("{shape:?} {first} elements behind a boundary, {gap} elements between rows"));
                }
            }
        };
    }
    slices!(bf16, bf16_inside);
    slices!(i32, i32_inside);
    if !short() && world.communicator.ranks() < 4 {
        slices!(f16, f16_inside);
        slices!(f32, f32_inside);
    }
}
