//! Routing of a mixture of experts: sorts tokens by expert into groups of rows with one expert each, on the device.

use crate::{ReadTile, Scratch, Simt, Smem, Tile, Warp, bf16};

/// Threads that count, each a run of ids.
const RUNS: usize = 256;
/// Ids of a run, at most.
const RUN: usize = 128;
/// From one run to the next in scratch: one more, so that their ids at the same place lie in different banks.
const RUN_STRIDE: usize = RUN + 1;
/// Experts that are counted at a time.
const BLOCK: usize = 64;
/// What stands for an id that is another block's, and for one that is nobody's. Both are counted as experts are, for nothing.
const OTHERS: u32 = BLOCK as u32;
const NOBODY: u32 = OTHERS + 1;
/// From an expert's counts, one of 16 bits for each run, to the next one's.
const COUNT_STRIDE: usize = RUNS + 2;
/// All of them, as parts of scratch are: to a multiple of 16 bytes.
const COUNTS: usize = ((BLOCK + 2) * COUNT_STRIDE).next_multiple_of(8);
/// Parts of the runs that are summed side by side.
const PARTS: usize = RUNS / BLOCK;

/// Where in scratch what lies, behind the ids.
const COUNTS_AT: usize = 4 * RUNS * RUN_STRIDE;
const SUMS_AT: usize = COUNTS_AT + 2 * COUNTS;
const FOUND_AT: usize = SUMS_AT + 4 * PARTS * BLOCK;
const USED_AT: usize = FOUND_AT + 4 * BLOCK;
const FIRST_AT: usize = USED_AT + 4 * BLOCK;
/// Bytes of scratch.
const SCRATCH: usize = FIRST_AT + 4 * (BLOCK + 4);

/// No row: of an id that is nobody's, or finds no room.
const NOWHERE: u32 = u32::MAX;
/// Of an id that is another block's.
const ELSEWHERE: u32 = u32::MAX - 1;

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
/// `M · K / (R / G) + X` groups are enough for all. Exact, and the same at every run: a counting sort in shared memory of 32768 ids at a time, each thread
/// with a run of them, and 64 experts at a time.
///
/// # Safety
/// Called by a megakernel, which gives each task its own tiles.
#[maco_macros::task(crate = crate, simt, shared = 167968, cpu = alone, tile())]
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
fn alone(ids: ReadTile<u32, 0, 0>, counts: Tile<u32, 1, 0>, expert: Tile<u32, 1, 0>, rows: Tile<u32, 1, 0>, place: Tile<u32, 0, 0>) {
    // SAFETY: the executor gives the task its own tiles; one thread is all.
    unsafe { sort(&mut Simt::alone_with(&mut Scratch::new()), ids, counts, expert, rows, place) }
}

/// Ids that lie in scratch together: each thread has a run of them, and the next thread those behind it.
#[derive(Clone, Copy)]
struct Piece {
    /// The token and the number of the first.
    first: (u32, u32),
    /// How many there are.
    count: u32,
    /// Ids of a run: a power of two, 16 at least, or 0 if there are none at all.
    run: u32,
}

impl Piece {
    /// Where the id at a position of the piece lies in scratch.
    #[inline(always)]
    fn slot(self, position: u32) -> u32 {
        slot(position >> (self.run.trailing_zeros() % u32::BITS), position & self.run.wrapping_sub(1))
    }
}

/// Where id `i` of a run lies in scratch.
#[inline(always)]
fn slot(run: u32, i: u32) -> u32 {
    run * RUN_STRIDE as u32 + i
}

/// A slot of which `count` more are there, itself among them: none is beyond them, and a minimum takes less than to ask.
#[inline(always)]
fn within(slot: u32, count: u32) -> u32 {
    slot.min((RUNS * RUN_STRIDE) as u32 - count)
}

/// Where a run's count of expert `x` of the block lies.
#[inline(always)]
fn count(run: u32, x: u32) -> u32 {
    (x * COUNT_STRIDE as u32 + run).min(COUNTS as u32 - 1)
}

/// Calls `f` for what a thread has of experts of the block and parts of the runs, with where their counts lie, two in a word.
#[inline(always)]
fn each_part(thread: u32, threads: u32, f: impl Fn(u32, u32, u32, u32)) {
    let (words, mut at) = (threads.div_ceil(2), thread);
    let each = words.div_ceil(PARTS as u32);
    while at < (BLOCK * PARTS) as u32 {
        let (x, part) = (at % BLOCK as u32, at / BLOCK as u32);
        let first = x * (COUNT_STRIDE / 2) as u32;
        f(x, part, first + (part * each).min(words), first + (part * each + each).min(words));
        at += threads;
    }
}

/// Four ids, or rows, side by side.
#[repr(align(16))]
struct Four([u32; 4]);

/// All ids, as they are divided among pieces and threads.
#[derive(Clone, Copy)]
struct Ids {
    /// How many tokens there are, and ids of each, at least one.
    tokens: u32,
    each: u32,
    threads: u32,
}

impl Ids {
    /// Token and number of the id `by` behind that of `number` of `token`.
    #[inline(always)]
    fn after(self, (token, number): (u32, u32), by: u32) -> (u32, u32) {
        let (down, right) = match number.checked_add(by) {
            Some(number) => (number / self.each, number % self.each),
            // So many ids has a token, far more than `by`.
            None => (1, number.wrapping_add(by).wrapping_sub(self.each)),
        };
        (token.saturating_add(down), right)
    }

    /// The piece that begins at `first`.
    #[inline(always)]
    fn piece(self, first: (u32, u32)) -> Piece {
        let most = self.threads * RUN as u32;
        let left = (self.tokens - first.0) as u64 * self.each as u64 - first.1 as u64;
        let count = if left < most as u64 { left as u32 } else { most };
        Piece { first, count, run: if count == 0 { 0 } else { count.div_ceil(self.threads).next_power_of_two().max(16) } }
    }

    /// The one behind a piece, if there is any.
    #[inline(always)]
    fn next(self, piece: Piece) -> Option<Piece> {
        let at = self.after(piece.first, self.threads * RUN as u32);
        if at.0 < self.tokens { Some(self.piece(at)) } else { None }
    }

    /// Whether a tile of all ids, or of their rows, is made of aligned fours that lie one behind the other, and a piece of whole ones.
    #[inline(always)]
    fn is_flat(self, address: impl Fn(i32, i32) -> u64, piece: Piece) -> bool {
        let (first, right, down) = (address(0, 0), address(0, 1), address(1, 0));
        (right == first + 4) & (down == first + 4 * self.each as u64) & (first & 15 == 0) & piece.count.is_multiple_of(4)
    }

    /// Calls `f` with four positions of fours at a time, those of all threads side by side; what is behind the last id as well.
    #[inline(always)]
    fn fours(self, piece: Piece, thread: u32, f: impl Fn([u32; 4])) {
        let mut at = 4 * thread;
        while at < piece.run * self.threads {
            let step = 4 * self.threads;
            f([at, at + step, at + 2 * step, at + 3 * step]);
            at += 4 * step;
        }
    }

    /// Calls `f` with eight positions at a time, those of all threads side by side, and with where each lies in the tile; what is behind the last id as well.
    #[inline(always)]
    fn eights(self, address_of: impl Fn(i32, i32) -> u64, piece: Piece, thread: u32, f: impl Fn([(u32, u64); 8])) {
        if piece.run == 0 {
            return;
        }
        let (token, number) = self.after(piece.first, thread);
        let (down, right) = ((self.threads / self.each) as i32, self.threads % self.each);
        let base = address_of(0, 0);
        // A step is so far, or to the beginning of the token behind it.
        let (near, far) = (
            address_of(down, right as i32).wrapping_sub(base),
            address_of(down + 1, (right as i32).wrapping_sub(self.each as i32)).wrapping_sub(base),
        );
        let (mut position, mut number, mut address) = (thread, number, address_of(token as i32, number as i32));
        while position < piece.run * self.threads {
            let mut next = || {
                let here = (position, address);
                let is_over = self.each - number <= right;
                number = if is_over { number.wrapping_add(right).wrapping_sub(self.each) } else { number + right };
                address = address.wrapping_add(if is_over { far } else { near });
                position += self.threads;
                here
            };
            f([next(), next(), next(), next(), next(), next(), next(), next()]);
        }
    }

    /// Copies a piece's ids to scratch, as `short` says them; behind the last one nobody's. Eight or more of each thread are on their way before the first is needed.
    ///
    /// # Safety
    /// The tile is that of all ids, live, and nobody writes it.
    #[inline(always)]
    unsafe fn fetch(
        self,
        ids: ReadTile<u32, 0, 0>,
        piece: Piece,
        thread: u32,
        numbers: Smem<'_, u32, { RUNS * RUN_STRIDE }>,
        short: impl Fn(u32) -> u32,
    ) {
        let first = ids.pointer(piece.first.0 as i32, piece.first.1 as i32);
        if self.is_flat(|row, col| ids.pointer(row, col) as u64, piece) {
            self.fours(piece, thread, |[a, b, c, d]| {
                // Loaded whether they are there or not: the use of what a branch loads would wait in the branch. The first are there.
                // SAFETY: four ids of the piece, at a multiple of 16 bytes because the tile is flat.
                let load = |at: u32| unsafe { first.add(if at < piece.count { at as usize } else { 0 }).cast::<Four>().read() };
                let loaded = [load(a), load(b), load(c), load(d)];
                let put = |at: u32, Four([a, b, c, d]): &Four| {
                    let is_there = at < piece.count;
                    let short = |id: u32| short(if is_there { id } else { NOWHERE });
                    numbers.write_four(within(piece.slot(at), 4), [short(*a), short(*b), short(*c), short(*d)]);
                };
                put(a, &loaded[0]);
                put(b, &loaded[1]);
                put(c, &loaded[2]);
                put(d, &loaded[3]);
            });
            return;
        }
        self.eights(
            |row, col| ids.pointer(row, col) as u64,
            piece,
            thread,
            |places| {
                let load = |n: usize| {
                    let (position, address) = places[n];
                    let address = if position < piece.count { address as *const u32 } else { first };
                    // SAFETY: as above.
                    unsafe { address.read() }
                };
                let loaded = [load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)];
                let put = |n: usize| {
                    numbers.write(within(piece.slot(places[n].0), 1), short(if places[n].0 < piece.count { loaded[n] } else { NOWHERE }))
                };
                put(0);
                put(1);
                put(2);
                put(3);
                put(4);
                put(5);
                put(6);
                put(7);
            },
        );
    }

    /// Copies the rows of a piece's ids from scratch to `place`, but for those that are elsewhere.
    ///
    /// # Safety
    /// The tile is of as many elements as there are ids, and the task's.
    #[inline(always)]
    unsafe fn place(
        self,
        place: Tile<u32, 0, 0>,
        piece: Piece,
        thread: u32,
        numbers: Smem<'_, u32, { RUNS * RUN_STRIDE }>,
        all_here: bool,
    ) {
        if all_here && self.is_flat(|row, col| place.pointer(row, col) as u64, piece) {
            let first = place.pointer(piece.first.0 as i32, piece.first.1 as i32);
            self.fours(piece, thread, |[a, b, c, d]| {
                let put = |at: u32| {
                    if at < piece.count {
                        let rows = numbers.read_four(within(piece.slot(at), 4));
                        // SAFETY: four rows of the piece's ids, at a multiple of 16 bytes because the tile is flat.
                        unsafe { first.add(at as usize).cast::<Four>().write(Four(rows)) };
                    }
                };
                put(a);
                put(b);
                put(c);
                put(d);
            });
            return;
        }
        self.eights(
            |row, col| place.pointer(row, col) as u64,
            piece,
            thread,
            |places| {
                let put = |n: usize| {
                    let (position, address) = places[n];
                    let row = numbers.read(within(piece.slot(position), 1));
                    if (position < piece.count) & (row != ELSEWHERE) {
                        // SAFETY: the row of one of the piece's ids.
                        unsafe { (address as *mut u32).write(row) };
                    }
                };
                put(0);
                put(1);
                put(2);
                put(3);
                put(4);
                put(5);
                put(6);
                put(7);
            },
        );
    }
}

/// # Safety
/// The tiles are the task's; all its threads call.
#[inline(always)]
unsafe fn sort(
    cta: &mut Simt<'_, SCRATCH>,
    ids: ReadTile<u32, 0, 0>,
    counts: Tile<u32, 1, 0>,
    expert: Tile<u32, 1, 0>,
    rows: Tile<u32, 1, 0>,
    place: Tile<u32, 0, 0>,
) {
    let (experts, groups, every) = (counts.cols(), expert.cols(), rows.cols());
    // Rows of a group; no panic, since there is nothing to do without groups.
    let size = every.checked_div(groups).unwrap_or(0);
    let limit = (groups * size).min(ELSEWHERE);
    let (thread, threads) = (cta.thread, cta.threads);
    let (lane, number, warps) = (cta.warp().lane, thread / Warp::LANES, threads / Warp::LANES);
    let all = Ids { tokens: if ids.cols() == 0 { 0 } else { ids.rows() }, each: ids.cols().max(1), threads };
    let numbers = cta.shared::<u32, 0, { RUNS * RUN_STRIDE }>();
    // Numbers of 16 bits, and two at a time.
    let seen = cta.shared::<bf16, COUNTS_AT, COUNTS>();
    let pairs = cta.shared::<u32, COUNTS_AT, { COUNTS / 2 }>();
    let sums = cta.shared::<u32, SUMS_AT, { PARTS * BLOCK }>();
    let found = cta.shared::<u32, FOUND_AT, BLOCK>();
    let used = cta.shared::<u32, USED_AT, BLOCK>();
    let first_rows = cta.shared::<u32, FIRST_AT, { BLOCK + 4 }>();
    let (first_row, stride) = (rows.pointer(0, 0), ((rows.pointer(0, 1) as u64).wrapping_sub(rows.pointer(0, 0) as u64) / 4) as u32);
    let start = all.piece((0, 0));
    let is_one = all.next(start).is_none();
    // Groups of the experts before this block.
    let (mut base, mut before) = (0, 0);
    // SAFETY: (of all accesses) positions are inside the tiles; between two barriers an element is one thread's, or only read.
    unsafe {
        loop {
            let block = (experts - base).min(BLOCK as u32);
            // Whoever is nobody's is seen by the first block.
            let nobody = if base == 0 { NOBODY } else { OTHERS };
            let short = |id: u32| {
                let x = id.wrapping_sub(base);
                let other = if id < experts { OTHERS } else { nobody };
                if x < block { x } else { other }
            };
            let pair = |at: u32| at.min((COUNTS / 2) as u32 - 1);
            let sum_of = |part: u32, x: u32| sums.read((part * BLOCK as u32 + x) % (PARTS * BLOCK) as u32);
            let sum_of_all = |x: u32| sum_of(0, x) + sum_of(1, x) + sum_of(2, x) + sum_of(3, x);
            let mut x = thread;
            while x < block {
                found.write(x, 0);
                x += threads;
            }
            // All pieces are counted, then all are ranked. If there is one, it is still there.
            let (mut piece, mut ranks) = (start, false);
            loop {
                if !(ranks && is_one) {
                    all.fetch(ids, piece, thread, numbers, short);
                    let mut at = thread;
                    while at < (COUNTS / 2) as u32 {
                        pairs.write(at, 0);
                        at += threads;
                    }
                    cta.sync();
                    let mut i = 0;
                    while i < piece.run {
                        let four = numbers.read_four(within(slot(thread, i), 4));
                        let add = |x: u32| {
                            let at = count(thread, x);
                            seen.write(at, bf16::from_bits(seen.read(at).to_bits() + 1));
                        };
                        add(four[0]);
                        add(four[1]);
                        add(four[2]);
                        add(four[3]);
                        i += 4;
                    }
                    cta.sync();
                    each_part(thread, threads, |x, part, mut at, end| {
                        let mut sum = 0;
                        while at < end {
                            let two = pairs.read(pair(at));
                            sum += (two & 0xffff) + (two >> 16);
                            at += 1;
                        }
                        sums.write((part * BLOCK as u32 + x) % (PARTS * BLOCK) as u32, sum);
                    });
                    cta.sync();
                    // Of each run and expert: how many came in the runs before.
                    each_part(thread, threads, |x, part, mut at, end| {
                        let (mut sum, mut earlier) = (0, 0);
                        while earlier < part {
                            sum += sum_of(earlier, x);
                            earlier += 1;
                        }
                        while at < end {
                            let two = pairs.read(pair(at));
                            let odd = sum + (two & 0xffff);
                            pairs.write(pair(at), sum | odd << 16);
                            sum = odd + (two >> 16);
                            at += 1;
                        }
                    });
                    cta.sync();
                }
                if ranks {
                    let (mut token, mut number) = all.after(piece.first, thread * piece.run);
                    let mut i = 0;
                    while i < piece.run {
                        let four = numbers.read_four(within(slot(thread, i), 4));
                        let mut rank = |x: u32| {
                            let at = count(thread, x);
                            let earlier = seen.read(at).to_bits();
                            seen.write(at, bf16::from_bits(earlier.wrapping_add(1)));
                            let row = first_rows.read(x.min(NOBODY)).saturating_add(earlier as u32);
                            let fits = row < limit;
                            if fits {
                                first_row.wrapping_add((row as u64 * stride as u64) as usize).write(token);
                            }
                            let nowhere = if x == OTHERS { ELSEWHERE } else { NOWHERE };
                            number += 1;
                            token += (number == all.each) as u32;
                            number = if number == all.each { 0 } else { number };
                            if fits { row } else { nowhere }
                        };
                        let rows = [rank(four[0]), rank(four[1]), rank(four[2]), rank(four[3])];
                        numbers.write_four(within(slot(thread, i), 4), rows);
                        i += 4;
                    }
                    cta.sync();
                    all.place(place, piece, thread, numbers, experts <= BLOCK as u32);
                    let mut x = thread;
                    while x < block {
                        first_rows.write(x, first_rows.read(x).saturating_add(sum_of_all(x)));
                        x += threads;
                    }
                } else {
                    let mut x = thread;
                    while x < block {
                        found.write(x, found.read(x) + sum_of_all(x));
                        x += threads;
                    }
                }
                if let Some(next) = all.next(piece) {
                    piece = next;
                    // Nobody needs any more what is there.
                    cta.sync();
                    continue;
                }
                if ranks {
                    break;
                }
                let mut x = thread;
                while x < block {
                    let all = found.read(x);
                    counts.pointer(0, (base + x) as i32).write(all);
                    used.write(x, all.div_ceil(size.max(1)));
                    x += threads;
                }
                cta.sync();
                let groups_before = |end: u32| {
                    let (mut sum, mut x) = (before, 0u32);
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
                // Those of no expert find no room.
                let mut x = OTHERS + thread;
                while x <= NOBODY {
                    first_rows.write(x, NOWHERE);
                    x += threads;
                }
                cta.sync();
                // What is left of the last group of each expert.
                let mut x = number;
                while x < block {
                    let first = first_rows.read(x);
                    let end = first.saturating_add(used.read(x).saturating_mul(size)).min(groups * size);
                    let mut row = first.saturating_add(found.read(x)).saturating_add(lane);
                    while row < end {
                        rows.pointer(0, row as i32).write(NOWHERE);
                        row += Warp::LANES;
                    }
                    x += warps;
                }
                before = groups_before(block);
                (piece, ranks) = (start, true);
                cta.sync();
            }
            base += block;
            if base >= experts {
                break;
            }
            cta.sync();
        }
        let mut group = before.saturating_add(thread);
        while group < groups {
            expert.pointer(0, group as i32).write(NOWHERE);
            group += threads;
        }
        let mut row = before.saturating_mul(size).saturating_add(thread);
        while row < every {
            rows.pointer(0, row as i32).write(NOWHERE);
            row += threads;
        }
    }
}
