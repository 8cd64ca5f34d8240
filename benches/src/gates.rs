//! What `comm` measures of NCCL beside a megakernel: what a chunk takes, from the task that says that it is there to the task that waits for it.

use anyhow::ensure;
use maco::{Arguments, Communicator, CudaGraph, Device, PlanOptions, Stream, bf16};

use crate::exchanges::gated;
use crate::nccl::Nccl;
use crate::rank_clock::RankClock;
use crate::rows::Row;

/// Columns of the tensor that is summed.
const COLUMNS: u64 = 8192;
/// Rows of a chunk of 4 MiB, the least that the planner makes.
const ROWS: u64 = 256;
/// Chunks of the launches that are compared.
const CHUNKS: [u64; 2] = [4, 16];

/// The period of chunks of 4 MiB in one launch, with so many multiprocessors for NCCL, beside that of as many all-reduces of NCCL with as many CTAs in a CUDA graph: what
/// launches of 16 chunks take more than those of 4. Their difference is what a gate costs.
pub fn measure(
    communicator: &Communicator,
    device: &Device,
    stream: &Stream,
    clock: &RankClock<'_>,
    multiprocessors: u32,
) -> anyhow::Result<[Row; 2]> {
    let nccl = Nccl::with_ctas(communicator, multiprocessors)?;
    let mut times = Vec::new();
    for chunks in CHUNKS {
        // What a rank frees waits for kernels of the others, and those for it.
        communicator.barrier()?;
        let shape = [ROWS * chunks, COLUMNS];
        let own = bf16::from_f32(communicator.rank() as f32 + 1.0);
        let x = device.upload(&vec![own; (shape[0] * COLUMNS) as usize], shape)?;
        let [mut y, mut theirs] = [device.zeros::<bf16>(shape)?, device.zeros::<bf16>([ROWS, COLUMNS])?];
        let part = device.upload(&vec![own; (ROWS * COLUMNS) as usize], [ROWS, COLUMNS])?;
        let options = PlanOptions::new().communicator(communicator.clone()).comm_sms(multiprocessors);
        let plan = gated::plan_with(device, gated::Dims { M: shape[0], N: COLUMNS }, &options)?;
        ensure!(u64::from(plan.graph().calls[1].grid[0]) == chunks, "the plan has other chunks: {}", plan.graph());
        let bound = plan.bind(Arguments::new().tensor(&x).tensor_mut(&mut y))?;
        // The first call sets up what a capture does not allow.
        nccl.all_reduce(stream, &part, &mut theirs)?;
        stream.synchronize()?;
        communicator.barrier()?;
        let alone = CudaGraph::capture(stream, |stream| (0..chunks).try_for_each(|_| nccl.all_reduce(stream, &part, &mut theirs)))?;
        times.extend(clock.measure(&mut [&mut || Ok(bound.launch_on(stream)?), &mut || Ok(alone.launch(stream)?)])?);
        plan.check()?;
        let ranks = communicator.ranks();
        let sum = bf16::from_f32((ranks * (ranks + 1) / 2) as f32);
        ensure!(y.download()?.iter().all(|value| *value == sum), "NCCL beside the kernel computed something else than the sum");
        ensure!(theirs.download()?.iter().all(|value| *value == sum), "NCCL computed something else than the sum");
        communicator.barrier()?;
    }
    let more = (CHUNKS[1] - CHUNKS[0]) as f64;
    let (ours, alone) = (times[0].slope(times[2], more), times[1].slope(times[3], more));
    let case = format!("chunks of 4 MiB, {multiprocessors} multiprocessors, {} ranks", communicator.ranks());
    Ok([
        Row::against("comm", &case, "period", ours, "NCCL alone", alone),
        Row::without_peer("comm", case, "gate", ours.with(alone, |ours, alone| ours - alone)),
    ])
}
