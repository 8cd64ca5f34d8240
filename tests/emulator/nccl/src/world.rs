//! Communicators of one process, and where their ranks meet.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::calls::{Call, Kind, Operation, compute};
use crate::faults::Fault;
use crate::{IN_PROGRESS, INTERNAL_ERROR, INVALID_USAGE, REMOTE_ERROR, SUCCESS, Status};

/// All ranks of a communicator.
pub struct World {
    pub ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    joined: Vec<bool>,
    /// What it has failed with; 0 for nothing.
    failed: Status,
    /// By number of the collective.
    meetings: HashMap<u64, Meeting>,
    /// From a rank to another one.
    sent: HashMap<(usize, usize), VecDeque<Vec<u8>>>,
}

/// Ranks at one collective.
#[derive(Default)]
struct Meeting {
    parts: Vec<Option<Part>>,
    done: bool,
    left: usize,
}

/// What a rank sends and where its result goes: memory of an operation that waits here.
#[derive(Clone, Copy)]
pub struct Part {
    pub call: Call,
    pub send: (*const u8, usize),
    pub receive: (*mut u8, usize),
}

// SAFETY: pinned memory of the host, which is used under the world's lock while its owner waits.
unsafe impl Send for Part {}

impl World {
    /// The world of this identity, of which `rank` has not joined yet.
    pub fn join(id: [u8; 128], ranks: usize, rank: usize) -> Option<Arc<World>> {
        static WORLDS: Mutex<Option<HashMap<[u8; 128], Weak<World>>>> = Mutex::new(None);
        let mut worlds = WORLDS.lock().unwrap_or_else(PoisonError::into_inner);
        let worlds = worlds.get_or_insert_default();
        worlds.retain(|_, world| world.strong_count() > 0);
        let world = worlds.get(&id).and_then(Weak::upgrade).unwrap_or_else(|| {
            let state = State { joined: vec![false; ranks], ..State::default() };
            Arc::new(World { ranks, state: Mutex::new(state), changed: Condvar::new() })
        });
        worlds.insert(id, Arc::downgrade(&world));
        if world.ranks != ranks || std::mem::replace(&mut world.state().joined[rank], true) {
            return None;
        }
        world.changed.notify_all();
        Some(world)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, status: Status) {
        self.state().failed = status;
        self.changed.notify_all();
    }
}

/// A rank's communicator.
pub struct Comm {
    pub world: Arc<World>,
    pub rank: usize,
    pub device: c_int,
    aborted: AtomicBool,
    /// Calls that were queued.
    pub queued: AtomicU64,
    /// Collectives that the stream has come to.
    ran: AtomicU64,
    /// Calls that have not ended, without those of graphs.
    pub pending: AtomicUsize,
}

impl Comm {
    pub fn new(world: Arc<World>, rank: usize, device: c_int) -> Comm {
        let [queued, ran] = [const { AtomicU64::new(0) }; 2];
        Comm { world, rank, device, aborted: AtomicBool::new(false), queued, ran, pending: AtomicUsize::new(0) }
    }

    pub fn state(&self) -> Status {
        let state = self.world.state();
        match state.failed {
            SUCCESS if state.joined.contains(&false) => IN_PROGRESS,
            failed => failed,
        }
    }

    /// Waits until all ranks have joined.
    pub fn until_complete(&self) -> Status {
        let state = self.world.state();
        let is_open = |state: &mut State| state.failed == SUCCESS && state.joined.contains(&false);
        self.world.changed.wait_while(state, is_open).unwrap_or_else(PoisonError::into_inner).failed
    }

    /// Waits until all that was queued has ended.
    pub fn until_idle(&self) -> Status {
        while self.pending.load(Ordering::Acquire) > 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
        self.state()
    }

    /// Ends what waits for other ranks. These are told nothing.
    pub fn abort(&self) {
        let _state = self.world.state();
        self.aborted.store(true, Ordering::Release);
        self.world.changed.notify_all();
    }

    /// Waits until something is as it should be; `false` if the communicator is aborted before. One that has failed stands still until then, as NCCL's kernels do.
    fn wait<'a>(&self, mut state: MutexGuard<'a, State>, is_there: impl Fn(&State) -> bool) -> (MutexGuard<'a, State>, bool) {
        loop {
            if self.aborted.load(Ordering::Acquire) {
                return (state, false);
            }
            if state.failed == SUCCESS && is_there(&state) {
                return (state, true);
            }
            state = self.world.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The stream has come to a call: exchanges it with the other ranks.
    pub fn exchange(&self, operation: &Operation) {
        match operation.fault {
            Some(Fault::Remote) => self.world.fail(REMOTE_ERROR),
            Some(Fault::Endless) => return drop(self.wait(self.world.state(), |_| false)),
            Some(Fault::Returns(_)) | None => {}
        }
        let part = operation.part();
        match part.call.kind {
            Kind::Send(to) => {
                // SAFETY: the operation's memory.
                let bytes = unsafe { std::slice::from_raw_parts(part.send.0, part.send.1) }.to_vec();
                self.world.state().sent.entry((self.rank, to)).or_default().push_back(bytes);
                self.world.changed.notify_all();
            }
            Kind::Receive(from) => {
                let place = (from, self.rank);
                let is_there = |state: &State| state.sent.get(&place).is_some_and(|all| !all.is_empty());
                let (mut state, there) = self.wait(self.world.state(), is_there);
                let Some(bytes) = state.sent.get_mut(&place).filter(|_| there).and_then(VecDeque::pop_front) else { return };
                if bytes.len() != part.receive.1 {
                    state.failed = INVALID_USAGE;
                    return self.world.changed.notify_all();
                }
                // SAFETY: the operation's memory, of this size.
                unsafe { bytes.as_ptr().copy_to_nonoverlapping(part.receive.0, bytes.len()) };
            }
            _ => self.meet(part),
        }
    }

    fn meet(&self, part: Part) {
        let number = self.ran.fetch_add(1, Ordering::Relaxed);
        let mut state = self.world.state();
        let meeting = state.meetings.entry(number).or_default();
        meeting.parts.resize(self.world.ranks, None);
        meeting.parts[self.rank] = Some(part);
        let parts: Vec<Part> = meeting.parts.iter().flatten().copied().collect();
        if parts.len() == self.world.ranks {
            meeting.done = true;
            if parts.iter().any(|other| other.call != part.call) {
                eprintln!("[nccl] ranks have different calls in one place: {:?}", parts.iter().map(|part| part.call).collect::<Vec<_>>());
                state.failed = INVALID_USAGE;
            } else if std::panic::catch_unwind(|| compute(part.call, &parts)).is_err() {
                state.failed = INTERNAL_ERROR;
            }
            self.world.changed.notify_all();
        }
        let (mut state, _) = self.wait(state, |state| state.meetings[&number].done);
        let meeting = state.meetings.entry(number).or_default();
        // Who goes takes its memory along.
        meeting.parts[self.rank] = None;
        meeting.left += 1;
        if meeting.left == self.world.ranks {
            state.meetings.remove(&number);
        }
    }
}
