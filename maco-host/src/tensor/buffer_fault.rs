//! Why a buffer cannot hold a tensor. The errors around it are in [`crate::error`].

/// What is wrong with a buffer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferFault {
    /// Too few or too many elements.
    #[error("the host buffer holds {found} elements, expected {expected} elements")]
    Elements {
        /// Elements of the tensor.
        expected: u64,
        /// Elements of the buffer.
        found: u64,
    },
    /// The allocation ends too early.
    #[error("the allocation ends {found} bytes after the address, expected {needed}")]
    Bytes {
        /// Bytes needed.
        needed: u64,
        /// Bytes there are.
        found: u64,
    },
    /// A null pointer.
    #[error("the address is null")]
    Null,
    /// An address that is not a multiple of the element's size.
    #[error("the address {address:#x} is not a multiple of {align}")]
    Misaligned {
        /// The address.
        address: u64,
        /// What it must be a multiple of.
        align: u64,
    },
    /// Rows that overlap.
    #[error("a row stride of {found} elements makes rows overlap")]
    RowStride {
        /// The stride.
        found: u64,
    },
    /// Not memory of the GPU.
    #[error("the address {address:#x} is not memory of the GPU")]
    NotOnDevice {
        /// The address.
        address: u64,
    },
}
