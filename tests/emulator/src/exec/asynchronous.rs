//! Copies beside the warps: bulk and tensor copies. Each ends a random while after it began; what it is going to write is undefined until then.

use std::cmp::Ordering;

use super::races::Clock;
use super::tensor::{self, Map};
use super::{Fault, ILLEGAL_ADDRESS, Launch, Of};
use crate::ptx::module::SHARED_START;

pub(super) enum Copy {
    /// Bytes as they lie, to the same place in several CTAs; each one's mbarrier gets them.
    Load {
        ctas: Vec<usize>,
        to: u32,
        from: u64,
        bytes: u32,
        mbarrier: u32,
        barrier_ctas: Vec<usize>,
        clock: Clock,
    },
    Box {
        ctas: Vec<usize>,
        to: u32,
        map: Map,
        at: [i32; 5],
        mbarrier: u32,
        barrier_ctas: Vec<usize>,
        clock: Clock,
    },
    /// Reads shared memory, and becomes a [`Copy::Write`].
    Store {
        cta: usize,
        from: u32,
        to: u64,
        bytes: u32,
        group: u64,
    },
    StoreBox {
        cta: usize,
        from: u32,
        map: Map,
        at: [i32; 5],
        group: u64,
    },
    /// Bytes to shared memory, mostly of another CTA of the cluster.
    Shared {
        cta: usize,
        to: u32,
        data: Vec<u8>,
        mbarrier: u32,
        barrier_cta: usize,
        clock: Clock,
    },
    Write {
        pieces: Vec<(u64, Vec<u8>)>,
        group: u64,
    },
}

/// A copy, what it was asked by, and when it is done.
pub(super) struct Pending {
    pub due: u64,
    pub number: u64,
    pub copy: Copy,
    pub of: Of,
}

impl PartialEq for Pending {
    fn eq(&self, other: &Pending) -> bool {
        (self.due, self.number) == (other.due, other.number)
    }
}

impl Eq for Pending {}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Pending) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending {
    // The heap gives the largest; the earliest is wanted.
    fn cmp(&self, other: &Pending) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl Launch {
    /// Begins a copy.
    pub(super) fn begin_copy(&mut self, copy: Copy, of: Of) {
        match &copy {
            Copy::Load { ctas, to, bytes, .. } => self.begin_load(ctas, *to, *bytes),
            Copy::Box { ctas, to, map, .. } => self.begin_load(ctas, *to, map.bytes()),
            Copy::Store { cta, .. } | Copy::StoreBox { cta, .. } => self.ctas[*cta].copies += 1,
            Copy::Shared { cta, to, data, .. } => {
                self.ctas[*cta].copies += 1;
                self.ctas[*cta].shared[*to as usize..*to as usize + data.len()].fill(0xFF);
                self.forget_writes(*cta, *to, data.len() as u32);
            }
            Copy::Write { .. } => {}
        }
        // Mostly soon, sometimes late.
        let most = if self.random.next() & 7 == 0 { 4000 } else { 600 };
        let due = self.now + (50 + u64::from(self.random.below(most))) * self.tick;
        self.copy_number += 1;
        self.copies.push(Pending { due, number: self.copy_number, copy, of });
    }

    fn begin_load(&mut self, ctas: &[usize], to: u32, bytes: u32) {
        for &cta in ctas {
            self.ctas[cta].copies += 1;
            self.ctas[cta].shared[to as usize..(to + bytes) as usize].fill(0xFF);
            self.forget_writes(cta, to, bytes);
        }
    }

    /// Ends copies that are due.
    pub(super) fn finish_copies(&mut self) -> Result<(), Fault> {
        while self.copies.peek().is_some_and(|copy| copy.due <= self.now) {
            let Some(pending) = self.copies.pop() else { break };
            let of = pending.of;
            self.patience = 1;
            self.finish(pending).map_err(|fault| self.located(fault, of))?;
        }
        Ok(())
    }

    fn finish(&mut self, pending: Pending) -> Result<(), Fault> {
        let (of, device) = (pending.of, self.config.device);
        match pending.copy {
            Copy::Load { ctas, to, from, bytes, mbarrier, barrier_ctas, clock } => {
                self.owned(from, u64::from(bytes))?;
                for &cta in &ctas {
                    let cta = &mut self.ctas[cta];
                    cta.copies -= 1;
                    // SAFETY: the range is live memory of the GPU.
                    let source = unsafe { std::slice::from_raw_parts(from as *const u8, bytes as usize) };
                    cta.shared[to as usize..(to + bytes) as usize].copy_from_slice(source);
                }
                for cta in barrier_ctas {
                    self.note_completion(cta, mbarrier, &clock);
                    self.with_mbarrier(cta, mbarrier, |state| state.complete(bytes))?;
                }
            }
            Copy::Box { ctas, to, map, at, mbarrier, barrier_ctas, clock } => {
                let bytes = map.bytes();
                let mut data = vec![0u8; bytes as usize];
                if map.nan_fill {
                    data.fill(0xFF);
                }
                map.runs(&at[..map.rank as usize], |offset, address, before, inside, _| {
                    if inside > 0 {
                        if !crate::memory::usable(device, address, u64::from(inside)) {
                            return Err(format!(
                                "a tensor copy at {:?} reads {inside} bytes at {address:#x}, which are not allocated: {map:?}",
                                &at[..map.rank as usize]
                            ));
                        }
                        // SAFETY: live memory of the GPU.
                        let source = unsafe { std::slice::from_raw_parts(address as *const u8, inside as usize) };
                        let place = (offset + before) as usize;
                        data[place..place + inside as usize].copy_from_slice(source);
                    }
                    Ok(())
                })
                .map_err(|text| Fault::new(ILLEGAL_ADDRESS, text))?;
                if map.ty == tensor::TFLOAT32 || map.ty == tensor::TFLOAT32_FTZ {
                    for word in data.chunks_exact_mut(4) {
                        let x = f32::from_le_bytes(word.try_into().unwrap());
                        word.copy_from_slice(&super::float::f32_to_tf32_even(x).to_le_bytes());
                    }
                }
                for &cta in &ctas {
                    let cta = &mut self.ctas[cta];
                    cta.copies -= 1;
                    for chunk in (0..bytes).step_by(16) {
                        let end = (chunk + 16).min(bytes);
                        let place = tensor::swizzled(map.swizzle, to + chunk) as usize;
                        cta.shared[place..place + (end - chunk) as usize].copy_from_slice(&data[chunk as usize..end as usize]);
                    }
                }
                for cta in barrier_ctas {
                    self.note_completion(cta, mbarrier, &clock);
                    self.with_mbarrier(cta, mbarrier, |state| state.complete(bytes))?;
                }
            }
            Copy::Store { cta, from, to, bytes, group } => {
                self.owned(to, u64::from(bytes))?;
                self.ctas[cta].copies -= 1;
                let data = self.ctas[cta].shared[from as usize..(from + bytes) as usize].to_vec();
                self.read(vec![(to, data)], group, of);
            }
            Copy::StoreBox { cta, from, map, at, group } => {
                self.ctas[cta].copies -= 1;
                let shared = &self.ctas[cta].shared;
                let mut pieces = Vec::new();
                map.runs(&at[..map.rank as usize], |offset, address, before, inside, _| {
                    if inside > 0 {
                        if !crate::memory::usable(device, address, u64::from(inside)) {
                            return Err(format!(
                                "a tensor copy at {:?} writes {inside} bytes at {address:#x}, which are not allocated: {map:?}",
                                &at[..map.rank as usize]
                            ));
                        }
                        let data: Vec<u8> =
                            (0..inside).map(|byte| shared[tensor::swizzled(map.swizzle, from + offset + before + byte) as usize]).collect();
                        pieces.push((address, data));
                    }
                    Ok(())
                })
                .map_err(|text| Fault::new(ILLEGAL_ADDRESS, text))?;
                self.read(pieces, group, of);
            }
            Copy::Shared { cta, to, data, mbarrier, barrier_cta, clock } => {
                let target = &mut self.ctas[cta];
                target.copies -= 1;
                target.shared[to as usize..to as usize + data.len()].copy_from_slice(&data);
                self.note_completion(barrier_cta, mbarrier, &clock);
                self.with_mbarrier(barrier_cta, mbarrier, |state| state.complete(data.len() as u32))?;
            }
            Copy::Write { pieces, group } => {
                for (to, data) in pieces {
                    self.owned(to, data.len() as u64)?;
                    // SAFETY: live memory of the GPU.
                    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to as *mut u8, data.len()) };
                }
                if let Some(group) = self.groups.get_mut(&group) {
                    group.writing -= 1;
                }
            }
        }
        Ok(())
    }

    /// A store has read its bytes, and writes them later.
    fn read(&mut self, pieces: Vec<(u64, Vec<u8>)>, group: u64, of: Of) {
        if let Some(group) = self.groups.get_mut(&group) {
            group.reading -= 1;
        }
        self.begin_copy(Copy::Write { pieces, group }, of);
    }

    pub(super) fn owned(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        if crate::memory::usable(self.config.device, address, bytes) {
            return Ok(());
        }
        let text =
            format!("a bulk copy of {bytes} bytes at {address:#x}, which are not allocated, or not for device {}", self.config.device);
        Err(Fault::new(ILLEGAL_ADDRESS, text))
    }

    /// Changes an mbarrier of a CTA.
    pub(super) fn with_mbarrier<T>(
        &mut self,
        cta: usize,
        at: u32,
        change: impl FnOnce(&mut super::mbarrier::State) -> Result<T, String>,
    ) -> Result<T, Fault> {
        let cta = &mut self.ctas[cta];
        if !at.is_multiple_of(8) {
            return Err(Fault::new(super::MISALIGNED_ADDRESS, format!("mbarrier at {at:#x}")));
        }
        let place = at as usize;
        if at < SHARED_START || place + 8 > cta.shared.len() {
            return Err(Fault::new(ILLEGAL_ADDRESS, format!("mbarrier at {at:#x}, outside shared memory")));
        }
        if cta.mbarriers[place / 512] >> (place / 8 % 64) & 1 == 0 {
            return Err(format!("no mbarrier was initialised at {at:#x}").into());
        }
        let bytes: &mut [u8] = &mut cta.shared[place..place + 8];
        let word = u64::from_le_bytes((&*bytes).try_into().unwrap());
        if word >> 63 == 0 {
            return Err(format!("the mbarrier at {at:#x} was written over").into());
        }
        let mut state = super::mbarrier::State::unpack(word);
        let result = change(&mut state).map_err(|text| Fault::from(format!("mbarrier at {at:#x}: {text} ({state:?})")))?;
        bytes.copy_from_slice(&state.pack().to_le_bytes());
        Ok(result)
    }
}
