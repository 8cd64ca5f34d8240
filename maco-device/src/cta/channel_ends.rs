//! This task's end of a channel.

use crate::channel::{TileChannel, TileMessages};
use crate::cta::operations::Begin;
use crate::operations::channel::End;
use crate::operations::order::Mapping;
use crate::operations::simt_consumer::SimtConsumer;
use crate::role::Role;

/// Of a role that computes, its thread and this task's end of the channel, of whose slots so many bytes are no words; `None` for that where the other end is this rank itself.
#[inline(always)]
pub(super) fn ends<B: Begin>(cta: &mut B, behind: u32) -> Option<(SimtConsumer, Option<End>)> {
    let (role, task) = cta.begin(false, |_| Mapping::Own);
    let consumer = role.simt_consumer()?;
    let (ranks, messages) = task.ranks();
    let [peer, second, third] = [0, 1, 2].map(|axis| task.coord(axis) as u32);
    if peer == ranks.rank {
        return Some((consumer, None));
    }
    let tiles = [messages.tile([peer, second, third]), messages.tile([ranks.rank, second, third])];
    // SAFETY: (of both) the plan has the messages of this call, which all ranks launch with the same lists of tasks; there are as many planes as ranks.
    let (channel, packets) = unsafe { (TileChannel::new(ranks, messages, peer, tiles), TileMessages::new(ranks, messages, tiles, false)) };
    let bytes = messages.bytes - behind;
    Some((consumer, Some(End { channel, packets, peer, bytes })))
}
