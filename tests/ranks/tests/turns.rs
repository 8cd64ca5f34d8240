//! Messages that have less memory than there are tiles: tiles have two to five slots in turn, every collective and every way, several launches; exact.

mod support;

use std::sync::Mutex;
use std::time::Duration;

use maco::{Communicator, Device, Error, PlanOptions, Schedule, TensorElement, Via, bf16};
use ranks::{collectives, pushed, sizes};
use support::{Value, World, number, numbers, on_gpus};

const SETTINGS: [(u32, u32, Schedule, bool); 5] = [
    (2, 1, Schedule::Static, false),
    (2, 3, Schedule::Tickets, true),
    (2, 3, Schedule::Static, true),
    (3, 2, Schedule::Static, true),
    (3, 1, Schedule::Tickets, false),
];

/// Runs `test` as every rank of a world with as much memory for messages as the error asks for that names the least, with twice as much, and with a little less.
fn with_little_memory(test: impl Fn(&World) -> Result<Vec<u32>, Error> + Sync) {
    for (ranks, workers, schedule, pipelined) in SETTINGS {
        let with = |bytes: usize| {
            let found = Mutex::new(Vec::new());
            Communicator::threads(ranks, |communicator| {
                communicator.set_deadline(Duration::from_secs(30)).unwrap();
                communicator.set_message_memory(bytes).unwrap();
                let device = Device::cpu_with(workers);
                let options = PlanOptions::new().communicator(communicator.clone()).schedule(schedule).pipelined(pipelined);
                let outcome = test(&World { communicator: communicator.clone(), device, options, pushes: pipelined });
                if outcome.is_ok() {
                    let used = communicator.message_memory_high_water();
                    assert!(used <= bytes && used > bytes / 2, "{used} of {bytes} bytes");
                }
                found.lock().unwrap().push(outcome);
            })
            .unwrap();
            found.into_inner().unwrap()
        };
        let least = needed(&with(4096));
        for (bytes, most) in [(least, ranks), (2 * least, 2 * ranks)] {
            for slots in with(bytes) {
                // Of small messages more have room in as many bytes.
                let slots = slots.unwrap();
                assert!(slots.iter().all(|of| *of >= 2) && slots.iter().any(|of| *of <= most), "{slots:?}");
            }
        }
        assert_eq!(needed(&with(least - 256)), least);
    }
}

/// The bytes that the error of each rank asks for.
fn needed(outcomes: &[Result<Vec<u32>, Error>]) -> usize {
    let of = |outcome: &Result<Vec<u32>, Error>| {
        let error = outcome.as_ref().unwrap_err();
        let text = error.to_string();
        assert!(error.code() == 100 && text.contains("messages of megakernel"), "{text}");
        let words: Vec<&str> = text.split(' ').collect();
        let bytes: usize = words[words.iter().position(|word| *word == "needs").unwrap() + 1].parse().unwrap();
        bytes.next_multiple_of(256)
    };
    let needed: Vec<usize> = outcomes.iter().map(of).collect();
    assert!(needed.iter().all(|bytes| *bytes == needed[0]), "{needed:?}");
    needed[0]
}

/// The slots of calls that have less than all.
fn less(slots: impl Iterator<Item = u32>) -> Vec<u32> {
    slots.filter(|slots| *slots > 0).collect()
}

/// Checks what has come, by plane and place.
fn check<E: Value + TensorElement>(found: &maco::Tensor<E>, plane: u64, what: &str, expected: impl Fn(u64, u64) -> i64) {
    for (place, value) in (0..).zip(found.download().unwrap()) {
        let expected = E::of(expected(place / plane, place % plane));
        assert!(value == expected, "{what}, {place}: {value:?}, not {expected:?}");
    }
}

/// Large tiles, and small ones beside them: those that end inside a tile too.
fn large(world: &World) -> Result<Vec<u32>, Error> {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let ([m, n], device) = ([330, 650], &world.device);
    let plan = collectives::large::plan_with(device, collectives::large::Dims { M: m, N: n, R: u64::from(ranks) }, &world.options)?;
    let (elements, all) = (m * n, u64::from(ranks) * m * n);
    for launch in 0..4 {
        let x = device.upload(&numbers::<bf16>(rank, elements, launch), [m, n]).unwrap();
        let x32 = device.upload(&numbers::<f32>(rank, elements, launch), [m, n]).unwrap();
        let mine = device.upload(&numbers::<bf16>(rank, all, launch + 100), [u64::from(ranks), m, n]).unwrap();
        let [mut sum, mut scattered] = [(); 2].map(|()| device.zeros::<bf16>([m, n]).unwrap());
        let mut sum32 = device.zeros::<f32>([m, n]).unwrap();
        let [mut small, mut gathered, mut swapped] = [(); 3].map(|()| device.zeros::<bf16>([u64::from(ranks), m, n]).unwrap());
        plan.run(&x, &mine, &x32, &mut sum, &mut sum32, &mut small, &mut gathered, &mut scattered, &mut swapped)?;
        let of = |rank: u64, at: u64| number(rank as u32, at, launch);
        let of_mine = |rank: u64, plane: u64, at: u64| number(rank as u32, plane * elements + at, launch + 100);
        let (every, own) = (|| 0..u64::from(ranks), u64::from(rank));
        let what = |what: &str| format!("{what} of rank {rank} of {ranks}, launch {launch}");
        check(&sum, elements, &what("all_reduce"), |_, at| every().map(|rank| of(rank, at)).sum());
        check(&sum32, elements, &what("all_reduce of f32"), |_, at| every().map(|rank| of(rank, at)).sum());
        check(&small, elements, &what("all_gather of small tiles"), of);
        check(&gathered, elements, &what("all_gather"), of);
        check(&scattered, elements, &what("reduce_scatter"), |_, at| every().map(|from| of_mine(from, own, at)).sum());
        check(&swapped, elements, &what("all_to_all"), |plane, at| of_mine(plane, own, at));
    }
    Ok(less(plan.graph().calls.iter().map(|call| call.slots)))
}

/// Tiles of the library's all-reduce, all in one way.
fn sums(world: &World, via: Via) -> Result<Vec<u32>, Error> {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let ([m, n], device) = ([900, 700], &world.device);
    let plan = sizes::sum_of_i32::plan_with(device, sizes::sum_of_i32::Dims { M: m, N: n }, &world.options.clone().via(via))?;
    for launch in 0..5 {
        let x = device.upload(&numbers::<i32>(rank, m * n, launch), [m, n]).unwrap();
        let mut sum = device.zeros::<i32>([m, n]).unwrap();
        plan.run(&x, &mut sum)?;
        check(&sum, m * n, &format!("sum of rank {rank} of {ranks}, launch {launch}"), |_, at| {
            (0..ranks).map(|rank| number(rank, at, launch)).sum()
        });
    }
    Ok(less(plan.graph().calls.iter().map(|call| call.slots)))
}

/// Packets, of every collective; each rank of planes in turn.
fn planes(world: &World) -> Result<Vec<u32>, Error> {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let ([m, n], device) = ([70, 1300], &world.device);
    let (elements, all) = (m * n, u64::from(ranks) * m * n);
    let dims = collectives::of_i32::Dims { M: m, N: n, R: u64::from(ranks) };
    let plan = collectives::of_i32::plan_with(device, dims, &world.options)?;
    for launch in 0..4 {
        let x = device.upload(&numbers::<i32>(rank, elements, launch), [m, n]).unwrap();
        let mine = device.upload(&numbers::<i32>(rank, all, launch + 100), [u64::from(ranks), m, n]).unwrap();
        let [mut sum, mut most, mut least, mut scattered] = [(); 4].map(|()| device.zeros::<i32>([m, n]).unwrap());
        let [mut gathered, mut swapped] = [(); 2].map(|()| device.zeros::<i32>([u64::from(ranks), m, n]).unwrap());
        plan.run(&x, &mine, &mut sum, &mut most, &mut least, &mut gathered, &mut scattered, &mut swapped)?;
        let of = |rank: u64, at: u64| number(rank as u32, at, launch);
        let of_mine = |rank: u64, plane: u64, at: u64| number(rank as u32, plane * elements + at, launch + 100);
        let (every, own) = (|| 0..u64::from(ranks), u64::from(rank));
        let what = |what: &str| format!("{what} of rank {rank} of {ranks}, launch {launch}");
        check(&sum, elements, &what("all_reduce"), |_, at| every().map(|rank| of(rank, at)).sum());
        check(&most, elements, &what("all_reduce_max"), |_, at| every().map(|rank| of(rank, at)).max().unwrap());
        check(&least, elements, &what("all_reduce_min"), |_, at| every().map(|rank| of(rank, at)).min().unwrap());
        check(&gathered, elements, &what("all_gather"), of);
        check(&scattered, elements, &what("reduce_scatter"), |_, at| every().map(|from| of_mine(from, own, at)).sum());
        check(&swapped, elements, &what("all_to_all"), |plane, at| of_mine(plane, own, at));
    }
    Ok(less(plan.graph().calls.iter().map(|call| call.slots)))
}

/// Tiles that a GEMM would send, if each had its own place: tasks send them.
fn of_gemms(world: &World) -> Result<Vec<u32>, Error> {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let ([m, n, k], device) = ([456, 768, 24], &world.device);
    let plan = pushed::ways::plan_with(device, pushed::ways::Dims { M: m, N: n, K: k }, &world.options)?;
    assert!(plan.graph().calls.iter().all(|call| call.pushed_by.is_none()), "{}", plan.graph());
    assert!(plan.graph().to_string().contains("slots in turn"), "{}", plan.graph());
    for launch in 0..3u64 {
        let rows = |count: u64, salt: u64| {
            let values: Vec<bf16> =
                (0..count * k).map(|at| bf16::of(if at % k == 0 { (at / k + salt) as i64 % 3 - 1 } else { 0 })).collect();
            device.upload(&values, [count, k]).unwrap()
        };
        let (x, w) = (rows(m, u64::from(rank) + launch), rows(n, 1));
        let mut sums = [(); 4].map(|()| device.zeros::<bf16>([m, n]).unwrap());
        let [a, b, c, d] = &mut sums;
        plan.run(&x, &w, a, b, c, d)?;
        for (way, sum) in sums.iter().enumerate() {
            check(sum, m * n, &format!("way {way} of rank {rank} of {ranks}, launch {launch}"), |_, at| {
                let of = |rank: u32| ((at / n + u64::from(rank) + launch) % 3) as i64 - 1;
                (0..ranks).map(|rank| of(rank) * (((at % n + 1) % 3) as i64 - 1)).sum()
            });
        }
    }
    Ok(less(plan.graph().calls.iter().map(|call| call.slots)))
}

#[test]
fn every_collective_of_large_tiles() {
    with_little_memory(large);
}

#[test]
fn every_collective_of_packets() {
    with_little_memory(planes);
}

#[test]
fn sums_in_one_step() {
    with_little_memory(|world| sums(world, Via::OneShot));
}

#[test]
fn sums_in_two_steps() {
    with_little_memory(|world| sums(world, Via::TwoShot));
}

#[test]
fn tiles_of_gemms_are_sent_by_tasks() {
    with_little_memory(of_gemms);
}

/// What a plan had is room for the next one, when all ranks have dropped it; what it still has is not.
#[test]
fn slots_are_as_many_as_there_is_room_for() {
    Communicator::threads(2, |communicator| {
        communicator.set_message_memory(2 << 20).unwrap();
        let device = Device::cpu_with(2);
        let options = PlanOptions::new().communicator(communicator.clone()).via(Via::OneShot);
        let plan = || sizes::sum_of_i32::plan_with(&device, sizes::sum_of_i32::Dims { M: 640, N: 256 }, &options).unwrap();
        let first = plan();
        let of = |plan: &sizes::sum_of_i32::Plan| less(plan.graph().calls.iter().map(|call| call.slots));
        assert_eq!(of(&first), [7], "{}", first.graph());
        drop(first);
        let second = plan();
        assert_eq!(of(&second), [7]);
        drop(second);
        communicator.barrier().unwrap();
    })
    .unwrap();
}

/// The same code on two GPUs.
#[test]
#[ignore = "gpu"]
fn on_two_gpus() {
    on_gpus(2, Schedule::Static, |world| {
        // Too little for the tiles of any of them, enough for two slots.
        world.communicator.set_message_memory(2 << 20).unwrap();
        let found = large(world).unwrap();
        assert!(!found.is_empty());
    });
}
