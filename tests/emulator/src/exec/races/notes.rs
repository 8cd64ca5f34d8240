//! What a launch notes of its accesses, and how it tells of races.

use super::domain::Named;
use super::shadow::{Access, Left};
use super::{Clock, Location, Race, Races, SHARED, shared, words};
use crate::exec::registers::each_lane;
use crate::exec::{Fault, Launch, Of, SHARED_WINDOW, Warp};
use crate::memory::{Kind, find, mapped};
use crate::ptx::inst::{F_ACQUIRES, F_RELAXED, Inst, Space};

/// What reports call a place.
fn memory(place: u64) -> String {
    if place & SHARED != 0 {
        return format!("shared memory at {:#x}", place as u32);
    }
    match mapped::named(place) {
        Some((handle, offset)) => format!("byte {offset:#x} of mapped memory {handle}"),
        None => format!("global memory at {place:#x}"),
    }
}

/// Another CTA's shared memory of the cluster has its own place; generic addresses are those of their space.
fn place(launch: &Launch, warp: &Warp, space: Space, address: u64) -> Option<Location> {
    if space == Space::Shared || space == Space::Generic && address >> 32 == SHARED_WINDOW >> 32 {
        let (cta, at) = launch.shared_place(address as u32, warp.cta);
        return Some(Location { at: shared(cta, at), owner: None });
    }
    if !matches!(space, Space::Global | Space::Generic) {
        return None;
    }
    if launch.races.several
        && let Some(found) = find(address)
    {
        return Some(Location { at: found.physical_of(address), owner: (found.kind != Kind::Host).then_some(found.device) });
    }
    Some(Location { at: address, owner: None })
}

impl Launch {
    /// Does something of the launch that other devices' launches see as one step.
    pub(in crate::exec) fn in_order<T>(&mut self, act: impl FnOnce(&mut Launch) -> T) -> T {
        self.races.enter();
        let result = act(self);
        self.races.leave_domain();
        result
    }

    fn agent_of(&self, warp: &Warp) -> usize {
        warp.cta * self.config.warps() + warp.index as usize
    }

    /// A load or a store of the lanes of a warp.
    fn note_access(&mut self, warp: &Warp, i: &Inst, address: u64, bytes: u32, writes: bool) -> Result<(), Fault> {
        let Some(place) = place(self, warp, i.space, address) else { return Ok(()) };
        let warp = self.agent_of(warp);
        if i.flag & F_RELAXED == 0 {
            let race = self.races.access(warp, place.at, bytes, writes, i.line);
            return self.tell(warp, i.line, writes, race);
        }
        let race = self.races.strong(warp, place, bytes, writes, i.flag, i.line);
        for word in words(place.at, bytes) {
            if writes {
                self.races.relaxed_write(warp, word, i.flag, false);
            } else {
                self.races.relaxed_read(warp, word, i.flag);
            }
        }
        self.tell(warp, i.line, writes, race)
    }

    /// An atomic: it reads, writes, and goes on what those before it released.
    pub(in crate::exec) fn note_atomic(&mut self, warp: &Warp, i: &Inst, address: u64) -> Result<(), Fault> {
        let Some(place) = place(self, warp, i.space, address) else { return Ok(()) };
        let warp = self.agent_of(warp);
        let race = self.races.strong(warp, place, i.ty.bytes(), true, i.flag, i.line);
        self.races.relaxed_read(warp, place.at / 4, i.flag);
        self.races.relaxed_write(warp, place.at / 4, i.flag, true);
        self.tell(warp, i.line, true, race)
    }

    /// A fence.
    pub(in crate::exec) fn note_fence(&mut self, warp: &Warp, flag: u8) {
        if self.races.on {
            let warp = self.agent_of(warp);
            self.races.fence(warp, flag);
        }
    }

    /// An arrival at an mbarrier.
    pub(in crate::exec) fn note_arrival(&mut self, warp: &Warp, cta: usize, at: u32) {
        if self.races.on {
            let left = self.races.leave(self.agent_of(warp));
            self.note_completion(cta, at, &left);
        }
    }

    /// Something of before `clock` has come to an mbarrier.
    pub(in crate::exec) fn note_completion(&mut self, cta: usize, at: u32, clock: &Clock) {
        if self.races.on {
            let new = Left { device: self.races.device, own: clock.clone(), wide: Clock::default() };
            self.races.shared.leave(shared(cta, at) / 4, new, true);
        }
    }

    /// A wait at an mbarrier is over.
    pub(in crate::exec) fn note_waited(&mut self, warp: &Warp, cta: usize, at: u32) {
        if self.races.on {
            let warp = self.agent_of(warp);
            self.races.relaxed_read(warp, shared(cta, at) / 4, F_ACQUIRES);
        }
    }

    /// A warp comes to barrier `id` of a CTA; `last`: the others are there.
    pub(in crate::exec) fn note_coming(&mut self, warp: &Warp, id: usize, last: bool) {
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
    pub(in crate::exec) fn note_met(&mut self, warp: &Warp, id: usize) {
        if self.races.on {
            let agent = self.agent_of(warp);
            let agent = self.races.agent(agent);
            if let Some(meeting) = self.races.meetings.get(&(warp.cta, id)) {
                self.races.domain.agents[agent].now.join(&meeting.met);
            }
        }
    }

    /// The barrier of a cluster is a word that all release and acquire.
    pub(in crate::exec) fn note_cluster(&mut self, warp: &Warp, arrives: bool) {
        let first = self.ctas[warp.cta].first;
        if arrives {
            self.note_arrival(warp, first, 0);
        } else {
            self.note_waited(warp, first, 0);
        }
    }

    /// A copy reads or writes shared memory.
    pub(in crate::exec) fn note_copy_shared(&mut self, of: Of, cta: usize, at: u32, bytes: u32, writes: bool) -> Result<(), Fault> {
        self.note_copy(of, shared(cta, at), bytes, writes)
    }

    /// A copy reads or writes global memory.
    pub(in crate::exec) fn note_copy(&mut self, of: Of, at: u64, bytes: u32, writes: bool) -> Result<(), Fault> {
        if !self.races.on || bytes == 0 {
            return Ok(());
        }
        let line = self.program.code[of.1 as usize].line;
        let (mut at, end) = (at, at + u64::from(bytes));
        // Mappings that lie side by side may be anywhere.
        while at < end {
            let found = if self.races.several && at & SHARED == 0 { find(at) } else { None };
            let (place, next) = found.map_or((at, end), |found| (found.physical_of(at), end.min(found.end)));
            let race = self.races.access(of.0, place, (next - at) as u32, writes, line);
            self.tell(of.0, line, writes, race)?;
            at = next;
        }
        Ok(())
    }

    /// A copy begins: what those have who wait for its end.
    pub(in crate::exec) fn note_begin(&mut self, of: Of) -> Clock {
        if self.races.on { self.races.leave(of.0) } else { Clock::default() }
    }

    fn tell(&mut self, warp: usize, line: u32, writes: bool, race: Option<Race>) -> Result<(), Fault> {
        let Some(race) = race else { return Ok(()) };
        let own = Named { device: self.config.device, kernel: Some(self.program.name.clone()), warps: self.config.warps() };
        self.races.tell(&own, warp, line, writes, race).map_err(Fault::from)
    }

    /// Accesses of the lanes of a warp, `bytes` each.
    pub(in crate::exec) fn note_lanes(
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

impl Races {
    /// Reports a race with what `own` does now at a line of its program; the text, if it ends the launch.
    pub(super) fn tell(&mut self, own: &Named, warp: usize, line: u32, writes: bool, race: Race) -> Result<(), String> {
        // One line of a program can have races of two kinds.
        let lines = match race {
            Race::Apart { before, .. } => (0, before.line, line),
            Race::Scope { before, .. } => (1, before.line, line),
            Race::Foreign { .. } => (2, 0, line),
        };
        if !self.domain.reported.insert(lines) && !self.fatal {
            return Ok(());
        }
        let who = |launch: &Named, warp: usize, line: u32| {
            let Some(kernel) = &launch.kernel else { return format!("device {}, a copy of a stream", launch.device) };
            let (cta, warp) = (warp / launch.warps, warp % launch.warps);
            let device = if self.several { format!("device {}, kernel {kernel}, ", launch.device) } else { String::new() };
            format!("{device}CTA {cta}, warp {warp} at PTX line {line}")
        };
        let before = |access: Access| {
            let (_, launch, warp) = self.domain.user(access);
            who(launch, warp, access.line)
        };
        let now = who(own, warp, line);
        let what = |writes: bool| if writes { "write" } else { "read" };
        let text = match race {
            Race::Apart { place, before: other, wrote } => {
                let (memory, writes) = (memory(place), what(writes));
                format!("nothing orders the {} of {memory} by {} and the {writes} by {now}", what(wrote), before(other))
            }
            Race::Scope { place, before: other } => {
                format!("an access of scope gpu to a peer's word, {}, by one of these: {}, and {now}", memory(place), before(other))
            }
            Race::Foreign { place, owner } => {
                format!("an access of scope gpu to a peer's word, {} of device {owner}, by {now}", memory(place))
            }
        };
        let kernel = own.kernel.as_ref().map(|kernel| format!("\n  kernel {kernel}")).unwrap_or_default();
        let text = format!("a race: {text}{kernel}");
        if self.fatal {
            return Err(text);
        }
        if self.domain.reported.len() <= 20 {
            eprintln!("[emu] {text}");
        }
        Ok(())
    }
}
