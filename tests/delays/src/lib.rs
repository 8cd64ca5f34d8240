//! Graphs with every kind of edge, and with every way from rank to rank, in device code that sleeps before waits, loads, stores and signals.
pub mod kernels;
pub mod ranks;
