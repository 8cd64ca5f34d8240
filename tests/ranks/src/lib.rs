//! Kernels of several ranks.

pub mod channels;
pub mod collectives;
pub mod mixed;
pub mod pushed;
pub mod sizes;
