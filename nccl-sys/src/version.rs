//! Versions of NCCL, as it numbers them.

use std::fmt;

use crate::bindings::NCCL_VERSION_CODE;

/// A version of NCCL, such as 2.28.9.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Patch number.
    pub patch: u32,
}

impl Version {
    /// The version whose header the types of this crate are made from.
    pub const OF_HEADER: Version = Version::from_code(NCCL_VERSION_CODE);

    /// `major.minor.patch`.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Version {
        Version { major, minor, patch }
    }

    /// From the code that `ncclGetVersion` gives: 22809 is 2.28.9. Up to 2.8 a code has a digit less: 2804 is 2.8.4.
    pub const fn from_code(code: u32) -> Version {
        let unit = if code < 10_000 { 1_000 } else { 10_000 };
        Version { major: code / unit, minor: code % unit / 100, patch: code % 100 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_header() {
        assert_eq!(Version::from_code(22_809), Version::new(2, 28, 9));
        assert_eq!(Version::from_code(21_903), Version::new(2, 19, 3));
        assert_eq!(Version::from_code(2_804), Version::new(2, 8, 4));
        let header = Version::new(crate::bindings::NCCL_MAJOR, crate::bindings::NCCL_MINOR, crate::bindings::NCCL_PATCH);
        assert_eq!(Version::OF_HEADER, header);
    }

    #[test]
    fn versions_are_ordered_as_numbers() {
        assert!(Version::new(2, 9, 9) < Version::new(2, 29, 2));
        assert!(Version::new(2, 29, 2) < Version::new(2, 29, 10));
        assert_eq!(Version::new(2, 29, 2).to_string(), "2.29.2");
    }
}
