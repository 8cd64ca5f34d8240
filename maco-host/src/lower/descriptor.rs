//! Tasks as descriptors: list after list, then the tasks of drains, then those of warp-task batches.

use std::collections::HashMap;

use maco_abi::{
    AHEAD, BULK_ROWS, CONSUMERS_POLL, CounterIndex, Descriptor, EARLY_START, ELEMENTWISE_PROLOGUE, Flags, IDEMPOTENT_SIGNAL, Indirect,
    LOAD_BEFORE_WAIT, LOAD_CONSTANT_OPERAND_EARLY, MAX_WARP_TASK_BATCH, MOST_TASKS, NO_AXIS, Naming, OP_DYNAMIC, PUSHED_TILES, READ_BY_TMA,
    RING_BYTES, RMSNORM_PROLOGUE, Route, SLOTS, STAGED, Signal, WARP_TASK, Wait,
};
use maco_device::protocol::{CLAIMED, CLAIMED_EARLY};
use maco_graph::ir;
use maco_graph::plan::{Entry, Notification, Plan, Schedule};
use maco_graph::spec::{Access, Index, TensorParam};

use super::partials::Partials;
use super::{tensor_params, too_many};
use crate::error::Error;

/// End entries after the last list.
const PREFETCHED: usize = AHEAD as usize;

/// Descriptors with what indexes them.
pub(super) struct Lists {
    pub(super) descriptors: Vec<Descriptor>,
    pub(super) starts: Vec<u32>,
    pub(super) overflow: Vec<u32>,
    pub(super) descriptor_of: Vec<u32>,
}

/// One list per worker, or one for all in task order. `views` and `first_scalar` are by call, `tickets` is the word of the first
/// drain's ticket in a counter bank.
pub(super) fn lists(plan: &Plan, views: &[u32], first_scalar: &[u16], partials: &Partials, tickets: u32) -> Result<Lists, Error> {
    let count = plan.lists.starts.len().saturating_sub(1);
    let drains = &plan.lists.drains;
    // A batch of warp tasks takes an entry of its own.
    let total = 2 * plan.tasks.len() + count * (1 + drains.len()) + PREFETCHED;
    if total > MOST_TASKS as usize {
        return Err(too_many(&plan.graph, "descriptors", total as u64, MOST_TASKS.into()));
    }
    let flags = flags(plan);
    let mut pushes = vec![false; plan.calls.len()];
    plan.calls.iter().filter_map(|call| call.pushed_by).for_each(|gemm| pushes[gemm as usize] = true);
    let sole = sole(plan);
    let mut made = Lists {
        descriptors: Vec::with_capacity(total),
        starts: Vec::with_capacity(plan.workers as usize + 1),
        overflow: Vec::new(),
        descriptor_of: vec![0; plan.tasks.len()],
    };
    let add = |made: &mut Lists, task: u32| {
        made.descriptor_of[task as usize] = made.descriptors.len() as u32;
        let call = plan.tasks[task as usize].call as usize;
        let mut descriptor =
            Descriptor { views: views[call], scalar: first_scalar[call], flags: flags[call], ..empty(plan, task, &made.overflow)? };
        if let Some((chunk, split, flags)) = partials.of(plan, task) {
            descriptor.coord[2] = chunk.unwrap_or(descriptor.coord[2]);
            descriptor.split = split;
            descriptor.flags |= flags;
        }
        if pushes[call] && plan.pushes_tile(call as u32, plan.tasks[task as usize].coord) {
            descriptor.flags |= PUSHED_TILES;
        }
        // Copies are ordered through device memory, where edges inside a worker leave no signal: consumers wait for those and load directly.
        let waits_for_own_worker = || plan.waits_of(task).iter().any(|wait| plan.worker_edges.contains(task, wait.counter));
        if plan.graph.calls[call].task.reads_in_bulk() && !descriptor.flags.has(LOAD_BEFORE_WAIT) && waits_for_own_worker() {
            descriptor.flags = descriptor.flags.without(BULK_ROWS);
        }
        waits(plan, task, &mut descriptor, &mut made.overflow);
        signals(plan, task, &sole, &mut descriptor, &mut made.overflow)?;
        named(plan, call as u32, &mut descriptor, &mut made.overflow);
        made.descriptors.push(descriptor);
        Ok::<(), Error>(())
    };
    // After the lists come the tasks of drains, then those of batches: list entries that refer to them are written once their positions are known.
    let (mut batches, mut claims) = (Vec::new(), Vec::new());
    // The task slot of each listed task, counted without claimed tasks.
    let mut slot = vec![0u32; plan.tasks.len()];
    for list in 0..count {
        made.starts.push(made.descriptors.len() as u32);
        let (mut entries, mut slots, mut listed) = (plan.lists.entries(list).peekable(), 0, 0);
        while let Some(entry) = entries.next() {
            let at = made.descriptors.len();
            let Entry::Task(task) = entry else {
                claims.push((at, entry));
                made.descriptors.push(Descriptor::END);
                continue;
            };
            let call = plan.tasks[task as usize].call;
            slot[task as usize] = slots;
            if plan.schedule == Schedule::Static && flags[call as usize].has(WARP_TASK) {
                let same = |entry: &Entry| matches!(*entry, Entry::Task(other) if plan.tasks[other as usize].call == call);
                let mut batch = vec![task];
                while batch.len() < MAX_WARP_TASK_BATCH as usize
                    && let Some(Entry::Task(other)) = entries.next_if(same)
                {
                    slot[other as usize] = slots;
                    batch.push(other);
                }
                listed += batch.len();
                batches.push((at, batch));
                made.descriptors.push(Descriptor::END);
            } else {
                add(&mut made, task)?;
                let after = plan.worker_edges.after(task) as usize;
                if after > 0 {
                    let distance = slots - slot[plan.lists.of(list)[listed - after] as usize];
                    // A slot is reused only when its tasks have ended, so older tasks have ended.
                    made.descriptors[at].after = if distance < SLOTS { distance as u16 } else { 0 };
                }
                listed += 1;
            }
            slots += 1;
        }
        made.descriptors.push(Descriptor::END);
    }
    made.starts.push(made.descriptors.len() as u32);
    let mut claimed = Vec::with_capacity(drains.len());
    for (drain, ticket) in drains.iter().zip(tickets..) {
        // All of them are dynamic, or none.
        let dynamic = plan.tasks.get(drain.start as usize).is_some_and(|task| plan.calls[task.call as usize].dynamic);
        let ahead = if dynamic { CLAIMED_EARLY } else { CLAIMED };
        claimed.push(Descriptor::dynamic(ticket, drain.end - drain.start, made.descriptors.len() as u32, ahead as u16));
        for task in drain.clone() {
            add(&mut made, task)?;
        }
    }
    for (at, entry) in claims {
        if let Entry::Drain(drain) = entry {
            made.descriptors[at] = claimed[drain as usize];
        }
    }
    for (at, tasks) in batches {
        let first = made.descriptors.len();
        for &task in &tasks {
            add(&mut made, task)?;
        }
        made.descriptors[at] = made.descriptors[first].batch(first as u32, tasks.len() as u32);
    }
    if plan.schedule != Schedule::Static {
        made.starts = vec![0; plan.workers as usize + 1];
    }
    made.descriptors.extend([Descriptor::END; PREFETCHED]);
    Ok(made)
}

/// Most bytes that a task writes for its consumers to signal its end: a release waits until all writes have arrived, and
/// a consumer warp that waits for long cannot begin the next task.
const SMALL: u64 = 1024;

/// Bytes that one task of a call writes.
fn bytes_written(plan: &Plan, call: usize) -> u64 {
    bytes(plan, call, |access| access.writes())
}

/// Whether the tiles that a call reads come through the ring.
fn reads_through_ring(plan: &Plan, call: usize) -> bool {
    plan.graph.calls[call].task.reads_in_bulk() && bytes(plan, call, |access| access.reads()) >= u64::from(RING_BYTES)
}

/// Bytes of the operands of one task of a call with these accesses.
fn bytes(plan: &Plan, call: usize, accesses: impl Fn(Access) -> bool) -> u64 {
    let tile = &plan.calls[call].tile;
    let operands = plan.graph.calls[call].operands.iter().zip(tensor_params(&plan.graph.calls[call]));
    let bytes = operands.filter(|(_, param)| accesses(param.access)).map(|(view, param)| {
        let elements = param.region.iter().zip(&view.axes).map(|(index, axis)| match *index {
            Index::Tile(tiled) => axis.extent.min(tile[tiled as usize].into()),
            _ => axis.extent,
        });
        elements.fold(plan.graph.tensors[view.tensor as usize].element.bytes().into(), u64::saturating_mul)
    });
    bytes.fold(0, u64::saturating_add)
}

/// For each tensor one that stands for its memory, and whether temps share that: what is written there by one of them and then copied to by another must be
/// fenced as if both were one tensor.
fn places(plan: &Plan) -> Vec<(u32, bool)> {
    let mut places: Vec<(u32, bool)> = (0..plan.graph.tensors.len() as u32).map(|tensor| (tensor, false)).collect();
    let mut first: HashMap<u64, u32> = HashMap::new();
    let temps = plan.temps.ranges.iter().zip(&plan.graph.tensors).enumerate();
    for (tensor, (place, _)) in temps.filter(|(_, (place, of))| of.kind == ir::TensorKind::Temp && place.bytes > 0) {
        let first = *first.entry(place.offset).or_insert(tensor as u32);
        if first != tensor as u32 {
            places[tensor] = (first, true);
            places[first as usize].1 = true;
        }
    }
    places
}

/// The descriptor flags of each call's tasks.
fn flags(plan: &Plan) -> Vec<Flags> {
    let place = places(plan);
    let mut fetched = vec![false; plan.graph.tensors.len()];
    for (index, call) in plan.graph.calls.iter().enumerate() {
        let all = reads_through_ring(plan, index);
        for (n, (view, param)) in call.operands.iter().zip(tensor_params(call)).enumerate() {
            // A body with scratch may read any of its tensors by copies.
            let copied = all || param.staged || call.task.gemv_operand_b() == Some(n) || call.task.shared() > 0;
            let (place, shared) = place[view.tensor as usize];
            fetched[place as usize] |= copied && (param.access.reads() || shared);
        }
    }
    let written = plan.graph.written();
    let pushed = plan.schedule.schedulers() > 0;
    let flags = plan.graph.calls.iter().enumerate().map(|(index, call)| {
        let operands = || call.operands.iter().zip(tensor_params(call));
        let early = if call.task.starts_early() { EARLY_START } else { Flags::NONE };
        let warp_task = if call.task.is_warp_task() { WARP_TASK } else { Flags::NONE };
        let copied = if operands().any(|(_, param)| param.staged) {
            STAGED
        } else if operands().any(|(view, param)| param.access.writes() && fetched[place[view.tensor as usize].0 as usize]) {
            READ_BY_TMA
        } else {
            Flags::NONE
        };
        let ring = match call.task.gemv_operand_b() {
            Some(n) if written[call.operands[n].tensor as usize] => BULK_ROWS,
            Some(_) => BULK_ROWS | LOAD_BEFORE_WAIT,
            // A body's shared memory is pages of the ring, which the loader hands out when they are free: that has no other waits.
            None if call.task.shared() > 0 => BULK_ROWS | LOAD_BEFORE_WAIT,
            None if !reads_through_ring(plan, index) => Flags::NONE,
            None if operands().any(|(view, param)| param.access.reads() && written[view.tensor as usize]) => BULK_ROWS,
            None => BULK_ROWS | LOAD_BEFORE_WAIT,
        };
        let preloads = if copied == STAGED { preloads(call, &written) } else { Flags::NONE };
        // Pushed tasks have no waits, and their signals are messages. Warp tasks either all poll or none.
        let signal_flags = match () {
            () if pushed || copied == STAGED || warp_task != Flags::NONE => Flags::NONE,
            () if bytes_written(plan, index) <= SMALL => CONSUMERS_POLL | IDEMPOTENT_SIGNAL,
            () => Flags::NONE,
        };
        let prologue = match plan.calls[index].prologue.map(|made| plan.graph.calls[made as usize].task.unary_operands()) {
            None => Flags::NONE,
            Some(None) => RMSNORM_PROLOGUE,
            Some(Some(_)) => ELEMENTWISE_PROLOGUE,
        };
        early | warp_task | copied | ring | preloads | prologue | signal_flags
    });
    flags.collect()
}

/// Which operands of a GEMM can be loaded before its tasks may run, since no task writes them: all, some, or none. Where indices in memory select the
/// tiles, none: the indices may not be ready.
fn preloads(call: &ir::Call, written: &[bool]) -> Flags {
    let operands = || call.operands.iter().zip(tensor_params(call)).filter(|(_, param)| param.staged && param.access.reads());
    let is_written = |(view, _): &(&ir::View, &TensorParam)| written[view.tensor as usize];
    let named = tensor_params(call).any(|param| param.region.iter().any(|index| matches!(index, Index::Data(_))));
    match operands().filter(is_written).count() {
        _ if named || call.task.shared() > 0 => Flags::NONE,
        0 => LOAD_BEFORE_WAIT,
        some if some < operands().count() => LOAD_CONSTANT_OPERAND_EARLY,
        _ => Flags::NONE,
    }
}

/// Which counters get one signal in all.
fn sole(plan: &Plan) -> Vec<bool> {
    let mut signals = vec![0u32; plan.counters as usize];
    for &counter in &plan.signals {
        signals[counter as usize] += 1;
    }
    signals.into_iter().map(|signals| signals == 1).collect()
}

fn empty(plan: &Plan, task: u32, overflow: &[u32]) -> Result<Descriptor, Error> {
    let node = &plan.tasks[task as usize];
    let op = plan.calls[node.call as usize].op;
    let op = u16::try_from(op)
        .ok()
        .filter(|&op| op < OP_DYNAMIC)
        .ok_or_else(|| too_many(&plan.graph, "instances of tasks", op as u64 + 1, OP_DYNAMIC as u64))?;
    Ok(Descriptor {
        op,
        coord: node.coord,
        task,
        overflow: u32::try_from(overflow.len())
            .map_err(|_| too_many(&plan.graph, "waits and signals", overflow.len() as u64, u32::MAX as u64))?,
        ..Descriptor::END
    })
}

/// A wait of the plan.
pub(super) fn waiting(wait: &maco_graph::plan::Wait) -> Wait {
    Wait::new(CounterIndex(wait.counter), wait.need)
}

fn waits(plan: &Plan, task: u32, descriptor: &mut Descriptor, overflow: &mut Vec<u32>) {
    if plan.schedule.schedulers() > 0 {
        return;
    }
    let in_band = plan.in_band_input(plan.tasks[task as usize].call).map_or(0..0, |relation| relation.counters.clone());
    let waits = plan.waits_of(task).iter().filter(|wait| !plan.worker_edges.contains(task, wait.counter));
    // Waits by in-band flags come first, where the hang report looks for them.
    let (polled, waited): (Vec<&maco_graph::plan::Wait>, Vec<&maco_graph::plan::Wait>) =
        waits.partition(|wait| in_band.contains(&wait.counter));
    let polled = polled.into_iter().map(|wait| waiting(wait).in_band());
    let mut waits = polled.chain(waited.into_iter().map(waiting));
    for inline in &mut descriptor.wait {
        if let Some(wait) = waits.next() {
            *inline = wait;
        }
    }
    for wait in waits {
        overflow.extend(wait.encode());
        // A plan counts them in 16 bits.
        descriptor.extra_waits += 1;
    }
}

fn signals(plan: &Plan, task: u32, sole: &[bool], descriptor: &mut Descriptor, overflow: &mut Vec<u32>) -> Result<(), Error> {
    let words: Vec<u32> = if plan.schedule.schedulers() > 0 {
        plan.scheduler_partition.notifications_of(task).iter().map(|notification| word(plan, notification)).collect::<Result<_, _>>()?
    } else {
        let signalled = plan.signals_of(task).iter().filter(|&&counter| plan.worker_edges.is_signalled(counter));
        let word = |&counter: &u32| Signal { counter: CounterIndex(counter), single_producer: sole[counter as usize] }.encode();
        signalled.map(word).collect()
    };
    for (inline, &word) in descriptor.signal.iter_mut().zip(&words) {
        *inline = word;
    }
    if words.len() != 1 || !Signal::decode(words[0]).single_producer {
        descriptor.flags = descriptor.flags.without(IDEMPOTENT_SIGNAL);
    }
    let extra = words.get(descriptor.signal.len()..).unwrap_or(&[]);
    overflow.extend(extra);
    descriptor.extra_signals =
        u16::try_from(extra.len()).map_err(|_| too_many(&plan.graph, "signals of one task", extra.len() as u64, u16::MAX as u64))?;
    Ok(())
}

fn named(plan: &Plan, call: u32, descriptor: &mut Descriptor, overflow: &mut Vec<u32>) {
    // A call has few parameters, so few of them.
    let first = plan.named.partition_point(|wait| wait.call < call);
    for wait in plan.named[first..].iter().take_while(|wait| wait.call == call) {
        // A task has few operands.
        let naming = Naming { operand: wait.operand as u8, flat: wait.flat, known: wait.known };
        let record = Indirect {
            naming: naming.encode(),
            axis: wait.axis.map_or(NO_AXIS, u32::from),
            rows: wait.rows,
            base: CounterIndex(wait.counters.start),
            size: wait.size,
            limit: wait.limit,
            need: wait.need,
            first: wait.first,
        };
        overflow.extend(record.encode());
        descriptor.indirect += 1;
    }
}

fn word(plan: &Plan, notification: &Notification) -> Result<u32, Error> {
    let &Notification { credit, to, counter } = notification;
    if let Some(counter) = counter.filter(|&counter| counter >= Route::COUNTERS - 1) {
        return Err(too_many(&plan.graph, "counters of one scheduler", counter as u64 + 1, Route::COUNTERS as u64 - 1));
    }
    Ok(Route { credit, to, counter }.encode())
}
