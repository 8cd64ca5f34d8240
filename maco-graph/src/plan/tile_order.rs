//! In which order the tiles of a call are counted and dealt: data of the plan, from a place in the order to a tile and back.
//!
//! What belongs to which rank does not belong here: `own_share` says where an order begins.

use maco_abi::AXES;

/// Rows of tiles per group: the tiles of a group are ordered column by column, so that operands are still in the L2 cache.
pub(super) const ROWS: u32 = 16;

/// The order of the tiles of a call: in groups of rows, column by column. Of three grid axes the first is that of planes, and the other two are rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileOrder {
    /// Rows of a group; at least 1.
    pub group_rows: u32,
    /// Least rows of the last groups: what is left of less than two groups is halved until a group has as few. At least 1; no less than `group_rows`: nothing is halved.
    pub last_rows: u32,
    /// Whether the tiles of all planes at one row and column follow each other; else all tiles of a plane do. Only of grids of three axes.
    pub planes_last: bool,
    /// Which row comes when.
    pub rows: Shares,
    /// Which column of a group comes when.
    pub columns: Shares,
}

/// Which rows or columns of tiles come when, if each rank has a share of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shares {
    /// In their order.
    #[default]
    Whole,
    /// Each `count` neighbours are of all shares. Of them number `first` comes first, those before it behind the last.
    Neighbours {
        /// How many shares.
        count: u32,
        /// Which of them is first.
        first: u32,
    },
    /// Shares lie one behind the other. One of each comes in turn, of share `first` first.
    InTurn {
        /// How many shares.
        count: u32,
        /// Which of them is first.
        first: u32,
    },
    /// Shares lie one behind the other. All of share `first` comes first, the shares before it behind the last.
    Behind {
        /// How many shares.
        count: u32,
        /// Which of them is first.
        first: u32,
    },
}

impl Shares {
    /// What comes at place `place` of `extent`.
    pub fn at(self, place: u32, extent: u32) -> u32 {
        match self {
            Shares::Neighbours { count, first } if count > 1 => {
                let start = place / count * count;
                start + (place - start + first) % count.min(extent - start)
            }
            Shares::InTurn { count, first } if count > 1 => {
                let each = extent / count;
                // What is left of whole shares comes last.
                if place < each * count { (place % count + first) % count * each + place / count } else { place }
            }
            Shares::Behind { count, first } if count > 1 => {
                let start = u64::from(extent) * u64::from(first % count) / u64::from(count);
                ((u64::from(place) + start) % u64::from(extent)) as u32
            }
            _ => place,
        }
    }

    /// The place of number `of` of `extent`: what [`Shares::at`] has there.
    pub fn place(self, of: u32, extent: u32) -> u32 {
        match self {
            Shares::Neighbours { count, first } if count > 1 => {
                let start = of / count * count;
                let length = count.min(extent - start);
                start + (of - start + length - first % length) % length
            }
            Shares::InTurn { count, first } if count > 1 => {
                let each = extent / count;
                if of < each * count { of % each * count + (of / each + count - first % count) % count } else { of }
            }
            Shares::Behind { count, first } if count > 1 => {
                let start = u64::from(extent) * u64::from(first % count) / u64::from(count);
                ((u64::from(of) + u64::from(extent) - start) % u64::from(extent)) as u32
            }
            _ => of,
        }
    }

    /// The same shares on rank `rank` where share `rank + ahead` is the first.
    fn of_rank(self, rank: u32, ahead: u32) -> Shares {
        let of = |count: u32| (rank + ahead) % count.max(1);
        match self {
            Shares::Whole => Shares::Whole,
            Shares::Neighbours { count, .. } => Shares::Neighbours { count, first: of(count) },
            Shares::InTurn { count, .. } => Shares::InTurn { count, first: of(count) },
            Shares::Behind { count, .. } => Shares::Behind { count, first: of(count) },
        }
    }

    /// How many there are, and which one is first; 1 and 0 without shares.
    pub fn count_and_first(self) -> (u32, u32) {
        match self {
            Shares::Whole => (1, 0),
            Shares::Neighbours { count, first } | Shares::InTurn { count, first } | Shares::Behind { count, first } => (count, first),
        }
    }
}

impl Default for TileOrder {
    fn default() -> TileOrder {
        TileOrder::GROUPS
    }
}

impl TileOrder {
    /// Groups of 16 rows, from the first row and column on.
    pub const GROUPS: TileOrder =
        TileOrder { group_rows: ROWS, last_rows: ROWS, planes_last: false, rows: Shares::Whole, columns: Shares::Whole };

    /// Whether it begins elsewhere on another rank.
    pub fn has_shares(&self) -> bool {
        self.rows.count_and_first().0 > 1 || self.columns.count_and_first().0 > 1
    }

    /// The same order where the first share is another one: number `first` of all that have shares.
    pub fn beginning_at(self, first: u32) -> TileOrder {
        TileOrder { rows: self.rows.of_rank(first, 0), columns: self.columns.of_rank(first, 0), ..self }
    }

    /// The tile at place `place` of a grid that has so many: its coordinates.
    ///
    /// # Panics
    /// If the grid has no such tile.
    pub fn tile(&self, grid: [u32; AXES], place: u32) -> [u32; AXES] {
        let [planes, rows, columns] = self.axes(grid);
        let tiles = rows * columns;
        let (plane, within) = if self.planes_last { (place % planes, place / planes) } else { (place / tiles, place % tiles) };
        let whole = (within / (self.group_rows * columns)).min(self.whole_groups(rows));
        let (mut first, mut before) = (whole * self.group_rows, whole * self.group_rows * columns);
        loop {
            let height = self.group(rows - first);
            if within < before + height * columns {
                let (column, row) = ((within - before) / height, (within - before) % height);
                return self.coordinates(grid, [plane, self.rows.at(first + row, rows), self.columns.at(column, columns)]);
            }
            (first, before) = (first + height, before + height * columns);
        }
    }

    /// The place of the tile at these coordinates: where [`TileOrder::tile`] has it.
    ///
    /// # Panics
    /// If the grid has no such tile.
    pub fn place(&self, grid: [u32; AXES], coord: [u32; AXES]) -> u32 {
        let [planes, rows, columns] = self.axes(grid);
        let [plane, row, column] = if self.has_planes(grid) { coord } else { [0, coord[0], coord[1]] };
        let (row, column) = (self.rows.place(row, rows), self.columns.place(column, columns));
        let mut first = (row / self.group_rows).min(self.whole_groups(rows)) * self.group_rows;
        loop {
            let height = self.group(rows - first);
            if row < first + height {
                let within = first * columns + column * height + (row - first);
                return if self.planes_last { within * planes + plane } else { plane * rows * columns + within };
            }
            first += height;
        }
    }

    /// Calls `each` with the coordinates of every tile of `grid`, in order.
    pub fn for_each_tile(&self, grid: [u32; AXES], mut each: impl FnMut([u32; AXES])) {
        let [planes, rows, columns] = self.axes(grid);
        let (slowest, fastest) = if self.planes_last { (1, planes) } else { (planes, 1) };
        for slow in 0..slowest {
            let mut first = 0;
            while first < rows {
                let end = first + self.group(rows - first);
                for column in 0..columns {
                    let column = self.columns.at(column, columns);
                    for row in first..end {
                        let row = self.rows.at(row, rows);
                        (0..fastest).for_each(|fast| each(self.coordinates(grid, [slow + fast, row, column])));
                    }
                }
                first = end;
            }
        }
    }

    /// The first groups of so many rows, all of which have the same size: at least those behind which more than a group is left.
    fn whole_groups(&self, rows: u32) -> u32 {
        (rows - 1) / self.group_rows
    }

    /// Rows of the next group, of so many that are left.
    fn group(&self, left: u32) -> u32 {
        match left {
            _ if left > self.group_rows || self.last_rows >= self.group_rows => self.group_rows.min(left),
            _ if left <= self.last_rows => left,
            _ => (left / 2).next_multiple_of(self.last_rows),
        }
    }

    /// Whether the first axis is that of planes: three axes whose last one has one tile look like two, but in an order that says so.
    fn has_planes(&self, grid: [u32; AXES]) -> bool {
        self.planes_last || grid[2] > 1
    }

    /// Planes, rows and columns of a grid.
    fn axes(&self, grid: [u32; AXES]) -> [u32; 3] {
        if self.has_planes(grid) { grid } else { [1, grid[0], grid[1].min(grid[1] * grid[2])] }
    }

    /// Coordinates of the tile of this plane, row and column.
    fn coordinates(&self, grid: [u32; AXES], [plane, row, column]: [u32; 3]) -> [u32; AXES] {
        if self.has_planes(grid) { [plane, row, column] } else { [row, column, 0] }
    }
}

#[cfg(test)]
mod tests {
    use maco_abi::Messages;

    use super::*;

    fn walk(order: TileOrder, grid: [u32; AXES]) -> Vec<[u32; AXES]> {
        let mut tiles = Vec::new();
        order.for_each_tile(grid, |coord| tiles.push(coord));
        tiles
    }

    /// Every kind of shares, of so many, that begins at `first`.
    fn shares(count: u32, first: u32) -> [Shares; 4] {
        [Shares::Whole, Shares::Neighbours { count, first }, Shares::InTurn { count, first }, Shares::Behind { count, first }]
    }

    /// Groups of 16 rows, then of 8, 4, 4; of what is left of 16, the same.
    #[test]
    fn last_groups_have_fewer_rows() {
        let rows = |rows, last_rows| {
            let order = TileOrder { last_rows, ..TileOrder::GROUPS };
            let (mut left, mut groups) = (rows, Vec::new());
            while left > 0 {
                groups.push(order.group(left));
                left -= groups[groups.len() - 1];
            }
            groups
        };
        assert_eq!(rows(64, 4), [16, 16, 16, 8, 4, 4]);
        assert_eq!(rows(36, 4), [16, 16, 4]);
        assert_eq!(rows(13, 3), [6, 3, 3, 1]);
        assert_eq!(rows(33, ROWS), [16, 16, 1]);
        let tiles = walk(TileOrder { last_rows: 2, ..TileOrder::GROUPS }, [21, 3, 1]);
        let last: Vec<u32> = tiles[48..].iter().map(|coord| coord[0]).collect();
        assert_eq!(last, [16, 17, 16, 17, 16, 17, 18, 19, 18, 19, 18, 19, 20, 20, 20]);
    }

    /// Of all small grids, groups and shares: every tile once, and from place to tile and back.
    #[test]
    fn an_order_is_a_permutation_of_the_tiles() {
        let mut grids = vec![[40, 1, 1], [33, 7, 1], [3, 20, 5], [2, 1, 3], [0, 4, 1], [4, 0, 1], [4, 4, 0], [0, 0, 0], [64, 9, 1]];
        grids.extend((1..20).flat_map(|rows| [1, 2, 3, 4, 5, 6, 7, 8, 12, 13].map(|columns| [rows, columns, 1])));
        grids.extend([[2, 40, 1], [3, 33, 7], [0, 3, 3], [3, 0, 3]]);
        for grid in grids {
            for (group_rows, last_rows) in [(16, 16), (16, 4), (16, 3), (5, 2), (1, 1), (3, 7)] {
                for (count, first) in [(1, 0), (2, 0), (2, 1), (3, 2), (4, 1), (4, 3), (8, 5)] {
                    for rows in shares(count, first) {
                        for (columns, planes_last) in
                            shares(count, first).into_iter().flat_map(|columns| [(columns, false), (columns, true)])
                        {
                            let order = TileOrder { group_rows, last_rows, planes_last, rows, columns };
                            let tiles = walk(order, grid);
                            assert_eq!(tiles.len() as u32, grid.iter().product::<u32>(), "{grid:?} {order:?}");
                            for (place, &tile) in (0..).zip(&tiles) {
                                assert!((0..AXES).all(|axis| tile[axis] < grid[axis]), "{grid:?} {order:?}");
                                // One place for each tile, so no tile twice.
                                assert_eq!((order.tile(grid, place), order.place(grid, tile)), (tile, place), "{grid:?} {order:?}");
                            }
                        }
                    }
                }
            }
        }
    }

    /// Where tiles have slots in turn, device code finds a tile's place by its coordinates.
    #[test]
    fn device_code_knows_the_order() {
        for [rows, columns] in [[1, 1], [16, 3], [33, 7], [40, 1], [5, 20]] {
            let in_turn = |rows, grid| Messages { tiles: 2, grid, rows, ..Messages::default() };
            for (place, tile) in (0..).zip(walk(TileOrder::GROUPS, [rows, columns, 1])) {
                assert_eq!(in_turn(rows as u16, [columns, 1]).turn(tile, false).index, place);
            }
            for (place, tile) in (0..).zip(walk(TileOrder::GROUPS, [3, rows, columns])) {
                assert_eq!(in_turn(3, [rows, columns]).turn(tile, false).index, place);
            }
            let order = TileOrder { planes_last: true, ..TileOrder::GROUPS };
            for (place, tile) in (0..).zip(walk(order, [3, rows, columns])) {
                assert_eq!((tile[0], in_turn(3, [rows, columns]).turn(tile, true).index), (place % 3, place / 3));
            }
        }
    }

    #[test]
    fn tiles_go_column_by_column_in_groups_of_sixteen_rows() {
        let tiles = walk(TileOrder::GROUPS, [20, 3, 1]);
        assert_eq!(tiles[0], [0, 0, 0]);
        assert_eq!(tiles[15], [15, 0, 0]);
        assert_eq!(tiles[16], [0, 1, 0]);
        assert_eq!(tiles[48], [16, 0, 0]);
        assert_eq!(tiles[52], [16, 1, 0]);
    }

    #[test]
    fn an_order_begins_at_its_first_share() {
        let along = |shares: Shares, extent| (0..extent).map(|place| shares.at(place, extent)).collect::<Vec<u32>>();
        // The last neighbours are fewer.
        assert_eq!(along(Shares::Neighbours { count: 3, first: 2 }, 8), [2, 0, 1, 5, 3, 4, 6, 7]);
        assert_eq!(along(Shares::InTurn { count: 3, first: 1 }, 7), [2, 4, 0, 3, 5, 1, 6]);
        assert_eq!(along(Shares::Behind { count: 3, first: 1 }, 6), [2, 3, 4, 5, 0, 1]);
        let order = TileOrder { columns: Shares::Neighbours { count: 2, first: 0 }, ..TileOrder::GROUPS };
        assert!(order.has_shares() && !TileOrder::GROUPS.has_shares());
        let other = order.beginning_at(3);
        assert_eq!(other.columns, Shares::Neighbours { count: 2, first: 1 });
        assert_eq!((walk(other, [2, 2, 1])[0], walk(order, [2, 2, 1])[0]), ([0, 1, 0], [0, 0, 0]));
    }
}
