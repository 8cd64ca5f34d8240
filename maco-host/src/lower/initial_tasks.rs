//! The initial tasks of each worker, stored before the launch record: the worker gets them with one load, before it has read anything else.

use std::borrow::Cow;

use maco_abi::{Descriptor, INITIAL_TASKS, OP_DYNAMIC, OPERANDS, STATIC, Slot, View, ViewEntry, WARP_TASK, WARP_TASK_BATCH};

use super::{Fault, Lowered};

/// The initial tasks of one CTA.
pub(crate) type InitialTasks = [Slot; INITIAL_TASKS as usize];

impl Lowered {
    /// The initial tasks of each CTA; `views` is the table of views. They are the first tasks of its static list, as long as they wait for nothing.
    /// If all lists begin with the same drain, and it has a task for each worker, each worker's first task of that drain needs no ticket
    /// ([`maco_device::protocol::DynamicTiles::dealt`]).
    pub(crate) fn initial_tasks(&self, views: &[ViewEntry], fault: Option<Fault>) -> Vec<InitialTasks> {
        let descriptors = fault.map_or(Cow::Borrowed(&self.descriptors), |fault| Cow::Owned(self.with(Some(fault)).0));
        let nothing = Slot { descriptor: Descriptor::END, views: [ViewEntry::view(View::default()); OPERANDS] };
        let slot = |descriptor: &Descriptor| {
            let simple = descriptor.op < OP_DYNAMIC
                && !descriptor.flags.has(WARP_TASK | WARP_TASK_BATCH)
                && descriptor.wait[0].is_none()
                && descriptor.extra_waits == 0
                && descriptor.indirect == 0;
            let own = views.get(descriptor.views as usize..)?.first_chunk::<OPERANDS>()?;
            simple.then_some(Slot { descriptor: *descriptor, views: *own })
        };
        let mut all = vec![[nothing; INITIAL_TASKS as usize]; self.grid() as usize];
        if self.mode() != STATIC {
            return all;
        }
        let lists = || self.starts[..self.workers as usize].iter().map(|&start| &descriptors[start as usize..]);
        let Some(entry) = lists().next().map(|list| list[0]) else { return all };
        if entry.op == OP_DYNAMIC {
            let [_, tasks, first] = entry.coord;
            let dealt = (first..first + self.workers).map(|task| slot(descriptors.get(task as usize)?));
            if tasks >= self.workers
                && lists().all(|list| list[0] == entry)
                && let Some(dealt) = dealt.collect::<Option<Vec<Slot>>>()
            {
                let behind = Slot { descriptor: entry, ..nothing };
                all.iter_mut().zip(dealt).for_each(|(first, task)| *first = [task, behind]);
            }
            return all;
        }
        for (first, list) in all.iter_mut().zip(lists()) {
            for (first, task) in first.iter_mut().zip(list.iter().map_while(slot)) {
                *first = task;
            }
        }
        all
    }
}
