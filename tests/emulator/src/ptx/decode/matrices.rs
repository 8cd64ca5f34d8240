//! Matrices: `wgmma`, `mma`, and how their operands are loaded and stored.

use super::instruction::Parsed;
use super::operands::Operand;
use super::*;

impl Body<'_, '_> {
    /// Whether it is one of these.
    pub(super) fn matrix(&mut self, p: &Parsed<'_>) -> Result<bool, String> {
        let &Parsed { word, base, mods, operands: o, .. } = p;
        match base {
            "wgmma" => self.wgmma(p)?,
            "ldmatrix" | "stmatrix" => {
                let n = 1 << p.which(&["x1", "x2", "x4"]).unwrap_or(0);
                let (vector, address) = if base == "ldmatrix" { (&o[0], &o[1]) } else { (&o[1], &o[0]) };
                let slots = self.slots(Self::parts(vector), 4)?;
                let (a, aw, offset) = self.address(address, Space::Shared)?;
                let c = self.decoder.constant(offset as u32 as u64, 4);
                let x = self.decoder.list(slots);
                let trans = p.has("trans") as u8;
                self.emit(if base == "ldmatrix" { Op::LdMatrix } else { Op::StMatrix }, |inst| {
                    (inst.n, inst.flag, inst.a, inst.aw, inst.c, inst.x) = (n, trans, a, aw, c, x)
                });
            }
            "mma" => {
                if !p.has("row") || !p.has("col") {
                    return self.refuse(p);
                }
                let Some(shape) = mods.iter().find(|m| m.starts_with("m16n8k")) else { return self.refuse(p) };
                let k: u8 = shape[6..].parse().map_err(|_| word.to_string())?;
                let types = p.types();
                let mut slots = Vec::new();
                let mut counts = Vec::new();
                for operand in o {
                    let Operand::Vector(all) = operand else { return self.error("mma") };
                    counts.push(all.len());
                    slots.extend(self.slots(all, 4)?);
                }
                if types.len() != 4 || counts[0] != 4 {
                    return self.refuse(p);
                }
                let x = self.decoder.list(slots);
                self.emit(Op::Mma, |inst| {
                    (inst.ty, inst.ty2, inst.n, inst.aw, inst.dw, inst.x) = (types[1], types[2], k, counts[1] as u8, counts[2] as u8, x)
                });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn wgmma(&mut self, p: &Parsed<'_>) -> Result<(), String> {
        let &Parsed { word, mods, operands: o, .. } = p;
        match mods[0] {
            "fence" => self.emit(Op::WgmmaFence, |_| {}),
            "commit_group" => self.emit(Op::WgmmaCommit, |_| {}),
            "wait_group" => {
                let Operand::Number(n) = o[0] else { return self.error("wait_group") };
                self.emit(Op::WgmmaWait, |inst| inst.n = n as u8);
            }
            "mma_async" => {
                let Some(shape) = mods.iter().find(|m| m.starts_with("m64n")) else { return self.refuse(p) };
                let n: u32 = shape[4..].split('k').next().unwrap_or("").parse().map_err(|_| word.to_string())?;
                let [sum, a_ty, b_ty] = p.types()[..] else { return self.refuse(p) };
                let Operand::Vector(accumulators) = &o[0] else { return self.error("accumulators") };
                let d: Box<[Slot]> = self.slots(accumulators, 4)?.into();
                let expected = if sum == Ty::F16 { n / 4 } else { n / 2 };
                if d.len() != expected as usize {
                    return self.error(format!("`{word}`: {} accumulators", d.len()));
                }
                let (a_registers, a) = match &o[1] {
                    Operand::Vector(all) => (self.slots(all, 4)?.into(), NONE),
                    one => (Box::default(), self.exact(one, 8)?),
                };
                let b = self.exact(&o[2], 8)?;
                let scale = self.slot(&o[3], 1)?;
                let mut numbers = Vec::new();
                for operand in &o[4..] {
                    let Operand::Number(value) = operand else { return self.error(format!("`{word}`: immediates")) };
                    numbers.push(*value as i64);
                }
                let negate = (numbers.first() == Some(&-1), numbers.get(1) == Some(&-1));
                let across = match numbers.get(2..) {
                    Some([a, b]) => (*a == 1, *b == 1),
                    Some([b]) => (false, *b == 1),
                    _ => (false, false),
                };
                self.decoder.program.products.push(Product { n, a_ty, b_ty, sum, d, a_registers, a, b, scale, negate, across });
                let x = self.decoder.program.products.len() as i32 - 1;
                self.emit(Op::Wgmma, |inst| inst.x = x);
            }
            _ => return self.refuse(p),
        }
        Ok(())
    }
}
