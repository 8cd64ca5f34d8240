//! What a scheduler notes: when it served. What workers note does not belong here.
//!
//! A record is from the first message or ready task behind a vain sweep to the end of the last sweep that found any, and is written in the
//! vain sweep behind it, where nobody waits for the scheduler. So sweeps that follow one another are one record.

use maco_abi::{KIND_SERVE, Launch, Profile, ROLES, Record, served};

/// Behind the profiles of a launch: the records of scheduler `number`.
#[inline(always)]
fn records(launch: &Launch, number: u32) -> u64 {
    let (workers, schedulers) = (launch.workers as u64, launch.schedulers as u64);
    let before = workers * ROLES as u64 * launch.records as u64 + number as u64 * capacity(launch) as u64;
    launch.profile + size_of::<Profile>() as u64 * (workers + schedulers) + size_of::<Record>() as u64 * before
}

/// How many there are.
#[inline(always)]
fn capacity(launch: &Launch) -> u32 {
    served(launch.records, launch.workers, launch.schedulers)
}

/// A warp that is a scheduler, whose first lane notes in words of shared memory. Their place is found anew each time: the scheduler of a spare
/// warp has no register for it.
#[cfg(target_arch = "nvptx64")]
mod warp {
    use core::marker::PhantomData;

    use super::*;
    use crate::ptx::{memory, special};
    use crate::shared_memory::SharedMemory;

    /// Of five words of shared memory: from when to when it has served since the last vain sweep. 0: it has not; else odd, as the end, so that a
    /// tick that is 0 is not taken for none.
    const START: u32 = 0;
    const END: u32 = 4;
    /// How many records there is room for, less those that were made, and the address of the next one.
    const LEFT: u32 = 8;
    const NEXT: u32 = 12;

    /// Scheduler `number` of a launch is in this CTA, with words of shared memory at `at` that are 0: one thread calls, before it begins.
    ///
    /// # Safety
    /// `launch` is live, and nobody else uses the words yet.
    #[inline(always)]
    pub unsafe fn init(at: u32, launch: &Launch, number: u32) {
        let first = records(launch, number);
        // SAFETY: the caller promises the words; the host made room for the records of every scheduler.
        unsafe {
            memory::store_shared(at + LEFT, capacity(launch));
            memory::store_shared(at + NEXT, first as u32);
            memory::store_shared(at + NEXT + 4, (first >> 32) as u32);
        }
    }

    /// Records that the scheduler whose words these are would have made with room for all.
    ///
    /// # Safety
    /// Behind all that it has noted.
    #[inline(always)]
    pub unsafe fn made(at: u32, launch: &Launch) -> u32 {
        // SAFETY: the caller promises the words.
        capacity(launch).wrapping_sub(unsafe { memory::load_shared(at + LEFT) })
    }

    /// What a scheduler notes, and nothing in memory: ordinary code is the same as without it.
    #[derive(Clone, Copy)]
    pub struct Serving<'a>(PhantomData<&'a ()>);

    impl Serving<'_> {
        /// The scheduler of this CTA.
        #[inline(always)]
        pub fn here() -> Self {
            Serving(PhantomData)
        }

        /// This lane's words, if it notes.
        #[inline(always)]
        fn words() -> Option<u32> {
            (special::thread_again().is_multiple_of(32))
                .then(|| SharedMemory(special::place_again().1).profile() + super::super::words::SERVED)
        }

        /// There is something to do. All lanes call together.
        ///
        /// # Safety
        /// Behind [`init`], with the CTA's barrier between.
        #[inline(always)]
        pub unsafe fn found(self) {
            if let Some(at) = Self::words() {
                // SAFETY: words of shared memory that this thread alone uses.
                unsafe {
                    if memory::load_shared(at + START) == 0 {
                        memory::store_shared(at + START, special::clock() as u32 | 1);
                    }
                }
            }
        }

        /// A sweep has ended, in which something was `found`, or nothing.
        ///
        /// # Safety
        /// As [`Serving::found`].
        #[inline(always)]
        pub unsafe fn swept(self, found: bool) {
            if let Some(at) = Self::words() {
                // SAFETY: as above; below the capacity there is room for the record.
                unsafe {
                    if found {
                        memory::store_shared(at + END, special::clock() as u32 | 1);
                        return;
                    }
                    let start = memory::load_shared(at + START);
                    if start == 0 {
                        return;
                    }
                    let left = memory::load_shared(at + LEFT);
                    if left as i32 > 0 {
                        let next = memory::load_shared(at + NEXT) as u64 | (memory::load_shared(at + NEXT + 4) as u64) << 32;
                        let ticks = memory::load_shared(at + END).wrapping_sub(start);
                        memory::store4(next as *mut u32, [start, ticks, KIND_SERVE, 0]);
                        let next = next + size_of::<Record>() as u64;
                        memory::store_shared(at + NEXT, next as u32);
                        memory::store_shared(at + NEXT + 4, (next >> 32) as u32);
                    }
                    memory::store_shared(at + LEFT, left.wrapping_sub(1));
                    memory::store_shared(at + START, 0);
                }
            }
        }
    }
}
#[cfg(target_arch = "nvptx64")]
pub use warp::*;

/// A thread that is a scheduler.
#[cfg(not(target_arch = "nvptx64"))]
mod thread {
    use std::cell::Cell;

    use super::*;
    use crate::hardware::special;
    use maco_abi::Stamp;

    /// Schedulers are not in modelled CTAs.
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn init(_: u32, _: &Launch, _: u32) {}

    /// As [`init`].
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn made(_: u32, _: &Launch) -> u32 {
        0
    }

    /// What a scheduler has noted.
    pub struct Served {
        /// Its profile; null: nothing is noted.
        profile: *mut Profile,
        records: *mut Record,
        capacity: u32,
        begin: Stamp,
        made: Cell<u32>,
        /// From when to when it has served since the last vain sweep.
        serves: Cell<Option<(u64, u64)>>,
    }

    impl Served {
        /// Scheduler `number` of a launch begins.
        pub fn new(launch: &Launch, number: u32) -> Served {
            let on = launch.profile != 0;
            let executor = (launch.workers + number) as usize;
            Served {
                profile: if on { (launch.profile as *mut Profile).wrapping_add(executor) } else { std::ptr::null_mut() },
                records: if on { records(launch, number) as *mut Record } else { std::ptr::null_mut() },
                capacity: capacity(launch),
                begin: if on { special::stamp() } else { Stamp::default() },
                made: Cell::new(0),
                serves: Cell::new(None),
            }
        }

        /// Who notes.
        pub fn serving(&self) -> Serving<'_> {
            Serving(self)
        }

        /// The scheduler ends.
        ///
        /// # Safety
        /// The launch is live, with room for what it records.
        pub unsafe fn finish(self) {
            if !self.profile.is_null() {
                let made = [self.made.get(), 0, 0];
                let profile = Profile { begin: self.begin, end: special::stamp(), made, written: 1, ..Profile::default() };
                // SAFETY: the caller promises a profile for each scheduler.
                unsafe { self.profile.write(profile) };
            }
        }
    }

    /// What a scheduler notes.
    #[derive(Clone, Copy)]
    pub struct Serving<'a>(&'a Served);

    impl Serving<'_> {
        /// There is something to do.
        ///
        /// # Safety
        /// The launch is live, with room for the records that it says.
        pub unsafe fn found(self) {
            if !self.0.profile.is_null() && self.0.serves.get().is_none() {
                let now = special::clock();
                self.0.serves.set(Some((now, now)));
            }
        }

        /// A sweep has ended, in which something was `found`, or nothing.
        ///
        /// # Safety
        /// As [`Serving::found`].
        pub unsafe fn swept(self, found: bool) {
            let Some((start, end)) = self.0.serves.get() else { return };
            if found {
                self.0.serves.set(Some((start, special::clock())));
                return;
            }
            self.0.serves.set(None);
            let made = self.0.made.get();
            self.0.made.set(made + 1);
            if made < self.0.capacity {
                let ticks = (end - start).min(u64::from(u32::MAX)) as u32;
                // SAFETY: the caller promises the room, which is this scheduler's own.
                unsafe { self.0.records.add(made as usize).write(Record { start: start as u32, ticks, kind: KIND_SERVE, task: 0 }) };
            }
        }
    }
}
#[cfg(not(target_arch = "nvptx64"))]
pub use thread::*;
