//! A deadline that passes while not all executors of a launch have begun is not that of the wait, and yet nobody waits for ever.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use maco_device::abi::{BlackBox, Launch, REPORT_ABSENT, State, Wait};
use maco_device::protocol::{Look, Machine, Patience, Run, Thread, enter, late, leave};

/// A launch without tasks: two executors, and a deadline that passes at the second look.
struct World {
    launch: Launch,
    state: UnsafeCell<State>,
    black_box: UnsafeCell<BlackBox>,
}

impl World {
    fn new() -> Box<World> {
        // SAFETY: plain integers, valid when zero.
        let launch = Launch { executors: 2, ..unsafe { MaybeUninit::zeroed().assume_init() } };
        let mut world = Box::new(World { launch, state: State::default().into(), black_box: BlackBox::EMPTY.into() });
        world.launch.state = world.state.get() as u64;
        world.launch.black_box = world.black_box.get() as u64;
        world
    }

    fn run(&self) -> Run {
        // SAFETY: the state lives as long as `self`.
        unsafe { Run::new(&Thread::new(), &self.launch, 0) }
    }

    fn report(&self) -> BlackBox {
        // SAFETY: this thread alone uses it.
        unsafe { *self.black_box.get() }
    }
}

/// Looks at the clock until it is `expected`, at most so often, and says how often.
fn looks(machine: &Thread, run: &Run, patience: &mut Patience, expected: Look, most: u32) -> u32 {
    for n in 0..most * Thread::LOOK {
        // SAFETY: a live launch.
        if unsafe { patience.look(machine, run) } == expected {
            return n / Thread::LOOK;
        }
    }
    panic!("not {expected:?} within {most} looks");
}

#[test]
fn a_deadline_counts_once_all_have_begun() {
    let (world, machine) = (World::new(), Thread::new());
    let (run, mut patience) = (world.run(), Patience::new());
    // SAFETY: (of calls) a live launch.
    unsafe {
        assert!(enter(&machine, &run));
        for _ in 0..4 * Thread::LOOK {
            assert_eq!(patience.look(&machine, &run), Look::Again, "counted before the other executor had begun");
        }
        assert!(enter(&machine, &run));
        // A whole deadline from then on.
        assert!(looks(&machine, &run, &mut patience, Look::Late, 8) >= 1, "not a whole deadline");
        late(&machine, &run, &patience, 7, Wait { counter: 3, need: 1 }, 0);
    }
    assert_eq!((world.report().task, world.report().counter), (7, 3));
}

#[test]
fn absence_ends_in_a_report() {
    let (world, machine) = (World::new(), Thread::new());
    let (run, mut patience) = (world.run(), Patience::new());
    // SAFETY: a live launch.
    assert!(unsafe { enter(&machine, &run) });
    let looks = looks(&machine, &run, &mut patience, Look::Abort, 64);
    assert!(looks >= 8, "after {looks} deadlines");
    let report = world.report();
    assert_eq!((report.report, report.seen, report.expected), (REPORT_ABSENT, 1, 2));
}

#[test]
fn whoever_comes_too_many_is_refused() {
    let (world, machine) = (World::new(), Thread::new());
    let run = world.run();
    // SAFETY: (of calls) a live launch.
    unsafe {
        assert!(enter(&machine, &run) && enter(&machine, &run));
        leave(&machine, run.state, world.launch.executors);
        leave(&machine, run.state, world.launch.executors);
        assert!(enter(&machine, &run) && enter(&machine, &run), "the launch before is counted");
        assert!(!enter(&machine, &run) && run.aborted(&machine));
    }
}
