//! The only inline PTX of the crate, one file per instruction family. Policy (what to wait for, in which order) does not
//! belong here.
//!
//! Comments `// maco: …` in the text are tags: they say to the PTX lint what an instruction is for (`docs/internals/ptx_lint.md`).
//!
//! All `asm!` is `nostack`; none is `pure`, because LLVM may move or drop a pure collective.

pub mod barrier;
pub mod convert;
pub mod cta_scope;
pub mod delay;
pub mod fence;
pub mod gpu_scope;
pub mod math;
pub mod matrix;
pub mod mbarrier;
pub mod memory;
pub mod scratch;
pub mod shared;
pub mod special;
pub mod sys_scope;
pub mod tma;
pub mod warp;
pub mod wgmma;
pub mod wgmma_types;
mod words;
