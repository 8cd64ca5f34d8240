//! `nccl-sys` with a library that only writes down its calls: no GPU and no NCCL are needed.

mod calls;
mod generated;
mod library;
mod load;
