//! A signal that is lost ends in an error in the user's names within the deadline, again and again until `recover()`; then the same
//! plan is exact, as every other plan is meanwhile.
//!
//! Takes a quarter of a minute: each hang ends when a deadline has passed, in every schedule.
mod graphs;
mod support;

use std::time::Duration;

use graphs::Case;
use graphs::recipe::Recipe;
use kernels::{dense, regions};
use maco::{Device, Error, Fault, PlanOptions, Symptom, Tensor, bf16};
use support::hangs::{SCHEDULES, SHORT, aborted, awaited, hang, told};
use support::{Matrix, poisoned};

on_every_device!(
    a_lost_signal_is_told_in_the_users_names,
    an_update_in_place_waits_for_its_readers,
    nobody_waits_for_the_last_call,
    any_lost_signal_of_random_graphs,
    any_task_of_random_graphs_that_does_not_end,
    the_deadline_is_two_seconds_unless_set,
);

struct Mlp {
    plan: dense::mlp::Plan,
    tensors: [Tensor<bf16>; 3],
    expected: Matrix,
}

impl Mlp {
    fn new(device: &Device, options: &PlanOptions) -> Mlp {
        let (m, h, k) = (130, 264, 136);
        // One input at a time: no sum is rounded.
        let x = Matrix::new(m, k, |r, c| if r % k == c { 3.0 } else { 0.0 });
        let (up, down) = (Matrix::sparse(h, k, 2), Matrix::sparse(k, h, 3));
        let plan = dense::mlp::plan_with(device, dense::mlp::Dims { M: m as u64, K: k as u64, H: h as u64 }, options).unwrap();
        let tensors = [x.upload(device), up.upload(device), down.upload(device)];
        Mlp { plan, tensors, expected: x.times(&up.t()).map(support::gelu).bf16().times(&down.t()) }
    }

    fn run(&self) -> Result<Tensor<bf16>, Error> {
        let mut y = poisoned::<bf16>(self.plan.device(), self.expected.rows, self.expected.cols);
        let [x, up, down] = &self.tensors;
        self.plan.run(x, up, down, &mut y).map(|_| y)
    }

    #[track_caller]
    fn right(&self, what: &str) {
        self.expected.within(&self.run().unwrap(), 0.02, what);
    }
}

fn a_lost_signal_is_told_in_the_users_names(device: &Device) {
    for schedule in SCHEDULES {
        let mlp = Mlp::new(device, &PlanOptions::new().deadline(SHORT).schedule(schedule));
        let other = Mlp::new(device, &PlanOptions::new().deadline(SHORT));
        mlp.right("before");
        let lost = mlp.plan.graph().calls[0].tasks.end - 1;
        mlp.plan.inject(Some(Fault::LostSignal(lost))).unwrap();
        let first = hang(SHORT, || mlp.run());
        told(&first, &mlp.plan);
        let dependency = first.dependency.as_ref().unwrap();
        assert_eq!((&*first.megakernel, &*first.task, first.call, first.tile.len()), ("mlp", "linear", 1, 2));
        assert_eq!((&*dependency.tensor, &*dependency.producer, dependency.call), ("h", "linear", 0));
        assert_eq!(dependency.hazard, "read after write");

        // The error stays; nothing waits for a deadline again, and no other plan minds.
        for _ in 0..3 {
            aborted(&mlp.plan, &first, || mlp.run());
            other.right("another plan while this one is aborted");
        }

        // Recovery forgets the hang, not the fault.
        mlp.plan.recover().unwrap();
        mlp.plan.check().unwrap();
        assert_eq!(hang(SHORT, || mlp.run()).task, "linear");
        mlp.plan.inject(None).unwrap();
        assert_eq!(mlp.run().unwrap_err().code(), 48);
        mlp.plan.recover().unwrap();
        for _ in 0..3 {
            mlp.right("after recovery");
            other.right("another plan after recovery");
        }
        // A plan that was not aborted may be recovered too.
        mlp.plan.recover().unwrap();
        mlp.right("recovered for nothing");
        Mlp::new(device, &PlanOptions::new()).right("a new plan");
    }
}

fn an_update_in_place_waits_for_its_readers(device: &Device) {
    let (m, n) = (100, 130);
    let x = Matrix::integers(m, n, 7, 9);
    for schedule in SCHEDULES {
        let options = PlanOptions::new().deadline(SHORT).schedule(schedule);
        let plan = regions::blurred::plan_with(device, regions::blurred::Dims { M: m as u64, N: n as u64 }, &options).unwrap();
        let run = || {
            let (mut inout, mut y) = (x.upload::<f32>(device), poisoned::<f32>(device, m, n));
            plan.run(&mut inout, 3.0, &mut y).map(|_| inout)
        };
        // Call 0 reads `x` and writes `once`: the update of `x` and the next blur wait for it.
        let lost = plan.graph().calls[0].tasks.start;
        plan.inject(Some(Fault::LostSignal(lost))).unwrap();
        if awaited(&plan, lost) {
            let hang = hang(SHORT, run);
            told(&hang, &plan);
            let dependency = hang.dependency.unwrap();
            match (&*hang.task, hang.call) {
                ("scale", 1) => assert_eq!((&*dependency.tensor, dependency.hazard, dependency.call), ("x", "write after read", 0)),
                ("blur", 2) => assert_eq!((&*dependency.tensor, dependency.hazard, dependency.call), ("once", "read after write", 0)),
                // Whoever waits for those may have begun to wait before them.
                ("add", 3) => assert!(["x", "twice"].contains(&&*dependency.tensor)),
                other => panic!("{other:?}"),
            }
        } else {
            // One worker takes all tasks of its list in turn: the order is kept without any signal.
            assert_eq!((plan.workers(), schedule), (1, maco::Schedule::Static));
            x.map(|v| v * 3.0).exactly(&run().unwrap(), "without a signal that nobody needs");
            plan.inject(Some(Fault::LostArrive(lost))).unwrap();
            let hang = hang(SHORT, run);
            told(&hang, &plan);
            assert_eq!((hang.symptom, &*hang.task, hang.call), (Symptom::DidNotEnd, "blur", 0));
        }
        plan.inject(None).unwrap();
        plan.recover().unwrap();
        for _ in 0..2 {
            x.map(|v| v * 3.0).exactly(&run().unwrap(), "scaled in place");
        }
    }
}

fn nobody_waits_for_the_last_call(device: &Device) {
    for schedule in SCHEDULES {
        let mlp = Mlp::new(device, &PlanOptions::new().deadline(SHORT).schedule(schedule));
        mlp.plan.inject(Some(Fault::LostSignal(mlp.plan.graph().calls[1].tasks.start))).unwrap();
        mlp.right("without signals of the last call");
        // No task has that number.
        for fault in [Fault::LostSignal, Fault::LostArrive, Fault::ExtraBytes, Fault::LostPush] {
            mlp.plan.inject(Some(fault(u32::MAX))).unwrap();
            mlp.right("with a fault of no task");
        }
    }
}

/// Which random graphs: enough that all schedules and most operations are among them.
const SEEDS: u64 = 16;

/// Whichever task loses its signals: a hang if any task waits for it, else the right numbers; afterwards the right numbers always.
fn any_lost_signal_of_random_graphs(device: &Device) {
    let (hung, ran) = any_fault(device, |plan, task| {
        // Mostly one that matters, if there is any.
        let tasks = plan.tasks() as u32;
        let mut from_there = (0..tasks).map(|n| (task + n) % tasks);
        let lost = if task % 4 == 0 { None } else { from_there.find(|&task| awaited(plan, task)) }.unwrap_or(task);
        (Fault::LostSignal(lost), awaited(plan, lost))
    });
    assert!(hung >= 3 && ran >= 1, "{hung} hung, {ran} ran");
}

/// Whichever task a warp never ends: always a hang.
fn any_task_of_random_graphs_that_does_not_end(device: &Device) {
    assert_eq!(any_fault(device, |_, task| (Fault::LostArrive(task), true)), (SEEDS, 0));
}

/// Of launches that should end by themselves, also where other programs have the processors.
const PATIENT: Duration = Duration::from_secs(20);

/// Injects what `fault` says into a task of each graph; how many graphs hung and how many ran.
fn any_fault(device: &Device, fault: impl Fn(&maco::Plan, u32) -> (Fault, bool)) -> (u64, u64) {
    let (mut hung, mut ran) = (0, 0);
    for seed in 0..SEEDS {
        let recipe = Recipe::from_seed(300 + seed, 16, 100);
        let case = Case::new(device, &recipe).unwrap();
        let plan = case.compiled.plan();
        let (fault, hangs) = fault(plan, (seed * 7919 % plan.tasks() as u64) as u32);
        plan.inject(Some(fault)).unwrap();
        plan.set_deadline(if hangs { SHORT } else { PATIENT }).unwrap();
        if hangs {
            told(&hang(SHORT, || case.launch(1)), plan);
            plan.recover().unwrap();
            plan.set_deadline(PATIENT).unwrap();
            hung += 1;
        } else {
            case.compare(&case.launch(1).unwrap(), 1, None).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            ran += 1;
        }
        plan.inject(None).unwrap();
        for launch in 2..4 {
            let found = case.launch(launch).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            case.compare(&found, launch, None).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        }
    }
    (hung, ran)
}

fn the_deadline_is_two_seconds_unless_set(device: &Device) {
    let mlp = Mlp::new(device, &PlanOptions::new());
    mlp.plan.inject(Some(Fault::LostSignal(0))).unwrap();
    assert_eq!(hang(Duration::from_secs(2), || mlp.run()).megakernel, "mlp");
    mlp.plan.recover().unwrap();
    mlp.plan.set_deadline(SHORT / 2).unwrap();
    assert_eq!(hang(SHORT / 2, || mlp.run()).megakernel, "mlp");
    mlp.plan.recover().unwrap();
    assert_eq!(mlp.plan.set_deadline(Duration::ZERO).unwrap_err().code(), 59);
    mlp.plan.inject(None).unwrap();
    mlp.right("after two deadlines");
}
