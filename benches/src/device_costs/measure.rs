//! Times of launches from which the numbers of a device model are solved for.

use anyhow::{Context, ensure};
use cudarc::driver::sys;
use indicatif::ProgressBar;
use maco::{Arguments, CompiledGraph, Device, Plan, PlanOptions, Schedule, TaskGraph, Tensor, bf16};

use super::plans::{self, COLUMNS, ROWS, TILES};
use super::{Gemms, Measurements, STEPS, Sample};
use crate::matrix::{random, sets};
use crate::peer::check;
use crate::tasks::dispatch;
use crate::timing::{Clock, Measured, Random, System, median, progress};
use crate::{graphs, kernels};

/// Rows of copies in two sizes of tiles: 128 MiB.
const COPIED_ROWS: u64 = 1 << 16;
/// Pairs of workers of which a hop is the median, and lengths of chains.
const PAIRS: usize = 8;
const SHORT: u32 = 1000;
const LONG: u32 = 4000;

/// Measures a device: nothing else should run on it.
pub struct Measure<'a> {
    device: &'a Device,
    clock: &'a Clock,
}

impl Measure<'_> {
    /// On this device, whose driver context is current.
    pub fn new<'a>(device: &'a Device, clock: &'a Clock) -> Measure<'a> {
        Measure { device, clock }
    }

    /// Everything, in some minutes.
    pub fn all(&self) -> anyhow::Result<Measurements> {
        let bar = &progress(9 + TILES.len());
        let gemms = |tile: [u64; 2]| case(bar, &format!("GEMMs in tiles of {}×{}", tile[0], tile[1]), || self.gemms(tile));
        let measurements = Measurements {
            workers: self.device.workers(),
            copies: case(bar, "the driver's copies", || self.copies())?,
            cached: case(bar, "GEMVs of weights in the L2 cache", || self.cached())?,
            multiplied: case(bar, "GEMVs of 16 rows", || self.multiplied())?,
            gemms: TILES.into_iter().map(gemms).collect::<Result<_, _>>()?,
            ring: case(bar, "copies in small and large tiles", || self.ring())?,
            short: case(bar, "additions in short tiles", || self.short())?,
            launch: case(bar, "a launch", || self.launch())?,
            chain: case(bar, "a chain of tiles", || self.chain())?,
            empty: case(bar, "tasks without work", || self.empty())?,
            hop: case(bar, "hops", || self.hop())?,
        };
        bar.finish_and_clear();
        Ok(measurements)
    }

    fn workers(&self) -> u64 {
        self.device.workers().into()
    }

    /// Nanoseconds of one launch of each system.
    fn nanoseconds(&self, systems: &mut [System<'_>]) -> anyhow::Result<Vec<f64>> {
        Ok(self.clock.measure(systems)?.into_iter().map(|time| time.value * 1e3).collect())
    }

    /// Nanoseconds of launches of two plans, of so much work.
    fn pair(&self, plans: [(&Plan, Arguments<'_>); 2], work: [f64; 2]) -> anyhow::Result<[Sample; 2]> {
        let bound = plans.map(|(plan, arguments)| plan.bind(arguments).map(|bound| (plan, bound)));
        let [one, many] = bound;
        let bound = [one?, many?];
        let mut systems: Vec<System<'_>> = Vec::new();
        for (_, bound) in &bound {
            systems.push(Box::new(|| Ok(bound.launch_on(&self.clock.stream)?)));
        }
        let times = self.nanoseconds(&mut systems)?;
        bound.iter().try_for_each(|(plan, _)| plan.check())?;
        Ok([0, 1].map(|n| Sample { work: work[n], nanoseconds: times[n] }))
    }

    /// 128 and 256 MiB.
    fn copies(&self) -> anyhow::Result<[Sample; 2]> {
        let x = random(self.device, 2 * COPIED_ROWS, COLUMNS, 1, 1.0)?;
        let mut y = self.device.zeros::<bf16>([2 * COPIED_ROWS, COLUMNS])?;
        let (from, to, stream) = (x.as_ptr() as u64, y.as_mut_ptr() as u64, self.clock.stream.as_raw());
        let all = x.len() * size_of::<bf16>();
        let copy = |bytes: usize| -> System<'_> {
            Box::new(move || {
                // SAFETY: two live tensors of at least as many bytes, which lie without gaps.
                check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream.cast()) })
            })
        };
        let times = self.nanoseconds(&mut [copy(all / 2), copy(all)])?;
        Ok([0, 1].map(|n| Sample { work: (all << n) as f64, nanoseconds: times[n] }))
    }

    /// Weights of two rounds that all calls share: tiles of 8 × 8, bound by loads.
    fn cached(&self) -> anyhow::Result<([Sample; 2], f64)> {
        let (tile, depth) = ([8, 8], 4096);
        let samples = self.gemm_samples([8, 2 * tile[1] * self.workers(), depth], tile, 1, 1)?;
        Ok((samples, ((tile[0] + tile[1]) * depth * 2) as f64))
    }

    /// Tiles of 16 × 16, bound by multiply-adds.
    fn multiplied(&self) -> anyhow::Result<([Sample; 2], f64)> {
        let (tile, depth) = ([16, 16], 4096);
        let samples = self.gemm_samples([16, 3 * tile[1] * self.workers(), depth], tile, 1, kernels::CALLS)?;
        Ok((samples, (2 * tile[0] * tile[1] * depth) as f64))
    }

    /// As many columns as make one round of whole tiles.
    fn gemms(&self, tile: [u64; 2]) -> anyhow::Result<Gemms> {
        let of = |steps: u64, parts: u32| self.gemm_samples(plans::gemm_extents(self.workers(), tile, steps), tile, parts, kernels::CALLS);
        Ok(Gemms { tile, whole: [of(STEPS[0], 1)?, of(STEPS[1], 1)?], parts: of(STEPS[1], 2)? })
    }

    /// One GEMM and [`kernels::CALLS`], of m, n and k and at most so many different weights. The work is rounds of tasks.
    fn gemm_samples(&self, [m, n, k]: [u64; 3], tile: [u64; 2], parts: u32, weights: usize) -> anyhow::Result<[Sample; 2]> {
        let device = self.device;
        let x = random(device, m, k, 1, 1.0)?;
        let w = (0..sets(n * k * 2).min(weights)).map(|set| random(device, n, k, set as u64 + 2, 0.02)).collect::<Result<Vec<_>, _>>()?;
        let mut y = (0..kernels::CALLS).map(|_| device.zeros::<bf16>([m, n])).collect::<Result<Vec<_>, _>>()?;
        let mut first = device.zeros::<bf16>([m, n])?;
        let [(one, rounds), (many, all)] = plans::gemms(device, [m, n, k], tile, parts)?;
        let inputs = (0..kernels::CALLS).fold(Arguments::new(), |arguments, _| arguments.tensor(&x));
        let inputs = (0..kernels::CALLS).fold(inputs, |arguments, call| arguments.tensor(&w[call % w.len()]));
        let single = Arguments::new().tensor(&x).tensor(&w[0]).tensor_mut(&mut first);
        self.pair([(&one, single), (&many, inputs.tensors_mut(&mut y))], [rounds, all])
    }

    /// The same copy in tiles of 16 and of 64 rows.
    fn ring(&self) -> anyhow::Result<[(Sample, f64); 2]> {
        let plan = |rows: u64| plans::listed(self.device, graphs::copy(COPIED_ROWS, COLUMNS), rows, COPIED_ROWS);
        let (small, large) = (plan(ROWS[1])?, plan(ROWS[2])?);
        let x = random(self.device, COPIED_ROWS, COLUMNS, 1, 1.0)?;
        let (mut y, mut z) = (self.device.zeros::<bf16>([COPIED_ROWS, COLUMNS])?, self.device.zeros::<bf16>([COPIED_ROWS, COLUMNS])?);
        let work = [ROWS[1], ROWS[2]].map(|rows| COPIED_ROWS as f64 / rows as f64 / self.workers() as f64);
        let [first, second] = [&mut y, &mut z].map(|y| Arguments::new().tensor(&x).tensor_mut(y));
        let samples = self.pair([(small.plan(), first), (large.plan(), second)], work)?;
        Ok([0, 1].map(|n| (samples[n], (2 * ROWS[n + 1] * COLUMNS * 2) as f64)))
    }

    /// 20 and 40 rounds of additions.
    fn short(&self) -> anyhow::Result<[Sample; 2]> {
        let rows = [20, 40].map(|rounds| rounds * ROWS[0] * self.workers());
        let plan = |rows: u64| plans::listed(self.device, plans::added(rows), ROWS[0], rows);
        let (few, many) = (plan(rows[0])?, plan(rows[1])?);
        let input = |rows: u64| random(self.device, rows, COLUMNS, rows, 1.0);
        let (a, b) = (input(rows[0])?, input(rows[1])?);
        let (mut y, mut z) = (self.device.zeros::<bf16>([rows[0], COLUMNS])?, self.device.zeros::<bf16>([rows[1], COLUMNS])?);
        let first = Arguments::new().tensor(&a).tensor(&a).tensor_mut(&mut y);
        let second = Arguments::new().tensor(&b).tensor(&b).tensor_mut(&mut z);
        self.pair([(few.plan(), first), (many.plan(), second)], [20.0, 40.0])
    }

    /// A copy by half of the workers, a tile for each.
    fn launch(&self) -> anyhow::Result<f64> {
        let rows = ROWS[0] * (self.workers() / 2).max(1);
        let plan = plans::listed(self.device, graphs::copy(rows, COLUMNS), ROWS[0], rows)?;
        let x = random(self.device, rows, COLUMNS, 1, 1.0)?;
        let mut y = self.device.zeros::<bf16>([rows, COLUMNS])?;
        self.alone(plan.plan(), Arguments::new().tensor(&x).tensor_mut(&mut y))
    }

    fn chain(&self) -> anyhow::Result<f64> {
        let rows = ROWS[0] * self.workers();
        let plan = plans::chain(self.device, rows)?;
        let mut x = random(self.device, rows, COLUMNS, 1, 1.0)?;
        self.alone(&plan, Arguments::new().tensor_mut(&mut x).scalar(1.0f32))
    }

    fn alone(&self, plan: &Plan, arguments: Arguments<'_>) -> anyhow::Result<f64> {
        let bound = plan.bind(arguments)?;
        let times = self.nanoseconds(&mut [Box::new(|| Ok(bound.launch_on(&self.clock.stream)?))])?;
        plan.check()?;
        Ok(times[0])
    }

    /// Of a warp's task without a body: from lists, and by tickets.
    fn empty(&self) -> anyhow::Result<[f64; 2]> {
        const TILES: u32 = 250;
        // One more than a multiple of the workers: dealt in turn, the next task on a tile is the next worker's.
        let tiles = self.workers() * u64::from(TILES) + 1;
        let of = |schedule: Schedule| {
            let options = crate::options().schedule(schedule);
            self.slope([SHORT, LONG].map(|tasks| (graphs::chain(&dispatch::empty::SPEC, tiles, tasks / TILES), options.clone())), tiles)
        };
        Ok([of(Schedule::Static)?, of(Schedule::Tickets)?])
    }

    /// The median of several pairs of workers, between which tasks alternate.
    fn hop(&self) -> anyhow::Result<f64> {
        const WORDS: u32 = 4;
        let workers = self.device.workers();
        ensure!(workers > 1, "a hop needs two workers");
        let mut draw = Random::new(1);
        let one = |_| {
            let first = draw.below(workers);
            let pair = [first, (first + 1 + draw.below(workers - 1)) % workers];
            let plan = |hops: u32| {
                let place = |task: u32| pair[if task < WORDS { 1 } else { (task - WORDS) as usize % 2 }];
                let options = crate::options().placement((0..hops + WORDS).map(place).collect());
                (graphs::chain(&dispatch::relay::SPEC, WORDS.into(), hops), options)
            };
            self.slope([SHORT, LONG].map(plan), WORDS.into())
        };
        Ok(median((0..PAIRS).map(one).collect::<Result<Vec<_>, _>>()?))
    }

    /// Nanoseconds that each of [`LONG`] less [`SHORT`] tasks adds to a chain on so many words.
    fn slope(&self, graphs: [(TaskGraph, PlanOptions); 2], words: u64) -> anyhow::Result<f64> {
        let mut x: Tensor<u32> = self.device.zeros([words])?;
        let plans = graphs
            .into_iter()
            .map(|(graph, options)| Ok(graphs::plan(graph, self.device, &options)?))
            .collect::<anyhow::Result<Vec<CompiledGraph>>>()?;
        let bound =
            plans.iter().map(|plan| Ok(plan.plan().bind(Arguments::new().tensor_mut(&mut x))?)).collect::<anyhow::Result<Vec<_>>>()?;
        let mut systems: Vec<System<'_>> = Vec::new();
        for bound in &bound {
            systems.push(Box::new(|| Ok(bound.launch_on(&self.clock.stream)?)));
        }
        let times: Vec<Measured> = self.clock.compare(&mut systems)?;
        plans.iter().try_for_each(|plan| plan.plan().check())?;
        Ok(times[0].slope(times[1], f64::from(LONG - SHORT)).value * 1e3)
    }
}

/// Measures something that the bar names meanwhile.
fn case<T>(bar: &ProgressBar, name: &str, measure: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    bar.set_message(name.to_owned());
    let measured = measure().with_context(|| name.to_owned())?;
    bar.inc(1);
    Ok(measured)
}
