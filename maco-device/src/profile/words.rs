//! The words of shared memory in which a CTA keeps what it records.

use maco_abi::ROLES;

/// Whether this code notes anything.
pub const ON: bool = cfg!(any(maco_profile, not(target_arch = "nvptx64")));

/// Bytes of shared memory: the address of the worker's records, how many a role has, what a scheduler has there ([`super::served`]), then
/// [`ROLE_BYTES`] per role.
pub const BYTES: u32 = ROLE_WORDS + ROLES * ROLE_BYTES;
pub const ADDRESS: u32 = 0;
pub const CAPACITY: u32 = 8;
pub const SERVED: u32 = 12;
pub const ROLE_WORDS: u32 = SERVED + 20;
/// Of a role: records made, and the tick at which what comes next began.
pub const ROLE_BYTES: u32 = 8;
pub const START: u32 = 4;
