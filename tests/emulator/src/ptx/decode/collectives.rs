//! What the lanes of a warp do together: votes, exchanges, reductions.

use super::instruction::Parsed;
use super::operands::Operand;
use super::*;

impl Body<'_, '_> {
    /// Whether it is one of these.
    pub(super) fn collective(&mut self, p: &Parsed<'_>) -> Result<bool, String> {
        let &Parsed { base, ty, class, operands: o, .. } = p;
        match base {
            "vote" => {
                let kind = p.which(&["all", "any", "uni", "ballot"]).unwrap_or(0);
                let d = self.slot(&o[0], if kind == 3 { 4 } else { 1 })?;
                let a = self.slot(&o[1], 1)?;
                let b = self.slot(&o[2], 4)?;
                self.emit(Op::Vote, |inst| (inst.n, inst.d, inst.a, inst.b) = (kind, d, a, b));
            }
            "shfl" => {
                let kind = p.which(&["up", "down", "bfly", "idx"]).unwrap_or(0);
                let (d, p) = self.pair(&o[0])?;
                let (a, b, c, mask) = (self.slot(&o[1], 4)?, self.slot(&o[2], 4)?, self.slot(&o[3], 4)?, self.slot(&o[4], 4)?);
                let x = self.decoder.list(vec![p, mask]);
                self.emit(Op::Shfl, |inst| (inst.n, inst.d, inst.a, inst.b, inst.c, inst.x) = (kind, d, a, b, c, x));
            }
            "match" => {
                let (d, c) = self.pair(&o[0])?;
                let a = self.exact(&o[1], class)?;
                let b = self.slot(&o[2], 4)?;
                let n = p.has("all") as u8;
                self.emit(Op::Match, |inst| (inst.ty, inst.n, inst.d, inst.c, inst.a, inst.b) = (ty, n, d, c, a, b));
            }
            "redux" => {
                let kind = p.which(&["add", "min", "max", "and", "or", "xor"]).unwrap_or(0);
                let (d, a, b) = (self.slot(&o[0], 4)?, self.slot(&o[1], 4)?, self.slot(&o[2], 4)?);
                self.emit(Op::Redux, |inst| (inst.ty, inst.n, inst.d, inst.a, inst.b) = (ty, kind, d, a, b));
            }
            "elect" => {
                let Operand::Pair(d, p) = &o[0] else { return self.error("elect") };
                let (d, p, b) = (self.slot(d, 4)?, self.slot(p, 1)?, self.slot(&o[1], 4)?);
                self.emit(Op::Elect, |inst| (inst.d, inst.c, inst.b) = (d, p, b));
            }
            "activemask" => {
                let d = self.slot(&o[0], 4)?;
                self.emit(Op::ActiveMask, |inst| inst.d = d);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
