//! The graphs that are measured compute what the oracle says, on the CPU.

use benches::graphs::{self, Pattern};
use benches::oracle::Data;
use benches::peer;
use benches::tasks::dispatch;
use benches::tasks::plain::TILE;
use benches::timing::Random;
use maco::{Arguments, CompiledGraph, Device, PlanOptions, Schedule, Tensor};

const TILES: u32 = 8;
const PHASES: u32 = 4;

/// The inputs of `graphs::phases` or `graphs::one_phase`.
fn inputs(device: &Device, pattern: Pattern, data: &Data, calls: u32) -> Vec<Tensor<u32>> {
    let tiles = TILES * PHASES / calls;
    let upload = |data: &[u32], shape: Vec<u64>| device.upload(data, shape.as_slice()).unwrap();
    let mut inputs = vec![upload(&data.x, vec![TILES.into(), TILE.into()])];
    if pattern.sums() {
        inputs.push(upload(&data.parts, vec![TILES.into()]));
    }
    for ids in data.ids.chunks((tiles * pattern.needs()) as usize) {
        inputs.push(upload(ids, if pattern.needs() == 1 { vec![tiles.into()] } else { vec![tiles.into(), pattern.needs().into()] }));
    }
    if pattern.weights() > 0 {
        for w in data.w.chunks((tiles * pattern.weights()) as usize) {
            inputs.push(upload(w, vec![tiles.into(), pattern.weights().into()]));
        }
    }
    inputs
}

fn run(plan: &CompiledGraph, inputs: &[Tensor<u32>]) -> [Option<Vec<u32>>; 2] {
    let arguments = inputs.iter().fold(Arguments::new(), Arguments::tensor);
    let outputs = plan.execute(arguments).unwrap();
    ["y", "part"].map(|name| outputs.get::<u32>(name).map(|tensor| tensor.download().unwrap()))
}

#[test]
fn phases_compute_what_the_oracle_says() {
    let device = Device::cpu_with(4);
    for pattern in Pattern::ALL {
        let data = Data::random(pattern, TILES, PHASES, &mut Random::new(5));
        let (rows, words) = data.expected(pattern, TILES, PHASES, 77);
        for schedule in [Schedule::Static, Schedule::Tickets] {
            let options = PlanOptions::new().schedule(schedule);
            let plan = graphs::plan(graphs::phases(pattern, TILES, PHASES, 77), &device, &options).unwrap();
            assert_eq!(plan.plan().tasks() as u32, TILES * PHASES);
            assert_eq!(plan.waves(), PHASES, "{pattern:?}");
            let [y, part] = run(&plan, &inputs(&device, pattern, &data, PHASES));
            assert!(y.unwrap() == rows, "{pattern:?} {schedule:?}");
            assert!(part.is_none_or(|part| part == words), "{pattern:?} {schedule:?}");
        }
    }
}

#[test]
fn one_phase_is_the_first_one_of_many_and_waits_for_nothing() {
    let device = Device::cpu_with(4);
    for pattern in Pattern::ALL {
        let data = Data::random(pattern, TILES, PHASES, &mut Random::new(6));
        let (rows, words) = data.expected(pattern, TILES, 1, 99);
        let plan = graphs::plan(graphs::one_phase(pattern, TILES, PHASES, 99), &device, &PlanOptions::new()).unwrap();
        assert_eq!((plan.plan().tasks() as u32, plan.plan().edges()), (TILES * PHASES, 0));
        let [y, part] = run(&plan, &inputs(&device, pattern, &data, 1));
        assert!(y.unwrap()[..rows.len()] == rows, "{pattern:?}");
        assert!(part.is_none_or(|part| part[..words.len()] == words), "{pattern:?}");
    }
}

#[test]
fn chains_count_their_calls() {
    let device = Device::cpu_with(3);
    let last = |task, words, options: &PlanOptions| {
        let plan = graphs::plan(graphs::chain(task, words, 50), &device, options).unwrap();
        let outputs = plan.execute(Arguments::new()).unwrap();
        (plan.plan().tasks(), outputs.get::<u32>("x").unwrap().download().unwrap())
    };
    assert_eq!(last(&dispatch::bump::SPEC, 1, &PlanOptions::new().workers(1)), (51, vec![50]));
    assert_eq!(last(&dispatch::relay::SPEC, 4, &PlanOptions::new()), (54, vec![50; 4]));
    assert_eq!(last(&dispatch::empty::SPEC, 13, &PlanOptions::new()), (51 * 13, vec![0; 13]));
    // From worker to worker.
    let to_and_fro = (0..54).map(|task: u32| if task < 4 { 2 } else { task % 2 }).collect();
    assert_eq!(last(&dispatch::relay::SPEC, 4, &PlanOptions::new().placement(to_and_fro)), (54, vec![50; 4]));
}

#[test]
fn every_task_of_a_long_chain_waits_and_signals() {
    let plan = graphs::plan(graphs::chain(&dispatch::empty::SPEC, 13, 5), &Device::cpu_with(4), &PlanOptions::new()).unwrap();
    let tasks = &plan.graph().tasks;
    assert!(tasks[13..13 * 5].iter().all(|task| (task.waits, task.signals) == (1, 1)));
    // The producer is another worker's: tasks are dealt in turn, and 13 is 1 more than a multiple of 4.
    assert!((13..13 * 6).all(|task| task % 4 != (task - 13) % 4));
}

#[test]
fn bytes_are_moved() {
    let device = Device::cpu_with(2);
    let rows = 3;
    let x: Vec<u32> = (0..rows * TILE).collect();
    let tensor = device.upload(&x, [rows.into(), u64::from(TILE)]).unwrap();
    let plan = graphs::plan(graphs::transfer(rows.into()), &device, &PlanOptions::new()).unwrap();
    let outputs = plan.execute(Arguments::new().tensor(&tensor)).unwrap();
    let expected: Vec<u32> = x.iter().map(|&word| benches::tasks::boundary::mix(word, 0)).collect();
    assert!(outputs.get::<u32>("y").unwrap().download().unwrap() == expected);
    assert_eq!(graphs::plan(graphs::copy(256, 256), &device, &PlanOptions::new()).unwrap().plan().tasks(), 4);
    assert_eq!(graphs::plan(graphs::busy(100), &device, &PlanOptions::new()).unwrap().plan().edges(), 0);
}

#[test]
fn every_peer_has_its_kernel() {
    if peer::KERNELS.is_empty() {
        return; // built without a device toolchain
    }
    let names: Vec<&str> = peer::KERNELS.iter().map(|(name, _)| *name).collect();
    for pattern in Pattern::ALL {
        assert!(names.contains(&format!("peer_{}", pattern.name()).as_str()), "{names:?}");
        assert!(names.contains(&format!("peer_{}_loop", pattern.name()).as_str()), "{names:?}");
    }
    for name in ["peer_empty", "peer_chain", "peer_flag", "peer_rmsnorm", "peer_silu_mul"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for (name, ptx) in peer::KERNELS {
        assert!(ptx.contains(&format!(".visible .entry {name}(")) && ptx.matches(".entry").count() == 1);
        // A call is a panic, or something that was not inlined.
        let body = ptx.split(".entry").nth(1).and_then(|text| text.split("\n}").next()).unwrap();
        assert!(!body.contains("call"), "{name}");
    }
}
