//! Results in symmetric memory that other ranks store: exact, in every world, and refused where they cannot be.

mod support;

use std::time::Duration;

use maco::{Communicator, Device, PlanOptions, TensorElement, bf16};
use ranks::symmetric::{again, of_bf16, of_f32, of_i32, unmarked};
use support::{Value, World, everywhere, numbers, short};

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
