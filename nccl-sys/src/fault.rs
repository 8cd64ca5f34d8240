//! Versions of NCCL that are known to do something wrong.

use crate::error::Error;
use crate::version::Version;

/// What a fault of NCCL spoils.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Use {
    /// The whole library: [`Nccl::load`](crate::Nccl::load) refuses it.
    Library,
    /// `put_signal` to another host, where several windows lie in one allocation.
    PutToWindowsOfOneAllocation,
    /// Collectives by copy engines in a communicator of two ranks, with NVLink multicast on (`NCCL_NVLS_ENABLE` is not 0).
    CopyEngineWithTwoRanks,
}

/// A fault of NCCL and the versions that have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// First version with it, or with what it spoils.
    pub first: Version,
    /// First version without it.
    pub fixed: Version,
    /// What it spoils.
    pub spoils: Use,
    /// What happens, and NCCL's number of the issue.
    pub reason: &'static str,
}

/// All faults that this crate knows.
pub const FAULTS: &[Fault] = &[
    Fault {
        first: Version::new(2, 29, 2),
        fixed: Version::new(2, 29, 3),
        spoils: Use::Library,
        reason: "ncclCommWindowRegister registers nothing and says that it succeeded (NCCL issue 1963)",
    },
    Fault {
        first: Version::new(2, 29, 2),
        fixed: Version::new(2, 31, 2),
        spoils: Use::PutToWindowsOfOneAllocation,
        reason: "a put to another host lands at the wrong place if several windows lie in one allocation (NCCL issue 2198)",
    },
    Fault {
        first: Version::new(2, 28, 3),
        fixed: Version::new(2, 31, 2),
        spoils: Use::CopyEngineWithTwoRanks,
        reason: "with multicast on, the first collective of two ranks by copy engines hangs (NCCL issue 2241)",
    },
];

/// Whether a version may be used so.
///
/// # Errors
/// [`Error::KnownBad`] if it is known to be at fault.
pub fn check(found: Version, what: Use) -> Result<(), Error> {
    let at_fault = |fault: &&Fault| fault.spoils == what && fault.first <= found && found < fault.fixed;
    match FAULTS.iter().find(at_fault) {
        None => Ok(()),
        Some(fault) => Err(Error::KnownBad { found, fixed: fault.fixed, reason: fault.reason }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(version: (u32, u32, u32), what: Use) -> bool {
        check(Version::new(version.0, version.1, version.2), what).is_err()
    }

    #[test]
    fn a_fault_ends_with_the_version_that_fixed_it() {
        assert!(!bad((2, 28, 9), Use::Library));
        assert!(bad((2, 29, 2), Use::Library));
        assert!(!bad((2, 29, 3), Use::Library));
        assert!(bad((2, 30, 7), Use::PutToWindowsOfOneAllocation));
        assert!(!bad((2, 31, 2), Use::PutToWindowsOfOneAllocation));
        assert!(bad((2, 28, 9), Use::CopyEngineWithTwoRanks));
        assert!(!bad((2, 27, 7), Use::CopyEngineWithTwoRanks));
        assert!(!bad((2, 32, 3), Use::CopyEngineWithTwoRanks));
    }
}
