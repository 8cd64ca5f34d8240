//! What consumers do with products: sums in registers, their chunks, parts of them in device memory, and operands in shared memory.
//!
//! When to multiply, to stage and to release a stage does not belong here. All code is unrolled: an index that is no literal would keep an array in local memory.

mod chunk;
mod operand;
mod partial_sum;
mod sum;

pub use chunk::{Chunk, Pending, Turning, chunk, empty, whole, write};
pub use operand::{BLOCK, map_operand_a, turn};
pub use partial_sum::{ADDED, Columns, add, keep, keep_columns, nothing, owned};
pub use sum::{Sum, Wgmma, agree, begin, combine, keep_registers, simt};
