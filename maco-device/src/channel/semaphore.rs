//! Semaphores: a sequence number of one writer in the memory of who waits for it.

use super::{Operation, Peer, Stopped, System, Waiting, Watch, reached};

/// One end of a semaphore of two ranks: signals to a peer, and waits for its signals. One executor uses it at a time.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Semaphore {
    inbound: *const u32,
    outbound: Peer<u32>,
    /// Two words: signals sent, and signals waited for.
    own: *mut u32,
    peer: u32,
    word: u32,
}

// SAFETY: addresses, which are used by unsafe methods alone.
unsafe impl Send for Semaphore {}
// SAFETY: as above.
unsafe impl Sync for Semaphore {}

impl Semaphore {
    /// `inbound` is the word of this rank that `peer` stores, and `outbound` that of the peer which this one stores; `own` is two words of this executor.
    /// All begin with the same number, 0 as a rule. `word` names the inbound one in reports ([`Waiting::word`]).
    ///
    /// # Safety
    /// They stay mapped while the semaphore is used, and nobody else uses them, except the peer its own end.
    #[inline(always)]
    pub const unsafe fn new(inbound: *const u32, outbound: Peer<u32>, own: *mut u32, peer: u32, word: u32) -> Semaphore {
        Semaphore { inbound, outbound, own, peer, word }
    }

    /// Adds one to what the peer sees, behind everything that this executor's lanes did or saw before. All lanes call together.
    ///
    /// # Safety
    /// No other executor uses the semaphore meanwhile.
    #[inline(always)]
    pub unsafe fn signal<S: System>(&self, system: &S) {
        system.meet();
        if system.lane() == 0 {
            // SAFETY: the words are there, and this is their only writer, as `new` and the caller promise.
            unsafe {
                let next = system.own_load(self.own).wrapping_add(1);
                system.own_store(self.own, next);
                self.outbound.publish(system, next);
            }
        }
    }

    /// Waits for the next signal of the peer: what that did or saw before it is visible then. All lanes call together.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// As of [`Semaphore::signal`]; `watch` has a control block.
    #[inline(always)]
    pub unsafe fn wait<S: System>(&self, system: &S, watch: &Watch) -> Result<(), Stopped> {
        // SAFETY: as above.
        unsafe {
            let next = system.own_load(self.own.add(1)).wrapping_add(1);
            self.wait_until(system, watch, next, Operation::Wait)?;
            // All have loaded it.
            if system.lane() == 0 {
                system.own_store(self.own.add(1), next);
            }
            system.meet();
        }
        Ok(())
    }

    /// Waits until the peer has sent `expected` signals, counted with wrap. Counts nothing itself.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// As of [`Semaphore::wait`].
    #[inline(always)]
    pub unsafe fn wait_until<S: System>(&self, system: &S, watch: &Watch, expected: u32, operation: Operation) -> Result<(), Stopped> {
        let mut result = Ok(());
        if system.lane() == 0 {
            let waiting = Waiting { operation, peer: self.peer, word: self.word, expected };
            // SAFETY: as above.
            result = unsafe {
                watch.until(system, waiting, |system| {
                    let seen = system.poll(self.inbound);
                    (reached(seen, expected), seen)
                })
            };
            // The signal was published: what came before it is visible behind this, to the other lanes when they have met this one.
            system.acquire();
        }
        if system.all(result.is_ok()) { Ok(()) } else { Err(Stopped) }
    }

    /// Whether the next signal of the peer has come; if so it is taken, as by [`Semaphore::wait`].
    ///
    /// # Safety
    /// As of [`Semaphore::signal`].
    #[inline(always)]
    pub unsafe fn try_wait<S: System>(&self, system: &S) -> bool {
        // SAFETY: as above.
        unsafe {
            let next = system.own_load(self.own.add(1)).wrapping_add(1);
            let come = system.lane() != 0 || reached(system.poll(self.inbound), next);
            if system.lane() == 0 && come {
                system.acquire();
            }
            if !system.all(come) {
                return false;
            }
            if system.lane() == 0 {
                system.own_store(self.own.add(1), next);
            }
            system.meet();
            true
        }
    }

    /// Signals that this end has sent.
    ///
    /// # Safety
    /// As of [`Semaphore::signal`].
    #[inline(always)]
    pub unsafe fn sent<S: System>(&self, system: &S) -> u32 {
        // SAFETY: as above.
        unsafe { system.own_load(self.own) }
    }

    /// Signals that this end has waited for.
    ///
    /// # Safety
    /// As of [`Semaphore::signal`].
    #[inline(always)]
    pub unsafe fn taken<S: System>(&self, system: &S) -> u32 {
        // SAFETY: as above.
        unsafe { system.own_load(self.own.add(1)) }
    }

    /// The word of the peer that this end stores.
    #[inline(always)]
    pub const fn outbound(&self) -> Peer<u32> {
        self.outbound
    }

    /// The other rank.
    #[inline(always)]
    pub const fn peer(&self) -> u32 {
        self.peer
    }
}
