//! Peers: copies, and plain kernels of this package, launched through the driver alone. What they compute is in `tasks/plain.rs`.

use std::ffi::{CString, c_void};
use std::mem::MaybeUninit;

use anyhow::{Context, anyhow, bail, ensure};
use cudarc::driver::sys::{self, CUlaunchAttribute, CUlaunchAttributeID, CUresult};
use maco::{Device, Stream, Tensor, TensorElement};

/// Names and PTX of the plain kernels; empty when the package was built without a device toolchain.
pub const KERNELS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/maco_plain.rs"));

/// The error of a call of the driver.
pub fn check(call: &str, code: CUresult) -> anyhow::Result<()> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(anyhow!("{call}: {code:?}")) }
}

/// The primary context of a GPU, current in this thread: the one that MACO's device uses.
pub struct Driver {
    gpu: sys::CUdevice,
}

impl Driver {
    /// Makes it current.
    pub fn new(gpu: u32) -> anyhow::Result<Driver> {
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: MACO's device has initialised the driver; the results are writable.
        unsafe {
            check("cuDeviceGet", sys::cuDeviceGet(&mut device, gpu as i32))?;
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
        }
        Ok(Driver { gpu: device })
    }

    /// Cycles of a multiprocessor's clock in a microsecond, at most.
    pub fn cycles_per_microsecond(&self) -> anyhow::Result<f64> {
        let mut kilohertz = 0;
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE;
        // SAFETY: the result is writable.
        check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut kilohertz, attribute, self.gpu) })?;
        Ok(f64::from(kilohertz) / 1e3)
    }

    /// Words of device memory, after everything queued so far.
    ///
    /// # Safety
    /// There are so many at `from`.
    pub unsafe fn download(&self, from: *const u32, words: usize) -> anyhow::Result<Vec<u32>> {
        let mut data = vec![0u32; words];
        // SAFETY: the caller promises the source; the destination has as many bytes.
        unsafe {
            check("cuCtxSynchronize", sys::cuCtxSynchronize())?;
            check("cuMemcpyDtoH", sys::cuMemcpyDtoH_v2(data.as_mut_ptr().cast(), from as u64, words * 4))?;
        }
        Ok(data)
    }

    /// Words of device memory set to one value.
    ///
    /// # Safety
    /// There are so many at `to`, which nobody uses now.
    pub unsafe fn fill(&self, to: *mut u32, value: u32, words: usize) -> anyhow::Result<()> {
        // SAFETY: the caller promises the memory.
        unsafe {
            check("cuCtxSynchronize", sys::cuCtxSynchronize())?;
            check("cuMemsetD32", sys::cuMemsetD32_v2(to as u64, value, words))?;
            check("cuCtxSynchronize", sys::cuCtxSynchronize())
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SAFETY: retained once. At the end of a benchmark nobody takes the error.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.gpu) };
    }
}

/// A copy of device memory by the driver.
pub struct DeviceCopy {
    from: Tensor<u32>,
    to: Tensor<u32>,
}

impl DeviceCopy {
    /// Of so many bytes, to the next multiple of four.
    pub fn new(device: &Device, bytes: u64) -> anyhow::Result<DeviceCopy> {
        let words = [bytes.div_ceil(4)];
        Ok(DeviceCopy { from: device.zeros(words)?, to: device.zeros(words)? })
    }

    /// Queues it. The device's context is current.
    pub fn launch(&mut self, stream: &Stream) -> anyhow::Result<()> {
        DeviceCopy::queue(stream, &self.from, &mut self.to)
    }

    /// Queues a copy of a tensor to another, as large and without gaps between rows. The device's context is current.
    pub fn queue<E: TensorElement>(stream: &Stream, from: &Tensor<E>, to: &mut Tensor<E>) -> anyhow::Result<()> {
        let last = |tensor: &Tensor<E>| tensor.shape().last().copied();
        let gaps = |tensor: &Tensor<E>| tensor.shape().len() > 1 && last(tensor) != Some(tensor.row_stride());
        ensure!(from.len() == to.len() && !gaps(from) && !gaps(to), "a copy is of tensors of the same size without gaps");
        let (source, target, bytes) = (from.as_ptr() as u64, to.as_mut_ptr() as u64, from.len() * size_of::<E>());
        // SAFETY: two live tensors of as many bytes, which lie without gaps.
        check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(target, source, bytes, stream.as_raw().cast()) })
    }
}

/// What a launch may assume of the one before it in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// It has ended.
    Ended,
    /// It has begun: the kernel waits by itself (programmatic dependent launch).
    Programmatic,
    /// It has ended, and all CTAs of this launch are resident together.
    Cooperative,
}

/// CTAs, threads of each, bytes of dynamic shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// CTAs.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Bytes of dynamic shared memory: with most of it, a multiprocessor has room for one CTA.
    pub shared: u32,
}

impl Grid {
    /// Without shared memory.
    pub fn new(blocks: u32, threads: u32) -> Grid {
        Grid { blocks, threads, shared: 0 }
    }
}

/// A plain kernel, loaded.
pub struct Kernel {
    module: sys::CUmodule,
    function: sys::CUfunction,
}

impl Kernel {
    /// Loads the kernel of this name into the current context.
    pub fn load(name: &str) -> anyhow::Result<Kernel> {
        let Some((_, ptx)) = KERNELS.iter().find(|(known, _)| *known == name) else {
            bail!("this program was built without the kernel `{name}`: set a device toolchain up (`cargo xtask setup`) and build again")
        };
        let (text, name) = (CString::new(*ptx)?, CString::new(name)?);
        let mut kernel = Kernel { module: std::ptr::null_mut(), function: std::ptr::null_mut() };
        // SAFETY: terminated texts; the results are writable; a context is current.
        unsafe {
            check("cuModuleLoadData", sys::cuModuleLoadData(&mut kernel.module, text.as_ptr().cast())).context("loading a peer")?;
            check("cuModuleGetFunction", sys::cuModuleGetFunction(&mut kernel.function, kernel.module, name.as_ptr()))?;
            let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            check("cuFuncSetAttribute", sys::cuFuncSetAttribute(kernel.function, most, maco_abi::SHARED_BYTES as i32))?;
        }
        Ok(kernel)
    }

    /// Queues one launch.
    ///
    /// # Safety
    /// `parameter` is what the kernel takes, and what it names is live, and as large as the kernel says, until the launch has ended.
    pub unsafe fn launch<P: Copy>(&self, stream: &Stream, grid: Grid, edge: Edge, parameter: P) -> anyhow::Result<()> {
        // Unused bytes of the union are zero, as the driver's headers ask.
        // SAFETY: plain integers, valid when zero.
        let mut attribute = unsafe { MaybeUninit::<CUlaunchAttribute>::zeroed().assume_init() };
        match edge {
            Edge::Ended => {}
            Edge::Programmatic => {
                attribute.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
                attribute.value.programmaticStreamSerializationAllowed = 1;
            }
            Edge::Cooperative => {
                attribute.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
                attribute.value.cooperative = 1;
            }
        }
        let config = sys::CUlaunchConfig {
            gridDimX: grid.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: grid.shared,
            hStream: stream.as_raw().cast(),
            attrs: &mut attribute,
            numAttrs: u32::from(edge != Edge::Ended),
        };
        let mut parameter = parameter;
        let mut parameters = [(&raw mut parameter).cast::<c_void>()];
        // SAFETY: a live function; the caller promises its parameter, which the driver copies before it returns.
        check("cuLaunchKernelEx", unsafe { sys::cuLaunchKernelEx(&config, self.function, parameters.as_mut_ptr(), std::ptr::null_mut()) })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: loaded once; its launches were waited for, or the driver keeps the code. Nobody takes the error.
        let _ = unsafe { sys::cuModuleUnload(self.module) };
    }
}
