//! The configuration of a communicator before anything is set.

use core::ffi::{c_int, c_uint};
use core::ptr::null;

use crate::bindings::{NCCL_API_MAGIC, NCCL_VERSION_CODE, ncclConfig_t};

/// "Not set": NCCL chooses.
pub const NCCL_CONFIG_UNDEF_INT: c_int = c_int::MIN;

/// `NCCL_CONFIG_INITIALIZER` of the header: nothing is set.
///
/// Size and version are those of the header, also for another library: an older one reads as much as it knows, a newer one takes
/// the rest as not set.
pub const NCCL_CONFIG_INITIALIZER: ncclConfig_t = ncclConfig_t {
    size: size_of::<ncclConfig_t>(),
    magic: NCCL_API_MAGIC as c_uint,
    version: NCCL_VERSION_CODE as c_uint,
    blocking: NCCL_CONFIG_UNDEF_INT,
    cgaClusterSize: NCCL_CONFIG_UNDEF_INT,
    minCTAs: NCCL_CONFIG_UNDEF_INT,
    maxCTAs: NCCL_CONFIG_UNDEF_INT,
    netName: null(),
    splitShare: NCCL_CONFIG_UNDEF_INT,
    trafficClass: NCCL_CONFIG_UNDEF_INT,
    commName: null(),
    collnetEnable: NCCL_CONFIG_UNDEF_INT,
    CTAPolicy: NCCL_CONFIG_UNDEF_INT,
    shrinkShare: NCCL_CONFIG_UNDEF_INT,
    nvlsCTAs: NCCL_CONFIG_UNDEF_INT,
    nChannelsPerNetPeer: NCCL_CONFIG_UNDEF_INT,
    nvlinkCentricSched: NCCL_CONFIG_UNDEF_INT,
    graphUsageMode: NCCL_CONFIG_UNDEF_INT,
    numRmaCtx: NCCL_CONFIG_UNDEF_INT,
    maxP2pPeers: NCCL_CONFIG_UNDEF_INT,
    graphStreamOrdering: NCCL_CONFIG_UNDEF_INT,
    launchOrderImplicit: NCCL_CONFIG_UNDEF_INT,
    numRmaSig: NCCL_CONFIG_UNDEF_INT,
    rmaEagerInit: NCCL_CONFIG_UNDEF_INT,
    hostCftMode: NCCL_CONFIG_UNDEF_INT,
    nvlsHostMode: NCCL_CONFIG_UNDEF_INT,
};

impl Default for ncclConfig_t {
    fn default() -> ncclConfig_t {
        NCCL_CONFIG_INITIALIZER
    }
}
