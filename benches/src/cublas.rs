//! The peer: cuBLAS on a stream of ours, so that it can be captured into a CUDA graph.

use std::ffi::c_void;

use anyhow::{Context, bail, ensure};
use cudarc::cublas::{result, sys};
use maco::Tensor;
use maco::bf16;

/// A cuBLAS handle bound to one stream.
pub struct Cublas {
    handle: sys::cublasHandle_t,
    /// Keeps the workspace alive: graph capture forbids allocation inside the library.
    _workspace: Tensor<f32>,
}

impl Cublas {
    /// A handle on `stream` with 64 MiB of workspace.
    pub fn new(device: &maco::Device, stream: &maco::Stream) -> anyhow::Result<Cublas> {
        // SAFETY: probing for the library loads it and nothing else.
        if !unsafe { sys::is_culib_present() } {
            bail!("libcublas.so was not found: put its folder into LD_LIBRARY_PATH");
        }
        let workspace = device.zeros::<f32>([16 << 20])?;
        let handle = result::create_handle().context("cublasCreate")?;
        // SAFETY: the handle is live, the stream and the workspace outlive it.
        unsafe {
            result::set_stream(handle, stream.as_raw().cast()).context("cublasSetStream")?;
            sys::cublasSetWorkspace_v2(handle, workspace.as_ptr() as *mut c_void, 64 << 20).result().context("cublasSetWorkspace")?;
        }
        Ok(Cublas { handle, _workspace: workspace })
    }

    /// y\[m, n\] = x\[m, k\] · w\[n, k\]ᵀ in bf16 with `f32` accumulation. Of wider `x` the first k columns count.
    pub fn linear(&self, x: &Tensor<bf16>, w: &Tensor<bf16>, y: &mut Tensor<bf16>) -> anyhow::Result<()> {
        self.gemm(x, w, y, 0.0)
    }

    /// y += x · wᵀ, otherwise as [`Cublas::linear`].
    pub fn linear_add(&self, x: &Tensor<bf16>, w: &Tensor<bf16>, y: &mut Tensor<bf16>) -> anyhow::Result<()> {
        self.gemm(x, w, y, 1.0)
    }

    fn gemm(&self, x: &Tensor<bf16>, w: &Tensor<bf16>, y: &mut Tensor<bf16>, beta: f32) -> anyhow::Result<()> {
        let m = x.shape()[0] as i32;
        let (n, k) = (w.shape()[0] as i32, w.shape()[1] as i32);
        ensure!(k <= x.shape()[1] as i32, "x has fewer columns than w");
        let alpha = 1f32;
        let bf16 = sys::cudaDataType::CUDA_R_16BF;
        // SAFETY: cuBLAS is column-major: row-major y = x · wᵀ is yᵀ = w · xᵀ. Shapes and strides are those of live tensors.
        unsafe {
            result::gemm_ex(
                self.handle,
                sys::cublasOperation_t::CUBLAS_OP_T,
                sys::cublasOperation_t::CUBLAS_OP_N,
                n,
                m,
                k,
                (&raw const alpha).cast(),
                w.as_ptr() as *const c_void,
                bf16,
                w.row_stride() as i32,
                x.as_ptr() as *const c_void,
                bf16,
                x.row_stride() as i32,
                (&raw const beta).cast(),
                y.as_mut_ptr() as *mut c_void,
                bf16,
                y.row_stride() as i32,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT_TENSOR_OP,
            )
        }
        .context("cublasGemmEx")
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        // SAFETY: the handle is live and used by nobody else. An error at the end of a benchmark has no taker.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}
