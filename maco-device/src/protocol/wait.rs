//! Waiting for counters: relaxed polls, one acquire fence, a deadline.

use super::{Machine, Run};
use maco_abi::{
    BlackBox, CounterIndex, Descriptor, Indirect, LAUNCH, Launch, NO_AXIS, NO_COUNTER, Naming, OPERANDS, REPORT_ABSENT, REPORT_DEADLINE,
    State, View, Wait, entered,
};

/// What a wait came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every counter has what the task needs.
    Ready,
    /// The plan is aborted, by this wait or by another worker.
    Abort,
}

/// How long a wait has lasted: what the deadline counts.
#[derive(Clone, Copy, Default)]
pub struct Patience {
    polls: u32,
    /// Looks that found CTAs of the launch absent, one at the start and one after each deadline; or [`NONE_ABSENT`].
    absences: u32,
    began: u64,
}

/// Deadlines that CTAs of a launch may begin after its first ones: another kernel may hold their multiprocessors.
const ABSENCES: u32 = 8;
/// [`Patience::absences`]: all have begun.
const NONE_ABSENT: u32 = u32::MAX;

/// What a wait should do after one more vain poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Poll again.
    Again,
    /// The deadline has passed.
    Late,
    /// The plan is aborted.
    Abort,
}

impl Patience {
    /// A wait that begins now.
    #[inline(always)]
    pub fn new() -> Patience {
        Patience { polls: 0, absences: 0, began: 0 }
    }

    /// Notes a vain poll; all lanes call together. Looks at clock and abort word only now and then: both are slow to read.
    ///
    /// # Safety
    /// `run` is a live launch.
    #[inline(always)]
    pub unsafe fn look<M: Machine>(&mut self, machine: &M, run: &Run) -> Look {
        self.polls = self.polls.wrapping_add(1);
        machine.pause(self.polls);
        if !self.polls.is_multiple_of(M::LOOK) {
            return Look::Again;
        }
        // SAFETY: the caller promises a live launch.
        let (began, said) =
            unsafe { review(machine, run.launch, run.state, [run.number, run.worker], [self.polls, self.absences], self.began) };
        (self.began, self.absences) = (began, said as u32);
        match (said >> 32) as u32 {
            AGAIN => Look::Again,
            LATE => Look::Late,
            _ => {
                machine.give_up();
                Look::Abort
            }
        }
    }

    /// Whether the next [`Patience::look`] asks clock and abort word.
    #[inline(always)]
    pub fn asks<M: Machine>(&self, _: &M) -> bool {
        self.polls.wrapping_add(1).is_multiple_of(M::LOOK)
    }

    /// Sets the abort word and writes `report`, unless somebody else was first. One lane calls.
    ///
    /// # Safety
    /// `run` is a live launch.
    #[inline(always)]
    pub unsafe fn report<M: Machine>(&self, machine: &M, run: &Run, report: BlackBox) {
        let report = BlackBox { worker: run.worker, polls: self.polls, ..report };
        // SAFETY: passed on from the caller.
        unsafe { publish(machine, run.launch, run.state, report, self.began) };
    }
}

/// What [`review`] comes to.
const AGAIN: u32 = 0;
const LATE: u32 = 1;
const ABORT: u32 = 2;

/// Looks at clock and abort word for a [`Patience`] that has made so many `polls` and seen so many `absences`, in launch `number` as `worker`: when it began then, and
/// its absences, with what the wait should do above them.
///
/// # Safety
/// As of [`Patience::look`].
#[inline(always)]
unsafe fn review<M: Machine>(
    machine: &M,
    launch: *const Launch,
    state: *mut State,
    [number, worker]: [u32; 2],
    [polls, absences]: [u32; 2],
    began: u64,
) -> (u64, u64) {
    let come_to = |what: u32, began: u64, absences: u32| (began, (what as u64) << 32 | absences as u64);
    // SAFETY: the caller promises a live launch.
    unsafe {
        if !machine.all(machine.load(&raw const (*state).abort) == 0) {
            return come_to(ABORT, began, absences);
        }
        let now = machine.now();
        let (deadline, least) = ((*launch).deadline_ns, (*launch).deadline_polls);
        let first = began == 0;
        let late = !first && now.wrapping_sub(began) > deadline && polls >= least;
        if machine.all(!late && !first) {
            return come_to(AGAIN, began, absences);
        }
        if absences == NONE_ABSENT {
            return come_to(LATE, began, absences);
        }
        // The deadline counts from when all have begun: whoever should signal may not be there. CTAs of a launch that is not
        // cooperative begin when there is room for each, and two such launches may wait for each other's room for ever.
        let (begun, executors) = (machine.load(&raw const (*state).begun), (*launch).executors);
        if machine.all(begun / LAUNCH != number) {
            return come_to(AGAIN, now, NONE_ABSENT);
        }
        let absences = absences + 1;
        if absences > ABSENCES && machine.lane() == 0 {
            let whole = now.wrapping_sub(deadline.wrapping_mul(ABSENCES.into()));
            let seen = entered(begun, executors);
            let report = BlackBox { report: REPORT_ABSENT, worker, expected: executors, seen, polls, ..BlackBox::EMPTY };
            publish(machine, launch, state, report, whole);
        }
        come_to(AGAIN, now, absences)
    }
}

/// See [`Patience::report`]; the wait began at `began`.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn publish<M: Machine>(machine: &M, launch: *const Launch, state: *mut State, report: BlackBox, began: u64) {
    // SAFETY: only the executor that changed the word from 0 writes the report.
    unsafe {
        if machine.compare_exchange(&raw mut (*state).abort, 0, report.report) == 0 {
            let elapsed_ns = machine.now().wrapping_sub(began);
            machine.report((*launch).black_box as *mut BlackBox, BlackBox { sm: machine.multiprocessor(), elapsed_ns, ..report });
        }
    }
}

/// Waits until every counter of `descriptor` has arrived. All lanes call together; each polls its share.
///
/// # Safety
/// `run` is a live launch, `descriptor` and `views` valid and unchanged during the call.
#[inline(always)]
pub unsafe fn wait<M: Machine>(machine: &M, run: &Run, descriptor: *const Descriptor, views: *const View) -> Outcome {
    // SAFETY: the caller promises a valid descriptor.
    unsafe {
        // Inline waits come first: if there is none, there is nothing to acquire.
        let none = (*descriptor).wait[0].counter == NO_COUNTER && (*descriptor).indirect == 0;
        if none { Outcome::Ready } else { wait_for_all(machine, run, descriptor, views) }
    }
}

/// [`wait`] of a task that waits for something.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn wait_for_all<M: Machine>(machine: &M, run: &Run, descriptor: *const Descriptor, views: *const View) -> Outcome {
    // SAFETY: the caller promises a valid descriptor.
    let (total, indirect) = unsafe { (2 + (*descriptor).extra_waits as u32, (*descriptor).indirect as usize) };
    let mut first = 0;
    while first < total {
        let n = first + machine.lane();
        // SAFETY: as above.
        let wait = unsafe {
            if n < 2 {
                (&raw const (*descriptor).wait).cast::<Wait>().add(n as usize).read()
            } else if n < total {
                let at = run.overflow.add((*descriptor).overflow as usize + 2 * (n as usize - 2));
                Wait::decode([at.read(), at.add(1).read()])
            } else {
                Wait::NONE
            }
        };
        // SAFETY: as above.
        if unsafe { poll_for(machine, run, descriptor, wait) } == Outcome::Abort {
            return Outcome::Abort;
        }
        first += machine.lanes();
    }
    if indirect > 0 {
        // The names are results too, of tasks just waited for.
        machine.acquire();
    }
    let mut n = 0;
    while n < indirect {
        // SAFETY: as above; the plan put the records behind the extra signals.
        let outcome = unsafe {
            let skip = 2 * (*descriptor).extra_waits as usize + (*descriptor).extra_signals as usize;
            let record = run.overflow.add((*descriptor).overflow as usize + skip).cast::<Indirect>().add(n);
            named(machine, run, descriptor, views, record)
        };
        if outcome == Outcome::Abort {
            return Outcome::Abort;
        }
        n += 1;
    }
    machine.acquire();
    Outcome::Ready
}

/// The rows that a task's part of a tensor names: where their numbers are.
#[derive(Clone, Copy)]
pub struct Names {
    /// The first name.
    at: *const u32,
    rows: u32,
    cols: u32,
    /// Elements from one row, and one column, to the next.
    along: u32,
    across: u32,
}

impl Names {
    /// What a record of a task is about, which says `naming`, `axis` and `rows`; `coord` is the task's coordinate along an axis, `view` its view of an operand.
    #[inline(always)]
    pub fn of([naming, axis, rows]: [u32; 3], coord: impl Fn(u32) -> u32, view: impl Fn(usize) -> View) -> Names {
        let Naming { operand, flat, .. } = Naming::decode(naming);
        let operand = usize::from(operand);
        // The plan checked the operand.
        let view = view(if operand < OPERANDS { operand } else { 0 });
        // A view of rank 1 is one row.
        let count = if flat { view.cols } else { view.rows };
        let first = if axis < NO_AXIS { coord(axis) * rows } else { 0 };
        let end = if axis < NO_AXIS { first.saturating_add(rows).min(count) } else { count };
        let (along, across) = if flat { (view.col_stride, 0) } else { (view.row_stride, view.col_stride) };
        let at = (view.base as *const u32).wrapping_add(first as usize * along as usize);
        Names { at, rows: end.saturating_sub(first), cols: if flat { 1 } else { view.cols }, along, across }
    }

    /// How many.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        self.rows * self.cols
    }

    /// Where the `n`-th of them is, if there are so many.
    #[inline(always)]
    pub fn address(&self, n: u32) -> *const u32 {
        // No panic: it is not 0, which the device would have to be told.
        let (row, column) = (n.checked_div(self.cols).unwrap_or(0), n.checked_rem(self.cols).unwrap_or(0));
        self.at.wrapping_add(row as usize * self.along as usize + column as usize * self.across as usize)
    }

    /// The wait for the `n`-th of them, which `load` loads; for none beyond the last. The record is read again here: it would take many registers.
    ///
    /// # Safety
    /// The names are live memory, and whoever writes them has done so; `record` is the one that they are of.
    #[inline(always)]
    pub unsafe fn wait(&self, record: *const Indirect, n: u32, load: impl Fn(*const u32) -> u32) -> Wait {
        if n < self.count() {
            // SAFETY: passed on from the caller.
            let Indirect { base, size, limit, need, first, .. } = unsafe { *record };
            return wait_for(base, [size, limit, need, first], load(self.address(n)));
        }
        Wait::NONE
    }
}

/// The wait for row `row`, of a record that says `base`, `size`, `limit`, `need` and `first`.
#[inline(always)]
pub fn wait_for(base: CounterIndex, [size, limit, need, first]: [u32; 4], row: u32) -> Wait {
    if row >= limit {
        return Wait::NONE;
    }
    let group = (first + row).checked_div(size).unwrap_or(0);
    Wait::new(CounterIndex(base.0 + group), need)
}

/// Waits for all of them.
#[inline(always)]
unsafe fn named<M: Machine>(machine: &M, run: &Run, descriptor: *const Descriptor, views: *const View, record: *const Indirect) -> Outcome {
    // SAFETY: the caller promises valid views, and has waited for the names.
    unsafe {
        let Indirect { naming, axis, rows, .. } = *record;
        let names = Names::of([naming, axis, rows], |axis| (*descriptor).coord[axis as usize], |operand| views.add(operand).read());
        let mut at = 0;
        while at < names.count() {
            let wait = names.wait(record, at + machine.lane(), |at| machine.load(at));
            if poll_for(machine, run, descriptor, wait) == Outcome::Abort {
                return Outcome::Abort;
            }
            at += machine.lanes();
        }
    }
    Outcome::Ready
}

/// Polls for what each lane waits for until all of it is there. What that announces is not acquired yet. A deadline passes by way of `late`, which is told what was
/// seen.
///
/// # Safety
/// `run` is a live launch, and the counter inside its bank. All lanes call together.
#[inline(always)]
pub(super) unsafe fn poll<M: Machine>(machine: &M, run: &Run, wait: Wait, late: impl Fn(&Patience, u32)) -> Outcome {
    let mut patience = Patience::new();
    loop {
        // SAFETY: passed on from the caller.
        let seen = unsafe { run.look(machine, wait) };
        let arrived = wait.has_arrived(seen);
        if machine.all(arrived) {
            return Outcome::Ready;
        }
        // SAFETY: as above.
        match unsafe { patience.look(machine, run) } {
            Look::Again => {}
            Look::Abort => return Outcome::Abort,
            Look::Late => {
                if !arrived {
                    late(&patience, seen);
                }
            }
        }
    }
}

/// [`poll`] of a wait of task `descriptor`, which the black box names if it is in vain.
///
/// # Safety
/// As there; the descriptor is valid.
#[inline(always)]
unsafe fn poll_for<M: Machine>(machine: &M, run: &Run, descriptor: *const Descriptor, wait: Wait) -> Outcome {
    // SAFETY: passed on from the caller.
    unsafe { poll(machine, run, wait.counted(), |patience, seen| late(machine, run, patience, (*descriptor).task, wait, seen)) }
}

/// Reports that `task` waited for `wait` in vain. The next look finds the abort word.
///
/// # Safety
/// `run` is a live launch.
#[inline(always)]
pub unsafe fn late<M: Machine>(machine: &M, run: &Run, patience: &Patience, task: u32, wait: Wait, seen: u32) {
    let report = BlackBox { report: REPORT_DEADLINE, task, counter: wait.counter.0, expected: wait.need, seen, ..BlackBox::EMPTY };
    // SAFETY: passed on from the caller.
    unsafe { patience.report(machine, run, report) };
}
