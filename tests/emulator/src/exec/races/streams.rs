//! What streams do beside kernels: they wait for words, write words, and copy.
//!
//! A stream that waits for a word goes on while kernels run. From then on its copies are accesses, also of the same device: what a kernel makes is not copied
//! before the kernel has said so, and what a copy brings is not used before the stream has. Other streams' copies come behind kernels, or the host sees to them.

use std::cell::Cell;

use super::domain::Named;
use super::order::{self, Known, tracked};
use super::shadow::{Clock, Left};
use super::{Races, domain};
use crate::memory::{Kind, find};

thread_local! {
    /// This thread's stream has waited for a word.
    static BESIDE: Cell<bool> = const { Cell::new(false) };
}

fn word(at: u64) -> u64 {
    find(at).map_or(at, |found| found.physical_of(at)) / 4
}

/// This thread's stream has found a word as it should be: it comes behind what was released there for all devices, as the stream is on none of the multiprocessors.
pub fn acquire(at: u64) {
    BESIDE.set(true);
    if !tracked() {
        return;
    }
    let domain = domain::take();
    let mut known = Known { epoch: domain.epoch, clock: Clock::default() };
    domain.global.left(word(at)).iter().for_each(|left| known.clock.join(&left.wide));
    domain::give_back(domain);
    order::stream_behind(&known);
}

/// This thread's stream writes a word; with `releases`, whoever acquires it comes behind what the stream did before.
pub fn store(device: usize, at: u64, releases: bool, write: impl FnOnce()) {
    if !tracked() {
        return write();
    }
    let mut domain = domain::take();
    write();
    let known = order::of_stream();
    let own = if releases && known.epoch == domain.epoch { known.clock } else { Clock::default() };
    domain.global.leave(word(at), Left { device, wide: own.clone(), own }, false);
    domain::give_back(domain);
}

/// This thread's stream copies: reads and writes these bytes, the latter with `true`. The first race, if they are to end the launch.
pub fn copy(device: usize, ranges: impl Iterator<Item = (u64, u64, bool)>) -> Result<(), String> {
    if !tracked() || !BESIDE.get() {
        return Ok(());
    }
    let named = || Named { device, kernel: None, warps: 1 };
    let mut races = Races::of(named());
    races.enter();
    for (mut at, bytes, writes) in ranges {
        let end = at + bytes;
        // Mappings may lie side by side. Memory of the host is not looked at.
        while let Some(found) = find(at).filter(|found| at < end && found.kind != Kind::Host) {
            let next = end.min(found.end);
            if let Some(race) = races.access(0, found.physical_of(at), (next - at) as u32, writes, 0) {
                races.tell(&named(), 0, 0, writes, race)?;
            }
            at = next;
        }
    }
    Ok(())
}
