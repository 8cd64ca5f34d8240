//! Instructions that are rare, or long anyway: which room does what.

mod arithmetic;
mod barriers;
mod collectives;
mod conversions;
mod copies;
mod matrices;
mod memory;
mod special;

use super::float;
use super::interp::Then;
use super::lanes::compare;
use super::registers::{Bases, Lanes, each_lane, get, low, set, write_bits};
use super::{Fault, Launch, Of, Wait, Warp};
use crate::ptx::inst::*;

fn sign_extend(ty: Ty, bits: u64) -> i64 {
    match ty.bytes() {
        1 => i64::from(bits as i8),
        2 => i64::from(bits as i16),
        4 => i64::from(bits as i32),
        _ => bits as i64,
    }
}

fn zero_extend(ty: Ty, bits: u64) -> u64 {
    match ty.bytes() {
        1 => bits & 0xFF,
        2 => bits & 0xFFFF,
        4 => bits & 0xFFFF_FFFF,
        _ => bits,
    }
}

/// Bits of an integer, as those of one of 64 bits.
fn extend(ty: Ty, bits: u64) -> u64 {
    if ty.signed() { sign_extend(ty, bits) as u64 } else { zero_extend(ty, bits) }
}

impl Launch {
    pub(super) unsafe fn cold(&mut self, at: usize, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32, pc: u32) -> Result<Then, Fault> {
        let of = (at, pc, mask);
        // SAFETY: (of the whole function) slots of the program.
        unsafe {
            match i.op {
                Op::Pack => self.pack(bases, i, mask),
                Op::Unpack => self.unpack(bases, i, mask),
                Op::Set => self.set_by_comparison(bases, i, mask)?,
                Op::CvtPair => self.convert_pair(bases, i, mask)?,
                Op::LdEntry => self.load_entry(bases, i, mask),
                Op::LdParam | Op::StParam => self.access_parameter(bases, i, mask),
                Op::CopyParam => self.copy_parameter(bases, i, mask),
                Op::ToGeneric | Op::FromGeneric => self.change_window(bases, i, mask),
                Op::IsSpace => self.is_space(bases, i, mask),
                Op::Mapa => self.map_address(bases, i, mask)?,
                Op::Atom => self.atomic(warp, bases, i, mask)?,
                Op::BarWarp | Op::WgmmaFence | Op::CpAsyncCommit | Op::CpAsyncWait => {}
                Op::ProxyFence => self.fence(warp, i.n, mask),
                Op::Fence => self.note_fence(warp, i.flag),
                Op::ActiveMask => each_lane!(mask, lane, { set(bases, i.d, 4, lane, mask.into()) }),
                Op::Elect => self.elect(bases, i, mask),
                Op::Vote => self.vote(bases, i, mask),
                Op::Shfl => self.exchange(bases, i, mask)?,
                Op::Match => self.find_equals(bases, i, mask),
                Op::Redux => self.reduce(bases, i, mask),
                Op::Sleep => {
                    let most = (0..32).filter(|lane| mask >> lane & 1 == 1).map(|lane| get(bases, i.a, 4, lane)).max().unwrap_or(0);
                    return Ok(Then::Sleep(Wait::Until(self.now + most.max(20))));
                }
                Op::Bar => return self.barrier(warp, bases, i, mask),
                Op::ClusterArrive => self.arrive_at_cluster(warp)?,
                Op::ClusterWait => return self.wait_for_cluster(warp),
                Op::MbarInit | Op::MbarInval | Op::MbarArrive | Op::MbarExpect | Op::MbarComplete => self.mbarrier(warp, bases, i, mask)?,
                Op::MbarWait => return self.wait_for_mbarrier(warp, bases, i, mask),
                Op::MbarPending => return Err("mbarrier.pending_count".to_string().into()),
                Op::BulkLoad => self.load_bulk(warp, bases, i, of)?,
                Op::BulkStore => self.store_bulk(warp, bases, i, of)?,
                Op::TensorLoad => self.load_box(warp, bases, i, of)?,
                Op::TensorStore => self.store_box(warp, bases, i, of)?,
                Op::StAsync => self.store_async(warp, bases, i, of)?,
                Op::BulkShared => self.copy_shared(warp, bases, i, of)?,
                Op::CpAsync => self.copy_small(warp, bases, i, of)?,
                Op::BulkCommit => self.commit_copies(warp, mask),
                Op::BulkWait => {
                    if !self.copies_done(warp, i, mask) {
                        return Ok(Then::Stall);
                    }
                }
                Op::LdMatrix | Op::StMatrix => self.matrices(warp, bases, i, of)?,
                Op::Mma => self.multiply(bases, i),
                Op::Wgmma => self.issue(warp, bases, i, of)?,
                Op::WgmmaCommit => warp.product_group += 1,
                Op::WgmmaWait => self.wait_for_products(warp, bases, i.n)?,
                _ => self.slow(bases, i, mask)?,
            }
        }
        Ok(Then::On)
    }
}
