//! Comparisons of small enums that const evaluation cannot derive.

use super::{Element, ScalarType};

impl Element {
    /// Equality, usable in const evaluation.
    pub const fn same(self, other: Element) -> bool {
        self as u8 == other as u8
    }

    /// Place in a list.
    pub const fn position(self, list: &[Element]) -> Option<u32> {
        let mut n = 0;
        while n < list.len() {
            if list[n].same(self) {
                return Some(n as u32);
            }
            n += 1;
        }
        None
    }
}

impl ScalarType {
    /// Equality, usable in const evaluation.
    pub const fn same(self, other: ScalarType) -> bool {
        self as u8 == other as u8
    }

    /// The name as a user writes it.
    pub const fn name(self) -> &'static str {
        match self {
            ScalarType::F32 => "f32",
            ScalarType::U32 => "u32",
            ScalarType::I32 => "i32",
        }
    }
}
