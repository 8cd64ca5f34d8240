//! Loads, stores, atomics, addresses, and fences.

use super::instruction::Parsed;
use super::operands::Operand;
use super::*;

/// What an access of memory or a fence orders, and for whom.
fn order(p: &Parsed<'_>) -> u8 {
    let both = p.base == "membar" || p.has("acq_rel") || p.has("sc");
    let acquires = if both || p.has("acquire") { F_ACQUIRES } else { 0 };
    let releases = if both || p.has("release") { F_RELEASES } else { 0 };
    // Accesses of these two kinds have no scope of their own.
    let system = if p.has("sys") || p.has("volatile") || p.has("mmio") { F_SYSTEM } else { 0 };
    acquires | releases | system
}

/// Whether a load or a store is a weak one, and what it orders.
fn strength(p: &Parsed<'_>) -> u8 {
    if p.which(&["relaxed", "acquire", "release", "volatile", "mmio"]).is_some() { F_RELAXED | order(p) } else { 0 }
}

impl Body<'_, '_> {
    /// Whether it is one of these.
    pub(super) fn memory(&mut self, p: &Parsed<'_>) -> Result<bool, String> {
        let &Parsed { base, mods, ty, class, operands: o, .. } = p;
        match base {
            "ld" | "ldu" => self.load(p)?,
            "st" => self.store(p)?,
            "atom" | "red" => {
                let space = p.space();
                let Some(kind) = p.which(&["add", "inc", "dec", "min", "max", "and", "or", "xor", "exch", "cas"]) else {
                    return self.refuse(p);
                };
                if p.which(&["v2", "v4", "v8"]).is_some() {
                    return self.refuse(p);
                }
                let (d, at) = if base == "atom" { (self.slot(&o[0], class)?, 1) } else { (NONE, 0) };
                let (a, aw, x) = self.address(&o[at], space)?;
                let b = self.exact(&o[at + 1], class)?;
                let c = if kind == 9 { self.exact(&o[at + 2], class)? } else { NONE };
                let flag = F_RELAXED | order(p);
                self.emit(Op::Atom, |inst| {
                    (inst.ty, inst.space, inst.n, inst.d, inst.a, inst.aw, inst.b, inst.c, inst.x, inst.flag) =
                        (ty, space, kind, d, a, aw, b, c, x, flag)
                });
            }
            "cvta" => {
                let (d, dw) = self.value(&o[0], 8)?;
                let space = p.space();
                let mut source = o[1].clone();
                if let Operand::Name(name) = &source
                    && let Some(at) = self.local(name)
                {
                    source = Operand::Number(u64::from(at));
                }
                let a = self.exact(&source, dw)?;
                let op = if p.has("to") { Op::FromGeneric } else { Op::ToGeneric };
                self.emit(op, |inst| (inst.d, inst.dw, inst.a, inst.space) = (d, dw, a, space));
            }
            "isspacep" => {
                let d = self.slot(&o[0], 1)?;
                let a = self.exact(&o[1], 8)?;
                let space = p.space();
                self.emit(Op::IsSpace, |inst| (inst.d, inst.a, inst.space) = (d, a, space));
            }
            "mapa" => {
                let (d, dw) = self.value(&o[0], class)?;
                let a = self.exact(&o[1], dw)?;
                let b = self.exact(&o[2], 4)?;
                let space = p.space();
                self.emit(Op::Mapa, |inst| (inst.d, inst.dw, inst.a, inst.b, inst.space) = (d, dw, a, b, space));
            }
            "createpolicy" => {
                let (d, dw) = self.value(&o[0], 8)?;
                let a = self.decoder.constant(0, dw);
                self.emit(Op::Mov, |inst| (inst.d, inst.dw, inst.a) = (d, dw, a));
            }
            "fence" if p.has("proxy") && p.has("async") => {
                // 1: shared memory, 2: global.
                let spaces = if p.has("global") {
                    2
                } else if mods.iter().any(|m| m.starts_with("shared")) {
                    1
                } else {
                    3
                };
                self.emit(Op::ProxyFence, |inst| inst.n = spaces);
            }
            // What tensor maps are acquired by acquires the rest, too, and other fences of proxies order nothing here.
            "fence" | "membar" => {
                let flag = order(p);
                self.emit(Op::Fence, |inst| inst.flag = flag);
            }
            "prefetch" | "prefetchu" | "discard" | "applypriority" => self.emit(Op::Nop, |_| {}),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn load(&mut self, p: &Parsed<'_>) -> Result<(), String> {
        let &Parsed { ty, operands: o, .. } = p;
        let space = p.space();
        let (slots, dw) = self.registers(&o[0], ty.bytes().max(2) as Class)?;
        if space == Space::Param {
            return self.parameter_access(p, &o[1], slots, dw);
        }
        let n = slots.len() as u8;
        let (a, aw, x) = self.address(&o[1], space)?;
        let d = self.one_or_list(slots);
        let relaxed = strength(p);
        self.emit(Op::Ld, |inst| {
            (inst.ty, inst.n, inst.dw, inst.space, inst.d, inst.a, inst.aw, inst.x, inst.flag) = (ty, n, dw, space, d, a, aw, x, relaxed)
        });
        Ok(())
    }

    fn store(&mut self, p: &Parsed<'_>) -> Result<(), String> {
        let &Parsed { mods, ty, operands: o, .. } = p;
        let space = p.space();
        let (mut slots, dw) = self.registers(&o[1], ty.bytes().max(2) as Class)?;
        if mods[0] == "async" {
            let a = self.bare_address(p, &o[0], Space::Shared)?;
            let mbarrier = self.bare_address(p, &o[2], Space::Shared)?;
            slots.insert(0, mbarrier);
            let x = self.decoder.list(slots);
            self.emit(Op::StAsync, |inst| (inst.ty, inst.dw, inst.a, inst.x) = (ty, dw, a, x));
            return Ok(());
        }
        if slots.contains(&NONE) {
            return self.error("a sink is stored");
        }
        if space == Space::Param {
            return self.parameter_access(p, &o[0], slots, dw);
        }
        let n = slots.len() as u8;
        let (a, aw, x) = self.address(&o[0], space)?;
        let d = self.one_or_list(slots);
        let flag = strength(p);
        self.emit(Op::St, |inst| {
            (inst.ty, inst.n, inst.dw, inst.space, inst.d, inst.a, inst.aw, inst.x, inst.flag) = (ty, n, dw, space, d, a, aw, x, flag)
        });
        Ok(())
    }

    /// A single register stands in its place, several in a list.
    fn one_or_list(&mut self, slots: Vec<Slot>) -> Slot {
        if let [one] = slots[..] { one } else { self.decoder.list(slots) as Slot }
    }

    /// Loads from a parameter, or stores to it.
    fn parameter_access(&mut self, p: &Parsed<'_>, place: &Operand, slots: Vec<Slot>, dw: Class) -> Result<(), String> {
        let ty = p.ty;
        let Operand::Address(base, offset, _) = place else { return self.error("an address") };
        let Operand::Name(name) = &**base else { return self.error("a parameter") };
        let Some((slot, bytes, entry)) = self.parameter(name) else { return self.error(format!("parameter `{name}`")) };
        let offset = *offset as u32;
        let n = slots.len() as u8;
        if offset + ty.bytes() * u32::from(n) > bytes {
            return self.error(format!("beyond parameter `{name}`"));
        }
        let op = match p.base {
            "st" => Op::StParam,
            _ if entry => Op::LdEntry,
            _ => Op::LdParam,
        };
        let x = self.decoder.list(slots);
        self.emit(op, |inst| {
            (inst.ty, inst.n, inst.dw, inst.x) = (ty, n, dw, x);
            (inst.a, inst.b, inst.c) = (slot, offset, bytes);
        });
        Ok(())
    }
}
