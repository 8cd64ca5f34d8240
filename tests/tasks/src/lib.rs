//! Megakernels of the library's memory-bound tasks, a few to each.
pub mod columns;
pub mod elements;
pub mod layouts;
pub mod lookups;
pub mod norms;
pub mod plain;
pub mod rows;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
