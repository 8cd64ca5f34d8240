//! Rows that a closure reads together.

/// What [`crate::RowMut::zip`] reads together, place by place: a row, a reference to one, or a tuple of them.
pub trait Rows {
    /// Where they lie.
    type Views: RowValues;
    #[doc(hidden)]
    fn views(&self) -> Self::Views;
}

/// The same for roles.
pub trait RowValues: Copy {
    /// What a closure gets.
    type Values: Copy;
    /// Eight of each, packed.
    #[doc(hidden)]
    type Blocks: Copy + Default;
    /// Blocks loaded together: 4, or 2.
    #[doc(hidden)]
    const GROUP: usize;
    /// Whether all blocks before element `whole` are one aligned access each.
    #[doc(hidden)]
    fn wide(&self, whole: u32) -> bool;
    /// `N` blocks, 2 or 4, `step` elements apart from element `j` on, all of them wide.
    #[doc(hidden)]
    fn some<const N: usize>(&self, j: u32, step: u32) -> [Self::Blocks; 4];
    /// The block from element `j` on, zero after the end.
    #[doc(hidden)]
    fn one(&self, j: u32) -> Self::Blocks;
    #[doc(hidden)]
    fn open(blocks: Self::Blocks) -> [Self::Values; 8];
    /// Values at a place; zero after the end.
    #[doc(hidden)]
    fn value(&self, j: u32) -> Self::Values;
}

macro_rules! tuple_values {
    ($($name:ident $n:tt),+) => {
        impl<$($name: Rows),+> Rows for ($($name,)+) {
            type Views = ($($name::Views,)+);
            #[inline(always)]
            fn views(&self) -> Self::Views {
                ($(self.$n.views(),)+)
            }
        }
        impl<$($name: RowValues),+> RowValues for ($($name,)+) {
            type Values = ($($name::Values,)+);
            type Blocks = ($($name::Blocks,)+);
            const GROUP: usize = {
                let mut least = 4;
                $(if $name::GROUP < least {
                    least = $name::GROUP;
                })+
                least
            };
            #[inline(always)]
            fn wide(&self, whole: u32) -> bool {
                $(self.$n.wide(whole))&&+
            }
            #[inline(always)]
            fn some<const N: usize>(&self, j: u32, step: u32) -> [Self::Blocks; 4] {
                let blocks = ($(self.$n.some::<N>(j, step),)+);
                [($(blocks.$n[0],)+), ($(blocks.$n[1],)+), ($(blocks.$n[2],)+), ($(blocks.$n[3],)+)]
            }
            #[inline(always)]
            fn one(&self, j: u32) -> Self::Blocks {
                ($(self.$n.one(j),)+)
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
