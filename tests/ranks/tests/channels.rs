//! Users' exchanges over channels against their definition: worlds of one to eight ranks, ragged sizes, every schedule; exact.

mod support;

use std::time::{Duration, Instant};

use maco::{Communicator, Device, Error, PlanOptions, Schedule, Tensor, bf16};
use ranks::channels;
use support::{World, are_there, everywhere, in_time, number, numbers, short};

/// Sizes that no tile divides, one element, nothing, several tiles.
const SHAPES: [[u64; 2]; 5] = [[1, 1], [0, 3], [7, 9], [33, 130], [65, 64]];

fn shapes() -> &'static [[u64; 2]] {
    if short() { &SHAPES[2..4] } else { &SHAPES }
}

everywhere!(of_bf16, of_f16, of_f32, of_i32, of_i8, chains, gathered, proxies_of_bf16, proxies_of_f32, proxies_of_i8, chains_of_proxies);

macro_rules! of_element {
    ($name:ident, $element:ty) => {
        fn $name(world: &World) {
            let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
            for &[m, n] in shapes() {
                let shape = [u64::from(ranks), m, n];
                let dims = channels::$name::Dims { R: shape[0], M: m, N: n };
                let plan = channels::$name::plan_with(&world.device, dims, &world.options).unwrap();
                for launch in 0..if short() { 3 } else { 6 } {
                    let x = world.device.upload(&numbers::<$element>(rank, shape.iter().product(), launch), shape).unwrap();
                    let [mut put, mut offered, mut packets] = [(); 3].map(|()| world.device.zeros::<$element>(shape).unwrap());
                    plan.run(&x, &mut put, &mut offered, &mut packets).unwrap();
                    check(world, &put, launch, "put");
                    check(world, &offered, launch, "offer");
                    check(world, &packets, launch, "packets");
                }
            }
        }
    };
}
of_element!(of_bf16, bf16);
of_element!(of_f16, maco::f16);
of_element!(of_f32, f32);
of_element!(of_i32, i32);
of_element!(of_i8, i8);

macro_rules! proxies_of_element {
    ($test:ident, $name:ident, $element:ty) => {
        fn $test(world: &World) {
            let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
            for &[m, n] in shapes() {
                let shape = [u64::from(ranks), m, n];
                let dims = channels::$name::Dims { R: shape[0], M: m, N: n };
                let plan = channels::$name::plan_with(&world.device, dims, &world.options).unwrap();
                for launch in 0..if short() { 3 } else { 6 } {
                    let x = world.device.upload(&numbers::<$element>(rank, shape.iter().product(), launch), shape).unwrap();
                    let [mut at_once, mut in_steps] = [(); 2].map(|()| world.device.zeros::<$element>(shape).unwrap());
                    plan.run(&x, &mut at_once, &mut in_steps, launch as u32 % 3).unwrap();
                    check(world, &at_once, launch, "at once");
                    check(world, &in_steps, launch, "in steps");
                }
            }
        }
    };
}
proxies_of_element!(proxies_of_bf16, ports_of_bf16, bf16);
proxies_of_element!(proxies_of_f32, ports_of_f32, f32);
proxies_of_element!(proxies_of_i8, ports_of_i8, i8);

/// Plane r is this rank's plane of what rank r has.
fn check<E: support::Value + maco::TensorElement>(world: &World, found: &Tensor<E>, launch: u64, what: &str) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let found = found.download().unwrap();
    let elements = found.len() as u64 / u64::from(ranks);
    for (place, value) in found.into_iter().enumerate() {
        let (plane, at) = (place as u64 / elements, place as u64 % elements);
        let expected = E::of(number(plane as u32, u64::from(rank) * elements + at, launch));
        assert!(value == expected, "{what}, rank {rank} of {ranks}, launch {launch}, plane {plane}, {at}: {value:?}, not {expected:?}");
    }
}

/// Data are read while the launch that sent them runs: each exchange needs the one before.
fn chains(world: &World) {
    let dims = |[r, m, n]: [u64; 3]| channels::chain::Dims { R: r, M: m, N: n };
    chained(world, |shape| {
        let plan = channels::chain::plan_with(&world.device, dims(shape), &world.options).unwrap();
        Box::new(move |x, there, back| plan.run(x, there, back).map(drop))
    });
}

fn chains_of_proxies(world: &World) {
    let dims = |[r, m, n]: [u64; 3]| channels::port_chain::Dims { R: r, M: m, N: n };
    chained(world, |shape| {
        let plan = channels::port_chain::plan_with(&world.device, dims(shape), &world.options).unwrap();
        Box::new(move |x, there, back| plan.run(x, there, back).map(drop))
    });
}

type Run = Box<dyn Fn(&Tensor<f32>, &mut Tensor<f32>, &mut Tensor<f32>) -> Result<(), Error>>;

fn chained(world: &World, plan: impl Fn([u64; 3]) -> Run) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let shape = [u64::from(ranks), 20, 100];
    let run = plan(shape);
    for launch in 0..if short() { 4 } else { 30 } {
        let own = numbers::<f32>(rank, shape.iter().product(), launch);
        let x = world.device.upload(&own, shape).unwrap();
        let [mut there, mut back] = [(); 2].map(|()| world.device.zeros::<f32>(shape).unwrap());
        run(&x, &mut there, &mut back).unwrap();
        check(world, &there, launch, "there");
        assert_eq!(back.download().unwrap(), own, "back, rank {rank} of {ranks}, launch {launch}");
    }
}

fn gathered(world: &World) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let [m, n] = [33, 70];
    let dims = channels::gathered::Dims { R: ranks.into(), M: m, N: n };
    let plan = channels::gathered::plan_with(&world.device, dims, &world.options).unwrap();
    for launch in 0..4 {
        let x = world.device.upload(&numbers::<bf16>(rank, m * n, launch), [m, n]).unwrap();
        let mut y = world.device.zeros::<bf16>([ranks.into(), m, n]).unwrap();
        plan.run(&x, &mut y).unwrap();
        let expected: Vec<bf16> = (0..ranks).flat_map(|rank| numbers::<bf16>(rank, m * n, launch)).collect();
        assert!(y.download().unwrap() == expected, "rank {rank} of {ranks}, launch {launch}");
    }
}

fn options(communicator: &Communicator) -> PlanOptions {
    PlanOptions::new().communicator(communicator.clone())
}

/// A rank that does not run is named, and all go on when they have recovered.
macro_rules! a_rank_never_runs {
    ($test:ident, $gpu_test:ident, $name:ident) => {
        #[test]
        fn $test() {
            $name(3, |_| Device::cpu_with(2));
        }

        #[test]
        #[ignore = "gpu"]
        fn $gpu_test() {
            for ranks in [2, 3].into_iter().filter(|ranks| are_there(*ranks)) {
                $name(ranks, |communicator| Device::gpu(communicator.local_rank()).unwrap());
            }
        }

        fn $name(ranks: u32, device: impl Fn(&Communicator) -> Device + Sync) {
            let deadline = Duration::from_millis(200);
            let errors = Communicator::threads(ranks, |communicator| {
                let (device, rank, planes) = (device(&communicator), communicator.rank(), u64::from(ranks));
                let options = options(&communicator).deadline(deadline);
                let plan = channels::$name::plan_with(&device, channels::$name::Dims { R: planes, M: 20, N: 30 }, &options).unwrap();
                let run = |launch: u64| -> Result<(), Error> {
                    let own = numbers::<f32>(rank, planes * 600, launch);
                    let x = device.upload(&own, [planes, 20, 30])?;
                    let [mut there, mut back] = [device.zeros::<f32>([planes, 20, 30])?, device.zeros::<f32>([planes, 20, 30])?];
                    plan.run(&x, &mut there, &mut back)?;
                    assert_eq!(back.download()?, own);
                    Ok(())
                };
                // An odd number: slots and counts begin anew.
                (0..3).for_each(|launch| run(launch).unwrap());
                let begin = Instant::now();
                let error = (rank != 1).then(|| run(3).unwrap_err());
                in_time(begin, deadline);
                plan.recover().unwrap();
                (0..3).for_each(|launch| run(launch).unwrap());
                error
            });
            for error in errors.unwrap().into_iter().flatten().map(|error| error.to_string()) {
                let hang = concat!("MACO0047: hang in megakernel `", stringify!($name), "`: task `");
                assert!(error.starts_with(hang) && error.contains(" waits for rank 1 (worker "), "{error}");
            }
        }
    };
}
a_rank_never_runs!(a_rank_that_never_runs_is_named, gpu_a_rank_that_never_runs_is_named, chain);
a_rank_never_runs!(a_rank_that_never_runs_is_named_behind_proxies, gpu_a_rank_that_never_runs_is_named_behind_proxies, port_chain);

#[test]
fn ranks_with_other_channels_have_no_plan() {
    let errors = Communicator::threads(2, |communicator| {
        let (device, options) = (Device::cpu_with(1), options(&communicator));
        let error = match communicator.rank() {
            0 => channels::one::plan_with(&device, channels::one::Dims { R: 2, M: 4, N: 4 }, &options).err(),
            _ => channels::others::one::plan_with(&device, channels::others::one::Dims { R: 2, M: 4, N: 4 }, &options).err(),
        };
        error.expect("no plan").to_string()
    });
    for error in errors.unwrap() {
        assert!(error.starts_with("MACO0097") && error.contains("put(x, y) over a memory channel"), "{error}");
    }
}

#[test]
fn what_ranks_cannot_run_is_refused() {
    Communicator::threads(2, |communicator| {
        let device = Device::cpu_with(1);
        let plan = |planes, options: &PlanOptions| {
            channels::one::plan_with(&device, channels::one::Dims { R: planes, M: 4, N: 4 }, options).err().expect("no plan").to_string()
        };
        let error = plan(3, &options(&communicator));
        assert!(error.starts_with("MACO0098") && error.contains("there are 3 planes"), "{error}");
        let error = plan(2, &options(&communicator).schedule(Schedule::Schedulers(1)));
        assert!(error.starts_with("MACO0098") && error.contains("push tasks in no fixed order"), "{error}");
    })
    .unwrap();
    let error = channels::one::plan_with(&Device::cpu(), channels::one::Dims { R: 1, M: 4, N: 4 }, &PlanOptions::new()).err().unwrap();
    assert_eq!(error.code(), 72, "{error}");
}
