//! Races: accesses of memory that nothing orders (PTX ISA §8, "Memory Consistency Model"), found by clocks as in FastTrack (Flanagan and Freund, 2009)
//! with fences as in C++: what a fence releases goes with the relaxed writes behind it, and what relaxed reads find is acquired by the fence behind them.
//! `EMU_RACES=1` reports, `EMU_RACES=2` ends the launch.
//!
//! Warps are ordered, not lanes: what the lanes of one warp do to each other is not looked at, and what one lane releases the whole warp does. Each word
//! has its last write and its last two reads. So too little is reported rather than too much.
//!
//! On one device relaxed accesses race with nothing, and scopes count for nothing: `.cta` and `.gpu` are the lint's (`maco-build/src/ptx/protocol`).
//! Between devices they race with weak accesses, and with each other unless both have the scope `.sys`; other scopes order nothing there, and are not
//! for memory of peers at all.
//!
//! A copy is its warp's access at the instruction that begins it; those who wait for its mbarrier have what that warp had then.

pub mod domain;
mod notes;
pub mod order;
mod shadow;
pub mod streams;

use std::collections::HashMap;

use super::Config;
use crate::ptx::inst::{F_ACQUIRES, F_RELEASES, F_SYSTEM};
use domain::{Domain, Named};
pub(super) use shadow::Clock;
use shadow::{Access, Left, Shadow, Strong};

/// Words that two agents use and nothing orders.
enum Race {
    Apart {
        place: u64,
        before: Access,
        wrote: bool,
    },
    /// Both are no weak accesses, but one is not for all devices.
    Scope {
        place: u64,
        before: Access,
    },
    /// A scope that does not reach the device whose memory it is.
    Foreign {
        place: u64,
        owner: usize,
    },
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
    several: bool,
    device: usize,
    /// Its number in the domain, and the clock that its warps begin with.
    launch: usize,
    start: Clock,
    /// By warp, those that have done something.
    agents: Vec<Option<usize>>,
    /// Of shared memory of all CTAs: see [`shared`].
    shared: Shadow,
    meetings: HashMap<(usize, usize), Meeting>,
    /// Where there are several devices, the one of all launches while the launch has its turn.
    domain: Box<Domain>,
    held: bool,
}

/// The bit of addresses of shared memory.
const SHARED: u64 = 1 << 63;

/// The same bit of their words.
const SHARED_WORD: u64 = SHARED / 4;

/// An address of shared memory of any CTA of the launch.
fn shared(cta: usize, at: u32) -> u64 {
    SHARED | (cta as u64) << 32 | u64::from(at)
}

/// What is asked for: 1 to report, 2 to end the launch.
fn level() -> u64 {
    crate::settings::number("EMU_RACES", 0)
}

impl Races {
    pub fn new(config: &Config) -> Races {
        Races::of(Named { device: config.device, kernel: Some(config.program.name.clone()), warps: config.warps() })
    }

    /// Of a launch, or of what a stream does by itself.
    fn of(named: Named) -> Races {
        let level = level();
        let mut races = Races {
            on: level > 0,
            fatal: level > 1,
            several: level > 0 && order::tracked(),
            device: named.device,
            launch: 0,
            start: Clock::default(),
            agents: Vec::new(),
            shared: Shadow::default(),
            meetings: HashMap::new(),
            domain: Box::default(),
            held: false,
        };
        if races.on {
            races.enter();
            (races.launch, races.start) = races.domain.begin(named, order::of_stream());
            races.leave_domain();
        }
        races
    }

    /// Waits for the turn.
    pub fn enter(&mut self) {
        if self.several {
            self.domain = domain::take();
            self.held = true;
        }
    }

    /// Lets others have theirs.
    pub fn leave_domain(&mut self) {
        if self.held {
            self.held = false;
            domain::give_back(std::mem::take(&mut self.domain));
        }
    }

    /// The agent of a warp.
    fn agent(&mut self, warp: usize) -> usize {
        if self.agents.len() <= warp {
            self.agents.resize(warp + 1, None);
        }
        *self.agents[warp].get_or_insert_with(|| self.domain.enter(self.device, self.launch, warp, &self.start))
    }

    /// What a warp has now. What it does next is later than this.
    fn leave(&mut self, warp: usize) -> Clock {
        let agent = self.agent(warp);
        self.domain.leave(agent)
    }

    fn shadow(&mut self, word: u64) -> &mut Shadow {
        if word & SHARED_WORD != 0 { &mut self.shared } else { &mut self.domain.global }
    }

    /// Whether nothing orders an access of somebody else before what `agent` does now.
    fn apart(&self, agent: usize, own: Access, other: Access) -> bool {
        other.clock > 0
            && other.agent != own.agent
            && other.bytes & own.bytes != 0
            && self.domain.agents[agent].now.of(other.agent as usize) < other.clock
            && (!self.several || self.domain.concerns(other, self.device, self.launch))
    }

    /// The first access of another device's that is not weak and that nothing orders before this one.
    fn apart_from_strong(&self, agent: usize, own: Access, word: u64, of: impl Fn(&Strong) -> bool) -> Option<Strong> {
        let others = self.domain.global.strong(word).iter().filter(|other| other.device != self.device && of(other));
        others.copied().find(|other| self.apart(agent, own, other.access))
    }

    /// The bytes of a word, by an agent, now.
    fn access_of(&self, agent: usize, word: u64, at: u64, bytes: u32, line: u32) -> Access {
        let from = at.max(word * 4) - word * 4;
        let to = (at + u64::from(bytes)).min(word * 4 + 4) - word * 4;
        let clock = self.domain.agents[agent].now.of(agent);
        Access { agent: agent as u32, bytes: (0xF << from & ((1 << to) - 1)) as u8, clock, line }
    }

    /// An access of bytes that are nobody else's at the same time; with whom it is.
    fn access(&mut self, warp: usize, at: u64, bytes: u32, writes: bool, line: u32) -> Option<Race> {
        let agent = self.agent(warp);
        let mut race = None;
        for word in words(at, bytes) {
            let own = self.access_of(agent, word, at, bytes, line);
            let mut next = *self.shadow(word).cell(word);
            let mut report = |before, wrote| race = race.take().or(Some(Race::Apart { place: word * 4, before, wrote }));
            if self.apart(agent, own, next.written) {
                report(next.written, true);
            }
            if self.several
                && let Some(other) = self.apart_from_strong(agent, own, word, |other| writes || other.writes)
            {
                report(other.access, other.writes);
            }
            if writes {
                for read in &mut next.read {
                    if self.apart(agent, own, *read) {
                        report(*read, false);
                    }
                    if read.bytes & !own.bytes == 0 {
                        *read = Access::default();
                    }
                }
                next.written = own.with(next.written);
            } else {
                // Its own before, or one that is none or came before this, or the older one.
                let now = &self.domain.agents[agent].now;
                let same = next.read.iter().position(|read| read.clock > 0 && read.agent == own.agent);
                let free = || next.read.iter().position(|read| read.clock <= now.of(read.agent as usize));
                let place = same.or_else(free).unwrap_or(0);
                next.read[place] = own.with(next.read[place]);
                if place == 0 {
                    next.read.swap(0, 1);
                }
            }
            *self.shadow(word).cell(word) = next;
        }
        race
    }

    /// An access that is no weak one, where there are several devices; with whom it is a race.
    fn strong(&mut self, warp: usize, Location { at, owner }: Location, bytes: u32, writes: bool, flag: u8, line: u32) -> Option<Race> {
        if !self.several || at & SHARED != 0 {
            return None;
        }
        let agent = self.agent(warp);
        let (narrow, device) = (flag & F_SYSTEM == 0, self.device);
        let foreign = owner.filter(|&owner| narrow && owner != device);
        let mut race = foreign.map(|owner| Race::Foreign { place: at, owner });
        for word in words(at, bytes) {
            let own = self.access_of(agent, word, at, bytes, line);
            let cell = *self.domain.global.cell(word);
            let weak = [(cell.written, true), (cell.read[0], false), (cell.read[1], false)];
            // Of this device's own weak accesses nothing is said.
            let elsewhere = |other: Access| other.clock > 0 && self.domain.user(other).1.device != device;
            let apart = weak.into_iter().find(|&(other, wrote)| (wrote || writes) && elsewhere(other) && self.apart(agent, own, other));
            if let Some((before, wrote)) = apart {
                race.get_or_insert(Race::Apart { place: word * 4, before, wrote });
            }
            let conflicts = |other: &Strong| (writes || other.writes) && (narrow || other.narrow);
            if let Some(other) = self.apart_from_strong(agent, own, word, conflicts) {
                race.get_or_insert(Race::Scope { place: word * 4, before: other.access });
            }
            self.domain.global.note_strong(word, Strong { access: own, device, writes, narrow });
        }
        race
    }

    fn relaxed_read(&mut self, warp: usize, word: u64, flag: u8) {
        let agent = self.agent(warp);
        let Races { shared, domain, device, .. } = self;
        let Domain { agents, global, .. } = &mut **domain;
        let agent = &mut agents[agent];
        let shadow = if word & SHARED_WORD != 0 { &*shared } else { &*global };
        for left in shadow.left(word) {
            let (clock, read) = if left.device == *device {
                (&left.own, &mut agent.read)
            } else if flag & F_SYSTEM != 0 {
                (&left.wide, &mut agent.read_far)
            } else {
                continue;
            };
            read.join(clock);
            if flag & F_ACQUIRES != 0 {
                agent.now.join(clock);
            }
        }
    }

    fn relaxed_write(&mut self, warp: usize, word: u64, flag: u8, goes_on: bool) {
        let agent = self.agent(warp);
        let (releases, wide) = (flag & F_RELEASES != 0, self.several && flag & F_SYSTEM != 0);
        let own = if releases { self.domain.leave(agent) } else { self.domain.agents[agent].released.clone() };
        let wide = match (wide, releases) {
            (false, _) => Clock::default(),
            (true, true) => own.clone(),
            (true, false) => self.domain.agents[agent].released_wide.clone(),
        };
        let device = self.device;
        self.shadow(word).leave(word, Left { device, own, wide }, goes_on);
    }

    fn fence(&mut self, warp: usize, flag: u8) {
        let number = self.agent(warp);
        let wide = flag & F_SYSTEM != 0;
        let agent = &mut self.domain.agents[number];
        if flag & F_ACQUIRES != 0 {
            agent.now.join(&std::mem::take(&mut agent.read));
            if wide {
                agent.now.join(&std::mem::take(&mut agent.read_far));
            }
        }
        if flag & F_RELEASES != 0 {
            let left = self.domain.leave(number);
            let agent = &mut self.domain.agents[number];
            if wide && self.several {
                agent.released_wide = left.clone();
            }
            agent.released = left;
        }
    }
}

impl Drop for Races {
    /// The launch has ended, well or not: what is behind it in its stream comes behind all that its warps did.
    fn drop(&mut self) {
        if self.several {
            if !self.held {
                self.enter();
            }
            let agents = std::mem::take(&mut self.agents).into_iter().flatten();
            let known = self.domain.end(self.device, self.launch, std::mem::take(&mut self.start), agents);
            self.leave_domain();
            order::stream_behind(&known);
        }
    }
}

/// Where something is, by whatever address it was named, and the device whose memory that is.
#[derive(Clone, Copy)]
struct Location {
    at: u64,
    owner: Option<usize>,
}

fn words(at: u64, bytes: u32) -> impl Iterator<Item = u64> {
    at / 4..=(at + u64::from(bytes) - 1) / 4
}
