//! Copies beside the threads: `cp.async`, bulk and tensor copies.

use super::instruction::Parsed;
use super::operands::Operand;
use super::*;

impl Body<'_, '_> {
    /// Whether it is one of these.
    pub(super) fn copy(&mut self, p: &Parsed<'_>) -> Result<bool, String> {
        match p.base {
            "cp" if p.has("reduce") => return self.refuse(p),
            "cp" if p.has("tensor") => self.tensor_copy(p)?,
            "cp" if p.has("bulk") => self.bulk_copy(p)?,
            "cp" => self.small_copy(p)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn small_copy(&mut self, p: &Parsed<'_>) -> Result<(), String> {
        let o = p.operands;
        if p.has("commit_group") {
            self.emit(Op::CpAsyncCommit, |_| {});
        } else if p.has("wait_group") || p.has("wait_all") {
            let n = match o.first() {
                Some(Operand::Number(n)) => *n as u8,
                _ => 0,
            };
            self.emit(Op::CpAsyncWait, |inst| inst.n = n);
        } else if p.has("mbarrier") {
            return self.refuse(p);
        } else {
            // Copied at once.
            let d = self.bare_address(p, &o[0], Space::Shared)?;
            let a = self.bare_address(p, &o[1], Space::Global)?;
            let Operand::Number(bytes) = o[2] else { return self.refuse(p) };
            let b = match o.get(3) {
                Some(size) => self.exact(size, 4)?,
                None => self.decoder.constant(bytes, 4),
            };
            self.emit(Op::CpAsync, |inst| (inst.d, inst.a, inst.b, inst.n) = (d, a, b, bytes as u8));
        }
        Ok(())
    }

    fn bulk_copy(&mut self, p: &Parsed<'_>) -> Result<(), String> {
        let &Parsed { mods, operands: o, .. } = p;
        match mods[2] {
            "commit_group" => self.emit(Op::BulkCommit, |_| {}),
            "wait_group" => {
                let read = p.has("read") as u8;
                let Operand::Number(n) = o[0] else { return self.error("wait_group") };
                self.emit(Op::BulkWait, |inst| (inst.n, inst.flag) = (n as u8, read));
            }
            "prefetch" => self.emit(Op::Nop, |_| {}),
            to if to.starts_with("shared") => {
                let (op, from) = match to {
                    "shared::cluster" if p.has("shared::cta") => (Op::BulkShared, Space::Shared),
                    _ if p.has("global") => (Op::BulkLoad, Space::Global),
                    _ => return self.refuse(p),
                };
                let d = self.bare_address(p, &o[0], Space::Shared)?;
                let a = self.bare_address(p, &o[1], from)?;
                let b = self.slot(&o[2], 4)?;
                let c = self.bare_address(p, &o[3], Space::Shared)?;
                let x = if op == Op::BulkLoad { self.mask_of_ctas(p, 4)? as i32 } else { 0 };
                self.emit(op, |inst| (inst.d, inst.a, inst.b, inst.c, inst.x) = (d, a, b, c, x));
            }
            "global" => {
                let d = self.bare_address(p, &o[0], Space::Global)?;
                let a = self.bare_address(p, &o[1], Space::Shared)?;
                let b = self.slot(&o[2], 4)?;
                self.emit(Op::BulkStore, |inst| (inst.d, inst.a, inst.b) = (d, a, b));
            }
            _ => return self.refuse(p),
        }
        Ok(())
    }

    fn tensor_copy(&mut self, p: &Parsed<'_>) -> Result<(), String> {
        let &Parsed { word, mods, operands: o, .. } = p;
        if p.has("prefetch") {
            self.emit(Op::Nop, |_| {});
            return Ok(());
        }
        let Some(rank) = mods.iter().find_map(|m| m.strip_suffix('d').and_then(|m| m.parse::<u8>().ok())) else {
            return self.refuse(p);
        };
        if p.which(&["im2col", "tile::gather4", "tile::scatter4"]).is_some() {
            return self.refuse(p);
        }
        let load = mods.iter().position(|m| m.starts_with("shared")) < mods.iter().position(|m| *m == "global");
        let tensor = if load { &o[1] } else { &o[0] };
        let Operand::Address(_, 0, coordinates) = tensor else { return self.error("coordinates") };
        let mut slots = self.slots(coordinates, 4)?;
        if slots.len() != rank as usize {
            return self.error(format!("`{word}`: coordinates"));
        }
        let (map, _, _) = self.address(tensor, Space::Generic)?;
        if load {
            let d = self.bare_address(p, &o[0], Space::Shared)?;
            let b = self.bare_address(p, &o[2], Space::Shared)?;
            slots.push(self.mask_of_ctas(p, 3)?);
            let x = self.decoder.list(slots);
            self.emit(Op::TensorLoad, |inst| (inst.n, inst.d, inst.a, inst.b, inst.x) = (rank, d, map, b, x));
        } else {
            let d = self.bare_address(p, &o[1], Space::Shared)?;
            let x = self.decoder.list(slots);
            self.emit(Op::TensorStore, |inst| (inst.n, inst.d, inst.a, inst.x) = (rank, d, map, x));
        }
        Ok(())
    }

    /// CTAs that a copy goes to, if it is to several.
    fn mask_of_ctas(&mut self, p: &Parsed<'_>, operand: usize) -> Result<Slot, String> {
        if p.has("multicast::cluster") { self.exact(&p.operands[operand], 4) } else { Ok(NONE) }
    }
}
