//! What a GPU's timer shows at a moment of the host's clock: the host asks, and a kernel of one thread answers.
//!
//! It takes a kernel, since only one can read the timer in which launches record: events of the driver tell distances alone, and what a recorded launch notes is as far from what
//! the host knows as a launch takes. The kernel waits for the host, and so the way there and back is all that is not known.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cudarc::driver::sys;
use maco_device::{Cpu, Task};
use maco_graph::ir::Graph;
use maco_ranks::host_clock;

use super::capture::refuse_while_recording;
use super::context::Context;
use super::events::EventHandle;
use super::memory::PinnedMemory;
use super::module::Kernel;
use crate::error::Error;
use crate::profile::clock::{Look, Moment};
use crate::program::{DeviceModule, Embedded, Program};

/// What the build script made of `profile/timer_kernel.rs`.
const EMBEDDED: Embedded = include!(concat!(env!("OUT_DIR"), "/timer.rs"));

/// Questions behind the first answer: the least of so many ways there and back is a short one.
const QUESTIONS: u32 = 64;
/// Nanoseconds of the GPU's timer for which the kernel waits for a question: the host may be interrupted.
const PATIENCE: u64 = 20_000_000;
/// Looks at the memory between two at the stream, which take longer.
const LOOKS: u32 = 1 << 14;

/// What the kernel and the host share.
#[repr(C)]
struct Exchange {
    asked: AtomicU32,
    shown: [AtomicU64; QUESTIONS as usize + 1],
}

/// Now, on both clocks. Waits for everything that was launched on the device.
pub(super) fn moment(context: &Arc<Context>) -> Result<Moment, Error> {
    refuse_while_recording("to look at the timer of a GPU")?;
    let _entered = context.enter()?;
    context.settle()?;
    let program = Program {
        name: "timer",
        graph: Graph::default(),
        entry: "show_timer",
        embedded: EMBEDDED,
        cpu: |_: &mut Cpu, _: Task, _: u32| {},
        fuse_elementwise: false,
        workers: None,
        schedulers: None,
    };
    let kernel = Kernel::load_plain(context, &program)?;
    let memory = PinnedMemory::new(context, size_of::<Exchange>(), "looks at the timer of a GPU")?;
    let address = memory.device_address(context)?;
    // SAFETY: zeroed memory of this size, page-aligned, that lives until the kernel has ended; the kernel's accesses are atomic as well.
    let exchange = unsafe { &*memory.pointer().cast::<Exchange>() };
    let (stream, id) = context.launches();
    let end = EventHandle::new(context)?;
    let order = context.turn(stream, id)?;
    let mut before = host_clock();
    // SAFETY: a live stream of the entered context, behind all launches of the device; the memory lives until `end`, which is waited for.
    unsafe {
        enqueue(context, &kernel, address, stream)?;
        end.record(context, stream)?;
    }
    order.end(&end);
    let mut looks = Vec::with_capacity(exchange.shown.len());
    for (question, shown) in (1..).zip(&exchange.shown) {
        let Some(shown) = answer(context, &end, shown)? else { break };
        let after = host_clock();
        looks.push(Look { before, shown, after });
        before = host_clock();
        exchange.asked.store(question, Ordering::Release);
    }
    end.synchronize(context)?;
    Moment::of(looks, 0).ok_or_else(|| context.lose("its timer does not answer"))
}

/// Waits for an answer; none if the kernel has left without.
fn answer(context: &Context, end: &EventHandle, shown: &AtomicU64) -> Result<Option<u64>, Error> {
    loop {
        let ended = end.done(context)?;
        for _ in 0..LOOKS {
            match shown.load(Ordering::Acquire) {
                0 if ended => return Ok(None),
                0 => std::hint::spin_loop(),
                now => return Ok(Some(now)),
            }
        }
    }
}

/// # Safety
/// `stream` is a live stream of `context`, which is entered, and `exchange` is where the GPU has an [`Exchange`].
unsafe fn enqueue(context: &Context, kernel: &Kernel, exchange: u64, stream: sys::CUstream) -> Result<(), Error> {
    let mut asked = exchange + std::mem::offset_of!(Exchange, asked) as u64;
    let mut shown = exchange + std::mem::offset_of!(Exchange, shown) as u64;
    let (mut last, mut patience) = (QUESTIONS, PATIENCE);
    let config = sys::CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream,
        attrs: std::ptr::null_mut(),
        numAttrs: 0,
    };
    let mut parameters = [(&raw mut asked).cast::<c_void>(), (&raw mut shown).cast(), (&raw mut last).cast(), (&raw mut patience).cast()];
    // SAFETY: a live function with these four parameters; the driver copies configuration and parameters before it returns.
    let code = unsafe { sys::cuLaunchKernelEx(&config, kernel.function, parameters.as_mut_ptr(), std::ptr::null_mut()) };
    context.check("cuLaunchKernelEx", code)
}
