//! Rows that a closure reads together, in memory or in registers.

use super::{Group, Row};
use crate::element::Element;
use crate::hardware::special;
use crate::held::Held;

/// Rows read together, place by place: rows, rows in registers, and tuples of them.
pub trait RowValues: Copy {
    /// What a closure gets.
    type Values: Copy;
    /// Eight of each, packed.
    #[doc(hidden)]
    type Blocks: Copy + Default;
    /// Most blocks of a group: 4, or 2; divides [`HELD`](RowValues::HELD).
    #[doc(hidden)]
    const GROUP: usize;
    /// Blocks of a lane that are in registers.
    #[doc(hidden)]
    const HELD: usize;
    /// The blocks of this lane; what the group does not have is not looked at.
    #[doc(hidden)]
    fn group(&self, group: Group) -> [Self::Blocks; 4];
    /// Registers go around by a group, so that one code serves all.
    #[doc(hidden)]
    fn turn(&self, group: Group);
    #[doc(hidden)]
    fn open(blocks: Self::Blocks) -> [Self::Values; 8];
    /// Values at a place; zero after the end.
    #[doc(hidden)]
    fn value(&self, j: u32) -> Self::Values;
}

impl<E: Element> RowValues for Row<E> {
    type Values = E::Value;
    type Blocks = E::Eight;
    const GROUP: usize = 4;
    const HELD: usize = 0;
    #[inline(always)]
    fn group(&self, group: Group) -> [E::Eight; 4] {
        if self.wide && group.whole <= self.len {
            macro_rules! blocks {
                ($($n:literal)*) => {
                    [$(if group.has($n) { self.wide_block(group.place($n)) } else { E::Eight::default() }),*]
                };
            }
            return blocks!(0 1 2 3);
        }
        let mut blocks = [E::Eight::default(); 4];
        let mut n = 0;
        while n < group.size {
            let j = group.place(n);
            let left = if j < group.whole { self.len.saturating_sub(j) } else { 0 };
            let at = self.base.wrapping_add(j as usize * self.stride as usize);
            // SAFETY: elements inside the row, which lies inside a live tensor.
            let block = unsafe { E::gather::<true>(at, self.stride, 0, left) };
            let [_, b, c, d] = blocks;
            blocks = if group.size == 4 { [b, c, d, block] } else { [b, block, c, d] };
            n = special::opaque(n + 1);
        }
        blocks
    }
    #[inline(always)]
    fn turn(&self, _: Group) {}
    #[inline(always)]
    fn open(block: E::Eight) -> [E::Value; 8] {
        E::open(block)
    }
    #[inline(always)]
    fn value(&self, j: u32) -> E::Value {
        self.at(j)
    }
}

impl<E: Element> RowValues for &Held<E> {
    type Values = E::Value;
    type Blocks = E::Eight;
    // With a second row beside it these are eight loads of 16 bytes.
    const GROUP: usize = if E::BYTES > 2 { 2 } else { 4 };
    const HELD: usize = Held::<E>::BLOCKS;
    #[inline(always)]
    fn group(&self, group: Group) -> [E::Eight; 4] {
        if group.is_held::<Self>() { self.front() } else { self.row().group(group) }
    }
    #[inline(always)]
    fn turn(&self, group: Group) {
        if group.is_held::<Self>() && !group.is_all() {
            self.rotate();
        }
    }
    #[inline(always)]
    fn open(block: E::Eight) -> [E::Value; 8] {
        E::open(block)
    }
    #[inline(always)]
    fn value(&self, j: u32) -> E::Value {
        self.row().at(j)
    }
}

macro_rules! tuple_values {
    ($($name:ident $n:tt),+) => {
        impl<$($name: RowValues),+> RowValues for ($($name,)+) {
            type Values = ($($name::Values,)+);
            type Blocks = ($($name::Blocks,)+);
            const GROUP: usize = {
                let mut least = 4;
                $(if $name::GROUP < least {
                    least = $name::GROUP;
                })+
                $(assert!($name::HELD == 0 || $name::GROUP == least, "rows held together have elements of one size");)+
                least
            };
            const HELD: usize = {
                let mut most = 0;
                $(if $name::HELD > most {
                    most = $name::HELD;
                })+
                most
            };
            #[inline(always)]
            fn group(&self, group: Group) -> [Self::Blocks; 4] {
                let blocks = ($(self.$n.group(group),)+);
                [($(blocks.$n[0],)+), ($(blocks.$n[1],)+), ($(blocks.$n[2],)+), ($(blocks.$n[3],)+)]
            }
            #[inline(always)]
            fn turn(&self, group: Group) {
                $(self.$n.turn(group);)+
            }
            #[inline(always)]
            fn open(blocks: Self::Blocks) -> [Self::Values; 8] {
                let v = ($($name::open(blocks.$n),)+);
                [
                    ($(v.$n[0],)+), ($(v.$n[1],)+), ($(v.$n[2],)+), ($(v.$n[3],)+),
                    ($(v.$n[4],)+), ($(v.$n[5],)+), ($(v.$n[6],)+), ($(v.$n[7],)+),
                ]
            }
            #[inline(always)]
            fn value(&self, j: u32) -> Self::Values {
                ($(self.$n.value(j),)+)
            }
        }
    };
}
tuple_values!(A 0, B 1);
tuple_values!(A 0, B 1, C 2);
tuple_values!(A 0, B 1, C 2, D 3);
