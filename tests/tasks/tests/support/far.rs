//! Tensors that reach beyond 2³² elements: few rows, far apart, of which nothing but the rows is touched. What a test does with them does not belong
//! here.
//!
//! On the CPU every tensor of several rows is one, each in addresses of its own, whose pages are made when they are touched. A GPU has no such pages: there
//! as many are as find room in its memory, and the test is run again with the next ones far until each has been.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use maco::{Device, IntoShape, Tensor, TensorElement};

use super::Setup;

/// Elements from the first row of a tensor to its last, so that offsets of elements wrap in 32 bits, signed or not; beyond 2³² also where a tile of 64 or 128
/// rows is the last but for a few rows, so that its own offset does.
const SPAN: u64 = (1 << 32) + (1 << 28);
/// Bytes of a GPU: two tensors of four bytes, four of two.
const GROUND: u64 = 40 << 30;

/// Where a set-up puts its tensors of several rows.
#[derive(Clone)]
pub struct Far(Arc<Mutex<State>>);

struct State {
    ground: Ground,
    /// Tensors that are near, because they were far before.
    skip: usize,
    /// Tensors so far, those that are skipped included.
    seen: usize,
    /// Tensors that are far.
    placed: usize,
}

enum Ground {
    Host(Vec<Pages>),
    /// What is left of memory that there is: a GPU has no pages that nobody touches.
    Given {
        address: u64,
        left: u64,
    },
}

impl Far {
    fn new(ground: Ground, skip: usize) -> Far {
        Far(Arc::new(Mutex::new(State { ground, skip, seen: 0, placed: 0 })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tensor of any content whose rows are far apart, if it has several rows and it is its turn.
    pub fn tensor<E: TensorElement>(&self, device: &Device, shape: &[u64]) -> Option<Tensor<E>> {
        let stride = stride(shape)?;
        let mut state = self.state();
        state.seen += 1;
        if state.seen <= state.skip {
            return None;
        }
        let rows: u64 = shape[..shape.len() - 1].iter().product();
        let span = (rows - 1) * stride + shape[shape.len() - 1];
        let bytes = (span * size_of::<E>() as u64).next_multiple_of(256);
        let address = state.ground.take(bytes)?;
        state.placed += 1;
        // SAFETY: `take` gives memory of the device that nobody else gets as long as this ground is there, which the tests' tensors do not outlive.
        Some(unsafe { Tensor::from_raw(device, address as *mut E, shape.into_shape().expect("a shape"), stride) }.expect("a far tensor"))
    }
}

/// Elements from one row to the next. Rows begin at 16 bytes as those of tensors that a device makes, and where they consist of pieces, so do their distances.
fn stride(shape: &[u64]) -> Option<u64> {
    let (&columns, outer) = shape.split_last()?;
    let rows: u64 = outer.iter().product();
    let unit = if columns > 0 && columns.is_multiple_of(256) { 256 } else { 16 };
    // Distances of rows and of planes are words.
    let most = u64::from(u32::MAX) / if outer.len() > 1 { outer[outer.len() - 1].max(1) } else { 1 };
    let stride = (SPAN / rows.checked_sub(1).filter(|&rows| rows > 0)?).next_multiple_of(unit).min(most / unit * unit);
    (columns > 0 && columns <= stride).then_some(stride)
}

impl Ground {
    /// The address of so many bytes; none where there are no more.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        match self {
            Ground::Host(pages) => {
                pages.push(Pages::new(bytes));
                pages.last().map(|pages| pages.at as u64)
            }
            Ground::Given { address, left } => {
                // Once there is no room all others are near, so that those that were far are the first ones.
                let rest = left.checked_sub(bytes);
                let at = *address;
                (*address, *left) = (at + bytes, rest.unwrap_or(0));
                rest.map(|_| at)
            }
        }
    }
}

/// Addresses of which only those are memory that were touched.
struct Pages {
    at: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: a plain mapping; who accesses it when is settled by the tensors in it.
unsafe impl Send for Pages {}

impl Pages {
    fn new(bytes: u64) -> Pages {
        let bytes = bytes as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping of memory that nobody has.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert!(at != libc::MAP_FAILED, "no addresses for {bytes} bytes: {}", std::io::Error::last_os_error());
        // A row would take 2 MiB. Where there are no such pages it need not be said.
        // SAFETY: the mapping from above.
        let _ = unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
        Pages { at, bytes }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and unmapped once.
        unsafe { libc::munmap(self.at, self.bytes) };
    }
}

/// Runs `test` on both executors of the CPU, with all tensors far. How many there were.
pub fn on_cpu(test: impl Fn(&Setup)) -> usize {
    let one = |setup: Setup| {
        let far = Far::new(Ground::Host(Vec::new()), 0);
        test(&Setup { far: Some(far.clone()), ..setup });
        far.state().placed
    };
    one(Setup::plain(2)) + one(Setup::pipelined(2))
}

/// Runs `test` on a GPU until each tensor has been far; not where that has too little memory. How many there were.
pub fn on_gpu(test: impl Fn(&Setup)) -> usize {
    let mut far = 0;
    gpu_memory(GROUND, |setup, address| far = in_turns(setup, address, GROUND, &test));
    far
}

/// Runs `test` in so many bytes until each tensor has been far. How many there were.
pub fn in_turns(setup: &Setup, address: u64, bytes: u64, test: impl Fn(&Setup)) -> usize {
    let mut skip = 0;
    loop {
        let far = Far::new(Ground::Given { address, left: bytes }, skip);
        test(&Setup { far: Some(far.clone()), ..setup.clone() });
        let State { placed, seen, .. } = *far.state();
        skip += placed;
        if placed == 0 || skip >= seen {
            return skip;
        }
    }
}

/// Runs `test` on both executors of the CPU with the address of so many bytes.
pub fn cpu_memory(bytes: u64, test: impl Fn(&Setup, u64)) {
    for setup in [Setup::plain(2), Setup::pipelined(2)] {
        let pages = Pages::new(bytes);
        test(&setup, pages.at as u64);
    }
}

/// Memory of GPU 0, made once: one test at a time has it.
static GPU: Mutex<Option<Tensor<u32>>> = Mutex::new(None);

/// Runs `test` on a GPU with the address of so many bytes of any content; not where there is too little memory.
pub fn gpu_memory(bytes: u64, test: impl FnOnce(&Setup, u64)) {
    assert!(bytes <= GROUND);
    let mut memory = GPU.lock().unwrap_or_else(PoisonError::into_inner);
    let setup = Setup::gpu();
    if memory.is_none() {
        match setup.device.zeros([GROUND / 4]) {
            Ok(all) => *memory = Some(all),
            Err(error) if error.code() == 45 => return eprintln!("left out: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
    test(&setup, memory.as_mut().expect("made above").as_mut_ptr() as u64);
}
