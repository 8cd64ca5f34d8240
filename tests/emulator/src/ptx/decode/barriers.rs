//! Barriers of warps, CTAs and clusters, and mbarriers.

use super::instruction::Parsed;
use super::operands::Operand;
use super::*;

impl Body<'_, '_> {
    /// Whether it is one of these.
    pub(super) fn barrier(&mut self, p: &Parsed<'_>) -> Result<bool, String> {
        match p.base {
            "bar" | "barrier" => self.bar(p)?,
            "mbarrier" => self.mbarrier(p)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn bar(&mut self, p: &Parsed<'_>) -> Result<(), String> {
        let o = p.operands;
        if p.has("warp") {
            let b = self.slot(&o[0], 4)?;
            self.emit(Op::BarWarp, |inst| inst.b = b);
            return Ok(());
        }
        if p.has("cluster") {
            self.emit(if p.has("arrive") { Op::ClusterArrive } else { Op::ClusterWait }, |_| {});
            return Ok(());
        }
        // 0: wait, 1: arrive, 2 to 4: reductions.
        let kind = if p.has("arrive") {
            1
        } else if p.has("red") {
            let Some(reduction) = p.which(&["popc", "and", "or"]) else { return self.refuse(p) };
            2 + reduction
        } else {
            0
        };
        let (mut at, mut d, mut c) = (0, NONE, NONE);
        if kind >= 2 {
            d = self.slot(&o[0], if kind == 2 { 4 } else { 1 })?;
            at = 1;
        }
        let a = self.slot(&o[at], 4)?;
        let last = o.len() - (kind >= 2) as usize;
        let b = if at + 1 < last { self.slot(&o[at + 1], 4)? } else { NONE };
        if kind >= 2 {
            c = self.slot(&o[last], 1)?;
        }
        self.emit(Op::Bar, |inst| (inst.n, inst.d, inst.a, inst.b, inst.c) = (kind, d, a, b, c));
        Ok(())
    }

    fn mbarrier(&mut self, p: &Parsed<'_>) -> Result<(), String> {
        let &Parsed { mods, operands: o, .. } = p;
        let remote = p.has("shared::cluster") as u8;
        match mods[0] {
            "init" => {
                let (a, aw, x) = self.address(&o[0], Space::Shared)?;
                let b = self.slot(&o[1], 4)?;
                self.emit(Op::MbarInit, |inst| (inst.a, inst.aw, inst.x, inst.b) = (a, aw, x, b));
            }
            "inval" => {
                let (a, aw, x) = self.address(&o[0], Space::Shared)?;
                self.emit(Op::MbarInval, |inst| (inst.a, inst.aw, inst.x) = (a, aw, x));
            }
            "expect_tx" | "complete_tx" => {
                let (a, aw, x) = self.address(&o[0], Space::Shared)?;
                let b = self.slot(&o[1], 4)?;
                let op = if mods[0] == "expect_tx" { Op::MbarExpect } else { Op::MbarComplete };
                self.emit(op, |inst| (inst.a, inst.aw, inst.x, inst.b, inst.n) = (a, aw, x, b, remote));
            }
            "arrive" | "arrive_drop" => {
                if p.has("noComplete") {
                    return self.refuse(p);
                }
                let (d, at) = if matches!(o[0], Operand::Address(..)) { (NONE, 0) } else { (self.slot(&o[0], 8)?, 1) };
                let (a, aw, x) = self.address(&o[at], Space::Shared)?;
                let b = if at + 1 < o.len() { self.slot(&o[at + 1], 4)? } else { NONE };
                let flag = p.has("expect_tx") as u8 | ((mods[0] == "arrive_drop") as u8) << 1;
                self.emit(Op::MbarArrive, |inst| {
                    (inst.d, inst.a, inst.aw, inst.x, inst.b, inst.flag, inst.n) = (d, a, aw, x, b, flag, remote)
                });
            }
            "try_wait" | "test_wait" => {
                let d = self.slot(&o[0], 1)?;
                let (a, aw, x) = self.address(&o[1], Space::Shared)?;
                let parity = p.has("parity") as u8;
                let b = self.slot(&o[2], if parity == 1 { 4 } else { 8 })?;
                let try_wait = (mods[0] == "try_wait") as u8;
                self.emit(Op::MbarWait, |inst| {
                    (inst.d, inst.a, inst.aw, inst.x, inst.b, inst.flag, inst.n) = (d, a, aw, x, b, parity, try_wait)
                });
            }
            "pending_count" => {
                let d = self.slot(&o[0], 4)?;
                let a = self.slot(&o[1], 8)?;
                self.emit(Op::MbarPending, |inst| (inst.d, inst.a) = (d, a));
            }
            _ => return self.refuse(p),
        }
        Ok(())
    }
}
