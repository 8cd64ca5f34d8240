//! Streams of another library of the same program, cudarc, and work on them that is not MACO's either.

use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaGraph, CudaStream};
use maco::{Device, Stream, Tensor};

#[track_caller]
fn check(what: &str, code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS, "{what}");
}

/// A stream of GPU 0.
pub struct Foreign {
    pub name: &'static str,
    stream: Arc<CudaStream>,
}

impl Foreign {
    /// One that the library made, and two that every context has. The context is this thread's from now on.
    pub fn all() -> [Foreign; 3] {
        let context = CudaContext::new(0).expect("a GPU");
        let made = context.new_stream().expect("a stream");
        [("a stream", made), ("the default stream", context.default_stream()), ("the thread's", context.per_thread_stream())]
            .map(|(name, stream)| Foreign { name, stream })
    }

    /// The same for MACO.
    pub fn borrowed(&self, device: &Device) -> Stream {
        let raw = self.stream.cu_stream();
        if raw.is_null() {
            return Stream::default_of(device);
        }
        // SAFETY: of the primary context; whoever borrows it drops that first.
        unsafe { Stream::from_raw(device, raw.cast()) }.expect("a GPU")
    }

    /// Whether it can be captured without a word to those who use the default stream meanwhile.
    pub fn is_its_own(&self) -> bool {
        self.name == "a stream"
    }

    /// Keeps what is queued behind from beginning for so long. No multiprocessor is held: whatever is not behind could run.
    pub fn late(&self, time: Duration) {
        unsafe extern "C" fn sleep(milliseconds: *mut c_void) {
            std::thread::sleep(Duration::from_millis(milliseconds.addr() as u64));
        }
        let milliseconds = without_provenance_mut(time.as_millis() as usize);
        // SAFETY: a live stream; the number travels in the place of a pointer.
        let code = unsafe { sys::cuLaunchHostFunc(self.stream.cu_stream(), Some(sleep), milliseconds) };
        check("cuLaunchHostFunc", code);
    }

    /// Queues `to` = `from`.
    pub fn copy(&self, from: &Tensor<f32>, to: &mut Tensor<f32>) {
        assert!(from.shape() == to.shape() && from.shape().len() == 1, "rows may lie apart");
        let bytes = 4 * from.shape()[0] as usize;
        // SAFETY: both are memory of GPU 0 with so many bytes, and live until the test has waited.
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to.as_mut_ptr() as u64, from.as_ptr() as u64, bytes, self.stream.cu_stream()) };
        check("cuMemcpyDtoDAsync", code);
    }

    /// Queues a fill with one number.
    pub fn fill(&self, tensor: &mut Tensor<f32>, value: f32) {
        let count = tensor.shape()[0] as usize;
        // SAFETY: as above.
        let code = unsafe { sys::cuMemsetD32Async(tensor.as_mut_ptr() as u64, value.to_bits(), count, self.stream.cu_stream()) };
        check("cuMemsetD32Async", code);
    }

    pub fn synchronize(&self) {
        self.stream.synchronize().expect("the stream ends");
    }

    /// What `work` queues, as a graph of the library's; it keeps nothing of MACO's.
    pub fn capture(&self, work: impl FnOnce()) -> CudaGraph {
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).expect("a capture begins");
        work();
        self.stream.end_capture(sys::CUgraphInstantiate_flags(0)).expect("a capture ends").expect("a graph")
    }
}
