//! The numbers of one rank on its device, and the plans that work on them.

use maco::{Arguments, CudaGraph, Error, Pending, Stream, Tensor};
use ranks::mixed;

use super::model::{Model, Operation, Outside, salt_of};
use crate::support::World;

/// What is captured: each of them once.
pub const CAPTURED: [Operation; 5] = [
    Operation::Sums,
    Operation::Outside([Outside::AllReduce(maco::Reduce::Sum), Outside::AllReduce(maco::Reduce::Mean)]),
    Operation::Channels,
    Operation::Sent { root: 1, from: 0, to: 2, by: 1 },
    Operation::Planes,
];
pub const CAPTURED_SALT: i32 = 77;

pub struct Kept<'a> {
    world: &'a World,
    pub model: Model,
    x: Tensor<i32>,
    s: Tensor<i32>,
    /// Copies of both for collectives outside; the last is for results.
    y: Option<Tensor<i32>>,
    t: Tensor<i32>,
    u: Tensor<i32>,
    sums: mixed::sums::Plan,
    extremes: mixed::extremes::Plan,
    sent: mixed::sent::Plan,
    planes: mixed::planes::Plan,
    channels: mixed::channels::Plan,
    taken: mixed::taken::Plan,
    given: mixed::given::Plan,
    streams: [Stream; 2],
    queued: Vec<Pending>,
    graph: Option<CudaGraph>,
}

/// Launches a plan: at once, or on one of the streams.
macro_rules! launch {
    ($kept:ident, $stream:expr, $plan:ident($($argument:expr),*)) => {
        match $stream {
            None => {
                $kept.$plan.run($($argument),*)?;
            }
            Some(stream) => $kept.queued.push($kept.$plan.run_on(&$kept.streams[stream], $($argument),*)?),
        }
    };
}

impl<'a> Kept<'a> {
    pub fn new(world: &'a World, [m, n]: [u64; 2]) -> Result<Kept<'a>, Error> {
        let (device, options, rank) = (&world.device, &world.options, world.communicator.rank() as usize);
        let r = u64::from(world.communicator.ranks());
        let model = Model::new(r as u32, (m * n) as usize);
        let mut made = Kept {
            world,
            x: device.upload(&model.x[rank], [m, n])?,
            s: device.upload(&model.s[rank], [r, m, n])?,
            y: Some(device.zeros([m, n])?),
            t: device.zeros([r, m, n])?,
            u: device.zeros([r, m, n])?,
            model,
            sums: mixed::sums::plan_with(device, mixed::sums::Dims { M: m, N: n }, options)?,
            extremes: mixed::extremes::plan_with(device, mixed::extremes::Dims { M: m, N: n }, options)?,
            sent: mixed::sent::plan_with(device, mixed::sent::Dims { M: m, N: n }, options)?,
            planes: mixed::planes::plan_with(device, mixed::planes::Dims { M: m, N: n, R: r }, options)?,
            channels: mixed::channels::plan_with(device, mixed::channels::Dims { M: m, N: n, R: r }, options)?,
            taken: mixed::taken::plan_with(device, mixed::taken::Dims { M: m, N: n, R: r }, options)?,
            given: mixed::given::plan_with(device, mixed::given::Dims { M: m, N: n, R: r }, options)?,
            streams: [Stream::new(device)?, Stream::new(device)?],
            queued: Vec::new(),
            graph: None,
        };
        if device.is_gpu() {
            made.capture()?;
        }
        Ok(made)
    }

    /// A graph of [`CAPTURED`], which works on the same tensors.
    fn capture(&mut self) -> Result<(), Error> {
        let salt = salt_of(CAPTURED_SALT, self.world.communicator.rank());
        let Kept { x, s, y, t, .. } = self;
        let y = y.as_mut().expect("it is there between operations");
        // The first one cannot be captured.
        self.world.communicator.all_reduce(y)?;
        let sums = self.sums.bind(Arguments::new().tensor_mut(x).scalar(salt))?;
        let taken = self.taken.bind(Arguments::new().tensor(x).tensor(s).tensor_mut(y).tensor_mut(t))?;
        let given = self.given.bind(Arguments::new().tensor_mut(x).tensor_mut(s).tensor(y).tensor(t).scalar(salt))?;
        let channels = self.channels.bind(Arguments::new().tensor_mut(s).scalar(salt))?;
        let Operation::Sent { root, from, to, by } = CAPTURED[3] else { unreachable!("it is that") };
        let arguments = Arguments::new().tensor_mut(x).scalar(root).scalar(from).scalar(to).scalar(by).scalar(salt);
        let sent = self.sent.bind(arguments)?;
        let planes = self.planes.bind(Arguments::new().tensor_mut(x).tensor_mut(s).scalar(salt))?;
        let communicator = &self.world.communicator;
        self.graph = Some(CudaGraph::capture::<Error>(&self.streams[0], |stream| {
            sums.launch_on(stream)?;
            taken.launch_on(stream)?;
            communicator.all_reduce_on(stream, y, maco::Reduce::Sum)?;
            communicator.all_reduce_on(stream, y, maco::Reduce::Mean)?;
            given.launch_on(stream)?;
            channels.launch_on(stream)?;
            sent.launch_on(stream)?;
            planes.launch_on(stream)
        })?);
        Ok(())
    }

    /// Replays the graph, if there is one; else does what is in it.
    pub fn replay(&mut self) -> Result<(), Error> {
        if let Some(graph) = &self.graph {
            graph.launch(&self.streams[0])?;
            CAPTURED.into_iter().for_each(|operation| self.model.run(operation, CAPTURED_SALT));
            return Ok(());
        }
        CAPTURED.into_iter().try_for_each(|operation| self.run(operation, CAPTURED_SALT, None))
    }

    /// On the device and in the model.
    pub fn run(&mut self, operation: Operation, salt: i32, stream: Option<usize>) -> Result<(), Error> {
        let communicator = &self.world.communicator;
        self.model.run(operation, salt);
        let salt = salt_of(salt, communicator.rank());
        match operation {
            Operation::Sums => launch!(self, stream, sums(&mut self.x, salt)),
            Operation::Extremes => launch!(self, stream, extremes(&mut self.x, salt)),
            Operation::Sent { root, from, to, by } => launch!(self, stream, sent(&mut self.x, root, from, to, by, salt)),
            Operation::Planes => launch!(self, stream, planes(&mut self.x, &mut self.s, salt)),
            Operation::Channels => launch!(self, stream, channels(&mut self.s, salt)),
            Operation::Outside(calls) => {
                let mut y = self.y.take().expect("it is there between operations");
                launch!(self, stream, taken(&self.x, &self.s, &mut y, &mut self.t));
                let on = stream.map(|stream| &self.streams[stream]);
                for call in calls {
                    match (call, on) {
                        (Outside::AllReduce(by), None) => communicator.all_reduce_by(&mut y, by)?,
                        (Outside::AllReduce(by), Some(stream)) => communicator.all_reduce_on(stream, &mut y, by)?,
                        (Outside::Async(by), _) => {
                            let begun = communicator.all_reduce_async(y, by)?;
                            // Behind it, before anybody waits for it.
                            communicator.all_to_all(&self.t, &mut self.u)?;
                            y = begun.wait()?;
                        }
                        (Outside::AllGather, None) => communicator.all_gather(&y, &mut self.t)?,
                        (Outside::AllGather, Some(stream)) => communicator.all_gather_on(stream, &y, &mut self.t)?,
                        (Outside::ReduceScatter(by), None) => communicator.reduce_scatter(&self.t, &mut y, by)?,
                        (Outside::ReduceScatter(by), Some(stream)) => communicator.reduce_scatter_on(stream, &self.t, &mut y, by)?,
                        (Outside::AllToAll, on) => {
                            match on {
                                None => communicator.all_to_all(&self.t, &mut self.u)?,
                                Some(stream) => communicator.all_to_all_on(stream, &self.t, &mut self.u)?,
                            }
                            std::mem::swap(&mut self.t, &mut self.u);
                        }
                        (Outside::Broadcast(root), None) => communicator.broadcast(&mut y, root)?,
                        (Outside::Broadcast(root), Some(stream)) => communicator.broadcast_on(stream, &mut y, root)?,
                    }
                }
                launch!(self, stream, given(&mut self.x, &mut self.s, &y, &self.t, salt));
                self.y = Some(y);
            }
        }
        Ok(())
    }

    /// Waits for all of it; the numbers are those of the model.
    pub fn check(&mut self, what: &str) -> Result<(), Error> {
        for queued in self.queued.drain(..) {
            queued.wait()?;
        }
        self.streams.iter().try_for_each(Stream::synchronize)?;
        for plan in [&*self.sums, &*self.extremes, &*self.sent, &*self.planes, &*self.channels, &*self.taken, &*self.given] {
            plan.check()?;
        }
        self.world.communicator.check_collectives()?;
        let rank = self.world.communicator.rank() as usize;
        for (found, expected, name) in [(&self.x, &self.model.x, "x"), (&self.s, &self.model.s, "planes")] {
            let (found, expected) = (found.download()?, &expected[rank]);
            let wrong = (0..found.len()).find(|&n| found[n] != expected[n]);
            assert!(wrong.is_none(), "{what}: number {wrong:?} of {name} on rank {rank} is wrong");
        }
        Ok(())
    }
}
