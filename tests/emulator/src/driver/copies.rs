//! Memory: allocations, copies, fills.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::context::current;
use super::graphs::permitted;
use super::*;
use crate::exec::races::streams as races;
use crate::memory::{self, Kind};

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> Status {
    healthy!();
    permitted!();
    if bytes == 0 {
        return INVALID_VALUE;
    }
    match memory::allocate(bytes as u64, current!(), Kind::Plain) {
        Some(address) => {
            // SAFETY: promised by the caller.
            unsafe { *to = address };
            SUCCESS
        }
        None => OUT_OF_MEMORY,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> Status {
    permitted!();
    if address == 0 || memory::free(address) { fault() } else { INVALID_VALUE }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, _flags: u32) -> Status {
    healthy!();
    permitted!();
    match memory::allocate(bytes.max(1) as u64, current!(), Kind::Host) {
        Some(address) => {
            // SAFETY: promised by the caller.
            unsafe { *to = address as *mut c_void };
            SUCCESS
        }
        None => OUT_OF_MEMORY,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(pointer: *mut c_void) -> Status {
    permitted!();
    if memory::free(pointer as u64) { fault() } else { INVALID_VALUE }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetDevicePointer_v2(to: *mut u64, pointer: *mut c_void, _flags: u32) -> Status {
    let found = memory::registered::on_devices(pointer as u64).or_else(|| memory::find(pointer as u64).map(|_| pointer as u64));
    let Some(address) = found else { return INVALID_VALUE };
    // SAFETY: promised by the caller.
    unsafe { *to = address };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status {
    healthy!();
    let device = current!();
    // SAFETY: promised by the caller.
    unsafe {
        *total = memory::capacity() as usize;
        *free = (memory::capacity() - memory::live(device).min(memory::capacity())) as usize;
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, address: u64) -> Status {
    let Some(found) = memory::find(address) else { return INVALID_VALUE };
    // SAFETY: promised by the caller.
    unsafe {
        if !base.is_null() {
            *base = found.start;
        }
        if !size.is_null() {
            *size = (found.end - found.start) as usize;
        }
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(to: *mut c_void, attribute: u32, address: u64) -> Status {
    let Some(found) = memory::find(address) else { return INVALID_VALUE };
    // SAFETY: the attribute's type is what the driver says.
    unsafe {
        match attribute {
            // Mapped memory is of a device and of no context.
            1 if found.kind == Kind::Mapped => *to.cast::<*mut c_void>() = std::ptr::null_mut(),
            1 => *to.cast::<*mut c_void>() = super::context::primary(found.device),
            2 => *to.cast::<u32>() = if found.kind == Kind::Host { 1 } else { 2 },
            3 | 4 => *to.cast::<u64>() = address,
            8 => *to.cast::<u32>() = 0,
            9 => *to.cast::<c_int>() = found.device as c_int,
            11 => *to.cast::<u64>() = found.start,
            12 => *to.cast::<u64>() = found.end - found.start,
            _ => return NOT_SUPPORTED,
        }
    }
    SUCCESS
}

/// Rows of bytes, from one place to another.
#[derive(Clone, Copy)]
struct Rows {
    to: u64,
    to_pitch: u64,
    from: u64,
    from_pitch: u64,
    width: u64,
    height: u64,
    /// Ends that have to be memory of the GPU.
    device: (bool, bool),
}

impl Rows {
    fn flat(to: u64, from: u64, bytes: usize, device: (bool, bool)) -> Rows {
        Rows { to, to_pitch: 0, from, from_pitch: 0, width: bytes as u64, height: 1, device }
    }

    fn valid(&self, by: usize) -> bool {
        if self.width == 0 || self.height == 0 {
            return true;
        }
        let holds = |start: u64, pitch: u64| memory::copyable(by, start, pitch * (self.height - 1) + self.width);
        (!self.device.0 || holds(self.to, self.to_pitch)) && (!self.device.1 || holds(self.from, self.from_pitch))
    }

    fn copy(&self, by: usize) {
        if fault() != 0 {
            return;
        }
        if !self.valid(by) {
            eprintln!(
                "[emu] a copy of {} × {} bytes uses memory that was freed or unmapped: {:#x} → {:#x}",
                self.height, self.width, self.from, self.to
            );
            set_fault(crate::exec::ILLEGAL_ADDRESS);
            return;
        }
        let ends = |row| [(self.from + row * self.from_pitch, self.width, false), (self.to + row * self.to_pitch, self.width, true)];
        if let Err(race) = races::copy(by, (0..self.height).flat_map(ends)) {
            eprintln!("[emu] {race}");
            return set_fault(crate::exec::LAUNCH_FAILED);
        }
        for row in 0..self.height {
            let (from, to) = (self.from + row * self.from_pitch, self.to + row * self.to_pitch);
            // SAFETY: the caller of the driver promises host memory; the GPU's was checked.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, self.width as usize) };
        }
    }

    unsafe fn queue(self, stream: *mut c_void, wait: bool) -> Status {
        healthy!();
        // SAFETY: promised by the caller.
        let stream = unsafe { super::streams::of(stream) };
        let device = stream.device;
        if !self.valid(device) {
            return INVALID_VALUE;
        }
        stream.push(Arc::new(move || self.copy(device)));
        if wait {
            stream.settle();
        }
        fault()
    }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) -> Status {
    let mut rows = Rows::flat(to, from as u64, bytes, (true, false));
    if memory::find(from as u64).is_some() || bytes > 64 << 10 {
        // SAFETY: promised by the caller.
        return unsafe { rows.queue(stream, memory::find(from as u64).is_none()) };
    }
    healthy!();
    // Of pageable memory, the driver takes a copy before it returns.
    // SAFETY: promised by the caller.
    let (data, stream) = unsafe { (std::slice::from_raw_parts(from.cast::<u8>(), bytes).to_vec(), super::streams::of(stream)) };
    let device = stream.device;
    if !rows.valid(device) {
        return INVALID_VALUE;
    }
    rows.from = 0;
    stream.push(Arc::new(move || Rows { from: data.as_ptr() as u64, ..rows }.copy(device)));
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) -> Status {
    // To pageable memory, the driver waits.
    // SAFETY: promised by the caller.
    unsafe { Rows::flat(to as u64, from, bytes, (false, true)).queue(stream, memory::find(to as u64).is_none()) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) -> Status {
    // SAFETY: promised by the caller.
    unsafe { Rows::flat(to, from, bytes, (true, true)).queue(stream, false) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: *mut c_void) -> Status {
    // SAFETY: promised by the caller.
    unsafe { Rows::flat(to, from, bytes, (false, false)).queue(stream, false) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    _to_context: *mut c_void,
    from: u64,
    _from_context: *mut c_void,
    bytes: usize,
    stream: *mut c_void,
) -> Status {
    // SAFETY: passed on; addresses say by themselves whose they are.
    unsafe { cuMemcpyDtoDAsync_v2(to, from, bytes, stream) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> Status {
    // SAFETY: promised by the caller.
    unsafe { Rows::flat(to, from as u64, bytes, (true, false)).queue(std::ptr::null_mut(), true) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> Status {
    // SAFETY: promised by the caller.
    unsafe { Rows::flat(to as u64, from, bytes, (false, true)).queue(std::ptr::null_mut(), true) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> Status {
    // SAFETY: promised by the caller.
    unsafe { Rows::flat(to, from, bytes, (true, true)).queue(std::ptr::null_mut(), true) }
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
pub struct Copy2d {
    src_x: usize,
    src_y: usize,
    src_type: u32,
    src_host: u64,
    src_device: u64,
    src_array: u64,
    src_pitch: usize,
    dst_x: usize,
    dst_y: usize,
    dst_type: u32,
    dst_host: u64,
    dst_device: u64,
    dst_array: u64,
    dst_pitch: usize,
    width: usize,
    height: usize,
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2DAsync_v2(copy: *const Copy2d, stream: *mut c_void) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        let copy = &*copy;
        let place = |ty: u32, host: u64, device: u64, x: usize, y: usize, pitch: usize| {
            (if ty == 1 { host } else { device }) + (y * pitch + x) as u64
        };
        let rows = Rows {
            to: place(copy.dst_type, copy.dst_host, copy.dst_device, copy.dst_x, copy.dst_y, copy.dst_pitch),
            to_pitch: copy.dst_pitch as u64,
            from: place(copy.src_type, copy.src_host, copy.src_device, copy.src_x, copy.src_y, copy.src_pitch),
            from_pitch: copy.src_pitch as u64,
            width: copy.width as u64,
            height: copy.height as u64,
            device: (copy.dst_type == 2, copy.src_type == 2),
        };
        let pageable = copy.dst_type == 1 && memory::find(rows.to).is_none() || copy.src_type == 1 && memory::find(rows.from).is_none();
        rows.queue(stream, pageable)
    }
}

/// Fills `count` elements of so many bytes.
unsafe fn fill(to: u64, value: u64, bytes: usize, count: usize, stream: *mut c_void, wait: bool) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    let stream = unsafe { super::streams::of(stream) };
    let device = stream.device;
    let valid = move || memory::copyable(device, to, (bytes * count) as u64);
    if !valid() || !to.is_multiple_of(bytes as u64) {
        return INVALID_VALUE;
    }
    stream.push(Arc::new(move || {
        if !valid() {
            eprintln!("[emu] a fill of {} bytes uses memory that was freed or unmapped: {to:#x}", bytes * count);
            return set_fault(crate::exec::ILLEGAL_ADDRESS);
        }
        // SAFETY: live memory of the GPU.
        unsafe {
            match bytes {
                // Mapped memory is a file's: its pages do not become zeros by being given up.
                _ if value == 0 && bytes * count >= memory::MANY && memory::find(to).is_some_and(|found| found.kind != Kind::Mapped) => {
                    memory::clear(to, bytes * count)
                }
                1 => std::ptr::write_bytes(to as *mut u8, value as u8, count),
                2 => std::slice::from_raw_parts_mut(to as *mut u16, count).fill(value as u16),
                _ => std::slice::from_raw_parts_mut(to as *mut u32, count).fill(value as u32),
            }
        }
    }));
    if wait {
        stream.settle();
    }
    fault()
}

macro_rules! fills {
    ($($now:ident $later:ident $ty:ty;)*) => {
        $(
            /// # Safety
            /// As [`cuInit`].
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $now(to: u64, value: $ty, count: usize) -> Status {
                // SAFETY: promised by the caller.
                unsafe { fill(to, value.into(), size_of::<$ty>(), count, std::ptr::null_mut(), true) }
            }

            /// # Safety
            /// As [`cuInit`].
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $later(to: u64, value: $ty, count: usize, stream: *mut c_void) -> Status {
                // SAFETY: promised by the caller.
                unsafe { fill(to, value.into(), size_of::<$ty>(), count, stream, false) }
            }
        )*
    };
}
fills! {
    cuMemsetD8_v2 cuMemsetD8Async u8;
    cuMemsetD16_v2 cuMemsetD16Async u16;
    cuMemsetD32_v2 cuMemsetD32Async u32;
}
