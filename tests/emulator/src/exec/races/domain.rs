//! The agents of all devices, and whose turn it is.
//!
//! With one device, each launch has a domain of its own. With several, all launches share one, so that what one device's warp does to another's is seen.
//! A launch holds it for the turn of a warp: the access and what is noted of it are one step for all others. Turns are given in the order in which they
//! were asked for, since a launch that gives it back asks for it again at once.
//!
//! A warp is an agent while it lives, and its number then goes to a later warp of the same device, with a clock that goes on. What a launch comes behind
//! is in [`super::order`]. Where it comes behind all that was, and nothing else runs, everything is forgotten.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex};

use super::order::Known;
use super::shadow::{Access, Clock, Shadow};
use crate::memory::DEVICES;

/// Of a warp: what happened before now, before its last releasing fence, and before the relaxed writes that it has read: by scope, as far as there are
/// several devices.
#[derive(Default)]
pub(super) struct Agent {
    pub now: Clock,
    pub released: Clock,
    /// By its last fence for all devices.
    pub released_wide: Clock,
    pub read: Clock,
    /// From other devices: a fence of its own device does not acquire it.
    pub read_far: Clock,
    /// Whose it was: its clock at the beginning, the launch, and the warp of the launch.
    users: Vec<(u32, usize, usize)>,
    /// Its clock when it was free last.
    clock: u32,
}

/// A launch as reports name it, or a copy of a stream beside one.
pub(super) struct Named {
    pub device: usize,
    /// None of a copy.
    pub kernel: Option<String>,
    /// Warps of a CTA.
    pub warps: usize,
}

#[derive(Default)]
pub(super) struct Domain {
    pub epoch: u64,
    running: usize,
    pub agents: Vec<Agent>,
    /// Of launches, then of copies, which are looked at against each other.
    free: [Vec<usize>; 2 * DEVICES],
    pub global: Shadow,
    launches: Vec<Named>,
    /// Kinds and lines of programs that were reported.
    pub reported: HashSet<(u8, u32, u32)>,
}

/// Memory that was freed since a launch began last.
static FREED: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// Memory was freed.
pub fn forget(start: u64, end: u64) {
    if super::order::tracked() {
        FREED.lock().unwrap().push((start, end));
    }
}

impl Domain {
    /// A launch begins behind what is `known`: its number, and the clock that its warps begin with.
    pub fn begin(&mut self, new: Named, known: Known) -> (usize, Clock) {
        let freed = std::mem::take(&mut *FREED.lock().unwrap());
        if !freed.is_empty() {
            self.global.forget(&freed);
        }
        let mut start = if known.epoch == self.epoch { known.clock } else { Clock::default() };
        if self.running == 0 && (0..self.agents.len()).all(|agent| start.of(agent) + 1 >= self.agents[agent].clock) {
            *self = Domain { epoch: self.epoch + 1, ..Domain::default() };
            start = Clock::default();
        }
        self.running += 1;
        self.launches.push(new);
        (self.launches.len() - 1, start)
    }

    /// A warp of a launch becomes an agent: its number.
    pub fn enter(&mut self, device: usize, launch: usize, warp: usize, start: &Clock) -> usize {
        let number = self.free[self.free_of(device, launch)].pop().unwrap_or_else(|| {
            self.agents.push(Agent { clock: 1, ..Agent::default() });
            self.agents.len() - 1
        });
        let agent = &mut self.agents[number];
        agent.now = start.clone();
        agent.now.set(number, agent.clock);
        agent.users.push((agent.clock, launch, warp));
        number
    }

    /// Which numbers are free for it.
    fn free_of(&self, device: usize, launch: usize) -> usize {
        device + if self.launches[launch].kernel.is_none() { DEVICES } else { 0 }
    }

    /// A launch has ended, with these agents: what is known behind it.
    pub fn end(&mut self, device: usize, launch: usize, start: Clock, agents: impl Iterator<Item = usize>) -> Known {
        let free = self.free_of(device, launch);
        let mut clock = start;
        for number in agents {
            let users = std::mem::take(&mut self.agents[number].users);
            let Agent { now, .. } = std::mem::take(&mut self.agents[number]);
            clock.join(&now);
            self.agents[number] = Agent { users, clock: now.of(number) + 1, ..Agent::default() };
            self.free[free].push(number);
        }
        self.running -= 1;
        Known { epoch: self.epoch, clock }
    }

    /// What an agent has now. What it does next is later than this.
    pub fn leave(&mut self, agent: usize) -> Clock {
        let now = &mut self.agents[agent].now;
        let clock = now.clone();
        now.0[agent] += 1;
        clock
    }

    /// The launch and the warp of an access.
    pub fn user(&self, access: Access) -> (usize, &Named, usize) {
        let users = &self.agents[access.agent as usize].users;
        let &(_, launch, warp) = users.iter().rfind(|user| user.0 <= access.clock).unwrap_or(&users[0]);
        (launch, &self.launches[launch], warp)
    }

    /// Whether an access of another agent is looked at: one of the same launch, or of another device, or of which one is a copy.
    pub fn concerns(&self, access: Access, device: usize, launch: usize) -> bool {
        let (other, named, _) = self.user(access);
        other == launch || named.device != device || named.kernel.is_none() || self.launches[launch].kernel.is_none()
    }
}

/// The domain that launches of several devices share, and tickets for it.
#[derive(Default)]
struct Turns {
    next: u64,
    serving: u64,
    /// None while somebody has it.
    domain: Option<Box<Domain>>,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns { next: 0, serving: 0, domain: None });
/// Who waits is mostly alone at one of these.
static SERVED: [Condvar; 2 * DEVICES] = [const { Condvar::new() }; 2 * DEVICES];

fn place(ticket: u64) -> &'static Condvar {
    &SERVED[ticket as usize % SERVED.len()]
}

/// Waits for the domain.
pub(super) fn take() -> Box<Domain> {
    let mut turns = TURNS.lock().unwrap();
    let ticket = turns.next;
    turns.next += 1;
    while turns.serving != ticket {
        turns = place(ticket).wait(turns).unwrap();
    }
    turns.domain.take().unwrap_or_default()
}

pub(super) fn give_back(domain: Box<Domain>) {
    let mut turns = TURNS.lock().unwrap();
    turns.domain = Some(domain);
    turns.serving += 1;
    let next = place(turns.serving);
    drop(turns);
    next.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(domain: &mut Domain, device: usize, known: Known) -> (usize, Clock) {
        domain.begin(Named { device, kernel: Some(String::new()), warps: 1 }, known)
    }

    #[test]
    fn agents_and_shadows_do_not_grow_for_ever() {
        let mut domain = Domain::default();
        let mut known = [Known::default(), Known::default()];
        // Launches of two streams that never wait for each other.
        for round in 0..100 {
            for (device, known) in known.iter_mut().enumerate() {
                let (launch, start) = begin(&mut domain, device, known.clone());
                let agents = [0, 1].map(|warp| domain.enter(device, launch, warp, &start));
                domain.global.cell(round).written.clock = 1;
                *known = domain.end(device, launch, start, agents.into_iter());
            }
            assert_eq!(domain.agents.len(), 4);
        }
        assert_eq!(domain.global.cell(7).written.clock, 1);
        // Memory that is freed is forgotten, and no other.
        domain.global.forget(&[(0, 1024)]);
        assert_eq!(domain.global.cell(7).written.clock, 0);
        // One that comes behind both forgets all.
        domain.global.cell(8).written.clock = 1;
        let [mut both, other] = known;
        both.join(&other);
        begin(&mut domain, 0, other);
        assert_eq!((domain.agents.len(), domain.global.cell(8).written.clock), (4, 1));
        domain.running = 0;
        begin(&mut domain, 0, both);
        assert_eq!((domain.agents.len(), domain.global.cell(8).written.clock), (0, 0));
    }
}
