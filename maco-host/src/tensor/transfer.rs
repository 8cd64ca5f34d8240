//! Copies between a tensor and unpadded rows on the host.

use super::{Buffer, Layout};
use crate::error::Error;

/// Rows of a copy: a padded pitch on one side, none on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Number of rows.
    pub(crate) count: usize,
    /// Bytes of a row.
    pub(crate) bytes: usize,
    /// Bytes from one row to the next on the tensor's side.
    pub(crate) pitch: usize,
}

impl Rows {
    /// As few rows as possible: one if nothing is padded.
    fn of(layout: &Layout, element_bytes: usize) -> Rows {
        let bytes = layout.shape.columns() as usize * element_bytes;
        let count = layout.rows() as usize;
        if layout.contiguous() {
            Rows { count: 1, bytes: count * bytes, pitch: count * bytes }
        } else {
            Rows { count, bytes, pitch: layout.row_stride as usize * element_bytes }
        }
    }
}

/// Host to tensor.
///
/// # Safety
/// `from` holds every element, and nobody else accesses the tensor on the host meanwhile.
pub(crate) unsafe fn write(buffer: &Buffer, layout: &Layout, element_bytes: usize, from: *const u8) -> Result<(), Error> {
    buffer.usable()?;
    if layout.elements() == 0 {
        return Ok(());
    }
    let rows = Rows::of(layout, element_bytes);
    // SAFETY: the layout was checked to fit the buffer; the caller promises the rest.
    unsafe {
        match buffer.device().context() {
            Some(context) => context.upload(buffer.address(), rows, from),
            None => {
                let to = buffer.address() as *mut u8;
                for row in 0..rows.count {
                    from.add(row * rows.bytes).copy_to_nonoverlapping(to.add(row * rows.pitch), rows.bytes);
                }
                Ok(())
            }
        }
    }
}

/// Tensor to host.
///
/// # Safety
/// `to` has room for every element.
pub(crate) unsafe fn read(buffer: &Buffer, layout: &Layout, element_bytes: usize, to: *mut u8) -> Result<(), Error> {
    buffer.usable()?;
    if layout.elements() == 0 {
        return Ok(());
    }
    let rows = Rows::of(layout, element_bytes);
    // SAFETY: the layout was checked to fit the buffer; launches on a CPU end before `run` returns; the caller promises the rest.
    unsafe {
        match buffer.device().context() {
            Some(context) => context.download(to, buffer.address(), rows),
            None => {
                let from = buffer.address() as *const u8;
                for row in 0..rows.count {
                    from.add(row * rows.pitch).copy_to_nonoverlapping(to.add(row * rows.bytes), rows.bytes);
                }
                Ok(())
            }
        }
    }
}
