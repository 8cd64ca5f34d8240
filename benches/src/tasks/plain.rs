//! The peers: kernels without MACO, of the same bodies. Every kernel takes one struct, which the host fills.
//!
//! How they are launched does not belong here (`peer.rs`).

/// Words of a tile: a row of 32 KiB.
pub const TILE: u32 = 8192;
/// Most tiles that `all` and `weights` can sum over.
pub const PARTS: u32 = 512;
/// Threads of a body.
pub const THREADS: u32 = 256;

/// What [`chain`](self) works on.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Chain {
    /// The word that every kernel reads and writes.
    pub x: *mut u32,
}

/// A ping-pong between two CTAs of one grid.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Flags {
    /// The flag of the first CTA; that of the second is 64 words further on.
    pub flags: *mut u32,
    /// Four words that are handed on, or null.
    pub payload: *mut u32,
    /// Not 0 after a wait that was given up.
    pub fault: *mut u32,
    /// The two CTAs.
    pub pair: [u32; 2],
    /// How often the flag is handed on.
    pub hops: u32,
    /// The flags hold this: they only ever grow.
    pub base: u32,
}

/// Phases of tiles.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Phases {
    /// Rows that a tile reads, 3 for every tile in `halo`, else 1; phase after phase.
    pub ids: *const u32,
    /// Rows that the first phase reads.
    pub x: *const u32,
    /// Rows of weights, phase after phase.
    pub w: *const u32,
    /// A word of every tile that the first phase sums.
    pub parts: *const u32,
    /// Rows that are written, phase after phase.
    pub y: *mut u32,
    /// A word of every row that is written.
    pub part: *mut u32,
    /// Counter of the grid barrier.
    pub barrier: *mut u32,
    /// Not 0 after a wait that was given up.
    pub fault: *mut u32,
    /// Tiles of a phase.
    pub tiles: u32,
    /// Number of the first phase.
    pub first: u32,
    /// Number of phases, for kernels that loop over them.
    pub phases: u32,
    /// Tiles from what one phase reads to what the next one reads: `tiles`, or 0 when all read the same.
    pub advance: u32,
    /// What is mixed in.
    pub seed: u32,
    /// The barrier's counter holds this; [`Phases::NO_BARRIER`]: there is none between phases.
    pub base: u32,
}

impl Phases {
    /// Odd, and no multiple of a number of CTAs: no launch begins with it.
    pub const NO_BARRIER: u32 = u32::MAX;
}

#[cfg(target_arch = "nvptx64")]
mod kernels {
    use maco_device::ptx::{fence, gpu_scope, memory, special};

    use super::super::boundary::salt;
    use super::super::{body, ptx};
    use super::{Chain, Flags, Phases, TILE};

    /// Nanoseconds after which a wait is given up.
    const PATIENCE: u64 = 2_000_000_000;

    /// Polls until the word is `value` or more, counting with wrap; gives up when `fault` says so or takes too long.
    ///
    /// # Safety
    /// Both are words of global memory.
    #[inline(always)]
    unsafe fn poll(at: *const u32, value: u32, fault: *mut u32) {
        let mut begin = 0;
        let mut polls = 0u32;
        // SAFETY: passed on from the caller.
        unsafe {
            while (gpu_scope::load_relaxed(at).wrapping_sub(value) as i32) < 0 {
                polls += 1;
                if polls % 4096 != 0 {
                    continue;
                }
                let now = special::global_timer();
                begin = if begin == 0 { now } else { begin };
                if now - begin > PATIENCE {
                    gpu_scope::store_relaxed(fault, 1);
                }
                if gpu_scope::load_relaxed(fault) != 0 {
                    break;
                }
            }
        }
        fence::acquire_gpu();
    }

    /// Nothing: as many CTAs as there are tasks to compare with.
    ///
    /// # Safety
    /// None.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn peer_empty() {}

    /// One `bump`.
    ///
    /// # Safety
    /// One CTA of `THREADS` threads; the word is live.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn peer_chain(chain: Chain) {
        ptx::launch_dependents();
        ptx::wait_for_predecessors();
        // SAFETY: passed on from the host.
        unsafe { body::bump(special::thread(), chain.x, ptx::sync) }
    }

    /// A flag, and 16 bytes if there are any, handed to and fro between two CTAs.
    ///
    /// # Safety
    /// All CTAs are resident; the memory is live, and the flags hold `base`.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn peer_flag(f: Flags) {
        let side = if special::block() == f.pair[0] { 0 } else { 1 };
        if special::thread() != 0 || side == 1 && special::block() != f.pair[1] {
            return;
        }
        let (own, other) = (f.flags.wrapping_add(64 * side), f.flags.wrapping_add(64 - 64 * side));
        let mut hop = side as u32;
        while hop < f.hops {
            // SAFETY: passed on from the host; whoever holds the flag has the payload to itself.
            unsafe {
                if hop > 0 {
                    poll(other, f.base.wrapping_add(hop), f.fault);
                }
                if !f.payload.is_null() {
                    body::relay(f.payload);
                }
                fence::release_gpu();
                gpu_scope::store_relaxed(own, f.base.wrapping_add(hop + 1));
            }
            hop += 2;
        }
    }

    /// Rows and words of one tile of a phase.
    #[derive(Clone, Copy)]
    struct Tile {
        ids: *const u32,
        x: *const u32,
        w: *const u32,
        parts: *const u32,
        y: *mut u32,
        part: *mut u32,
        tiles: u32,
        salt: u32,
    }

    impl Tile {
        /// Tile `n` of phase `phase`, counted from the first of this launch; a tile has `P::NEEDS` ids.
        #[inline(always)]
        fn new<P: Pattern>(p: Phases, phase: u32, n: u32) -> Tile {
            let place = phase as usize * p.tiles as usize + n as usize;
            let before = phase as usize * p.advance as usize;
            Tile {
                ids: p.ids.wrapping_add(place * P::NEEDS),
                x: p.x.wrapping_add(before * TILE as usize),
                w: p.w.wrapping_add(place * (TILE / 4 * 3) as usize),
                parts: p.parts.wrapping_add(before),
                y: p.y.wrapping_add(place * TILE as usize),
                part: p.part.wrapping_add(place),
                tiles: p.tiles,
                salt: salt(p.first + phase, p.seed),
            }
        }

        /// Row number `n` of those that it reads.
        ///
        /// # Safety
        /// The tile has so many ids, and they are rows.
        #[inline(always)]
        unsafe fn row(&self, n: usize) -> *const u32 {
            // SAFETY: passed on from the caller.
            self.x.wrapping_add(unsafe { memory::load(self.ids.add(n)) } as usize * TILE as usize)
        }
    }

    /// What a pattern does before the wait (it reads what no kernel writes: numbers of rows, weights), and what after it.
    trait Pattern {
        /// Ids of a tile.
        const NEEDS: usize;
        type Early;
        /// # Safety
        /// `THREADS` threads are here with a live tile.
        unsafe fn early(thread: u32, tile: Tile) -> Self::Early;
        /// # Safety
        /// As above, and what the tile reads has been waited for.
        unsafe fn run(thread: u32, tile: Tile, early: Self::Early);
        /// The same bytes as `early` into the second-level cache, for tiles that come later.
        ///
        /// # Safety
        /// As for `early`.
        #[inline(always)]
        unsafe fn prefetch(_thread: u32, _tile: Tile) {}
    }

    enum Identity {}
    impl Pattern for Identity {
        const NEEDS: usize = 1;
        type Early = *const u32;
        #[inline(always)]
        unsafe fn early(_: u32, tile: Tile) -> *const u32 {
            // SAFETY: passed on from the kernel.
            unsafe { tile.row(0) }
        }
        #[inline(always)]
        unsafe fn run(thread: u32, tile: Tile, row: *const u32) {
            // SAFETY: passed on from the kernel.
            unsafe { body::gather(thread, [row], tile.y, tile.salt) }
        }
    }

    enum Halo {}
    impl Pattern for Halo {
        const NEEDS: usize = 3;
        type Early = [*const u32; 3];
        #[inline(always)]
        unsafe fn early(_: u32, tile: Tile) -> [*const u32; 3] {
            // SAFETY: passed on from the kernel.
            unsafe { [tile.row(0), tile.row(1), tile.row(2)] }
        }
        #[inline(always)]
        unsafe fn run(thread: u32, tile: Tile, rows: [*const u32; 3]) {
            // SAFETY: passed on from the kernel.
            unsafe { body::gather(thread, rows, tile.y, tile.salt) }
        }
    }

    enum All {}
    impl Pattern for All {
        const NEEDS: usize = 1;
        type Early = *const u32;
        #[inline(always)]
        unsafe fn early(_: u32, tile: Tile) -> *const u32 {
            // SAFETY: passed on from the kernel.
            unsafe { tile.row(0) }
        }
        #[inline(always)]
        unsafe fn run(thread: u32, t: Tile, row: *const u32) {
            // SAFETY: passed on from the kernel.
            unsafe { body::all(thread, row, t.parts, t.tiles, t.y, t.part, t.salt) }
        }
    }

    enum Weights {}
    impl Pattern for Weights {
        const NEEDS: usize = 1;
        type Early = (*const u32, [[u32; 4]; 6]);
        #[inline(always)]
        unsafe fn early(thread: u32, tile: Tile) -> Self::Early {
            // SAFETY: passed on from the kernel.
            unsafe { (tile.row(0), body::load_weights(thread, tile.w)) }
        }
        #[inline(always)]
        unsafe fn run(thread: u32, t: Tile, (row, w): Self::Early) {
            // SAFETY: passed on from the kernel.
            unsafe { body::weights(thread, w, row, t.parts, t.tiles, t.y, t.part, t.salt) }
        }
        #[inline(always)]
        unsafe fn prefetch(thread: u32, tile: Tile) {
            // Lines of 128 bytes.
            if thread * 32 < TILE / 4 * 3 {
                // SAFETY: inside the row.
                unsafe { ptx::prefetch(tile.w.wrapping_add(thread as usize * 32)) }
            }
        }
    }

    /// A tile for every CTA: one phase, or several that do not wait for each other.
    #[inline(always)]
    unsafe fn step<P: Pattern>(p: Phases) {
        ptx::launch_dependents();
        let (thread, block) = (special::thread(), special::block());
        let tile = Tile::new::<P>(p, block.checked_div(p.tiles).unwrap_or(0), block.checked_rem(p.tiles).unwrap_or(0));
        // SAFETY: passed on from the kernel; what is read early, no kernel writes.
        unsafe {
            let early = P::early(thread, tile);
            ptx::wait_for_predecessors();
            P::run(thread, tile, early);
        }
    }

    /// All phases by a grid that stays, with a barrier among all CTAs between two.
    #[inline(always)]
    unsafe fn loops<P: Pattern>(p: Phases) {
        let (thread, block, blocks) = (special::thread(), special::block(), special::blocks());
        let mut phase = 0;
        // SAFETY: passed on from the kernel; there is a tile for every CTA, and what is read early, no kernel writes.
        let mut early = unsafe { P::early(thread, Tile::new::<P>(p, 0, block)) };
        loop {
            // SAFETY: passed on from the kernel; the barrier has waited for what is read.
            unsafe { P::run(thread, Tile::new::<P>(p, phase, block), early) };
            let mut n = block + blocks;
            while n < p.tiles {
                let tile = Tile::new::<P>(p, phase, n);
                // SAFETY: as above.
                unsafe { P::run(thread, tile, P::early(thread, tile)) };
                n += blocks;
            }
            phase += 1;
            if phase >= p.phases {
                return;
            }
            // SAFETY: as for the first tile.
            early = unsafe { P::early(thread, Tile::new::<P>(p, phase, block)) };
            if p.base == Phases::NO_BARRIER {
                continue;
            }
            let mut n = block + blocks;
            while n < p.tiles {
                // SAFETY: as for the first tile.
                unsafe { P::prefetch(thread, Tile::new::<P>(p, phase, n)) };
                n += blocks;
            }
            ptx::sync();
            if thread == 0 {
                // SAFETY: the words are live; the barrier above makes the CTA's writes this thread's to release.
                unsafe {
                    fence::release_gpu();
                    gpu_scope::add_relaxed(p.barrier, 1);
                    poll(p.barrier, p.base.wrapping_add(phase * blocks), p.fault);
                }
            }
            ptx::sync();
        }
    }

    macro_rules! kernels {
        ($($pattern:ident $step:ident $loops:ident),*) => {$(
            /// # Safety
            /// `THREADS` threads; the memory is live and as large as the struct says.
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn $step(p: Phases) {
                // SAFETY: passed on from the host.
                unsafe { step::<$pattern>(p) }
            }

            /// # Safety
            /// As above, and all CTAs are resident.
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn $loops(p: Phases) {
                // SAFETY: passed on from the host.
                unsafe { loops::<$pattern>(p) }
            }
        )*};
    }
    kernels!(
        Identity peer_identity peer_identity_loop,
        Halo peer_halo peer_halo_loop,
        All peer_all peer_all_loop,
        Weights peer_weights peer_weights_loop
    );
}
