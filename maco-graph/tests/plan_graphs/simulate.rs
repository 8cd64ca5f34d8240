//! Runs a plan on numbers: workers in any order that counters and lists allow, against the program run top to bottom.

use maco_graph::plan::{Entry, Plan, oracle};

use super::random::Draw;

/// One value per element of every tensor.
type Memory = Vec<Vec<u64>>;

fn initial(plan: &Plan) -> Memory {
    let fill = |(index, tensor): (usize, &maco_graph::ir::Tensor)| {
        (0..tensor.shape.iter().product::<u64>()).map(|element| mix(index as u64 + 1, element)).collect()
    };
    plan.graph.tensors.iter().enumerate().map(fill).collect()
}

fn mix(a: u64, b: u64) -> u64 {
    let mixed = (a ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    mixed ^ (mixed >> 29)
}

/// Reads everything that the task may read and says what it writes: (tensor, element, value).
fn values(plan: &Plan, task: u32, memory: &Memory) -> Vec<(usize, usize, u64)> {
    let footprints = oracle::footprints(plan, task);
    let node = &plan.tasks[task as usize];
    let mut state = u64::from(node.call) + 1;
    for footprint in footprints.iter().filter(|footprint| footprint.access.reads()) {
        for &element in &footprint.elements {
            state = mix(state, memory[footprint.tensor as usize][element]);
        }
    }
    // Tiles that write where data says may hit any element, but never the same one.
    let call = &plan.calls[node.call as usize];
    let own = call.grid.iter().zip(&node.coord).fold(0, |own, (&tiles, &coord)| own * tiles as usize + coord as usize);
    let mut written = Vec::new();
    for footprint in footprints.iter().filter(|footprint| footprint.access.writes()) {
        for &element in &footprint.elements {
            if !footprint.data || element % call.tasks.len() == own {
                written.push((footprint.tensor as usize, element, mix(state, element as u64)));
            }
        }
    }
    written
}

fn write(memory: &mut Memory, written: &[(usize, usize, u64)]) {
    for &(tensor, element, value) in written {
        memory[tensor][element] = value;
    }
}

/// The program, call after call.
fn sequential(plan: &Plan) -> Memory {
    let mut memory = initial(plan);
    for call in &plan.calls {
        for task in call.tasks.clone() {
            let written = values(plan, task, &memory);
            write(&mut memory, &written);
        }
    }
    memory
}

enum Worker {
    Idle,
    Waiting(u32),
    /// Has read; has not written yet.
    Running(u32, Vec<(usize, usize, u64)>),
}

/// Whose bytes the memory of temps holds. A task that writes an element poisons those of all other temps that lie in the same bytes.
struct Owners(Vec<Option<u32>>);

impl Owners {
    fn new(plan: &Plan) -> Owners {
        Owners(vec![None; plan.temps.bytes as usize])
    }

    fn write(&mut self, plan: &Plan, written: &[(usize, usize, u64)]) {
        for &(tensor, element, _) in written {
            if let Some(bytes) = oracle::bytes(plan, tensor as u32, element) {
                self.0[bytes].fill(Some(tensor as u32));
            }
        }
    }

    /// The first element that `task` reads, that a task has written, and that is poisoned.
    fn poisoned(&self, plan: &Plan, task: u32, set: &[Vec<bool>]) -> Option<(u32, usize)> {
        let footprints = oracle::footprints(plan, task);
        let read = footprints.iter().filter(|footprint| footprint.access.reads());
        let mut elements = read.flat_map(|footprint| footprint.elements.iter().map(|&element| (footprint.tensor, element)));
        elements.find(|&(tensor, element)| {
            let bytes = oracle::bytes(plan, tensor, element).filter(|_| set[tensor as usize][element]);
            bytes.is_some_and(|bytes| self.0[bytes].iter().any(|owner| *owner != Some(tensor)))
        })
    }
}

/// One random legal run, or the reason why there is none. Reads and writes of a task are apart in time.
fn interleaved(plan: &Plan, draw: &mut Draw<'_>) -> Result<Memory, String> {
    let mut memory = initial(plan);
    let mut owners = Owners::new(plan);
    let mut set: Vec<Vec<bool>> = memory.iter().map(|elements| vec![false; elements.len()]).collect();
    let mut counters = vec![0u32; plan.counters as usize];
    let mut tickets: Vec<u32> = plan.lists.drains.iter().map(|drain| drain.start).collect();
    let lists: Vec<Vec<Entry>> = (0..plan.lists.starts.len() - 1).map(|list| plan.lists.entries(list).collect()).collect();
    let mut next: Vec<usize> = vec![0; lists.len()];
    let mut workers: Vec<Worker> = (0..plan.workers).map(|_| Worker::Idle).collect();
    let mut left = plan.tasks.len();
    while left > 0 {
        // A random worker; if it cannot move, the next one that can.
        let start = draw.below(workers.len());
        let mut moved = false;
        for offset in 0..workers.len() {
            let index = (start + offset) % workers.len();
            let list = index % lists.len();
            let step = match &workers[index] {
                Worker::Idle => lists[list].get(next[list]).map(|&entry| match entry {
                    Entry::Drain(drain) if tickets[drain as usize] < plan.lists.drains[drain as usize].end => {
                        tickets[drain as usize] += 1;
                        Worker::Waiting(tickets[drain as usize] - 1)
                    }
                    Entry::Drain(_) => {
                        next[list] += 1;
                        Worker::Idle
                    }
                    Entry::Task(task) => {
                        next[list] += 1;
                        Worker::Waiting(task)
                    }
                }),
                Worker::Waiting(task) if plan.waits_of(*task).iter().all(|wait| counters[wait.counter as usize] >= wait.need) => {
                    if let Some((tensor, element)) = owners.poisoned(plan, *task, &set) {
                        return Err(format!("task {task} reads element {element} of temp {tensor}, which another temp has overwritten"));
                    }
                    Some(Worker::Running(*task, values(plan, *task, &memory)))
                }
                Worker::Waiting(_) => None,
                Worker::Running(task, written) => {
                    write(&mut memory, written);
                    owners.write(plan, written);
                    written.iter().for_each(|&(tensor, element, _)| set[tensor][element] = true);
                    for &counter in plan.signals_of(*task) {
                        counters[counter as usize] += 1;
                    }
                    left -= 1;
                    Some(Worker::Idle)
                }
            };
            if let Some(step) = step {
                workers[index] = step;
                moved = true;
                break;
            }
        }
        if !moved {
            return Err(format!("{left} tasks wait for ever"));
        }
    }
    Ok(memory)
}

/// Compares `runs` random runs with the program.
pub fn agree(plan: &Plan, draw: &mut Draw<'_>, runs: usize) -> Result<(), String> {
    let expected = sequential(plan);
    for _ in 0..runs {
        let found = interleaved(plan, draw)?;
        for (tensor, (found, expected)) in found.iter().zip(&expected).enumerate() {
            if let Some(element) = (0..found.len()).find(|&element| found[element] != expected[element]) {
                return Err(format!("element {element} of tensor {tensor} differs"));
            }
        }
    }
    Ok(())
}
