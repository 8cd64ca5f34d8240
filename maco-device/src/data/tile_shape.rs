//! The shape of the tile that a GEMM makes, known when it runs.
//!
//! Instances of one task differ in it alone. So who does not multiply runs one code for all of them, and so does whoever has a sum in registers.

/// Rows and columns of the tile that a GEMM makes: 64 or 128 rows, 128 or 256 columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TileShape {
    /// 128 rows: each warpgroup has 64 of them, and all columns. Otherwise 64 rows: each warpgroup has half of the columns.
    pub tall: bool,
    /// 256 columns.
    pub wide: bool,
}

impl TileShape {
    /// That of `rows` × `columns`.
    #[inline(always)]
    pub const fn of(rows: u32, columns: u32) -> TileShape {
        TileShape { tall: rows == 128, wide: columns == 256 }
    }

    /// Rows of the tile.
    #[inline(always)]
    pub const fn rows(self) -> u32 {
        if self.tall { 128 } else { 64 }
    }

    /// Columns of the tile.
    #[inline(always)]
    pub const fn columns(self) -> u32 {
        if self.wide { 256 } else { 128 }
    }

    /// Columns of the tile that one warpgroup has.
    #[inline(always)]
    pub const fn own_columns(self) -> u32 {
        if self.tall { self.columns() } else { self.columns() / 2 }
    }

    /// Where warpgroup `group` stores what of its columns begins with `column`: row and column from the tile's origin.
    #[inline(always)]
    pub const fn position(self, group: u32, column: u32) -> (i32, i32) {
        if self.tall { ((group * 64) as i32, column as i32) } else { (0, (group * (self.columns() / 2) + column) as i32) }
    }
}

/// The shape of a GEMM's tile: `tile` as it was said when its code, which says `I` × `J`, is for several.
#[inline(always)]
pub fn shape_of(tile: Option<(u32, u32)>, i: usize, j: usize) -> TileShape {
    match tile {
        Some((rows, columns)) => TileShape::of(rows, columns),
        None => TileShape::of(i as u32, j as u32),
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::TileShape;

    /// Both warpgroups together have each element once.
    #[test]
    fn two_warpgroups_have_the_whole_tile() {
        for (rows, columns) in [(64, 128), (64, 256), (128, 128), (128, 256)] {
            let shape = TileShape::of(rows, columns);
            assert_eq!((shape.rows(), shape.columns()), (rows, columns));
            let (rows, columns) = (rows as usize, columns as usize);
            let mut seen = vec![false; rows * columns];
            for group in 0..2 {
                for row in 0..64 {
                    for column in 0..shape.own_columns() {
                        let (down, across) = shape.position(group, column);
                        let at = (down as usize + row) * columns + across as usize;
                        assert!(!std::mem::replace(&mut seen[at], true), "{rows}x{columns}: {row} {column} of {group}");
                    }
                }
            }
            assert!(seen.into_iter().all(|seen| seen));
        }
    }
}
