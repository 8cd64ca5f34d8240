//! A warp's registers: where the values of its lanes lie.

use crate::ptx::inst::*;

pub(super) type Lanes<T> = [T; 32];

/// Where a warp's frame begins, and the program's constants. Not an array: one that is indexed is copied with each call.
#[derive(Clone, Copy)]
pub(super) struct Bases {
    frame: *mut u8,
    constants: *mut u8,
}

impl Bases {
    pub fn new(frame: *mut u8, constants: *mut u8) -> Bases {
        Bases { frame, constants }
    }

    /// # Safety
    /// `slot` is one of the program's.
    #[inline(always)]
    pub unsafe fn at<T>(self, slot: Slot) -> *mut T {
        // SAFETY: promised by the caller.
        unsafe { (if slot & CONSTANT == 0 { self.frame } else { self.constants }).add((slot & !CONSTANT) as usize).cast() }
    }
}

#[inline(always)]
pub(super) unsafe fn put<T: Copy>(to: *mut Lanes<T>, values: &Lanes<T>, mask: u32) {
    // SAFETY: (of the whole function) slots of the program.
    unsafe {
        if mask == u32::MAX {
            *to = *values;
        } else {
            let mut rest = mask;
            while rest != 0 {
                let lane = rest.trailing_zeros() as usize;
                (*to)[lane] = values[lane];
                rest &= rest - 1;
            }
        }
    }
}

#[inline(always)]
pub(super) unsafe fn write_bits(b: Bases, slot: Slot, bits: u32, mask: u32) {
    // SAFETY: slots of the program.
    unsafe {
        let to = b.at::<u32>(slot);
        *to = *to & !mask | bits & mask;
    }
}

#[inline(always)]
pub(super) fn low(mask: u32) -> usize {
    mask.trailing_zeros() as usize
}

/// The value of a lane's register, of so many bytes.
#[inline(always)]
pub(super) unsafe fn get(bases: Bases, slot: Slot, bytes: u8, lane: usize) -> u64 {
    // SAFETY: a slot of the program.
    unsafe { if bytes == 8 { *bases.at::<u64>(slot).add(lane) } else { u64::from(*bases.at::<u32>(slot).add(lane)) } }
}

#[inline(always)]
pub(super) unsafe fn set(bases: Bases, slot: Slot, bytes: u8, lane: usize, value: u64) {
    // SAFETY: a slot of the program.
    unsafe {
        match bytes {
            8 => *bases.at::<u64>(slot).add(lane) = value,
            2 => *bases.at::<u32>(slot).add(lane) = value as u32 & 0xFFFF,
            _ => *bases.at::<u32>(slot).add(lane) = value as u32,
        }
    }
}

macro_rules! each_lane {
    ($mask:expr, $lane:ident, $body:block) => {{
        let mut rest: u32 = $mask;
        while rest != 0 {
            let $lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            $body
        }
    }};
}
pub(super) use each_lane;
