//! How the consumers of a CTA, or one thread of a CPU, share work on a tile that is not divided row by row.
//!
//! What is computed does not belong here. The same code runs on every device; only how many threads and lanes there are differs.

use super::Role;
use super::arena::Arena;
use super::cores::ELEMENTWISE;
use super::ring::Ring;
use super::stream::{self, Stages};
use crate::abi::CONSUMERS;
use crate::element::Element;
use crate::halves;
use crate::hardware::{special, warp};
use crate::math::zip8;
use crate::row::{RowInputs, RowOutputs};
use crate::task::Task;
use crate::tile::{Inputs, Place, Tile};

/// Lanes of a warp that stand side by side where columns are reduced, each with eight of them.
pub(super) const ACROSS: u32 = 2;

/// Places of a tile, by rows and by blocks (or elements) of a row, of which a thread takes every so many. Never numbered: a tile may have
/// more than 2³² of them.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    across: u32,
    down: u32,
    right: u32,
}

impl Walk {
    /// Over rows of `across` places, at least one, by `threads`.
    #[inline(always)]
    pub(super) fn new(threads: u32, across: u32) -> Walk {
        Walk { across, down: threads / across, right: threads % across }
    }

    /// The first place of a thread.
    #[inline(always)]
    pub(super) fn start(self, thread: u32) -> (u32, u32) {
        (thread / self.across, thread % self.across)
    }

    /// A thread's next place.
    #[inline(always)]
    pub(super) fn next(self, (row, at): (u32, u32)) -> (u32, u32) {
        let over = (at + self.right >= self.across) as u32;
        (row + self.down + over, at + self.right - over * self.across)
    }
}

/// Blocks of eight elements that a thread has on their way before it needs the first, each of this many accesses of 16 bytes.
const fn together(accesses: u32) -> u32 {
    match accesses {
        0..=2 => 4,
        3 | 4 => 2,
        _ => 1,
    }
}

/// Blocks that a thread makes by position before it stores the first, where each reads so many accesses of 16 bytes at least.
const fn ahead(accesses: u32) -> u32 {
    match accesses {
        1..=3 => 8,
        0 | 4 => 4,
        _ => 2,
    }
}

/// How consumers divide a tile that is all there, and comes through the ring in stages of a page.
#[derive(Clone, Copy)]
struct Whole {
    /// Threads side by side, each with a block of eight columns, and below one another.
    across: u32,
    down: u32,
    /// Blocks of a thread in a stage.
    blocks: u32,
    stages: u32,
}

impl Whole {
    /// Of `rows` × `cols` elements of at most `bytes` bytes; no stages if that does not come out even.
    const fn of(rows: usize, cols: usize, bytes: u32) -> Whole {
        let none = Whole { across: 1, down: 1, blocks: 0, stages: 0 };
        let (rows, cols) = (rows as u32, cols as u32);
        let across = cols / 8;
        if cfg!(not(target_arch = "nvptx64")) || !across.is_power_of_two() || across > ELEMENTWISE || !cols.is_multiple_of(8) || bytes == 0
        {
            return none;
        }
        let (stage, down) = (Stages::of_parts(cols * bytes).rows, ELEMENTWISE / across);
        let stage = if stage < rows { stage } else { rows };
        if stage == 0 || !stage.is_multiple_of(down) || !rows.is_multiple_of(stage) {
            return none;
        }
        Whole { across, down, blocks: stage / down, stages: rows / stage }
    }

    const fn is_some(self) -> bool {
        self.stages > 0
    }
}

/// A thread among those that share.
#[derive(Clone, Copy)]
pub struct Share {
    /// This thread.
    pub thread: u32,
    /// How many there are.
    pub threads: u32,
    /// Lanes of a warp: consecutive threads whose registers can be exchanged.
    pub lanes: u32,
    /// Where it is in the ring, for tasks that stream.
    pub ring: Ring,
}

/// A consumer thread as the body of a task without tensor cores sees it.
impl Role for Share {
    type Accumulator<const I: usize, const J: usize> = ();

    #[inline(always)]
    fn zeros<const I: usize, const J: usize>(&mut self) {}

    #[inline(always)]
    fn share(&self) -> Option<Share> {
        Some(*self)
    }

    #[inline(always)]
    fn ring(&self) -> u64 {
        self.ring.packed()
    }

    #[inline(always)]
    fn set_ring(&mut self, packed: u64) {
        self.ring = Ring::unpack(consumers_arena(), packed);
    }
}

/// Of this CTA.
#[inline(always)]
fn consumers_arena() -> Arena {
    Arena(special::place_again().1)
}

impl Share {
    /// What a consumer thread has, which is at `ring` in the ring. Its number is read anew: what is computed from it is not kept in registers
    /// from one task to the next.
    #[inline(always)]
    pub fn consumers(ring: u64) -> Share {
        let thread = (special::thread_again() - 128) / (CONSUMERS / ELEMENTWISE);
        Share { thread, threads: ELEMENTWISE, lanes: warp::LANES, ring: Ring::unpack(consumers_arena(), ring) }
    }

    /// Gives the stages `held` back, when the whole warp has read them.
    #[inline(always)]
    pub(super) fn release(self, held: u32) {
        warp::sync();
        // SAFETY: no lane reads them any more.
        unsafe { self.ring.release_all(held, self.lane()) };
    }

    #[inline(always)]
    pub(super) fn lane(self) -> u32 {
        self.thread % self.lanes
    }

    /// One row for each warp at a time.
    #[inline(always)]
    pub fn rows<X: RowInputs, Y: RowOutputs>(&mut self, inputs: X, y: Y, task: Task, f: impl Fn(X::Rows, &mut Y::Rows)) {
        let (stages, rows) = (if self.ring.is_some() { stream::whole(inputs, y, task) } else { Stages::NONE }, y.count());
        // Of rows that are all in shared memory, and written by whole blocks, nothing is asked any more.
        if stages.any() & inputs.near(stages.singles(rows)) & y.wide() {
            self.rows_of::<true, _, _>(inputs, y, stages, &f);
        } else {
            self.rows_of::<false, _, _>(inputs, y, stages, &f);
        }
    }

    #[inline(always)]
    fn rows_of<const NEAR: bool, X: RowInputs, Y: RowOutputs>(
        &mut self,
        inputs: X,
        y: Y,
        stages: Stages,
        f: &impl Fn(X::Rows, &mut Y::Rows),
    ) {
        let (rows, any) = (y.count(), NEAR || stages.any());
        let (warps, own) = (self.threads / self.lanes, self.thread / self.lanes);
        let (mut inputs, mut singles) = (inputs, 0);
        if if NEAR { X::SINGLES > 0 } else { stages.singles(rows) } {
            // SAFETY: all consumers run the task; the loader reckons the same stages from the same tiles.
            inputs = unsafe { inputs.singles_arrived::<NEAR>(&mut self.ring, &mut singles) };
        }
        let mut first = 0;
        while first < rows {
            let (mut now, mut count, mut held) = (inputs, rows, 0);
            if any {
                count = stages.next(first, rows);
                // SAFETY: as above.
                now = unsafe { inputs.arrived::<NEAR>(&mut self.ring, stages.pages, first, &mut held) };
            }
            // The first of them that is this warp's.
            let mut row = (own + warps - first % warps) % warps;
            while row < count {
                f(now.row::<NEAR>(row, self.lane(), self.lanes), &mut y.row::<NEAR>(first + row, self.lane(), self.lanes));
                row += warps;
            }
            first += count;
            if any {
                self.release(if first < rows { held } else { held | singles });
            }
        }
    }

    /// Makes `blocks` blocks of eight elements, those of one thread, of what is at `places`, and stores them to `to`.
    #[inline(always)]
    fn each_block<const NEAR: bool, X: Inputs, E: Element>(
        self,
        _: X,
        places: X::Places,
        to: Place<E>,
        blocks: u32,
        spreads: bool,
        f: &impl Fn(X::Values) -> E::Value,
    ) {
        let mut next = 0;
        while next < blocks {
            // Behind the last one a thread makes that once more and writes it again: a branch for each would leave none beside it.
            let at = |n: u32| if next + n < blocks { next + n } else { blocks - 1 };
            macro_rules! all {
                ($($n:literal)*) => {
                    // SAFETY: eight columns inside all tiles, at a multiple of eight columns of aligned rows.
                    [$(if const { $n < together(X::ACCESSES) } { unsafe { X::block::<NEAR>(places, at($n)) } } else { X::Blocks::default() }),*]
                };
            }
            // All loads before the first is needed.
            let loaded = all!(0 1 2 3);
            let make = |blocks: X::Blocks| {
                let v = X::open(blocks);
                [f(v[0]), f(v[1]), f(v[2]), f(v[3]), f(v[4]), f(v[5]), f(v[6]), f(v[7])]
            };
            let put = |n: u32, values: [E::Value; 8]| {
                let to = to.nth(at(n));
                if spreads {
                    // SAFETY: the blocks of the warp's lanes, all of one row inside the tile: as below.
                    unsafe { E::spread(to, self.lane(), E::close(values)) };
                } else {
                    // SAFETY: eight columns inside the tile, at a multiple of eight columns of aligned rows; nobody else writes them.
                    unsafe { E::store8(to, values) };
                }
            };
            // Two at a time: there are two warps for each scheduler, and what one block takes is the time until its operations have ended.
            if const { together(X::ACCESSES) > 1 } {
                let values = (make(loaded[0]), make(loaded[1]));
                put(0, values.0);
                put(1, values.1);
            } else {
                put(0, make(loaded[0]));
            }
            if const { together(X::ACCESSES) > 2 } && next + 2 < blocks {
                let values = (make(loaded[2]), make(loaded[3]));
                put(2, values.0);
                put(3, values.1);
            }
            next += const { together(X::ACCESSES) };
        }
    }

    /// `y = f(inputs)`: threads side by side along a row, each with blocks of eight columns, one below the other.
    #[inline(always)]
    pub fn zip<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        task: Task,
        f: impl Fn(X::Values) -> E::Value,
    ) {
        let (rows, cols) = (y.rows(), y.cols());
        if rows == 0 || cols == 0 {
            return;
        }
        let stages = stream::parts(inputs, y, task);
        if const { Whole::of(I, J, X::BYTES).is_some() } && stages.any() & (rows == I as u32) & (cols == J as u32) {
            return self.zip_whole(inputs, y, f);
        }
        // Where blocks of eight end. A tile that reads less than it writes is rare.
        let whole = if inputs.wide() & y.wide() & inputs.covers(rows, cols) { cols & !7 } else { 0 };
        let across = (whole / 8).next_power_of_two().min(self.threads);
        let down = self.threads >> across.trailing_zeros();
        // Where a warp has whole rows of its blocks, it writes them together.
        let spreads = const { E::SPREADS } && self.lanes == halves::BLOCKS && whole.is_multiple_of(halves::ELEMENTS);
        let mut own = self.thread & (across - 1);
        if spreads {
            own = own - self.lane() + halves::block(self.lane());
        }
        let col = own * 8;
        // A thread's blocks are one below the other, or in rows that are longer than all threads' blocks side by side.
        let long = whole > across * 8;
        let step = if long { (0, across * 8) } else { (down, 0) };
        let mut first = 0;
        while first < rows && whole > 0 {
            let (mut now, mut count, mut held) = (inputs, rows, 0);
            if stages.any() {
                count = stages.next(first, rows);
                // SAFETY: all consumers run the task; the loader reckons the same stages from the same tiles.
                now = unsafe { inputs.arrived(&mut self.ring, stages.pages, cols, &mut held) };
            }
            let mut row = self.thread >> across.trailing_zeros();
            while row < count {
                let blocks = if long {
                    (whole - col).div_ceil(across * 8)
                } else if col < whole {
                    (count - row + down - 1) >> down.trailing_zeros()
                } else {
                    0
                };
                let to = y.place::<false>((first + row, if spreads { col - col % halves::ELEMENTS } else { col }), step);
                if stages.any() {
                    self.each_block::<true, _, _>(now, now.places::<true>((row, col), step), to, blocks, spreads, &f);
                } else {
                    self.each_block::<false, _, _>(now, now.places::<false>((row, col), step), to, blocks, spreads, &f);
                }
                row += if long { down } else { count };
            }
            if stages.any() {
                self.release(held);
            }
            first += count;
        }
        if whole < cols {
            // What is no whole block, or lies in no order that has any.
            let walk = Walk::new(self.threads, cols - whole);
            let mut at = walk.start(self.thread);
            while at.0 < rows {
                // SAFETY: the position is inside the tile; tiles of one grid do not overlap.
                unsafe { y.pointer(at.0 as i32, (whole + at.1) as i32).write(E::element(f(inputs.at(at.0, whole + at.1)))) };
                at = walk.next(at);
            }
        }
    }

    /// The same of a tile that is all there, and comes through the ring: all that [`Share::zip`] reckons is a constant.
    #[inline(always)]
    fn zip_whole<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(X::Values) -> E::Value,
    ) {
        let whole = const { Whole::of(I, J, X::BYTES) };
        let spreads = const { E::SPREADS && (J as u32).is_multiple_of(halves::ELEMENTS) };
        let (mut own, row) = (self.thread % whole.across, self.thread / whole.across);
        if spreads {
            own = own - self.lane() + halves::block(self.lane());
        }
        let (col, step) = (own * 8, (whole.down, 0));
        let mut to = y.place::<false>((row, if spreads { col - col % halves::ELEMENTS } else { col }), step);
        // In a register: a loop, whatever a tile's size.
        let mut stages = special::opaque(whole.stages);
        loop {
            let mut held = 0;
            // SAFETY: all consumers run the task; the loader reckons the same stages from the same tiles.
            let now = unsafe { inputs.arrived(&mut self.ring, 1, J as u32, &mut held) };
            self.each_block::<true, _, _>(now, now.places::<true>((row, col), step), to, whole.blocks, spreads, &f);
            self.release(held);
            stages -= 1;
            if stages == 0 {
                break;
            }
            to = to.from(whole.blocks);
        }
    }

    /// `y[row, col] = f(inputs, row, col)`, an element for each thread, neighbours to neighbours; eight on their way before the first is stored.
    #[inline(always)]
    pub fn generate<X: Inputs, E: Element, const I: usize, const J: usize>(
        self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(&X::Readers, i32, i32) -> E::Value,
    ) {
        let (rows, cols, readers) = (y.rows(), y.cols(), inputs.readers(false));
        if cols == 0 {
            return;
        }
        let walk = Walk::new(self.threads, cols);
        let mut at = walk.start(self.thread);
        let make = |(row, col): (u32, u32)| f(&readers, row as i32, col as i32);
        let put = |(row, col): (u32, u32), value: E::Value| {
            if row < rows {
                // SAFETY: the position is inside the tile; tiles of one grid do not overlap.
                unsafe { y.pointer(row as i32, col as i32).write(E::element(value)) };
            }
        };
        while at.0 < rows {
            // Of what reads more than two elements for each there is one: every further one takes the registers of its loads.
            if const { X::ACCESSES > 3 } {
                put(at, make(at));
                at = walk.next(at);
                continue;
            }
            // Behind the last one a thread makes its first again: a branch for each would cost more. Places are made anew for the stores.
            let (first, mut place) = (at, at);
            let mut value = || {
                let value = make(if place.0 < rows { place } else { first });
                place = walk.next(place);
                value
            };
            let values = [value(), value(), value(), value(), value(), value(), value(), value()];
            let mut each = |value: E::Value| {
                put(at, value);
                at = walk.next(at);
            };
            each(values[0]);
            each(values[1]);
            each(values[2]);
            each(values[3]);
            each(values[4]);
            each(values[5]);
            each(values[6]);
            each(values[7]);
        }
    }

    /// Over the blocks of rows of so many columns, and the first of this thread; without columns there is none.
    #[inline(always)]
    fn blocks_of(self, cols: u32) -> Option<(Walk, (u32, u32))> {
        let across = cols.div_ceil(8);
        if across == 0 {
            return None;
        }
        let walk = Walk::new(self.threads, across);
        Some((walk, walk.start(self.thread)))
    }

    /// Blocks of eight columns for each thread, neighbours to neighbours.
    #[inline(always)]
    pub fn blocks<X: Inputs, E: Element, const I: usize, const J: usize>(
        self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(&X::Readers, i32, i32) -> [E::Value; 8],
    ) {
        let (rows, cols, wide) = (y.rows(), y.cols(), y.wide());
        let Some((walk, mut at)) = self.blocks_of(cols) else { return };
        if !(wide && cols.is_multiple_of(8) && inputs.whole()) {
            let readers = inputs.readers(false);
            while at.0 < rows {
                let values = f(&readers, at.0 as i32, (at.1 * 8) as i32);
                // SAFETY: the row is inside the tile; each block is one thread's, and tiles of one grid do not overlap.
                unsafe { y.put_block(wide, at.0, at.1 * 8, values) };
                at = walk.next(at);
            }
            return;
        }
        let readers = inputs.readers(true);
        while at.0 < rows {
            // Behind the last one a thread makes its first again. Places are made anew for the stores: they would take registers.
            let (first, mut place) = (at, at);
            let mut make = || {
                let (row, block) = if place.0 < rows { place } else { first };
                place = walk.next(place);
                f(&readers, row as i32, (block * 8) as i32)
            };
            macro_rules! ahead {
                ($($n:literal)*) => {{
                    // All on their way before the first is stored.
                    let values = [$(if const { $n < ahead(X::ACCESSES) } { make() } else { [E::Value::default(); 8] }),*];
                    $(if const { $n < ahead(X::ACCESSES) } {
                        if at.0 < rows {
                            // SAFETY: a block inside the tile, whose rows are whole aligned blocks; it is this thread's, and tiles of one grid do not
                            // overlap.
                            unsafe { E::store8(y.pointer(at.0 as i32, (at.1 * 8) as i32), values[$n]) };
                        }
                        at = walk.next(at);
                    })*
                }};
            }
            ahead!(0 1 2 3 4 5 6 7);
        }
    }

    /// Blocks of the left half of each row, each with the one at the same place of the right half; the columns are a multiple of 16. Four such pairs are on their way before the first is stored.
    #[inline(always)]
    pub fn pairs_of_blocks<X: Inputs, E: Element, const I: usize, const J: usize>(
        self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(&X::Readers, i32, i32) -> ([E::Value; 8], [E::Value; 8]),
    ) {
        let (rows, half, wide) = (y.rows(), y.cols() / 2, y.wide());
        let Some((walk, mut at)) = self.blocks_of(half) else { return };
        let whole = wide && inputs.whole();
        let put = |(row, block): (u32, u32), (left, right): ([E::Value; 8], [E::Value; 8])| {
            if row < rows {
                // SAFETY: the row is inside the tile, and so are both blocks, which are one thread's; tiles of one grid do not overlap. Where all is whole,
                // rows are aligned blocks.
                unsafe {
                    if whole {
                        E::store8(y.pointer(row as i32, (block * 8) as i32), left);
                        E::store8(y.pointer(row as i32, (half + block * 8) as i32), right);
                    } else {
                        y.put_block(wide, row, block * 8, left);
                        y.put_block(wide, row, half + block * 8, right);
                    }
                }
            }
        };
        let make = |readers: &X::Readers, (row, block): (u32, u32)| f(readers, row as i32, (block * 8) as i32);
        if !whole {
            let readers = inputs.readers(false);
            while at.0 < rows {
                put(at, make(&readers, at));
                at = walk.next(at);
            }
            return;
        }
        let readers = inputs.readers(true);
        while at.0 < rows {
            let (b, c) = (walk.next(at), walk.next(walk.next(at)));
            let d = walk.next(c);
            // Behind the last one a thread makes its first again.
            let make = |place: (u32, u32)| make(&readers, if place.0 < rows { place } else { at });
            let pairs = (make(at), make(b), make(c), make(d));
            put(at, pairs.0);
            put(b, pairs.1);
            put(c, pairs.2);
            put(d, pairs.3);
            at = walk.next(d);
        }
    }

    /// Blocks as [`Share::blocks`], each the sum of `count` blocks of `x`: four of each of two blocks on their way before the first is added, or two of each of four.
    #[inline(always)]
    pub fn sums<X: Inputs, E: Element<Value = f32>, const R: usize, const C: usize, const I: usize, const J: usize>(
        self,
        terms: X,
        x: Tile<E, R, C>,
        y: Tile<E, I, J>,
        count: u32,
        f: impl Fn(&X::Readers, i32, i32) -> (i32, f32),
    ) {
        let (rows, cols, wide) = (y.rows(), y.cols(), y.wide());
        let Some((walk, mut at)) = self.blocks_of(cols) else { return };
        let terms = terms.readers(false);
        let add = |sum: [f32; 8], (weight, v): (f32, [f32; 8])| zip8(sum, v, |sum, v| sum + weight * v);
        if !(wide && cols.is_multiple_of(8) && x.whole()) {
            let x = x.readers(false);
            while at.0 < rows {
                let (mut sum, mut k) = ([0.0; 8], 0);
                while k < count {
                    let (row, weight) = f(&terms, at.0 as i32, k as i32);
                    sum = add(sum, (weight, x.at8(row, (at.1 * 8) as i32)));
                    k += 1;
                }
                // SAFETY: the row is inside the tile; each block is one thread's, and tiles of one grid do not overlap.
                unsafe { y.put_block(wide, at.0, at.1 * 8, sum) };
                at = walk.next(at);
            }
            return;
        }
        let x = x.readers(true);
        let put = |(row, block): (u32, u32), sum: [f32; 8]| {
            if row < rows {
                // SAFETY: a block inside the tile, whose rows are whole aligned blocks; it is this thread's, and tiles of one grid do not overlap.
                unsafe { E::store8(y.pointer(row as i32, (block * 8) as i32), sum) };
            }
        };
        if count <= 2 {
            // Few terms: four blocks at a time, and what names the rows of the next four comes while these do.
            let terms_of = |at: (u32, u32)| {
                let term = |k: u32| {
                    let named = f(&terms, at.0 as i32, k as i32);
                    if k < count && at.0 < rows { named } else { (-1, 0.0) }
                };
                (term(0), term(1))
            };
            let four = |at: (u32, u32)| {
                let (b, c) = (walk.next(at), walk.next(walk.next(at)));
                [at, b, c, walk.next(c)]
            };
            let mut places = four(at);
            let named = |[a, b, c, d]: [(u32, u32); 4]| [terms_of(a), terms_of(b), terms_of(c), terms_of(d)];
            let mut now = named(places);
            while places[0].0 < rows {
                let block = |((first, by), (second, also)): ((i32, f32), (i32, f32)), at: (u32, u32)| {
                    let col = (at.1 * 8) as i32;
                    ((by, x.at8(first, col)), (also, x.at8(second, col)))
                };
                let loaded = [block(now[0], places[0]), block(now[1], places[1]), block(now[2], places[2]), block(now[3], places[3])];
                let next = four(walk.next(places[3]));
                now = named(next);
                let sum = |(first, second)| add(add([0.0; 8], first), second);
                put(places[0], sum(loaded[0]));
                put(places[1], sum(loaded[1]));
                put(places[2], sum(loaded[2]));
                put(places[3], sum(loaded[3]));
                places = next;
            }
            return;
        }
        while at.0 < rows {
            let second = walk.next(at);
            let below = if second.0 < rows { second } else { at };
            let (mut a, mut b) = ([0.0; 8], [0.0; 8]);
            let mut k = 0;
            while k < count {
                let term = |(row, block): (u32, u32), k: u32| {
                    let (named, weight) = f(&terms, row as i32, k as i32);
                    // Behind the last term zero times zeros, which is no change of a sum that begins with 0.
                    let (named, weight) = if k < count { (named, weight) } else { (-1, 0.0) };
                    (weight, x.at8(named, (block * 8) as i32))
                };
                let here = (term(at, k), term(at, k + 1), term(at, k + 2), term(at, k + 3));
                let there = (term(below, k), term(below, k + 1), term(below, k + 2), term(below, k + 3));
                a = add(add(add(add(a, here.0), here.1), here.2), here.3);
                b = add(add(add(add(b, there.0), there.1), there.2), there.3);
                k += 4;
            }
            put(at, a);
            put(second, b);
            at = walk.next(second);
        }
    }

    /// Columns: two lanes of a warp stand side by side, the others below them, each with eight columns; a warp has sixteen.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub fn columns<X: Element, E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(
        self,
        x: Tile<X, R, C>,
        y: Tile<E, I, J>,
        start: f32,
        f: impl Fn(X::Value) -> f32,
        combine: impl Fn(f32, f32) -> f32,
        finish: impl Fn(f32) -> E::Value,
    ) {
        let across = if self.lanes == 1 { 1 } else { ACROSS };
        let (below, side, down) = (self.lanes / across, self.lane() % across, self.lane() / across);
        let (rows, cols) = (x.rows(), y.cols());
        let wide = (x.wide(), y.wide());
        let mut base = self.thread / self.lanes * across * 8;
        // The same for all lanes of a warp: they exchange their totals.
        while base < cols {
            let col = base + side * 8;
            let mut totals = [start; 8];
            let mut add = |block: X::Eight| {
                let v = X::open(block);
                totals = [
                    combine(totals[0], f(v[0])),
                    combine(totals[1], f(v[1])),
                    combine(totals[2], f(v[2])),
                    combine(totals[3], f(v[3])),
                    combine(totals[4], f(v[4])),
                    combine(totals[5], f(v[5])),
                    combine(totals[6], f(v[6])),
                    combine(totals[7], f(v[7])),
                ];
            };
            let mut row = down;
            let blocks = wide.0 && col + 8 <= x.cols();
            let are_there = |row: u32| blocks && row + 7 * below < rows;
            let load = |row: u32| {
                // SAFETY: eight columns inside the tile, at a multiple of eight columns of aligned rows.
                let line = |n: u32| unsafe { X::eight(x.pointer((row + n * below) as i32, col as i32)) };
                [line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7)]
            };
            let mut add_all = |[a, b, c, d, e, f, g, h]: [X::Eight; 8]| {
                add(a);
                add(b);
                add(c);
                add(d);
                add(e);
                add(f);
                add(g);
                add(h);
            };
            if are_there(row) {
                // Two sets of registers take turns, without moves. ptxas gives all loads of a loop one scoreboard, so the next eight rows are waited for with
                // these, not behind them; sixteen at once are slower all the same (docs/internals/memory.md).
                let mut now = load(row);
                loop {
                    row += 8 * below;
                    if !are_there(row) {
                        add_all(now);
                        break;
                    }
                    let then = load(row);
                    add_all(now);
                    row += 8 * below;
                    if !are_there(row) {
                        add_all(then);
                        break;
                    }
                    now = load(row);
                    add_all(then);
                }
            }
            while row < rows {
                add(x.block(wide.0, row, col));
                row += below;
            }
            let t = totals;
            let whole = |total: f32| finish(lanes_below(total, &combine));
            let values = [whole(t[0]), whole(t[1]), whole(t[2]), whole(t[3]), whole(t[4]), whole(t[5]), whole(t[6]), whole(t[7])];
            if down == 0 && col < cols {
                // SAFETY: one lane has these columns, and tiles of one grid do not overlap; the result is one row.
                unsafe { y.put_block(wide.1, 0, col, values) };
            }
            base += self.threads / self.lanes * across * 8;
        }
    }

    /// Squares of eight by eight: a warp reads four side by side and writes eight, so that both are whole sectors.
    #[inline(always)]
    pub fn transpose<E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(self, x: Tile<E, R, C>, y: Tile<E, I, J>) {
        let (rows, cols) = (y.rows(), y.cols());
        let wide = (x.wide(), y.wide());
        // A group is 32 squares, a place for each lane: four of them along the rows of y, and eight along its columns.
        let square = |(across, at): (u32, u32)| (at / 32 * 32 + at % 4 * 8, across * 64 + at / 4 % 8 * 8);
        let all = (rows == I as u32) & (cols == J as u32) & (x.cols() >= I as u32) & (x.rows() >= J as u32);
        if const { I > 0 && I.is_multiple_of(32) && J.is_multiple_of(64) } && all & wide.0 & wide.1 {
            let mut at = self.thread;
            while at < const { (I * J / 64) as u32 } {
                let (row, col) = square((at / I as u32, at % I as u32));
                let (from, to) = (x.place::<false>((col, row), (1, 0)), y.place::<false>((row, col), (1, 0)));
                // SAFETY: a square inside the tile, at multiples of eight rows and columns of aligned rows; it is one thread's, and tiles of one
                // grid do not overlap.
                let line = |n: u32| unsafe { E::eight(from.nth(n)) };
                let turned = E::turn([line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7)]);
                // SAFETY: as above.
                let put = |n: u32, line: E::Eight| unsafe { E::put(to.nth(n), line) };
                let [a, b, c, d, e, f, g, h] = turned;
                put(0, a);
                put(1, b);
                put(2, c);
                put(3, d);
                put(4, e);
                put(5, f);
                put(6, g);
                put(7, h);
                at += self.threads;
            }
            return;
        }
        let (high, broad) = (rows.div_ceil(32), cols.div_ceil(64));
        let walk = Walk::new(self.threads, (high * 32).max(1));
        let mut at = walk.start(self.thread);
        while high > 0 && at.0 < broad {
            let (row, col) = square(at);
            if row < rows && col < cols {
                let line = |n: u32| x.block(wide.0, col + n, row);
                let turned = E::turn([line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7)]);
                macro_rules! put {
                    ($($n:literal)*) => {$(
                        if row + $n < rows {
                            // SAFETY: the row is inside the tile; each square is one thread's, and tiles of one grid do not overlap.
                            unsafe { y.put_block(wide.1, row + $n, col, E::open(turned[$n])) };
                        }
                    )*};
                }
                put!(0 1 2 3 4 5 6 7);
            }
            at = walk.next(at);
        }
    }
}

/// The totals of all lanes that stand in one column, combined; each gets the result.
#[inline(always)]
fn lanes_below(total: f32, combine: &impl Fn(f32, f32) -> f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let mut total = total;
        let mut distance = 16;
        while distance > 1 {
            total = combine(total, crate::ptx::warp::shuffle_xor(total, distance));
            distance /= 2;
        }
        total
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let _ = combine;
        total
    }
}

#[cfg(test)]
mod tests {
    use super::Walk;

    /// Every thread's places, in order, are its numbers among all: also where those exceed 32 bits.
    #[test]
    fn a_walk_of_more_than_32_bits_goes_everywhere_once() {
        for (threads, across) in [(256, 1), (256, 7), (256, 256), (2, 3), (1, 5), (256, 300), (256, (1 << 28) - 1), (256, (1 << 31) - 1)] {
            let walk = Walk::new(threads, across);
            for thread in [0, 1, threads - 1].into_iter().filter(|&thread| thread < threads) {
                let mut at = walk.start(thread);
                for n in 0..100_000u64 {
                    let number = u64::from(thread) + n * u64::from(threads);
                    assert_eq!(u64::from(at.0) * u64::from(across) + u64::from(at.1), number);
                    assert!(at.1 < across);
                    at = walk.next(at);
                }
            }
            // Far behind: row 20 of the longest rows is number 2³⁵.
            let far = (20, across - 1);
            let (row, at) = walk.next(far);
            let number = |(row, at): (u32, u32)| u64::from(row) * u64::from(across) + u64::from(at);
            assert_eq!(number((row, at)), number(far) + u64::from(threads));
        }
    }
}
