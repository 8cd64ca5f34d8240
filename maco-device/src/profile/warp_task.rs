//! What a warp notes of the tasks that it runs by itself, as up to eight of a worker do at a time: when it waited, and ran. What all consumers note
//! together does not belong here.
//!
//! Warps share the list of records, in which each claims places by an addition. From when on a warp waits and runs is in its registers: a word of shared
//! memory for each of them is not there, and such bodies leave registers enough.

use crate::hardware::{special, warp};
use crate::shared_memory::SharedMemory;
use maco_abi::{KIND_RUN, KIND_WAIT, ROLE_CONSUME, RecordKind};

/// A tick; nothing where nothing is noted, so that ordinary code is the same as without it.
#[cfg(any(maco_profile, not(target_arch = "nvptx64")))]
#[derive(Clone, Copy)]
struct Tick(u32);
#[cfg(not(any(maco_profile, not(target_arch = "nvptx64"))))]
#[derive(Clone, Copy)]
struct Tick;

impl Tick {
    #[cfg(any(maco_profile, not(target_arch = "nvptx64")))]
    const NEVER: Tick = Tick(0);
    #[cfg(not(any(maco_profile, not(target_arch = "nvptx64"))))]
    const NEVER: Tick = Tick;

    #[cfg(any(maco_profile, not(target_arch = "nvptx64")))]
    #[inline(always)]
    fn now() -> Tick {
        Tick(special::clock() as u32)
    }
    #[cfg(not(any(maco_profile, not(target_arch = "nvptx64"))))]
    #[inline(always)]
    fn now() -> Tick {
        Tick
    }
}

/// Since when a warp has had no task of its own to run, and until when it has waited for the next one.
#[derive(Clone, Copy)]
pub struct WarpTaskTimer {
    since: Tick,
    began: Tick,
}

impl WarpTaskTimer {
    /// Of a kernel without such tasks.
    pub const NEVER: WarpTaskTimer = WarpTaskTimer { since: Tick::NEVER, began: Tick::NEVER };

    /// The warp turns to such tasks now.
    #[inline(always)]
    pub fn turn() -> WarpTaskTimer {
        let since = Tick::now();
        WarpTaskTimer { since, began: since }
    }

    /// It has waited until now for the next one.
    #[inline(always)]
    pub fn waited(&mut self) {
        self.began = Tick::now();
    }

    /// It has run it until now. What comes of it is written when nobody waits for the task any more.
    #[inline(always)]
    pub fn ran(self) -> Ended {
        Ended { timer: self, now: Tick::now() }
    }
}

/// See [`WarpTaskTimer::ran`].
pub struct Ended {
    timer: WarpTaskTimer,
    now: Tick,
}

impl Ended {
    /// Writes down that it was the task of this number in the plan, and how long the warp had waited for it, if it had. The next one's time begins where
    /// this one's ended.
    ///
    /// # Safety
    /// The whole warp calls, behind [`super::init`].
    #[inline(always)]
    pub unsafe fn note(self, smem: SharedMemory, task: u32) -> WarpTaskTimer {
        let Ended { timer: WarpTaskTimer { since, began }, now } = self;
        #[cfg(any(maco_profile, not(target_arch = "nvptx64")))]
        if warp::lane_again() == 0 {
            let by = |kind| RecordKind { kind, warp: Some(warp::consumer()) }.encode();
            let waited = since.0 != began.0;
            // SAFETY: passed on from the caller; places that were claimed are this warp's own.
            unsafe {
                let made = super::claim(smem, waited as u32 + 1);
                super::put(smem, ROLE_CONSUME, made, [began.0, now.0.wrapping_sub(began.0), by(KIND_RUN), task]);
                if waited {
                    super::put(smem, ROLE_CONSUME, made + 1, [since.0, began.0.wrapping_sub(since.0), by(KIND_WAIT), task]);
                }
            }
        }
        WarpTaskTimer { since: now, began: now }
    }
}
