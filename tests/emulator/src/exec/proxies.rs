//! Proxy fences: what generic stores have written, copies and `wgmma` see only behind `fence.proxy.async` (PTX ISA, "Async proxy").
//!
//! A fence of the writer or of the thread that begins the copy is taken to be enough, whatever is between them: too little is reported
//! rather than too much. `EMU_PROXY=1` reports, `EMU_PROXY=2` ends the launch.

use std::collections::HashMap;

use super::registers::each_lane;
use super::{Fault, Launch, Of, Warp};

/// A generic write: when, and by which thread of the launch. 0: none.
#[derive(Default, Clone, Copy)]
pub(super) struct Written {
    at: u64,
    thread: u32,
}

pub(super) struct Proxies {
    pub on: bool,
    fatal: bool,
    now: u64,
    reports: u32,
    /// By address / 16.
    global: HashMap<u64, Written>,
}

impl Proxies {
    pub fn new() -> Proxies {
        let level = crate::settings::number("EMU_PROXY", 0);
        Proxies { on: level > 0, fatal: level > 1, now: 0, reports: 0, global: HashMap::new() }
    }

    pub fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }
}

impl Launch {
    fn thread_of(warp: &Warp, lane: usize, warps_of_cta: usize) -> u32 {
        ((warp.cta * warps_of_cta + warp.index as usize) * 32 + lane) as u32
    }

    pub(super) fn wrote_shared(&mut self, warp: &Warp, lane: usize, address: u32, bytes: u32) {
        let at = self.proxies.tick();
        let thread = Self::thread_of(warp, lane, self.config.warps());
        let (cta, place) = self.shared_place(address, warp.cta);
        for unit in place / 16..=(place + bytes - 1) / 16 {
            self.ctas[cta].written[unit as usize] = Written { at, thread };
        }
    }

    pub(super) fn wrote_global(&mut self, warp: &Warp, lane: usize, address: u64, bytes: u32) {
        let at = self.proxies.tick();
        let thread = Self::thread_of(warp, lane, self.config.warps());
        for unit in address / 16..=(address + u64::from(bytes) - 1) / 16 {
            self.proxies.global.insert(unit, Written { at, thread });
        }
    }

    /// A fence of these lanes, for the spaces of these bits.
    pub(super) fn fence(&mut self, warp: &mut Warp, spaces: u8, mask: u32) {
        if self.proxies.on {
            let now = self.proxies.tick();
            let fences = warp.fences.get_or_insert_default();
            each_lane!(mask, lane, {
                for (space, fences) in fences.iter_mut().enumerate() {
                    if spaces >> space & 1 == 1 {
                        fences[lane] = now;
                    }
                }
            });
        }
    }

    /// A copy is going to write there: what was written before does not matter any more.
    pub(super) fn forget_writes(&mut self, cta: usize, at: u32, bytes: u32) {
        if self.proxies.on {
            self.ctas[cta].written[at as usize / 16..(at + bytes).div_ceil(16) as usize].fill(Written::default());
        }
    }

    /// Whether one of both made a fence for the space behind the write.
    fn fenced(&self, written: Written, space: usize, issuer: Of) -> bool {
        let made = |warp: usize, lane: usize| self.warps[warp].fences.as_ref().map_or(0, |fences| fences[space][lane]);
        written.at == 0
            || made(written.thread as usize / 32, written.thread as usize % 32) > written.at
            || (0..32).any(|lane| issuer.2 >> lane & 1 == 1 && made(issuer.0, lane) > written.at)
    }

    fn missing(&mut self, written: Written, place: String, of: Of) -> Result<(), Fault> {
        let threads = self.config.warps() as u32 * 32;
        let (cta, thread) = (written.thread / threads, written.thread % threads);
        let text = format!("no fence.proxy.async between a store of CTA {cta}, thread {thread}, to {place} and its use by the async proxy");
        if self.proxies.fatal {
            return Err(text.into());
        }
        self.proxies.reports += 1;
        if self.proxies.reports <= 3 {
            let fault = self.located(text.into(), of);
            eprintln!("[emu] {}", fault.text);
        }
        Ok(())
    }

    /// The async proxy reads these 16-byte units of shared memory.
    pub(super) fn reads_shared(&mut self, of: Of, cta: usize, units: impl Iterator<Item = u32> + Clone) -> Result<(), Fault> {
        if self.races.on {
            for unit in units.clone() {
                self.note_copy_shared(of, cta, unit * 16, 16, false)?;
            }
        }
        if self.proxies.on {
            for unit in units {
                let written = self.ctas[cta].written[unit as usize];
                if !self.fenced(written, 0, of) {
                    return self.missing(written, format!("shared memory at {:#x}", unit * 16), of);
                }
            }
        }
        Ok(())
    }

    /// The async proxy reads these bytes of global memory.
    pub(super) fn reads_global(&mut self, of: Of, address: u64, bytes: u32) -> Result<(), Fault> {
        self.note_copy(of, address, bytes, false)?;
        if self.proxies.on && bytes > 0 {
            for unit in address / 16..=(address + u64::from(bytes) - 1) / 16 {
                if let Some(&written) = self.proxies.global.get(&unit)
                    && !self.fenced(written, 1, of)
                {
                    return self.missing(written, format!("global memory at {:#x}", unit * 16), of);
                }
            }
        }
        Ok(())
    }
}
