//! How tasks reach the workers: by lists, tickets or schedulers, and who runs what in which order.
//!
//! Which worker gets a task does not belong here.

use std::fmt;
use std::ops::Range;

/// How tasks reach the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// A list per worker, made by the planner.
    Static,
    /// One list in global order; workers take tasks from it by an atomic ticket.
    Tickets,
    /// So many scheduler CTAs of the same launch push ready tasks to the workers, the longest path to the end first.
    Schedulers(u32),
    /// As [`Schedule::Schedulers`], but each scheduler is a spare warp of a worker: no multiprocessor is lost to scheduling.
    SpareWarps(u32),
}

impl Schedule {
    /// How many schedulers push tasks; 0 if workers fetch theirs.
    pub const fn schedulers(self) -> u32 {
        match self {
            Schedule::Static | Schedule::Tickets => 0,
            Schedule::Schedulers(n) | Schedule::SpareWarps(n) => n,
        }
    }

    /// A word for files: `static`, `tickets`, `schedulers`, `spare warps`.
    pub const fn name(self) -> &'static str {
        match self {
            Schedule::Static => "static",
            Schedule::Tickets => "tickets",
            Schedule::Schedulers(_) => "schedulers",
            Schedule::SpareWarps(_) => "spare warps",
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Static => f.write_str("static lists"),
            Schedule::Tickets => f.write_str("tickets"),
            Schedule::Schedulers(n) => write!(f, "{n} schedulers"),
            Schedule::SpareWarps(n) => write!(f, "{n} spare warps"),
        }
    }
}

/// Task indices, worker after worker, and what all workers share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Task indices. Static: worker after worker, without those of drained calls. Otherwise in global order.
    pub order: Vec<u32>,
    /// Where each worker's list starts, and the end: workers + 1 entries. Otherwise `[0, tasks]`.
    pub starts: Vec<u32>,
    /// Drains: ranges of tasks that workers claim by ticket (dynamic tile scheduling), in global order; static lists only. Every list has an entry
    /// for each, see [`Lists::entries`].
    pub drains: Vec<Range<u32>>,
    /// The position of every task in the one order that all lists follow; empty where that is the order of the tasks' numbers. Only without
    /// drains.
    pub positions: Vec<u32>,
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Runs the task.
    Task(u32),
    /// Claims tasks of this one of [`Lists::drains`], one after the other, until none is left.
    Drain(u32),
}

impl Lists {
    /// Of the workers' own tasks.
    pub(super) fn of_workers(own: Vec<Vec<u32>>, drains: Vec<Range<u32>>, positions: Vec<u32>) -> Lists {
        let mut lists = Lists { drains, positions, ..Lists::default() };
        for list in own {
            lists.starts.push(lists.order.len() as u32);
            lists.order.extend(list);
        }
        lists.starts.push(lists.order.len() as u32);
        lists
    }

    /// The tasks of list `list`, in the order in which they run, but for those that its worker claims.
    ///
    /// # Panics
    /// If there is no such list.
    pub fn of(&self, list: usize) -> &[u32] {
        &self.order[self.starts[list] as usize..self.starts[list + 1] as usize]
    }

    /// The entries of list `list`: a drain stands where its tasks do in the global order.
    ///
    /// So no worker waits for ever: look at the task that is the least in the global order among those that have not ended. Whatever it
    /// waits for is less and has ended. A worker takes entries in this order and runs in order what it takes, so whoever has the task,
    /// by its list or by a ticket, has ended all that it took before, and runs it. If nobody has it, it is next in a drain, since tickets
    /// are drawn in task order. Every worker's list has that drain, all its entries before the drain are for less tasks and come to an
    /// end, and so does what it has claimed of the drain: it draws the next ticket, which is for this task or shows that another worker
    /// has drawn it.
    ///
    /// # Panics
    /// If there is no such list.
    pub fn entries(&self, list: usize) -> impl Iterator<Item = Entry> + '_ {
        let mut tasks = self.of(list).iter().copied().peekable();
        let mut drains = (0..).zip(&self.drains).peekable();
        std::iter::from_fn(move || match (tasks.peek(), drains.peek()) {
            (Some(&task), Some((_, drain))) if task < drain.start => tasks.next().map(Entry::Task),
            (_, Some(_)) => drains.next().map(|(drain, _)| Entry::Drain(drain)),
            (_, None) => tasks.next().map(Entry::Task),
        })
    }
}
