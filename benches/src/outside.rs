//! What `comm` measures outside of megakernels: collectives in CUDA graphs beside NCCL's. Those inside are in `exchanges`.

use anyhow::ensure;
use maco::{Communicator, CudaGraph, Device, Reduce, Stream, Tensor, bf16};
use maco_abi::{LeanOperation, LeanWay};

use crate::matrix::same_bits;
use crate::nccl::Nccl;
use crate::rank_clock::RankClock;
use crate::rows::{Row, summary};
use crate::timing::Measured;

/// Most calls of a graph.
const CALLS: u64 = 200;
/// Calls of a graph exchange so many bytes together, if they are two or more.
const BYTES: u64 = 256 << 20;
/// What the rows measure: the period of a graph's calls.
const METRIC: &str = "outside";
const PEER: &str = "NCCL";

/// What a rank measures with.
pub struct Outside<'a> {
    /// The ranks.
    pub communicator: &'a Communicator,
    /// This rank's GPU.
    pub device: &'a Device,
    /// A stream of it, that of the clock.
    pub stream: &'a Stream,
    /// Times all ranks.
    pub clock: &'a RankClock<'a>,
    /// The peer.
    pub nccl: &'a Nccl,
}

/// A collective with tensors of so many bytes: of an all-gather the result, of a reduce-scatter what is reduced.
struct Case {
    operation: LeanOperation,
    bytes: u64,
    /// Elements of a part.
    part: usize,
    way: LeanWay,
    calls: u64,
}

/// What queues one call.
type Call<'a> = &'a mut dyn FnMut(&Stream) -> anyhow::Result<()>;

impl Outside<'_> {
    /// All-reduces of tensors of so many KiB, and the geometric mean and the least of their ratios.
    pub fn sizes(&self, kib: &[u64]) -> anyhow::Result<Vec<Row>> {
        let mut rows = kib.iter().map(|kib| self.all_reduce(kib << 10)).collect::<anyhow::Result<Vec<_>>>()?;
        let summary = summary(&rows, METRIC, PEER);
        rows.extend(summary.into_iter().map(|row| Row { case: format!("all-reduce outside, {}", row.case), ..row }));
        Ok(rows)
    }

    /// All-reduce, all-gather and reduce-scatter of tensors of so many bytes.
    pub fn largest(&self, bytes: u64) -> anyhow::Result<[Row; 3]> {
        Ok([self.all_reduce(bytes)?, self.all_gather(bytes)?, self.reduce_scatter(bytes)?])
    }

    /// In place, by both.
    fn all_reduce(&self, bytes: u64) -> anyhow::Result<Row> {
        let case = self.case(LeanOperation::AllReduce, bytes)?;
        let [mut ours, mut theirs] = self.between(|| Ok([self.upload(case.part)?, self.upload(case.part)?]))?;
        // Once first, where the sums are those of the numbers: more often they grow until they are infinite.
        self.communicator.all_reduce_on(self.stream, &mut ours, Reduce::Sum)?;
        self.nccl.all_reduce_in_place(self.stream, &mut theirs)?;
        // Copies do not wait for what another library has queued.
        self.stream.synchronize()?;
        same_bits(&ours, &theirs)?;
        let times =
            self.measure(case.calls, &mut |stream| Ok(self.communicator.all_reduce_on(stream, &mut ours, Reduce::Sum)?), &mut |stream| {
                self.nccl.all_reduce_in_place(stream, &mut theirs)
            })?;
        same_bits(&ours, &theirs)?;
        Ok(self.row(&case, times))
    }

    fn all_gather(&self, bytes: u64) -> anyhow::Result<Row> {
        let case = self.case(LeanOperation::AllGather, bytes)?;
        let (x, [mut ours, mut theirs]) = self.between(|| Ok((self.upload(case.part)?, self.results(case.part * self.ranks())?)))?;
        let times = self.measure(case.calls, &mut |stream| Ok(self.communicator.all_gather_on(stream, &x, &mut ours)?), &mut |stream| {
            self.nccl.all_gather(stream, &x, &mut theirs)
        })?;
        same_bits(&ours, &theirs)?;
        Ok(self.row(&case, times))
    }

    fn reduce_scatter(&self, bytes: u64) -> anyhow::Result<Row> {
        let case = self.case(LeanOperation::ReduceScatter, bytes)?;
        let (x, [mut ours, mut theirs]) = self.between(|| Ok((self.upload(case.part * self.ranks())?, self.results(case.part)?)))?;
        let times = self.measure(
            case.calls,
            &mut |stream| Ok(self.communicator.reduce_scatter_on(stream, &x, &mut ours, Reduce::Sum)?),
            &mut |stream| self.nccl.reduce_scatter(stream, &x, &mut theirs),
        )?;
        same_bits(&ours, &theirs)?;
        Ok(self.row(&case, times))
    }

    /// Makes tensors when all ranks have freed those before, and goes on when all have made theirs: what is freed or made in one process waits for kernels of all GPUs that
    /// have peer access to this one, and those for ranks that have not come yet.
    fn between<T>(&self, make: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.communicator.barrier()?;
        let made = make()?;
        self.communicator.barrier()?;
        Ok(made)
    }

    fn ranks(&self) -> usize {
        self.communicator.ranks() as usize
    }

    fn case(&self, operation: LeanOperation, bytes: u64) -> anyhow::Result<Case> {
        let parts = if operation == LeanOperation::AllReduce { 1 } else { self.ranks() };
        // Whole blocks of 16 bytes, so that all parts begin as the first one.
        let part = (bytes / 2) as usize / parts / 8 * 8;
        ensure!(part > 0, "tensors of {bytes} bytes are too small for {} ranks", self.ranks());
        let way = self.communicator.lean_way::<bf16>(self.device, operation, part);
        Ok(Case { operation, bytes, part, way, calls: (BYTES / bytes).clamp(2, CALLS) })
    }

    /// Integers whose sums are exact whatever their order; each rank has others.
    fn upload(&self, count: usize) -> anyhow::Result<Tensor<bf16>> {
        let rank = self.communicator.rank() as usize;
        let data: Vec<bf16> = (0..count).map(|n| bf16::from_f32(((7 * n + 13 * rank + n / 100) % 41) as f32 - 20.0)).collect();
        Ok(self.device.upload(&data, [count as u64])?)
    }

    /// Of both systems. What neither of them writes would differ.
    fn results(&self, count: usize) -> anyhow::Result<[Tensor<bf16>; 2]> {
        Ok([self.device.zeros([count as u64])?, self.device.upload(&vec![bf16::NAN; count], [count as u64])?])
    }

    /// The period of so many calls in a graph of each system.
    fn measure(&self, calls: u64, ours: Call<'_>, theirs: Call<'_>) -> anyhow::Result<[Measured; 2]> {
        // The first call of each kind may set up what a capture does not allow. Both graphs begin alike.
        ours(self.stream)?;
        theirs(self.stream)?;
        self.stream.synchronize()?;
        let capture = |call: Call<'_>| CudaGraph::capture(self.stream, |stream| (0..calls).try_for_each(|_| call(stream)));
        let (ours, theirs) = (capture(ours)?, capture(theirs)?);
        let times = self.clock.measure(&mut [&mut || Ok(ours.launch(self.stream)?), &mut || Ok(theirs.launch(self.stream)?)])?;
        self.communicator.check_collectives()?;
        Ok([times[0], times[1]].map(|times| times.map(|time| time / calls as f64)))
    }

    fn row(&self, case: &Case, [ours, theirs]: [Measured; 2]) -> Row {
        let Case { operation, bytes, way, calls, .. } = case;
        let what = match operation {
            LeanOperation::AllGather => "all-gather",
            LeanOperation::ReduceScatter => "reduce-scatter",
            _ => "all-reduce",
        };
        let named = format!("{what} {}, {} ranks, {}, {calls} calls in a graph", size(*bytes), self.ranks(), way.name());
        Row::against("comm", named, METRIC, ours, PEER, theirs)
    }
}

/// `8 KiB`, `1 GiB`.
fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_named_by_the_largest_unit() {
        assert_eq!([1 << 10, 8 << 10, 2 << 20, (2 << 20) + (1 << 10), 1 << 30].map(size), ["1 KiB", "8 KiB", "2 MiB", "2049 KiB", "1 GiB"]);
    }
}
