//! Moves between registers, of parts of registers too, and conversions between types.

use super::instruction::Parsed;
use super::operands::Operand;
use super::*;

impl Body<'_, '_> {
    /// Whether it is one of these.
    pub(super) fn conversion(&mut self, p: &Parsed<'_>) -> Result<bool, String> {
        let &Parsed { base, mods, class, operands: o, .. } = p;
        match base {
            "mov" => {
                if let Operand::Vector(parts) = &o[0] {
                    let (a, aw) = self.value(&o[1], class)?;
                    let slots = self.slots(parts, 0)?;
                    let n = slots.len() as u8;
                    let bits = class / n;
                    let x = self.decoder.list(slots);
                    self.emit(Op::Unpack, |inst| (inst.a, inst.aw, inst.n, inst.dw, inst.x) = (a, aw, n, bits, x));
                } else if let Operand::Vector(parts) = &o[1] {
                    let (d, dw) = self.value(&o[0], class)?;
                    let n = parts.len() as u8;
                    let bits = class / n;
                    let slots = self.slots(parts, bits)?;
                    let x = self.decoder.list(slots);
                    self.emit(Op::Pack, |inst| (inst.d, inst.dw, inst.n, inst.aw, inst.x) = (d, dw, n, bits, x));
                } else if let Operand::Special(special) = o[1] {
                    let (d, dw) = self.value(&o[0], class)?;
                    self.emit(Op::Special, |inst| (inst.d, inst.dw, inst.x) = (d, dw, special as i32));
                } else {
                    let (d, dw) = self.value(&o[0], class)?;
                    if let Operand::Name(name) = &o[1]
                        && let Some(at) = self.local(name)
                    {
                        // The address within local memory.
                        let a = self.decoder.constant(u64::from(at), dw);
                        self.emit(Op::Mov, |inst| (inst.d, inst.dw, inst.a) = (d, dw, a));
                        return Ok(true);
                    }
                    let a = self.exact(&o[1], dw)?;
                    self.emit(Op::Mov, |inst| (inst.d, inst.dw, inst.a) = (d, dw, a));
                }
            }
            "cvt" => {
                let [to, from] = p.types()[..] else { return self.refuse(p) };
                let flag = p.flags();
                let mut round = Round::None;
                for name in mods {
                    round = match *name {
                        "rn" | "rni" => Round::Nearest,
                        "rz" | "rzi" => Round::Zero,
                        "rm" | "rmi" => Round::Down,
                        "rp" | "rpi" => Round::Up,
                        "rna" => Round::Away,
                        _ => round,
                    };
                }
                let integral = p.has("rni") || p.has("rzi") || p.has("rmi") || p.has("rpi");
                let (d, dw) = self.value(&o[0], to.bytes().max(2) as Class)?;
                if o.len() == 3 {
                    let (a, b) = (self.slot(&o[1], 4)?, self.slot(&o[2], 4)?);
                    self.emit(Op::CvtPair, |inst| {
                        (inst.ty, inst.ty2, inst.d, inst.dw, inst.a, inst.b, inst.n, inst.flag) = (to, from, d, dw, a, b, round as u8, flag)
                    });
                } else {
                    let (a, aw) = self.value(&o[1], from.bytes().max(2) as Class)?;
                    self.emit(Op::Cvt, |inst| {
                        (inst.ty, inst.ty2, inst.d, inst.dw, inst.a, inst.aw, inst.n, inst.flag, inst.x) =
                            (to, from, d, dw, a, aw, round as u8, flag, integral as i32)
                    });
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
