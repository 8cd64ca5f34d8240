//! The shared words of a plan: where they lie, and what an address means.

use std::sync::atomic::AtomicU32;

use maco_abi::{INBOX, INBOX_WORDS, Launch, MAILBOX, SchedulerPartition, State};

use crate::plan::Tables;

/// What a shared word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// [`State::abort`]
    Abort,
    /// [`State::left`]
    Left,
    /// [`State::ticket`] of a bank.
    Ticket(u32),
    /// The ticket of a drain in a bank.
    Drain(u32, u32),
    /// [`State::begun`]
    Begun,
    /// A counter of a bank.
    Counter(u32, u32),
    /// Tasks that a worker has ended, in a bank.
    Ended(u32, u32),
    /// A place of a worker's inbox.
    Inbox(u32, u32),
    /// A word beside the places of a worker's inbox: of what a task pushed ahead waits for.
    Until(u32, u32),
    /// A place of the mailbox from a worker to a scheduler.
    Mailbox(u32, u32, u32),
    /// What a task writes and a wait reads.
    Data,
}

/// State, two banks, rings and one word of data, and the own memory of schedulers.
pub struct Memory {
    /// Lines as [`State`], whose alignment they have.
    words: Vec<Line>,
    own: Vec<Vec<AtomicU32>>,
    partitions: Vec<SchedulerPartition>,
    counters: u32,
    tickets: u32,
    /// Words of a bank.
    bank: u32,
    workers: u32,
    rings: u32,
}

#[repr(C, align(128))]
struct Line([AtomicU32; 32]);

/// Words of [`State`].
const STATE: u32 = size_of::<State>() as u32 / 4;
const _: () = assert!(STATE == 32);

impl Memory {
    /// All 0.
    pub fn new(tables: &Tables) -> Memory {
        let bank = tables.bank();
        let total = STATE + 2 * bank + tables.ring_words() + 1;
        let own: Vec<Vec<AtomicU32>> = tables.images.iter().map(|image| image.words.iter().map(|_| AtomicU32::new(0)).collect()).collect();
        let partition = |(image, own): (&crate::plan::Image, &Vec<AtomicU32>)| SchedulerPartition {
            image: image.words.as_ptr() as u64,
            memory: own.as_ptr() as u64,
            names: image.names.as_ptr() as u64,
            ..image.partition
        };
        let partitions = tables.images.iter().zip(&own).map(partition).collect();
        Memory {
            words: (0..total.div_ceil(32)).map(|_| Line([const { AtomicU32::new(0) }; 32])).collect(),
            own,
            partitions,
            counters: tables.counters,
            tickets: tables.tickets,
            bank,
            workers: tables.workers,
            rings: tables.ring_words(),
        }
    }

    /// Writes the schedulers' images. No launch may run.
    pub fn load(&self, tables: &Tables) {
        for (own, image) in self.own.iter().zip(&tables.images) {
            for (word, &value) in own.iter().zip(&image.words) {
                word.store(value, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }

    /// Address of word `index`.
    pub fn address(&self, index: u32) -> *mut u32 {
        self.words.as_ptr().cast::<u32>().cast_mut().wrapping_add(index as usize)
    }

    /// Index of the word at an address.
    pub fn index(&self, at: *const u32) -> u32 {
        ((at as usize - self.words.as_ptr() as usize) / 4) as u32
    }

    /// All words there are, by index.
    pub fn all(&self) -> impl Iterator<Item = (u32, Word)> + '_ {
        (0..5).chain(STATE..=self.data()).map(|index| (index, self.word(index)))
    }

    /// The word that data is written to.
    pub fn data(&self) -> u32 {
        STATE + 2 * self.bank + self.rings
    }

    /// Index of the two words beside a place of a worker's inbox.
    pub fn until(&self, worker: u32, place: u32) -> u32 {
        STATE + 2 * self.bank + worker * INBOX_WORDS + INBOX + 2 * place
    }

    /// What word `index` is.
    pub fn word(&self, index: u32) -> Word {
        let inboxes = STATE + 2 * self.bank;
        let mailboxes = inboxes + self.workers * INBOX_WORDS;
        match index {
            0 => Word::Left,
            1 => Word::Abort,
            2 => Word::Begun,
            3 | 4 => Word::Ticket(index - 3),
            _ if index < inboxes => {
                let (bank, at) = ((index - STATE) / self.bank, (index - STATE) % self.bank);
                match at {
                    _ if at < self.counters => Word::Counter(bank, at),
                    _ if at < self.counters + self.tickets => Word::Drain(bank, at - self.counters),
                    _ => Word::Ended(bank, at),
                }
            }
            _ if index < mailboxes => {
                let (worker, at) = ((index - inboxes) / INBOX_WORDS, (index - inboxes) % INBOX_WORDS);
                if at < INBOX { Word::Inbox(worker, at) } else { Word::Until(worker, at) }
            }
            _ if index < self.data() => {
                let ring = (index - mailboxes) / MAILBOX;
                Word::Mailbox(ring % self.workers, ring / self.workers, (index - mailboxes) % MAILBOX)
            }
            _ if index == self.data() => Word::Data,
            _ => panic!("an access outside the plan's memory: word {index}"),
        }
    }

    /// Fills in the addresses of a launch.
    pub fn bind(&self, launch: &mut Launch) {
        launch.state = self.address(0) as u64;
        launch.rings = self.address(STATE + 2 * self.bank) as u64;
        launch.partitions = self.partitions.as_ptr() as u64;
    }
}
