//! The bindings against the header that they were made from.

use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use nccl_sys::*;

/// Counted by hand in the header of NCCL 2.32.3, on a machine with pointers of eight bytes. Fields up to 2.28's are those of 2.28.9.
const _: () = {
    assert!(size_of::<ncclConfig_t>() == 120);
    assert!(offset_of!(ncclConfig_t, size) == 0);
    assert!(offset_of!(ncclConfig_t, magic) == 8);
    assert!(offset_of!(ncclConfig_t, version) == 12);
    assert!(offset_of!(ncclConfig_t, blocking) == 16);
    assert!(offset_of!(ncclConfig_t, cgaClusterSize) == 20);
    assert!(offset_of!(ncclConfig_t, minCTAs) == 24);
    assert!(offset_of!(ncclConfig_t, maxCTAs) == 28);
    assert!(offset_of!(ncclConfig_t, netName) == 32);
    assert!(offset_of!(ncclConfig_t, splitShare) == 40);
    assert!(offset_of!(ncclConfig_t, commName) == 48);
    assert!(offset_of!(ncclConfig_t, nvlinkCentricSched) == 76);
    assert!(offset_of!(ncclConfig_t, nvlsHostMode) == 112);
    assert!(size_of::<ncclUniqueId>() == 128);
    assert!(size_of::<ncclWaitSignalDesc_t>() == 16);
    assert!(offset_of!(ncclWaitSignalDesc_t, ctx) == 12);
    assert!(size_of::<ncclResult_t>() == 4 && size_of::<ncclDataType_t>() == 4 && size_of::<ncclRedOp_t>() == 4);
};

#[test]
fn enumerators_have_the_values_of_the_header() {
    assert_eq!((ncclSuccess.0, ncclInvalidUsage.0, ncclInProgress.0), (0, 5, 7));
    assert_eq!((ncclSum.0, ncclProd.0, ncclMax.0, ncclMin.0, ncclAvg.0), (0, 1, 2, 3, 4));
    assert_eq!((ncclInt8.0, ncclUint64.0, ncclFloat16.0, ncclFloat32.0, ncclBfloat16.0, ncclFloat8e5m2.0), (0, 5, 6, 7, 9, 11));
    assert_eq!((NCCL_WIN_DEFAULT, NCCL_WIN_COLL_SYMMETRIC, NCCL_UNIQUE_ID_BYTES), (0, 1, 128));
}

#[test]
fn a_configuration_begins_with_nothing_set() {
    let config = ncclConfig_t::default();
    assert_eq!((config.size, config.magic, config.version), (size_of::<ncclConfig_t>(), 0xcafe_beef, 23_203));
    let unset = [config.blocking, config.cgaClusterSize, config.minCTAs, config.maxCTAs, config.CTAPolicy, config.nvlsHostMode];
    assert_eq!(unset, [i32::MIN; 6]);
    assert!(config.netName.is_null() && config.commName.is_null());
}

/// `NCCL_INCLUDE` is the folder of the header.
#[test]
#[ignore = "needs bindgen, libclang and NCCL's header"]
fn the_bindings_are_those_that_bindgen_makes() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bindings.rs");
    let status = Command::new(package.join("generate/run")).arg(&made).status().unwrap();
    assert!(status.success());
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert!(read(&made) == read(&package.join("src/bindings.rs")), "src/bindings.rs differs from {}: run generate/run", made.display());
}
