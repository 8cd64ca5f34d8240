//! The order of the operations of one body: threads meet where one may read or overwrite what another has written or still reads.
//!
//! Whether it may is known when the body is compiled, from the access of what an operation reads and writes ([`Access::SHARED`]). Where both operations give the
//! same elements to the same threads, nobody waits: of rows a warp's lanes meet, of elements nobody does.
//!
//! [`Access::SHARED`]: crate::data::access::Access::SHARED

use crate::hardware::warp;

/// How an operation shares out elements among the threads of a CTA.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Element by element, of a tile of so many rows and columns; `blocks`: in blocks of eight columns, and `spreads`: whose halves neighbouring lanes exchange.
    Elements { rows: u32, cols: u32, blocks: bool, spreads: bool },
    /// A row for each warp, of so many rows.
    Rows(u32),
    /// In a way of its own, such as by position or by index.
    Own,
}

/// How operations have shared out elements since all threads of the CTA last met.
#[derive(Clone, Copy)]
pub enum Since {
    /// There was none.
    Nothing,
    /// All in this way.
    By(Mapping),
    /// In several.
    Mixed,
}

impl Since {
    /// Before an operation of this mapping: threads meet, by `meet`, if it is `shared`, that is, if others may have written what it reads, or read what it
    /// overwrites. All threads find the same.
    #[inline(always)]
    pub fn next(&mut self, shared: bool, mapping: Mapping, meet: impl FnOnce()) {
        let same = match *self {
            Since::Nothing => return *self = Since::By(mapping),
            Since::By(last) => mapping != Mapping::Own && last == mapping,
            Since::Mixed => false,
        };
        if !shared {
            if !same {
                *self = Since::Mixed;
            }
            return;
        }
        match mapping {
            // What a lane reads it has written itself, or a lane beside it.
            Mapping::Elements { spreads: true, .. } | Mapping::Rows(_) if same => warp::sync(),
            Mapping::Elements { .. } if same => {}
            _ => {
                meet();
                *self = Since::By(mapping);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: Mapping = Mapping::Elements { rows: 4, cols: 64, blocks: true, spreads: false };
    const OTHERS: Mapping = Mapping::Elements { rows: 4, cols: 63, blocks: false, spreads: false };

    /// At which of these operations threads meet.
    fn met(operations: &[(bool, Mapping)]) -> Vec<bool> {
        let mut since = Since::Nothing;
        let one = |&(shared, mapping): &(bool, Mapping)| {
            let mut met = false;
            since.next(shared, mapping, || met = true);
            met
        };
        operations.iter().map(one).collect()
    }

    #[test]
    fn threads_meet_where_one_may_see_what_another_has_written() {
        for (before, then) in
            [(BLOCKS, OTHERS), (BLOCKS, Mapping::Rows(4)), (Mapping::Rows(4), BLOCKS), (Mapping::Own, Mapping::Own), (BLOCKS, Mapping::Own)]
        {
            assert_eq!(met(&[(true, before), (true, then)]), [false, true]);
            assert_eq!(met(&[(false, before), (false, then)]), [false, false], "nobody reads it");
            // Also if one that shares nothing came between.
            assert_eq!(met(&[(true, before), (false, then), (true, before)]), [false, false, true]);
        }
    }

    #[test]
    fn nobody_waits_where_the_same_threads_have_the_same_elements() {
        for mapping in [BLOCKS, OTHERS, Mapping::Rows(4)] {
            assert_eq!(met(&[(true, mapping), (true, mapping), (true, mapping)]), [false; 3]);
        }
        // Behind a barrier it begins anew.
        assert_eq!(met(&[(true, BLOCKS), (true, OTHERS), (true, OTHERS), (true, BLOCKS)]), [false, true, false, true]);
    }
}
