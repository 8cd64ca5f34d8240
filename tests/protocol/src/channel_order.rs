//! What the words of ranks are for, and clocks that say whether accesses to them are ordered.
//!
//! Executors and cases do not belong here: see [`crate::channel`].

use std::collections::HashMap;

/// What a word is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Signals that data is there.
    Signal,
    /// Signals that data was taken.
    Credit,
    /// Triggers taken by the proxy.
    Taken,
    /// Triggers completed.
    Completed,
    /// The report is there.
    Complete,
    /// Copied: an access that is in no order with another one is an error.
    Data,
    /// Says itself that it is there.
    Packet,
    /// Messages sent: a word of the rank's own, in order as data is.
    Sent,
    /// Messages received: likewise.
    Received,
}

impl Role {
    /// Whether every access must be in order with the last store.
    fn is_plain(self) -> bool {
        matches!(self, Role::Data | Role::Sent | Role::Received)
    }
}

/// Words of a rank's memory.
pub const RANK: usize = 64;
/// Words of everything.
pub const WORDS: usize = 3 * RANK;
/// Most threads of a model.
pub const THREADS: usize = 8;
/// Stores before this number are what words begin with.
pub const FIRST: u64 = 7;

/// Where words of a rank's memory are.
pub mod place {
    /// [`super::Role::Signal`].
    pub const SIGNAL: usize = 0;
    /// [`super::Role::Credit`].
    pub const CREDIT: usize = 1;
    /// Taken, and completed.
    pub const PROGRESS: usize = 2;
    /// A ring of two triggers.
    pub const RING: usize = 4;
    /// [`maco_device::channel::Control`].
    pub const CONTROL: usize = 16;
    /// [`super::Role::Data`].
    pub const DATA: usize = 32;
    /// Two slots of two packets.
    pub const PACKETS: usize = 48;
}

/// What a rank's memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// What [`place`] says.
    Channels,
    /// Messages of a collective.
    Messages {
        /// Who has them: the first ones.
        ranks: usize,
        /// Words of packets, behind which are [`maco_abi::MessageWord`]s.
        packets: usize,
        /// Words of all.
        words: usize,
        /// The last of these words are credits: slots are had in turn.
        credits: bool,
    },
    /// Messages of a collective that have signals, likewise: two for each rank and tile, in place of the first two words. Of each line of 16 bytes one word is used.
    Signalled {
        /// Who has them: the first ones.
        ranks: usize,
        /// Words of data, behind which are the signals.
        data: usize,
        /// Words of all.
        words: usize,
        /// Behind the two signals is a credit: slots are had in turn.
        credits: bool,
    },
    /// Slots of a channel between two tasks, likewise. Of each line of 16 bytes one word is used.
    Slots {
        /// Who has them: the first ones.
        ranks: usize,
        /// Words of slots, behind which are [`maco_abi::MessageWord`]s.
        data: usize,
        /// Words of all.
        words: usize,
    },
    /// Places of collectives outside of megakernels, of all ranks one after another.
    Lean {
        /// Words of a place.
        place: usize,
        /// Its first words: the greeting, and packets. Behind them is data.
        packets: usize,
        /// Words of all places. Behind them executors count their steps.
        words: usize,
    },
}

impl Layout {
    /// What a word is for.
    pub fn role(self, word: usize) -> Role {
        let at = word % RANK;
        match self {
            Layout::Messages { packets, .. } if at < packets => Role::Packet,
            Layout::Messages { packets, credits: true, .. } if (at - packets) % 3 == 2 => Role::Credit,
            Layout::Signalled { data, credits: true, .. } if at >= data && (at - data) % 3 == 2 => Role::Credit,
            Layout::Messages { packets, .. } => [Role::Credit, Role::Sent, Role::Received][(at - packets) % 3],
            Layout::Slots { data, .. } | Layout::Signalled { data, .. } if at < data => Role::Data,
            Layout::Signalled { data, .. } => [Role::Signal, Role::Signal, Role::Received][(at - data) % 3],
            Layout::Slots { data, .. } => [Role::Signal, Role::Sent, Role::Received][(at - data) % 3],
            Layout::Lean { words, .. } if word >= words => Role::Sent,
            Layout::Lean { place, packets, .. } if word % place < packets => Role::Packet,
            Layout::Lean { .. } => Role::Data,
            Layout::Channels => match at {
                place::SIGNAL => Role::Signal,
                place::CREDIT => Role::Credit,
                2 => Role::Taken,
                3 => Role::Completed,
                at if (place::CONTROL..place::CONTROL + 2).contains(&at) => Role::Complete,
                at if (place::CONTROL..place::PACKETS).contains(&at) => Role::Data,
                _ => Role::Packet,
            },
        }
    }

    /// Whether it is accessed by atomics. Packets are at even words.
    pub fn is_shared(self, word: usize) -> bool {
        if let Layout::Messages { ranks, words, .. } | Layout::Slots { ranks, words, .. } | Layout::Signalled { ranks, words, .. } = self
            && (word / RANK >= ranks || word % RANK >= words)
        {
            return false;
        }
        match self.role(word) {
            Role::Sent | Role::Received => false,
            Role::Data if matches!(self, Layout::Slots { .. } | Layout::Signalled { .. }) => word.is_multiple_of(4),
            Role::Packet => word.is_multiple_of(2),
            _ => true,
        }
    }

    /// Whether slots are had in turn.
    pub fn is_in_turn(self) -> bool {
        matches!(self, Layout::Messages { credits: true, .. } | Layout::Signalled { credits: true, .. })
    }

    /// Which of two signals that are used in turn a word is.
    pub fn parity(self, word: usize) -> Option<usize> {
        match self {
            Layout::Signalled { data, .. } if self.role(word) == Role::Signal => Some((word % RANK - data) % 3),
            _ => None,
        }
    }

    /// Whether a word is a packet or of a slot, and which of the two that are used in turn.
    pub fn slot(self, word: usize) -> Option<usize> {
        match self {
            Layout::Messages { packets, .. } if word % RANK < packets => Some(word % RANK * 2 / packets),
            Layout::Slots { data, .. } | Layout::Signalled { data, .. } if word % RANK < data => Some(word % RANK * 2 / data),
            _ => None,
        }
    }
}

/// How much of each thread is known.
#[derive(Clone, Copy, Default)]
pub struct Clock([u32; THREADS]);

impl Clock {
    fn join(&mut self, other: Clock) {
        for (mine, other) in self.0.iter_mut().zip(other.0) {
            *mine = other.max(*mine);
        }
    }

    fn contains(&self, other: Clock) -> bool {
        self.0.iter().zip(other.0).all(|(&mine, other)| mine >= other)
    }
}

#[derive(Clone, Copy, Default)]
struct Thread {
    /// What happens before, by releases and acquires.
    now: Clock,
    released: Clock,
    seen: Clock,
    /// What comes before because a load saw it, and what this thread did before, in program order: no fence is asked for.
    caused: Clock,
}

/// A store, by the number that is in the word.
#[derive(Clone, Copy, Default)]
struct Store {
    value: u64,
    /// When it was made.
    made: Clock,
    /// What a load that is acquired gets.
    released: Clock,
    /// What any load gets.
    caused: Clock,
}

/// Accesses to a word.
#[derive(Clone, Copy, Default)]
struct Accesses {
    written: Clock,
    read: Clock,
}

/// Clocks of all threads and words.
pub struct Order {
    layout: Layout,
    threads: [Thread; THREADS],
    stores: Vec<Store>,
    accesses: HashMap<usize, Accesses>,
    /// What a thread has read of a packet last.
    known: HashMap<(usize, usize), u64>,
    published: HashMap<usize, u32>,
    /// What those who meet know, by meeting.
    meetings: HashMap<u32, Thread>,
    /// How often somebody began to write a report.
    pub reports: u32,
    /// Slots of packets are read before they are stored anew because the store depends on it.
    pub dependent: bool,
}

impl Order {
    /// The first stores are those of `first`.
    pub fn new(layout: Layout, first: [u64; FIRST as usize]) -> Order {
        let mut threads = [Thread::default(); THREADS];
        for (number, thread) in threads.iter_mut().enumerate() {
            thread.now.0[number] = 1;
            thread.caused.0[number] = 1;
        }
        Order {
            layout,
            threads,
            stores: first.map(|value| Store { value, ..Store::default() }).into(),
            accesses: HashMap::new(),
            known: HashMap::new(),
            published: HashMap::new(),
            meetings: HashMap::new(),
            reports: 0,
            dependent: false,
        }
    }

    /// The value of a store.
    pub fn value(&self, number: u64) -> u64 {
        self.stores[number as usize].value
    }

    /// Whether store `number` happens before what `thread` does next, which then sees no older one.
    pub fn knows(&self, thread: usize, number: u64) -> bool {
        self.threads[thread].now.contains(self.stores[number as usize].made)
    }

    fn moment(&self, thread: usize) -> Clock {
        let mut clock = Clock::default();
        clock.0[thread] = self.threads[thread].now.0[thread];
        clock
    }

    fn tick(&mut self, thread: usize) {
        self.threads[thread].now.0[thread] += 1;
        self.threads[thread].caused.0[thread] += 1;
    }

    /// A load saw store `number`: its value.
    pub fn load(&mut self, thread: usize, word: usize, number: u64) -> u64 {
        let Store { value, released, caused, .. } = self.stores[number as usize];
        self.threads[thread].seen.join(released);
        self.threads[thread].caused.join(caused);
        if self.layout.role(word) == Role::Packet {
            // Polls of what is known already are in vain.
            if self.known.insert((thread, word), number) == Some(number) || number < FIRST {
                return value;
            }
        }
        self.read(thread, word);
        value
    }

    /// A word is read.
    pub fn read(&mut self, thread: usize, word: usize) {
        let (now, moment) = (self.threads[thread].now, self.moment(thread));
        let accesses = self.accesses.entry(word).or_default();
        if self.layout.role(word).is_plain() {
            assert!(now.contains(accesses.written), "word {word} is read in no order with its write");
        }
        accesses.read.join(moment);
    }

    /// A store that is about to be made: its number.
    pub fn store(&mut self, thread: usize, word: usize, value: u64, releases: bool) -> u64 {
        let (Thread { now, released, caused, .. }, made) = (self.threads[thread], self.moment(thread));
        self.write(thread, word);
        self.stores.push(Store { value, made, released: if releases { now } else { released }, caused });
        self.stores.len() as u64 - 1
    }

    /// A word is written.
    pub fn write(&mut self, thread: usize, word: usize) {
        let (Thread { now, caused, .. }, moment) = (self.threads[thread], self.moment(thread));
        let (role, known) = (self.layout.role(word), if self.dependent { caused } else { now });
        let accesses = self.accesses.entry(word).or_default();
        if role == Role::Packet {
            // A packet that was read is older than a store that the read comes before: coherence orders the two.
            assert!(known.contains(accesses.read), "word {word} is stored in no order with an earlier read");
        }
        if role.is_plain() {
            assert!(now.contains(accesses.read), "word {word} is stored in no order with an earlier read");
            assert!(now.contains(accesses.written), "word {word} is stored in no order with an earlier store");
        }
        *accesses = Accesses { written: moment, read: Clock::default() };
        self.tick(thread);
    }

    /// How often a word has been published, with this time.
    pub fn publish(&mut self, word: usize) -> u32 {
        let times = self.published.entry(word).or_default();
        *times += 1;
        *times
    }

    /// An acquire fence.
    pub fn acquire(&mut self, thread: usize) {
        let seen = self.threads[thread].seen;
        self.threads[thread].now.join(seen);
    }

    /// A release fence.
    pub fn release(&mut self, thread: usize) {
        self.threads[thread].released = self.threads[thread].now;
        self.tick(thread);
    }

    /// A thread comes to a meeting.
    pub fn come(&mut self, thread: usize, meeting: u32) {
        let Thread { now, caused, .. } = self.threads[thread];
        let all = self.meetings.entry(meeting).or_default();
        all.now.join(now);
        all.caused.join(caused);
        self.tick(thread);
    }

    /// A thread leaves a meeting, to which all have come.
    pub fn leave(&mut self, thread: usize, meeting: u32) {
        let Thread { now, caused, .. } = self.meetings[&meeting];
        self.threads[thread].now.join(now);
        self.threads[thread].caused.join(caused);
    }

    /// Thread `ended` was joined by `thread`.
    pub fn join(&mut self, thread: usize, ended: usize) {
        let Thread { now, caused, .. } = self.threads[ended];
        self.threads[thread].now.join(now);
        self.threads[thread].caused.join(caused);
    }
}
