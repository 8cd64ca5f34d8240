//! The cost of a task and of a dependency, as slopes between 1,000 and 4,000 tasks, which cancel the cost of the launch; how evenly tasks
//! are assigned; how fast bytes move. Kernels are launched as the library is, with deadlines.

use std::cell::Cell;
use std::path::PathBuf;

use anyhow::ensure;
use benches::graphs;
use benches::peer::{Driver, Edge, Grid, Kernel, check};
use benches::rows::{Row, Run};
use benches::tasks::dispatch;
use benches::tasks::plain::{Chain, Flags, THREADS, TILE};
use benches::timing::{Clock, Measured, Random, System, progress};
use clap::Parser;
use cudarc::driver::sys;
use maco::{Arguments, CompiledGraph, CudaGraph, Device, PlanOptions, Schedule, TaskGraph, Tensor, TensorElement, bf16};
use maco_abi as abi;

/// Measures the dispatch of tasks, hops between CTAs, how evenly random work is dealt, and copies, beside peers of the same bodies.
///
/// Everything runs in one kernel that links the whole task library, with deadlines. Per-task figures are slopes between 1,000 and 4,000
/// tasks. Systems take turns in one process; every figure is the median of the rounds, and the spread is that of every other round
/// against the rest.
#[derive(Parser)]
struct Options {
    /// Write the rows here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Launches of every system per case.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Random pairs of CTAs for the hops.
    #[arg(long, default_value_t = 64)]
    pairs: usize,
    /// MiB that `copy` moves.
    #[arg(long, default_value_t = 1024)]
    mebibytes: u64,
    /// Only the cases whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Seed of pairs and durations; by default another one in every run.
    #[arg(long)]
    seed: Option<u64>,
    /// GPU.
    #[arg(long, default_value_t = 0)]
    gpu: u32,
}

const SHORT: u32 = 1000;
const LONG: u32 = 4000;
const STEPS: f64 = (LONG - SHORT) as f64;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    let seed = options.seed.unwrap_or_else(Random::fresh_seed);
    println!("{device}, seed {seed}");
    let bench = Bench { driver: Driver::new(options.gpu)?, clock: Clock::new(&device, options.rounds)?, random: Random::new(seed), device };
    bench.run(&options)
}

struct Bench {
    // Before the device: peers go before the context.
    clock: Clock,
    random: Random,
    driver: Driver,
    device: Device,
}

impl Bench {
    fn run(mut self, options: &Options) -> anyhow::Result<()> {
        type Case = fn(&mut Bench, &Options) -> anyhow::Result<Vec<Row>>;
        let cases: [(&str, Case); 8] = [
            ("empty task", Bench::empty_task),
            ("worker chain", Bench::worker_chain),
            ("hop static empty", |bench, options| bench.hop_static(options.pairs, false)),
            ("hop static payload", |bench, options| bench.hop_static(options.pairs, true)),
            ("hop scheduler", |bench, options| bench.hop_scheduler(options.pairs, true)),
            ("hop scheduler without look-ahead", |bench, options| bench.hop_scheduler(options.pairs, false)),
            ("makespan", Bench::makespan),
            ("copy", Bench::copies),
        ];
        let cases: Vec<_> = cases.into_iter().filter(|(name, _)| name.contains(&*options.only)).collect();
        ensure!(!cases.is_empty(), "no case contains `{}`", options.only);
        let mut run = Run::new(cases.len(), options.json.as_deref());
        for (name, case) in cases {
            run.case(name, || case(&mut self, options))?;
        }
        run.finish()
    }

    fn plan(&self, graph: TaskGraph, options: &PlanOptions) -> anyhow::Result<CompiledGraph> {
        Ok(graphs::plan(graph, &self.device, options)?)
    }

    /// Launches of a plan with these arguments.
    fn system(&self, plan: &CompiledGraph, arguments: Arguments<'_>) -> anyhow::Result<System<'_>> {
        let bound = plan.plan().bind(arguments)?;
        Ok(Box::new(move || Ok(bound.launch_on(&self.clock.stream)?)))
    }

    /// Systems without arguments but one tensor that they write.
    fn writers(&self, plans: &[CompiledGraph], x: &mut Tensor<u32>) -> anyhow::Result<Vec<System<'_>>> {
        plans.iter().map(|plan| self.system(plan, Arguments::new().tensor_mut(x))).collect()
    }

    /// Every worker has 1,000 or 4,000 tasks, of one warp or of all threads; each waits for a task of another worker, met long ago, and signals one.
    fn empty_task(&mut self, _: &Options) -> anyhow::Result<Vec<Row>> {
        const TILES: u32 = 250;
        let workers = self.device.workers();
        // One more than a multiple of the workers: dealt in turn, the next task on a tile is the next worker's.
        let tiles = TILES * workers + 1;
        let (kernel, stream) = (&Kernel::load("peer_empty")?, &self.clock.stream);
        let mut rows = Vec::new();
        let cases = [
            ("empty task", &dispatch::empty::SPEC, Schedule::Static),
            ("empty task 256 threads", &dispatch::idle::SPEC, Schedule::Static),
            ("empty task tickets", &dispatch::empty::SPEC, Schedule::Tickets),
        ];
        for (case, task, schedule) in cases {
            let options = PlanOptions::new().schedule(schedule);
            let plans = [SHORT, LONG]
                .map(|tasks| self.plan(graphs::chain(task, tiles.into(), tasks / TILES), &options))
                .into_iter()
                .collect::<Result<Vec<_>, _>>()?;
            let mut x = self.device.zeros::<u32>([u64::from(tiles)])?;
            let mut systems = self.writers(&plans, &mut x)?;
            for tasks in [SHORT, LONG] {
                let grid = Grid::new(tasks * workers, abi::THREADS);
                // SAFETY: the kernel does nothing.
                systems.push(Box::new(move || unsafe { kernel.launch(stream, grid, Edge::Ended, ()) }));
            }
            let times = self.clock.compare(&mut systems)?;
            drop(systems);
            check_plans(&plans)?;
            let [ours, grid] = slopes(&times);
            rows.push(Row::against("dispatch", case, "per task", ours, "grid", grid));
        }
        Ok(rows)
    }

    /// One worker, each task reads the word that the last one wrote.
    fn worker_chain(&mut self, _: &Options) -> anyhow::Result<Vec<Row>> {
        let stream = &self.clock.stream;
        let options = PlanOptions::new().workers(1);
        let plans = [SHORT, LONG]
            .map(|tasks| self.plan(graphs::chain(&dispatch::bump::SPEC, 1, tasks), &options))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        let mut x = self.device.zeros::<u32>([1])?;
        let mut theirs = self.device.zeros::<u32>([1])?;
        let kernel = Kernel::load("peer_chain")?;
        let chain = Chain { x: theirs.as_mut_ptr() };
        // SAFETY: the word is live until the end of this function, which waits for every launch.
        let launch = |edge: Edge| unsafe { kernel.launch(stream, Grid::new(1, THREADS), edge, chain) };
        // The first launch loads the code, which a capture does not allow.
        launch(Edge::Ended)?;
        stream.synchronize()?;
        let mut graphs = Vec::new();
        for edge in [Edge::Programmatic, Edge::Ended] {
            for tasks in [SHORT, LONG] {
                graphs.push(CudaGraph::capture(stream, |_| (0..tasks).try_for_each(|_| launch(edge)))?);
            }
        }
        let mut systems = self.writers(&plans, &mut x)?;
        for graph in &graphs {
            systems.push(Box::new(|| Ok(graph.launch(stream)?)));
        }
        for tasks in [SHORT, LONG] {
            let launch = &launch;
            systems.push(Box::new(move || {
                (0..tasks).try_for_each(|_| {
                    launch(Edge::Ended)?;
                    Ok(stream.synchronize()?)
                })
            }));
        }
        let times = self.clock.compare(&mut systems)?;
        // All of them count.
        for (n, system) in systems.iter_mut().enumerate() {
            let counted = if n < 2 { x.as_mut_ptr() } else { chain.x };
            // SAFETY: one live word.
            unsafe {
                self.driver.fill(counted, 0, 1)?;
                self.clock.once(system)?;
                let (found, expected) = (self.driver.download(counted, 1)?[0], [SHORT, LONG][n % 2]);
                ensure!(found == expected, "worker chain, system {n}: {found} instead of {expected}");
            }
        }
        drop(systems);
        check_plans(&plans)?;
        let [ours, pdl, graph, sync] = slopes(&times);
        let row = |peer, theirs| Row::against("dispatch", "worker chain", "per task", ours, peer, theirs);
        Ok(vec![row("graph+pdl", pdl), row("graph", graph), row("launch+sync", sync)])
    }

    /// A chain whose tasks alternate between two workers, beside a flag that is handed to and fro between the same two CTAs.
    fn hop_static(&mut self, pairs: usize, payload: bool) -> anyhow::Result<Vec<Row>> {
        let bar = progress(pairs);
        let mut slopes_of = [Vec::new(), Vec::new()];
        for _ in 0..pairs {
            let pair = self.pair();
            let times = self.hop(pair, payload, &[SHORT, LONG], |tasks, first| {
                let placement = (0..tasks).map(|task| pair[if task < first { 1 } else { (task - first) as usize % 2 }]).collect();
                PlanOptions::new().placement(placement)
            })?;
            let both: [Measured; 2] = slopes(&times);
            slopes_of.iter_mut().zip(both).for_each(|(all, one)| all.push(one));
            bar.inc(1);
        }
        bar.finish_and_clear();
        let [ours, flag] = slopes_of.map(|all| Measured::middle(&all));
        let case = if payload { "hop static payload" } else { "hop static empty" };
        Ok(vec![Row::against("dispatch", case, "per hop", ours, "flag", flag)])
    }

    /// The same chain through a scheduler CTA, which chooses the workers. Who wants short hops asks for [`PlanOptions::look_ahead`]; without it, the
    /// default, a long chain beside a large fan is what a scheduler is good for (docs/decisions/0018-schedulers-push-tasks-before-they-are-ready.md).
    fn hop_scheduler(&mut self, pairs: usize, look_ahead: bool) -> anyhow::Result<Vec<Row>> {
        let bar = progress(pairs.min(8));
        let mut slopes_of = [Vec::new(), Vec::new()];
        let workers = self.device.workers() - 1;
        for _ in 0..pairs.min(8) {
            let pair = self.pair();
            let options = |_, _| PlanOptions::new().workers(workers).schedule(Schedule::Schedulers(1)).look_ahead(look_ahead);
            let both: [Measured; 2] = slopes(&self.hop(pair, true, &[SHORT, LONG], options)?);
            slopes_of.iter_mut().zip(both).for_each(|(all, one)| all.push(one));
            bar.inc(1);
        }
        bar.finish_and_clear();
        let [ours, flag] = slopes_of.map(|all| Measured::middle(&all));
        let case = if look_ahead { "hop scheduler" } else { "hop scheduler without look-ahead" };
        Ok(vec![Row::against("dispatch", case, "per hop", ours, "flag", flag)])
    }

    /// Two CTAs that differ.
    fn pair(&mut self) -> [u32; 2] {
        let workers = self.device.workers();
        let first = self.random.below(workers);
        [first, (first + 1 + self.random.below(workers - 1)) % workers]
    }

    /// Chains of these lengths, then flags handed on as often. `options` are made from the number of tasks and of those before the chain.
    fn hop(
        &self,
        pair: [u32; 2],
        payload: bool,
        lengths: &[u32],
        options: impl Fn(u32, u32) -> PlanOptions,
    ) -> anyhow::Result<Vec<Measured>> {
        let (task, words) = if payload { (&dispatch::relay::SPEC, 4) } else { (&dispatch::awaited::SPEC, 1) };
        let plans = lengths
            .iter()
            .map(|&hops| self.plan(graphs::chain(task, words.into(), hops), &options(hops + words, words)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut x = self.device.zeros::<u32>([u64::from(words)])?;
        // Flags, the payload and the fault, each on lines of its own.
        let mut memory = self.device.zeros::<u32>([256])?;
        let (flags, handed, fault) = (memory.as_mut_ptr(), memory.as_mut_ptr().wrapping_add(128), memory.as_mut_ptr().wrapping_add(192));
        let (kernel, base, stream) = (&Kernel::load("peer_flag")?, &Cell::new(0u32), &self.clock.stream);
        // All CTAs take part as in MACO's launch: one on every multiprocessor, of as many threads.
        let grid = Grid { blocks: self.device.workers(), threads: abi::THREADS, shared: abi::SHARED_BYTES };
        let mut systems = self.writers(&plans, &mut x)?;
        for &hops in lengths {
            systems.push(Box::new(move || {
                let payload = if payload { handed } else { std::ptr::null_mut() };
                let parameter = Flags { flags, payload, fault, pair, hops, base: base.get() };
                // The last hand-over leaves one flag there and the other one hop behind: the next launch begins above both.
                base.set(base.get().wrapping_add(hops));
                // SAFETY: the memory outlives the launches, which are waited for; the launch is cooperative.
                unsafe { kernel.launch(stream, grid, Edge::Cooperative, parameter) }
            }));
        }
        let times = self.clock.compare(&mut systems)?;
        let count = lengths.len();
        for (n, system) in systems.iter_mut().enumerate() {
            let counted = if n < count { x.as_mut_ptr() } else { handed };
            // SAFETY: live words.
            let found = unsafe {
                self.driver.fill(counted, 0, words as usize)?;
                self.clock.once(system)?;
                self.driver.download(counted, words as usize)?
            };
            let expected = if payload { lengths[n % count] } else { 0 };
            ensure!(found.iter().all(|&word| word == expected), "hop {pair:?}, system {n}: {found:?} instead of {expected}");
        }
        drop(systems);
        // SAFETY: a live word.
        let fault = unsafe { self.driver.download(fault, 1)?[0] };
        ensure!(fault == 0, "hop {pair:?}: the peer gave up waiting");
        check_plans(&plans)?;
        Ok(times)
    }

    /// 128 workers, 50 random tasks of 2 to 10 µs for each.
    fn makespan(&mut self, _: &Options) -> anyhow::Result<Vec<Row>> {
        const SCHEDULERS: u32 = 4;
        let workers = 128.min(self.device.workers() - SCHEDULERS);
        let tasks = 50 * workers;
        let microsecond = self.driver.cycles_per_microsecond()?;
        let cycles: Vec<u32> = (0..tasks).map(|_| ((2.0 + f64::from(self.random.below(8001)) / 1e3) * microsecond) as u32).collect();
        let ideal = cycles.iter().map(|&c| f64::from(c)).sum::<f64>() / f64::from(workers) / microsecond;
        let input = self.device.upload(&cycles, [u64::from(tasks)])?;
        let mut done = self.device.zeros::<u32>([u64::from(tasks)])?;
        let schedules = [Schedule::Schedulers(SCHEDULERS), Schedule::Tickets, Schedule::Static];
        let plans = schedules
            .map(|schedule| self.plan(graphs::busy(tasks.into()), &PlanOptions::new().workers(workers).schedule(schedule)))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        let mut systems = plans
            .iter()
            .map(|plan| self.system(plan, Arguments::new().tensor(&input).tensor_mut(&mut done)))
            .collect::<Result<Vec<_>, _>>()?;
        let times = self.clock.compare(&mut systems)?;
        drop(systems);
        check_plans(&plans)?;
        ensure!(done.download()? == cycles, "makespan: a task did not run");
        eprintln!("makespan: {ideal:.1} us if the work were dealt evenly");
        Ok(vec![
            Row::against("dispatch", "makespan", "makespan", times[0], "static", times[2]),
            Row::against("dispatch", "makespan tickets", "makespan", times[1], "static", times[2]),
        ])
    }

    /// The library's copy beside the driver's, with all workers, 100, and few; and a SIMT task that moves as much.
    fn copies(&mut self, options: &Options) -> anyhow::Result<Vec<Row>> {
        let bytes = options.mebibytes << 20;
        let columns = 8192;
        let rows = bytes / 2 / columns;
        ensure!(rows > 0, "`--mebibytes` must be 1 or more");
        let mut out = Vec::new();
        let x: Tensor<bf16> = self.noise(&[rows, columns], |word| bf16::from_bits((word & 0x3fff) as u16))?;
        let mut y = self.device.zeros::<bf16>([rows, columns])?;
        out.extend(self.copy("copy", &x, &mut y, || graphs::copy(rows, columns))?);
        ensure!(x.download()? == y.download()?, "copy: the bytes differ");
        drop((x, y));
        let rows = bytes / 4 / u64::from(TILE);
        let x: Tensor<u32> = self.noise(&[rows, TILE.into()], |word| word)?;
        let mut y = self.device.zeros::<u32>([rows, TILE.into()])?;
        out.extend(self.copy("copy simt", &x, &mut y, || graphs::transfer(rows))?);
        Ok(out)
    }

    fn noise<E: TensorElement>(&mut self, shape: &[u64], element: impl Fn(u32) -> E) -> anyhow::Result<Tensor<E>> {
        let data: Vec<E> = (0..shape.iter().product::<u64>()).map(|_| element(self.random.word())).collect();
        Ok(self.device.upload(&data, shape)?)
    }

    /// `graph` from x to y, with many workers beside the driver's copy, with few beside one.
    fn copy<E: TensorElement>(
        &self,
        name: &str,
        x: &Tensor<E>,
        y: &mut Tensor<E>,
        graph: impl Fn() -> TaskGraph,
    ) -> anyhow::Result<Vec<Row>> {
        let all = self.device.workers();
        let workers: Vec<u32> = [all, 100, 8, 4, 2, 1].into_iter().filter(|&workers| workers <= all).collect();
        let plans =
            workers.iter().map(|&workers| self.plan(graph(), &PlanOptions::new().workers(workers))).collect::<Result<Vec<_>, _>>()?;
        let bytes = x.len() * size_of::<E>();
        let mut systems =
            plans.iter().map(|plan| self.system(plan, Arguments::new().tensor(x).tensor_mut(y))).collect::<Result<Vec<_>, _>>()?;
        let (from, to) = (x.as_ptr() as u64, y.as_mut_ptr() as u64);
        systems.insert(
            0,
            Box::new(move || {
                // SAFETY: two live tensors of as many bytes, which lie without gaps.
                check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.clock.stream.as_raw().cast()) })
            }),
        );
        let times = self.clock.compare(&mut systems)?;
        drop(systems);
        check_plans(&plans)?;
        let [copy, ours @ ..] = &*times else { unreachable!("the first system is the copy") };
        let one = ours.last().copied().unwrap_or(*copy);
        let rows = workers.iter().zip(ours).map(|(&workers, &ours)| {
            let case = format!("{name} {workers} worker{}", if workers == 1 { "" } else { "s" });
            if workers > 8 {
                Row::against("dispatch", case, "time", ours, "copy", *copy)
            } else {
                Row::against("dispatch", case, "time", ours, "1 worker", one)
            }
        });
        Ok(rows.collect())
    }
}

/// What every system costs per task: they come in pairs, short and long.
fn slopes<const N: usize>(times: &[Measured]) -> [Measured; N] {
    std::array::from_fn(|n| times[2 * n].slope(times[2 * n + 1], STEPS))
}

/// None was aborted.
fn check_plans(plans: &[CompiledGraph]) -> anyhow::Result<()> {
    Ok(plans.iter().try_for_each(|plan| plan.plan().check())?)
}
