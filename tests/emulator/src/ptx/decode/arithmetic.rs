//! Arithmetic, logic, comparisons and selections.

use super::instruction::Parsed;
use super::operands::Operand;
use super::*;

/// Element-wise ones: a destination and up to three sources of one type.
fn plain(p: &Parsed<'_>) -> Option<Op> {
    Some(match p.base {
        "add" => Op::Add,
        "sub" => Op::Sub,
        "div" => Op::Div,
        "rem" => Op::Rem,
        "min" => Op::Min,
        "max" => Op::Max,
        "neg" => Op::Neg,
        "abs" => Op::Abs,
        "and" => Op::And,
        "or" => Op::Or,
        "xor" => Op::Xor,
        "not" => Op::Not,
        "brev" => Op::Brev,
        "fma" => Op::Fma,
        "rcp" => Op::Rcp,
        "sqrt" => Op::Sqrt,
        "rsqrt" => Op::Rsqrt,
        "ex2" => Op::Ex2,
        "lg2" => Op::Lg2,
        "sin" => Op::Sin,
        "cos" => Op::Cos,
        "tanh" => Op::Tanh,
        "copysign" => Op::Copysign,
        "mul" if p.ty.float() || matches!(p.ty, Ty::F16x2 | Ty::Bf16x2) => Op::MulLo,
        "mul" if p.has("lo") => Op::MulLo,
        "mul" if p.has("hi") => Op::MulHi,
        "mad" if p.ty.float() => Op::Fma,
        "mad" if p.has("lo") => Op::MadLo,
        "mad" if p.has("hi") => Op::MadHi,
        _ => return None,
    })
}

impl Body<'_, '_> {
    /// Whether it is one of these.
    pub(super) fn arithmetic(&mut self, p: &Parsed<'_>) -> Result<bool, String> {
        let &Parsed { word, base, mods, ty, class, operands: o, .. } = p;
        if matches!(base, "add" | "sub" | "mad") && p.has("cc") || matches!(base, "addc" | "subc" | "madc") {
            return self.error(format!("`{word}`: arithmetic with carry is not supported"));
        }
        if let Some(op) = plain(p) {
            let (d, dw) = self.value(&o[0], class)?;
            let mut sources = [NONE; 3];
            for (to, from) in sources.iter_mut().zip(&o[1..]) {
                *to = self.exact(from, class)?;
            }
            let flag = p.flags();
            self.emit(op, |inst| {
                (inst.ty, inst.d, inst.dw, inst.a, inst.b, inst.c, inst.flag) = (ty, d, dw, sources[0], sources[1], sources[2], flag);
            });
            return Ok(true);
        }
        match base {
            "shl" | "shr" => {
                let d = self.slot(&o[0], class)?;
                let a = self.exact(&o[1], class)?;
                let b = self.exact(&o[2], 4)?;
                self.emit(if base == "shl" { Op::Shl } else { Op::Shr }, |inst| (inst.ty, inst.d, inst.a, inst.b) = (ty, d, a, b));
            }
            "shf" => {
                let (d, a, b, c) = self.four(o)?;
                let n = p.has("wrap") as u8;
                self.emit(if p.has("l") { Op::ShfL } else { Op::ShfR }, |inst| (inst.n, inst.d, inst.a, inst.b, inst.c) = (n, d, a, b, c));
            }
            "bfe" | "bfi" => {
                let d = self.slot(&o[0], class)?;
                let count = if base == "bfe" { 1 } else { 2 };
                let sources: Vec<Slot> = o[1..=count].iter().map(|from| self.exact(from, class)).collect::<Result<_, _>>()?;
                let (at, bits) = (self.exact(&o[count + 1], 4)?, self.exact(&o[count + 2], 4)?);
                if base == "bfe" {
                    self.emit(Op::Bfe, |inst| (inst.ty, inst.d, inst.a, inst.b, inst.c) = (ty, d, sources[0], at, bits));
                } else {
                    self.emit(Op::Bfi, |inst| {
                        (inst.ty, inst.d, inst.a, inst.b, inst.c, inst.x) = (ty, d, sources[0], sources[1], at, bits as i32)
                    });
                }
            }
            "popc" | "clz" | "bfind" => {
                let d = self.slot(&o[0], 4)?;
                let a = self.exact(&o[1], class)?;
                let op = match base {
                    "popc" => Op::Popc,
                    "clz" => Op::Clz,
                    _ => Op::Bfind,
                };
                let n = p.has("shiftamt") as u8;
                self.emit(op, |inst| (inst.ty, inst.d, inst.a, inst.n) = (ty, d, a, n));
            }
            "mul" | "mad" if p.has("wide") => {
                let wide = class * 2;
                let (d, dw) = self.value(&o[0], wide)?;
                let (a, b) = (self.exact(&o[1], class)?, self.exact(&o[2], class)?);
                let c = if base == "mad" { self.exact(&o[3], wide)? } else { NONE };
                let op = if base == "mad" { Op::MadWide } else { Op::MulWide };
                self.emit(op, |inst| (inst.ty, inst.d, inst.dw, inst.a, inst.b, inst.c) = (ty, d, dw, a, b, c));
            }
            "dp4a" => {
                let (d, a, b, c) = self.four(o)?;
                let types = p.types();
                self.emit(Op::Dp4a, |inst| (inst.ty, inst.ty2, inst.d, inst.a, inst.b, inst.c) = (types[0], types[1], d, a, b, c));
            }
            "prmt" => {
                if mods.len() > 1 {
                    return self.refuse(p);
                }
                let (d, a, b, c) = self.four(o)?;
                self.emit(Op::Prmt, |inst| (inst.d, inst.a, inst.b, inst.c) = (d, a, b, c));
            }
            "lop3" => {
                let (d, a, b, c) = self.four(o)?;
                let Operand::Number(table) = o[4] else { return self.error("lop3") };
                self.emit(Op::Lop3, |inst| (inst.d, inst.a, inst.b, inst.c, inst.x) = (d, a, b, c, table as i32));
            }
            "selp" => {
                let (d, dw) = self.value(&o[0], class)?;
                let (a, b) = (self.exact(&o[1], dw)?, self.exact(&o[2], dw)?);
                let c = self.slot(&o[3], 1)?;
                self.emit(Op::Selp, |inst| (inst.dw, inst.d, inst.a, inst.b, inst.c) = (dw, d, a, b, c));
            }
            "setp" | "set" => {
                let Some(&(_, cmp)) = Cmp::ALL.iter().find(|(name, _)| *name == mods[0]) else { return self.refuse(p) };
                let (d, second) = self.pair(&o[0])?;
                let (a, b) = (self.exact(&o[1], class)?, self.exact(&o[2], class)?);
                let combine = p.which(&["and", "or", "xor"]).map_or(0, |at| at + 1);
                let c = if combine != 0 { self.slot(&o[3], 1)? } else { NONE };
                if base == "setp" {
                    self.emit(Op::Setp, |inst| {
                        (inst.ty, inst.n, inst.d, inst.a, inst.b, inst.c, inst.aw, inst.x) =
                            (ty, cmp as u8, d, a, b, c, combine, second as i32)
                    });
                } else {
                    let types = p.types();
                    self.emit(Op::Set, |inst| {
                        (inst.ty, inst.ty2, inst.n, inst.d, inst.a, inst.b, inst.c, inst.aw) =
                            (ty, types[0], cmp as u8, d, a, b, c, combine)
                    });
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A destination and three sources of 32 bits.
    fn four(&mut self, o: &[Operand]) -> Result<(Slot, Slot, Slot, Slot), String> {
        Ok((self.slot(&o[0], 4)?, self.slot(&o[1], 4)?, self.slot(&o[2], 4)?, self.slot(&o[3], 4)?))
    }
}
