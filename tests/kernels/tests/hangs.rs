//! A signal that is lost ends in an error in the user's names within the deadline, again and again until `recover()`; then the same
//! plan is exact, as every other plan is meanwhile.
mod graphs;
mod support;

use std::time::{Duration, Instant};

use graphs::recipe::Recipe;
use graphs::{Case, SHORT, loaded};
use kernels::{dense, regions};
use maco::{Device, Error, Fault, Hang, PlanOptions, Schedule, Tensor, bf16};
use support::{Matrix, poisoned};

on_every_device!(
    a_lost_signal_is_told_in_the_users_names,
    an_update_in_place_waits_for_its_readers,
    nobody_waits_for_the_last_call,
    any_lost_signal_of_random_graphs,
    the_deadline_is_two_seconds_unless_set,
);

const SCHEDULES: [Schedule; 4] = [Schedule::Static, Schedule::Tickets, Schedule::Schedulers(1), Schedule::SpareWarps(1)];

/// `duration`, as the environment scales deadlines.
fn scaled(duration: Duration) -> Duration {
    duration.mul_f64(std::env::var("MACO_DEADLINE_SCALE").ok().and_then(|scale| scale.trim().parse().ok()).unwrap_or(1.0))
}

/// The hang that `run` ends in. Waiting for it takes as long as the deadline says, and little longer.
#[track_caller]
fn hang<T>(deadline: Duration, run: impl FnOnce() -> Result<T, Error>) -> Hang {
    let begin = Instant::now();
    let result = run();
    let took = begin.elapsed();
    let hang = match result {
        Err(Error::Hang(hang)) => *hang,
        Err(other) => panic!("not a hang: {other}"),
        Ok(_) => panic!("nothing hangs"),
    };
    let deadline = scaled(deadline);
    // Not much longer, however busy this machine is.
    assert!(hang.waited >= deadline && hang.waited < deadline * 4, "waited {:?} of {deadline:?}", hang.waited);
    assert!(took >= deadline && took < deadline * 4 + Duration::from_secs(4), "took {took:?} for {deadline:?}");
    assert!(hang.seen < hang.expected, "{hang}");
    hang
}

/// Every name and number of a hang is in its text.
#[track_caller]
fn told(hang: &Hang, gpu: bool) {
    let text = hang.to_string();
    let dependency = hang.dependency.as_ref().expect("the plan knows its counters");
    for part in [
        "MACO0047: hang in megakernel ".to_owned(),
        format!("megakernel `{}`", hang.megakernel),
        format!("task `{}` tile {:?} (call #{})", hang.task, hang.tile, hang.call),
        format!("for `{}` from task `{}` (call #{}, {})", dependency.tensor, dependency.producer, dependency.call, dependency.hazard),
        format!("counter {} has {} of {} signals", hang.counter, hang.seen, hang.expected),
        format!("worker {}", hang.worker),
        "help: call `recover()`".to_owned(),
    ] {
        assert!(text.contains(&part), "`{part}` is missing: {text}");
    }
    assert_eq!((text.contains("multiprocessor"), hang.multiprocessor.is_some()), (gpu, gpu), "{text}");
}

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
        let hang = hang(SHORT, || mlp.run());
        told(&hang, device.is_gpu());
        let dependency = hang.dependency.as_ref().unwrap();
        assert_eq!((&*hang.megakernel, &*hang.task, hang.call, hang.tile.len()), ("mlp", "linear", 1, 2));
        assert_eq!((&*dependency.tensor, &*dependency.producer, dependency.call), ("h", "linear", 0));
        assert_eq!(dependency.hazard, "read after write");
        assert!(hang.worker < mlp.plan.workers() && hang.counter < mlp.plan.graph().counters, "{hang}");

        // The error stays; nothing waits for a deadline again, and no other plan minds.
        for _ in 0..3 {
            let begin = Instant::now();
            let error = mlp.run().unwrap_err();
            assert_eq!(error.code(), 48);
            assert!(error.to_string().contains(&format!("because: {hang}")), "{error}");
            assert_eq!(mlp.plan.check().unwrap_err().code(), 48);
            assert!(begin.elapsed() < scaled(SHORT), "took {:?}", begin.elapsed());
            other.right("another plan while this one is aborted");
        }

        // Recovery forgets the hang, not the fault.
        mlp.plan.recover().unwrap();
        mlp.plan.check().unwrap();
        assert_eq!(self::hang(SHORT, || mlp.run()).task, "linear");
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
        plan.inject(Some(Fault::LostSignal(plan.graph().calls[0].tasks.start))).unwrap();
        let hang = hang(SHORT, run);
        told(&hang, device.is_gpu());
        let dependency = hang.dependency.unwrap();
        match (&*hang.task, hang.call) {
            ("scale", 1) => assert_eq!((&*dependency.tensor, dependency.hazard, dependency.call), ("x", "write after read", 0)),
            ("blur", 2) => assert_eq!((&*dependency.tensor, dependency.hazard, dependency.call), ("once", "read after write", 0)),
            // Whoever waits for those may have begun to wait before them.
            ("add", 3) => assert!(["x", "twice"].contains(&&*dependency.tensor)),
            other => panic!("{other:?}"),
        }
        plan.inject(None).unwrap();
        plan.recover().unwrap();
        for _ in 0..2 {
            x.map(|v| v * 3.0).exactly(&run().unwrap(), "scaled in place");
        }
    }
}

fn nobody_waits_for_the_last_call(device: &Device) {
    let mlp = Mlp::new(device, &PlanOptions::new().deadline(SHORT));
    mlp.plan.inject(Some(Fault::LostSignal(mlp.plan.graph().calls[1].tasks.start))).unwrap();
    mlp.right("without signals of the last call");
    // No task has that number.
    mlp.plan.inject(Some(Fault::LostSignal(u32::MAX))).unwrap();
    mlp.right("with all signals");
}

/// Whichever task loses its signals: a hang if any task waits for it, else the right numbers; afterwards the right numbers always.
fn any_lost_signal_of_random_graphs(device: &Device) {
    let _loaded = loaded(device);
    let (mut hung, mut ran) = (0, 0);
    for seed in 0..12 {
        let recipe = Recipe::from_seed(300 + seed, 16, 100);
        let case = Case::new(device, &recipe).unwrap();
        let plan = case.compiled.plan();
        plan.set_deadline(SHORT / 4).unwrap();
        let lost = (seed * 7919 % plan.tasks() as u64) as u32;
        let awaited = !plan.graph().signals_of(lost).is_empty();
        plan.inject(Some(Fault::LostSignal(lost))).unwrap();
        if awaited {
            told(&hang(SHORT / 4, || case.launch(1)), device.is_gpu());
            plan.recover().unwrap();
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
    assert!(hung >= 3 && ran >= 1, "{hung} hung, {ran} ran");
}

fn the_deadline_is_two_seconds_unless_set(device: &Device) {
    assert_eq!(PlanOptions::default(), PlanOptions::new().deadline(Duration::from_secs(2)));
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
