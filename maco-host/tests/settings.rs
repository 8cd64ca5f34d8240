//! Contexts, settings of the environment, and configurations of workers, on CPU devices.

mod kernels;

use std::env;
use std::process::{Command, Stdio};

use kernels::{ADD, Builder, CENTRE, DOUBLE, SLOW, chain};
use maco_graph::ir::TensorKind::{In, Out, Temp};
use maco_graph::spec::Element::F32;
use maco_host::{Arguments, Backend, Context, Device, Plan, PlanOptions, Schedule, Settings, SmConfig};

fn run(plan: &Plan) -> Vec<u32> {
    let device = plan.device();
    let x: Vec<f32> = (0..64 * 40).map(|at| ((at * 7) % 61) as f32 - 30.0).collect();
    let (x, mut y) = (device.upload(&x, [64, 40]).unwrap(), device.zeros::<f32>([64, 40]).unwrap());
    plan.run(Arguments::new().tensor(&x).scalar(3f32).tensor_mut(&mut y)).unwrap();
    y.download().unwrap().into_iter().map(f32::to_bits).collect()
}

/// The workers that call `call` has tasks on.
fn used(plan: &Plan, call: usize) -> Vec<u32> {
    let plan = plan.graph();
    let runs = |worker: &u32| plan.lists.of(*worker as usize).iter().any(|task| plan.calls[call].tasks.contains(task));
    (0..plan.workers).filter(runs).collect()
}

/// A plan for each configuration of one program: launched in turn, with the same tensors.
#[test]
fn plans_of_several_configurations_take_turns() {
    let device = Device::cpu_with(6);
    let plan = |sms: SmConfig| Plan::build(&device, chain(&ADD, 64, 40).program(), &PlanOptions::new().sms(sms)).unwrap();
    let automatic = plan(SmConfig::automatic());
    let by_task = plan(SmConfig::automatic().tasks(&["add", "double"], 0..4).tasks(&["centre"], 4..6));
    let split = plan(SmConfig::split(4, 1));
    let scheduled = plan(SmConfig::automatic().schedulers(4..6));
    assert_eq!([0, 1, 2].map(|call| used(&by_task, call)), [vec![0, 1, 2, 3], vec![0, 1, 2, 3], vec![4, 5]]);
    assert_eq!((split.workers(), used(&split, 0)), (5, vec![0, 1, 2, 3]));
    assert_eq!((scheduled.workers(), scheduled.graph().schedule), (4, Schedule::Schedulers(2)));
    let expected = run(&automatic);
    for plan in [&by_task, &split, &scheduled, &automatic, &by_task] {
        assert_eq!(run(plan), expected);
    }
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let device = Device::cpu_with(6);
    let refused = |sms: SmConfig, options: PlanOptions| {
        let error = Plan::build(&device, chain(&ADD, 64, 40).program(), &options.sms(sms)).unwrap_err();
        (error.code(), error.to_string())
    };
    let new = PlanOptions::new;
    let (code, error) = refused(SmConfig::automatic().schedulers(4..6), new().schedule(Schedule::Tickets));
    assert!(code == 21 && error.contains("the role schedulers is given CTAs 4..6, but the schedule is tickets"), "{error}");
    let (code, error) = refused(SmConfig::automatic().compute(0..2), new().schedule(Schedule::Tickets));
    assert!(code == 21 && error.contains("`add` (call #0) is to run on workers 0..2, but with tickets"), "{error}");
    let (code, error) = refused(SmConfig::automatic().tasks(&["add"], 4..9), new());
    assert!(code == 21 && error.contains("task `add` is given workers 4..9 of 6"), "{error}");
    // More than the device has.
    assert_eq!(refused(SmConfig::split(6, 2), new()).0, 39);
}

/// What a task reads before anything has written it is zero by chance, and NaN where somebody looks for it.
#[test]
fn debug_shows_what_is_read_before_it_is_written() {
    let of = |debug: bool| {
        let context = Context::new(Settings::new().backend(Backend::Cpu).debug(debug)).unwrap();
        let builder = Builder::new("unwritten")
            .tensor("x", In, F32, &[8, 8])
            .tensor("y", Out, F32, &[8, 8])
            .tensor("h", Temp, F32, &[8, 8])
            .call(&CENTRE, &["h", "y"], &[]);
        let plan = Plan::build(context.device(), builder.program(), &context.options()).unwrap();
        let (x, mut y) = (context.device().zeros::<f32>([8, 8]).unwrap(), context.device().zeros::<f32>([8, 8]).unwrap());
        plan.run(Arguments::new().tensor(&x).tensor_mut(&mut y)).unwrap();
        y.download().unwrap()
    };
    assert!(of(true).iter().all(|value| value.is_nan()));
    assert!(of(false).iter().all(|value| *value == 0.0));
}

#[test]
fn profile_records_from_the_first_launch_on() {
    for profile in [true, false] {
        let context = Context::new(Settings::new().backend(Backend::Cpu).profile(profile)).unwrap();
        let plan = Plan::build(context.device(), chain(&ADD, 64, 40).program(), &context.options()).unwrap();
        run(&plan);
        assert_eq!(
            plan.profile_report().map_err(|error| error.code()).map(|profile| !profile.spans.is_empty()),
            if profile { Ok(true) } else { Err(63) }
        );
    }
}

/// In processes of their own, each with its environment: all variables, and a wrong one.
#[test]
fn the_environment_says_what_the_program_does_not() {
    const INNER: &str = "MACO_TEST_SETTINGS";
    if env::var_os(INNER).is_some() {
        match Context::from_env() {
            Err(error) => println!("<{error}>"),
            Ok(context) => {
                let settings = context.settings().clone();
                let plan = Plan::build(context.device(), chain(&SLOW, 64, 40).program(), &context.options()).unwrap();
                let error = plan.run(Arguments::new()).unwrap_err().code();
                let set = Context::new(Settings::new().policy(Schedule::Static).compute_sms(1)).unwrap();
                println!("<{} {} {} {error}>", context.device(), plan.workers(), plan.graph().schedule);
                println!("<{:?} {:?} {}>", settings, context.options(), set.options() == context.options());
            }
        }
        return;
    }
    let of = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env::current_exe().unwrap());
        for (name, _) in Settings::VARIABLES {
            command.env_remove(name);
        }
        command.args(["--exact", "the_environment_says_what_the_program_does_not", "--nocapture"]).env(INNER, "1");
        let output = command.envs(variables.iter().copied()).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let all = of(&[
        ("MACO_BACKEND", "cpu"),
        ("MACO_POLICY", "tickets"),
        ("MACO_STRATEGY", "two-shot"),
        ("MACO_OVERLAP", "always"),
        ("MACO_COMPUTE_SMS", "1"),
        ("MACO_BUFFER_SIZE", "1MiB"),
        ("MACO_PINNED_MEMORY", "1MiB"),
        ("MACO_DEADLINE", "0.5"),
        ("MACO_DEBUG", "1"),
        ("MACO_PROFILE", "1"),
    ]);
    assert!(all.contains(" 1 tickets 30>"), "{all}");
    for shown in [
        "via: TwoShot",
        "overlap: Always",
        "deadline: Some(500ms)",
        "debug: true",
        "profile: true",
        "buffer_size: Some(1048576)",
        " false>",
    ] {
        assert!(all.contains(shown), "{shown}: {all}");
    }
    let wrong = of(&[("MACO_BACKEND", "cpu"), ("MACO_POLICY", "fifo")]);
    assert!(
        wrong.contains("<MACO0058: MACO_POLICY is `fifo`, expected `static`, `tickets`, `schedulers:N` or `spare-warps:N`\n"),
        "{wrong}"
    );
}

/// `DOUBLE` alone has no call of another task that a rule could be for.
#[test]
fn a_rule_for_a_task_that_nobody_calls_is_refused() {
    let builder = Builder::new("one").tensor("x", maco_graph::ir::TensorKind::InOut, F32, &[8, 8]).call(&DOUBLE, &["x"], &[]);
    let options = PlanOptions::new().sms(SmConfig::automatic().tasks(&["triple"], 0..1));
    let error = Plan::build(&Device::cpu_with(2), builder.program(), &options).unwrap_err();
    assert!(error.code() == 21 && error.to_string().contains("task `triple` is given workers 0..1, but no call is of it"), "{error}");
}
