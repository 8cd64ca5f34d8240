//! Launches of the lean kernel: collectives outside of megakernels. What a call says does not belong here.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;
use maco_abi::LeanCall;
use maco_device::{Cpu, LEAN_WARPS, Task};
use maco_graph::ir::Graph;

use super::capture::{Capture, CapturedLaunch, Kept, refuse_while_recording};
use super::context::Context;
use super::events::{EventHandle, Patience};
use super::memory::DeviceMemory;
use super::module::Kernel;
use super::stream::Stream;
use super::watchdog::Watchdog;
use crate::error::Error;
use crate::program::{DeviceModule, Embedded, Program};
use crate::tensor::{Buffer, Rows};

/// What the build script made of `lean/kernel.rs`.
const EMBEDDED: Embedded = include!(concat!(env!("OUT_DIR"), "/lean.rs"));

/// The kernel on one GPU, with the tables that all its launches read.
pub(crate) struct LeanKernel {
    context: Arc<Context>,
    kernel: Kernel,
    /// Bases of all ranks, then a word for each executor.
    tables: DeviceMemory,
    steps: u64,
    /// The last launch that was captured: two in one graph must not run at once.
    captured: Mutex<Option<CapturedLaunch>>,
    /// What queued launches use, until they have ended.
    kept: Mutex<Vec<(Arc<EventHandle>, Kept)>>,
}

/// A launch that was queued, or recorded.
#[derive(Debug)]
pub(crate) struct LeanLaunch(Option<Arc<EventHandle>>);

impl LeanKernel {
    /// For so many executors; `bases` is where this GPU has the memory of each rank.
    pub(crate) fn new(context: &Arc<Context>, bases: &[u64], executors: u32) -> Result<LeanKernel, Error> {
        refuse_while_recording("the first collective of a communicator")?;
        let program = Program {
            name: "collectives",
            graph: Graph::default(),
            entry: "lean_collectives",
            embedded: EMBEDDED,
            cpu: |_: &mut Cpu, _: Task, _: u32| {},
            fuse_elementwise: false,
            workers: None,
            schedulers: None,
        };
        let kernel = Kernel::load_plain(context, &program)?;
        let steps = size_of_val(bases) as u64;
        let tables = DeviceMemory::zeroed(context, steps + 4 * u64::from(executors), "the tables of collectives")?;
        let row = Rows { count: 1, bytes: size_of_val(bases), pitch: size_of_val(bases) };
        // SAFETY: plain words; the memory was sized for them.
        unsafe { context.upload(tables.address(), row, bases.as_ptr().cast())? };
        let steps = tables.address() + steps;
        Ok(LeanKernel { context: context.clone(), kernel, tables, steps, captured: Mutex::default(), kept: Mutex::default() })
    }

    /// [`maco_abi::LeanRanks::bases`] and [`maco_abi::LeanRanks::steps`].
    pub(crate) fn tables(&self) -> (u64, u64) {
        (self.tables.address(), self.steps)
    }

    /// Queues a call for so many executors on `stream`, or on one of the context's, behind everything launched before on the device. In a capture it is recorded, and
    /// the graph keeps `owner`; else `buffers` are kept until the launch has ended, and this kernel waits for that when it is dropped: it cannot keep its owner.
    ///
    /// # Safety
    /// The call is of these tables, of `buffers`, and of memory that `owner` keeps and drops behind this kernel. Ranks make their calls in one order.
    pub(crate) unsafe fn launch(
        &self,
        call: LeanCall,
        executors: u32,
        stream: Option<&Stream>,
        buffers: &[Arc<Buffer>],
        owner: Kept,
    ) -> Result<LeanLaunch, Error> {
        let context = &self.context;
        buffers.iter().try_for_each(|buffer| buffer.usable())?;
        let (raw, id) = match stream {
            Some(stream) => (stream.of(context)?, stream.id()),
            None => context.launches(),
        };
        let _entered = context.enter()?;
        // SAFETY: a live stream of this context.
        if let Some(capture) = unsafe { Capture::of(context, raw)? } {
            if !capture.is_own() {
                // Its replays are not in the launch order, and two of them would use the same places.
                return Err(super::capture::not_recorded("a collective in a capture that is not `CudaGraph::capture`"));
            }
            let mut last = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
            capture.keep(context, owner)?;
            // SAFETY: as above, asked just now; the graph keeps what the call uses.
            unsafe {
                capture.order(context, raw, *last)?;
                self.enqueue(call, executors, raw)?;
                *last = Capture::of(context, raw)?.and_then(|capture| capture.last());
            }
            return Ok(LeanLaunch(None));
        }
        refuse_while_recording("a collective on a stream that is not captured")?;
        self.let_go()?;
        let end = EventHandle::new(context)?;
        let order = context.turn(raw, id)?;
        // SAFETY: a live stream, behind all launches of the device; `kept` has what the call uses until it has ended.
        unsafe {
            self.enqueue(call, executors, raw)?;
            end.record(context, raw)?;
        }
        order.end(&end);
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push((end.clone(), Arc::new(buffers.to_vec())));
        Ok(LeanLaunch(Some(end)))
    }

    /// Keeps no longer what ended launches used. Before the next one is queued: memory waits for all of them when it is freed.
    fn let_go(&self) -> Result<(), Error> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < kept.len() && kept[done].0.done(&self.context)? {
            done += 1;
        }
        let ended: Vec<_> = kept.drain(..done).collect();
        drop(kept);
        drop(ended);
        Ok(())
    }

    /// # Safety
    /// As of [`LeanKernel::launch`]; `stream` is a live stream of the context, which is entered.
    unsafe fn enqueue(&self, mut call: LeanCall, executors: u32, stream: sys::CUstream) -> Result<(), Error> {
        let config = sys::CUlaunchConfig {
            gridDimX: executors.div_ceil(LEAN_WARPS),
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 32 * LEAN_WARPS,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: stream,
            attrs: std::ptr::null_mut(),
            numAttrs: 0,
        };
        let mut parameters = [(&raw mut call).cast::<c_void>()];
        // SAFETY: a live function with one parameter, a `LeanCall`; the driver copies configuration and parameters before it returns.
        let code = unsafe { sys::cuLaunchKernelEx(&config, self.kernel.function, parameters.as_mut_ptr(), std::ptr::null_mut()) };
        self.context.check("cuLaunchKernelEx", code)
    }

    /// Waits until a launch has ended; `meanwhile` is called now and then.
    pub(crate) fn wait(&self, launch: &LeanLaunch, mut meanwhile: impl FnMut()) -> Result<(), Error> {
        let Some(end) = &launch.0 else { return Ok(()) };
        let context = &self.context;
        let _entered = context.enter()?;
        let (mut patience, mut watchdog, mut looks) = (Patience::new(), Watchdog::new(context), 0u32);
        while !end.done(context)? {
            if let Some(reason) = watchdog.look()?
                && !end.done(context)?
            {
                return Err(context.lose(&reason));
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(64) {
                meanwhile();
            }
            patience.wait();
        }
        Ok(())
    }

    /// Waits for everything that was launched on the device.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        let _entered = self.context.enter()?;
        self.context.settle()
    }

    /// Whether a launch has ended.
    pub(crate) fn is_done(&self, launch: &LeanLaunch) -> Result<bool, Error> {
        let Some(end) = &launch.0 else { return Ok(true) };
        let _entered = self.context.enter()?;
        end.done(&self.context)
    }
}

impl Drop for LeanKernel {
    fn drop(&mut self) {
        // Launches in flight use the tables, which wait for them, and what is kept.
        if let Ok(_entered) = self.context.enter() {
            let _ = self.context.settle();
        }
    }
}
