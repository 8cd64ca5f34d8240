//! The peer of GEMMs: cuBLASLt, by the fastest of the algorithms that it proposes, each timed on the device.

use std::ffi::c_void;

use anyhow::{Context, bail, ensure};
use cudarc::cublas::sys::cublasOperation_t;
use cudarc::cublaslt::{result, sys};
use maco::{CudaGraph, Device, Stream, Tensor, bf16};

use crate::timing::median;

/// Bytes that an algorithm may use beside its operands.
const WORKSPACE: usize = 64 << 20;
/// Algorithms that are asked for.
const PROPOSALS: usize = 32;
/// How often each is timed.
const ROUNDS: usize = 3;

/// What an algorithm may use beside its operands. GEMMs that may run at the same time have one each.
pub struct Workspace(Tensor<f32>);

impl Workspace {
    /// One on `device`.
    pub fn new(device: &Device) -> anyhow::Result<Workspace> {
        Ok(Workspace(device.zeros::<f32>([WORKSPACE as u64 / 4])?))
    }
}

/// The library, with a workspace that GEMMs on one stream share.
pub struct CublasLt {
    handle: sys::cublasLtHandle_t,
    workspace: Workspace,
}

impl CublasLt {
    /// Loads the library.
    pub fn new(device: &Device) -> anyhow::Result<CublasLt> {
        // SAFETY: probing for the library loads it and nothing else.
        if !unsafe { sys::is_culib_present() } {
            bail!("libcublasLt.so was not found: put its folder into LD_LIBRARY_PATH");
        }
        Ok(CublasLt { handle: result::create_handle().context("cublasLtCreate")?, workspace: Workspace::new(device)? })
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        // SAFETY: the handle is live and used by nobody else. An error at the end of a benchmark has no taker.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// What is done to a GEMM's elements before they are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// Nothing.
    None,
    /// GELU in its tanh form, as `maco::tasks::gelu`.
    Gelu,
}

/// y\[M, N\] = epilogue(x\[M, K\] · w\[N, K\]ᵀ) in bf16 with `f32` accumulation, of one shape.
pub struct Gemm<'a> {
    library: &'a CublasLt,
    operation: Operation,
    w: Layout,
    x: Layout,
    y: Layout,
    proposals: Vec<sys::cublasLtMatmulAlgo_t>,
    /// Which of the proposals is launched.
    chosen: usize,
}

impl<'a> Gemm<'a> {
    /// For operands of these shapes and strides, with what the library proposes for them, its favourite first.
    pub fn new(
        library: &'a CublasLt,
        x: &Tensor<bf16>,
        w: &Tensor<bf16>,
        y: &Tensor<bf16>,
        epilogue: Epilogue,
    ) -> anyhow::Result<Gemm<'a>> {
        // cuBLASLt is column-major: row-major y = x · wᵀ is yᵀ = (wᵀ)ᵀ · xᵀ.
        let operation = Operation::new(epilogue)?;
        let (w, x, y) = (Layout::transposed(w)?, Layout::transposed(x)?, Layout::transposed(y)?);
        let proposals = propose(library, &operation, [&w, &x, &y])?;
        ensure!(!proposals.is_empty(), "cuBLASLt has no algorithm for this GEMM");
        Ok(Gemm { library, operation, w, x, y, proposals, chosen: 0 })
    }

    /// Queues the GEMM of these operands, which are of the shapes and strides that it was made for, behind all others that have the library's workspace.
    pub fn launch(&self, stream: &Stream, x: &Tensor<bf16>, w: &Tensor<bf16>, y: &mut Tensor<bf16>) -> anyhow::Result<()> {
        self.launch_in(&self.library.workspace, stream, x, w, y)
    }

    /// The same in a workspace of its own.
    pub fn launch_in(
        &self,
        workspace: &Workspace,
        stream: &Stream,
        x: &Tensor<bf16>,
        w: &Tensor<bf16>,
        y: &mut Tensor<bf16>,
    ) -> anyhow::Result<()> {
        let (alpha, beta) = (1f32, 0f32);
        let y = y.as_mut_ptr() as *mut c_void;
        // SAFETY: live tensors of these layouts, and a live workspace; launches that have the same one follow each other on one stream.
        unsafe {
            result::matmul(
                self.library.handle,
                self.operation.0,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                w.as_ptr() as *const c_void,
                self.w.0,
                x.as_ptr() as *const c_void,
                self.x.0,
                y.cast_const(),
                self.y.0,
                y,
                self.y.0,
                &self.proposals[self.chosen],
                workspace.0.as_ptr() as *mut c_void,
                WORKSPACE,
                stream.as_raw().cast(),
            )
        }
        .context("cublasLtMatmul")
    }

    /// Times `work`, which launches the GEMM, as a CUDA graph with every proposal, in turn, and keeps the fastest. Returns how many
    /// were timed: a proposal that cannot run is left out.
    pub fn choose(&mut self, stream: &Stream, mut work: impl FnMut(&Gemm<'a>) -> anyhow::Result<()>) -> anyhow::Result<usize> {
        let mut graphs = Vec::new();
        for proposal in 0..self.proposals.len() {
            self.chosen = proposal;
            // The first calls load the library's kernels, which a capture does not allow.
            let runs = work(self).is_ok();
            stream.synchronize()?;
            if runs {
                graphs.push((proposal, CudaGraph::capture(stream, |_| work(self))?, Vec::new()));
            }
        }
        for _ in 0..ROUNDS {
            for (_, graph, times) in &mut graphs {
                times.push(graph.time(stream, 2)?.as_secs_f64());
            }
        }
        let timed = graphs.len();
        let fastest = graphs.into_iter().map(|(proposal, _, times)| (median(times), proposal)).min_by(|a, b| a.0.total_cmp(&b.0));
        self.chosen = fastest.context("no algorithm that cuBLASLt proposes can run")?.1;
        Ok(timed)
    }
}

fn propose(library: &CublasLt, operation: &Operation, [w, x, y]: [&Layout; 3]) -> anyhow::Result<Vec<sys::cublasLtMatmulAlgo_t>> {
    // SAFETY: plain data, whose status is success when zero.
    let mut found: [sys::cublasLtMatmulHeuristicResult_t; PROPOSALS] = unsafe { std::mem::zeroed() };
    let (mut count, workspace) = (0, WORKSPACE as u64);
    let preference = result::create_matmul_pref().context("cublasLtMatmulPreferenceCreate")?;
    // SAFETY: live descriptors; the results have room for as many as are asked for. The preference is destroyed once.
    let asked = unsafe {
        let most = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let asked = result::set_matmul_pref_attribute(preference, most, (&raw const workspace).cast(), size_of::<u64>()).and_then(|()| {
            sys::cublasLtMatmulAlgoGetHeuristic(
                library.handle,
                operation.0,
                w.0,
                x.0,
                y.0,
                y.0,
                preference,
                PROPOSALS as i32,
                found.as_mut_ptr(),
                &mut count,
            )
            .result()
        });
        let _ = result::destroy_matmul_pref(preference);
        asked
    };
    asked.context("cublasLtMatmulAlgoGetHeuristic")?;
    Ok(found[..count as usize].iter().filter(|proposal| proposal.state.result().is_ok()).map(|proposal| proposal.algo).collect())
}

/// wᵀ · x, and what follows.
struct Operation(sys::cublasLtMatmulDesc_t);

impl Operation {
    fn new(epilogue: Epilogue) -> anyhow::Result<Operation> {
        use sys::cublasLtMatmulDescAttributes_t::{CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_TRANSA};
        let operation = result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType::CUDA_R_32F)
            .context("cublasLtMatmulDescCreate")?;
        let operation = Operation(operation);
        operation.set(CUBLASLT_MATMUL_DESC_TRANSA, cublasOperation_t::CUBLAS_OP_T as u32)?;
        if epilogue == Epilogue::Gelu {
            operation.set(CUBLASLT_MATMUL_DESC_EPILOGUE, sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU as u32)?;
        }
        Ok(operation)
    }

    fn set(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: u32) -> anyhow::Result<()> {
        // SAFETY: a live descriptor; both attributes are enumerations of four bytes.
        unsafe { result::set_matmul_desc_attribute(self.0, attribute, (&raw const value).cast(), size_of::<u32>()) }
            .context("cublasLtMatmulDescSetAttribute")
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: made once. Nobody takes the error.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// A row-major matrix as the library sees it: its transpose.
struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    fn transposed(tensor: &Tensor<bf16>) -> anyhow::Result<Layout> {
        let &[rows, columns] = tensor.shape() else { bail!("a GEMM's operands are matrices") };
        let layout = result::create_matrix_layout(sys::cudaDataType::CUDA_R_16BF, columns, rows, tensor.row_stride() as i64);
        Ok(Layout(layout.context("cublasLtMatrixLayoutCreate")?))
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: made once. Nobody takes the error.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}
