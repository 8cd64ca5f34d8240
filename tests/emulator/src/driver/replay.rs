//! Replays of graphs: branches run at once, each on a stream of its own.

use std::sync::{Arc, OnceLock};

use super::events::Event;
use super::graphs::{Node, Work};
use super::streams::Stream;

/// Branches that run at once; those of wider graphs share streams, in the order of capture.
const MOST: usize = 32;

/// A piece of work in its branch.
struct Step {
    work: Work,
    branch: usize,
    /// Steps of other branches that it comes behind.
    behind: Vec<usize>,
    /// Another branch comes behind it.
    awaited: bool,
}

/// A graph that can be replayed.
pub struct Replay {
    steps: Vec<Step>,
    branches: usize,
    /// Of all branches but the first one, which is on the stream of the launch.
    streams: OnceLock<Vec<Arc<Stream>>>,
}

impl Replay {
    pub fn new(nodes: &[Arc<Node>]) -> Replay {
        let (mut steps, mut tails) = (Vec::<Step>::new(), Vec::<usize>::new());
        for (n, node) in nodes.iter().enumerate() {
            let is_before = |&at: &usize| node.behind.contains(&(Arc::as_ptr(&nodes[at]) as usize));
            let before: Vec<usize> = (0..n).filter(is_before).collect();
            // It goes on a branch that ends with one of these, or is a new one.
            let branch =
                tails.iter().position(|tail| before.contains(tail)).unwrap_or(if tails.len() < MOST { tails.len() } else { n % MOST });
            match tails.get_mut(branch) {
                Some(tail) => *tail = n,
                None => tails.push(n),
            }
            let behind: Vec<usize> = before.into_iter().filter(|&at| steps[at].branch != branch).collect();
            behind.iter().for_each(|&at| steps[at].awaited = true);
            steps.push(Step { work: node.work.clone(), branch, behind, awaited: false });
        }
        Replay { steps, branches: tails.len().max(1), streams: OnceLock::new() }
    }

    /// The work in an order that the edges allow.
    pub fn works(&self) -> impl Iterator<Item = &Work> {
        self.steps.iter().map(|step| &step.work)
    }

    /// Queues the work behind what `stream` has; what comes behind it on `stream` comes behind all of it.
    pub fn launch(&self, stream: &Stream) {
        let streams = self.streams.get_or_init(|| (1..self.branches).map(|_| Stream::new(stream.device)).collect());
        let on = |branch: usize| if branch == 0 { stream } else { &*streams[branch - 1] };
        let then = |from: &Stream, to: &Stream| {
            let event = Event::default();
            event.record(from);
            event.hold(to);
        };
        streams.iter().for_each(|branch| then(stream, branch));
        let events: Vec<Event> = self.steps.iter().map(|_| Event::default()).collect();
        for (step, event) in self.steps.iter().zip(&events) {
            let own = on(step.branch);
            step.behind.iter().for_each(|&other| events[other].hold(own));
            match &step.work {
                Work::Task(task) => own.push_now(task.clone()),
                Work::Record(event) => event.record(own),
                Work::Wait(event) => event.hold(own),
            }
            if step.awaited {
                event.record(own);
            }
        }
        streams.iter().for_each(|branch| then(branch, stream));
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.streams.take().into_iter().flatten().for_each(|stream| stream.close());
    }
}
