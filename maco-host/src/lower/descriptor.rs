//! Tasks as descriptors, list after list.

use maco_device::abi::{Descriptor, NO_COUNTER, OP_NONE, Wait};
use maco_graph::plan::{Plan, Schedule};

use super::{Operands, too_many};
use crate::error::Error;

/// End entries after the last list: a worker fetches descriptors two ahead.
const PREFETCHED: usize = 2;

/// Descriptors with what indexes them.
pub(super) struct Lists {
    pub(super) descriptors: Vec<Descriptor>,
    pub(super) starts: Vec<u32>,
    pub(super) overflow: Vec<u32>,
    pub(super) place: Vec<u32>,
}

/// One list per worker, or one for all when they draw tickets.
pub(super) fn lists(plan: &Plan, operands: &[Operands], first_scalar: &[u16]) -> Result<Lists, Error> {
    let count = plan.lists.starts.len().saturating_sub(1);
    let total = plan.tasks.len() + count + PREFETCHED;
    if u32::try_from(total).is_err() {
        return Err(too_many(&plan.graph, "descriptors", total as u64, u32::MAX as u64));
    }
    let mut made = Lists {
        descriptors: Vec::with_capacity(total),
        starts: Vec::with_capacity(plan.workers as usize + 1),
        overflow: Vec::new(),
        place: vec![0; plan.tasks.len()],
    };
    for list in 0..count {
        made.starts.push(made.descriptors.len() as u32);
        for &task in plan.lists.of(list) {
            made.place[task as usize] = made.descriptors.len() as u32;
            let descriptor = describe(plan, task, operands, first_scalar, &mut made.overflow)?;
            made.descriptors.push(descriptor);
        }
        made.descriptors.push(Descriptor::END);
    }
    made.starts.push(made.descriptors.len() as u32);
    if plan.schedule == Schedule::Dynamic {
        made.starts = vec![0; plan.workers as usize + 1];
    }
    made.descriptors.extend([Descriptor::END; PREFETCHED]);
    Ok(made)
}

fn describe(plan: &Plan, task: u32, operands: &[Operands], first_scalar: &[u16], overflow: &mut Vec<u32>) -> Result<Descriptor, Error> {
    let node = &plan.tasks[task as usize];
    let op = plan.calls[node.call as usize].op;
    let op = u16::try_from(op)
        .ok()
        .filter(|&op| op < OP_NONE)
        .ok_or_else(|| too_many(&plan.graph, "instances of tasks", op as u64 + 1, OP_NONE as u64))?;
    let mut descriptor = Descriptor {
        op,
        scalar: first_scalar[node.call as usize],
        coord: node.coord,
        operand: operands[node.call as usize],
        task,
        overflow: u32::try_from(overflow.len())
            .map_err(|_| too_many(&plan.graph, "waits and signals", overflow.len() as u64, u32::MAX as u64))?,
        ..Descriptor::END
    };
    let waits = plan.waits_of(task);
    for (inline, wait) in descriptor.wait.iter_mut().zip(waits) {
        *inline = Wait { counter: wait.counter, need: wait.need };
    }
    let signals = plan.signals_of(task);
    for (inline, &signal) in descriptor.signal.iter_mut().zip(signals) {
        *inline = signal;
    }
    let extra_waits = waits.get(descriptor.wait.len()..).unwrap_or(&[]);
    let extra_signals = signals.get(descriptor.signal.len()..).unwrap_or(&[]);
    overflow.extend(extra_waits.iter().flat_map(|wait| [wait.counter, wait.need]));
    overflow.extend(extra_signals);
    // A plan counts both in 16 bits.
    descriptor.extra_waits = extra_waits.len() as u16;
    descriptor.extra_signals = extra_signals.len() as u16;
    Ok(descriptor)
}

const _: () = assert!(Descriptor::END.wait[0].counter == NO_COUNTER && Descriptor::END.signal[0] == NO_COUNTER);
