//! Kernels that are not MACO's, to share a GPU with it: one that watches shared memory, one that holds multiprocessors. Both end by
//! themselves.

use std::ffi::{CString, c_void};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUresult};

/// All that a CTA can have: of such CTAs one fits a multiprocessor.
const SHARED: u32 = 227 * 1024;
const THREADS: u32 = 1024;

/// `sentinel` fills its shared memory, waits, and looks whether a word has changed: then found\[0\] is 1, and 1 and 2 are index and
/// value of one; from 4 on come the multiprocessors of the CTAs. `spinner` sets a word of `started` for each of its CTAs, and waits.
const PTX: &str = r"
.version 8.0
.target sm_90
.address_size 64

.extern .shared .align 16 .b8 room[];

.visible .entry sentinel(.param .u64 found, .param .u64 nanoseconds, .param .u32 spoil)
{
    .reg .pred %p<4>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<10>;

    ld.param.u64 %rd1, [found];
    cvta.to.global.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [nanoseconds];
    ld.param.u32 %r11, [spoil];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, room;
    mov.u32 %r12, %dynamic_smem_size;
    shr.u32 %r12, %r12, 2;
    mov.u32 %r4, %r1;
$fill:
    setp.ge.u32 %p1, %r4, %r12;
    @%p1 bra $filled;
    mad.lo.u32 %r5, %r4, 4, %r3;
    xor.b32 %r6, %r4, 0x5a5a5a5a;
    st.volatile.shared.u32 [%r5], %r6;
    add.u32 %r4, %r4, %r2;
    bra $fill;
$filled:
    bar.sync 0;
    mov.u64 %rd3, %globaltimer;
$again:
    nanosleep.u32 1000;
    mov.u64 %rd4, %globaltimer;
    sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p1, %rd5, %rd2;
    @%p1 bra $again;
    mov.u32 %r10, %ctaid.x;
    or.b32 %r13, %r1, %r10;
    setp.ne.u32 %p1, %r13, 0;
    setp.eq.or.u32 %p1, %r11, 0, %p1;
    @%p1 bra $whole;
    st.volatile.shared.u32 [%r3+1024], %r11;
$whole:
    bar.sync 0;
    mov.u32 %r4, %r1;
$check:
    setp.ge.u32 %p1, %r4, %r12;
    @%p1 bra $checked;
    mad.lo.u32 %r5, %r4, 4, %r3;
    xor.b32 %r6, %r4, 0x5a5a5a5a;
    ld.volatile.shared.u32 %r7, [%r5];
    setp.eq.u32 %p2, %r6, %r7;
    @%p2 bra $next;
    mov.u32 %r8, 1;
    st.global.u32 [%rd1], %r8;
    st.global.u32 [%rd1+4], %r4;
    st.global.u32 [%rd1+8], %r7;
$next:
    add.u32 %r4, %r4, %r2;
    bra $check;
$checked:
    setp.ne.u32 %p1, %r1, 0;
    @%p1 ret;
    mov.u32 %r9, %smid;
    mov.u32 %r10, %ctaid.x;
    mul.wide.u32 %rd6, %r10, 4;
    add.u64 %rd6, %rd6, %rd1;
    st.global.u32 [%rd6+16], %r9;
    ret;
}

.visible .entry spinner(.param .u64 started, .param .u64 nanoseconds)
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<8>;

    ld.param.u64 %rd1, [started];
    cvta.to.global.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [nanoseconds];
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 ret;
    mov.u32 %r2, %ctaid.x;
    mul.wide.u32 %rd6, %r2, 4;
    add.u64 %rd6, %rd6, %rd1;
    mov.u32 %r3, 1;
    st.volatile.global.u32 [%rd6], %r3;
    mov.u64 %rd3, %globaltimer;
$again:
    nanosleep.u32 1000;
    mov.u64 %rd4, %globaltimer;
    sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p1, %rd5, %rd2;
    @%p1 bra $again;
    ret;
}
";

#[track_caller]
fn check(what: &str, code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS, "{what}");
}

/// The primary context of GPU 0 with the two kernels loaded, current on the thread that made it.
pub struct Neighbour {
    device: sys::CUdevice,
    module: sys::CUmodule,
    stream: sys::CUstream,
    multiprocessors: u32,
    /// Mapped: the host reads what the kernels write while they run.
    words: *mut u32,
}

const WORDS: usize = 1024;

impl Neighbour {
    pub fn new() -> Neighbour {
        let mut made = Neighbour {
            device: 0,
            module: std::ptr::null_mut(),
            stream: std::ptr::null_mut(),
            multiprocessors: 0,
            words: std::ptr::null_mut(),
        };
        let text = CString::new(PTX).unwrap();
        let (mut context, mut count, mut words) = (std::ptr::null_mut(), 0, std::ptr::null_mut());
        // SAFETY: every out-pointer is writable, the text is terminated; the context stays retained while `made` lives.
        unsafe {
            check("cuInit", sys::cuInit(0));
            check("cuDeviceGet", sys::cuDeviceGet(&mut made.device, 0));
            let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
            check("cuDeviceGetAttribute", sys::cuDeviceGetAttribute(&mut count, attribute, made.device));
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, made.device));
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context));
            check("cuModuleLoadData", sys::cuModuleLoadData(&mut made.module, text.as_ptr().cast()));
            check("cuStreamCreate", sys::cuStreamCreate(&mut made.stream, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32));
            check("cuMemHostAlloc", sys::cuMemHostAlloc(&mut words, 4 * WORDS, sys::CU_MEMHOSTALLOC_DEVICEMAP));
        }
        made.multiprocessors = count.unsigned_abs();
        made.words = words.cast();
        // Loaded now: loading lazily would wait for what runs.
        for name in [c"sentinel", c"spinner"] {
            made.function(name);
        }
        made
    }

    fn function(&self, name: &std::ffi::CStr) -> sys::CUfunction {
        let mut function = std::ptr::null_mut();
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the module is live, the name terminated, `function` writable.
        unsafe {
            check("cuModuleGetFunction", sys::cuModuleGetFunction(&mut function, self.module, name.as_ptr()));
            check("cuFuncSetAttribute", sys::cuFuncSetAttribute(function, attribute, SHARED as i32));
            check("cuFuncLoad", sys::cuFuncLoad(function));
        }
        function
    }

    fn word(&self, n: usize) -> u32 {
        assert!(n < WORDS);
        // SAFETY: inside the allocation; volatile, since a kernel may write it meanwhile.
        unsafe { self.words.add(n).read_volatile() }
    }

    fn clear(&self) {
        // SAFETY: the allocation has so many words, and none of the kernels runs.
        unsafe { self.words.write_bytes(0, WORDS) };
    }

    /// # Safety
    /// `stream` is a live stream of the primary context, and the arguments are those of the kernel.
    unsafe fn launch(&self, name: &std::ffi::CStr, ctas: u32, stream: sys::CUstream, arguments: &mut [*mut c_void]) {
        let function = self.function(name);
        let (null, arguments) = (std::ptr::null_mut(), arguments.as_mut_ptr());
        // SAFETY: passed on from the caller; the driver copies the arguments.
        let code = unsafe { sys::cuLaunchKernel(function, ctas, 1, 1, THREADS, 1, 1, SHARED, stream, arguments, null) };
        check("cuLaunchKernel", code);
    }

    /// Queues a kernel on `stream` that fills all shared memory of all multiprocessors and watches it for `time`.
    pub fn watch(&self, stream: &maco::Stream, time: Duration, spoil: bool) {
        self.clear();
        let (mut found, mut nanoseconds, mut spoil) = (self.words as u64, time.as_nanos() as u64, u32::from(spoil));
        let mut arguments = [(&raw mut found).cast(), (&raw mut nanoseconds).cast(), (&raw mut spoil).cast()];
        assert!(self.multiprocessors as usize + 4 <= WORDS);
        // SAFETY: a stream of the device's primary context; mapped memory has one address on both sides.
        unsafe { self.launch(c"sentinel", self.multiprocessors, stream.as_raw().cast(), &mut arguments) };
    }

    /// Whether a word changed under [`Neighbour::watch`], and which. Waits for its end.
    pub fn seen(&self, stream: &maco::Stream) -> Option<String> {
        stream.synchronize().unwrap();
        let mut seen: Vec<u32> = (0..self.multiprocessors as usize).map(|cta| self.word(4 + cta)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), self.multiprocessors as usize, "one CTA on each multiprocessor");
        (self.word(0) != 0).then(|| format!("byte {:#x} became {:#x}", 4 * self.word(1), self.word(2)))
    }

    /// Holds `multiprocessors` for `time`, on a stream of its own; returns when it does.
    pub fn hold(&self, multiprocessors: u32, time: Duration) {
        self.clear();
        let (mut started, mut nanoseconds) = (self.words as u64, time.as_nanos() as u64);
        let mut arguments = [(&raw mut started).cast(), (&raw mut nanoseconds).cast()];
        // SAFETY: the own stream; mapped memory has one address on both sides.
        unsafe { self.launch(c"spinner", multiprocessors, self.stream, &mut arguments) };
        let begin = Instant::now();
        while (0..multiprocessors).any(|cta| self.word(cta as usize) == 0) {
            assert!(begin.elapsed() < Duration::from_secs(5), "the neighbour does not start");
            std::thread::yield_now();
        }
    }

    /// Whether what [`Neighbour::hold`] started still runs.
    pub fn holds(&self) -> bool {
        // SAFETY: the own stream.
        match unsafe { sys::cuStreamQuery(self.stream) } {
            CUresult::CUDA_ERROR_NOT_READY => true,
            code => {
                check("cuStreamQuery", code);
                false
            }
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // SAFETY: made by `new`; the kernels end by themselves, and nothing of it is used afterwards. Errors are of no use here.
        unsafe {
            let _ = sys::cuStreamSynchronize(self.stream);
            let _ = sys::cuStreamDestroy_v2(self.stream);
            let _ = sys::cuMemFreeHost(self.words.cast());
            let _ = sys::cuModuleUnload(self.module);
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}
