//! Kernels of several ranks.

pub mod collectives;
