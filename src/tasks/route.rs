//! From the experts of each token to groups of rows that have one expert each, on the device.

use crate::{Simt, Tile};

/// Sorts the experts of tokens, `ids`\[M, K\], into groups of rows for [`grouped_linear`](super::grouped_linear), in the order of experts and, of
/// one expert, of tokens:
///
/// - `expert`\[G\]: the expert of each group, `u32::MAX` of those that nobody uses;
/// - `rows`\[R\]: the token of each row of all groups, `u32::MAX` of those that fill the last group of an expert; R is G times the rows of a
///   group. [`embedding`](super::embedding) reads zeros there;
/// - `place`\[M, K\]: the row of each token and expert, for [`gather_sum`](super::gather_sum).
///
/// `counts`\[X, C\] is scratch for X experts; C − 1 threads work, up to 256. An id beyond the experts, and whoever finds no room, gets the place
/// `u32::MAX`, which [`gather_sum`](super::gather_sum) reads as zeros; `M · K / (R / G) + X` groups are enough for all. Exact, and the same at
/// every run.
///
/// # Safety
/// Called by a megakernel, which gives each task its own tiles.
#[maco_macros::task(crate = crate, simt, cpu = alone, tile())]
pub unsafe fn group_rows(
    cta: &mut Cta,
    #[read(.., ..)] ids: Tensor<u32, M, K>,
    #[write(.., ..)] counts: Tensor<u32, X, C>,
    #[write(..)] expert: Tensor<u32, G>,
    #[write(..)] rows: Tensor<u32, R>,
    #[write(.., ..)] place: Tensor<u32, M, K>,
) {
    // SAFETY: passed on from the caller; all threads of the task are here.
    unsafe { sort(cta, ids, counts, expert, rows, place) }
}

#[cfg(not(target_arch = "nvptx64"))]
fn alone(ids: Tile<u32, 0, 0>, counts: Tile<u32, 0, 0>, expert: Tile<u32, 1, 0>, rows: Tile<u32, 1, 0>, place: Tile<u32, 0, 0>) {
    // SAFETY: the executor gives the task its own tiles; one thread is all.
    unsafe { sort(&Simt::alone(), ids, counts, expert, rows, place) }
}

/// Calls `f` with token, number and id of each id of tokens `first` to `end`.
///
/// # Safety
/// The tile is live, and nobody writes it; `end` is inside it.
#[inline(always)]
unsafe fn each(ids: Tile<u32, 0, 0>, first: u32, end: u32, f: impl Fn(u32, u32, u32)) {
    let mut token = first;
    while token < end {
        let mut k = 0;
        while k < ids.cols() {
            // SAFETY: the position is inside the tile.
            f(token, k, unsafe { ids.pointer(token as i32, k as i32).read() });
            k += 1;
        }
        token += 1;
    }
}

/// A counting sort. Each thread has a run of tokens, and a column of `counts`, whose last one is for all.
///
/// # Safety
/// The tiles are the task's; all its threads call.
#[inline(always)]
unsafe fn sort(
    cta: &Simt<'_>,
    ids: Tile<u32, 0, 0>,
    counts: Tile<u32, 0, 0>,
    expert: Tile<u32, 1, 0>,
    rows: Tile<u32, 1, 0>,
    place: Tile<u32, 0, 0>,
) {
    let (experts, groups, every) = (counts.rows(), expert.cols(), rows.cols());
    let threads = cta.threads.min(counts.cols().saturating_sub(1));
    let (thread, last) = (cta.thread, threads as i32);
    // No panic: what is divided by is 0 only where there is nothing to do.
    let size = every.checked_div(groups).unwrap_or(0);
    let tokens = ids.rows();
    let run = tokens.checked_div(threads).map_or(0, |run| run + (run * threads < tokens) as u32);
    let works = thread < threads && size > 0;
    let (first, end) = ((thread * run).min(tokens), (thread * run + run).min(tokens));
    // SAFETY: (of all accesses) positions are inside the tiles; between two barriers an element is one thread's, or only read.
    unsafe {
        let mut at = thread;
        while at < every {
            rows.pointer(0, at as i32).write(u32::MAX);
            at += cta.threads;
        }
        let mut token = thread;
        while token < tokens {
            let mut k = 0;
            while k < ids.cols() {
                place.pointer(token as i32, k as i32).write(u32::MAX);
                k += 1;
            }
            token += cta.threads;
        }
        if works {
            let mut x = 0;
            while x < experts {
                counts.pointer(x as i32, thread as i32).write(0);
                x += 1;
            }
            each(ids, first, end, |_, _, id| {
                if id < experts {
                    let count = counts.pointer(id as i32, thread as i32);
                    count.write(count.read() + 1);
                }
            });
        }
        cta.sync();
        // Of each expert: how many came before a thread's, and how many groups there are.
        let mut x = thread;
        while x < experts && threads > 0 {
            let (mut sum, mut n) = (0, 0);
            while n < last {
                let count = counts.pointer(x as i32, n);
                let here = count.read();
                count.write(sum);
                sum += here;
                n += 1;
            }
            counts.pointer(x as i32, last).write(sum.div_ceil(size.max(1)));
            x += cta.threads;
        }
        cta.sync();
        if thread == 0 && threads > 0 {
            let (mut group, mut x) = (0, 0);
            while x < experts {
                let count = counts.pointer(x as i32, last);
                group += count.read();
                count.write(group);
                x += 1;
            }
        }
        cta.sync();
        let mut group = thread;
        while group < groups {
            // The first expert that ends behind it.
            let (mut x, mut of) = (0, u32::MAX);
            while x < experts && of == u32::MAX && threads > 0 {
                if counts.pointer(x as i32, last).read() > group {
                    of = x;
                }
                x += 1;
            }
            expert.pointer(0, group as i32).write(of);
            group += cta.threads;
        }
        if works {
            each(ids, first, end, |token, k, id| {
                if id < experts {
                    let count = counts.pointer(id as i32, thread as i32);
                    let before = count.read();
                    count.write(before + 1);
                    // Where the expert before ends.
                    let group = if id == 0 { 0 } else { counts.pointer(id as i32 - 1, last).read() };
                    let row = group.saturating_mul(size).saturating_add(before);
                    if row < groups * size {
                        rows.pointer(0, row as i32).write(token);
                        place.pointer(token as i32, k as i32).write(row);
                    }
                }
            });
        }
    }
}
