//! Launches that are meant to hang: how long it took, and whether everything that is known is said.

use std::time::{Duration, Instant};

use maco::{Error, Executor, Hang, Plan, Schedule, Symptom};

/// A deadline that a test can wait for.
pub const SHORT: Duration = Duration::from_millis(200);

/// One of each kind.
pub const SCHEDULES: [Schedule; 4] = [Schedule::Static, Schedule::Tickets, Schedule::Schedulers(1), Schedule::SpareWarps(1)];

/// `duration`, as the environment scales deadlines.
pub fn scaled(duration: Duration) -> Duration {
    duration.mul_f64(std::env::var("MACO_DEADLINE_SCALE").ok().and_then(|scale| scale.trim().parse().ok()).unwrap_or(1.0))
}

/// The hang that `run` ends in. Waiting for it takes as long as the deadline says, and little longer.
#[track_caller]
pub fn hang<T>(deadline: Duration, run: impl FnOnce() -> Result<T, Error>) -> Hang {
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
    assert_eq!(hang.symptom == Symptom::Waited, hang.seen < hang.expected, "{hang}");
    hang
}

/// Every name and number of a hang is in its text.
#[track_caller]
pub fn told(hang: &Hang, plan: &Plan) {
    let text = hang.to_string();
    let mut parts = vec![
        "MACO0047: hang in megakernel ".to_owned(),
        format!("megakernel `{}`", hang.megakernel),
        format!("task `{}` tile {:?} (call #{})", hang.task, hang.tile, hang.call),
        format!("({}", hang.executor),
        "help: call `recover()`".to_owned(),
    ];
    match hang.symptom {
        Symptom::Waited => {
            let dependency = hang.dependency.as_ref().expect("the plan knows its counters");
            parts.push(format!(
                "for `{}` from task `{}` (call #{}, {})",
                dependency.tensor, dependency.producer, dependency.call, dependency.hazard
            ));
            parts.push(format!("counter {} has {} of {} signals", hang.counter, hang.seen, hang.expected));
            assert!(hang.counter < plan.graph().counters, "{text}");
        }
        _ => parts.push("did not end within ".to_owned()),
    }
    for part in parts {
        assert!(text.contains(&part), "`{part}` is missing: {text}");
    }
    let gpu = plan.device().is_gpu();
    assert_eq!((text.contains("multiprocessor"), hang.multiprocessor.is_some()), (gpu, gpu), "{text}");
    // Where schedulers push, a worker waits for no signal, but has what does not end.
    let schedulers = plan.graph().schedule.schedulers();
    match hang.executor {
        Executor::Worker(number) => assert!(number < plan.workers() && (schedulers == 0 || hang.symptom == Symptom::DidNotEnd), "{text}"),
        Executor::Scheduler(number) => assert!(number < schedulers && hang.symptom == Symptom::Waited, "{text}"),
    }
}

/// The plan is aborted: nothing runs, nothing waits, and the cause is told again and again.
#[track_caller]
pub fn aborted<T>(plan: &Plan, hang: &Hang, mut run: impl FnMut() -> Result<T, Error>) {
    for _ in 0..2 {
        let begin = Instant::now();
        let Err(error) = run() else { panic!("an aborted plan ran") };
        assert_eq!(error.code(), 48);
        assert!(error.to_string().contains(&format!("because: {hang}")), "{error}");
        assert_eq!(plan.check().unwrap_err().code(), 48);
        assert!(begin.elapsed() < scaled(SHORT), "took {:?}", begin.elapsed());
    }
}

/// Whether some task polls a counter that `task` signals.
pub fn awaited(plan: &Plan, task: u32) -> bool {
    plan.graph().signals_of(task).iter().any(|&counter| plan.graph().worker_edges.is_signalled(counter))
}
