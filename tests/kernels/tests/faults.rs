//! Every fault at every kind of task, under every schedule: the launch ends, says which task it was, leaves nothing behind in shared
//! memory, and after `recover()` the plan is exact.
mod support;

use std::time::Duration;

use kernels::faults;
use maco::{Device, Error, Fault, Hang, PlanOptions, Schedule, Stream, Symptom, Tensor, bf16};
use support::gpu::Neighbour;
use support::hangs::{SCHEDULES, SHORT, aborted, awaited, hang, told};
use support::{Matrix, poisoned};

on_every_device!(lost_signals, lost_arrivals, too_many_bytes, lost_pushes, a_flag_that_is_never_raised, a_flag_that_no_warp_sees);

const DEADLINE: Duration = SHORT.checked_div(4).unwrap();

/// How long shared memory is watched after a hang.
const WATCHED: Duration = Duration::from_millis(5);

/// The kinds, by call of `kinds`.
const KINDS: [&str; 7] = ["linear", "widen", "centre", "lookup", "mirror", "negate", "copy"];

struct Kinds {
    plan: faults::kinds::Plan,
    x: Tensor<bf16>,
    w: Tensor<bf16>,
    ids: Tensor<u32>,
    expected: Matrix,
    watch: Option<Watch>,
}

/// Watches what follows a launch, on a GPU.
struct Watch {
    stream: Stream,
    neighbour: Neighbour,
}

impl Watch {
    fn new(device: &Device) -> Option<Watch> {
        device.is_gpu().then(|| Watch { stream: Stream::new(device).unwrap(), neighbour: Neighbour::new() })
    }

    /// Runs with the watch right behind the launch.
    #[track_caller]
    fn run(&self, run: impl FnOnce(&Stream) -> Result<maco::Pending, Error>) -> Result<(), Error> {
        let pending = run(&self.stream)?;
        self.neighbour.watch(&self.stream, WATCHED, false);
        let result = pending.wait();
        if let Some(what) = self.neighbour.seen(&self.stream) {
            panic!("a copy outlived its launch: {what}");
        }
        result.map(drop)
    }
}

impl Kinds {
    fn new(device: &Device, schedule: Schedule) -> Kinds {
        let (m, n, k) = (96usize, 256usize, 136usize);
        let (x, w) = (Matrix::sparse(m, k, 1), Matrix::integers(n, k, 2, 3));
        let ids: Vec<u32> = (0..m as u32).map(|row| row * 7 % m as u32).collect();
        let product = x.times(&w.t());
        let centred = Matrix::new(m, n, |r, c| product.at(r, c) - product.data[r * n..][..n].iter().sum::<f64>());
        let expected = Matrix::new(m, n, |r, c| -centred.at(ids[r] as usize, n - 1 - c));
        let dims = faults::kinds::Dims { M: m as u64, N: n as u64, K: k as u64 };
        let options = PlanOptions::new().deadline(DEADLINE).schedule(schedule);
        let mut plan = faults::kinds::plan_with(device, dims, &options).unwrap();
        if schedule == Schedule::Static {
            // Tasks of consecutive calls on different workers, so that signals leave them wherever there are two.
            let deal = |task: u32| {
                let call = plan.graph().tasks[task as usize].call;
                (task - plan.graph().calls[call as usize].tasks.start + call) % plan.workers()
            };
            let placement = (0..plan.tasks() as u32).map(deal).collect();
            plan = faults::kinds::plan_with(device, dims, &options.placement(placement)).unwrap();
        }
        let ids = device.upload(&ids, [m]).unwrap();
        Kinds { plan, x: x.upload(device), w: w.upload(device), ids, expected, watch: Watch::new(device) }
    }

    fn run(&self) -> Result<Tensor<f32>, Error> {
        let mut y = poisoned::<f32>(self.plan.device(), self.expected.rows, self.expected.cols);
        match &self.watch {
            None => self.plan.run(&self.x, &self.w, &self.ids, &mut y).map(drop)?,
            Some(watch) => watch.run(|stream| self.plan.run_on(stream, &self.x, &self.w, &self.ids, &mut y))?,
        }
        Ok(y)
    }

    #[track_caller]
    fn right(&self, what: &str) {
        self.expected.exactly(&self.run().unwrap(), what);
    }

    /// A task in the middle of every call.
    fn tasks(&self) -> Vec<u32> {
        let calls = &self.plan.graph().calls;
        assert_eq!(calls.len(), KINDS.len());
        calls.iter().map(|call| call.tasks.start + (call.tasks.end - call.tasks.start) / 2).collect()
    }

    /// The launch hangs with `fault`, says what `blamed` accepts, and is exact once the fault is gone.
    #[track_caller]
    fn hangs(&self, fault: Fault, blamed: impl Fn(&Hang) -> bool) {
        self.plan.inject(Some(fault)).unwrap();
        let hang = hang(DEADLINE, || self.run());
        told(&hang, &self.plan);
        assert!(blamed(&hang), "{fault:?} with {}: {hang}", self.plan.graph().schedule);
        aborted(&self.plan, &hang, || self.run());
        self.plan.inject(None).unwrap();
        self.plan.recover().unwrap();
        self.plan.check().unwrap();
        for _ in 0..3 {
            self.right(&format!("after {fault:?}"));
        }
    }

    /// Whether `hang` says that `task` did not end.
    fn is(&self, hang: &Hang, task: u32) -> bool {
        let node = &self.plan.graph().tasks[task as usize];
        let tile = &node.coord[..hang.tile.len()];
        (hang.symptom, &*hang.task, hang.call, &*hang.tile) == (Symptom::DidNotEnd, KINDS[node.call as usize], node.call, tile)
    }

    /// Whether `hang` says that a task behind `call` waited.
    fn behind(&self, hang: &Hang, call: usize) -> bool {
        hang.symptom == Symptom::Waited && hang.call as usize > call && hang.task == KINDS[hang.call as usize]
    }

    /// Who notices that a task does not end: its worker, or its scheduler; unless those who wait for it look first.
    fn only_one_looks(&self) -> bool {
        self.plan.workers() == 1 || self.plan.graph().schedule.schedulers() == 1
    }
}

fn each(device: &Device, test: impl Fn(&Kinds)) {
    let loaded = Kinds::new(device, Schedule::Static);
    let several = Schedule::Schedulers(if loaded.plan.workers() > 4 { 4 } else { 1 });
    for schedule in SCHEDULES.into_iter().chain([several]) {
        let kinds = match (schedule, device.is_gpu()) {
            // Scheduler CTAs take multiprocessors.
            (Schedule::Schedulers(4), false) => continue,
            _ => Kinds::new(device, schedule),
        };
        kinds.right("before any fault");
        test(&kinds);
    }
}

fn lost_signals(device: &Device) {
    each(device, |kinds| {
        for (call, task) in kinds.tasks().into_iter().enumerate() {
            if awaited(&kinds.plan, task) {
                kinds.hangs(Fault::LostSignal(task), |hang| kinds.behind(hang, call));
            } else {
                // The last call, or the only worker, which needs no signals of its own.
                assert!(call == KINDS.len() - 1 || (kinds.plan.workers(), kinds.plan.graph().schedule) == (1, Schedule::Static));
                kinds.plan.inject(Some(Fault::LostSignal(task))).unwrap();
                kinds.right("without signals that nobody waits for");
            }
        }
    });
}

fn lost_arrivals(device: &Device) {
    each(device, |kinds| {
        for (call, task) in kinds.tasks().into_iter().enumerate() {
            kinds.hangs(Fault::LostArrive(task), |hang| kinds.is(hang, task) || !kinds.only_one_looks() && kinds.behind(hang, call));
        }
    });
}

fn too_many_bytes(device: &Device) {
    each(device, |kinds| {
        let task = kinds.tasks()[0];
        kinds.hangs(Fault::ExtraBytes(task), |hang| kinds.is(hang, task) || !kinds.only_one_looks() && kinds.behind(hang, 0));
    });
}

fn lost_pushes(device: &Device) {
    each(device, |kinds| {
        for (call, task) in kinds.tasks().into_iter().enumerate() {
            if kinds.plan.graph().schedule.schedulers() > 0 {
                kinds.hangs(Fault::LostPush(task), |hang| kinds.is(hang, task) || !kinds.only_one_looks() && kinds.behind(hang, call));
            } else {
                kinds.plan.inject(Some(Fault::LostPush(task))).unwrap();
                kinds.right("a push is lost where nobody pushes");
            }
        }
    });
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
