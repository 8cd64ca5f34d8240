//! NCCL beside a megakernel, chunk by chunk: exact; in graphs; and what becomes of it when a rank does not come.

mod support;

use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{env, process, thread};

use maco::{Arguments, Communicator, CudaGraph, Device, PlanOptions, Schedule, Stream, Tensor, bf16};
use ranks::beside::summed;
use ranks::collectives::every_by_nccl;
use support::rendezvous::{Rendezvous, ends};
use support::{Value, World, alone, are_there, at_most, everywhere, launched, number, numbers, short};

everywhere!(launches, every);

struct Case {
    sizes: [u64; 3],
    plan: Rc<summed::Plan>,
    tensors: Vec<Tensor<bf16>>,
    numbers: Tensor<f32>,
    results: [Tensor<bf16>; 2],
    least: Tensor<f32>,
}

/// Row r of x, column c of w: small, with sums over K that are known.
fn of(rank: u32, launch: u64) -> [impl Fn(u64) -> i64; 2] {
    [u64::from(rank) + launch, 1 + launch].map(|salt| move |row: u64| ((row + salt) % 3) as i64 - 1)
}

impl Case {
    fn new(world: &World, options: &PlanOptions) -> Case {
        let device = &world.device;
        let [m, n, k] = if device.is_gpu() { [4000, 2048, 256] } else { [200, 256, 24] };
        let plan = Rc::new(summed::plan_with(device, summed::Dims { M: m, N: n, K: k }, options).unwrap());
        if device.is_gpu() && world.communicator.ranks() > 1 {
            let text = plan.graph().to_string();
            assert_eq!(text.matches("by NCCL beside the kernel").count(), 2, "{text}");
            // Four chunks of 4 MiB, and eight of the f32 tensor.
            let chunks = [1, 3].map(|call: usize| plan.graph().calls[call].grid[0]);
            assert_eq!(chunks, [4, 8], "{text}");
        }
        let new = || device.zeros::<bf16>([m, n]).unwrap();
        let tensors = vec![device.zeros([m, k]).unwrap(), device.zeros([n, k]).unwrap()];
        let floats = || device.zeros::<f32>([m, n]).unwrap();
        Case { sizes: [m, n, k], plan, tensors, numbers: floats(), results: [new(), new()], least: floats() }
    }

    fn fill(&mut self, world: &World, launch: u64) {
        let [m, n, k] = self.sizes;
        let [a, b] = of(world.communicator.rank(), launch);
        let rows = |count: u64, of: &dyn Fn(u64) -> i64| -> Vec<bf16> {
            (0..count * k).map(|at| bf16::of(if at % k < 8 { of(at / k) } else { 0 })).collect()
        };
        self.tensors[0].upload_from(&rows(m, &a)).unwrap();
        self.tensors[1].upload_from(&rows(n, &b)).unwrap();
        let rank = world.communicator.rank();
        self.numbers.upload_from(&(0..m * n).map(|at| number(rank, at, launch) as f32).collect::<Vec<_>>()).unwrap();
        let poison = vec![bf16::NAN; (m * n) as usize];
        self.results.iter_mut().for_each(|result| result.upload_from(&poison).unwrap());
        self.least.upload_from(&vec![f32::NAN; (m * n) as usize]).unwrap();
    }

    fn arguments(&mut self) -> Arguments<'_> {
        let [y, z] = &mut self.results;
        Arguments::new()
            .tensor(&self.tensors[0])
            .tensor(&self.tensors[1])
            .tensor_mut(y)
            .tensor_mut(z)
            .tensor(&self.numbers)
            .tensor_mut(&mut self.least)
    }

    fn run(&mut self) -> Result<(), maco::Error> {
        let [y, z] = &mut self.results;
        self.plan.run(&self.tensors[0], &self.tensors[1], y, z, &self.numbers, &mut self.least).map(drop)
    }

    fn check(&self, world: &World, launch: u64, what: &str) {
        let [_, n, _] = self.sizes;
        let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
        let sums: Vec<_> = (0..ranks).map(|rank| of(rank, launch)).collect();
        for (result, name) in self.results.iter().zip(["y", "z"]) {
            for (at, value) in (0..).zip(result.download().unwrap()) {
                let expected = bf16::of(sums.iter().map(|[a, b]| 8 * a(at / n) * b(at % n)).sum());
                assert!(value == expected, "{what}, launch {launch}, rank {rank} of {ranks}, {name} at {at}: {value:?}, not {expected:?}");
            }
        }
        for (at, value) in (0..).zip(self.least.download().unwrap()) {
            let expected = (0..ranks).map(|rank| number(rank, at, launch)).min().unwrap() as f32;
            assert!(value == expected, "{what}, launch {launch}, rank {rank} of {ranks}, least at {at}: {value}, not {expected}");
        }
    }
}

fn launches(world: &World) {
    let mut case = Case::new(world, &world.options);
    for launch in 0..4 {
        case.fill(world, launch);
        case.run().unwrap();
        case.check(world, launch, "run");
    }
    if !world.device.is_gpu() || short() {
        return;
    }
    // Bound, several behind one another on a stream; then in a graph.
    let stream = Stream::new(&world.device).unwrap();
    case.fill(world, 7);
    {
        let plan = case.plan.clone();
        let bound = plan.bind(case.arguments()).unwrap();
        (0..3).for_each(|_| bound.launch_on(&stream).unwrap());
        stream.synchronize().unwrap();
        plan.check().unwrap();
    }
    case.check(world, 7, "bound");
    let plan = case.plan.clone();
    let bound = plan.bind(case.arguments()).unwrap();
    let graph = CudaGraph::capture(&stream, |stream| {
        bound.launch_on(stream)?;
        bound.launch_on(stream)
    })
    .unwrap();
    for launch in 10..13 {
        case.fill(world, launch);
        // What the others have made of the capture waits for kernels of this rank.
        world.communicator.barrier().unwrap();
        (0..2).for_each(|_| graph.launch(&stream).unwrap());
        stream.synchronize().unwrap();
        plan.check().unwrap();
        case.check(world, launch, "graph");
    }
}

/// Every collective but sums of all: plane by plane, by scalars, into what other tasks read.
fn every(world: &World) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let device = &world.device;
    // On a GPU three chunks, the last one with fewer rows.
    let [m, n] = if device.is_gpu() { [2500, 2048] } else { [70, 264] };
    let plan = every_by_nccl::plan_with(device, every_by_nccl::Dims { M: m, N: n, R: u64::from(ranks) }, &world.options).unwrap();
    let text = plan.graph().to_string();
    if device.is_gpu() && ranks > 1 {
        assert_eq!(text.matches("by NCCL beside the kernel").count(), 6, "{text}");
    }
    let (elements, every) = (m * n, 0..u64::from(ranks));
    for launch in 0..if short() { 3 } else { 6 } {
        let pick = |salt: u64| (number(0, launch, salt) + 7) as u32;
        let (root, from, to, by) = (pick(1), pick(2), pick(3), number(1, launch, 4) as i32);
        let x = device.upload(&numbers::<bf16>(rank, elements, launch), [m, n]).unwrap();
        let mine = device.upload(&numbers::<bf16>(rank, u64::from(ranks) * elements, launch + 100), [u64::from(ranks), m, n]).unwrap();
        let flat = || device.upload(&vec![bf16::NAN; elements as usize], [m, n]).unwrap();
        let deep = || device.upload(&vec![bf16::NAN; (u64::from(ranks) * elements) as usize], [u64::from(ranks), m, n]).unwrap();
        let [mut scattered, mut told, mut sent, mut passed, mut both] = [(); 5].map(|()| flat());
        let [mut gathered, mut swapped] = [(); 2].map(|()| deep());
        // What a rank frees waits for kernels of the others, once NCCL has given them access to its memory.
        world.communicator.barrier().unwrap();
        let results = [&mut gathered, &mut scattered, &mut swapped, &mut told, &mut sent, &mut passed, &mut both];
        let [gathered_to, scattered_to, swapped_to, told_to, sent_to, passed_to, both_to] = results;
        plan.run(&x, &mine, gathered_to, scattered_to, swapped_to, told_to, sent_to, passed_to, both_to, root, from, to, by).unwrap();
        world.communicator.barrier().unwrap();
        let of = |rank: u64, at: u64| number(rank as u32, at, launch);
        let of_mine = |rank: u64, plane: u64, at: u64| number(rank as u32, plane * elements + at, launch + 100);
        let own = u64::from(rank);
        let check = |found: &Tensor<bf16>, expected: &dyn Fn(u64, u64) -> i64, what: &str| {
            for (place, value) in (0..).zip(found.download().unwrap()) {
                let expected = bf16::of(expected(place / elements, place % elements));
                assert!(value == expected, "{what} of rank {rank} of {ranks}, launch {launch}, {place}: {value:?}, not {expected:?}");
            }
        };
        let of_sent = if to % ranks == rank { u64::from(from % ranks) } else { own };
        let of_passed = (i64::from(rank) - i64::from(by)).rem_euclid(i64::from(ranks)) as u64;
        check(&gathered, &of, "all_gather");
        check(&scattered, &|_, at| every.clone().map(|from| of_mine(from, own, at)).sum(), "reduce_scatter");
        check(&swapped, &|plane, at| of_mine(plane, own, at), "all_to_all");
        check(&told, &|_, at| of(u64::from(root % ranks), at), "broadcast");
        check(&sent, &|_, at| of(of_sent, at), "send");
        check(&passed, &|_, at| of(of_passed, at), "ring");
        check(&both, &|_, at| of(of_sent, at) + of(of_passed, at), "send + ring");
    }
}

/// A rank that does not launch: the others have an error within the deadline, and all go on behind `recover`.
#[test]
#[ignore = "gpu"]
fn gpu_a_rank_that_does_not_come() {
    support::on_gpus(2, maco::Schedule::Static, |world: &World| {
        let deadline = Duration::from_secs(2);
        let mut case = Case::new(world, &world.options.clone().deadline(deadline));
        case.fill(world, 0);
        case.run().unwrap();
        case.check(world, 0, "before");
        if world.communicator.rank() == 0 {
            let begun = Instant::now();
            let error = case.run().unwrap_err().to_string();
            assert!(error.contains("all_reduce"), "{error}");
            assert!(begun.elapsed() < deadline + Duration::from_secs(6), "{:?}: {error}", begun.elapsed());
        }
        case.plan.recover().unwrap();
        for launch in 1..3 {
            case.fill(world, launch);
            case.run().unwrap();
            case.check(world, launch, "behind it");
        }
    });
}

/// Of launches in which a rank is killed.
const DEADLINE: Duration = Duration::from_secs(2);

/// A rank of the test below: one of them is killed while NCCL exchanges for its launches.
#[test]
#[ignore = "is what another test starts"]
fn rank_program() {
    let Ok(killed) = env::var("KILLED") else { return };
    let result = Communicator::from_env().and_then(|communicator| {
        let device = Device::gpu(communicator.local_rank())?;
        let options = PlanOptions::new().communicator(communicator.clone()).deadline(DEADLINE).schedule(Schedule::Static);
        let world = World { communicator: communicator.clone(), device, options, pushes: false };
        let mut case = Case::new(&world, &world.options);
        case.fill(&world, 0);
        (0..5).try_for_each(|_| case.run())?;
        case.check(&world, 0, "before");
        communicator.barrier()?;
        if communicator.rank().to_string() == killed {
            thread::spawn(|| {
                thread::sleep(Duration::from_millis(20));
                // As by SIGKILL: no farewell.
                process::abort();
            });
        }
        let begin = Instant::now();
        let error = loop {
            if let Err(error) = case.run() {
                break error;
            }
            assert!(begin.elapsed() < 10 * DEADLINE, "nobody is missed");
        };
        println!("<said>after {} ms</said>", begin.elapsed().as_millis());
        drop(case);
        // The device works on.
        let alone = World { communicator: Communicator::single(), options: PlanOptions::new(), ..world };
        let mut case = Case::new(&alone, &alone.options.clone().communicator(alone.communicator.clone()));
        case.fill(&alone, 1);
        case.run()?;
        case.check(&alone, 1, "alone");
        println!("<said>works on</said>");
        Err(error)
    });
    launched(result);
}

/// The survivor says which rank is gone, within the deadline and the time that NCCL has to end, and its GPU works on.
#[test]
#[ignore = "gpu"]
fn gpu_a_killed_rank_is_named() {
    let _alone = alone();
    if !are_there(2) {
        return;
    }
    for killed in 0..2u32 {
        let rendezvous = Rendezvous::new();
        let children = (0..2).map(|rank| {
            let mut command = rendezvous.rank("rank_program", rank, 2);
            command.env("KILLED", killed.to_string()).spawn().unwrap()
        });
        let ended = ends(children.collect());
        rendezvous.nothing_left();
        let (code, text) = &ended[1 - killed as usize];
        assert!(ended[killed as usize].0.is_none(), "{:?}", ended[killed as usize]);
        let after = text.split("<said>after ").nth(1).and_then(|rest| rest.split(" ms").next());
        let after = after.map(|ms| Duration::from_millis(ms.parse().unwrap()));
        // Gates are opened at the deadline, and NCCL is ended two seconds later.
        assert!(after.is_some_and(|after| after < at_most(DEADLINE) + Duration::from_secs(2)), "{text}");
        let named = format!("MACO0095: rank {killed} is gone");
        assert!(*code == Some(1) && text.contains("<said>works on</said>") && text.contains(&named), "{text}");
    }
}
