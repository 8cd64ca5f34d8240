//! What is recorded on a GPU is what is recorded on a CPU, and costs next to nothing.
#[path = "../../kernels/tests/support/rounds.rs"]
mod rounds;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use maco::profile::{Busy, Kind, Profile, Role, Span};
use maco::{Device, Plan, PlanOptions, Schedule, Tensor, bf16};
use maco_build::ptx::split;
use profiled::kernels::{LINKS, chain, layers};

/// Nanoseconds by which the clocks of two multiprocessors may differ: two ticks of the slowest global timer that is known,
/// and more than clocks of one go unevenly in a launch of half a millisecond (docs/decisions/0007-profiling-is-a-separate-device-build.md).
const APART: u64 = 2_100;

fn apart(device: &Device) -> u64 {
    if device.is_gpu() { APART } else { 0 }
}

/// What every profile keeps.
fn sound(plan: &Plan, profile: &Profile) {
    let apart = apart(plan.device());
    assert_eq!((profile.dropped, profile.workers), (0, plan.workers()));
    let mut runs = HashMap::new();
    for span in profile.runs() {
        assert!(runs.insert(span.task, *span).is_none(), "task {} ran once", span.task);
    }
    assert_eq!(runs.len(), plan.tasks());
    for (from, to) in profile.edges() {
        assert!(runs[&from].end <= runs[&to].start + apart, "{}: {:?} before {:?}", profile.label(to), runs[&from], runs[&to]);
    }
    assert_eq!(profile.edges().count() as u64, plan.edges());
    for worker in 0..profile.workers {
        for kind in [Kind::Run, Kind::Load, Kind::Store] {
            for warp in std::iter::once(None).chain((0..Span::WARPS).map(Some)) {
                let own = profile.spans.iter().filter(|span| (span.worker, span.kind.role(), span.warp) == (worker, kind.role(), warp));
                let own: Vec<&Span> = own.collect();
                assert!(own.windows(2).all(|pair| pair[0].end <= pair[1].start), "spans of one role, or of one warp, follow one another");
                assert!(own.iter().map(|span| span.duration()).sum::<u64>() <= profile.elapsed, "they fit the launch");
            }
        }
    }
    if plan.device().is_gpu() {
        let mut multiprocessors = profile.multiprocessors.clone();
        multiprocessors.sort_unstable();
        multiprocessors.dedup();
        assert_eq!(multiprocessors.len(), profile.workers as usize, "one worker per multiprocessor");
        // A run of tasks of one warp is noted once by who gives its slot back.
        let graph = plan.graph();
        for task in 0..plan.tasks() as u32 {
            let stored = profile.spans.iter().filter(|span| span.kind == Kind::Store && span.task == task).count();
            let in_run =
                graph.schedule == Schedule::Static && graph.graph.calls[graph.tasks[task as usize].call as usize].task.is_warp_task();
            assert!(stored == 1 || stored == 0 && in_run, "task {task} ended {stored} times");
        }
    }
    assert!(profile.summary().busy <= 100.001, "a worker's time is there once");
    let path = profile.critical_path();
    assert!(path.running() <= profile.elapsed + apart && !path.steps.is_empty());
}

fn zeros(device: &Device, shape: [u64; 2]) -> Tensor<bf16> {
    device.zeros::<bf16>(shape).unwrap()
}

/// Runs `layers`, twice, and profiles the second time.
fn profile_layers(device: &Device, [m, k, h]: [u64; 3], options: &PlanOptions) -> (Plan, Profile) {
    let plan = layers::plan_with(device, layers::Dims { M: m, K: k, H: h }, options).unwrap();
    let (x, up, down, mut y) = (zeros(device, [m, k]), zeros(device, [h, k]), zeros(device, [k, h]), zeros(device, [m, k]));
    plan.profile(true).unwrap();
    plan.run(&x, &up, &down, 1.0, &mut y).unwrap();
    let report = plan.run(&x, &up, &down, 1.0, &mut y).unwrap();
    let profile = plan.profile_report().unwrap();
    assert!(profile.elapsed <= report.elapsed.as_nanos() as u64 + 50_000, "{} of {:?}", profile.elapsed, report.elapsed);
    let plan: &Plan = &plan;
    (plan.clone(), profile)
}

fn schedules(device: &Device) -> Vec<PlanOptions> {
    let workers = device.workers().min(8);
    [Schedule::Static, Schedule::Tickets, Schedule::Schedulers(1), Schedule::SpareWarps(1)]
        .map(|schedule| PlanOptions::new().schedule(schedule).workers(workers - u32::from(schedule == Schedule::Schedulers(1))))
        .into()
}

fn every_schedule(device: &Device) {
    for options in schedules(device) {
        let (plan, profile) = profile_layers(device, [256, 256, 512], &options);
        sound(&plan, &profile);
        if device.is_gpu() {
            let mut loads = vec![0; profile.tasks.len()];
            profile.spans.iter().filter(|span| span.kind == Kind::Load).for_each(|span| loads[span.task as usize] += 1);
            for span in profile.runs() {
                let (task, count) = (&profile.tasks[span.task as usize], loads[span.task as usize]);
                // Tiles of element-wise tasks come through the ring too, unless consumers wait for them themselves.
                let gemm = profile.operations[task.operation as usize].flops > 0;
                assert!(count == 1 || count == 0 && !gemm, "the loader loads {count} times for task {}", span.task);
            }
        }
        let costs = profile.costs();
        if options == schedules(device)[0] {
            let (plan, profile) = profile_layers(device, [256, 256, 512], &options.costs(costs));
            sound(&plan, &profile);
        }
    }
}

/// Nanoseconds of tasks that are nothing but time are those that were asked for.
fn times(device: &Device) {
    const FAN: u64 = 64;
    const ASKED: u32 = 20_000;
    let plan = chain::plan_with(device, chain::Dims { C: 8 * FAN }, &PlanOptions::new().workers(device.workers().min(8))).unwrap();
    let x = device.zeros::<u32>([1]).unwrap();
    let (mut root, mut fan) = (device.zeros::<u32>([8]).unwrap(), device.zeros::<u32>([8 * FAN]).unwrap());
    let mut links: [Tensor<u32>; LINKS] = std::array::from_fn(|_| device.zeros::<u32>([8]).unwrap());
    plan.profile(true).unwrap();
    plan.run(&x, ASKED, &mut root, &mut fan, &mut links).unwrap();
    let profile = plan.profile_report().unwrap();
    let bare: &Plan = &plan;
    sound(bare, &profile);
    let asked = u64::from(ASKED);
    for span in profile.runs() {
        assert!(span.duration() + apart(device) >= asked, "{span:?}");
        if device.is_gpu() {
            assert!(span.duration() <= asked + 3 * APART, "{span:?}");
        }
    }
    // The chain is what the launch waits for.
    let path = profile.critical_path();
    assert!(path.steps.len() >= LINKS && path.running() + 66 * apart(device) >= asked * (LINKS as u64 + 1), "{path}");
    let hop = profile.hop();
    if device.is_gpu() {
        assert!(hop.is_some_and(|hop| hop < 10_000), "{hop:?}");
    }
}

/// Runs `chain` of tasks that take so long; its plan and profile. Without `records` there is room for all.
fn profile_chain(device: &Device, schedule: Schedule, nanoseconds: u32, records: Option<u32>) -> (Plan, Profile) {
    const FAN: u64 = 4;
    let options = PlanOptions::new().schedule(schedule).workers(4);
    let plan = chain::plan_with(device, chain::Dims { C: 8 * FAN }, &options).unwrap();
    let x = device.zeros::<u32>([1]).unwrap();
    let (mut root, mut fan) = (device.zeros::<u32>([8]).unwrap(), device.zeros::<u32>([8 * FAN]).unwrap());
    let mut links: [Tensor<u32>; LINKS] = std::array::from_fn(|_| device.zeros::<u32>([8]).unwrap());
    match records {
        None => plan.profile(true).unwrap(),
        Some(records) => plan.profile_keeping(records).unwrap(),
    }
    plan.run(&x, nanoseconds, &mut root, &mut fan, &mut links).unwrap();
    let profile = plan.profile_report().unwrap();
    let plan: &Plan = &plan;
    (plan.clone(), profile)
}

/// Schedulers serve between tasks of which one waits for the other, and not while these run.
fn served(device: &Device) {
    // Far longer than a scheduler serves, on an emulated GPU too.
    const ASKED: u32 = 400_000;
    let apart = apart(device);
    for schedule in [Schedule::Static, Schedule::Schedulers(1), Schedule::SpareWarps(1), Schedule::Schedulers(2), Schedule::SpareWarps(3)] {
        let (plan, profile) = profile_chain(device, schedule, ASKED, None);
        sound(&plan, &profile);
        let (count, spare) = match schedule {
            Schedule::Schedulers(count) => (count, false),
            Schedule::SpareWarps(count) => (count, true),
            _ => (0, false),
        };
        assert_eq!(profile.schedulers.len(), count as usize, "{schedule:?}");
        let all: Vec<&Busy> = profile.schedulers.iter().flat_map(|scheduler| &scheduler.busy).collect();
        for (number, scheduler) in profile.schedulers.iter().enumerate() {
            assert!(!scheduler.busy.is_empty(), "{schedule:?}: scheduler {number} pushes to somebody");
            assert!(scheduler.busy.iter().all(|busy| busy.end <= profile.elapsed));
            assert!(scheduler.busy.windows(2).all(|pair| pair[0].end <= pair[1].start), "{schedule:?}: {:?}", scheduler.busy);
            assert_eq!(scheduler.multiprocessor.is_some(), device.is_gpu());
            if let Some(sm) = scheduler.multiprocessor {
                // A spare warp is one of the worker of its number; a CTA has its multiprocessor for itself.
                let worker = profile.multiprocessors.iter().position(|&of| of == sm);
                assert_eq!(worker, spare.then_some(number), "{schedule:?}");
                assert!(2 * scheduler.serving() < profile.elapsed, "{schedule:?}: {:?}", profile.summary().schedulers);
            }
        }
        if count > 0 {
            let mut runs = vec![None; profile.tasks.len()];
            profile.runs().for_each(|run| runs[run.task as usize] = Some(run));
            for (from, to) in profile.edges() {
                let (end, start) = (runs[from as usize].unwrap().end, runs[to as usize].unwrap().start);
                let found = all.iter().any(|busy| busy.start <= start + apart && busy.end + apart >= end);
                assert!(found, "{schedule:?}: nobody served between {end} and {start}: {all:?}");
            }
            // While a task runs, nothing comes: most tasks of the chain are ended and pushed in a time of their own.
            assert!(!device.is_gpu() || all.len() >= LINKS / 2, "{schedule:?}: {all:?}");
        }
    }
    // Four workers have one record of each role, and so their scheduler four.
    for schedule in [Schedule::Schedulers(1), Schedule::SpareWarps(1)] {
        let (_, profile) = profile_chain(device, schedule, ASKED, Some(1));
        assert_eq!(profile.schedulers[0].busy.len(), 4, "{schedule:?}");
        assert!(profile.dropped >= LINKS as u64, "{schedule:?}: {}", profile.dropped);
    }
}

#[test]
fn cpu_schedulers_serve_between_tasks() {
    served(&Device::cpu_with(7));
}

#[test]
#[ignore = "gpu"]
fn gpu_schedulers_serve_between_tasks() {
    served(&Device::gpu(0).expect("a GPU"));
}

/// Tasks of one warp are run, and noted, by several warps of a worker, as where nothing is recorded; all others by all of them. `all` are the warps that may note.
fn by_warps(device: &Device, pipelined: bool, all: &BTreeSet<u32>) {
    for schedule in [Schedule::Static, Schedule::Tickets, Schedule::Schedulers(1), Schedule::SpareWarps(1)] {
        let options = PlanOptions::new().workers(1).schedule(schedule).pipelined(pipelined);
        let (plan, profile) = profile_layers(device, [128, 128, 128], &options);
        sound(&plan, &profile);
        let mut warps = BTreeSet::new();
        for span in profile.spans.iter().filter(|span| span.kind.role() == Role::Consume) {
            let operation = &profile.operations[profile.tasks[span.task as usize].operation as usize];
            assert_eq!(span.warp.is_some(), operation.name == "keep", "{span:?} of {}", operation.name);
            warps.extend(span.warp);
        }
        // Where tasks are claimed or pushed, the slot says whose they are, and others lie between them.
        assert!(warps.is_subset(all) && warps.len() > 1, "{schedule:?}: {warps:?}");
        assert!(schedule != Schedule::Static || warps == *all, "{warps:?}");
    }
}

/// Each of the two threads is four warps, of which the first one notes.
#[test]
fn cpu_warps_note_for_themselves() {
    by_warps(&Device::cpu_with(6), true, &BTreeSet::from([0, 4]));
}

#[test]
#[ignore = "gpu"]
fn gpu_warps_note_for_themselves() {
    by_warps(&Device::gpu(0).expect("a GPU"), false, &(0..8).collect());
}

#[test]
fn cpu_profiles_are_sound() {
    let device = Device::cpu_with(8);
    every_schedule(&device);
    times(&Device::cpu_with(2));
}

/// Files of the profiler that instructions of this PTX come from, inlined or not, by its table of lines.
fn profiler_files(ptx: &str) -> BTreeSet<&str> {
    let files = ptx.lines().filter_map(|line| line.trim_start().strip_prefix(".file")?.split('"').nth(1));
    files.filter_map(|file| file.split_once("maco-device/src/")).map(|(_, file)| file).filter(|file| file.starts_with("profile")).collect()
}

/// What is left of the profiler in code that does not record: no instruction. That this code is the same whether there is code that records beside it
/// is tested in maco-build (`code_that_records_is_made_when_it_is_asked_for`).
#[test]
fn ordinary_code_has_no_instruction_of_the_profiler() {
    let read = |name: &str| std::fs::read_to_string(std::path::Path::new(profiled::OUT_DIR).join(name));
    let (Ok(ordinary), Ok(recording)) = (read("maco.ptx"), read("maco_profile.ptx")) else {
        return rounds::left_out("clocks in PTX", "this package was built without device code");
    };
    let [ordinary, recording] = [ordinary, recording].map(|text| split::entries(&text).expect("PTX is read"));
    assert_eq!((ordinary.len(), recording.len()), (3, 3));
    for (ordinary, recording) in ordinary.iter().zip(&recording) {
        let name = &ordinary.name;
        assert_eq!(*name, recording.name);
        assert!(!ordinary.ptx.contains("%clock64"), "{name} reads the clock");
        assert!(recording.ptx.contains("%clock64"), "{name} does not record");
        // Without a table of lines nothing would come from anywhere.
        assert!(ordinary.ptx.contains(".loc") && ordinary.ptx.contains("maco-device/src/worker/cta.rs\""), "{name} has no lines");
        assert_eq!(profiler_files(&ordinary.ptx), BTreeSet::new(), "{name} has instructions of the profiler");
        // The table is that of all entries.
        let files = BTreeSet::from(["profile.rs", "profile/served.rs", "profile/warp_task.rs"]);
        assert_eq!(profiler_files(&recording.ptx), files, "{name}");
    }
}

#[test]
#[ignore = "gpu"]
fn gpu_profiles_are_sound() {
    let device = Device::gpu(0).expect("a GPU");
    every_schedule(&device);
    times(&device);
}

#[test]
#[ignore = "gpu"]
fn gpu_every_worker_of_a_large_launch_is_recorded() {
    let device = Device::gpu(0).expect("a GPU");
    let (plan, profile) = profile_layers(&device, [4096, 4096, 4096], &PlanOptions::new());
    sound(&plan, &profile);
    let summary = profile.summary();
    let gemm = &summary.operations[0];
    assert!(gemm.roofline.is_some_and(|percent| (20.0..110.0).contains(&percent)), "{summary}");
    assert_eq!(gemm.workers, plan.workers());
    let path = std::env::temp_dir().join(format!("maco-gpu-trace-{}.json", std::process::id()));
    profile.write_chrome(&path).unwrap();
    assert_eq!(Profile::read_chrome(&path).unwrap(), profile);
    std::fs::remove_file(&path).unwrap();
}

#[test]
#[ignore = "gpu"]
fn gpu_what_finds_no_room_is_counted() {
    let device = Device::gpu(0).expect("a GPU");
    let (m, k, h) = (256, 256, 512);
    let plan = layers::plan_with(&device, layers::Dims { M: m, K: k, H: h }, &PlanOptions::new().workers(1)).unwrap();
    let (x, up, down, mut y) = (zeros(&device, [m, k]), zeros(&device, [h, k]), zeros(&device, [k, h]), zeros(&device, [m, k]));
    plan.profile_keeping(2).unwrap();
    plan.run(&x, &up, &down, 1.0, &mut y).unwrap();
    let profile = plan.profile_report().unwrap();
    assert_eq!(profile.spans.len(), 6, "two of each role");
    assert!(profile.dropped >= 2 * plan.tasks() as u64 - 4, "{}", profile.dropped);
}

/// The fastest of several launches, which is not by chance.
fn fastest(launches: u32, mut launch: impl FnMut() -> Duration) -> Duration {
    (0..launches).map(|_| launch()).min().unwrap()
}

#[test]
#[ignore = "gpu"]
fn gpu_recording_costs_less_than_three_percent() {
    let device = Device::gpu(0).expect("a GPU");
    for (m, k, h) in [(4096, 4096, 4096), (1024, 2048, 2048)] {
        let plan = layers::plan(&device, layers::Dims { M: m, K: k, H: h }).unwrap();
        let (x, up, down, mut y) = (zeros(&device, [m, k]), zeros(&device, [h, k]), zeros(&device, [k, h]), zeros(&device, [m, k]));
        let mut measure = |on| {
            plan.profile(on).unwrap();
            fastest(50, || plan.run(&x, &up, &down, 1.0, &mut y).unwrap().elapsed)
        };
        // Alternately: clocks drift.
        let rounds: Vec<(Duration, Duration)> = (0..5).map(|_| (measure(false), measure(true))).collect();
        let without = rounds.iter().map(|round| round.0).min().unwrap();
        let with = rounds.iter().map(|round| round.1).min().unwrap();
        println!("{m} × {k} × {h}: {without:?} without, {with:?} with");
        assert!(with.as_secs_f64() <= 1.03 * without.as_secs_f64(), "{m} × {k} × {h}: {without:?} without, {with:?} with");
    }
}
