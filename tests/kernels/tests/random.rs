//! Random graphs of exact tasks give bit for bit what their calls give one after another: on any number of workers, static lists,
//! tickets and schedulers, plain workers and pipelines, forced tiles, memory full of ones, reused memory, launch after launch.
mod graphs;
mod support;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use graphs::oracle::{self, Fault, Kind};
use graphs::recipe::How;
use graphs::recipe::{Recipe, recipes};
use graphs::{Case, check, check_case, dealt};
use maco::{Device, PlanOptions, Schedule};
use proptest::prelude::*;

/// Debug builds of task bodies are 20 times slower.
const CASES: u32 = if cfg!(debug_assertions) { 20 } else { 800 };

static CPU: LazyLock<Device> = LazyLock::new(|| Device::cpu_with(8));

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, max_shrink_time: 15_000, ..ProptestConfig::default() }
}

/// Small graphs by hundreds on the CPU: what fails shrinks.
mod cpu {
    use super::*;

    proptest! {
        #![proptest_config(config(CASES))]

        #[test]
        fn graphs_of_every_size(recipe in recipes(24, 200)) {
            check(&CPU, &recipe, None).map_err(TestCaseError::fail)?;
        }

        #[test]
        fn small_and_dense_graphs(recipe in recipes(60, 24)) {
            check(&CPU, &recipe, None).map_err(TestCaseError::fail)?;
        }
    }

    /// As many workers as an H100 or H200 has multiprocessors, and fewer, each number with every schedule.
    #[test]
    fn up_to_132_workers() {
        let device = Device::cpu_with(132);
        for (seed, workers) in (200..).zip([132, 131, 100, 67, 64, 33, 31, 9]) {
            for schedule in [How::Static, How::Tickets, How::Schedulers(8), How::SpareWarps(8)] {
                // What is drawn is neither one worker nor all.
                let drawn = 4 * (workers - 1) + 2;
                let recipe = Recipe { workers: drawn, schedule, pipelined: false, ..Recipe::from_seed(seed, 24, 200) };
                match check(&device, &recipe, None) {
                    Ok(case) => assert_eq!(case.compiled.plan().workers(), u32::from(workers)),
                    Err(what) => panic!("seed {seed}, {workers} workers, {schedule:?}: {what}"),
                }
            }
        }
    }

    /// The graphs above share the memory of temps, with edges of their own and without. A launch that reads what another temp has left computes something
    /// else, since no two temps hold the same numbers.
    #[test]
    fn temps_share_memory() {
        let (mut shared, mut saved) = (0, 0);
        for seed in 0..50 {
            let recipe = Recipe { pipelined: false, ..Recipe::from_seed(seed, 60, 24) };
            let case = check(&CPU, &recipe, None).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            let memory = case.compiled.plan().memory();
            (shared, saved) = (shared + usize::from(memory.saved > 0), saved + memory.saved);
            assert!(memory.peak <= memory.temps, "{memory}");
        }
        assert!(shared > 25 && saved > 0, "{shared} of 50 graphs, {saved} bytes");
    }

    #[test]
    fn thousands_of_tasks() {
        super::thousands_of_tasks(&CPU, if cfg!(debug_assertions) { 2 } else { 8 });
    }

    #[test]
    fn more_weights_than_the_ring_holds() {
        super::more_weights_than_the_ring_holds(&CPU, if cfg!(debug_assertions) { 2 } else { 20 });
    }

    #[test]
    fn a_hundred_thousand_tasks() {
        super::a_hundred_thousand_tasks(&CPU);
    }
}

mod gpu {
    use super::*;

    fn device() -> Device {
        Device::gpu(0).expect("a GPU")
    }

    #[test]
    #[ignore = "gpu"]
    fn graphs_of_every_size() {
        fixed(&device(), 0..40, 24, 200);
    }

    #[test]
    #[ignore = "gpu"]
    fn small_and_dense_graphs() {
        fixed(&device(), 40..60, 60, 24);
    }

    #[test]
    #[ignore = "gpu"]
    fn thousands_of_tasks() {
        super::thousands_of_tasks(&device(), 4);
    }

    #[test]
    #[ignore = "gpu"]
    fn more_weights_than_the_ring_holds() {
        super::more_weights_than_the_ring_holds(&device(), support::rounds::rounds(120) as u64);
    }

    #[test]
    #[ignore = "gpu"]
    fn a_hundred_thousand_tasks() {
        super::a_hundred_thousand_tasks(&device());
    }
}

/// The same graphs at every run.
fn fixed(device: &Device, seeds: std::ops::Range<u64>, lines: usize, most: u16) {
    let count = support::rounds::rounds(seeds.clone().count());
    for seed in seeds.take(count) {
        if let Err(what) = check(device, &Recipe::from_seed(seed, lines, most), None) {
            panic!("seed {seed}: {what}");
        }
    }
}

/// About 10⁴ tasks each: smallest tiles on large tensors.
fn thousands_of_tasks(device: &Device, graphs: u64) {
    let mut most = 0;
    for seed in 0..graphs {
        let recipe = Recipe { small: true, sizes: [197, 180, 200], ..Recipe::from_seed(seed, 80, 200) };
        match check(device, &recipe, None) {
            Ok(case) => most = most.max(case.compiled.plan().tasks()),
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    assert!(most > 8_000, "at most {most} tasks in a graph");
}

/// Contractions of more steps than the ring has pages, next to tasks that do not use it: a worker's loader runs into what its consumers
/// have yet to write. Few tiles per call, so that the kind changes with nearly every task; few workers, so that most waits are for a
/// task of the same list.
fn more_weights_than_the_ring_holds(device: &Device, graphs: u64) {
    let most = device.workers();
    let mut done = 0;
    // The first one does not end under racecheck (docs/internals/sanitizer.md).
    for seed in u64::from(support::rounds::short()).. {
        if done == graphs {
            break;
        }
        assert!(seed < 20 * graphs, "{done} graphs with a long contraction among {seed}");
        let recipe = Recipe { small: false, ..Recipe::from_seed(7000 + seed, 14, 100) };
        let long = 500 + (seed * 97 % 400) as u16;
        let recipe = Recipe { sizes: [long, 40 + (seed % 90) as u16, 64], ..recipe };
        let workers = [1, 2, most - 1, most, 1][seed as usize % 5].max(1);
        let schedule = match (recipe.schedule, seed % 5) {
            // One worker, one list.
            (_, 4) => Schedule::Static,
            (How::Schedulers(_), _) if device.is_gpu() => Schedule::Tickets,
            _ => dealt(device, &recipe).0,
        };
        let schedule = match schedule {
            Schedule::Schedulers(n) => Schedule::Schedulers(n.min(workers)),
            Schedule::SpareWarps(n) => Schedule::SpareWarps(n.min(workers)),
            other => other,
        };
        let program = recipe.program();
        let long_sums = |step: &graphs::recipe::Step| {
            matches!(step.op, graphs::op::Op::Linear | graphs::op::Op::Matmul) && program.nodes[step.reads[0]].shape[1] >= 500
        };
        if !program.steps.iter().any(long_sums) {
            continue;
        }
        done += 1;
        let options = PlanOptions::new().workers(workers).schedule(schedule).look_ahead(recipe.look_ahead);
        let options = options.pipelined(recipe.pipelined && schedule == Schedule::Static && !device.is_gpu());
        let case = Case::with(device, program, &options).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        if let Err(what) = check_case(case, None) {
            panic!("seed {seed}, {workers} workers, {schedule}: {what}");
        }
    }
}

/// Smallest tiles on tensors of half a million elements, once with every schedule.
fn a_hundred_thousand_tasks(device: &Device) {
    let mut seed = 0;
    for schedule in [How::Static, How::Tickets, How::Schedulers(8), How::Schedulers(1), How::SpareWarps(8)] {
        let (case, seed) = loop {
            seed += 1;
            assert!(seed < 500, "no graph of 10⁵ tasks");
            let recipe = Recipe::from_seed(seed, 40, 200);
            let recipe = Recipe { small: true, sizes: [700, 640, 720], schedule, workers: 1, pipelined: false, ..recipe };
            // Sums of that many products would take the oracle minutes.
            if recipe.program().steps.iter().any(|step| matches!(step.op, graphs::op::Op::Linear | graphs::op::Op::Matmul)) {
                continue;
            }
            let case = Case::new(device, &recipe).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            if case.compiled.plan().tasks() >= 100_000 {
                break (case, seed);
            }
        };
        if let Err(what) = check_case(case, None) {
            panic!("seed {seed}, {schedule:?}: {what}");
        }
    }
}

/// Random graphs test little if they are all alike.
#[test]
fn random_graphs_are_of_every_kind() {
    let mut operations = BTreeSet::new();
    let (mut fan_out, mut fan_in, mut rewritten, mut deepest, mut drained) = (0, 0, 0, 0, 0);
    let (mut schedules, mut workers) = (BTreeSet::new(), BTreeSet::new());
    let (mut pipelines, mut ahead) = (0, 0);
    for seed in 0..60 {
        let recipe = if seed < 40 { Recipe::from_seed(seed, 24, 200) } else { Recipe::from_seed(seed, 60, 24) };
        let program = recipe.program();
        operations.extend(program.steps.iter().map(|step| format!("{:?}", step.op)));
        let readers = |n: usize| program.steps.iter().filter(|step| step.reads.contains(&n)).count();
        fan_out += usize::from((0..program.nodes.len()).any(|n| !program.nodes[n].input && readers(n) > 2));
        fan_in += usize::from(program.steps.iter().any(|step| step.reads.iter().collect::<BTreeSet<_>>().len() > 2));
        let writes = |n: usize| program.steps.iter().filter(|step| step.write == n && !step.op.in_place()).count();
        rewritten += usize::from((0..program.nodes.len()).any(|n| writes(n) > 1));
        let compiled = graphs::Case::new(&CPU, &recipe).unwrap().compiled;
        deepest = deepest.max(compiled.waves());
        drained += usize::from(compiled.plan().graph().lists.drains.len() > 1);
        schedules.insert(recipe.schedule);
        workers.insert(dealt(&CPU, &recipe).1);
        pipelines += usize::from(graphs::pipelined(&CPU, &recipe));
        ahead += usize::from(recipe.look_ahead && matches!(recipe.schedule, How::Schedulers(_) | How::SpareWarps(_)));
    }
    assert_eq!(operations.len(), 19, "{operations:?}");
    let rich = fan_out > 10 && fan_in > 10 && rewritten > 10 && drained > 10 && deepest > 12;
    assert!(rich, "{fan_out} {fan_in} {rewritten} {drained} {deepest}");
    let of = |is: fn(&How) -> bool| schedules.iter().filter(|how| is(how)).count();
    assert!(of(|how| matches!(how, How::Schedulers(_))) > 2 && of(|how| matches!(how, How::SpareWarps(_))) > 2, "{schedules:?}");
    assert!(schedules.contains(&How::Static) && schedules.contains(&How::Tickets), "{schedules:?}");
    assert!(pipelines > 5 && ahead > 5, "{pipelines} pipelined and {ahead} that look ahead");
    assert_eq!(workers, (1..=8).collect(), "workers of the CPU device");
}

/// Of calls that are skipped, late, or wrong in one element, nearly all change what the outputs hold.
#[test]
fn the_outputs_show_mistakes() {
    let mut seen = [(0, 0); 3];
    for seed in 0..if cfg!(debug_assertions) { 4 } else { 40 } {
        let program = Recipe::from_seed(seed, 24, 60).program();
        let outputs: Vec<usize> = (0..program.nodes.len()).filter(|&n| program.nodes[n].output).collect();
        let expected = oracle::run(&program, 1, None);
        for step in 0..program.steps.len() {
            for (kind, (shown, all)) in [Kind::Skipped, Kind::Late, Kind::OffByOne].into_iter().zip(&mut seen) {
                if matches!(kind, Kind::Late) && !program.depend(step) {
                    continue;
                }
                let wrong = oracle::run(&program, 1, Some(Fault { step, kind }));
                *all += 1;
                *shown += usize::from(outputs.iter().any(|&n| wrong[n] != expected[n]));
            }
        }
    }
    for (shown, all) in seen {
        assert!(all > 10 && shown * 100 >= all * 80, "{seen:?}");
    }
}

/// The whole way, device included, fails when the numbers are wrong.
#[test]
fn a_wrong_result_fails() {
    let mut found = 0;
    for seed in 0..20 {
        let recipe = Recipe::from_seed(seed, 12, 40);
        let last = recipe.program().steps.len() - 1;
        assert!(check(&CPU, &recipe, None).is_ok());
        for kind in [Kind::Skipped, Kind::OffByOne] {
            found += usize::from(check(&CPU, &recipe, Some(Fault { step: last, kind })).is_err());
        }
    }
    assert!(found >= 35, "{found} of 40 mistakes in last calls were found");
}
