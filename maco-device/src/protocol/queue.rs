//! Where a worker's next task comes from, and how a launch ends.

use super::mailbox::{clear, inbox, peek, until};
use super::wait::{Look, Patience};
use super::{Machine, Push, Run, Until};
use maco_abi::{BlackBox, Descriptor, INBOX, LAUNCH, Launch, OP_DYNAMIC, PUSH_END, PUSHED, REPORT_BUSY, State, TICKETS, arrival_increment};

/// Tasks that a worker that looks ahead may have claimed and not ended, where only data knows what they take: one that runs, one behind it.
pub const CLAIMED: u32 = 2;
/// The same where memory bounds them all, so that what they take is known, and what is on its way counts: one that runs, three whose tiles come
/// meanwhile. A GPU has drawn the ticket of one more.
pub const CLAIMED_EARLY: u32 = 4;

/// Tasks that workers claim one by one, in the order of their descriptors.
///
/// Claimed tasks run in the order of their tickets, so the least unfinished task of all is always at the head of some worker.
#[derive(Clone, Copy)]
pub struct DynamicTiles {
    ticket: *mut u32,
    tasks: u32,
    first: u32,
    /// How many may be claimed and not ended: [`CLAIMED`] or [`CLAIMED_EARLY`].
    ahead: u32,
}

impl DynamicTiles {
    /// What a list's entry [`Descriptor::dynamic`] stands for in the bank `counters`; `entry` is its [`Descriptor::coord`], `ahead` its
    /// [`Descriptor::after`].
    #[inline(always)]
    pub fn new(counters: *mut u32, entry: [u32; 3], ahead: u32) -> DynamicTiles {
        let [ticket, tasks, first] = entry;
        DynamicTiles { ticket: counters.wrapping_add(ticket as usize), tasks, first, ahead }
    }

    /// What is left of it behind the first task of each worker, where that was dealt: worker `n` has the `n`th, and no ticket is drawn for those.
    #[inline(always)]
    pub fn dealt(self, workers: u32) -> DynamicTiles {
        DynamicTiles { tasks: self.tasks - workers, first: self.first + workers, ..self }
    }

    /// How many of them a worker that looks ahead may have claimed and not ended.
    #[inline(always)]
    pub fn ahead(&self) -> u32 {
        self.ahead
    }

    /// Draws a ticket. On a GPU one lane calls.
    ///
    /// # Safety
    /// The launch is live.
    #[inline(always)]
    pub unsafe fn draw<M: Machine>(&self, machine: &M) -> u32 {
        // Relaxed: the ticket orders nothing, counters do.
        // SAFETY: the caller promises a live launch; the plan keeps every ticket inside the bank, or it is the state's.
        unsafe { machine.claim(self.ticket, 1) }
    }

    /// The descriptor that a ticket stands for; `None` when all tasks have been claimed.
    #[inline(always)]
    pub fn index(&self, ticket: u32) -> Option<u32> {
        if ticket < self.tasks { Some(self.first + ticket) } else { None }
    }
}

/// A worker's source of tasks: its static list with drains, tickets for all tasks, or what schedulers push.
#[derive(Clone, Copy)]
pub struct Queue {
    next: u32,
    tasks: u32,
    pushed: bool,
    inbox: *mut u32,
    /// Where the worker claims before its list goes on.
    tiles: Option<DynamicTiles>,
}

impl Queue {
    /// # Safety
    /// `launch` describes live memory, and `run` is a worker of it.
    #[inline(always)]
    pub unsafe fn new(launch: &Launch, run: &Run) -> Queue {
        // SAFETY: the caller promises live memory.
        let (start, inbox) = unsafe { ((launch.starts as *const u32).add(run.worker as usize).read(), inbox(launch, run.worker)) };
        let (tasks, pushed) = (launch.tasks, launch.schedule == PUSHED);
        if launch.schedule == TICKETS {
            // One drain of all tasks, then the end entry behind them.
            // SAFETY: as above.
            let ticket = unsafe { (&raw mut (*run.state).ticket).cast::<u32>() }.wrapping_add(run.bank() as usize);
            return Queue { next: tasks, tasks, pushed, inbox, tiles: Some(DynamicTiles { ticket, tasks, first: 0, ahead: CLAIMED }) };
        }
        Queue { next: start, tasks, pushed, inbox, tiles: None }
    }

    /// Whether tasks come ready from schedulers.
    #[inline(always)]
    pub fn is_pushed(&self) -> bool {
        self.pushed
    }

    /// First entry of the worker's list, and what it claims before that, for an executor that looks ahead: at most
    /// [`maco_abi::AHEAD`] entries beyond the end entry.
    #[inline(always)]
    pub fn list(&self) -> (Option<DynamicTiles>, u32) {
        (self.tiles, self.next)
    }

    /// Waits for the next pushed task. `None` when the plan is aborted. All lanes call together. The task's inputs are acquired, but for those of
    /// the task that it waits for.
    ///
    /// # Safety
    /// `run` is a live launch with schedulers.
    #[inline(always)]
    pub unsafe fn pop<M: Machine>(&mut self, machine: &M, run: &Run) -> Option<Push> {
        // A scheduler notices when nothing moves, so a worker has no deadline here.
        let mut patience = Patience::new();
        // SAFETY: the caller promises a live launch; this executor alone empties the inbox.
        unsafe {
            let word = loop {
                let word = peek(machine, self.inbox, INBOX, self.next);
                if machine.all(word != 0) {
                    break word;
                }
                if patience.look(machine, run) == Look::Abort {
                    return None;
                }
            };
            machine.acquire();
            if machine.lane() == 0 {
                clear(machine, self.inbox, INBOX, self.next);
            }
            let place = self.next;
            self.next = self.next.wrapping_add(1);
            if word == PUSH_END {
                return Some(Push { index: self.tasks, until: core::ptr::null() });
            }
            let pushed = maco_abi::Push::decode(word);
            let until = if pushed.until { until(self.inbox, place) } else { core::ptr::null_mut() };
            Some(Push { index: pushed.descriptor, until })
        }
    }

    /// If the next descriptor may be one to be claimed: how many may be claimed and not ended.
    ///
    /// # Safety
    /// `run` is a live launch, and the end entry has not been returned.
    #[inline(always)]
    pub unsafe fn claims(&self, run: &Run) -> Option<u32> {
        if self.tiles.is_some() || self.pushed {
            return self.tiles.map(|tiles| tiles.ahead);
        }
        // SAFETY: the caller promises a live launch; up to the end entry, `next` is inside the list.
        let entry = unsafe { &*((*run.launch).descriptors as *const Descriptor).add(self.next as usize) };
        (entry.op == OP_DYNAMIC).then_some(entry.after.into())
    }

    /// Index of the next descriptor, for an executor that does not look ahead and stops at the end entry, and what a scheduler has it wait
    /// for; `None` when the plan is aborted.
    ///
    /// # Safety
    /// `run` is a live launch.
    #[inline(always)]
    pub unsafe fn next<M: Machine>(&mut self, machine: &M, run: &Run) -> Option<(u32, Until)> {
        // SAFETY: passed on from the caller; the list ends with an entry at which the caller stops.
        unsafe {
            if self.pushed {
                let push = self.pop(machine, run)?;
                return Some((push.index, push.until(machine)));
            }
            loop {
                if let Some(tiles) = self.tiles {
                    let claimed = tiles.index(tiles.draw(machine));
                    if let Some(index) = claimed {
                        return Some((index, Until::NOW));
                    }
                    self.tiles = None;
                }
                let entry = ((*run.launch).descriptors as *const Descriptor).add(self.next as usize);
                self.next += 1;
                if (*entry).op != OP_DYNAMIC {
                    return Some((self.next - 1, Until::NOW));
                }
                self.tiles = Some(DynamicTiles::new(run.counters, (*entry).coord, (*entry).after.into()));
            }
        }
    }
}

/// Counts one more of those that run the launch; false, and the plan is aborted, if there are more than it has: two launches at once.
/// One lane calls.
///
/// # Safety
/// `run` is a live launch; called once by each worker and scheduler CTA, before it runs or pushes a task.
#[inline(always)]
pub unsafe fn enter<M: Machine>(machine: &M, run: &Run) -> bool {
    // SAFETY: the caller promises a live launch.
    unsafe { admit(machine, run, count_in(machine, run)) }
}

/// [`State::begun`] before this executor is counted. The first half of [`enter`], for those who have something else to ask for meanwhile.
///
/// # Safety
/// As [`enter`].
#[inline(always)]
pub unsafe fn count_in<M: Machine>(machine: &M, run: &Run) -> u32 {
    // SAFETY: the caller promises a live launch.
    unsafe { machine.claim(&raw mut (*run.state).begun, arrival_increment(run.worker, (*run.launch).executors)) }
}

/// The second half of [`enter`]: `before` is what [`count_in`] said.
///
/// # Safety
/// As [`enter`].
#[inline(always)]
pub unsafe fn admit<M: Machine>(machine: &M, run: &Run, before: u32) -> bool {
    // SAFETY: the caller promises a live launch.
    unsafe {
        if before / LAUNCH == run.number {
            return true;
        }
        Patience::new().report(machine, run, BlackBox { report: REPORT_BUSY, ..BlackBox::EMPTY });
    }
    false
}

/// Executor `executor` of `executors` leaves. When all have, the launch has ended: the next one uses the other bank. Nobody waits for this addition,
/// and it orders nothing: who reads it in the same launch has not left, and the next launch sees what this one has written. (No
/// [`Machine::add`], which announces what is released before it.)
///
/// # Safety
/// `state` is live; called once by each worker and scheduler CTA after its last access to the plan.
#[inline(always)]
pub unsafe fn leave<M: Machine>(machine: &M, state: *mut State, executor: u32, executors: u32) {
    // SAFETY: the caller promises live memory.
    unsafe { machine.claim(&raw mut (*state).left, arrival_increment(executor, executors)) };
}
