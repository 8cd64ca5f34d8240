//! Cuts a producer's region into groups of tiles that share one counter.
//!
//! A producer tile signals every group that it touches, a consumer tile waits for every group that it touches, until all
//! producer tiles of the group have signalled. So the number of events grows with the number of tiles, not of pairs.

use maco_abi::{AXES, RANK};

use super::region::{AxisRegion, Region, Regions};
use super::{PlanError, Site};
use crate::ir::Graph;

/// Most groups that one tile should touch along an axis; groups grow until it holds.
const TOUCHED: u32 = 8;

/// Groups along one tensor axis: `size` coordinates each, the first one shorter by `shift`, between `lo` and `hi`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AxisGroups {
    lo: u32,
    hi: u32,
    size: u32,
    shift: u32,
    pub count: u32,
}

impl AxisGroups {
    fn new(producer: &AxisRegion, size: u32, shift: u32) -> AxisGroups {
        let (lo, hi) = (producer.lo, producer.hi);
        AxisGroups { lo, hi, size, shift, count: (hi - 1 - lo + shift) / size + 1 }
    }

    /// Groups that follow the larger of the two tilings where one divides the other, else the producer's.
    fn between(producer: &AxisRegion, consumer: &AxisRegion) -> AxisGroups {
        let length = producer.hi - producer.lo;
        if producer.drivers == 0 {
            return AxisGroups::new(producer, length, 0);
        }
        let (theirs, ours) = (producer.pitch, consumer.pitch);
        if consumer.drivers == 0 {
            // One interval for all consumer tiles: one group for it, out to the borders of the producer's tiles.
            let first = consumer.lo.max(producer.lo) - producer.lo;
            let last = consumer.hi.min(producer.hi) - producer.lo;
            let start = first / theirs * theirs;
            let end = last.div_ceil(theirs).saturating_mul(theirs).min(length);
            let size = end - start;
            return AxisGroups::new(producer, size, (size - start % size) % size);
        }
        let ahead = i64::from(consumer.lo) - i64::from(producer.lo);
        let (mut size, mut shift) = if ours % theirs == 0 && ahead % i64::from(theirs) == 0 {
            (ours, (i64::from(ours) - ahead.rem_euclid(i64::from(ours))) as u32 % ours)
        } else {
            (theirs * (ours / theirs).max(1), 0)
        };
        let span = consumer.span.max(producer.span);
        if span / TOUCHED >= size {
            size = span.div_ceil(TOUCHED).div_ceil(size).saturating_mul(size).min(length);
            shift %= size;
        }
        AxisGroups::new(producer, size, shift)
    }

    /// Coordinates of a group, and the first one of all, if all groups but the last have as many.
    pub fn even(&self) -> Option<(u32, u32)> {
        (self.shift == 0).then_some((self.size, self.lo))
    }

    /// The groups that the coordinates `lo..hi` touch: the first one and how many.
    pub fn touched(&self, lo: u32, hi: u32) -> (u32, u32) {
        let (lo, hi) = (lo.max(self.lo), hi.min(self.hi));
        if lo >= hi {
            return (0, 0);
        }
        let first = (lo - self.lo + self.shift) / self.size;
        (first, (hi - 1 - self.lo + self.shift) / self.size - first + 1)
    }

    fn coarsen(&mut self) {
        self.size = self.size.saturating_mul(2).min(self.hi - self.lo + self.shift);
        self.count = (self.hi - 1 - self.lo + self.shift) / self.size + 1;
    }
}

/// The counters of one division of one producer region into groups.
pub(super) struct CounterSet {
    /// Number of the producer's region.
    pub region: u32,
    pub groups: [AxisGroups; RANK],
    /// First counter.
    pub base: u32,
    /// Counters: the product of the groups along the axes, last axis fastest.
    pub count: u32,
    /// There is one group, and every task of a consumer waits for it, whatever it touches.
    pub all: bool,
    /// Another set of the same producer call.
    next: Option<u32>,
}

/// All counter sets, found by producer call.
pub(super) struct CounterSets {
    sets: Vec<CounterSet>,
    newest: Vec<Option<u32>>,
    /// Signals that each counter gets.
    pub needs: Vec<u32>,
    histogram: Vec<u32>,
}

impl CounterSets {
    pub fn new(calls: usize) -> CounterSets {
        CounterSets { sets: Vec::with_capacity(calls), newest: vec![None; calls], needs: Vec::new(), histogram: Vec::new() }
    }

    pub fn get(&self, set: u32) -> &CounterSet {
        &self.sets[set as usize]
    }

    /// The sets of producer call `call`, newest first.
    pub fn of(&self, call: u32) -> impl Iterator<Item = &CounterSet> {
        std::iter::successors(self.newest[call as usize], |&set| self.get(set).next).map(|set| self.get(set))
    }

    /// The set that cuts region number `producer` as region number `consumer` needs it, made if there is none.
    /// With `rows`, one group per row of tiles of the first axis.
    pub fn intern(&mut self, graph: &Graph, regions: &Regions, producer: u32, consumer: u32, rows: bool) -> Result<u32, PlanError> {
        let (from, to) = (regions.get(producer), regions.get(consumer));
        let rank = usize::from(from.rank);
        let mut groups = [AxisGroups::default(); RANK];
        for (groups, (from, to)) in groups.iter_mut().zip(from.axes.iter().zip(&to.axes)).take(rank) {
            *groups = AxisGroups::between(from, to);
        }
        if rows {
            groups[0] = AxisGroups::new(&from.axes[0], from.axes[0].pitch, 0);
        }
        // Regions that miss most of their hull (a diagonal) would have more groups than tiles.
        let tiles: u64 = regions.grid(from.call).iter().map(|&tiles| u64::from(tiles)).product();
        while groups[..rank].iter().map(|groups| u64::from(groups.count)).fold(1, u64::saturating_mul) > 4 * tiles + 64 {
            if let Some(most) = groups[..rank].iter_mut().max_by_key(|groups| groups.count) {
                most.coarsen();
            }
        }
        self.with_groups(graph, regions, producer, groups, false)
    }

    /// The set of one counter that all tasks of region number `producer` signal, and every task of a consumer waits for.
    pub fn intern_all(&mut self, graph: &Graph, regions: &Regions, producer: u32) -> Result<u32, PlanError> {
        let from = regions.get(producer);
        let mut groups = [AxisGroups::default(); RANK];
        for (groups, axis) in groups.iter_mut().zip(&from.axes).take(usize::from(from.rank)) {
            *groups = AxisGroups::new(axis, axis.hi - axis.lo, 0);
        }
        self.with_groups(graph, regions, producer, groups, true)
    }

    /// The set of these groups of region number `producer`, made if there is none.
    fn with_groups(
        &mut self,
        graph: &Graph,
        regions: &Regions,
        producer: u32,
        groups: [AxisGroups; RANK],
        all: bool,
    ) -> Result<u32, PlanError> {
        let from = regions.get(producer);
        let rank = usize::from(from.rank);
        let mut candidate = self.newest[from.call as usize];
        while let Some(set) = candidate {
            let known = self.get(set);
            if known.region == producer && known.groups == groups && known.all == all {
                return Ok(set);
            }
            candidate = known.next;
        }
        let base = self.needs.len() as u32;
        let count: u32 = groups[..rank].iter().map(|groups| groups.count).product();
        if base.checked_add(count).is_none() {
            let site = Site { task: graph.calls[from.call as usize].task.name, call: from.call };
            let found = u64::from(base) + u64::from(count);
            return Err(PlanError::TooManyEvents { site, what: "counters", found, max: u64::from(u32::MAX) });
        }
        self.count_signals(regions, from, &groups, count);
        let set = self.sets.len() as u32;
        self.sets.push(CounterSet { region: producer, groups, base, count, all, next: self.newest[from.call as usize].replace(set) });
        Ok(set)
    }

    /// Appends to `needs` how many tasks of `region` touch each group.
    fn count_signals(&mut self, regions: &Regions, region: &Region, groups: &[AxisGroups; RANK], count: u32) {
        let grid = regions.grid(region.call);
        let rank = usize::from(region.rank);
        let base = self.needs.len();
        let drivers = region.axes[..rank].iter().map(|axis| axis.drivers);
        let all = drivers.clone().fold(0, |all, axis| all | axis);
        let parts = match regions.split_k(region.call).even() {
            Some(parts) if drivers.map(u8::count_ones).sum::<u32>() == all.count_ones() => parts,
            _ => {
                // One grid axis moves along two tensor axes, or tiles have more or fewer tasks: no product of counts per axis.
                self.needs.resize(base + count as usize, 0);
                self.count_tiles(regions, region, groups, base);
                return;
            }
        };
        let elsewhere: u32 = (0..AXES).filter(|g| all & (1 << g) == 0).map(|g| grid[g]).product();
        self.needs.push(elsewhere * parts);
        for (axis, groups) in groups[..rank].iter().enumerate() {
            if groups.count == 1 && region.axes[axis].drivers == 0 {
                continue;
            }
            self.histogram.clear();
            self.histogram.resize(groups.count as usize, 0);
            let histogram = &mut self.histogram;
            regions.intervals(region, axis, |lo, hi| {
                let (first, touched) = groups.touched(lo, hi);
                for tiles in &mut histogram[first as usize..][..touched as usize] {
                    *tiles += 1;
                }
            });
            // Expand in place, back to front: every count so far times every group of this axis.
            let known = self.needs.len() - base;
            self.needs.resize(base + known * groups.count as usize, 0);
            for index in (0..known).rev() {
                let factor = self.needs[base + index];
                let row = &mut self.needs[base + index * groups.count as usize..][..groups.count as usize];
                for (need, tiles) in row.iter_mut().zip(&self.histogram) {
                    *need = factor * tiles;
                }
            }
        }
    }

    fn count_tiles(&mut self, regions: &Regions, region: &Region, groups: &[AxisGroups; RANK], base: usize) {
        let rank = usize::from(region.rank);
        let mut touched: [Vec<(u32, u32)>; RANK] = Default::default();
        let mut weights = [[0; AXES]; RANK];
        for axis in 0..rank {
            regions.intervals(region, axis, |lo, hi| touched[axis].push(groups[axis].touched(lo, hi)));
            weights[axis] = regions.weights(region, axis);
        }
        let mut tile = 0;
        regions.for_each_tile(region.call, |coord| {
            let parts = regions.split_k(region.call).of(tile);
            tile += 1;
            let mut ranges = [(0, 1); RANK];
            for axis in 0..rank {
                let index: u32 = (0..AXES).map(|g| coord[g] * weights[axis][g]).sum();
                ranges[axis] = touched[axis][index as usize];
            }
            for_each_cell(&ranges, groups, |cell| self.needs[base + cell as usize] += parts);
        });
    }
}

/// Calls `each` with the position of every group in the product of `ranges` (first, count), last axis fastest.
pub(super) fn for_each_cell(ranges: &[(u32, u32); RANK], groups: &[AxisGroups; RANK], mut each: impl FnMut(u32)) {
    let counts = groups.map(|groups| groups.count.max(1));
    let span = |axis: usize| ranges[axis].0..ranges[axis].0 + ranges[axis].1;
    for a in span(0) {
        for b in span(1) {
            for c in span(2) {
                for d in span(3) {
                    each(((a * counts[1] + b) * counts[2] + c) * counts[3] + d);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiled(lo: u32, hi: u32, tile: u32) -> AxisRegion {
        AxisRegion { lo, hi, pitch: tile, span: tile, drivers: 1, ..AxisRegion::default() }
    }

    fn whole(lo: u32, hi: u32) -> AxisRegion {
        AxisRegion { lo, hi, pitch: hi - lo, span: hi - lo, drivers: 0, ..AxisRegion::default() }
    }

    #[test]
    fn groups_follow_the_larger_tile_when_one_divides_the_other() {
        let groups = AxisGroups::between(&tiled(0, 1000, 64), &tiled(0, 1000, 256));
        assert_eq!((groups.size, groups.count), (256, 4));
        let groups = AxisGroups::between(&tiled(0, 1000, 256), &tiled(0, 1000, 64));
        assert_eq!((groups.size, groups.count), (256, 4));
    }

    #[test]
    fn tiles_that_do_not_divide_use_a_multiple_of_the_producer() {
        let groups = AxisGroups::between(&tiled(0, 1000, 48), &tiled(0, 1000, 128));
        assert_eq!((groups.size, groups.shift), (96, 0));
        let groups = AxisGroups::between(&tiled(0, 1000, 128), &tiled(0, 1000, 48));
        assert_eq!((groups.size, groups.shift), (128, 0));
    }

    #[test]
    fn groups_follow_a_shifted_consumer() {
        // The consumer's tiles start at 64, 320, …: no tile of it should touch two groups.
        let groups = AxisGroups::between(&tiled(0, 1024, 64), &tiled(64, 1024, 256));
        assert_eq!(groups.touched(64, 320).1, 1);
        assert_eq!(groups.touched(320, 576).1, 1);
        // The other way round.
        let groups = AxisGroups::between(&tiled(64, 1024, 64), &tiled(0, 1024, 256));
        assert_eq!(groups.touched(0, 256), (0, 1));
        assert_eq!(groups.touched(256, 512), (1, 1));
    }

    #[test]
    fn a_whole_slice_is_one_group_that_ends_at_the_producers_tiles() {
        // 3 slices of one projection: each waits for its own tiles only.
        for slice in 0..3 {
            let groups = AxisGroups::between(&tiled(0, 3000, 128), &whole(slice * 1000, slice * 1000 + 1000));
            let (first, count) = groups.touched(slice * 1000, slice * 1000 + 1000);
            assert_eq!(count, 1);
            let tiles = (0..24).filter(|tile| {
                let (start, touched) = groups.touched(tile * 128, (tile * 128 + 128).min(3000));
                (start..start + touched).contains(&first)
            });
            assert_eq!(tiles.count() as u32, (slice * 1000 + 1000).div_ceil(128) - slice * 1000 / 128);
        }
    }

    #[test]
    fn a_wide_halo_does_not_touch_more_than_a_few_groups() {
        let halo = AxisRegion { span: 501, pitch: 1, ..tiled(0, 4000, 1) };
        let groups = AxisGroups::between(&tiled(0, 4000, 1), &halo);
        assert!(groups.touched(1000, 1501).1 <= TOUCHED + 1);
    }

    #[test]
    fn coordinates_outside_touch_no_group() {
        let groups = AxisGroups::between(&tiled(100, 200, 10), &tiled(0, 400, 10));
        assert_eq!(groups.touched(0, 100), (0, 0));
        assert_eq!(groups.touched(200, 400), (0, 0));
        assert_eq!(groups.touched(95, 105).1, 1);
    }
}
