//! What macros, planner, host and device agree on: limits, and what the host writes and the device reads.
//!
//! Behaviour does not belong here. Every structure is `repr(C)` and plain old data, valid for any bit pattern but for `op`, and holds no pointer but the bases in
//! [`Launch`] and [`View::base`].
#![cfg_attr(not(test), no_std)]

mod descriptor;
mod faults;
mod flags;
mod launch;
mod lean;
mod limits;
mod ranks;
mod record;
mod signal;
mod view;
mod wait;

pub use descriptor::*;
pub use faults::*;
pub use flags::*;
pub use launch::*;
pub use lean::*;
pub use limits::*;
pub use ranks::*;
pub use record::*;
pub use signal::*;
pub use view::*;
pub use wait::*;
