//! Tensors: typed, shaped memory on a device. What is computed with them does not belong here.

mod buffer;
mod buffer_fault;
mod element;
mod layout;
mod shape;
mod transfer;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

pub use buffer_fault::BufferFault;
pub use element::TensorElement;
pub use shape::{Extent, IntoShape, Shape};

pub(crate) use buffer::{BASE_ALIGN, Buffer, HostMemory};
pub(crate) use layout::Layout;
pub(crate) use transfer::Rows;

use crate::communicator::Communicator;
use crate::device::Device;
use crate::error::Error;
use crate::exchange::SymmetricPart;

/// A tensor on one device: `E` is `bf16`, `f16`, `f32`, `i32` or `u32`, the rank 1 to 4.
///
/// The innermost axis is contiguous and rows begin at multiples of 16 bytes, so a row may be padded; what is uploaded and
/// downloaded is not.
pub struct Tensor<E> {
    buffer: Arc<Buffer>,
    layout: Layout,
    element: PhantomData<E>,
}

impl<E: TensorElement> Tensor<E> {
    /// All elements zero.
    ///
    /// # Errors
    /// MACO0037 for a bad shape, MACO0045 when memory runs out.
    pub fn zeros(device: &Device, shape: impl IntoShape) -> Result<Tensor<E>, Error> {
        let shape = shape.into_shape()?;
        let layout = Layout::padded(shape, size_of::<E>() as u64)?;
        let what = format!("a {} tensor of shape {shape}", E::ELEMENT.name());
        let buffer = Buffer::zeroed(device, layout.allocation() * size_of::<E>() as u64, &what)?;
        Ok(Tensor { buffer: Arc::new(buffer), layout, element: PhantomData })
    }

    /// All elements zero, in the symmetric memory of `communicator`: see `Communicator::symmetric_tensor`.
    pub(crate) fn symmetric(communicator: &Communicator, device: &Device, shape: impl IntoShape) -> Result<Tensor<E>, Error> {
        let shape = shape.into_shape()?;
        let layout = Layout::padded(shape, size_of::<E>() as u64)?;
        let what = format!("a symmetric {} tensor of shape {shape}", E::ELEMENT.name());
        let bytes = layout.allocation() * size_of::<E>() as u64;
        let part = SymmetricPart::new(communicator.group(), communicator.arena(), device, &what, bytes)?;
        Ok(Tensor { buffer: Arc::new(Buffer::symmetric(device, part)), layout, element: PhantomData })
    }

    /// A copy of `data`, row-major and without padding.
    ///
    /// # Errors
    /// Those of [`Tensor::zeros`] and [`Tensor::upload_from`].
    pub fn upload(device: &Device, data: &[E], shape: impl IntoShape) -> Result<Tensor<E>, Error> {
        let shape = shape.into_shape()?;
        check_length::<E>(data.len(), shape)?;
        let mut tensor = Tensor::zeros(device, shape)?;
        tensor.upload_from(data)?;
        Ok(tensor)
    }

    /// Overwrites every element; the address stays the same.
    ///
    /// # Errors
    /// MACO0035 when `data` has not exactly as many elements as the tensor, MACO0049 or MACO0050 when the GPU fails.
    pub fn upload_from(&mut self, data: &[E]) -> Result<(), Error> {
        check_length::<E>(data.len(), self.layout.shape)?;
        // SAFETY: `data` holds every element, and `&mut self` keeps other accesses of this tensor away.
        unsafe { transfer::write(&self.buffer, &self.layout, size_of::<E>(), data.as_ptr().cast()) }
    }

    /// Every element, row-major and without padding, once all launches queued so far on the device have ended.
    ///
    /// # Errors
    /// MACO0049 or MACO0050 when the GPU fails.
    pub fn download(&self) -> Result<Vec<E>, Error> {
        let mut data = Vec::with_capacity(self.len());
        // SAFETY: the capacity is what is written, and any bit pattern is an element.
        unsafe {
            transfer::read(&self.buffer, &self.layout, size_of::<E>(), data.as_mut_ptr() as *mut u8)?;
            data.set_len(self.len());
        }
        Ok(data)
    }

    /// [`Tensor::download`] into memory there is.
    ///
    /// # Errors
    /// MACO0035 when `data` has not exactly as many elements as the tensor, MACO0049 or MACO0050 when the GPU fails.
    pub fn download_into(&self, data: &mut [E]) -> Result<(), Error> {
        check_length::<E>(data.len(), self.layout.shape)?;
        // SAFETY: `data` has room for every element.
        unsafe { transfer::read(&self.buffer, &self.layout, size_of::<E>(), data.as_mut_ptr().cast()) }
    }

    /// A tensor over memory that the caller owns, such as one of another library. `row_stride` counts elements.
    ///
    /// # Errors
    /// MACO0035 when the address is null, misaligned, or not memory of the GPU; when rows overlap; or when the allocation that
    /// the GPU's driver knows is too short. MACO0037 for a bad shape.
    ///
    /// # Safety
    /// `pointer` names memory of `device` (for a CPU device: of this process) that holds all rows, and stays valid and unshared,
    /// as a `&mut` would, until the tensor is dropped and every launch that uses it has ended.
    pub unsafe fn from_raw(device: &Device, pointer: *mut E, shape: impl IntoShape, row_stride: u64) -> Result<Tensor<E>, Error> {
        let shape = shape.into_shape()?;
        let address = pointer as u64;
        let fault = |fault| Error::Buffer { element: E::ELEMENT.name(), shape, fault };
        if pointer.is_null() {
            return Err(fault(BufferFault::Null));
        }
        if !pointer.is_aligned() {
            return Err(fault(BufferFault::Misaligned { address, align: align_of::<E>() as u64 }));
        }
        if row_stride < shape.columns() {
            return Err(fault(BufferFault::RowStride { found: row_stride }));
        }
        let layout = Layout::strided(shape, row_stride, size_of::<E>() as u64)?;
        if let Some(context) = device.context() {
            let needed = layout.span() * size_of::<E>() as u64;
            match context.allocation_from(address, needed)? {
                None => return Err(fault(BufferFault::NotOnDevice { address })),
                Some(found) if found < needed => return Err(fault(BufferFault::Bytes { needed, found })),
                Some(_) => {}
            }
        }
        Ok(Tensor { buffer: Arc::new(Buffer::borrowed(device, address)), layout, element: PhantomData })
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[u64] {
        &self.layout.shape
    }

    /// Number of elements.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.layout.elements() as usize
    }

    /// Elements from one row to the next.
    pub fn row_stride(&self) -> u64 {
        self.layout.row_stride
    }

    /// The device it lives on.
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }

    /// Address of the first element, in the memory of the device.
    pub fn as_ptr(&self) -> *const E {
        self.buffer.address() as *const E
    }

    /// Address of the first element, in the memory of the device.
    pub fn as_mut_ptr(&mut self) -> *mut E {
        self.buffer.address() as *mut E
    }

    pub(crate) fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }
}

fn check_length<E: TensorElement>(found: usize, shape: Shape) -> Result<(), Error> {
    match shape.elements() {
        Some(expected) if expected == found as u64 => Ok(()),
        Some(expected) => {
            Err(Error::Buffer { element: E::ELEMENT.name(), shape, fault: BufferFault::Elements { expected, found: found as u64 } })
        }
        None => Err(Error::TensorTooLarge { shape }),
    }
}

impl<E: TensorElement> fmt::Debug for Tensor<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = if self.buffer.owned() { "" } else { ", borrowed" };
        write!(f, "Tensor<{}>({}, {}{owner})", E::ELEMENT.name(), self.layout.shape, self.buffer.device())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn round_trip_through_padded_rows() {
        let device = Device::cpu();
        let data: Vec<bf16> = (0..15).map(|n| bf16::from_f32(n as f32)).collect();
        let tensor = device.upload(&data, [3, 5]).unwrap();
        assert_eq!((tensor.shape(), tensor.row_stride(), tensor.len()), (&[3u64, 5][..], 8, 15));
        assert_eq!(tensor.as_ptr() as u64 % BASE_ALIGN, 0);
        assert_eq!(tensor.download().unwrap(), data);
        let mut out = vec![bf16::ZERO; 15];
        tensor.download_into(&mut out).unwrap();
        assert_eq!(out, data);
        // SAFETY: row 2 starts after two strides of 8 elements.
        assert_eq!(unsafe { tensor.as_ptr().add(16).read() }, data[10]);
    }

    #[test]
    fn zeros_ranks_and_empty_axes() {
        let device = Device::cpu();
        for shape in [&[7u64][..], &[2, 3, 5], &[2, 2, 2, 3], &[0, 5], &[5, 0]] {
            let tensor = device.zeros::<f32>(shape).unwrap();
            assert_eq!(tensor.download().unwrap(), vec![0.0; shape.iter().product::<u64>() as usize], "{shape:?}");
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let device = Device::cpu();
        let error = device.upload(&[1i32, 2, 3], [2, 2]).unwrap_err();
        assert_eq!(error.code(), 35);
        assert!(error.to_string().contains("4 elements"), "{error}");
        let mut tensor = device.zeros::<i32>([2, 2]).unwrap();
        assert_eq!(tensor.upload_from(&[1; 5]).unwrap_err().code(), 35);
        assert_eq!(tensor.download_into(&mut [0; 3]).unwrap_err().code(), 35);
        assert_eq!(tensor.download().unwrap(), [0; 4]);
    }

    #[test]
    fn raw_tensors_are_checked_and_see_the_memory() {
        let device = Device::cpu();
        let mut memory = [0f32; 12];
        let base = memory.as_mut_ptr();
        // SAFETY: twelve floats, alive and unshared while the tensors are.
        unsafe {
            assert_eq!(Tensor::<f32>::from_raw(&device, std::ptr::null_mut(), [2, 4], 4).unwrap_err().code(), 35);
            assert_eq!(Tensor::from_raw(&device, base.byte_add(1), [2, 4], 4).unwrap_err().code(), 35);
            assert_eq!(Tensor::from_raw(&device, base, [2, 4], 3).unwrap_err().code(), 35);
            let mut tensor = Tensor::from_raw(&device, base, [2, 4], 6).unwrap();
            tensor.upload_from(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).unwrap();
            assert_eq!(tensor.download().unwrap()[4..], [5.0, 6.0, 7.0, 8.0]);
            assert!(format!("{tensor:?}").contains("borrowed"));
        }
        assert_eq!(memory, [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0]);
    }
}
