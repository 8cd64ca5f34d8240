//! Sums of rows at indices: `y[ids[i], ..] += x[i, ..]`, in the order of i, rounded once.
//!
//! A row of y is one warp's, which keeps its sum in registers until all that is added to it has come. So it has to find the indices that name one row: in shared
//! memory they are chained, each with the next one of its chain. Where there are more than find room, each warp lists those of some of its rows at a time.

use crate::data::element::Element;
use crate::data::inputs::Inputs;
use crate::data::reader::Reader;
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::hardware::{fence, memory, special, warp};
use crate::math::zip8;
use crate::operations::scatter::NONE;
use crate::operations::simt_consumer::SimtConsumer;
use crate::sync::ring::{Ring, Stage};
use maco_abi::PAGE_BYTES;

/// Most pages of chains or lists.
const TABLE: u32 = 8;
/// Most indices that are chained all at once, and most chains: a word of shared memory each.
const CHAINED: u32 = TABLE / 2 * PAGE_BYTES / 4;
/// Most warps that share them.
const WARPS: u32 = 8;
const _: () = assert!(special::CONSUMER_THREADS / warp::LANES <= WARPS);
/// Where there are more indices: chains of one warp, and most indices that it lists at a time. Each has two words, where it is and the next one of its chain.
const HEADS: u32 = 1024;
const LISTED: u32 = 1536;
const _: () = assert!(WARPS * (HEADS + 2 * LISTED) * 4 <= TABLE * PAGE_BYTES);
/// Terms of a sum that are added one after the other; then another part begins. Fewer roundings of a total that is large already: below (N / 64 + 64) of N,
/// and not N (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §4.2, blocked summation).
pub(crate) const TERMS: u32 = 64;
/// What leaves all it is added to as it is, −0 too.
pub(crate) const NOTHING: f32 = -0.0;

/// Chains of the indices `ids`, of which there is one for each of the rows of y that share their last bits.
#[derive(Clone, Copy)]
struct Chains {
    /// How many, a power of two; 0: there are none.
    count: u32,
    /// Pages of all words.
    pages: u32,
    /// The indices do not find room all at once.
    is_listed: bool,
}

impl Chains {
    const NONE: Chains = Chains { count: 0, pages: 0, is_listed: false };

    #[inline(always)]
    fn of<E: Element, const J: usize>(ids: Tile<u32, 1, 0>, y: Tile<E, 0, J>, task: Task) -> Chains {
        let indices = ids.cols();
        if !task.has_bulk_rows() | (indices == 0) | (y.rows() == 0) | (y.cols() == 0) {
            return Chains::NONE;
        }
        if indices > CHAINED {
            return Chains { count: HEADS, pages: TABLE, is_listed: true };
        }
        // No chain is that of two warps.
        let count = indices.min(y.rows()).next_power_of_two().max(WARPS);
        Chains { count, pages: ((indices + count) * 4).div_ceil(PAGE_BYTES), is_listed: false }
    }
}

/// Rows of y whose last bits are given. All rows of one warp at first, and half as many with each bit more.
#[derive(Clone, Copy)]
struct Rows {
    mask: u32,
    bits: u32,
}

impl Rows {
    #[inline(always)]
    fn has(self, row: u32) -> bool {
        row & self.mask == self.bits
    }

    /// Whether it is one of `rows` rows at most.
    #[inline(always)]
    fn is_one(self, rows: u32) -> bool {
        rows.wrapping_sub(1) <= self.mask
    }

    /// The first half of them.
    #[inline(always)]
    fn half(self) -> Rows {
        Rows { mask: self.mask << 1 | 1, ..self }
    }

    /// What comes when these are done, of the rows of a warp among `warps`: the other half of the smallest part of which this is the first half.
    #[inline(always)]
    fn next(mut self, warps: u32) -> Option<Rows> {
        while self.mask >= warps {
            let last = self.mask ^ self.mask >> 1;
            if self.bits & last == 0 {
                return Some(Rows { bits: self.bits | last, ..self });
            }
            self = Rows { mask: self.mask >> 1, bits: self.bits ^ last };
        }
        None
    }
}

/// The indices of `rows` that are added next: entries from 0 to before `end`, chained from shared address `at` on; a link is an entry and 1, or 0.
#[derive(Clone, Copy)]
struct Chained {
    at: u32,
    /// Chains, a power of two. 0: they are not chained.
    count: u32,
    end: u32,
    /// Last bits of a row that do not tell its chain. 0: all warps' chains lie together, and an entry is an index. Else this warp's are by themselves, and of an
    /// entry it is written which index it is.
    shift: u32,
    rows: Rows,
}

impl Chained {
    #[inline(always)]
    fn chain(self, id: u32) -> u32 {
        id >> self.shift & (self.count - 1)
    }

    #[inline(always)]
    fn head(self, chain: u32) -> u32 {
        self.at + chain * 4
    }

    #[inline(always)]
    fn link(self, entry: u32) -> u32 {
        self.at + (self.count + entry) * 4
    }

    #[inline(always)]
    fn listed(self, entry: u32) -> u32 {
        self.link(LISTED + entry)
    }

    /// The index that is entry `entry`.
    ///
    /// # Safety
    /// It is an entry, and the pages are the consumers'.
    #[inline(always)]
    unsafe fn index(self, entry: u32) -> u32 {
        if self.shift == 0 {
            entry
        } else {
            // SAFETY: passed on from the caller; an entry's word is this warp's.
            unsafe { memory::load_shared(self.listed(entry)) }
        }
    }
}

/// Loader: hands out the pages of the chains, if there are any.
///
/// # Safety
/// Called by the loader thread, in the same order as consumers call [`SimtConsumer::index_add`].
#[inline(always)]
pub unsafe fn reserve<E: Element, const J: usize>(ring: &mut Ring, ids: Tile<u32, 1, 0>, y: Tile<E, 0, J>, task: Task) {
    let chains = Chains::of(ids, y, task);
    if chains.count > 0 {
        // SAFETY: passed on from the caller. Nothing is copied: the stage is full when it is theirs.
        unsafe { ring.acquire(chains.pages, 0, |_| ()) };
    }
}
impl SimtConsumer {
    /// `y[ids[i], ..] += x[i, ..]`. A row of y is one warp's, which adds all that names it in its order, and then rounds. Without pages, in a body with other
    /// operations, it searches the indices instead of chaining them.
    #[inline(always)]
    pub fn index_add<E: Element<Value = f32>, const J: usize>(
        &mut self,
        ids: Tile<u32, 1, 0>,
        x: Tile<E, 0, J>,
        y: Tile<E, 0, J>,
        task: Task,
    ) {
        let chains = if self.ring.is_some() { Chains::of(ids, y, task) } else { Chains::NONE };
        let (mut held, mut at) = (Stage::NONE, 0);
        if chains.count > 0 {
            // SAFETY: all consumers run the task; the loader reckons the same pages from the same tiles.
            (held, at) = unsafe { self.ring.wait_full(chains.pages) };
            // Who is let through without the pages has nothing to do any more: the CTA stops.
            if !warp::all(held.is_some()) {
                return self.release(held.bit());
            }
        }
        let (warps, own) = (self.threads / self.lanes, self.thread / self.lanes);
        let mut rows = Rows { mask: warps - 1, bits: own };
        loop {
            let mut chained = Chained { at, count: chains.count, end: ids.cols(), shift: 0, rows };
            if chains.is_listed {
                chained.at += own * (HEADS + 2 * LISTED) * 4;
                chained.shift = rows.mask.count_ones();
                let listed = self.list(ids, y.rows(), chained);
                if listed <= LISTED {
                    chained.end = listed;
                } else if !rows.is_one(y.rows()) {
                    rows = rows.half();
                    continue;
                } else {
                    // One row, which many indices name: they are searched for.
                    (chained.count, chained.shift) = (0, 0);
                }
            }
            if chained.count > 0 {
                self.chain(ids, y.rows(), chained);
            }
            self.add_chained(ids, x, y, chained);
            match rows.next(warps) {
                Some(next) => rows = next,
                None => break,
            }
        }
        if chains.count > 0 {
            // The pages' next bytes come through the other proxy.
            fence::proxy_async_shared();
            self.release(held.bit());
        }
    }

    /// Lists the indices of some of its rows in their order. How many there are: if they do not find room, more than do.
    #[inline(always)]
    fn list(self, ids: Tile<u32, 1, 0>, rows: u32, chained: Chained) -> u32 {
        let (count, lane, ids) = (ids.cols(), self.lane(), ids.readers(false));
        let (mut first, mut listed) = (0, 0);
        // The list from before is not read any more.
        warp::sync();
        while first < count && listed <= LISTED {
            let i = |n: u32| first + n * self.lanes + lane;
            let id = |n: u32| if i(n) < count { ids.at(0, i(n) as i32) } else { NONE };
            let named = [id(0), id(1), id(2), id(3)];
            let mut put = |n: u32| {
                let id = named[n as usize];
                let is_there = id < rows && chained.rows.has(id);
                let there = warp::ballot(is_there);
                let entry = listed + (there & ((1 << lane) - 1)).count_ones();
                if is_there && entry < LISTED {
                    // SAFETY: a word of the pages, which are the consumers', and of this warp's part of them.
                    unsafe { memory::store_shared(chained.listed(entry), i(n)) };
                }
                listed += there.count_ones();
            };
            put(0);
            put(1);
            put(2);
            put(3);
            first += 4 * self.lanes;
        }
        warp::sync();
        listed
    }

    /// What entry `entry` names, if it is one of this warp's rows; else none.
    #[inline(always)]
    fn own_id(self, ids: &Reader<u32, 1, 0>, entry: u32, rows: u32, chained: Chained) -> u32 {
        // SAFETY: if so, it is an entry, and the pages are the consumers'.
        let id = if entry < chained.end { ids.at(0, unsafe { chained.index(entry) } as i32) } else { NONE };
        if id < rows && chained.rows.has(id) { id } else { NONE }
    }

    /// Chains the entries, from the last one on. A chain is one warp's: no other looks at it.
    #[inline(always)]
    fn chain(self, ids: Tile<u32, 1, 0>, rows: u32, chained: Chained) {
        let (warps, own, lane) = (self.threads / self.lanes, self.thread / self.lanes, self.lane());
        // The links from before are not read any more.
        warp::sync();
        let is_shared = chained.shift == 0;
        let mut chain = if is_shared { own + lane * warps } else { lane };
        while chain < chained.count {
            // SAFETY: (of all accesses to the chains) a word of the pages, which are the consumers', and of this warp's chain.
            unsafe { memory::store_shared(chained.head(chain), 0) };
            chain += if is_shared { warps * self.lanes } else { self.lanes };
        }
        warp::sync();
        let ids = ids.readers(false);
        let mut above = chained.end;
        while above > 0 {
            above = (above - 1) / self.lanes * self.lanes;
            let entry = above + lane;
            let id = self.own_id(&ids, entry, rows, chained);
            let chain = if id == NONE { NONE } else { chained.chain(id) };
            let same = warp::matching(chain);
            let later = same >> lane >> 1;
            if id != NONE {
                // SAFETY: as above.
                unsafe {
                    let next = if later != 0 { entry + later.trailing_zeros() + 2 } else { memory::load_shared(chained.head(chain)) };
                    memory::store_shared(chained.link(entry), next);
                }
            }
            // The head has been read before it is another.
            warp::sync();
            if id != NONE && same & ((1 << lane) - 1) == 0 {
                // SAFETY: as above.
                unsafe { memory::store_shared(chained.head(chain), entry + 1) };
            }
            warp::sync();
        }
    }

    /// The first index from `first` to before `end` that is `row`: all lanes look together.
    #[inline(always)]
    fn find(self, ids: Tile<u32, 1, 0>, first: u32, end: u32, row: u32) -> u32 {
        let ids = ids.readers(false);
        let mut from = first;
        while from < end {
            let i = from + self.lane();
            let found = warp::ballot(i < end && ids.at(0, i as i32) == row);
            if found != 0 {
                return from + found.trailing_zeros();
            }
            from += self.lanes;
        }
        NONE
    }

    /// Adds what the entries of `chained` name. Aligned rows that are named once come four at a time, of four bytes two; of others four terms are on their way.
    #[inline(always)]
    fn add_chained<E: Element<Value = f32>, const J: usize>(
        self,
        ids: Tile<u32, 1, 0>,
        x: Tile<E, 0, J>,
        y: Tile<E, 0, J>,
        chained: Chained,
    ) {
        let (rows, cols, lane) = (y.rows(), y.cols(), self.lane());
        let (wide, is_chained) = (x.wide() && y.wide() && cols.is_multiple_of(8), chained.count > 0);
        let readers = ids.readers(false);
        let is_one_row = rows.wrapping_sub(1) >> chained.shift < chained.count;
        let block = |tile: Tile<E, 0, J>, row: u32, col: u32| {
            let is_there = row != NONE && col < cols;
            if wide {
                // SAFETY: if so, a whole block of aligned rows inside the tensor.
                unsafe { E::eight_if(is_there, tile.pointer(row as i32, col as i32)) }
            } else {
                tile.block(false, if is_there { row } else { NONE }, col)
            }
        };
        let mut window = 0;
        while window < chained.end {
            let entry = window + lane;
            let id = self.own_id(&readers, entry, rows, chained);
            let (mut is_first, mut link) = (id != NONE, 0);
            if is_chained && is_first {
                // SAFETY: (of all) as in `chain`; this entry is in the chain.
                unsafe {
                    link = memory::load_shared(chained.link(entry));
                    let mut before = memory::load_shared(chained.head(chained.chain(id)));
                    while before != entry + 1 {
                        if readers.at(0, chained.index(before - 1) as i32) == id {
                            is_first = false;
                            break;
                        }
                        before = memory::load_shared(chained.link(before - 1));
                    }
                }
            }
            let is_alone = is_chained && wide && link == 0;
            let mut left = warp::ballot(is_first && is_alone);
            while left != 0 {
                let mut next = || {
                    let lane = left.trailing_zeros();
                    left &= left.wrapping_sub(1);
                    // Behind the last one there is no row.
                    let row = warp::broadcast(id, lane % self.lanes);
                    // SAFETY: as above.
                    if lane < self.lanes { (unsafe { chained.index(window + lane) }, row) } else { (NONE, NONE) }
                };
                // Of four bytes two rows: with four, a thread has too few registers.
                let four = const { E::BYTES <= 2 };
                let [a, b] = [next(), next()];
                let [c, d] = if four { [next(), next()] } else { [(NONE, NONE); 2] };
                let mut col = lane * 8;
                while col < cols {
                    // SAFETY: where there is a row, a whole block of aligned rows inside the tensor.
                    let new = |(from, _): (u32, u32)| unsafe { E::eight_if(from != NONE, x.pointer(from as i32, col as i32)) };
                    // SAFETY: as above.
                    let old = |(_, to): (u32, u32)| unsafe { E::eight_if(to != NONE, y.pointer(to as i32, col as i32)) };
                    let nothing = E::Eight::default();
                    let (na, nb) = (new(a), new(b));
                    let (nc, nd) = if four { (new(c), new(d)) } else { (nothing, nothing) };
                    let (oa, ob) = (old(a), old(b));
                    let (oc, od) = if four { (old(c), old(d)) } else { (nothing, nothing) };
                    let put = |(_, to): (u32, u32), old: E::Eight, new: E::Eight| {
                        if to != NONE {
                            let sums = zip8(E::open(old), E::open(new), |y, x| y + x);
                            // SAFETY: as above; the row is this warp's, and tiles of one grid do not overlap.
                            unsafe { E::put(y.pointer(to as i32, col as i32), E::close(sums)) };
                        }
                    };
                    put(a, oa, na);
                    put(b, ob, nb);
                    put(c, oc, nc);
                    put(d, od, nd);
                    col += self.lanes * 8;
                }
            }
            let mut left = warp::ballot(is_first && !is_alone);
            while left != 0 {
                let (start, row) = (window + left.trailing_zeros(), warp::broadcast(id, left.trailing_zeros()));
                left &= left - 1;
                if !is_chained && self.find(ids, 0, start, row) != NONE {
                    continue;
                }
                // The next entry behind `entry` that is the row.
                let following = |entry: u32| {
                    if !is_chained {
                        return self.find(ids, entry + 1, chained.end, row);
                    }
                    let mut next = entry;
                    loop {
                        // SAFETY: as above; the same for all lanes.
                        unsafe {
                            next = memory::load_shared(chained.link(next)).wrapping_sub(1);
                            // A chain has more than one row only where there are more rows than chains.
                            if next == NONE || is_one_row || readers.at(0, chained.index(next) as i32) == row {
                                return next;
                            }
                        }
                    }
                };
                let mut base = 0;
                // The same for all lanes, which look together.
                while base < cols {
                    let col = base + lane * 8;
                    let (mut total, mut part) = ([NOTHING; 8], E::open(block(y, row, col)));
                    let (mut at, mut terms) = (start, 0);
                    while at != NONE {
                        let mut next = || {
                            let now = at;
                            if now == NONE {
                                return NONE;
                            }
                            at = following(now);
                            // SAFETY: as above.
                            unsafe { chained.index(now) }
                        };
                        let from = [next(), next(), next(), next()];
                        let new = [block(x, from[0], col), block(x, from[1], col), block(x, from[2], col), block(x, from[3], col)];
                        let mut add = |n: usize| {
                            if from[n] != NONE {
                                part = zip8(part, E::open(new[n]), |sum, x| sum + x);
                            }
                        };
                        add(0);
                        add(1);
                        add(2);
                        add(3);
                        terms += 4;
                        if terms == TERMS {
                            total = zip8(total, part, |total, part| total + part);
                            (part, terms) = ([NOTHING; 8], 0);
                        }
                    }
                    if col < cols {
                        // SAFETY: the row is inside the tile and this warp's, the block is this lane's, and tiles of one grid do not overlap.
                        unsafe { y.put_block(wide, row, col, zip8(total, part, |total, part| total + part)) };
                    }
                    base += self.lanes * 8;
                }
            }
            // Of one row the first entry has been found, and with it all.
            let is_done = chained.rows.is_one(rows) && warp::any(id != NONE);
            window = if is_done { chained.end } else { window + self.lanes };
        }
    }
}
