//! One graph with every kind of edge, in device code that sleeps before waits, loads, stores and signals.
pub mod kernels;
