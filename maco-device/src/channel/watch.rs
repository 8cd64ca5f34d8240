//! How a wait ends if what it waits for never comes: a deadline, a stop word, a report. What is waited for does not belong here.

use super::System;

/// How a thread waits.
pub trait Wait {
    /// Waits until `condition` holds; false if the ranks do not go on.
    fn until(&self, condition: impl FnMut() -> bool) -> bool;
}

/// What each rank has at the same place of its shared memory: whether it goes on, and what it has waited for in vain.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Control {
    /// 0: goes on. Else the rank that stopped first, as far as this one knows, plus 1, or [`STOPPED_BY_HOST`]. Peers store it, too; it only changes from 0
    /// to something else that is true.
    pub stop: u32,
    /// 1 when the report below is there.
    pub complete: u32,
    /// [`Operation`].
    pub operation: u32,
    /// Who should have signalled.
    pub peer: u32,
    /// What was polled: see [`Waiting::word`].
    pub word: u32,
    /// Its last value.
    pub seen: u32,
    /// The value that was waited for.
    pub expected: u32,
    /// [`DEADLINE`], [`OTHER_CALL`], or the lost peer plus 1.
    pub cause: u32,
    /// Polls in vain.
    pub polls: u32,
    /// Nanoseconds that the wait lasted, low half first.
    pub elapsed: [u32; 2],
}

/// [`Control::stop`]: the host ended the channels.
pub const STOPPED_BY_HOST: u32 = u32::MAX;
/// [`Control::cause`]: the deadline passed.
pub const DEADLINE: u32 = 0;
/// [`Control::cause`]: the peer made another call. Then [`Control::seen`] and [`Control::expected`] are the word [`Control::word`] of what it calls, and of what
/// this rank does.
pub const OTHER_CALL: u32 = u32::MAX;

/// What an executor does when it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// For a signal of a peer.
    Wait = 1,
    /// For packets of a peer.
    Packets = 2,
    /// For credits of a peer: slots that it has emptied.
    Credit = 3,
    /// For room in the FIFO to the proxy.
    Room = 4,
    /// For the proxy to complete what was pushed.
    Flush = 5,
    /// Does not wait: the proxy was handed what it cannot do.
    Trigger = 6,
    /// For a peer's part of a collective outside of megakernels, by its name.
    AllReduce = 7,
    /// As above.
    AllGather = 8,
    /// As above.
    ReduceScatter = 9,
    /// As above.
    AllToAll = 10,
    /// As above.
    Broadcast = 11,
}

impl Operation {
    /// That of a report.
    pub const fn of(code: u32) -> Option<Operation> {
        Some(match code {
            1 => Operation::Wait,
            2 => Operation::Packets,
            3 => Operation::Credit,
            4 => Operation::Room,
            5 => Operation::Flush,
            6 => Operation::Trigger,
            7 => Operation::AllReduce,
            8 => Operation::AllGather,
            9 => Operation::ReduceScatter,
            10 => Operation::AllToAll,
            11 => Operation::Broadcast,
            _ => return None,
        })
    }
}

/// What is waited for, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What the executor does.
    pub operation: Operation,
    /// Who should signal.
    pub peer: u32,
    /// Which word: its place in the rank's shared memory, in words of 4 bytes; of a FIFO, whose words are elsewhere, all ones.
    pub word: u32,
    /// The value that it should have, or a later one.
    pub expected: u32,
}

/// A wait ended because the ranks do not go on: this one's deadline passed, or another rank has stopped. [`Control`] says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// By what waits of a rank end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// Of this rank.
    pub control: *mut Control,
    /// This rank.
    pub rank: u32,
    /// How long a wait may last.
    pub deadline_ns: u64,
}

// SAFETY: the control block is shared memory that is accessed by words; the pointer is used by unsafe methods alone.
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

impl Watch {
    /// Calls `poll`, which says whether it saw what it waits for and what it saw, until it did. Each lane may wait by itself; they have not met.
    ///
    /// # Safety
    /// The control block is mapped, and so is what `poll` polls.
    #[inline(always)]
    pub unsafe fn until<S: System>(&self, system: &S, waiting: Waiting, mut poll: impl FnMut(&S) -> (bool, u32)) -> Result<(), Stopped> {
        let (mut polls, mut began) = (0u32, 0u64);
        loop {
            if poll(system).0 {
                return Ok(());
            }
            polls = polls.wrapping_add(1);
            system.pause(polls);
            if !polls.is_multiple_of(S::LOOK) {
                continue;
            }
            // SAFETY: the caller promises a control block.
            if unsafe { system.load4(&raw const (*self.control).stop) } != 0 {
                return Err(Stopped);
            }
            let now = system.now();
            if began == 0 {
                began = now;
            }
            let elapsed = now.wrapping_sub(began);
            let lost = system.lost();
            if lost != 0 || elapsed > self.deadline_ns {
                // A last look: what came before a peer was lost counts.
                let (ready, seen) = poll(system);
                if ready {
                    return Ok(());
                }
                // SAFETY: as above.
                unsafe { self.report(system, waiting, [seen, lost, polls], elapsed) };
                return Err(Stopped);
            }
        }
    }

    /// Stops this rank, and says why unless somebody else was first.
    ///
    /// # Safety
    /// The control block is mapped.
    #[inline(always)]
    pub unsafe fn report<S: System>(&self, system: &S, waiting: Waiting, [seen, cause, polls]: [u32; 3], elapsed_ns: u64) {
        let control = self.control;
        // SAFETY: the caller promises a control block. Only who changed the word from 0 writes the report.
        unsafe {
            if system.compare_exchange(&raw mut (*control).stop, 0, self.rank + 1) != 0 {
                return;
            }
            system.tell(&raw mut (*control).operation, waiting.operation as u32);
            system.tell(&raw mut (*control).peer, waiting.peer);
            system.tell(&raw mut (*control).word, waiting.word);
            system.tell(&raw mut (*control).seen, seen);
            system.tell(&raw mut (*control).expected, waiting.expected);
            system.tell(&raw mut (*control).cause, cause);
            system.tell(&raw mut (*control).polls, polls);
            let elapsed = (&raw mut (*control).elapsed).cast::<u32>();
            system.tell(elapsed, elapsed_ns as u32);
            system.tell(elapsed.add(1), (elapsed_ns >> 32) as u32);
            system.publish(&raw mut (*control).complete, 1);
        }
    }
}
