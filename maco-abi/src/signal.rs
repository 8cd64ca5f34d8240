//! What a task does at its end: signals to counters, or routes to schedulers; and what schedulers push to workers.

use crate::limits::MAX_SCHEDULERS;
use crate::wait::{CounterIndex, NO_COUNTER};

/// An unused signal, or route.
pub const NO_SIGNAL: u32 = NO_COUNTER.0;

/// One arrival at a counter of this launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Which counter, below 2³¹.
    pub counter: CounterIndex,
    /// The counter has a single producer, so the signal is a store of 1 instead of an atomic addition.
    pub single_producer: bool,
}

impl Signal {
    /// Bit of a signal's word: see [`Signal::single_producer`].
    pub const SINGLE_PRODUCER: u32 = 1 << 31;

    /// In a word.
    pub const fn encode(self) -> u32 {
        self.counter.0 | if self.single_producer { Signal::SINGLE_PRODUCER } else { 0 }
    }

    /// From a word that is not [`NO_SIGNAL`].
    pub const fn decode(word: u32) -> Signal {
        Signal { counter: CounterIndex(word & !Signal::SINGLE_PRODUCER), single_producer: word & Signal::SINGLE_PRODUCER != 0 }
    }
}

/// A signal of a plan with schedulers, which count arrivals themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The scheduler that pushed the task gets its credit back.
    pub credit: bool,
    /// Scheduler.
    pub to: u32,
    /// The number that it gives the counter, below [`Route::COUNTERS`]; none if only the credit counts.
    pub counter: Option<u32>,
}

/// Bit of a route's word.
const CREDIT: u32 = 1 << 31;
const ROUTE_SHIFT: u32 = 23;
const ROUTE_COUNTER: u32 = (1 << ROUTE_SHIFT) - 1;

impl Route {
    /// Counters that a scheduler can number.
    pub const COUNTERS: u32 = ROUTE_COUNTER;
    /// What remains of a route's word in the message to the scheduler: all but who that is.
    pub const MESSAGE: u32 = CREDIT | ROUTE_COUNTER;

    /// In a word.
    pub const fn encode(self) -> u32 {
        let number = match self.counter {
            Some(counter) => counter + 1,
            None => 0,
        };
        (if self.credit { CREDIT } else { 0 }) | self.to << ROUTE_SHIFT | number
    }

    /// From a word that is not [`NO_SIGNAL`], or a message.
    pub const fn decode(word: u32) -> Route {
        let number = word & ROUTE_COUNTER;
        Route {
            credit: word & CREDIT != 0,
            to: (word & !CREDIT) >> ROUTE_SHIFT,
            counter: if number != 0 { Some(number - 1) } else { None },
        }
    }
}

const _: () = assert!(MAX_SCHEDULERS <= 1 << (31 - ROUTE_SHIFT));

/// Tasks that a scheduler pushes to a worker before the first of them has ended: one runs, one waits behind it.
pub const INBOX: u32 = 2;
/// Words of an inbox: [`INBOX`] entries, then for each a pair of words that [`Push::until`] uses. The worker polls it, so it is one sector of 32 bytes.
pub const INBOX_WORDS: u32 = 8;
const _: () = assert!(INBOX_WORDS >= 3 * INBOX);
/// Entries of the mailbox from a worker to a scheduler.
pub const MAILBOX: u32 = 16;
/// Inbox word that ends the worker's launch. Any other but 0, an empty entry, is a [`Push`].
pub const PUSH_END: u32 = u32::MAX;

/// A task in an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    /// Index of its descriptor, below 2³¹ - 2.
    pub descriptor: u32,
    /// It was pushed before it is ready. It may run when a worker has ended some number of tasks. Two words of the inbox say which worker and how many.
    pub until: bool,
}

/// Bit of an inbox word.
const UNTIL: u32 = 1 << 31;

impl Push {
    /// In a word.
    pub const fn encode(self) -> u32 {
        (self.descriptor + 1) | if self.until { UNTIL } else { 0 }
    }

    /// From a word that is neither 0 nor [`PUSH_END`].
    pub const fn decode(word: u32) -> Push {
        Push { descriptor: (word & !UNTIL) - 1, until: word & UNTIL != 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn signals_survive(counter in 0..(1u32 << 31) - 1, single_producer: bool) {
            let signal = Signal { counter: CounterIndex(counter), single_producer };
            prop_assert_ne!(signal.encode(), NO_SIGNAL);
            prop_assert_eq!(Signal::decode(signal.encode()), signal);
        }

        #[test]
        fn routes_survive(credit: bool, to in 0..MAX_SCHEDULERS, counter in proptest::option::of(0..Route::COUNTERS - 1)) {
            let route = Route { credit, to, counter };
            prop_assert_ne!(route.encode(), NO_SIGNAL);
            prop_assert_eq!(Route::decode(route.encode()), route);
            // No message is an empty place, unless it says nothing.
            let message = route.encode() & Route::MESSAGE;
            prop_assert_eq!(message == 0, !credit && counter.is_none());
            prop_assert_eq!(Route::decode(message), Route { to: 0, ..route });
        }

        #[test]
        fn pushes_survive(descriptor in 0..(1u32 << 31) - 2, until: bool) {
            let push = Push { descriptor, until };
            prop_assert!(push.encode() != 0 && push.encode() != PUSH_END);
            prop_assert_eq!(Push::decode(push.encode()), push);
        }
    }
}
