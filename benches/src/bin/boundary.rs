//! What a boundary between two phases costs: 100 phases that wait for each other, against the same work in one phase that waits for
//! nothing. The peers run the same bodies.

use std::cell::Cell;
use std::path::PathBuf;

use anyhow::ensure;
use benches::graphs::{self, Pattern};
use benches::oracle::Data;
use benches::peer::{Driver, Edge, Grid, Kernel};
use benches::rows::{Row, Run};
use benches::tasks::plain::{PARTS, Phases, THREADS, TILE};
use benches::timing::{Clock, Measured, Random, System};
use clap::Parser;
use maco::{Arguments, CudaGraph, Device, PlanOptions, Tensor};

/// Measures the exposed time per boundary between phases of copies on all multiprocessors, beside CUDA graphs and a grid barrier.
///
/// A phase copies (and mixes) 4 or 12 MiB: 1 or 3 tiles of 32 KiB per multiprocessor (4.1 and 12.4 MiB with 132), into fresh memory. Which
/// tiles a tile needs is data, random in every run, that arrives when all is planned: `identity` one tile, `halo` three neighbours, `all`
/// all tiles, `weights` all tiles but for three quarters of the bytes. exposed = (T100 − T1) / 99, where T1 is the best of all systems for
/// the same bytes in one phase without waits. Systems take turns; figures are medians of the rounds; results are compared with the host's.
#[derive(Parser)]
struct Options {
    /// Write the rows here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Launches of every system per case.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Phases of a launch.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=1000))]
    phases: u32,
    /// Only the cases whose names contain this, such as `halo` or `12 MiB`.
    #[arg(long, default_value = "")]
    only: String,
    /// Seed of the data; by default another one in every run.
    #[arg(long)]
    seed: Option<u64>,
    /// GPU.
    #[arg(long, default_value_t = 0)]
    gpu: u32,
}

/// A difference below this many microseconds per boundary is no difference: ratios are taken against at least it.
const RESOLUTION: f64 = 0.01;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    let seed = options.seed.unwrap_or_else(Random::fresh_seed);
    println!("{device}, seed {seed}");
    let multiprocessors = device.workers();
    let mut cases = Vec::new();
    for pattern in Pattern::ALL {
        for per_multiprocessor in [1, 3] {
            let tiles = per_multiprocessor * multiprocessors;
            let name = format!("{} {} MiB", pattern.name(), (u64::from(tiles) * u64::from(TILE) * 4) >> 20);
            if name.contains(&options.only) {
                cases.push(Case { name, pattern, tiles, phases: options.phases, seed: seed as u32 });
            }
        }
    }
    ensure!(!cases.is_empty(), "no case contains `{}`", options.only);
    let bench = Bench { driver: Driver::new(options.gpu)?, clock: Clock::new(&device, options.rounds)?, device };
    let (mut random, mut run) = (Random::new(seed), Run::new(cases.len(), options.json.as_deref()));
    for case in &cases {
        run.case(&case.name, || bench.case(case, &mut random))?;
    }
    run.finish()
}

/// What is measured.
struct Case {
    name: String,
    pattern: Pattern,
    tiles: u32,
    phases: u32,
    seed: u32,
}

struct Bench {
    clock: Clock,
    driver: Driver,
    device: Device,
}

impl Bench {
    fn case(&self, case: &Case, random: &mut Random) -> anyhow::Result<Vec<Row>> {
        let &Case { pattern, tiles, phases, seed, .. } = case;
        ensure!(
            !pattern.sums() || tiles <= PARTS && tiles.is_multiple_of(4),
            "`{}` sums {tiles} words, but can sum {PARTS} at most, in fours",
            case.name
        );
        // Planned before the data is there.
        let options = PlanOptions::new();
        let many = graphs::plan(graphs::phases(pattern, tiles, phases, seed), &self.device, &options)?;
        let one = graphs::plan(graphs::one_phase(pattern, tiles, phases, seed), &self.device, &options)?;
        let data = Data::random(pattern, tiles, phases, random);
        let mut ours = Ours::new(&self.device, case, &data)?;
        let mut theirs = Theirs::new(&self.device, case, &data)?;

        let (step, looped) = (Kernel::load(&format!("peer_{}", pattern.name()))?, Kernel::load(&format!("peer_{}_loop", pattern.name()))?);
        let peers = Peers { clock: &self.clock, case, memory: theirs.pointers(), step, looped, base: Cell::new(0) };
        // The first launches load the code, which a capture does not allow.
        peers.phase(0, Edge::Ended)?;
        peers.all_phases(true)?;
        self.clock.stream.synchronize()?;
        let graphs = [Edge::Ended, Edge::Programmatic]
            .map(|edge| CudaGraph::capture(&self.clock.stream, |_| (0..phases).try_for_each(|phase| peers.phase(phase, edge))));
        let [graph, programmatic] = graphs;
        let (graph, programmatic) = (graph?, programmatic?);

        let stream = &self.clock.stream;
        let (bound_many, bound_one) = (many.plan().bind(ours.many())?, one.plan().bind(ours.one())?);
        let mut systems: [System<'_>; 7] = [
            Box::new(|| Ok(bound_many.launch_on(stream)?)),
            Box::new(|| Ok(graph.launch(stream)?)),
            Box::new(|| Ok(programmatic.launch(stream)?)),
            Box::new(|| peers.all_phases(true)),
            Box::new(|| Ok(bound_one.launch_on(stream)?)),
            Box::new(|| peers.at_once()),
            Box::new(|| peers.all_phases(false)),
        ];
        let times = self.clock.compare(&mut systems)?;
        let expected = data.expected(pattern, tiles, phases, seed);
        for (name, system) in ["MACO", "graph", "graph+pdl", "grid barrier"].into_iter().zip(&mut systems) {
            let found = if name == "MACO" {
                ours.clear()?;
                self.clock.once(system)?;
                ours.results()?
            } else {
                // SAFETY: the peers' memory is live, and only this system uses it now.
                unsafe {
                    peers.clear(&self.driver)?;
                    self.clock.once(system)?;
                    peers.results(&self.driver)?
                }
            };
            ensure!(found.0 == expected.0, "{}: {name} computed other rows than the host", case.name);
            ensure!(!pattern.sums() || found.1 == expected.1, "{}: {name} computed other words than the host", case.name);
        }
        drop(systems);
        many.plan().check()?;
        one.plan().check()?;
        // SAFETY: a live word.
        let fault = unsafe { self.driver.download(peers.memory.fault, 1)?[0] };
        ensure!(fault == 0, "{}: a peer gave up waiting", case.name);
        Ok(rows(case, &times))
    }
}

/// One row for each peer, and one for the phase without waits.
fn rows(case: &Case, times: &[Measured]) -> Vec<Row> {
    let boundaries = f64::from(case.phases - 1);
    let [ours, graph, programmatic, barrier, singles @ ..] = times else { unreachable!("seven systems") };
    let best = singles.iter().min_by(|a, b| a.value.total_cmp(&b.value)).expect("three systems");
    let exposed = |system: &Measured| best.slope(*system, boundaries);
    let ours = exposed(ours);
    let row = |peer, theirs: &Measured| {
        let theirs = exposed(theirs);
        let ratio = theirs.value.max(RESOLUTION) / ours.value.max(RESOLUTION);
        Row { ratio: Some(ratio), ..Row::against("boundary", &*case.name, "exposed", ours, peer, theirs) }
    };
    let per_phase = |system: &Measured| system.map(|time| time / f64::from(case.phases));
    let [own, kernel, looped] = [0, 1, 2].map(|n| per_phase(&singles[n]));
    let plain = if kernel.value <= looped.value { kernel } else { looped };
    vec![
        row("graph", graph),
        row("graph+pdl", programmatic),
        row("grid barrier", barrier),
        Row::against("boundary", &*case.name, "a phase's work without waits", own, "plain kernel", plain),
    ]
}

/// Tensors of MACO's plans.
struct Ours {
    /// `x`, and `parts` if the pattern sums.
    first: Vec<Tensor<u32>>,
    /// `ids`, then `w`, of each phase.
    per_phase: Vec<Tensor<u32>>,
    /// The same of all phases.
    together: Vec<Tensor<u32>>,
    /// Rows, and their words if the pattern sums: of the last phase, and of all phases.
    last: Vec<Tensor<u32>>,
    all: Vec<Tensor<u32>>,
}

impl Ours {
    fn new(device: &Device, case: &Case, data: &Data) -> anyhow::Result<Ours> {
        let &Case { pattern, tiles, phases, .. } = case;
        let mut first = vec![device.upload(&data.x, [tiles.into(), u64::from(TILE)])?];
        if pattern.sums() {
            first.push(device.upload(&data.parts, [u64::from(tiles)])?);
        }
        let inputs = |tiles: u32| -> anyhow::Result<Vec<Tensor<u32>>> {
            let mut tensors = Vec::new();
            for ids in data.ids.chunks((tiles * pattern.needs()) as usize) {
                tensors.push(match pattern.needs() {
                    1 => device.upload(ids, [u64::from(tiles)])?,
                    needs => device.upload(ids, [u64::from(tiles), needs.into()])?,
                });
            }
            if pattern.weights() > 0 {
                for w in data.w.chunks((tiles * pattern.weights()) as usize) {
                    tensors.push(device.upload(w, [u64::from(tiles), pattern.weights().into()])?);
                }
            }
            Ok(tensors)
        };
        let outputs = |tiles: u32| -> anyhow::Result<Vec<Tensor<u32>>> {
            let mut tensors = vec![device.zeros([u64::from(tiles), TILE.into()])?];
            if pattern.sums() {
                tensors.push(device.zeros([u64::from(tiles)])?);
            }
            Ok(tensors)
        };
        Ok(Ours {
            first,
            per_phase: inputs(tiles)?,
            together: inputs(tiles * phases)?,
            last: outputs(tiles)?,
            all: outputs(tiles * phases)?,
        })
    }

    /// Arguments of `graphs::phases`.
    fn many(&mut self) -> Arguments<'_> {
        let inputs = self.first.iter().chain(&self.per_phase).fold(Arguments::new(), Arguments::tensor);
        self.last.iter_mut().fold(inputs, Arguments::tensor_mut)
    }

    /// Arguments of `graphs::one_phase`.
    fn one(&mut self) -> Arguments<'_> {
        let inputs = self.first.iter().chain(&self.together).fold(Arguments::new(), Arguments::tensor);
        self.all.iter_mut().fold(inputs, Arguments::tensor_mut)
    }

    fn clear(&mut self) -> anyhow::Result<()> {
        Ok(self.last.iter_mut().try_for_each(|tensor| tensor.upload_from(&vec![0; tensor.len()]))?)
    }

    /// Rows and words of the last phase.
    fn results(&self) -> anyhow::Result<(Vec<u32>, Vec<u32>)> {
        let words = self.last.get(1).map_or(Ok(Vec::new()), Tensor::download)?;
        Ok((self.last[0].download()?, words))
    }
}

/// Memory of the peers, all without gaps.
struct Theirs {
    ids: Tensor<u32>,
    w: Tensor<u32>,
    /// Rows: what the first phase reads, then what each phase writes.
    y: Tensor<u32>,
    part: Tensor<u32>,
    /// The barrier's counter and the fault, on lines of their own.
    words: Tensor<u32>,
}

impl Theirs {
    fn new(device: &Device, case: &Case, data: &Data) -> anyhow::Result<Theirs> {
        let tiles = u64::from(case.tiles) * u64::from(case.phases + 1);
        let filled = |words: u64, first: &[u32]| -> anyhow::Result<Tensor<u32>> {
            let mut all = vec![0; words as usize];
            all[..first.len()].copy_from_slice(first);
            Ok(device.upload(&all, [words])?)
        };
        Ok(Theirs {
            ids: device.upload(&data.ids, [data.ids.len() as u64])?,
            w: filled(data.w.len().max(1) as u64, &data.w)?,
            y: filled(tiles * u64::from(TILE), &data.x)?,
            part: filled(tiles, &data.parts)?,
            words: device.zeros([128])?,
        })
    }

    fn pointers(&mut self) -> Pointers {
        let words = self.words.as_mut_ptr();
        Pointers {
            ids: self.ids.as_ptr(),
            w: self.w.as_ptr(),
            y: self.y.as_mut_ptr(),
            part: self.part.as_mut_ptr(),
            barrier: words,
            fault: words.wrapping_add(64),
        }
    }
}

/// Where it lies; [`Theirs`] lives as long as the peers run.
#[derive(Clone, Copy)]
struct Pointers {
    ids: *const u32,
    w: *const u32,
    y: *mut u32,
    part: *mut u32,
    barrier: *mut u32,
    fault: *mut u32,
}

/// The peers of one case.
struct Peers<'a> {
    clock: &'a Clock,
    case: &'a Case,
    memory: Pointers,
    step: Kernel,
    looped: Kernel,
    /// What the barrier's counter holds before the next launch.
    base: Cell<u32>,
}

impl Peers<'_> {
    /// Phases from `first` on.
    fn parameter(&self, first: u32) -> Phases {
        let (m, case) = (&self.memory, self.case);
        let before = (first * case.tiles) as usize;
        Phases {
            ids: m.ids.wrapping_add(before * case.pattern.needs() as usize),
            x: m.y.wrapping_add(before * TILE as usize),
            w: m.w.wrapping_add(before * case.pattern.weights() as usize),
            parts: m.part.wrapping_add(before),
            y: m.y.wrapping_add((before + case.tiles as usize) * TILE as usize),
            part: m.part.wrapping_add(before + case.tiles as usize),
            barrier: m.barrier,
            fault: m.fault,
            tiles: case.tiles,
            first,
            phases: case.phases,
            advance: case.tiles,
            seed: case.seed,
            base: Phases::NO_BARRIER,
        }
    }

    /// One phase by a kernel of its own.
    fn phase(&self, phase: u32, edge: Edge) -> anyhow::Result<()> {
        let grid = Grid::new(self.case.tiles, THREADS);
        // SAFETY: the memory holds all phases and outlives the launches.
        unsafe { self.step.launch(&self.clock.stream, grid, edge, self.parameter(phase)) }
    }

    /// The tiles of all phases by one kernel; all read what the first phase reads.
    fn at_once(&self) -> anyhow::Result<()> {
        let grid = Grid::new(self.case.tiles * self.case.phases, THREADS);
        // SAFETY: as for `phase`.
        unsafe { self.step.launch(&self.clock.stream, grid, Edge::Ended, Phases { advance: 0, ..self.parameter(0) }) }
    }

    /// All phases by one grid that stays, with a barrier between two, or without: then all read what the first one reads.
    fn all_phases(&self, barrier: bool) -> anyhow::Result<()> {
        let blocks = self.clock.stream.device().workers();
        let mut parameter = self.parameter(0);
        if barrier {
            parameter.base = self.base.get();
            self.base.set(parameter.base.wrapping_add((parameter.phases - 1) * blocks));
        } else {
            parameter.advance = 0;
        }
        // SAFETY: as for `phase`; the launch is cooperative.
        unsafe { self.looped.launch(&self.clock.stream, Grid::new(blocks, THREADS), Edge::Cooperative, parameter) }
    }

    /// Rows and words of the last phase: where, how many.
    fn last(&self) -> (Phases, usize) {
        (self.parameter(self.case.phases - 1), self.case.tiles as usize)
    }

    /// # Safety
    /// No peer is running.
    unsafe fn clear(&self, driver: &Driver) -> anyhow::Result<()> {
        let (last, tiles) = self.last();
        // SAFETY: rows and words of the last phase.
        unsafe {
            driver.fill(last.y, 0, tiles * TILE as usize)?;
            driver.fill(last.part, 0, tiles)
        }
    }

    /// # Safety
    /// No peer is running.
    unsafe fn results(&self, driver: &Driver) -> anyhow::Result<(Vec<u32>, Vec<u32>)> {
        let (last, tiles) = self.last();
        // SAFETY: as for `clear`.
        unsafe { Ok((driver.download(last.y, tiles * TILE as usize)?, driver.download(last.part, tiles)?)) }
    }
}
