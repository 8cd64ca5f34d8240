//! A row as one of several that a closure reads together.

use super::RowView;
use super::values::RowValues;
use crate::data::element::Element;

impl<E: Element> RowValues for RowView<E> {
    type Values = E::Value;
    type Blocks = E::Eight;
    // With a second row beside it these are eight loads of 16 bytes.
    const GROUP: usize = if E::BYTES > 2 { 2 } else { 4 };
    #[inline(always)]
    fn wide(&self, whole: u32) -> bool {
        self.wide && whole <= self.len
    }
    #[inline(always)]
    fn some<const N: usize>(&self, j: u32, step: u32) -> [E::Eight; 4] {
        macro_rules! blocks {
            ($load:expr) => {{
                let load = $load;
                if const { N > 2 } {
                    [load(j), load(j + step), load(j + 2 * step), load(j + 3 * step)]
                } else {
                    [load(j), load(j + step), E::Eight::default(), E::Eight::default()]
                }
            }};
        }
        if self.near != 0 {
            // SAFETY: inside the row, which has arrived; blocks of eight at 16-byte boundaries.
            blocks!(|j: u32| unsafe { E::eight_near(self.near + j * E::BYTES) })
        } else {
            // SAFETY: inside the row, which lies inside a live tensor; `wide` promises the alignment.
            blocks!(|j: u32| unsafe { E::eight(self.base.wrapping_add(j as usize)) })
        }
    }
    #[inline(always)]
    fn one(&self, j: u32) -> E::Eight {
        // SAFETY: (of all) as above; else elements inside the row.
        unsafe {
            if self.near != 0 {
                E::eight_near(self.near + j * E::BYTES)
            } else if self.wide && j + 8 <= self.len {
                E::eight(self.base.wrapping_add(j as usize))
            } else {
                let at = self.base.wrapping_add(j as usize * self.stride as usize);
                E::gather::<false>(at, self.stride, 0, self.len.saturating_sub(j))
            }
        }
    }
    #[inline(always)]
    fn open(block: E::Eight) -> [E::Value; 8] {
        E::open(block)
    }
    #[inline(always)]
    fn value(&self, j: u32) -> E::Value {
        self.at(j)
    }
}
