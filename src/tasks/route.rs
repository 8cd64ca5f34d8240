//! From the experts of each token to groups of rows that have one expert each, on the device.

use crate::{Scratch, Simt, Tile, Warp};

/// Experts that are counted at a time.
const BLOCK: usize = 256;
/// Warps that count.
const WARPS: usize = 8;
/// Bytes of scratch: a count for each warp and expert, and two words for each expert.
const SCRATCH: usize = (WARPS + 2) * BLOCK * 4;

/// Sorts the experts of tokens, `ids`\[M, K\], into groups of rows for [`grouped_linear`](super::grouped_linear), in the order of experts and, of
/// one expert, of tokens:
///
/// - `counts`\[X\]: how many of `ids` name each of the X experts;
/// - `expert`\[G\]: the expert of each group, `u32::MAX` of those that nobody uses;
/// - `rows`\[R\]: the token of each row of all groups, `u32::MAX` of those that fill the last group of an expert; R is G times the rows of a
///   group. [`embedding`](super::embedding) reads zeros there;
/// - `place`\[M, K\]: the row of each token and expert, for [`gather_sum`](super::gather_sum).
///
/// An id beyond the experts, and whoever finds no room, gets the place `u32::MAX`, which [`gather_sum`](super::gather_sum) reads as zeros;
/// `M · K / (R / G) + X` groups are enough for all. Exact, and the same at every run: a counting sort in shared memory, each warp with a run of tokens,
/// 256 experts at a time.
///
/// # Safety
/// Called by a megakernel, which gives each task its own tiles.
#[maco_macros::task(crate = crate, simt, shared = 10240, cpu = alone, tile())]
pub unsafe fn group_rows(
    cta: &mut Cta,
    #[read(.., ..)] ids: Tensor<u32, M, K>,
    #[write(..)] counts: Tensor<u32, X>,
    #[write(..)] expert: Tensor<u32, G>,
    #[write(..)] rows: Tensor<u32, R>,
    #[write(.., ..)] place: Tensor<u32, M, K>,
) {
    // SAFETY: passed on from the caller; all threads of the task are here.
    unsafe { sort(cta, ids, counts, expert, rows, place) }
}

#[cfg(not(target_arch = "nvptx64"))]
fn alone(ids: Tile<u32, 0, 0>, counts: Tile<u32, 1, 0>, expert: Tile<u32, 1, 0>, rows: Tile<u32, 1, 0>, place: Tile<u32, 0, 0>) {
    // SAFETY: the executor gives the task its own tiles; one thread is all.
    unsafe { sort(&mut Simt::alone_with(&mut Scratch::new()), ids, counts, expert, rows, place) }
}

/// Which of all ids a warp goes through, one for each lane at a time: those of a run of tokens.
struct Run {
    ids: Tile<u32, 0, 0>,
    first: u32,
    end: u32,
}

impl Run {
    /// That of warp `warp` of `warps`.
    #[inline(always)]
    fn new(ids: Tile<u32, 0, 0>, warp: u32, warps: u32) -> Run {
        let (tokens, each) = (ids.rows(), ids.rows().div_ceil(warps));
        let first = warp.saturating_mul(each).min(tokens);
        Run { ids, first, end: first + each.min(tokens - first) }
    }

    /// Calls `f` with token, number and id, in order; lanes that have none any more with an id that is nobody's, and a token behind the run.
    /// Sixteen ids are on their way before the first is needed.
    ///
    /// # Safety
    /// The tile is live, and nobody writes it. The whole warp calls.
    #[inline(always)]
    unsafe fn each(&self, warp: &Warp<'_>, mut f: impl FnMut(u32, u32, u32)) {
        let numbers = self.ids.cols();
        if numbers == 0 {
            return;
        }
        let (down, right) = (Warp::LANES / numbers, Warp::LANES % numbers);
        let next = |(token, n): (u32, u32)| {
            let over = (n + right >= numbers) as u32;
            (token + down + over, n + right - over * numbers)
        };
        let mut at = (self.first + warp.lane / numbers, warp.lane % numbers);
        while warp.any(at.0 < self.end) {
            let mut ahead = at;
            let mut load = |_: u32| {
                // Loaded whether it is there or not: the use of what a branch loads would wait in the branch. Somebody's is there, so the first is.
                let there = ahead.0 < self.end;
                let (token, n) = if there { ahead } else { (self.first, 0) };
                // SAFETY: the position is inside the tile.
                let id = unsafe { self.ids.pointer(token as i32, n as i32).read() };
                ahead = next(ahead);
                if there { id } else { u32::MAX }
            };
            macro_rules! each {
                ($($n:literal)*) => {
                    let ids = [$(load($n)),*];
                    $(
                        f(at.0, at.1, ids[$n]);
                        at = next(at);
                    )*
                };
            }
            each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        }
    }
}

/// # Safety
/// The tiles are the task's; all its threads call.
#[inline(always)]
unsafe fn sort(
    cta: &mut Simt<'_, SCRATCH>,
    ids: Tile<u32, 0, 0>,
    counts: Tile<u32, 1, 0>,
    expert: Tile<u32, 1, 0>,
    rows: Tile<u32, 1, 0>,
    place: Tile<u32, 0, 0>,
) {
    let (experts, groups, every) = (counts.cols(), expert.cols(), rows.cols());
    // Rows of a group; no panic, since there is nothing to do without groups.
    let size = every.checked_div(groups).unwrap_or(0);
    let (thread, threads) = (cta.thread, cta.threads);
    let (number, warps) = (thread / Warp::LANES, threads / Warp::LANES);
    let seen = cta.shared::<u32, 0, { WARPS * BLOCK }>();
    let first_rows = cta.shared::<u32, { 4 * WARPS * BLOCK }, BLOCK>();
    let used = cta.shared::<u32, { 4 * (WARPS + 1) * BLOCK }, BLOCK>();
    let own = number * BLOCK as u32;
    let run = Run::new(ids, number, warps);
    // Groups of the experts before this block.
    let (mut base, mut before) = (0, 0);
    // SAFETY: (of all accesses) positions are inside the tiles; between two barriers an element is one thread's, or only read.
    unsafe {
        loop {
            let block = (experts - base).min(BLOCK as u32);
            let in_block = |id: u32| id < experts && id.wrapping_sub(base) < block;
            {
                let warp = cta.warp();
                let mut x = warp.lane;
                while x < block {
                    seen.write(own + x, 0);
                    x += Warp::LANES;
                }
                warp.sync();
                run.each(&warp, |_, _, id| {
                    let alike = warp.matching(if in_block(id) { id } else { u32::MAX });
                    if in_block(id) && warp.lane == alike.trailing_zeros() {
                        let count = own + id - base;
                        seen.write(count, seen.read(count) + alike.count_ones());
                    }
                    warp.sync();
                });
            }
            cta.sync();
            // Of each expert: how many came in the runs before each one, and how many groups they need.
            let mut x = thread;
            while x < block {
                let (mut sum, mut warp) = (0, 0);
                while warp < warps {
                    let count = warp * BLOCK as u32 + x;
                    let here = seen.read(count);
                    seen.write(count, sum);
                    sum += here;
                    warp += 1;
                }
                counts.pointer(0, (base + x) as i32).write(sum);
                used.write(x, sum.div_ceil(size.max(1)));
                x += threads;
            }
            cta.sync();
            let groups_before = |end: u32| {
                let (mut sum, mut x) = (before, 0);
                while x < end {
                    sum += used.read(x);
                    x += 1;
                }
                sum
            };
            let mut x = thread;
            while x < block {
                let first = groups_before(x);
                first_rows.write(x, first.saturating_mul(size));
                let end = first.saturating_add(used.read(x)).min(groups);
                let mut group = first;
                while group < end {
                    expert.pointer(0, group as i32).write(base + x);
                    group += 1;
                }
                x += threads;
            }
            before = groups_before(block);
            cta.sync();
            {
                let warp = cta.warp();
                // What is left of the last group of each expert.
                let mut x = number;
                while x < block {
                    let first = first_rows.read(x);
                    let end = first.saturating_add(used.read(x).saturating_mul(size)).min(groups * size);
                    let mut row = first.saturating_add(counts.pointer(0, (base + x) as i32).read()).saturating_add(warp.lane);
                    while row < end {
                        rows.pointer(0, row as i32).write(u32::MAX);
                        row += Warp::LANES;
                    }
                    x += warps;
                }
                run.each(&warp, |token, n, id| {
                    let alike = warp.matching(if in_block(id) { id } else { u32::MAX });
                    let (mut row, mut earlier) = (u32::MAX, 0);
                    if in_block(id) {
                        earlier = seen.read(own + id - base);
                        let rank = (alike & ((1 << warp.lane) - 1)).count_ones();
                        row = first_rows.read(id - base).saturating_add(earlier + rank);
                    }
                    // All have read.
                    warp.sync();
                    if in_block(id) && warp.lane == alike.trailing_zeros() {
                        seen.write(own + id - base, earlier + alike.count_ones());
                    }
                    warp.sync();
                    let fits = row < groups * size;
                    if fits {
                        rows.pointer(0, row as i32).write(token);
                    }
                    // Whoever is nobody's is seen by the first block.
                    if token < run.end && (in_block(id) || base == 0 && id >= experts) {
                        place.pointer(token as i32, n as i32).write(if fits { row } else { u32::MAX });
                    }
                });
            }
            base += block;
            if base >= experts {
                break;
            }
        }
        let mut group = before.saturating_add(thread);
        while group < groups {
            expert.pointer(0, group as i32).write(u32::MAX);
            group += threads;
        }
        let mut row = before.saturating_mul(size).saturating_add(thread);
        while row < every {
            rows.pointer(0, row as i32).write(u32::MAX);
            row += threads;
        }
    }
}
