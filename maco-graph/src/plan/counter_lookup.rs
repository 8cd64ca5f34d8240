//! From a tile's coordinates to the counters it touches.
//!
//! Which counters there are does not belong here. Tables are per axis: building them costs the sum of a grid's extents,
//! a lookup a few additions.

use maco_abi::{AXES, RANK};

use super::counter_groups::{AxisGroups, CounterSet, for_each_cell};
use super::region::{Region, Regions};

/// Lookups of one call, with the memory of their tables.
#[derive(Default)]
pub(super) struct Tables {
    pub lookups: Vec<Lookup>,
    /// Contributions to a counter's number, by grid coordinate.
    sums: Vec<u32>,
    /// Groups touched (first, count) along one tensor axis.
    ranges: Vec<(u32, u32)>,
}

/// One region against one counter set.
pub(super) struct Lookup {
    /// An earlier lookup of the same call may give the same counter.
    pub shared: bool,
    base: u32,
    way: Way,
}

enum Way {
    /// The first counter, for every tile.
    All,
    /// Every tile touches one counter: start of a table in `sums` per grid axis.
    One([usize; AXES]),
    Many(Box<Many>),
}

/// Tiles that touch several counters, or none.
struct Many {
    /// Start of a table in `ranges` and weights of the coordinates, per tensor axis.
    axes: [(usize, [u32; AXES]); RANK],
    groups: [AxisGroups; RANK],
}

impl Tables {
    /// Forgets all lookups, keeps the memory.
    pub fn clear(&mut self) {
        self.lookups.clear();
        self.sums.clear();
        self.ranges.clear();
    }

    /// Adds the counters of `set` that the tiles of `region` touch.
    pub fn add(&mut self, regions: &Regions, region: &Region, set: &CounterSet, shared: bool) {
        let rank = usize::from(region.rank);
        let mut starts = [self.ranges.len(); RANK + 1];
        let mut one = true;
        for axis in 0..rank {
            let groups = &set.groups[axis];
            regions.intervals(region, axis, |lo, hi| {
                let touched = groups.touched(lo, hi);
                one &= touched.1 == 1;
                self.ranges.push(touched);
            });
            starts[axis + 1] = self.ranges.len();
            one &= region.axes[axis].drivers.count_ones() <= 1;
        }
        let way = if one {
            let way = Way::One(self.sum(regions, region, set, &starts));
            self.ranges.truncate(starts[0]);
            way
        } else {
            let mut axes = [(0, [0; AXES]); RANK];
            for axis in 0..rank {
                axes[axis] = (starts[axis], regions.weights(region, axis));
            }
            // Axes beyond the rank ask for entry 0 of this one-group table.
            axes[rank..].fill((self.ranges.len(), [0; AXES]));
            self.ranges.push((0, 1));
            Way::Many(Box::new(Many { axes, groups: set.groups }))
        };
        self.lookups.push(Lookup { shared, base: set.base, way });
    }

    fn sum(&mut self, regions: &Regions, region: &Region, set: &CounterSet, starts: &[usize; RANK + 1]) -> [usize; AXES] {
        let grid = regions.grid(region.call);
        let mut tables = [0; AXES];
        for g in 0..AXES {
            tables[g] = self.sums.len();
            self.sums.resize(tables[g] + grid[g] as usize, 0);
        }
        let mut stride = 1;
        for axis in (0..usize::from(region.rank)).rev() {
            let touched = &self.ranges[starts[axis]..];
            // An axis that no coordinate moves adds the same to all tiles: put it into the first table.
            let (g, fixed) = match region.axes[axis].drivers {
                0 => (0, true),
                drivers => (drivers.trailing_zeros() as usize, false),
            };
            for (coord, sum) in self.sums[tables[g]..][..grid[g] as usize].iter_mut().enumerate() {
                *sum += touched[if fixed { 0 } else { coord }].0 * stride;
            }
            stride *= set.groups[axis].count;
        }
        tables
    }

    /// Adds the one counter of `set` for all tiles.
    pub fn add_all(&mut self, set: &CounterSet, shared: bool) {
        self.lookups.push(Lookup { shared, base: set.base, way: Way::All });
    }

    /// Calls `each` with every counter that the tile at `coord` touches.
    #[inline]
    pub fn counters(&self, lookup: &Lookup, coord: [u32; AXES], mut each: impl FnMut(u32)) {
        match &lookup.way {
            Way::All => each(lookup.base),
            Way::One(tables) => {
                let sum: u32 = (0..AXES).map(|g| self.sums[tables[g] + coord[g] as usize]).sum();
                each(lookup.base + sum);
            }
            Way::Many(many) => {
                let ranges = many.axes.map(|(start, weights)| {
                    let index: u32 = (0..AXES).map(|g| coord[g] * weights[g]).sum();
                    self.ranges[start + index as usize]
                });
                for_each_cell(&ranges, &many.groups, |cell| each(lookup.base + cell));
            }
        }
    }
}
