//! When a task of a simulated launch may begin, by the ends of what it waits for. Who simulates is `list_scheduling`.

/// When the tasks that fill a counter have ended.
#[derive(Clone, Copy, Default)]
pub(super) struct Filled {
    /// The last one's end, and its worker.
    pub last: u64,
    pub worker: u32,
    /// End of the last one of all other workers.
    others: u64,
}

impl Filled {
    pub fn add(&mut self, end: u64, worker: u32) {
        if worker == self.worker {
            self.last = self.last.max(end);
        } else if end > self.last {
            *self = Filled { last: end, worker, others: self.last };
        } else {
            self.others = self.others.max(end);
        }
    }

    /// Both counters.
    pub fn and(mut self, other: Filled) -> Filled {
        let rest = other.others;
        self.add(other.last, other.worker);
        self.others = self.others.max(rest);
        self
    }

    /// When a task that waits for it may begin on `worker`.
    pub fn ready(&self, worker: u32, hop: u64) -> u64 {
        let hop = |end: u64| if end == 0 { 0 } else { end + hop };
        if worker == self.worker { self.last.max(hop(self.others)) } else { hop(self.last) }
    }
}
