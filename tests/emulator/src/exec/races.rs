//! Races: accesses of memory that nothing orders (PTX ISA §8, "Memory Consistency Model"), found by clocks as in FastTrack (Flanagan and Freund, 2009)
//! with fences as in C++: what a fence releases goes with the relaxed writes behind it, and what relaxed reads find is acquired by the fence behind them.
//! `EMU_RACES=1` reports, `EMU_RACES=2` ends the launch.
//!
//! Warps are ordered, not lanes: what the lanes of one warp do to each other is not looked at, and what one lane releases the whole warp does. Each word
//! has its last write and its last two reads. So too little is reported rather than too much. Relaxed accesses race with nothing, and scopes count for
//! nothing: `.cta` and `.gpu` are the lint's (`maco-build/src/ptx/protocol`).
//!
//! A copy is its warp's access at the instruction that begins it; those who wait for its mbarrier have what that warp had then.

use std::collections::{HashMap, HashSet};

use super::registers::each_lane;
use super::{Fault, Launch, Of, SHARED_WINDOW, Warp};
use crate::ptx::inst::{F_ACQUIRES, F_RELAXED, F_RELEASES, Inst, Space};

/// What has happened before, by warp.
#[derive(Clone, Default)]
pub(super) struct Clock(Vec<u32>);

impl Clock {
    fn of(&self, warp: usize) -> u32 {
        self.0.get(warp).copied().unwrap_or(0)
    }

    fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, &theirs) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(theirs);
        }
    }
}

/// Of a warp: what happened before now, before its last releasing fence, and before the relaxed writes that it has read.
#[derive(Default)]
struct Agent {
    now: Clock,
    released: Clock,
    read: Clock,
}

/// The bytes of a word, by whom, when by the warp's own clock, and where in the program. Clock 0: none.
#[derive(Clone, Copy, Default)]
struct Access {
    warp: u32,
    bytes: u8,
    clock: u32,
    line: u32,
}

impl Access {
    /// With the bytes of `before`, if the same warp had them at the same time. Others, which an order since may have come behind, are left out.
    fn with(self, before: Access) -> Access {
        let is_same = before.warp == self.warp && before.clock == self.clock;
        Access { bytes: self.bytes | if is_same { before.bytes } else { 0 }, ..self }
    }
}

#[derive(Clone, Copy, Default)]
struct Cell {
    written: Access,
    read: [Access; 2],
}

/// Words of a page.
const PAGE: usize = 256;

/// A word that two warps use and nothing orders.
struct Race {
    place: u64,
    before: Access,
    wrote: bool,
}

/// A barrier of a CTA or cluster: of those that have come, and of the generation before.
#[derive(Default)]
struct Meeting {
    coming: Clock,
    met: Clock,
}

pub(super) struct Races {
    pub on: bool,
    fatal: bool,
    agents: Vec<Agent>,
    /// By number of the page: index into `pages`. Shared memory is in the pages behind [`shared`].
    numbers: HashMap<u64, usize>,
    pages: Vec<Box<[Cell; PAGE]>>,
    /// The page that was used last.
    last: (u64, usize),
    /// What relaxed writes, and arrivals at mbarriers, have left at words.
    words: HashMap<u64, Clock>,
    meetings: HashMap<(usize, usize), Meeting>,
    /// Lines of the program that were reported.
    reported: HashSet<(u32, u32)>,
}

/// An address of shared memory of any CTA of the launch.
fn shared(cta: usize, at: u32) -> u64 {
    1 << 63 | (cta as u64) << 32 | u64::from(at)
}

impl Races {
    pub fn new() -> Races {
        let level = crate::settings::number("EMU_RACES", 0);
        Races {
            on: level > 0,
            fatal: level > 1,
            agents: Vec::new(),
            numbers: HashMap::new(),
            pages: Vec::new(),
            last: (u64::MAX, 0),
            words: HashMap::new(),
            meetings: HashMap::new(),
            reported: HashSet::new(),
        }
    }

    fn agent(&mut self, warp: usize) -> &mut Agent {
        while self.agents.len() <= warp {
            let mut agent = Agent::default();
            agent.now.0.resize(self.agents.len() + 1, 0);
            agent.now.0[self.agents.len()] = 1;
            self.agents.push(agent);
        }
        &mut self.agents[warp]
    }

    /// What a warp has now. What it does next is later than this.
    fn leave(&mut self, warp: usize) -> Clock {
        let agent = self.agent(warp);
        let clock = agent.now.clone();
        agent.now.0[warp] += 1;
        clock
    }

    fn cell(&mut self, word: u64) -> &mut Cell {
        let (page, place) = (word / PAGE as u64, (word % PAGE as u64) as usize);
        if self.last.0 != page {
            let index = *self.numbers.entry(page).or_insert_with(|| {
                self.pages.push(Box::new([Cell::default(); PAGE]));
                self.pages.len() - 1
            });
            self.last = (page, index);
        }
        &mut self.pages[self.last.1][place]
    }

    /// An access of bytes that are nobody else's at the same time; with whom it is.
    fn access(&mut self, warp: usize, at: u64, bytes: u32, writes: bool, line: u32) -> Option<Race> {
        self.agent(warp);
        let mut race = None;
        for word in at / 4..=(at + u64::from(bytes) - 1) / 4 {
            let from = at.max(word * 4) - word * 4;
            let to = (at + u64::from(bytes)).min(word * 4 + 4) - word * 4;
            let own =
                Access { warp: warp as u32, bytes: (0xF << from & ((1 << to) - 1)) as u8, clock: self.agents[warp].now.of(warp), line };
            let cell = *self.cell(word);
            let now = &self.agents[warp].now;
            let apart = |other: Access| {
                other.clock > 0 && other.warp != own.warp && other.bytes & own.bytes != 0 && now.of(other.warp as usize) < other.clock
            };
            if apart(cell.written) {
                race.get_or_insert(Race { place: word * 4, before: cell.written, wrote: true });
            }
            let mut next = cell;
            if writes {
                for read in &mut next.read {
                    if apart(*read) {
                        race.get_or_insert(Race { place: word * 4, before: *read, wrote: false });
                    }
                    if read.bytes & !own.bytes == 0 {
                        *read = Access::default();
                    }
                }
                next.written = own.with(cell.written);
            } else {
                // Its own before, or one that is none or came before this, or the older one.
                let same = next.read.iter().position(|read| read.clock > 0 && read.warp == own.warp);
                let free = || next.read.iter().position(|read| read.clock <= now.of(read.warp as usize));
                let place = same.or_else(free).unwrap_or(0);
                next.read[place] = own.with(next.read[place]);
                if place == 0 {
                    next.read.swap(0, 1);
                }
            }
            *self.cell(word) = next;
        }
        race
    }
}

/// Another CTA's shared memory of the cluster has its own place; generic addresses are those of their space.
fn place(launch: &Launch, warp: &Warp, space: Space, address: u64) -> Option<u64> {
    if space == Space::Shared || space == Space::Generic && address >> 32 == SHARED_WINDOW >> 32 {
        let (cta, at) = launch.shared_place(address as u32, warp.cta);
        return Some(shared(cta, at));
    }
    matches!(space, Space::Global | Space::Generic).then_some(address)
}

impl Launch {
    fn agent_of(&self, warp: &Warp) -> usize {
        warp.cta * self.config.block.iter().product::<u32>().div_ceil(32) as usize + warp.index as usize
    }

    /// A load or a store of the lanes of a warp.
    pub(super) fn note_access(&mut self, warp: &Warp, i: &Inst, address: u64, bytes: u32, writes: bool) -> Result<(), Fault> {
        let Some(at) = place(self, warp, i.space, address) else { return Ok(()) };
        let agent = self.agent_of(warp);
        if i.flag & F_RELAXED == 0 {
            let race = self.races.access(agent, at, bytes, writes, i.line);
            return self.tell(agent, i.line, writes, race);
        }
        for word in at / 4..(at + u64::from(bytes)).div_ceil(4) {
            if writes {
                self.note_relaxed_write(agent, word, i.flag, false);
            } else {
                self.note_relaxed_read(agent, word, i.flag);
            }
        }
        Ok(())
    }

    /// An atomic: it reads, writes, and goes on what those before it released.
    pub(super) fn note_atomic(&mut self, warp: &Warp, i: &Inst, address: u64) {
        if let Some(at) = place(self, warp, i.space, address) {
            let agent = self.agent_of(warp);
            self.note_relaxed_read(agent, at / 4, i.flag);
            self.note_relaxed_write(agent, at / 4, i.flag, true);
        }
    }

    fn note_relaxed_read(&mut self, warp: usize, word: u64, flag: u8) {
        self.races.agent(warp);
        if let Some(left) = self.races.words.get(&word) {
            let agent = &mut self.races.agents[warp];
            agent.read.join(left);
            if flag & F_ACQUIRES != 0 {
                agent.now.join(left);
            }
        }
    }

    fn note_relaxed_write(&mut self, warp: usize, word: u64, flag: u8, goes_on: bool) {
        let left = if flag & F_RELEASES != 0 { self.races.leave(warp) } else { self.races.agent(warp).released.clone() };
        let before = self.races.words.entry(word).or_default();
        if goes_on {
            before.join(&left);
        } else {
            *before = left;
        }
    }

    /// A fence.
    pub(super) fn note_fence(&mut self, warp: &Warp, flag: u8) {
        if self.races.on {
            let warp = self.agent_of(warp);
            let agent = self.races.agent(warp);
            if flag & F_ACQUIRES != 0 {
                let read = std::mem::take(&mut agent.read);
                agent.now.join(&read);
            }
            if flag & F_RELEASES != 0 {
                let left = self.races.leave(warp);
                self.races.agents[warp].released = left;
            }
        }
    }

    /// An arrival at an mbarrier.
    pub(super) fn note_arrival(&mut self, warp: &Warp, cta: usize, at: u32) {
        if self.races.on {
            let left = self.races.leave(self.agent_of(warp));
            self.note_completion(cta, at, &left);
        }
    }

    /// Something of before `clock` has come to an mbarrier.
    pub(super) fn note_completion(&mut self, cta: usize, at: u32, clock: &Clock) {
        if self.races.on {
            self.races.words.entry(shared(cta, at) / 4).or_default().join(clock);
        }
    }

    /// A wait at an mbarrier is over.
    pub(super) fn note_waited(&mut self, warp: &Warp, cta: usize, at: u32) {
        if self.races.on {
            let warp = self.agent_of(warp);
            self.note_relaxed_read(warp, shared(cta, at) / 4, F_ACQUIRES);
        }
    }

    /// A warp comes to barrier `id` of a CTA; `last`: the others are there.
    pub(super) fn note_coming(&mut self, warp: &Warp, id: usize, last: bool) {
        if self.races.on {
            let left = self.races.leave(self.agent_of(warp));
            let meeting = self.races.meetings.entry((warp.cta, id)).or_default();
            meeting.coming.join(&left);
            if last {
                meeting.met = std::mem::take(&mut meeting.coming);
            }
        }
    }

    /// A warp goes on behind barrier `id` of a CTA.
    pub(super) fn note_met(&mut self, warp: &Warp, id: usize) {
        if self.races.on {
            let agent = self.agent_of(warp);
            self.races.agent(agent);
            if let Some(meeting) = self.races.meetings.get(&(warp.cta, id)) {
                self.races.agents[agent].now.join(&meeting.met);
            }
        }
    }

    /// The barrier of a cluster is a word that all release and acquire.
    pub(super) fn note_cluster(&mut self, warp: &Warp, arrives: bool) {
        let first = self.ctas[warp.cta].first;
        if arrives {
            self.note_arrival(warp, first, 0);
        } else {
            self.note_waited(warp, first, 0);
        }
    }

    /// A copy reads or writes shared memory.
    pub(super) fn note_copy_shared(&mut self, of: Of, cta: usize, at: u32, bytes: u32, writes: bool) -> Result<(), Fault> {
        self.note_copy(of, shared(cta, at), bytes, writes)
    }

    /// A copy reads or writes global memory.
    pub(super) fn note_copy(&mut self, of: Of, at: u64, bytes: u32, writes: bool) -> Result<(), Fault> {
        if !self.races.on || bytes == 0 {
            return Ok(());
        }
        let line = self.program.code[of.1 as usize].line;
        let race = self.races.access(of.0, at, bytes, writes, line);
        self.tell(of.0, line, writes, race)
    }

    /// A copy begins: what those have who wait for its end.
    pub(super) fn note_begin(&mut self, of: Of) -> Clock {
        if self.races.on { self.races.leave(of.0) } else { Clock::default() }
    }

    fn tell(&mut self, warp: usize, line: u32, writes: bool, race: Option<Race>) -> Result<(), Fault> {
        let Some(Race { place, before, wrote }) = race else { return Ok(()) };
        if !self.races.reported.insert((before.line, line)) && !self.races.fatal {
            return Ok(());
        }
        let warps = self.config.block.iter().product::<u32>().div_ceil(32) as usize;
        let who = |warp: usize| format!("CTA {}, warp {}", warp / warps, warp % warps);
        let what = |writes: bool| if writes { "write" } else { "read" };
        let memory =
            if place >> 63 == 1 { format!("shared memory at {:#x}", place as u32) } else { format!("global memory at {place:#x}") };
        let text = format!(
            "a race: nothing orders the {} of {memory} by {} at PTX line {} and the {} by {} at PTX line {line}\n  kernel {}",
            what(wrote),
            who(before.warp as usize),
            before.line,
            what(writes),
            who(warp),
            self.program.name,
        );
        if self.races.fatal {
            return Err(text.into());
        }
        if self.races.reported.len() <= 20 {
            eprintln!("[emu] {text}");
        }
        Ok(())
    }

    /// Accesses of the lanes of a warp, `bytes` each.
    pub(super) fn note_lanes(
        &mut self,
        warp: &Warp,
        i: &Inst,
        mask: u32,
        bytes: u32,
        writes: bool,
        address: impl Fn(usize) -> u64,
    ) -> Result<(), Fault> {
        if self.races.on {
            each_lane!(mask, lane, { self.note_access(warp, i, address(lane), bytes, writes)? });
        }
        Ok(())
    }
}
