//! Kernels of several ranks.

pub mod channels;
pub mod collectives;
