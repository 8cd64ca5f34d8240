//! What operations make of the numbers of all ranks, on the host: by their definitions.

use maco::Reduce;

/// A sequence that is the same on every rank.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(end)) as u32
    }
}

/// One of the megakernels, or collectives outside of them.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Sums,
    Extremes,
    Sent {
        root: u32,
        from: u32,
        to: u32,
        by: i32,
    },
    Planes,
    Channels,
    /// On copies, which are given back behind the second one.
    Outside([Outside; 2]),
}

/// A collective outside of megakernels: of x, or of x and the planes.
#[derive(Clone, Copy, Debug)]
pub enum Outside {
    AllReduce(Reduce),
    Async(Reduce),
    AllGather,
    ReduceScatter(Reduce),
    AllToAll,
    Broadcast(u32),
}

const BY: [Reduce; 4] = [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min];

impl Operation {
    pub fn any(random: &mut Random, ranks: u32) -> Operation {
        match random.below(8) {
            0 => Operation::Sums,
            1 => Operation::Extremes,
            2 => {
                let [root, from, to] = [(); 3].map(|()| random.below(100));
                Operation::Sent { root, from, to, by: random.below(21) as i32 - 10 }
            }
            3 => Operation::Planes,
            4 => Operation::Channels,
            _ => Operation::Outside([(); 2].map(|()| Outside::any(random, ranks))),
        }
    }
}

impl Outside {
    fn any(random: &mut Random, ranks: u32) -> Outside {
        let by = BY[random.below(4) as usize];
        match random.below(6) {
            0 => Outside::AllReduce(by),
            1 => Outside::Async(by),
            2 => Outside::AllGather,
            3 => Outside::ReduceScatter(by),
            4 => Outside::AllToAll,
            _ => Outside::Broadcast(random.below(ranks)),
        }
    }
}

/// Numbers of each rank, by its number.
type All = Vec<Vec<i32>>;

/// The numbers of all ranks: `x`, and planes, one for each rank.
#[derive(Clone)]
pub struct Model {
    pub x: All,
    pub s: All,
}

fn reduced(values: impl Iterator<Item = i32>, by: Reduce, ranks: usize) -> i32 {
    match by {
        Reduce::Sum => values.fold(0, i32::wrapping_add),
        Reduce::Mean => values.fold(0, i32::wrapping_add) / ranks as i32,
        Reduce::Max => values.max().unwrap(),
        Reduce::Min => values.min().unwrap(),
    }
}

/// What rank `rank` adds beside what has come.
pub fn salt_of(salt: i32, rank: u32) -> i32 {
    salt.wrapping_mul(rank as i32 + 3)
}

impl Model {
    pub fn new(ranks: u32, elements: usize) -> Model {
        let of = |rank: u32, count: usize| (0..count).map(|n| (rank as i32 * 7919 + n as i32 * 31) ^ 0x55).collect();
        let all = |count: usize| (0..ranks).map(|rank| of(rank, count)).collect();
        Model { x: all(elements), s: all(elements * ranks as usize) }
    }

    fn ranks(&self) -> usize {
        self.x.len()
    }

    fn stir(to: &mut All, from: &All, salt: i32) {
        for (rank, (to, from)) in (0..).zip(to.iter_mut().zip(from)) {
            let salt = salt_of(salt, rank);
            to.iter_mut().zip(from).for_each(|(x, y)| *x = x.wrapping_mul(5).wrapping_add(*y).wrapping_add(salt));
        }
    }

    /// On every rank the same.
    fn everywhere(&self, of: impl Fn(usize) -> i32, count: usize) -> All {
        vec![(0..count).map(of).collect(); self.ranks()]
    }

    fn all_reduce(&self, by: Reduce) -> All {
        self.everywhere(|n| reduced(self.x.iter().map(|x| x[n]), by, self.ranks()), self.x[0].len())
    }

    fn all_gather(&self) -> All {
        vec![self.x.concat(); self.ranks()]
    }

    fn reduce_scatter(&self, by: Reduce) -> All {
        let count = self.x[0].len();
        let of = |rank: usize| (0..count).map(|n| reduced(self.s.iter().map(|s| s[rank * count + n]), by, self.ranks())).collect();
        (0..self.ranks()).map(of).collect()
    }

    fn all_to_all(&self) -> All {
        let count = self.x[0].len();
        let of = |rank: usize| self.s.iter().flat_map(|s| s[rank * count..][..count].iter().copied()).collect();
        (0..self.ranks()).map(of).collect()
    }

    /// What `operation` makes of it, of whose ranks each has its own [`salt_of`].
    pub fn run(&mut self, operation: Operation, salt: i32) {
        let ranks = self.ranks();
        match operation {
            Operation::Sums => (0..2).for_each(|_| {
                let sums = self.all_reduce(Reduce::Sum);
                Model::stir(&mut self.x, &sums, salt);
            }),
            Operation::Extremes => [Reduce::Max, Reduce::Min].into_iter().for_each(|by| {
                let all = self.all_reduce(by);
                Model::stir(&mut self.x, &all, salt);
            }),
            Operation::Sent { root, from, to, by } => {
                let told = vec![self.x[root as usize % ranks].clone(); ranks];
                Model::stir(&mut self.x, &told, salt);
                let mut sent = self.x.clone();
                sent[to as usize % ranks] = self.x[from as usize % ranks].clone();
                Model::stir(&mut self.x, &sent, salt);
                let passed = (0..ranks as i32).map(|rank| self.x[(rank - by).rem_euclid(ranks as i32) as usize].clone()).collect();
                Model::stir(&mut self.x, &passed, salt);
            }
            Operation::Planes => {
                let gathered = self.all_gather();
                Model::stir(&mut self.s, &gathered, salt);
                let scattered = self.reduce_scatter(Reduce::Sum);
                Model::stir(&mut self.x, &scattered, salt);
                let swapped = self.all_to_all();
                Model::stir(&mut self.s, &swapped, salt);
            }
            Operation::Channels => (0..4).for_each(|_| {
                let come = self.all_to_all();
                Model::stir(&mut self.s, &come, salt);
            }),
            Operation::Outside(calls) => {
                let mut copy = self.clone();
                for call in calls {
                    match call {
                        Outside::AllReduce(by) | Outside::Async(by) => copy.x = copy.all_reduce(by),
                        Outside::AllGather => copy.s = copy.all_gather(),
                        Outside::ReduceScatter(by) => copy.x = copy.reduce_scatter(by),
                        Outside::AllToAll => copy.s = copy.all_to_all(),
                        Outside::Broadcast(root) => copy.x = vec![copy.x[root as usize].clone(); ranks],
                    }
                }
                Model::stir(&mut self.x, &copy.x, salt);
                Model::stir(&mut self.s, &copy.s, salt);
            }
        }
    }
}
