//! A deadline that passes while not all executors of a launch have begun is not that of the wait, and yet nobody waits for ever.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use maco_abi::{BlackBox, CounterIndex, LAUNCH, Launch, REPORT_ABSENT, State, Wait};
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

    /// Executor `executor`, 0 or 1.
    fn run(&self, executor: u32) -> Run {
        // SAFETY: the state lives as long as `self`.
        unsafe { Run::new(&Thread::new(), &self.launch, executor) }
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
    let (run, other, mut patience) = (world.run(1), world.run(0), Patience::new());
    // SAFETY: (of calls) a live launch.
    unsafe {
        assert!(enter(&machine, &run));
        for _ in 0..4 * Thread::LOOK {
            assert_eq!(patience.look(&machine, &run), Look::Again, "counted before the other executor had begun");
        }
        assert!(enter(&machine, &other));
        // A whole deadline from then on.
        assert!(looks(&machine, &run, &mut patience, Look::Late, 8) >= 1, "not a whole deadline");
        late(&machine, &run, &patience, 7, Wait::new(CounterIndex(3), 1), 0);
    }
    assert_eq!((world.report().task, world.report().counter), (7, 3));
}

#[test]
fn absence_ends_in_a_report() {
    // Whichever of the two is there.
    for executor in 0..2 {
        let (world, machine) = (World::new(), Thread::new());
        let (run, mut patience) = (world.run(executor), Patience::new());
        // SAFETY: a live launch.
        assert!(unsafe { enter(&machine, &run) });
        let looks = looks(&machine, &run, &mut patience, Look::Abort, 64);
        assert!(looks >= 8, "after {looks} deadlines");
        let report = world.report();
        assert_eq!((report.report, report.seen, report.expected), (REPORT_ABSENT, 1, 2));
    }
}

#[test]
fn whoever_comes_too_many_is_refused() {
    let (world, machine) = (World::new(), Thread::new());
    // SAFETY: (of calls) a live launch.
    unsafe {
        let leave = |executor| leave(&machine, world.run(executor).state, executor, world.launch.executors);
        let enter = |executor| enter(&machine, &world.run(executor));
        // Also beyond the largest number of a launch.
        for launch in 0..LAUNCH + 2 {
            assert!(enter(launch % 2) && enter(1 - launch % 2), "the launch before {launch} is counted");
            if launch == LAUNCH + 1 {
                break;
            }
            assert_eq!((world.run(0).number, world.run(1).number), (launch % LAUNCH, launch % LAUNCH));
            leave(0);
            assert_eq!(world.run(1).number, launch % LAUNCH, "one has not left");
            leave(1);
        }
        let run = world.run(0);
        assert!(!enter(0) && run.aborted(&machine));
    }
}
