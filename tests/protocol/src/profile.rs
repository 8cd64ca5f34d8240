//! Nothing is recorded.

use crate::role::arena::Arena;

pub const BYTES: u32 = 56;

pub unsafe fn clear(_: Arena) {}

pub unsafe fn turn(_: Arena) {}

pub unsafe fn waited(_: Arena, _: u32) {}

pub unsafe fn ran(_: Arena, _: u32) -> Ran {
    Ran
}

pub struct Ran;

impl Ran {
    pub unsafe fn note(self, _: Arena) {}
}

pub mod served {
    pub struct Serving;

    impl Serving {
        pub fn here() -> ! {
            unreachable!("no model has spare warps")
        }
    }
}
