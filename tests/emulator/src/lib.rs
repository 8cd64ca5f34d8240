//! A driver library `libcuda.so.1` whose GPU is this machine's processor: it interprets PTX, to find functional mistakes of device code.
//!
//! [`driver`] is the interface of CUDA's driver, [`ptx`] decodes modules, [`exec`] runs launches, [`memory`] is the GPU's memory.
#![allow(non_snake_case)]

mod driver;
mod exec;
mod memory;
mod ptx;
mod settings;

#[cfg(test)]
mod tests;
