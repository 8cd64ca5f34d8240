//! One GPU: its primary context, streams, launch order and copies. What is launched does not belong here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use cudarc::driver::sys::{self, CUdevice_attribute, CUresult, CUstreamCaptureMode};

use super::capture::refuse_while_recording;
use super::driver;
use super::events::EventHandle;
use super::limits::Limits;
use super::module::Modules;
use super::staging::{Direction, PINNED, Staging};
use super::watchdog::Watched;
use crate::environment;
use crate::error::Error;
use crate::tensor::Rows;

/// A GPU of this process. There is one per index, so that all its plans share one launch order.
pub(crate) struct Context {
    ordinal: u32,
    primary: Primary,
    name: String,
    multiprocessors: u32,
    capability: (u32, u32),
    limits: Limits,
    driver: u32,
    /// Copies between host and device.
    copies: sys::CUstream,
    /// Launches of `run`.
    launches: sys::CUstream,
    /// Looks at counters while a launch runs.
    probe: sys::CUstream,
    order: Mutex<Order>,
    /// Plans that may have launches.
    pub(super) watched: Mutex<Vec<Weak<Watched>>>,
    staging: Mutex<Option<Staging>>,
    /// Bytes of it from the next copy on: `Device::set_pinned_memory`.
    pub(crate) pinned: AtomicUsize,
    modules: Mutex<Modules>,
    spare_events: Mutex<Vec<SpareEvent>>,
    /// Why, once it is lost.
    lost: OnceLock<Box<str>>,
}

// SAFETY: the driver's handles may be used from any thread (driver API, "Stream synchronization behavior" and cuCtxSetCurrent).
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks its own state.
unsafe impl Sync for Context {}

/// A retained primary context.
struct Primary {
    device: sys::CUdevice,
    raw: sys::CUcontext,
    /// A kernel in it may run for ever.
    abandoned: bool,
}

impl Drop for Primary {
    fn drop(&mut self) {
        // The last release would wait for what runs. The process ends without.
        if !self.abandoned {
            // SAFETY: retained once when this was made.
            let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        }
    }
}

/// While it lives, the context is this thread's, and captures of others forbid it nothing; then context and mode are again what they were before, such as
/// another library's.
///
/// A library that captures in global mode, as PyTorch does, forbids calls that could be meant for its graph to all threads: to allocate, free, load
/// code, and to wait. Calls of MACO are never meant for it but launches on its streams, so the relaxed mode says the truth: they are for streams of
/// MACO's own, which do not synchronise with the default stream, or for none.
#[must_use]
pub(super) struct Entered {
    // Dropped first.
    mode: CaptureMode,
    _current: Current,
}

impl Entered {
    /// While it lives, the thread's mode is what it was before: for work of somebody else.
    pub(super) fn strict(&self) -> CaptureMode {
        CaptureMode::exchange(self.mode.before)
    }
}

/// The context is this thread's; then the one before is again.
struct Current(PhantomData<*mut ()>);

impl Drop for Current {
    fn drop(&mut self) {
        let mut popped = std::ptr::null_mut();
        // SAFETY: the value is not sent to other threads, so this thread pushed the context.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
    }
}

/// What captures forbid this thread; then what they did before.
pub(super) struct CaptureMode {
    before: CUstreamCaptureMode,
    _of_this_thread: PhantomData<*mut ()>,
}

impl CaptureMode {
    fn exchange(mut mode: CUstreamCaptureMode) -> CaptureMode {
        // SAFETY: `mode` is a mode, and writable. The call fails for bad values only.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        CaptureMode { before: mode, _of_this_thread: PhantomData }
    }
}

impl Drop for CaptureMode {
    fn drop(&mut self) {
        let mut mode = self.before;
        // SAFETY: as above; the value is not sent to other threads.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    }
}

/// An event nobody uses.
pub(super) struct SpareEvent(pub(super) sys::CUevent);

// SAFETY: as for `Context`.
unsafe impl Send for SpareEvent {}

/// How many multiprocessors of a GPU there are at most for MACO; see [`crate::Device::workers`].
const MOST: &str = "MACO_MULTIPROCESSORS";

fn most(text: Option<OsString>) -> Result<u32, Error> {
    Ok(environment::value(MOST, text, "a number of multiprocessors, one or more", environment::count)?.unwrap_or(u32::MAX))
}

/// The launch order of the device: whoever launches waits for the tail and becomes it.
#[derive(Default)]
pub(super) struct Order {
    tail: Option<Arc<EventHandle>>,
    /// Stream of the tail, to save a wait on itself.
    stream: u64,
}

/// Number of a stream that is never equal to another's; 0 for streams of unknown identity.
pub(super) const UNKNOWN_STREAM: u64 = 0;
const LAUNCHES_STREAM: u64 = 1;
const COPIES_STREAM: u64 = 2;
pub(super) const FIRST_STREAM: u64 = 16;

impl Context {
    /// The context of GPU `index`.
    pub(crate) fn of(index: u32) -> Result<Arc<Context>, Error> {
        static CONTEXTS: Mutex<BTreeMap<u32, Weak<Context>>> = Mutex::new(BTreeMap::new());
        let driver = driver::initialise().map_err(|error| match error {
            Error::NoGpu { count, .. } => Error::NoGpu { index, count },
            error => error,
        })?;
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = contexts.get(&index).and_then(Weak::upgrade) {
            return Ok(context);
        }
        let context = Arc::new(Context::new(index, driver)?);
        contexts.insert(index, Arc::downgrade(&context));
        Ok(context)
    }

    fn new(ordinal: u32, driver: u32) -> Result<Context, Error> {
        let named = format!("GPU {ordinal}");
        let check = |call, code| if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(driver::failed(call, &named, code)) };
        let mut count = 0;
        let mut device = 0;
        let mut raw = std::ptr::null_mut();
        let mut name = [0u8; 128];
        // SAFETY: the driver is initialised, and every out-pointer is writable; the name's length is given.
        let primary = unsafe {
            check("cuDeviceGetCount", sys::cuDeviceGetCount(&mut count))?;
            let count = count.unsigned_abs();
            if ordinal >= count {
                return Err(Error::NoGpu { index: ordinal, count });
            }
            check("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal as i32))?;
            check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, device))?;
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut raw, device))?;
            Primary { device, raw, abandoned: false }
        };
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: `value` is writable and the device exists.
            check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) })?;
            Ok::<u32, Error>(value.unsigned_abs())
        };
        let capability = (
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let limits = Limits {
            multiprocessors: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            clock_khz: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).unwrap_or(0),
            memory_khz: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).unwrap_or(0),
            memory_bits: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).unwrap_or(0),
        };
        let multiprocessors = limits.multiprocessors.min(most(std::env::var_os(MOST))?);
        // SAFETY: retained above.
        check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(primary.raw) })?;
        let _current = Current(PhantomData);
        let mut context = Context {
            ordinal,
            primary,
            name: String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned(),
            multiprocessors,
            capability,
            limits,
            driver,
            copies: std::ptr::null_mut(),
            launches: std::ptr::null_mut(),
            probe: std::ptr::null_mut(),
            order: Mutex::default(),
            watched: Mutex::default(),
            staging: Mutex::default(),
            pinned: AtomicUsize::new(PINNED),
            modules: Mutex::default(),
            spare_events: Mutex::default(),
            lost: OnceLock::new(),
        };
        for stream in [&mut context.copies, &mut context.launches, &mut context.probe] {
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: the context is current and the handle writable; `drop` destroys what was made.
            check("cuStreamCreate", unsafe { sys::cuStreamCreate(stream, flags) })?;
        }
        Ok(context)
    }

    /// As the driver has it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Which GPU it is, as the driver counts them.
    pub(super) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub(super) fn device(&self) -> sys::CUdevice {
        self.primary.device
    }

    pub(crate) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Compute capability: major and minor.
    pub(crate) fn capability(&self) -> (u32, u32) {
        self.capability
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Version of the driver: 1000 × major + 10 × minor.
    pub(super) fn driver(&self) -> u32 {
        self.driver
    }

    pub(super) fn copies(&self) -> sys::CUstream {
        self.copies
    }

    pub(super) fn launches(&self) -> (sys::CUstream, u64) {
        (self.launches, LAUNCHES_STREAM)
    }

    pub(super) fn probe(&self) -> sys::CUstream {
        self.probe
    }

    pub(super) fn modules(&self) -> MutexGuard<'_, Modules> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn spare_events(&self) -> MutexGuard<'_, Vec<SpareEvent>> {
        self.spare_events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the context this thread's until the value is dropped, or says that the device is lost.
    pub(super) fn enter(&self) -> Result<Entered, Error> {
        self.alive()?;
        // SAFETY: the primary context is retained while `self` lives; `Entered` pops it.
        self.check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(self.primary.raw) })?;
        let _current = Current(PhantomData);
        Ok(Entered { mode: CaptureMode::exchange(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED), _current })
    }

    /// The result of a call of the driver as an error.
    pub(super) fn check(&self, call: &'static str, code: CUresult) -> Result<(), Error> {
        match code {
            CUresult::CUDA_SUCCESS => Ok(()),
            code if driver::destroys_context(code) => {
                let (name, text) = driver::describe(code);
                Err(self.lose(&format!("{call} returned {name} ({text})")))
            }
            code => Err(driver::failed(call, &self.to_string(), code)),
        }
    }

    /// An error if the device is lost: MACO0049.
    pub(super) fn alive(&self) -> Result<(), Error> {
        self.lost.get().map_or(Ok(()), |reason| Err(self.lost_because(reason)))
    }

    /// Gives the device up: its memory is leaked from now on, because freeing it could wait for ever. Every later call ends with the first reason.
    pub(super) fn lose(&self, reason: &str) -> Error {
        self.lost_because(self.lost.get_or_init(|| reason.into()))
    }

    fn lost_because(&self, reason: &str) -> Error {
        Error::DeviceLost { device: self.to_string().into(), reason: reason.into() }
    }

    /// Takes a turn in the launch order: `stream` waits for everything before. Record the end with [`Turn::end`].
    pub(super) fn turn(&self, stream: sys::CUstream, id: u64) -> Result<Turn<'_>, Error> {
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tail) = order.tail.as_ref().filter(|_| id == UNKNOWN_STREAM || order.stream != id) {
            // SAFETY: a live stream and a live event of this context.
            unsafe { tail.hold(self, stream)? };
        }
        Ok(Turn { order, id })
    }

    /// Waits on the host for everything launched so far.
    pub(super) fn settle(&self) -> Result<(), Error> {
        let tail = self.order.lock().unwrap_or_else(PoisonError::into_inner).tail.clone();
        tail.map_or(Ok(()), |tail| tail.synchronize(self))
    }

    /// Whether everything launched so far has ended.
    pub(super) fn is_settled(&self) -> Result<bool, Error> {
        let tail = self.order.lock().unwrap_or_else(PoisonError::into_inner).tail.clone();
        tail.map_or(Ok(true), |tail| tail.done(self))
    }

    /// Host to device, after everything launched so far; returns when the data is there.
    ///
    /// # Safety
    /// `from` holds `rows.count × rows.bytes` bytes, and `to` is memory of this GPU with room for the rows.
    pub(crate) unsafe fn upload(self: &Arc<Context>, to: u64, rows: Rows, from: *const u8) -> Result<(), Error> {
        // SAFETY: passed on from the caller; staging never writes through the pointer in this direction.
        unsafe { self.copy(Direction::Upload, to, rows, from.cast_mut()) }
    }

    /// Device to host, after everything launched so far; returns when the data is there.
    ///
    /// # Safety
    /// `to` has room for `rows.count × rows.bytes` bytes, and `from` is memory of this GPU that holds the rows.
    pub(crate) unsafe fn download(self: &Arc<Context>, to: *mut u8, from: u64, rows: Rows) -> Result<(), Error> {
        // SAFETY: passed on from the caller.
        unsafe { self.copy(Direction::Download, from, rows, to) }
    }

    unsafe fn copy(self: &Arc<Context>, direction: Direction, device: u64, rows: Rows, host: *mut u8) -> Result<(), Error> {
        refuse_while_recording(direction)?;
        let _entered = self.enter()?;
        let bytes = self.pinned.load(Ordering::Relaxed);
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let staging = match &mut *staging {
            Some(staging) if staging.has(bytes) => staging,
            // No copy is under way: each is waited for with the lock held.
            other => other.insert(Staging::new(self, bytes)?),
        };
        // The copies are waited for below, so they need not become the tail.
        drop(self.turn(self.copies, COPIES_STREAM)?);
        // SAFETY: passed on from the caller.
        unsafe { staging.copy(self, direction, device, rows, host) }
    }

    /// Bytes from `address` to the end of the allocation it lies in, as far as the driver tells, at most those `needed`; `None`
    /// when it is not memory of this GPU.
    pub(crate) fn allocation_from(&self, address: u64, needed: u64) -> Result<Option<u64>, Error> {
        let _entered = self.enter()?;
        if !self.owns(address) {
            return Ok(None);
        }
        let (mut base, mut size) = (0, 0);
        // SAFETY: both out-pointers are writable; the driver knows the address.
        let code = unsafe { sys::cuMemGetAddressRange_v2(&mut base, &mut size, address) };
        let end = base + size as u64;
        if code == CUresult::CUDA_SUCCESS && end >= address.saturating_add(needed) {
            return Ok(Some(needed));
        }
        // Memory mapped in pieces is one allocation to its owner: the last byte decides.
        let whole = needed == 0 || self.owns(address.saturating_add(needed - 1));
        if code == CUresult::CUDA_SUCCESS && self.plainly_allocated(address) || !whole {
            return Ok(Some(end.saturating_sub(address)));
        }
        Ok(Some(needed))
    }

    /// Whether `address` is device memory of this GPU.
    fn owns(&self, address: u64) -> bool {
        let (mut ty, mut ordinal) = (0u32, -1i32);
        // SAFETY: each attribute writes a 32-bit value; unknown addresses return an error.
        unsafe {
            sys::cuPointerGetAttribute((&raw mut ty).cast(), sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
                == CUresult::CUDA_SUCCESS
                && ty == sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32
                && sys::cuPointerGetAttribute(
                    (&raw mut ordinal).cast(),
                    sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                    address,
                ) == CUresult::CUDA_SUCCESS
                && ordinal == self.ordinal as i32
        }
    }

    /// Whether `address` comes from `cuMemAlloc`, whose ranges are exact.
    fn plainly_allocated(&self, address: u64) -> bool {
        let mut capable = 0u32;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
        // SAFETY: the attribute writes a boolean of at most 32 bits.
        unsafe { sys::cuPointerGetAttribute((&raw mut capable).cast(), attribute, address) == CUresult::CUDA_SUCCESS && capable != 0 }
    }
}

/// A place in the launch order, held until the work is queued.
pub(super) struct Turn<'a> {
    order: MutexGuard<'a, Order>,
    id: u64,
}

impl Turn<'_> {
    /// Everything queued in this turn ends with `event`, which was just recorded.
    pub(super) fn end(mut self, event: &Arc<EventHandle>) {
        self.order.tail = Some(event.clone());
        self.order.stream = self.id;
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let staging = self.staging.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Ok(_entered) = self.enter() else {
            std::mem::forget(staging);
            self.primary.abandoned = true;
            return;
        };
        // Without its context a handle does not destroy its event.
        let mut events: Vec<_> = staging.iter().flat_map(Staging::events).collect();
        drop(staging);
        let order = self.order.get_mut().unwrap_or_else(PoisonError::into_inner);
        events.extend(order.tail.take().map(|tail| tail.raw()));
        let spare = self.spare_events.get_mut().unwrap_or_else(PoisonError::into_inner);
        events.extend(spare.drain(..).map(|event| event.0));
        for event in events {
            // SAFETY: an event of this context that nobody else has.
            let _ = unsafe { sys::cuEventDestroy_v2(event) };
        }
        let modules = self.modules.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the context is current; kernels hold it, so there is none.
        unsafe { modules.unload() };
        for stream in [self.copies, self.launches, self.probe].into_iter().filter(|stream| !stream.is_null()) {
            // SAFETY: a stream of this context; only the context had it.
            let _ = unsafe { sys::cuStreamDestroy_v2(stream) };
        }
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.capability;
        write!(f, "GPU {} ({}, sm_{major}{minor}, {} multiprocessors)", self.ordinal, self.name, self.multiprocessors)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiprocessors_can_be_left_to_others() {
        assert_eq!(most(None).unwrap(), u32::MAX);
        assert_eq!(most(Some(" 16\n".into())).unwrap(), 16);
        for bad in ["", "0", "-1", "some", "1.5"] {
            let error = most(Some(bad.into())).unwrap_err();
            assert!(error.to_string().contains(MOST), "{error}");
        }
    }
}
