//! Every fault at every kind of task, under every schedule: the launch ends, says which task it was, leaves nothing behind in shared
//! memory, and after `recover()` the plan is exact.
//!
//! Takes two minutes: each fault ends when a deadline has passed, and there is one for every kind of task and schedule.
mod broken;
mod support;

use std::time::Duration;

use broken::{CASES, Case, WATCHED, Watch};
use kernels::faults;
use maco::{Device, Fault, Hang, PlanOptions, Schedule, Symptom, Tensor};
use support::hangs::{SCHEDULES, SHORT, aborted, awaited, hang, told};

on_every_device!(
    lost_signals,
    lost_arrivals,
    too_many_bytes,
    lost_pushes,
    what_has_in_band_flags,
    a_flag_that_is_never_raised,
    a_flag_that_no_thread_of_a_body_with_a_prologue_sees,
    a_copy_that_never_comes,
    a_flag_that_no_warp_sees,
);

const DEADLINE: Duration = SHORT.checked_div(4).unwrap();

/// What has no fault must not take as long, also where the processors are full of threads.
fn deadline(device: &Device) -> Duration {
    if device.is_gpu() { DEADLINE } else { SHORT }
}

/// A case, and what watches it.
struct Broken<'a> {
    case: Case,
    watch: &'a Option<Watch>,
    /// Whether a worker is one thread, on a CPU: elsewhere tasks of one warp wait for themselves while others run.
    thread: bool,
}

impl Broken<'_> {
    #[track_caller]
    fn right(&self, what: &str) {
        self.case.right(self.watch, what);
    }

    /// Without any effect.
    #[track_caller]
    fn harmless(&self, fault: Fault) {
        self.case.plan.inject(Some(fault)).unwrap();
        self.right(&format!("{fault:?} with {}", self.case.plan.graph().schedule));
        self.case.plan.inject(None).unwrap();
    }

    /// The launch hangs with `fault`, says what `blamed` accepts, and is exact once the fault is gone.
    #[track_caller]
    fn hangs(&self, fault: Fault, blamed: impl Fn(&Hang) -> bool) {
        let plan = &self.case.plan;
        let deadline = deadline(plan.device());
        plan.inject(Some(fault)).unwrap();
        plan.set_deadline(deadline).unwrap();
        let run = || self.case.run(self.watch);
        let hang = hang(deadline, run);
        told(&hang, plan);
        assert!(blamed(&hang), "{fault:?} with {}: {hang}", plan.graph().schedule);
        aborted(plan, &hang, run);
        plan.inject(None).unwrap();
        plan.recover().unwrap();
        plan.check().unwrap();
        for _ in 0..3 {
            self.right(&format!("after {fault:?} with {}", plan.graph().schedule));
        }
    }

    /// The launch hangs with `fault`, which keeps `task` of `call` from its end. Its worker says so, or its scheduler; unless those who wait for it look first.
    #[track_caller]
    fn does_not_end(&self, fault: Fault, call: usize, task: u32) {
        let plan = &self.case.plan;
        let one_looks = plan.workers() == 1 && self.thread || plan.graph().schedule.schedulers() == 1;
        self.hangs(fault, |hang| self.is(hang, task) || !one_looks && self.behind(hang, call));
    }

    /// Whether `hang` says that `task` did not end.
    fn is(&self, hang: &Hang, task: u32) -> bool {
        let node = &self.case.plan.graph().tasks[task as usize];
        let (name, tile) = (self.case.kinds[node.call as usize].name(), &node.coord[..hang.tile.len()]);
        (hang.symptom, &*hang.task, hang.call, &*hang.tile) == (Symptom::DidNotEnd, name, node.call, tile)
    }

    /// Whether `hang` says that a task behind `call` waited.
    fn behind(&self, hang: &Hang, call: usize) -> bool {
        hang.symptom == Symptom::Waited && hang.call as usize > call && hang.task == self.case.kinds[hang.call as usize].name()
    }
}

/// Every case under every schedule, where a CPU has several workers in both executors: a task in the middle of each call.
fn each(device: &Device, test: impl Fn(&Broken, usize, u32)) {
    let watch = &Watch::new(device);
    // Scheduler CTAs take multiprocessors.
    let several = (device.is_gpu() && device.workers() > 8).then_some(Schedule::Schedulers(4));
    for (make, also_pipelined) in CASES {
        for schedule in SCHEDULES.into_iter().chain(several) {
            for pipelined in [false, true] {
                if pipelined && (device.is_gpu() || device.workers() == 1 || !also_pipelined) {
                    continue;
                }
                let case = Case::new(make, device, &PlanOptions::new().pipelined(pipelined), schedule);
                let broken = Broken { case, watch, thread: !(pipelined || device.is_gpu()) };
                broken.right("before any fault");
                for (call, task) in broken.case.tasks() {
                    test(&broken, call, task);
                }
            }
        }
    }
}

fn lost_signals(device: &Device) {
    each(device, |broken, call, task| {
        let (plan, fault) = (&broken.case.plan, Fault::LostSignal(task));
        if awaited(plan, task) {
            broken.hangs(fault, |hang| broken.behind(hang, call));
        } else {
            // The last call, or the only worker, which needs no signals of its own.
            assert!(call == broken.case.kinds.len() - 1 || (plan.workers(), plan.graph().schedule) == (1, Schedule::Static));
            broken.harmless(fault);
        }
    });
}

fn lost_arrivals(device: &Device) {
    each(device, |broken, call, task| broken.does_not_end(Fault::LostArrive(task), call, task));
}

fn too_many_bytes(device: &Device) {
    each(device, |broken, call, task| {
        if broken.case.loads(task) {
            broken.does_not_end(Fault::ExtraBytes(task), call, task);
        } else {
            broken.harmless(Fault::ExtraBytes(task));
        }
    });
}

fn lost_pushes(device: &Device) {
    each(device, |broken, call, task| {
        if broken.case.plan.graph().schedule.schedulers() > 0 {
            broken.does_not_end(Fault::LostPush(task), call, task);
        } else {
            broken.harmless(Fault::LostPush(task));
        }
    });
}

/// Of the GEMVs, those that the faults above should have met with in-band flags in operand A, and with an RMSNorm prologue.
fn what_has_in_band_flags(device: &Device) {
    for schedule in [Schedule::Static, Schedule::Tickets] {
        let case = Case::new(broken::few, device, &PlanOptions::new().pipelined(!device.is_gpu()), schedule);
        let graph = case.plan.graph();
        let in_band: Vec<u32> = graph.relations.iter().filter(|relation| relation.in_band).map(|relation| relation.consumer).collect();
        assert_eq!((in_band, graph.calls[2].tasks.len()), (vec![3, 4], 0));
    }
}

/// A body that waits for a flag in memory, longer than the deadline.
macro_rules! a_flag_that_is_never_raised {
    ($device:ident, $kernel:ident, $task:literal, $tile:literal) => {{
        let watch = Watch::new($device);
        let [down, up] = [0u32, 1].map(|flag| $device.upload(&[flag], [1]).unwrap());
        let with = |schedule| PlanOptions::new().deadline(DEADLINE).schedule(schedule);
        // Of one tile the second task is pushed while the first one runs.
        let ahead = (with(Schedule::Schedulers(1)).look_ahead(true), 1);
        for (options, tiles) in SCHEDULES.map(|schedule| (with(schedule), 300)).into_iter().chain([ahead]) {
            let n = $tile * tiles;
            let data: Vec<f32> = (0..n).map(|n| n as f32).collect();
            let (x, dims) = ($device.upload(&data, [n]).unwrap(), faults::$kernel::Dims { N: n as u64 });
            let plan = faults::$kernel::plan_with($device, dims, &options).unwrap();
            let run = |flag: &Tensor<u32>| {
                let mut y = $device.upload(&vec![-1f32; n], [n]).unwrap();
                match &watch {
                    None => plan.run(flag, &x, &mut y).map(drop)?,
                    Some(watch) => watch.run(|stream| plan.run_on(stream, flag, &x, &mut y))?,
                }
                y.download()
            };
            assert_eq!(run(&up).unwrap(), data);
            for _ in 0..2 {
                let hang = hang(DEADLINE, || run(&down));
                told(&hang, &plan);
                // On static lists, a task of the second call may have been waiting for the first as long.
                let waited = hang.symptom == Symptom::Waited && hang.call == 1;
                assert!((hang.symptom == Symptom::DidNotEnd && hang.call == 0) || waited, "{hang}");
                assert_eq!(hang.task, $task);
                aborted(&plan, &hang, || run(&up));
                plan.recover().unwrap();
            }
            for _ in 0..3 {
                assert_eq!(run(&up).unwrap(), data, "{options:?}");
            }
        }
    }};
}

fn a_flag_that_is_never_raised(device: &Device) {
    a_flag_that_is_never_raised!(device, gated, "until", 256);
}

fn a_flag_that_no_thread_of_a_body_with_a_prologue_sees(device: &Device) {
    a_flag_that_is_never_raised!(device, gated_early, "until_early", 256);
}

fn a_copy_that_never_comes(device: &Device) {
    a_flag_that_is_never_raised!(device, gated_copies, "until_copied", 256);
}

fn a_flag_that_no_warp_sees(device: &Device) {
    a_flag_that_is_never_raised!(device, gated_warps, "until_warp", 32);
}

/// The watch sees a word that changes: else it would prove nothing.
#[test]
#[ignore = "gpu"]
fn gpu_the_watch_notices_a_stray_word() {
    let watch = Watch::new(&Device::gpu(0).expect("a GPU")).unwrap();
    for spoil in [false, true, false] {
        watch.neighbour.watch(&watch.stream, WATCHED, spoil);
        assert_eq!(watch.neighbour.seen(&watch.stream).is_some(), spoil);
    }
}
