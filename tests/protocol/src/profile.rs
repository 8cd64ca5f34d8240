//! Nothing is recorded.

use crate::shared_memory::SharedMemory;

pub mod words {
    pub const ON: bool = false;
    pub const BYTES: u32 = 56;
}

pub unsafe fn turn(_: SharedMemory) {}

pub unsafe fn waited(_: SharedMemory, _: u32) {}

pub unsafe fn ran(_: SharedMemory, _: u32) -> Ran {
    Ran
}

pub struct Ran;

impl Ran {
    pub unsafe fn note(self, _: SharedMemory) {}
}

pub mod served {
    pub struct Serving;

    impl Serving {
        pub fn here() -> ! {
            unreachable!("no model has spare warps")
        }
    }
}
