//! The proxy of a rank: takes triggers out of the FIFO, copies, signals. Of a GPU it has copy engines copy.

use std::sync::Arc;
use std::time::Duration;

use maco_device::channel::{FifoConsumer, Operation, Peer, System, Trigger, Waiting};

use super::control::Shared;
use crate::gpu::CopyEngine;

/// Looks in vain before the thread sleeps between two of them: at first it is worth to be quick.
const EAGER: u32 = 2000;
const REST: Duration = Duration::from_micros(50);

/// Most triggers whose copies are queued at once.
const TOGETHER: u32 = 64;

pub(super) struct Proxy {
    shared: Arc<Shared>,
    fifo: FifoConsumer,
    signals: Signals,
    /// Between GPUs: what copies.
    engine: Option<Arc<CopyEngine>>,
    /// Triggers whose copies are queued.
    queued: u32,
}

/// Where a proxy signals.
pub(super) enum Signals {
    /// The word of each rank that this proxy stores, and how often it has.
    Counted(Vec<(Peer<u32>, u32)>),
    /// Behind what it copies: what it finds behind the source.
    Behind,
}

impl Proxy {
    pub(super) fn new(shared: Arc<Shared>, fifo: FifoConsumer, signals: Signals, engine: Option<Arc<CopyEngine>>) -> Proxy {
        Proxy { shared, fifo, signals, engine, queued: 0 }
    }

    /// Until it should end and nothing is left to do, or it was handed what it cannot do.
    pub(super) fn run(mut self, ending: impl Fn() -> bool) {
        let shared = self.shared.clone();
        let system = shared.system();
        let mut vain = 0u32;
        loop {
            // Before the look: what was handed over before the end is done.
            let last = ending();
            // SAFETY: the other end of this rank's FIFO, which the caller holds.
            let trigger = if self.queued < TOGETHER { unsafe { self.fifo.take(&system) } } else { None };
            let Some(trigger) = trigger else {
                if self.queued > 0 {
                    if !self.finish(&system) {
                        return;
                    }
                    continue;
                }
                if last {
                    return;
                }
                vain = vain.saturating_add(1);
                match vain {
                    0..64 => std::hint::spin_loop(),
                    64..EAGER => std::thread::yield_now(),
                    _ => std::thread::sleep(REST),
                }
                continue;
            };
            vain = 0;
            if !self.perform(&system, trigger) {
                return;
            }
            self.queued += 1;
            if self.engine.is_none() && !self.finish(&system) {
                return;
            }
        }
    }

    /// Says that what was performed is completed, when it is; false if the GPU does not go on.
    fn finish(&mut self, system: &impl System) -> bool {
        if self.engine.as_ref().is_some_and(|engine| engine.finish().is_err()) {
            return false;
        }
        for _ in 0..std::mem::take(&mut self.queued) {
            // SAFETY: the other end of this rank's FIFO, which the caller of `run` holds; so many were taken.
            unsafe { self.fifo.complete(system) };
        }
        true
    }

    /// False if it is outside of the memory: nothing goes on then.
    fn perform(&mut self, system: &impl System, trigger: Trigger) -> bool {
        let size = self.shared.arena.bytes() as u64;
        let word = if matches!(self.signals, Signals::Behind) { size_of::<u32>() as u64 } else { 0 };
        let inside = |offset: u64| offset.checked_add(u64::from(trigger.bytes) + word).is_some_and(|end| end <= size);
        // Words are aligned.
        let apart = word == 0 || (trigger.from | trigger.to | u64::from(trigger.bytes)).is_multiple_of(word);
        if trigger.channel >= self.shared.group().ranks() || !inside(trigger.from) || !inside(trigger.to) || !apart {
            let waiting = Waiting { operation: Operation::Trigger, peer: trigger.channel, word: u32::MAX, expected: 0 };
            // SAFETY: this rank's control block.
            unsafe { self.shared.watch().report(system, waiting, [0; 3], 0) };
            let _ = self.shared.stopped();
            return false;
        }
        if let Some(engine) = &self.engine {
            let place = |rank: u32, offset: u64| self.shared.base(rank) + offset;
            let (rank, bytes) = (self.shared.group().rank(), u64::from(trigger.bytes));
            let mut parts = [(0, bytes, trigger.copy), (bytes, word, trigger.signal)].into_iter().filter(|part| part.2);
            // The word behind the data is copied behind them: copies of a stream are made one after the other.
            // SAFETY: inside the memory of both ranks, which is mapped for this GPU as long as `shared` lives; `finish` comes before it ends.
            return parts.all(|(at, bytes, _)| unsafe {
                engine.copy(place(trigger.channel, trigger.to + at), place(rank, trigger.from + at), bytes as usize).is_ok()
            });
        }
        if trigger.copy {
            let from = self.shared.own().wrapping_add(trigger.from as usize);
            // SAFETY: inside the mapped memory of both ranks; all accesses to it are atomics.
            unsafe { self.shared.of(trigger.channel).at::<u8>(trigger.to).put(system, from, trigger.bytes.into()) };
        }
        if trigger.signal {
            match &mut self.signals {
                Signals::Counted(words) => {
                    let (word, sent) = &mut words[trigger.channel as usize];
                    *sent = sent.wrapping_add(1);
                    // SAFETY: this proxy is the word's only writer.
                    unsafe { word.publish(system, *sent) };
                }
                Signals::Behind => {
                    let behind = |offset: u64| offset + u64::from(trigger.bytes);
                    // SAFETY: aligned words of the mapped memory, of which this proxy is the only writer at the peer's.
                    unsafe {
                        let number = system.load4(self.shared.own().wrapping_add(behind(trigger.from) as usize).cast());
                        self.shared.of(trigger.channel).at::<u32>(behind(trigger.to)).publish(system, number);
                    }
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use maco_ranks::Group;

    use super::*;
    use crate::channel::SymmetricMemory;
    use crate::device::Device;

    /// What safe code does not hand over: a GPU's program may.
    #[test]
    fn what_is_outside_stops_the_ranks() {
        for trigger in [
            Trigger { copy: true, from: 1 << 20, bytes: 1, ..Trigger::default() },
            Trigger { copy: true, to: (1 << 20) - 4, bytes: 5, ..Trigger::default() },
            Trigger { copy: true, bytes: u32::MAX, ..Trigger::default() },
            Trigger { channel: 1, signal: true, ..Trigger::default() },
        ] {
            let memory = SymmetricMemory::new(Arc::new(Group::single()), &Device::cpu(), 1 << 20).unwrap();
            let shared = memory.0.clone();
            let word = shared.of(0).at(512);
            let mut ring = [0u64; 2];
            let mut progress = [0u32; 2];
            // SAFETY: words of this thread.
            let fifo = unsafe { FifoConsumer::new(ring.as_mut_ptr(), progress.as_mut_ptr(), 1) };
            let mut proxy = Proxy::new(shared.clone(), fifo, Signals::Counted(vec![(word, 0)]), None);
            assert!(proxy.perform(&shared.system(), Trigger { signal: true, ..Trigger::default() }));
            // SAFETY: mapped.
            assert_eq!(unsafe { shared.system().load4(shared.own().wrapping_add(512).cast()) }, 1);
            shared.check().unwrap();
            assert!(!proxy.perform(&shared.system(), trigger), "{trigger:?}");
            let error = shared.check().unwrap_err();
            assert!(error.code() == 99 && error.to_string().contains("not inside the symmetric memory"), "{error}");
        }
    }
}
