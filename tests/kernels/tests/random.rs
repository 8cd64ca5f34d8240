//! Random graphs of exact tasks give bit for bit what their calls give one after another: on any number of workers, static lists
//! and tickets, forced tiles, reused memory, launch after launch.
mod graphs;
mod support;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use graphs::oracle::{self, Fault, Kind};
use graphs::recipe::{Recipe, recipes};
use graphs::{check, loaded};
use maco::Device;
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

    #[test]
    fn thousands_of_tasks() {
        super::thousands_of_tasks(&CPU, if cfg!(debug_assertions) { 2 } else { 8 });
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
}

/// The same graphs at every run.
fn fixed(device: &Device, seeds: std::ops::Range<u64>, lines: usize, most: u16) {
    let _loaded = loaded(device);
    for seed in seeds {
        if let Err(what) = check(device, &Recipe::from_seed(seed, lines, most), None) {
            panic!("seed {seed}: {what}");
        }
    }
}

/// About 10⁴ tasks each: smallest tiles on large tensors.
fn thousands_of_tasks(device: &Device, graphs: u64) {
    let _loaded = loaded(device);
    let mut most = 0;
    for seed in 0..graphs {
        let recipe = Recipe { small: true, sizes: [197, 180, 200], dynamic: seed % 2 == 0, ..Recipe::from_seed(seed, 80, 200) };
        match check(device, &recipe, None) {
            Ok(case) => most = most.max(case.compiled.plan().tasks()),
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    assert!(most > 8_000, "at most {most} tasks in a graph");
}

/// Random graphs test little if they are all alike.
#[test]
fn random_graphs_are_of_every_kind() {
    let mut operations = BTreeSet::new();
    let (mut fan_out, mut fan_in, mut rewritten, mut deepest, mut both) = (0, 0, 0, 0, 0);
    for seed in 0..60 {
        let recipe = if seed < 40 { Recipe::from_seed(seed, 24, 200) } else { Recipe::from_seed(seed, 60, 24) };
        let program = recipe.program();
        operations.extend(program.steps.iter().map(|step| format!("{:?}", step.op)));
        let readers = |n: usize| program.steps.iter().filter(|step| step.reads.contains(&n)).count();
        fan_out += usize::from((0..program.nodes.len()).any(|n| !program.nodes[n].input && readers(n) > 2));
        fan_in += usize::from(program.steps.iter().any(|step| step.reads.iter().collect::<BTreeSet<_>>().len() > 2));
        let writes = |n: usize| program.steps.iter().filter(|step| step.write == n && !step.op.in_place()).count();
        rewritten += usize::from((0..program.nodes.len()).any(|n| writes(n) > 1));
        deepest = deepest.max(graphs::Case::new(&CPU, &recipe).unwrap().compiled.waves());
        both += usize::from(recipe.dynamic);
    }
    assert_eq!(operations.len(), 19, "{operations:?}");
    assert!(fan_out > 10 && fan_in > 10 && rewritten > 10 && deepest > 12, "{fan_out} {fan_in} {rewritten} {deepest}");
    assert!((15..45).contains(&both), "{both}");
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
