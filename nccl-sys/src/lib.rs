//! NCCL's host API, loaded at run time. A missing library, function or version is an error and nothing panics.
//!
//! ```no_run
//! use nccl_sys::{Nccl, ncclConfig_t};
//!
//! # fn main() -> Result<(), nccl_sys::Error> {
//! let nccl = Nccl::load()?;
//! println!("NCCL {}", nccl.version());
//!
//! // A communicator that uses eight CTAs and no clusters, and whose calls return at once.
//! let mut config = ncclConfig_t { blocking: 0, cgaClusterSize: 1, minCTAs: 8, maxCTAs: 8, ..ncclConfig_t::default() };
//! let id = nccl.unique_id()?;
//! let mut comm = std::ptr::null_mut();
//! // SAFETY: `comm` and `config` live until the communicator is destroyed, and there is a CUDA context.
//! let status = unsafe { nccl.comm_init_rank_config(&mut comm, 2, id, 0, &mut config)? };
//! # Ok(())
//! # }
//! ```
//!
//! [`Nccl::load`] takes the library that the variable `MACO_NCCL` names, or the first of [`NAMES`]; [`OLDEST`] and newer. Symmetric
//! windows need NCCL 2.27.3, pointers into them from the host, put and signal 2.29.3. An older library loads without them, and to call
//! them is an error, which [`Nccl::has_windows`] and [`Nccl::has_one_sided`] tell before. Versions that are known to be bad are
//! refused; [`FAULTS`] lists them, and what only spoils some uses, which [`Nccl::check`] tells.
//!
//! Types have the names of NCCL's header. They are newtypes where the header has enums, so that values of newer versions are valid.
//! Functions have those names without `nccl`, in Rust's spelling.

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    dead_code,
    unused_qualifications,
    clippy::undocumented_unsafe_blocks,
    clippy::missing_safety_doc,
    clippy::type_complexity,
    clippy::too_many_arguments
)]
#[rustfmt::skip]
mod bindings;
mod collective;
mod communicator;
mod config;
mod error;
mod fault;
mod load;
mod memory;
mod version;

pub use bindings::{
    NCCL_API_MAGIC, NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO, NCCL_UNIQUE_ID_BYTES, NCCL_VERSION_CODE,
    NCCL_WIN_COLL_SYMMETRIC, NCCL_WIN_DEFAULT, NCCL_WIN_GIN_ONLY, NCCL_WIN_REQUIRED_ALIGNMENT, NCCL_WIN_STRICT_ORDERING, cudaStream_t,
    ncclAvg, ncclBfloat16, ncclComm_t, ncclConfig_t, ncclDataType_t, ncclFloat8e4m3, ncclFloat8e5m2, ncclFloat16, ncclFloat32, ncclFloat64,
    ncclInProgress, ncclInt8, ncclInt32, ncclInt64, ncclInternalError, ncclInvalidArgument, ncclInvalidUsage, ncclMax, ncclMin, ncclProd,
    ncclRedOp_t, ncclRemoteError, ncclResult_t, ncclSuccess, ncclSum, ncclSystemError, ncclTimeout, ncclUint8, ncclUint32, ncclUint64,
    ncclUnhandledCudaError, ncclUniqueId, ncclWaitSignalDesc_t, ncclWindow_t,
};
pub use config::{NCCL_CONFIG_INITIALIZER, NCCL_CONFIG_UNDEF_INT};
pub use error::{Attempt, Error};
pub use fault::{FAULTS, Fault, Use};
pub use load::{NAMES, Nccl, OLDEST, Status};
pub use version::Version;
