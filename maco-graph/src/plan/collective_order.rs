//! Where tasks that ranks exchange tiles in stand in the lists: behind the tasks that make the tiles, not behind all of their call, so that what is exchanged travels while
//! the rest is computed.
//!
//! All ranks have these tasks in the same order, so those of one tile come at about the same time, and nothing can wait in a circle. Other tasks may come in another order on each
//! rank (`own_share`): so the place of a task of a collective is found by the latest places that those have on any rank. Lists that the planner makes by costs, and lists with
//! drains, stay as they are.

use super::events::Events;
use super::overlaps::{self, Found};
use super::worker_ranges::Ranges;
use super::{Lists, PlannedCall, message_slots, own_share};
use crate::ir::Graph;
use crate::spec::TaskKind;

/// The lists with each task of a collective on the worker of the last task that it waits for, or near it if several wait for one. If that one is a GEMM, it may still
/// store its tile when its worker goes on: then one more task of the worker comes between. So does one between sending a tile, by the GEMM or by a task, and receiving it.
/// Tasks that wait for other ranks come later where the graph says with what they [overlap](crate::ir::Overlap).
pub(super) fn behind_producers(graph: &Graph, calls: &[PlannedCall], found: &Found<'_>, ranges: &Ranges, lists: Lists) -> Lists {
    let is_collective = |call: u32| graph.calls[call as usize].task.collective().is_some();
    if !(0..calls.len() as u32).any(is_collective) || !lists.drains.is_empty() || !lists.positions.is_empty() {
        return lists;
    }
    let events = found.events;
    let mut worker = vec![0; events.tasks.len()];
    for list in 0..ranges.workers() {
        for &task in lists.of(list as usize) {
            worker[task as usize] = list;
        }
    }
    // Any order of [`placed`] is one in which tasks come behind those that they wait for. What one overlap moves may move what another one stands behind.
    let mut least = vec![0; events.tasks.len()];
    let latest = own_share::latest(calls, events);
    let numbers = Numbers { latest: &latest, worker: &worker };
    let mut order = placed(graph, calls, events, ranges, &numbers, &least);
    for _ in 0..=graph.overlaps.len() {
        let next = overlaps::least(graph, calls, found, ranges.workers(), &order.latest);
        if next == least {
            break;
        }
        least = next;
        order = placed(graph, calls, events, ranges, &numbers, &least);
    }
    let Placed { comes, worker, .. } = order;
    let mut order: Vec<u32> = (0..events.tasks.len() as u32).collect();
    order.sort_by_key(|&task| (comes[task as usize], task));
    let mut own = vec![Vec::new(); ranges.workers() as usize];
    let mut positions = vec![0; order.len()];
    for (position, &task) in (0..).zip(&order) {
        positions[task as usize] = position;
        own[worker[task as usize] as usize].push(task);
    }
    Lists::of_workers(own, lists.drains, positions)
}

/// Where tasks stand.
struct Placed {
    /// When each comes, as the number of the task that it follows.
    comes: Vec<u32>,
    /// When each comes on any rank at the latest: the same on all of them.
    latest: Vec<u32>,
    /// The worker of each.
    worker: Vec<u32>,
}

/// What tasks have before they are placed.
struct Numbers<'a> {
    /// The latest number of each on any rank.
    latest: &'a [u32],
    /// The worker of each.
    worker: &'a [u32],
}

/// Where tasks stand of which those of collectives come at `least` so late.
fn placed(graph: &Graph, calls: &[PlannedCall], events: &Events, ranges: &Ranges, numbers: &Numbers<'_>, least: &[u32]) -> Placed {
    let is_collective = |call: u32| graph.calls[call as usize].task.collective().is_some();
    let (mut worker, mut latest) = (numbers.worker.to_vec(), numbers.latest.to_vec());
    // When each task comes, as the number of the task that it follows; and the last task of each counter, and of those whose rows a call's data name.
    let mut comes: Vec<u32> = (0..events.tasks.len() as u32).collect();
    let mut last: Vec<Option<u32>> = vec![None; events.counters as usize];
    let mut named = vec![None; calls.len()];
    // The latest place of those tasks on any rank.
    let (mut last_of_all, mut named_of_all) = (vec![0; events.counters as usize], vec![0; calls.len()]);
    // When the last task comes that says of a chunk that it is there.
    let mut said = 0;
    // Tiles that wait for each task.
    let mut followers = vec![0; events.tasks.len()];
    // Of calls whose tiles have slots in turn: when the last task of each slot's last tile comes.
    let mut had: Vec<Vec<u32>> = calls.iter().map(|call| vec![0; 2 * call.slots as usize]).collect();
    for task in 0..events.tasks.len() {
        let node = &events.tasks[task];
        let later = |one: &u32, other: &u32| (comes[*one as usize], one).cmp(&(comes[*other as usize], other));
        if calls[node.call as usize].tasks.start as usize == task {
            let counters = events.named.iter().filter(|wait| wait.call == node.call).flat_map(|wait| wait.counters.clone());
            named_of_all[node.call as usize] = counters.clone().map(|counter| last_of_all[counter as usize]).max().unwrap_or(0);
            named[node.call as usize] = counters.filter_map(|counter| last[counter as usize]).max_by(later);
        }
        let waits = &events.waits[node.first_wait as usize..][..usize::from(node.waits)];
        let before = waits.iter().filter_map(|wait| last[wait.counter as usize]).chain(named[node.call as usize]);
        if let Some(producer) = before.max_by(later) {
            let of_all = waits.iter().map(|wait| last_of_all[wait.counter as usize]).max().unwrap_or(0);
            let of_all = of_all.max(named_of_all[node.call as usize]);
            // Who waits for NCCL would hold its worker for long: it comes in the order of calls.
            if is_collective(node.call) && !(calls[node.call as usize].nccl && node.part > 0) {
                let kind = graph.calls[events.tasks[producer as usize].call as usize].task.kind;
                let stores = matches!(kind, TaskKind::Gemm { .. });
                let own = &calls[node.call as usize];
                let sent = u32::from(own.is_pushed(task as u32 - own.tasks.start));
                let rounds = u32::from(stores) + sent + node.part;
                comes[task] = of_all + rounds * ranges.workers();
                latest[task] = comes[task];
                worker[task] = match node.part {
                    0 => {
                        let nth = followers[producer as usize];
                        followers[producer as usize] += 1;
                        ranges.place(node.call, worker[producer as usize], nth)
                    }
                    _ => worker[task - 1],
                };
            } else {
                comes[task] = comes[task].max(if is_collective(node.call) { of_all } else { comes[producer as usize] });
                latest[task] = latest[task].max(of_all);
            }
        }
        comes[task] = comes[task].max(least[task]);
        latest[task] = latest[task].max(least[task]);
        let own = &calls[node.call as usize];
        if own.slots > 0 {
            // Whoever sends waits until all ranks have read the message before in the slot: that comes first. Only exchanges count, so it is the same on all ranks.
            let n = message_slots::index(&graph.calls[node.call as usize], own, node.coord);
            let had = &mut had[node.call as usize];
            let lap = own.slots * 2;
            let before = if n >= own.slots { had[((n + own.slots) % lap) as usize] } else { 0 };
            comes[task] = comes[task].max(before);
            if node.part > 0 {
                comes[task] = comes[task].max(comes[task - 1]);
            }
            latest[task] = latest[task].max(comes[task]);
            let last = &mut had[(n % lap) as usize];
            *last = comes[task].max(*last);
        }
        if calls[node.call as usize].nccl {
            // NCCL does the chunks one after another, so who waits for one waits for all tasks that say so of those before: they come first.
            if node.part == 0 {
                said = said.max(comes[task]);
            } else {
                comes[task] = comes[task].max(said);
                latest[task] = latest[task].max(said);
            }
        }
        for &counter in &events.signals[node.first_signal as usize..][..usize::from(node.signals)] {
            let last = &mut last[counter as usize];
            *last = Some(last.map_or(task as u32, |other| if comes[other as usize] > comes[task] { other } else { task as u32 }));
            let of_all = &mut last_of_all[counter as usize];
            *of_all = latest[task].max(*of_all);
        }
    }
    Placed { comes, latest, worker }
}
