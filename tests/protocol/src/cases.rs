//! The plans that the model checker goes through, each with what it is there for.

use crate::model::{Deadline, Model};
use crate::plan::{Counter, Fault, Named, Plan, Schedule};

/// As often as it likes.
const UNBOUNDED: usize = 255;
/// Places of rings wrap, and so do the numbers that count them.
const NEAR_THE_END: u32 = u32::MAX - 1;

fn statically(plan: Plan) -> Model {
    Model { preemptions: UNBOUNDED, ..Model::new(plan, Schedule::Static) }
}

fn pushed(plan: Plan) -> Model {
    Model { position: NEAR_THE_END, ..Model::new(plan, Schedule::Pushed(1)) }
}

fn pair() -> Plan {
    Plan::new(&[(&[0], &[1])], &[&[0], &[1]])
}

fn join() -> Plan {
    Plan::new(&[(&[0, 1], &[2])], &[&[0], &[1, 2]])
}

fn diamond() -> Plan {
    Plan::new(&[(&[0], &[1, 2]), (&[1, 2], &[3])], &[&[0, 1], &[2, 3]])
}

fn chain() -> Plan {
    Plan::new(&[(&[0], &[1]), (&[1], &[2])], &[&[0, 2], &[1]])
}

/// One producer: its signal is a store.
pub fn producer_and_consumer() -> Model {
    statically(pair())
}

/// Two producers: their signals are additions to one counter, one of them from the waiter's own list.
pub fn two_producers() -> Model {
    statically(join())
}

/// Edges inside a list and across, a counter with two waiters.
pub fn diamond_in_lists() -> Model {
    statically(diamond())
}

/// More signals than a descriptor holds.
pub fn three_signals() -> Model {
    Model { preemptions: 2, ..statically(Plan::new(&[(&[0], &[1]), (&[0], &[2]), (&[0], &[3])], &[&[0], &[1], &[2], &[3]])) }
}

/// More waits than a descriptor holds.
pub fn three_waits() -> Model {
    Model { preemptions: 2, ..statically(Plan::new(&[(&[0], &[3]), (&[1], &[3]), (&[2], &[3])], &[&[0], &[1], &[2], &[3]])) }
}

/// The counters to wait for are named by what another task has written.
pub fn named_by_data() -> Model {
    let named = Named { writer: 0, reader: 3, first: 1, rows: 2, row: 1 };
    let plan = Plan::new(&[(&[0], &[3]), (&[2], &[]), (&[1], &[])], &[&[0, 1], &[2, 3]]);
    statically(Plan { named: Some(named), ..plan })
}

/// Launches 1 and 2: the second uses the bank that launch 0 has left full.
pub fn two_launches_of_lists() -> Model {
    Model { before: 1, launches: 2, ..statically(chain()) }
}

/// Who draws first runs first.
pub fn tickets() -> Model {
    Model { preemptions: UNBOUNDED, ..Model::new(diamond(), Schedule::Tickets) }
}

/// Whoever comes first claims one of two tasks, which wait for a task of one list and are waited for by one of the other.
pub fn drain() -> Model {
    statically(Plan::new(&[(&[0], &[1, 2]), (&[1, 2], &[3])], &[&[0], &[3]]).with_drain(1..3))
}

/// More tasks to claim than workers, each waiting for the one before, around tasks of a list whose edge stays there.
pub fn long_drain() -> Model {
    let plan = Plan::new(&[(&[1], &[2]), (&[2], &[3]), (&[0], &[4])], &[&[0, 4], &[]]).with_drain(1..4);
    Model { preemptions: 3, ..statically(plan) }
}

/// Launches 1 and 2 with a drain.
pub fn two_launches_of_a_drain() -> Model {
    Model { before: 1, launches: 2, preemptions: 3, ..statically(Plan::new(&[(&[0], &[1])], &[&[], &[1]]).with_drain(0..1)) }
}

/// Launches 1 and 2 by ticket.
pub fn two_launches_by_ticket() -> Model {
    Model { before: 1, launches: 2, preemptions: 3, ..Model::new(pair(), Schedule::Tickets) }
}

/// A scheduler, two workers, a task that reads from both. Interleavings are tried from the first push on.
pub fn pushed_join() -> Model {
    Model { settled: 2, ..pushed(join()) }
}

/// Fork and join.
pub fn pushed_diamond() -> Model {
    Model { preemptions: 1, ..pushed(diamond()) }
}

/// One worker's inbox over and over: five tasks through two places.
pub fn pushed_chain() -> Model {
    let plan = Plan::new(&[(&[0], &[1]), (&[1], &[2]), (&[2], &[3]), (&[3], &[4])], &[&[0, 1, 2, 3, 4]]);
    Model { preemptions: 3, ..pushed(plan) }
}

/// Both places of an inbox full: independent tasks.
pub fn pushed_ahead() -> Model {
    Model { preemptions: 3, ..pushed(Plan::new(&[(&[0], &[3])], &[&[0, 1, 2, 3]])) }
}

/// A message between schedulers, each with a worker and a task; from the first push on.
pub fn two_schedulers() -> Model {
    Model { preemptions: 1, position: NEAR_THE_END, settled: 2, ..Model::new(pair(), Schedule::Pushed(2)) }
}

/// Launches 1 and 2 with a scheduler. Nothing of it alternates, but the rings must be left empty.
pub fn two_launches_of_a_scheduler() -> Model {
    Model { before: 1, launches: 2, ..pushed(Plan::new(&[(&[0], &[1])], &[&[0, 1]])) }
}

/// A task that sends 17 messages through a mailbox of 16 places: it must wait for room. The first ones come and go undisturbed.
pub fn full_mailbox() -> Model {
    let counters = (0..17).map(|_| Counter { producers: vec![0], waiters: vec![1] }).collect();
    let plan = Plan { counters, ..Plan::new(&[], &[&[0, 1]]) };
    Model { position: u32::MAX - 7, settled: 30, ..pushed(plan) }
}

/// The second task is pushed while the first one runs, and waits for it at the other worker.
pub fn ahead_of_one() -> Model {
    Model { ahead: true, settled: 5, ..pushed(pair()) }
}

/// Both workers in turn, each waiting for the other.
pub fn ahead_in_a_chain() -> Model {
    Model { ahead: true, preemptions: 1, settled: 8, ..pushed(chain()) }
}

/// Two tasks are pushed ahead in one turn, behind one release, each to wait for the one before. Four threads: nobody is interrupted; random plans have more.
pub fn several_ahead() -> Model {
    let plan = Plan::new(&[(&[0], &[1]), (&[1], &[2])], &[&[0], &[1], &[2]]);
    Model { ahead: true, preemptions: 0, settled: 6, ..pushed(plan) }
}

/// A task that reads from two, one of which has been heard of when it is pushed.
pub fn ahead_of_the_last() -> Model {
    Model { ahead: true, preemptions: 1, settled: 3, ..pushed(join()) }
}

/// Two wait for one, and one for two.
pub fn ahead_in_a_diamond() -> Model {
    Model { ahead: true, preemptions: 1, settled: 8, ..pushed(diamond()) }
}

/// A task that ends before its scheduler has heard all that it waited for: that is the second message of the task before.
pub fn ahead_of_a_message() -> Model {
    let plan = Plan::new(&[(&[0], &[2]), (&[0], &[1])], &[&[0, 2], &[1]]);
    Model { ahead: true, preemptions: 1, settled: 8, ..pushed(plan) }
}

/// Launches 1 and 2: the second counts in words that launch 0 has left full. Interleavings are tried from the first one's end on.
pub fn two_launches_ahead() -> Model {
    Model { before: 1, launches: 2, preemptions: 1, settled: 15, ..ahead_of_one() }
}

/// The push of a task that should wait is lost.
pub fn lost_push_ahead() -> Model {
    Model { ahead: true, settled: 12, ..lost_push() }
}

/// The messages of a task are lost, but not its end.
pub fn lost_message_ahead() -> Model {
    Model { ahead: true, settled: 15, ..lost_message() }
}

/// A deadline fires while a task that was pushed ahead waits.
pub fn early_deadline_ahead() -> Model {
    Model { ahead: true, ..early_deadline_of_a_scheduler() }
}

/// A signal is lost: two workers wait in vain, one for it and one for the other. Then all is well again.
pub fn lost_signal() -> Model {
    let plan = Plan::new(&[(&[0], &[1]), (&[1], &[2])], &[&[0, 2], &[1]]);
    let fault = Some(Fault::LostSignal(0));
    Model { fault, deadline: Deadline::Early, recover: true, preemptions: 3, ..statically(plan) }
}

/// A push is lost: the scheduler notices, and workers without a deadline stop.
pub fn lost_push() -> Model {
    Model { fault: Some(Fault::LostPush(1)), deadline: Deadline::Early, recover: true, preemptions: 1, ..pushed(pair()) }
}

/// All messages of a task are lost.
pub fn lost_message() -> Model {
    Model { fault: Some(Fault::LostSignal(0)), deadline: Deadline::Early, recover: true, preemptions: 1, ..pushed(pair()) }
}

/// A deadline fires though nothing is wrong, before, while or after the last task runs: the launch counts or it was aborted.
pub fn early_deadline() -> Model {
    Model { deadline: Deadline::Early, ..statically(chain()) }
}

/// The same of two tasks.
pub fn early_deadline_at_the_end() -> Model {
    Model { deadline: Deadline::Early, ..statically(pair()) }
}

/// The same with a drain.
pub fn early_deadline_of_a_drain() -> Model {
    Model { deadline: Deadline::Early, preemptions: 3, ..drain() }
}

/// The same by ticket.
pub fn early_deadline_by_ticket() -> Model {
    Model { deadline: Deadline::Early, preemptions: 3, ..Model::new(diamond(), Schedule::Tickets) }
}

/// The same with a scheduler.
pub fn early_deadline_of_a_scheduler() -> Model {
    Model { deadline: Deadline::Early, preemptions: 1, ..pushed(pair()) }
}
