//! Where everything lies in a scheduler's memory.

use maco_abi::{INBOX, SchedulerPartition};

/// Bit of what a scheduler keeps of a task's pending counters: it was pushed ahead, to the own worker in the other bits. Bit of what it
/// keeps of a worker's outstanding tasks: it has one that was pushed ahead, and gets no other until that may run; what comes ready
/// meanwhile would wait behind it.
pub(super) const HELD_UP: u32 = 1 << 31;

/// Tasks of a scheduler that are ahead at once. Each holds a worker that a task which comes ready could have. A chain needs as many as end
/// between the message of a task's end and the push that it leads to.
pub(super) const MOST: u32 = 8;

/// Words of [`Layout::fresh`] for each: the own worker that gets a task, and the worker and its ended tasks that the task waits for.
pub(super) const FRESH_WORDS: u32 = 3;

/// Where the parts of a scheduler's memory lie, in words. The host writes the image by it.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// How many bits of `ready` are set.
    pub count: u32,
    /// Tasks that have ended.
    pub ended: u32,
    /// Tasks that were pushed ahead, and of which not all has been heard that they wait for.
    pub ahead: u32,
    /// Tasks that are pushed ahead in this turn.
    pub fresh: u32,
    /// Per counter: arrivals still to come.
    pub remaining: u32,
    /// Per task: counters still to fill.
    pub pending: u32,
    /// Per task: the counter of those it signals here whose first waiter is the most urgent, plus 1; 0: the scheduler does not look ahead
    /// from it.
    pub signals: u32,
    /// Per counter: first entry of its waiters, and the end.
    pub starts: u32,
    /// Numbers of tasks.
    pub waiters: u32,
    /// Per task: its descriptor.
    pub tasks: u32,
    /// Bit per task: ready and not yet pushed.
    pub ready: u32,
    /// Bit per word of `ready`: not 0.
    pub summary: u32,
    /// Per worker of the launch: messages read from it.
    pub heads: u32,
    /// Per own worker: tasks pushed and not ended, tasks pushed, and the last [`INBOX`] of them. Side by side: one place to keep in a register.
    pub own: u32,
    /// Words in all, a multiple of 4.
    pub words: u32,
}

/// Words of [`Layout::own`] for each.
const OWN_WORDS: u32 = 2 + INBOX;

impl Layout {
    /// For scheduler `number` of `schedulers`, over `workers`.
    pub const fn new(partition: &SchedulerPartition, workers: u32, schedulers: u32, number: u32) -> Layout {
        let own_workers = own(workers, schedulers, number);
        // What has a fixed place comes first: a GPU has few registers for the others.
        let (count, ended, ahead, fresh) = (0, 1, 2, 3);
        let remaining = fresh + MOST * FRESH_WORDS;
        let pending = remaining + partition.counters;
        let signals = pending + partition.tasks;
        let starts = signals + partition.tasks;
        let waiters = starts + partition.counters + 1;
        let tasks = waiters + partition.waiters;
        let ready = tasks + partition.tasks;
        let summary = ready + partition.tasks.div_ceil(32);
        let heads = summary + partition.tasks.div_ceil(1024);
        let own = heads + workers;
        let words = (own + own_workers * OWN_WORDS).next_multiple_of(4);
        Layout { count, ended, ahead, fresh, remaining, pending, signals, starts, waiters, tasks, ready, summary, heads, own, words }
    }

    /// Of own worker `own`: tasks pushed and not ended.
    #[inline(always)]
    pub(super) const fn outstanding(&self, own: u32) -> u32 {
        self.own + own * OWN_WORDS
    }

    /// Of own worker `own`: tasks pushed.
    #[inline(always)]
    pub(super) const fn tail(&self, own: u32) -> u32 {
        self.outstanding(own) + 1
    }

    /// Of own worker `own`: the task that was pushed behind `n` others, if it is one of the last [`INBOX`].
    #[inline(always)]
    pub(super) const fn held(&self, own: u32, n: u32) -> u32 {
        self.outstanding(own) + 2 + n % INBOX
    }
}

/// How many workers scheduler `number` pushes to: every `schedulers`-th one from `number`.
pub(super) const fn own(workers: u32, schedulers: u32, number: u32) -> u32 {
    over(workers - number + schedulers - 1, schedulers)
}

/// `a / b`, without the panic that device code would carry along; a plan with schedulers has at least one.
pub(super) const fn over(a: u32, b: u32) -> u32 {
    match a.checked_div(b) {
        Some(quotient) => quotient,
        None => 0,
    }
}
