//! How much of an all-reduce hides behind the GEMMs whose summands it adds up, beside cuBLASLt and NCCL.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use benches::cublaslt::{CublasLt, Epilogue, Gemm};
use benches::kernels::mlp;
use benches::matrix::{agree, random, same_bits};
use benches::nccl::Nccl;
use benches::overlaps::{mlp_by_nccl, mlp_summed};
use benches::rank_clock::{RankClock, System};
use benches::rows::{Row, publish};
use benches::way;
use clap::Parser;
use maco::{Arguments, Communicator, CudaGraph, Device, Plan, PlanOptions, Stream, Via, bf16};

/// Measures tensor-parallel MLPs, down · gelu(up · x), with their all-reduce: ranks are threads of this process, each with a GPU.
///
/// T_all is one megakernel, the all-reduce in it; once more with tasks that send its tiles, instead of the GEMMs, and once more in two steps, by owners (two-shot). Cases say
/// how the tiles go, as the plan does. T_gemm is the same without the all-reduce. T_seq is T_gemm's and then NCCL's all-reduce, in one CUDA graph.
/// E_own = 1 - (T_all - T_gemm) / (T_seq - T_gemm): 1 is an all-reduce that is hidden, 0 one that comes behind the GEMMs. The peer is cuBLASLt, by the fastest
/// of the algorithms that it proposes, and then NCCL, in one CUDA graph, without multicast: NCCL_NVLS_ENABLE=0. Times are the greatest of all ranks in each round, medians of the
/// rounds. Results are compared, those of megakernels bit by bit.
#[derive(Parser)]
struct Options {
    /// Ranks; by default as many as there are GPUs
    #[arg(long)]
    ranks: Option<u32>,
    /// Write the rows here as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Rounds
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Shapes, M x H x K of all ranks together, such as `8192x28672x8192`
    #[arg(long, value_delimiter = ',', default_values = ["8192x28672x8192", "4096x12288x4096"])]
    mlp: Vec<String>,
    /// Multiprocessors that NCCL has beside the kernel, each a row
    #[arg(long, value_delimiter = ',', default_values_t = [4, 8])]
    comm_sms: Vec<u32>,
    /// Make tiles in the same order on all ranks, instead of the next rank's first, to compare
    #[arg(long)]
    no_own_share: bool,
    /// Write what a launch of each rank did here, by itself and behind others, two files for each shape and rank: `maco-trace` reads them. For a build with MACO_PROFILE=1
    #[arg(long)]
    traces: Option<PathBuf>,
}

/// Relative error by which the systems may differ: orders of summation, roundings of summands, and two ways to compute a hyperbolic tangent.
const ROUNDED: f64 = 1e-2;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let gpus = (0..).take_while(|&index| Device::gpu(index).is_ok()).count() as u32;
    let ranks = options.ranks.unwrap_or(gpus);
    ensure!(ranks >= 2 && ranks <= gpus, "{ranks} ranks, of which each needs a GPU, and there are {gpus}; two are the least");
    let results = Communicator::threads(ranks, |communicator| {
        // The others may wait for this rank for long.
        measure(&communicator, &options).inspect_err(|error| eprintln!("rank {}: {error:#}", communicator.rank()))
    })?;
    let mut rows = results.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    // All ranks have the same.
    publish(&rows.swap_remove(0), options.json.as_deref())
}

/// M, H and K of `8192x28672x8192`.
fn shape(name: &str) -> anyhow::Result<[u64; 3]> {
    let sizes: Vec<u64> = name.split('x').map(str::parse).collect::<Result<_, _>>().with_context(|| format!("`{name}` is no MxHxK"))?;
    sizes.try_into().ok().with_context(|| format!("`{name}` is no MxHxK"))
}

/// One rank.
fn measure(communicator: &Communicator, options: &Options) -> anyhow::Result<Vec<Row>> {
    let device = Device::gpu(communicator.local_rank())?;
    let stream = Stream::new(&device)?;
    let clock = RankClock::new(communicator, &device, &stream, options.rounds)?;
    let nccl = Nccl::new(communicator)?;
    let library = CublasLt::new(&device)?;
    let shapes = options.mlp.iter().map(|name| shape(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let (count, rank) = (u64::from(communicator.ranks()), u64::from(communicator.rank()));
    // Room for the messages of three plans of the largest: its summands in whole tiles, from every rank and twice, as packets at most.
    let most = shapes.iter().map(|[m, _, k]| m.next_multiple_of(64) * k.next_multiple_of(256)).max().unwrap_or(0);
    communicator.set_message_memory(((1 << 20) + 3 * 8 * most * count) as usize)?;
    let mut rows = Vec::new();
    for [m, h, k] in shapes {
        ensure!(h.is_multiple_of(count), "H {h} cannot be divided among {count} ranks");
        // What a rank frees waits for kernels of the others, and those for it.
        communicator.barrier()?;
        let shard = h / count;
        let (x, up) = (random(&device, m, k, 1, 1.0)?, random(&device, shard, k, 2 + rank, (k as f32).powf(-0.5))?);
        let down = random(&device, k, shard, 20 + rank, (h as f32).powf(-0.5))?;
        let new = |columns| device.zeros::<bf16>([m, columns]);
        let (mut ours, mut by_tasks_too, mut in_two_steps_too) = (new(k)?, new(k)?, new(k)?);
        let (mut part, mut sequential) = (new(k)?, new(k)?);
        let (mut hidden, mut result, mut theirs) = (new(shard)?, new(k)?, new(k)?);
        // The first call of NCCL sets up what a capture does not allow.
        nccl.all_reduce(&stream, &part, &mut sequential)?;

        let asked = PlanOptions::new().communicator(communicator.clone()).own_share(!options.no_own_share);
        let summed = |options: &PlanOptions| mlp_summed::plan_with(&device, mlp_summed::Dims { M: m, K: k, H: shard }, options);
        let fused = summed(&asked)?;
        let all = fused.bind(Arguments::new().tensor(&x).tensor(&up).tensor(&down).tensor_mut(&mut ours))?;
        let by_tasks = summed(&asked.clone().push_tiles(false))?;
        let sent = by_tasks.bind(Arguments::new().tensor(&x).tensor(&up).tensor(&down).tensor_mut(&mut by_tasks_too))?;
        let in_two_steps = summed(&asked.clone().via(Via::TwoShot))?;
        let owned = in_two_steps.bind(Arguments::new().tensor(&x).tensor(&up).tensor(&down).tensor_mut(&mut in_two_steps_too))?;
        let lent = |&sms: &u32| mlp_by_nccl::plan_with(&device, mlp_by_nccl::Dims { M: m, K: k, H: shard }, &asked.clone().comm_sms(sms));
        let beside = options.comm_sms.iter().map(lent).collect::<Result<Vec<_>, _>>()?;
        let mut by_nccl = beside.iter().map(|_| new(k)).collect::<Result<Vec<_>, _>>()?;
        let mut gated = Vec::new();
        for (plan, y) in beside.iter().zip(&mut by_nccl) {
            gated.push(plan.bind(Arguments::new().tensor(&x).tensor(&up).tensor(&down).tensor_mut(y))?);
        }
        let mut replays = Vec::new();
        for bound in &gated {
            replays.push(CudaGraph::capture(&stream, |stream| bound.launch_on(stream))?);
        }
        let apart = mlp::plan_with(&device, mlp::Dims { M: m, H: shard, K: k }, &PlanOptions::new())?;
        let gemm = apart.bind(Arguments::new().tensor(&x).tensor(&up).tensor(&down).tensor_mut(&mut part))?;
        gemm.launch_on(&stream)?;
        let mut first = Gemm::new(&library, &x, &up, &hidden, Epilogue::Gelu)?;
        let mut second = Gemm::new(&library, &hidden, &down, &result, Epilogue::None)?;
        first.choose(&stream, |first| first.launch(&stream, &x, &up, &mut hidden))?;
        second.choose(&stream, |second| second.launch(&stream, &hidden, &down, &mut result))?;
        let by_cublas = CudaGraph::capture(&stream, |_| {
            first.launch(&stream, &x, &up, &mut hidden)?;
            second.launch(&stream, &hidden, &down, &mut result)
        })?;
        let peer = CudaGraph::capture(&stream, |_| {
            first.launch(&stream, &x, &up, &mut hidden)?;
            second.launch(&stream, &hidden, &down, &mut result)?;
            nccl.all_reduce(&stream, &result, &mut theirs)
        })?;
        let behind = CudaGraph::capture(&stream, |stream| {
            gemm.launch_on(stream)?;
            nccl.all_reduce(stream, &part, &mut sequential)
        })?;
        let mut systems: Vec<Box<dyn FnMut() -> anyhow::Result<()> + '_>> = vec![
            Box::new(|| Ok(all.launch_on(&stream)?)),
            Box::new(|| Ok(gemm.launch_on(&stream)?)),
            Box::new(|| Ok(behind.launch(&stream)?)),
            Box::new(|| Ok(peer.launch(&stream)?)),
            Box::new(|| Ok(by_cublas.launch(&stream)?)),
            Box::new(|| Ok(sent.launch_on(&stream)?)),
            Box::new(|| Ok(owned.launch_on(&stream)?)),
        ];
        for (bound, replay) in gated.iter().zip(&replays) {
            systems.push(Box::new(|| Ok(bound.launch_on(&stream)?)));
            systems.push(Box::new(|| Ok(replay.launch(&stream)?)));
        }
        let times = clock.measure(&mut systems.iter_mut().map(|system| &mut **system as System<'_>).collect::<Vec<_>>())?;
        drop(systems);
        fused.check()?;
        by_tasks.check()?;
        in_two_steps.check()?;
        beside.iter().try_for_each(|plan| plan.check())?;
        apart.check()?;
        agree(&ours, &theirs, ROUNDED)?;
        same_bits(&by_tasks_too, &ours)?;
        same_bits(&in_two_steps_too, &ours)?;
        agree(&sequential, &theirs, ROUNDED)?;
        by_nccl.iter().try_for_each(|sum| agree(sum, &theirs, ROUNDED))?;
        let [all, gemm, behind, peer, by_cublas, sent, owned] = [times[0], times[1], times[2], times[3], times[4], times[5], times[6]];
        let case = format!("MLP M{m} H{h} K{k}, {count} ranks");
        eprintln!("{case}: {}", fused.graph());
        let named = |plan: &Plan| format!("{case}, {}", way(plan));
        let row = |case: &str, metric, ours, of, theirs| Row::against("overlap", case, metric, ours, of, theirs);
        rows.push(row(&named(&fused), "T_all", all, "cuBLASLt, then NCCL", peer));
        rows.push(row(&named(&by_tasks), "T_all, tasks send", sent, "cuBLASLt, then NCCL", peer));
        rows.push(row(&named(&in_two_steps), "T_all, two-shot", owned, "cuBLASLt, then NCCL", peer));
        for ((plan, times), sms) in beside.iter().zip(times[7..].chunks(2)).zip(&options.comm_sms) {
            for (&time, how) in times.iter().zip(["", ", in a graph"]) {
                let case = format!("{}, {sms} multiprocessors{how}", named(plan));
                rows.push(row(&case, "T_all, NCCL beside", time, "cuBLASLt, then NCCL", peer));
            }
        }
        rows.push(row(&case, "T_seq", behind, "cuBLASLt, then NCCL", peer));
        rows.push(row(&case, "T_gemm", gemm, "cuBLASLt", by_cublas));
        let (left, whole) = (all.with(gemm, |all, gemm| all - gemm), behind.with(gemm, |behind, gemm| behind - gemm));
        let hidden = left.with(whole, |left, whole| 1.0 - left / whole);
        if let Some(folder) = &options.traces {
            fused.profile(true)?;
            let bound = fused.bind(Arguments::new().tensor(&x).tensor(&up).tensor(&down).tensor_mut(&mut ours))?;
            // All ranks launch, and each has a folder of its own.
            let folder = folder.join(format!("rank{rank}"));
            benches::write_traces(&fused, &stream, &folder, &case, || Ok(bound.launch_on(&stream)?))?;
        }
        rows.push(Row { unit: "1", ..Row::without_peer("overlap", named(&fused), "E_own", hidden) });
    }
    Ok(rows)
}
