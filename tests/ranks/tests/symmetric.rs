//! Results in symmetric memory that other ranks store: exact, in every world, and refused where they cannot be.

mod support;

use std::time::Duration;

use maco::{Arguments, Communicator, Device, PlanOptions, TaskGraph, TensorElement, bf16};
use ranks::symmetric::{again, of_bf16, of_f32, of_i32, stores, unmarked};
use support::rendezvous::{Rendezvous, ends};
use support::{Value, World, everywhere, launched, numbers, short};

everywhere!(halves, whole, integers, over_and_over);

/// Rows that end in a tile; columns are whole blocks.
fn shapes() -> &'static [[u64; 2]] {
    if short() { &[[17, 72]] } else { &[[16, 64], [70, 200], [1, 8]] }
}

type Run<'r, E> = dyn Fn(&PlanOptions, [u64; 3], [&maco::Tensor<E>; 1], [&mut maco::Tensor<E>; 3]) -> Result<(), maco::Error> + 'r;

fn each<E: Value + TensorElement>(world: &World, run: &Run<'_, E>) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let (count, device) = (u64::from(ranks), &world.device);
    for &[m, n] in shapes() {
        let plane = m * n;
        // Two tensors, of which a launch has one: ranks say where the one at hand lies.
        let shape = [count, m, n];
        let mut stored = [(); 2].map(|()| world.communicator.symmetric_tensor::<E>(device, shape).unwrap());
        let (mut same, mut back) = (device.zeros::<E>(shape).unwrap(), device.zeros::<E>(shape).unwrap());
        for launch in 0..4u64 {
            let own: Vec<E> = numbers(rank, count * plane, launch);
            let x = device.upload(&own, shape).unwrap();
            // Ranks have other ones in the same launch.
            let y = &mut stored[(launch as usize + rank as usize) % 2];
            run(&world.options, [count, m, n], [&x], [&mut *y, &mut same, &mut back]).unwrap();
            let expected: Vec<E> = (0..ranks)
                .flat_map(|other| {
                    let all: Vec<E> = numbers(other, count * plane, launch);
                    all[(u64::from(rank) * plane) as usize..][..plane as usize].to_vec()
                })
                .collect();
            let found = y.download().unwrap();
            assert!(found == expected, "[{m}, {n}] of rank {rank} of {ranks}, launch {launch}: {found:?}, not {expected:?}");
            assert!(same.download().unwrap() == expected && back.download().unwrap() == own, "[{m}, {n}] of rank {rank}, launch {launch}");
        }
    }
}

macro_rules! tests {
    ($($name:ident: $kernel:ident, $element:ident;)*) => {$(
        fn $name(world: &World) {
            let plans = std::cell::RefCell::new(Vec::<([u64; 3], $kernel::Plan)>::new());
            each::<$element>(world, &|options, [r, m, n], [x], [y, same, back]| {
                let mut plans = plans.borrow_mut();
                if plans.iter().all(|(dims, _)| *dims != [r, m, n]) {
                    plans.push(([r, m, n], $kernel::plan_with(&world.device, $kernel::Dims { R: r, M: m, N: n }, options)?));
                }
                plans.iter().find(|(dims, _)| *dims == [r, m, n]).unwrap().1.run(x, y, same, back).map(drop)
            });
        }
    )*};
}
tests! {
    halves: of_bf16, bf16;
    whole: of_f32, f32;
    integers: of_i32, i32;
}

/// A result is stored again where tasks of the same launch have just read it.
fn over_and_over(world: &World) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let (count, device) = (u64::from(ranks), &world.device);
    let [m, n] = [40, 128];
    let plan = again::plan_with(device, again::Dims { R: count, M: m, N: n }, &world.options).unwrap();
    let mut y = world.communicator.symmetric_tensor::<f32>(device, [count, m, n]).unwrap();
    for launch in 0..5 {
        let x: Vec<f32> = numbers(rank, count * m * n, launch);
        plan.run(&device.upload(&x, [count, m, n]).unwrap(), &mut y).unwrap();
        let plane = (m * n) as usize;
        let expected: Vec<f32> =
            (0..ranks).flat_map(|other| numbers::<f32>(other, count * m * n, launch)[rank as usize * plane..][..plane].to_vec()).collect();
        // There, back, and there again.
        assert!(y.download().unwrap() == expected, "rank {rank} of {ranks}, launch {launch}");
    }
}

/// What cannot be stored is refused, by all ranks where they plan together; they go on.
#[test]
fn what_cannot_be_stored_is_refused() {
    let found = Communicator::threads(2, |communicator| {
        communicator.set_deadline(Duration::from_secs(20)).unwrap();
        let device = Device::cpu_with(2);
        let options = PlanOptions::new().communicator(communicator.clone());
        let unmarked = unmarked::plan_with(&device, unmarked::Dims { R: 2, M: 16, N: 64 }, &options).err().unwrap();
        let odd = of_f32::plan_with(&device, of_f32::Dims { R: 2, M: 16, N: 63 }, &options).err().unwrap();
        let plan = of_f32::plan_with(&device, of_f32::Dims { R: 2, M: 16, N: 64 }, &options).unwrap();
        let new = || device.zeros::<f32>([2, 16, 64]).unwrap();
        let (x, mut y, mut same, mut back) = (new(), new(), new(), new());
        let borrowed = plan.run(&x, &mut y, &mut same, &mut back).unwrap_err();
        let mut y = communicator.symmetric_tensor::<f32>(&device, [2, 16, 64]).unwrap();
        plan.run(&x, &mut y, &mut same, &mut back).unwrap();
        [unmarked, odd, borrowed].map(|error| (error.code(), error.to_string()))
    });
    for [unmarked, odd, borrowed] in found.unwrap() {
        assert_eq!([unmarked.0, odd.0, borrowed.0], [98, 98, 100]);
        assert!(unmarked.1.contains("`y`, which is not symmetric") && unmarked.1.contains("#[symmetric]"), "{}", unmarked.1);
        assert!(odd.1.contains("blocks of 8"), "{}", odd.1);
        assert!(
            borrowed.1.contains("`y` of megakernel `of_f32` is symmetric") && borrowed.1.contains("symmetric_tensor"),
            "{}",
            borrowed.1
        );
    }
}

/// Memory of tensors that all ranks have dropped is used again.
#[test]
fn dropped_tensors_are_used_again() {
    Communicator::threads(2, |communicator| {
        communicator.set_message_memory(1 << 20).unwrap();
        let device = Device::cpu_with(1);
        for _ in 0..20 {
            communicator.symmetric_tensor::<f32>(&device, [100_000]).unwrap();
        }
        let kept = communicator.symmetric_tensor::<f32>(&device, [200_000]).unwrap();
        assert_eq!(communicator.symmetric_tensor::<f32>(&device, [200_000]).unwrap_err().code(), 100);
        drop(kept);
        communicator.symmetric_tensor::<f32>(&device, [200_000]).unwrap();
    })
    .unwrap();
}

/// A temp of a graph that is built at run time.
#[test]
fn temps_of_built_graphs_are_stored() {
    for ranks in [1, 2, 3] {
        Communicator::threads(ranks, |communicator| {
            let (device, count) = (Device::cpu_with(2), u64::from(ranks));
            let mut graph = TaskGraph::new("built", stores());
            let x = graph.input::<f32>("x", [count, 20, 64]);
            let (come, y) = (graph.temp::<f32>("come", [count, 20, 64]), graph.temp::<f32>("y", [count, 20, 64]));
            graph.symmetric(come);
            graph.custom(&ranks::symmetric::store::SPEC, [x.into(), come.into()]);
            graph.custom(&ranks::symmetric::copy_planes::SPEC, [come.into(), y.into()]);
            graph.output(y, "y");
            let compiled = graph.compile_with(&device, &PlanOptions::new().communicator(communicator.clone())).unwrap();
            let own = numbers::<f32>(communicator.rank(), count * 20 * 64, 0);
            let x = device.upload(&own, [count, 20, 64]).unwrap();
            let outputs = compiled.execute(Arguments::new().tensor(&x)).unwrap();
            let found = outputs.get::<f32>("y").unwrap().download().unwrap();
            for (other, plane) in found.chunks(20 * 64).enumerate() {
                let theirs = numbers::<f32>(other as u32, count * 20 * 64, 0);
                assert!(plane == &theirs[communicator.rank() as usize * 20 * 64..][..20 * 64], "{other} on {}", communicator.rank());
            }
        })
        .unwrap();
    }
}

/// A rank of the test below.
#[test]
#[ignore = "is what other tests start"]
fn rank_program() {
    if std::env::var("MACO_JOB_FOLDER").is_err() {
        return;
    }
    let result = Communicator::from_env().map(|communicator| {
        let device = Device::cpu_with(2);
        let options = PlanOptions::new().communicator(communicator.clone());
        let world = World { communicator, device, options, pushes: false };
        whole(&world);
        over_and_over(&world);
    });
    launched(result)
}

#[test]
fn processes_store_in_each_other() {
    for ranks in [2, 3] {
        let rendezvous = Rendezvous::new();
        let children = (0..ranks).map(|rank| rendezvous.rank("rank_program", rank, ranks).spawn().unwrap()).collect();
        for (rank, (code, text)) in ends(children).into_iter().enumerate() {
            assert_eq!(code, Some(0), "rank {rank} of {ranks}: {text}");
        }
        rendezvous.nothing_left();
    }
}
