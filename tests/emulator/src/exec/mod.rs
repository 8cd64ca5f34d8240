//! Runs launches: CTAs, their warps, and what goes on beside them.
//!
//! One host thread runs a launch. Warps take turns of a random number of instructions; the seed makes a run repeatable. Time is virtual: a
//! round of turns takes as many nanoseconds as its longest turn has instructions, and where nobody can go on, time jumps to the next event.

mod access;
mod asynchronous;
mod cold;
pub mod counts;
pub mod float;
mod frames;
mod interp;
mod lanes;
mod matrix;
mod mbarrier;
mod pace;
mod proxies;
pub mod races;
mod registers;
mod report;
pub mod tensor;
mod waits;

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use crate::ptx::inst::Program;
use crate::ptx::module::SHARED_START;
use waits::Wait;

/// Generic addresses of shared and local memory: no host address looks like these.
pub const SHARED_WINDOW: u64 = 0x00F0_0000_0000_0000;
pub const LOCAL_WINDOW: u64 = 0x00E0_0000_0000_0000;

/// Codes of the driver.
pub const ILLEGAL_ADDRESS: u32 = 700;
pub const LAUNCH_TIMEOUT: u32 = 702;
pub const ILLEGAL_INSTRUCTION: u32 = 715;
pub const MISALIGNED_ADDRESS: u32 = 716;
pub const LAUNCH_FAILED: u32 = 719;

/// Why a launch ended early.
#[derive(Debug, Clone)]
pub struct Fault {
    pub code: u32,
    pub text: String,
}

impl Fault {
    fn new(code: u32, text: impl Into<String>) -> Fault {
        Fault { code, text: text.into() }
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Fault {
        Fault { code: LAUNCH_FAILED, text }
    }
}

#[derive(Clone)]
pub struct Config {
    pub device: usize,
    pub program: Arc<Program>,
    pub parameters: Vec<u8>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared: u32,
    /// CTAs of a cluster, along x.
    pub cluster: u32,
    pub multiprocessors: u32,
}

impl Config {
    /// Warps of a CTA.
    fn warps(&self) -> usize {
        self.block.iter().product::<u32>().div_ceil(32) as usize
    }
}

#[derive(Default, Clone, Copy)]
struct Barrier {
    arrived: u32,
    /// Threads that complete it; 0: all that live.
    count: u32,
    generation: u32,
    all: bool,
    any: bool,
    number: u32,
    /// Results of the generation before.
    last: (bool, bool, u32),
}

struct Cta {
    place: [u32; 3],
    linear: u32,
    sm: u32,
    shared: Vec<u8>,
    /// A bit for each eight bytes that hold an mbarrier.
    mbarriers: Vec<u64>,
    barriers: [Barrier; 16],
    live_warps: u32,
    /// Index of the first CTA of the cluster, and place in it.
    first: usize,
    rank: u32,
    /// Copies that have not ended.
    copies: u32,
    /// The last generic write of each 16 bytes, where that is looked at.
    written: Vec<proxies::Written>,
}

impl Cta {
    /// The first live mbarrier that these bytes of shared memory touch.
    #[inline(always)]
    fn mbarrier_in(&self, at: u32, bytes: u32) -> Option<u32> {
        for unit in at / 8..(at + bytes).div_ceil(8) {
            if self.mbarriers[unit as usize / 64] >> (unit % 64) & 1 == 1 {
                return Some(unit * 8);
            }
        }
        None
    }
}

/// Who does something: a warp, its place in the program, and lanes.
type Of = (usize, u32, u32);

/// A product that was issued and is not computed yet.
struct Issued {
    product: i32,
    a: u64,
    b: u64,
    add: bool,
    group: u32,
}

#[derive(Default)]
struct Groups {
    /// The group that is being filled; 0 for none.
    open: u64,
    committed: VecDeque<u64>,
}

struct Warp {
    cta: usize,
    index: u32,
    /// Registers; words of 64 bits, for the alignment.
    frame: Vec<u64>,
    local: Vec<u8>,
    pc: [u32; 32],
    live: u32,
    /// Lanes at a collective instruction that wait for others.
    parked: u32,
    /// Lanes that cannot go on in this turn.
    stalled: u32,
    wait: Wait,
    /// The wait of a barrier is over, and its instruction not yet.
    woken: bool,
    issued: Vec<Issued>,
    product_group: u32,
    bulk: Option<Box<[Groups; 32]>>,
    cluster_arrived: Option<u32>,
    turns: u64,
    /// When each lane last made a proxy fence, for shared and for global memory.
    fences: Option<Box<[[u64; 32]; 2]>>,
}

/// Copies of a bulk group that have still to be read, and to be written.
#[derive(Default, Clone, Copy)]
struct Group {
    reading: u32,
    writing: u32,
}

#[derive(Default, Clone, Copy)]
struct Cluster {
    arrived: u32,
    generation: u32,
}

/// Random numbers (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x2545_F491_4F6C_DD1D | 1)
    }

    #[inline]
    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    pub fn below(&mut self, limit: u32) -> u32 {
        ((u64::from(self.next()) * u64::from(limit)) >> 32) as u32
    }
}

pub struct Launch {
    config: Config,
    program: Arc<Program>,
    #[allow(clippy::vec_box, reason = "they do not move while a turn holds one of them")]
    ctas: Vec<Box<Cta>>,
    #[allow(clippy::vec_box, reason = "as above")]
    warps: Vec<Box<Warp>>,
    clusters: HashMap<usize, Cluster>,
    /// Indices of warps that have not ended.
    active: Vec<usize>,
    now: u64,
    begin: u64,
    random: Random,
    copies: BinaryHeap<asynchronous::Pending>,
    copy_number: u64,
    groups: HashMap<u64, Group>,
    group_number: u64,
    /// The allocation that was used last.
    last: (u64, u64),
    scratch: matrix::Scratch,
    /// Products are computed when they are waited for, not when they are issued.
    late_products: bool,
    next_cta: u32,
    resident: u32,
    spare_frames: Vec<Vec<u64>>,
    instructions: u64,
    /// Nanoseconds of an instruction.
    tick: u64,
    warned: bool,
    /// How much longer than at first waits for mbarriers suspend a warp: they last where nothing happens.
    patience: u64,
    /// The lane whose access failed.
    failed: u32,
    pace: pace::Pace,
    proxies: proxies::Proxies,
    races: races::Races,
    counts: counts::Counts,
}

/// Virtual time goes on from launch to launch.
static CLOCK: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1_000_000_000);
static LAUNCHES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Runs a launch to its end. The virtual nanoseconds that it took.
pub fn run(config: Config) -> Result<u64, Fault> {
    use std::sync::atomic::Ordering;
    let number = LAUNCHES.fetch_add(1, Ordering::Relaxed);
    let seed = crate::settings::number("EMU_SEED", 1);
    let (pace, begin) = pace::Pace::begin(config.device, CLOCK.load(Ordering::Relaxed));
    let program = config.program.clone();
    let started = std::time::Instant::now();
    let mut launch = Launch {
        program,
        ctas: Vec::new(),
        warps: Vec::new(),
        clusters: HashMap::new(),
        active: Vec::new(),
        now: begin,
        begin,
        random: Random::new(seed.wrapping_mul(1_000_003).wrapping_add(number)),
        copies: BinaryHeap::new(),
        copy_number: 0,
        groups: HashMap::new(),
        group_number: 0,
        last: (0, 0),
        scratch: matrix::Scratch::default(),
        late_products: false,
        next_cta: 0,
        resident: 0,
        spare_frames: Vec::new(),
        instructions: 0,
        tick: crate::settings::number("EMU_TICK", 4).max(1),
        warned: false,
        patience: 1,
        failed: 32,
        pace,
        proxies: proxies::Proxies::new(),
        races: races::Races::new(&config),
        counts: counts::Counts::new(),
        config,
    };
    launch.late_products = match crate::settings::number("EMU_PRODUCTS", 2) {
        0 => false,
        1 => true,
        _ => launch.random.next() & 1 == 1,
    };
    launch.scratch.look = launch.proxies.on || launch.races.on;
    launch.late_products &= !launch.scratch.look;
    launch.spare_frames = frames::take(launch.program.frame as usize / 8 + 64);
    let result = launch.all();
    launch.tell_counts();
    let frames = launch.warps.iter_mut().map(|warp| std::mem::take(&mut warp.frame)).filter(|frame| !frame.is_empty());
    let frames = frames.chain(std::mem::take(&mut launch.spare_frames)).collect();
    frames::give(frames);
    CLOCK.fetch_max(launch.now, Ordering::Relaxed);
    if crate::settings::number("EMU_VERBOSE", 0) > 0 {
        eprintln!(
            "[emu] {}: grid {:?}, {} warp instructions, {} virtual µs, {:.3} s: {}",
            launch.program.name,
            launch.config.grid,
            launch.instructions,
            (launch.now - begin) / 1000,
            started.elapsed().as_secs_f64(),
            result.as_ref().map_or_else(|fault| fault.text.as_str(), |()| "done")
        );
    }
    result.map(|()| launch.now - begin)
}

impl Launch {
    fn all(&mut self) -> Result<(), Fault> {
        let ctas: u32 = self.config.grid.iter().product();
        let threads: u32 = self.config.block.iter().product();
        let shared = self.program.shared + self.config.dynamic_shared + SHARED_START;
        let per = (2048 / threads.max(1)).min(228 * 1024 / shared).clamp(1, 32);
        self.resident = (per * self.config.multiprocessors).max(self.config.cluster);
        let limit = crate::settings::number("EMU_LIMIT_MS", 60_000) * 1_000_000;
        while self.next_cta < ctas && (self.ctas.len() as u32) + self.config.cluster <= self.resident {
            self.add_cluster();
        }
        while !self.active.is_empty() || !self.copies.is_empty() {
            self.in_order(Launch::finish_copies)?;
            let mut longest = 0;
            let mut ended = false;
            let count = self.active.len();
            let first = if count == 0 { 0 } else { self.random.below(count as u32) as usize };
            for at in 0..count {
                let at = first + at;
                let warp = self.active[if at >= count { at - count } else { at }];
                if !self.ready(warp) {
                    continue;
                }
                let quantum = 24 + self.random.below(160);
                let steps = self.in_order(|launch| launch.turn(warp, quantum))?;
                longest = longest.max(steps);
                ended |= self.warps[warp].live == 0;
            }
            if ended {
                self.remove_ended(ctas)?;
            }
            self.now += u64::from(longest) * self.tick;
            if longest == 0 && !self.jump() && !self.active.is_empty() {
                let text = format!("deadlock: no warp can go on, and nothing is under way\n{}", self.standing());
                return Err(Fault::new(LAUNCH_TIMEOUT, text));
            }
            if self.now - self.begin > limit {
                let text = format!("the launch has taken {} virtual ms\n{}", (self.now - self.begin) / 1_000_000, self.standing());
                return Err(Fault::new(LAUNCH_TIMEOUT, text));
            }
            self.pace.keep(self.now, self.tick);
        }
        Ok(())
    }

    fn add_cluster(&mut self) {
        let first = self.ctas.len();
        for rank in 0..self.config.cluster {
            let linear = self.next_cta;
            self.next_cta += 1;
            let grid = self.config.grid;
            let threads: u32 = self.config.block.iter().product();
            let warps = threads.div_ceil(32);
            let bytes = (SHARED_START + self.program.shared + self.config.dynamic_shared) as usize;
            let cta = self.ctas.len();
            self.ctas.push(Box::new(Cta {
                place: [linear % grid[0], linear / grid[0] % grid[1], linear / grid[0] / grid[1]],
                linear,
                sm: linear % self.config.multiprocessors,
                shared: vec![0xFF; bytes],
                mbarriers: vec![0; bytes.div_ceil(512)],
                barriers: [Barrier::default(); 16],
                live_warps: warps,
                first,
                rank,
                copies: 0,
                written: if self.proxies.on { vec![proxies::Written::default(); bytes.div_ceil(16)] } else { Vec::new() },
            }));
            for index in 0..warps {
                let lanes = (threads - index * 32).min(32);
                let live = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
                let frame = self.spare_frames.pop().unwrap_or_else(|| vec![0; self.program.frame as usize / 8 + 64]);
                self.active.push(self.warps.len());
                self.warps.push(Box::new(Warp {
                    cta,
                    index,
                    frame,
                    local: vec![0xFF; self.program.local as usize * 32],
                    pc: [self.program.entry; 32],
                    live,
                    parked: 0,
                    stalled: 0,
                    wait: Wait::None,
                    woken: false,
                    issued: Vec::new(),
                    product_group: 0,
                    bulk: None,
                    cluster_arrived: None,
                    turns: 0,
                    fences: None,
                }));
            }
        }
        self.clusters.insert(first, Cluster::default());
    }

    /// Takes ended warps out, and lets new CTAs begin where old ones have ended.
    fn remove_ended(&mut self, ctas: u32) -> Result<(), Fault> {
        let mut ended = 0;
        let mut touched = Vec::new();
        let mut left = None;
        let Launch { active, warps, spare_frames, ctas: all, .. } = self;
        active.retain(|&at| {
            let warp = &mut warps[at];
            if warp.live == 0 {
                spare_frames.push(std::mem::take(&mut warp.frame));
                let cta = &mut all[warp.cta];
                cta.live_warps -= 1;
                if !touched.contains(&cta.first) {
                    touched.push(cta.first);
                }
                if cta.live_warps == 0 {
                    ended += 1;
                    if cta.copies > 0 {
                        left = Some((warp.cta, cta.copies));
                    }
                } else {
                    waits::release_without_count(cta);
                }
            }
            warp.live != 0
        });
        self.resident += ended;
        if let Some((cta, copies)) = left
            && !self.warned
        {
            self.warned = true;
            eprintln!(
                "[emu] warning: {}: CTA {cta} has ended while {copies} copies from or to its shared memory were under way",
                self.program.name
            );
        }
        for first in touched {
            self.settle_cluster(first);
        }
        while self.next_cta < ctas && self.ctas.len() as u32 + self.config.cluster <= self.resident {
            self.add_cluster();
        }
        Ok(())
    }

    /// A fault with the place where it happened.
    fn located(&self, fault: Fault, (at, pc, mask): Of) -> Fault {
        let warp = &self.warps[at];
        let cta = &self.ctas[warp.cta];
        let inst = self.program.code[pc as usize];
        let lane = if self.failed < 32 { self.failed } else { mask.trailing_zeros().min(31) };
        Fault {
            code: fault.code,
            text: format!(
                "{}\n  kernel {}, function {}, PTX line {} ({:?}), CTA {:?}, warp {}, lanes {mask:#010x} (thread {})",
                fault.text,
                self.program.name,
                self.program.function_of(pc),
                inst.line,
                inst.op,
                cta.place,
                warp.index,
                warp.index * 32 + lane,
            ),
        }
    }
}

/// The virtual clock.
pub fn time() -> u64 {
    CLOCK.load(std::sync::atomic::Ordering::Relaxed)
}
