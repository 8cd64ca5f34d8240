//! Megakernels that `generator` has written: see `build.rs`.

/// Of each seed, one whose bodies keep the rules, and one that reads outside its region.
#[allow(warnings, reason = "what is generated is not read")]
pub mod kernels {
    include!(concat!(env!("OUT_DIR"), "/generated/kernels.rs"));
}
