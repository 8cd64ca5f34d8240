//! What is written where data say: elements of a row, and whole rows. The last of equal indices counts, so their order is that of the tensor.
//!
//! What is read where data say does not belong here: that is [`Share::blocks`] and its like.

use super::share::Share;
use crate::element::Element;
use crate::hardware::warp;
use crate::tile::{Inputs, Tile};

/// No position: of an index that is not there.
const NONE: u32 = u32::MAX;

impl Share {
    /// `y[row, ids[row, k]] = x[row, k]`, a row for each warp; four indices of each lane on their way before the first is looked at.
    #[inline(always)]
    pub fn scatter<E: Element, const I: usize>(self, ids: Tile<u32, I, 0>, x: Tile<E, I, 0>, y: Tile<E, I, 0>) {
        let (rows, cols, count) = (y.rows(), y.cols(), ids.cols());
        let (ids, x) = (ids.readers(false), x.readers(false));
        let mut row = self.thread / self.lanes;
        while row < rows {
            let mut first = 0;
            while first < count {
                let k = |n: u32| first + n * self.lanes + self.lane();
                let id = |n: u32| if k(n) < count { ids.at(row as i32, k(n) as i32) } else { NONE };
                let named = [id(0), id(1), id(2), id(3)];
                let value = |n: u32| x.at(row as i32, k(n) as i32);
                let values = [value(0), value(1), value(2), value(3)];
                let put = |id: u32, value: E::Value| {
                    // Of lanes with the same index the last one writes, and behind a barrier those that come later.
                    let last = warp::matching(id) >> self.lane() == 1;
                    if last && id < cols {
                        // SAFETY: the position is inside the tile, whose row is this warp's.
                        unsafe { y.pointer(row as i32, id as i32).write(E::element(value)) };
                    }
                    warp::sync();
                };
                put(named[0], values[0]);
                put(named[1], values[1]);
                put(named[2], values[2]);
                put(named[3], values[3]);
                first += 4 * self.lanes;
            }
            row += self.threads / self.lanes;
        }
    }

    /// `y[ids[i], ..] = x[i, ..]`, or the sum of both where `ADDS`. A row of y is one warp's, so that equal indices come in their order; four rows of x, and
    /// of y if they are read, are on their way before the first is written.
    #[inline(always)]
    pub fn index<const ADDS: bool, E: Element, const J: usize>(
        self,
        ids: Tile<u32, 1, 0>,
        x: Tile<E, 0, J>,
        y: Tile<E, 0, J>,
        add: impl Fn(E::Value, E::Value) -> E::Value,
    ) {
        let (rows, cols, count) = (y.rows(), y.cols(), ids.cols());
        let (warps, own) = (self.threads / self.lanes, self.thread / self.lanes);
        let wide = x.wide() && y.wide() && cols.is_multiple_of(8);
        let ids = ids.readers(false);
        let sum = |old: E::Eight, new: E::Eight| {
            let (a, b) = (E::open(old), E::open(new));
            let sums = [
                add(a[0], b[0]),
                add(a[1], b[1]),
                add(a[2], b[2]),
                add(a[3], b[3]),
                add(a[4], b[4]),
                add(a[5], b[5]),
                add(a[6], b[6]),
                add(a[7], b[7]),
            ];
            E::close(sums)
        };
        let mut first = 0;
        while first < count {
            // A lane for each index. The loop is the same for all lanes of a warp: they look at each other's.
            let i = first + self.lane();
            let id = if i < count { ids.at(0, i as i32) } else { NONE };
            let mut left = warp::ballot(id < rows && id % warps == own);
            while left != 0 {
                let mut next = || {
                    let lane = left.trailing_zeros();
                    left &= left.wrapping_sub(1);
                    // Behind the last one there is no row.
                    let row = warp::broadcast(id, lane % self.lanes);
                    if lane < self.lanes { (first + lane, row) } else { (NONE, NONE) }
                };
                let [a, b, c, d] = [next(), next(), next(), next()];
                let mut col = self.lane() * 8;
                while col < cols {
                    if !wide {
                        let put = |(from, to): (u32, u32)| {
                            if to == NONE {
                                return;
                            }
                            let new = x.block(false, from, col);
                            let values = if const { ADDS } { sum(y.block(false, to, col), new) } else { new };
                            // SAFETY: the row is inside the tile and this warp's, the block is this lane's.
                            unsafe { y.put_block(false, to, col, E::open(values)) };
                        };
                        put(a);
                        put(b);
                        put(c);
                        put(d);
                        col += self.lanes * 8;
                        continue;
                    }
                    // SAFETY: where there is a row, a whole block of aligned rows inside the tensor.
                    let new = |(from, _): (u32, u32)| unsafe { E::eight_if(from != NONE, x.pointer(from as i32, col as i32)) };
                    // SAFETY: as above.
                    let old = |(_, to): (u32, u32)| unsafe { E::eight_if(const { ADDS } && to != NONE, y.pointer(to as i32, col as i32)) };
                    let (na, nb, nc, nd) = (new(a), new(b), new(c), new(d));
                    let (wa, wb, wc, wd) = if const { ADDS } {
                        let (oa, ob, oc, od) = (old(a), old(b), old(c), old(d));
                        // An earlier one may have written the same row.
                        let wa = sum(oa, na);
                        let wb = sum(if b.1 == a.1 { wa } else { ob }, nb);
                        let wc = sum(
                            if c.1 == b.1 {
                                wb
                            } else if c.1 == a.1 {
                                wa
                            } else {
                                oc
                            },
                            nc,
                        );
                        let wd = sum(
                            if d.1 == c.1 {
                                wc
                            } else if d.1 == b.1 {
                                wb
                            } else if d.1 == a.1 {
                                wa
                            } else {
                                od
                            },
                            nd,
                        );
                        (wa, wb, wc, wd)
                    } else {
                        (na, nb, nc, nd)
                    };
                    let put = |(_, to): (u32, u32), block: E::Eight| {
                        if to != NONE {
                            // SAFETY: as above; the row is this warp's, and tiles of one grid do not overlap.
                            unsafe { E::put(y.pointer(to as i32, col as i32), block) };
                        }
                    };
                    put(a, wa);
                    put(b, wb);
                    put(c, wc);
                    put(d, wd);
                    col += self.lanes * 8;
                }
            }
            first += self.lanes;
        }
    }
}
