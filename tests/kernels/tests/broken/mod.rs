//! Megakernels that tests break: their plans, inputs of small integers, and what comes out.

use std::time::Duration;

use kernels::{bodies, faults};
use maco::{Arguments, Device, Error, Pending, Plan, PlanOptions, Schedule, Stream, Tensor, TensorElement, bf16};

use crate::support::gpu::Neighbour;
use crate::support::{Matrix, poisoned};

/// Of launches that should end by themselves, also where other programs have the processors.
const PATIENT: Duration = Duration::from_secs(20);

/// How long shared memory is watched after a launch.
pub const WATCHED: Duration = Duration::from_millis(5);

/// Watches what follows a launch, on a GPU.
pub struct Watch {
    pub stream: Stream,
    pub neighbour: Neighbour,
}

impl Watch {
    pub fn new(device: &Device) -> Option<Watch> {
        device.is_gpu().then(|| Watch { stream: Stream::new(device).unwrap(), neighbour: Neighbour::new() })
    }

    /// Runs with the watch right behind the launch.
    #[track_caller]
    pub fn run(&self, run: impl FnOnce(&Stream) -> Result<Pending, Error>) -> Result<(), Error> {
        let pending = run(&self.stream)?;
        self.neighbour.watch(&self.stream, WATCHED, false);
        let result = pending.wait();
        if let Some(what) = self.neighbour.seen(&self.stream) {
            panic!("a copy outlived its launch: {what}");
        }
        result.map(drop)
    }
}

/// The task of a call, by what its loader does: it announces bytes or hands out scratch, always; or for tiles, which consumers load themselves where they wait
/// for a task of their own worker; or it does nothing.
#[derive(Clone, Copy)]
pub enum Kind {
    Loads(&'static str),
    Tiles(&'static str),
    Bare(&'static str),
}

use Kind::{Bare, Loads, Tiles};

impl Kind {
    pub fn name(self) -> &'static str {
        let (Loads(name) | Tiles(name) | Bare(name)) = self;
        name
    }
}

trait Input {
    fn add<'a>(&'a self, arguments: Arguments<'a>) -> Arguments<'a>;
}

impl<E: TensorElement> Input for Tensor<E> {
    fn add<'a>(&'a self, arguments: Arguments<'a>) -> Arguments<'a> {
        arguments.tensor(self)
    }
}

/// A plan with what it is given.
pub struct Case {
    pub plan: Plan,
    /// By call.
    pub kinds: Vec<Kind>,
    inputs: Vec<Box<dyn Input>>,
    expected: Matrix,
}

/// Plans a megakernel.
pub type Make = fn(&Device, &PlanOptions) -> Case;

/// All of them, and whether the pipelined executor has them too: threads of a CTA that hangs spin until it is let go, which takes long where there are few processors, and these
/// two have every way through the ring.
pub const CASES: [(Make, bool); 4] = [(kinds, false), (few, true), (experts, false), (threads, true)];

impl Case {
    /// With tasks of consecutive calls on different workers if there are lists, so that signals leave them wherever there are two.
    pub fn new(make: Make, device: &Device, options: &PlanOptions, schedule: Schedule) -> Case {
        let options = options.clone().schedule(schedule);
        let case = make(device, &options);
        if schedule != Schedule::Static {
            return case;
        }
        let plan = case.plan;
        let deal = |task: u32| {
            let call = plan.graph().tasks[task as usize].call;
            (task - plan.graph().calls[call as usize].tasks.start + call) % plan.workers()
        };
        let placement = (0..plan.tasks() as u32).map(deal).collect();
        make(device, &options.placement(placement))
    }

    pub fn run(&self, watch: &Option<Watch>) -> Result<Tensor<f32>, Error> {
        let mut y = poisoned::<f32>(self.plan.device(), self.expected.rows, self.expected.cols);
        let arguments = self.inputs.iter().fold(Arguments::new(), |arguments, input| input.add(arguments)).tensor_mut(&mut y);
        match watch {
            None => self.plan.run(arguments).map(drop)?,
            Some(watch) => watch.run(|stream| self.plan.run_on(stream, arguments))?,
        }
        Ok(y)
    }

    /// Runs without haste, and to the right numbers.
    #[track_caller]
    pub fn right(&self, watch: &Option<Watch>, what: &str) {
        self.plan.set_deadline(PATIENT).unwrap();
        self.expected.exactly(&self.run(watch).unwrap(), what);
    }

    /// Whether the loader has a part in a task.
    pub fn loads(&self, task: u32) -> bool {
        let plan = self.plan.graph();
        match self.kinds[plan.tasks[task as usize].call as usize] {
            Loads(_) => true,
            Tiles(_) => !plan.waits_of(task).iter().any(|wait| plan.worker_edges.contains(task, wait.counter)),
            Bare(_) => false,
        }
    }

    /// A task in the middle of every call that has any.
    pub fn tasks(&self) -> Vec<(usize, u32)> {
        let calls = &self.plan.graph().calls;
        assert_eq!(calls.len(), self.kinds.len());
        let tasks = calls.iter().map(|call| &call.tasks).enumerate().filter(|(_, tasks)| !tasks.is_empty());
        tasks.map(|(call, tasks)| (call, tasks.start + (tasks.end - tasks.start) / 2)).collect()
    }
}

fn kinds(device: &Device, options: &PlanOptions) -> Case {
    let (m, n, k) = (96usize, 256usize, 136usize);
    let (x, w) = (Matrix::sparse(m, k, 1), Matrix::integers(n, k, 2, 3));
    let ids: Vec<u32> = (0..m as u32).map(|row| row * 7 % m as u32).collect();
    let centred = |of: Matrix| Matrix::new(m, n, |r, c| of.at(r, c) - of.data[r * n..][..n].iter().sum::<f64>());
    let twice = centred(centred(x.times(&w.t())));
    let expected = Matrix::new(m, n, |r, c| -twice.at(ids[r] as usize, n - 1 - c));
    let dims = faults::kinds::Dims { M: m as u64, N: n as u64, K: k as u64 };
    let (x, w) = (x.upload::<bf16>(device), w.upload::<bf16>(device));
    let inputs: Vec<Box<dyn Input>> = vec![Box::new(x), Box::new(w), Box::new(device.upload(&ids, [m]).unwrap())];
    let plan = faults::kinds::plan_with(device, dims, options).unwrap().clone();
    let (large, small) = (Tiles("centre"), Bare("centre"));
    let kinds = vec![Loads("linear"), Bare("widen"), large, small, Bare("lookup"), Bare("mirror"), Bare("negate"), Tiles("copy")];
    Case { plan, kinds, inputs, expected }
}

pub fn few(device: &Device, options: &PlanOptions) -> Case {
    let (m, k) = (3usize, 136usize);
    // Rows whose squares are 1 in the mean, and weights that keep them so: the norm is exact.
    let x = Matrix::integers(m, k, 1, 1).map(|v| if v > 0.0 { 1.0 } else { -1.0 });
    let w = [3, 5, 7, 9].map(|by| Matrix::new(k, k, |r, c| if (r * by + 1) % k == c { 1.0 } else { 0.0 }));
    let scale = Matrix::integers(1, k, 2, 3);
    let first = x.times(&w[0].t()).times(&w[1].t());
    let normal = Matrix::new(m, k, |r, c| first.at(r, c) * scale.at(0, c));
    let last = normal.times(&w[2].t()).map(|v| v.max(0.0)).times(&w[3].t()).plus(&x);
    let expected = x.times(&last.t());
    let mut inputs: Vec<Box<dyn Input>> = vec![Box::new(x.upload::<bf16>(device))];
    inputs.extend(w.iter().map(|w| Box::new(w.upload::<bf16>(device)) as Box<dyn Input>));
    inputs.push(Box::new(vector(device, &scale)));
    let dims = faults::few::Dims { M: m as u64, K: k as u64 };
    let plan = faults::few::plan_with(device, dims, options).unwrap().clone();
    let skinny = Loads("skinny_linear");
    Case { plan, kinds: vec![Loads("linear"), skinny, Bare("rmsnorm"), skinny, skinny, skinny], inputs, expected }
}

fn experts(device: &Device, options: &PlanOptions) -> Case {
    let (t, k, h) = (64usize, 72usize, 136usize);
    let experts = [2u32, 0, 2, 1];
    let x = Matrix::sparse(experts.len() * t, k, 1);
    let (up, down) = ([2, 3, 4].map(|seed| Matrix::integers(h, k, seed, 2)), [5, 6, 7].map(|seed| Matrix::integers(k, h, seed, 2)));
    // Of each row, what all experts make; then what its own does.
    let all = up.iter().zip(&down).map(|(up, down)| x.times(&up.t()).map(|v| v.max(0.0)).times(&down.t())).collect::<Vec<_>>();
    let expected = Matrix::new(x.rows, k, |r, c| all[experts[r / t] as usize].at(r, c));
    let planes = |of: &[Matrix; 3]| -> Tensor<bf16> {
        let data: Vec<bf16> = of.iter().flat_map(|one| &one.data).map(|&v| bf16::from_f64(v)).collect();
        device.upload(&data, [3, of[0].rows as u64, of[0].cols as u64]).unwrap()
    };
    let groups = experts.len() as u64;
    let dims = faults::experts::Dims { G: groups, R: x.rows as u64, K: k as u64, X: 3, H: h as u64 };
    let plan = faults::experts::plan_with(device, dims, options).unwrap().clone();
    let experts = device.upload(&experts, [groups]).unwrap();
    let inputs: Vec<Box<dyn Input>> =
        vec![Box::new(experts), Box::new(x.upload::<bf16>(device)), Box::new(planes(&up)), Box::new(planes(&down))];
    Case { plan, kinds: vec![Loads("grouped_linear"); 2], inputs, expected }
}

fn threads(device: &Device, options: &PlanOptions) -> Case {
    let (m, n, k) = (136usize, 200usize, 256usize);
    let (by, x, w) = (Matrix::integers(1, k, 1, 1), Matrix::sparse(m, k, 2), Matrix::sparse(n, k, 3));
    let doubled = Matrix::new(m, k, |r, c| 2.0 * (x.at(r, c) + 2.0 * by.at(0, c)));
    let expected = doubled.times(&w.t());
    let inputs: Vec<Box<dyn Input>> =
        vec![Box::new(vector(device, &by)), Box::new(x.upload::<bf16>(device)), Box::new(w.upload::<bf16>(device))];
    let dims = bodies::bodies::Dims { M: m as u64, N: n as u64, K: k as u64 };
    let plan = bodies::bodies::plan_with(device, dims, options).unwrap().clone();
    let kinds = vec![Bare("shift"), Bare("shift_warp"), Loads("double"), Loads("through"), Bare("to_f32")];
    Case { plan, kinds, inputs, expected }
}

/// The only row.
fn vector(device: &Device, of: &Matrix) -> Tensor<bf16> {
    let data: Vec<bf16> = of.data.iter().map(|&v| bf16::from_f64(v)).collect();
    device.upload(&data, [of.cols as u64]).unwrap()
}
