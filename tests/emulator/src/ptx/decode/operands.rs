//! Operands, and the slots that they are read from.

use maco_ptx::{Token, number};

use super::instruction::Parsed;
use super::*;

#[derive(Clone, Debug)]
pub(super) enum Operand {
    Register(Slot, Class),
    Number(u64),
    Name(String),
    Special(Special),
    Not(Box<Operand>),
    Pair(Box<Operand>, Box<Operand>),
    Vector(Vec<Operand>),
    /// Base, offset, coordinates.
    Address(Box<Operand>, i64, Vec<Operand>),
    Names(Vec<String>),
    Nothing,
}

fn special(word: &str) -> Option<Special> {
    use Special::*;
    Some(match word {
        "%tid.x" | "%tid" => TidX,
        "%tid.y" => TidY,
        "%tid.z" => TidZ,
        "%ntid.x" => NtidX,
        "%ntid.y" => NtidY,
        "%ntid.z" => NtidZ,
        "%ctaid.x" => CtaidX,
        "%ctaid.y" => CtaidY,
        "%ctaid.z" => CtaidZ,
        "%nctaid.x" => NctaidX,
        "%nctaid.y" => NctaidY,
        "%nctaid.z" => NctaidZ,
        "%laneid" => Lane,
        "%warpid" => Warp,
        "%nwarpid" => Nwarp,
        "%smid" => Sm,
        "%nsmid" => Nsm,
        "%gridid" => Grid,
        "%clock" => Clock,
        "%clock_hi" => ClockHi,
        "%clock64" => Clock64,
        "%globaltimer" => Timer,
        "%globaltimer_lo" => TimerLo,
        "%globaltimer_hi" => TimerHi,
        "%lanemask_eq" => MaskEq,
        "%lanemask_lt" => MaskLt,
        "%lanemask_le" => MaskLe,
        "%lanemask_gt" => MaskGt,
        "%lanemask_ge" => MaskGe,
        "%dynamic_smem_size" => DynamicShared,
        "%total_smem_size" => TotalShared,
        "%cluster_ctaid.x" => ClusterX,
        "%cluster_ctarank" => ClusterRank,
        "%cluster_nctaid.x" | "%cluster_nctarank" => ClusterSize,
        "%clusterid.x" => ClusterId,
        "%nclusterid.x" => Clusters,
        "%cluster_ctaid.y" | "%cluster_ctaid.z" | "%clusterid.y" | "%clusterid.z" => Zero,
        _ => return None,
    })
}

fn class_of_addresses(space: Space) -> Class {
    if space == Space::Shared { 4 } else { 8 }
}

impl Body<'_, '_> {
    pub(super) fn operand(&mut self) -> Result<Operand, String> {
        match self.lexer.next() {
            Token::Mark(b'{') => {
                let mut all = Vec::new();
                loop {
                    all.push(self.operand()?);
                    match self.lexer.next() {
                        Token::Mark(b',') => {}
                        Token::Mark(b'}') => break,
                        other => return self.error(format!("{other:?} in a vector")),
                    }
                }
                Ok(Operand::Vector(all))
            }
            Token::Mark(b'[') => {
                let base = self.operand()?;
                let mut offset = 0i64;
                let mut coordinates = Vec::new();
                loop {
                    match self.lexer.next() {
                        Token::Mark(b']') => break,
                        Token::Mark(sign @ (b'+' | b'-')) => {
                            let negative = sign == b'-' || self.lexer.take(b'-');
                            let Token::Word(word) = self.lexer.next() else { return self.error("an offset") };
                            let Some(value) = number(word) else { return self.error(format!("offset `{word}`")) };
                            offset += if negative { -(value as i64) } else { value as i64 };
                        }
                        Token::Mark(b',') => {
                            let Operand::Vector(all) = self.operand()? else { return self.error("coordinates") };
                            coordinates = all;
                        }
                        other => return self.error(format!("{other:?} in an address")),
                    }
                }
                Ok(Operand::Address(Box::new(base), offset, coordinates))
            }
            Token::Mark(b'(') => {
                let mut names = Vec::new();
                loop {
                    match self.lexer.next() {
                        Token::Word(name) => names.push(name.to_string()),
                        Token::Mark(b')') | Token::End => break,
                        _ => {}
                    }
                }
                Ok(Operand::Names(names))
            }
            Token::Mark(b'!') => Ok(Operand::Not(Box::new(self.operand()?))),
            Token::Mark(b'-') => match self.lexer.next() {
                Token::Word(word) if word.contains('.') => match word.parse::<f64>() {
                    Ok(value) => Ok(Operand::Number((-value).to_bits())),
                    Err(_) => self.error(word),
                },
                Token::Word(word) => match number(word) {
                    Some(value) => Ok(Operand::Number(value.wrapping_neg())),
                    None => self.error(format!("-{word}")),
                },
                other => self.error(format!("{other:?}")),
            },
            Token::Word(word) => {
                let first = if word == "_" {
                    Operand::Nothing
                } else if let Some((slot, class)) = self.register(word) {
                    Operand::Register(slot, class)
                } else if let Some(special) = special(word) {
                    Operand::Special(special)
                } else if word == "WARP_SZ" {
                    Operand::Number(32)
                } else if let Some(value) = number(word) {
                    Operand::Number(value)
                } else {
                    Operand::Name(word.to_string())
                };
                if self.lexer.take(b'|') {
                    let second = self.operand()?;
                    return Ok(Operand::Pair(Box::new(first), Box::new(second)));
                }
                Ok(first)
            }
            other => self.error(format!("{other:?} as an operand")),
        }
    }

    /// Slot and class of a value that is read as `class` if it is a constant.
    pub(super) fn value(&mut self, operand: &Operand, class: Class) -> Result<(Slot, Class), String> {
        match operand {
            Operand::Register(slot, class) => Ok((*slot, *class)),
            Operand::Number(value) => Ok((self.decoder.constant(*value, class), class)),
            Operand::Name(name) => match self.variable(name) {
                Some(address) => Ok((self.decoder.constant(address, class), class)),
                None => self.error(format!("unknown name `{name}`")),
            },
            Operand::Special(special) => {
                let class = if matches!(special, Special::Clock64 | Special::Timer | Special::Grid) { 8 } else { 4 };
                let slot = self.decoder.allocate(size_of_class(class));
                let special = *special;
                self.emit(Op::Special, |inst| (inst.d, inst.dw, inst.x) = (slot, class, special as i32));
                Ok((slot, class))
            }
            Operand::Not(inner) => {
                let (from, _) = self.value(inner, 1)?;
                let slot = self.decoder.allocate(size_of_class(1));
                self.emit(Op::Not, |inst| (inst.ty, inst.d, inst.a) = (Ty::Pred, slot, from));
                Ok((slot, 1))
            }
            Operand::Nothing => Ok((NONE, class)),
            other => self.error(format!("{other:?} as a value")),
        }
    }

    pub(super) fn slot(&mut self, operand: &Operand, class: Class) -> Result<Slot, String> {
        Ok(self.value(operand, class)?.0)
    }

    /// A slot whose register is of this class; a wider or narrower one is converted.
    pub(super) fn exact(&mut self, operand: &Operand, class: Class) -> Result<Slot, String> {
        let (slot, found) = self.value(operand, class)?;
        if found == class || slot == NONE || (found | class) == 6 {
            return Ok(slot);
        }
        let wide = self.decoder.allocate(size_of_class(class));
        self.emit(Op::Cvt, |inst| {
            (inst.d, inst.dw, inst.a, inst.aw) = (wide, class, slot, found);
            inst.ty = if class == 8 { Ty::U64 } else { Ty::U32 };
            inst.ty2 = if found == 8 { Ty::U64 } else { Ty::U32 };
        });
        Ok(wide)
    }

    /// Slot and class of an address's base, and its offset.
    pub(super) fn address(&mut self, operand: &Operand, space: Space) -> Result<(Slot, Class, i32), String> {
        let Operand::Address(base, offset, _) = operand else { return self.error("an address") };
        let class = class_of_addresses(space);
        let (base, offset) = match &**base {
            Operand::Name(name) if self.variable(name).is_some() => {
                (Operand::Number(self.variable(name).unwrap().wrapping_add(*offset as u64)), 0)
            }
            Operand::Number(value) => (Operand::Number(value.wrapping_add(*offset as u64)), 0),
            other => (other.clone(), *offset),
        };
        let (slot, class) = self.value(&base, class)?;
        match i32::try_from(offset) {
            Ok(offset) => Ok((slot, class, offset)),
            Err(_) => self.error("an offset beyond 32 bits"),
        }
    }

    pub(super) fn slots(&mut self, operands: &[Operand], class: Class) -> Result<Vec<Slot>, String> {
        operands.iter().map(|operand| self.slot(operand, class)).collect()
    }

    /// `d` or `d|p`: the second is a predicate.
    pub(super) fn pair(&mut self, operand: &Operand) -> Result<(Slot, Slot), String> {
        match operand {
            Operand::Pair(d, p) => Ok((self.slot(d, 4)?, self.slot(p, 1)?)),
            d => Ok((self.slot(d, 4)?, NONE)),
        }
    }

    /// An address without offset, in a register that is as wide as the space's addresses.
    pub(super) fn bare_address(&mut self, p: &Parsed<'_>, operand: &Operand, space: Space) -> Result<Slot, String> {
        match self.address(operand, space)? {
            (slot, class, 0) if class == class_of_addresses(space) => Ok(slot),
            _ => self.error(format!("`{}` with offsets", p.word)),
        }
    }

    /// What a vector holds, or the one value.
    pub(super) fn parts(operand: &Operand) -> &[Operand] {
        match operand {
            Operand::Vector(all) => all,
            one => std::slice::from_ref(one),
        }
    }

    /// Registers of a vector or of one value, and the widest class.
    pub(super) fn registers(&mut self, operand: &Operand, class: Class) -> Result<(Vec<Slot>, Class), String> {
        let (mut slots, mut width) = (Vec::new(), 0);
        for part in Self::parts(operand) {
            let (slot, class) = self.value(part, class)?;
            if slot != NONE {
                width = width.max(class);
            }
            slots.push(slot);
        }
        Ok((slots, width))
    }
}
