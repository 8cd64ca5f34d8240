//! Where warps stand, for launches that do not end.

use std::collections::BTreeMap;

use super::Launch;

impl Launch {
    pub(super) fn standing(&self) -> String {
        let mut places: BTreeMap<(u32, String), Vec<String>> = BTreeMap::new();
        for &at in &self.active {
            let warp = &self.warps[at];
            let mut lanes: BTreeMap<u32, u32> = BTreeMap::new();
            for lane in 0..32 {
                if warp.live >> lane & 1 == 1 {
                    *lanes.entry(warp.pc[lane]).or_default() |= 1 << lane;
                }
            }
            for (pc, mask) in lanes {
                let how = format!("{:?}{}", warp.wait, if warp.parked & mask != 0 { " at a collective" } else { "" });
                let of = format!(
                    "{}.{}{}",
                    self.ctas[warp.cta].linear,
                    warp.index,
                    if mask == u32::MAX { String::new() } else { format!("/{mask:x}") }
                );
                places.entry((pc, how)).or_default().push(of);
            }
        }
        let mut text = String::from("  where warps stand (CTA.warp/lanes):\n");
        for ((pc, how), who) in places {
            let inst = self.program.code[pc as usize];
            let few = who.iter().take(12).cloned().collect::<Vec<_>>().join(" ");
            let name = self.program.function_of(pc);
            text += &format!(
                "    {name} PTX line {} {:?} [{how}]: {} × {few}{}\n",
                inst.line,
                inst.op,
                who.len(),
                if who.len() > 12 { " …" } else { "" }
            );
        }
        for cta in self.ctas.iter().filter(|cta| cta.live_warps > 0).take(4) {
            for (id, barrier) in cta.barriers.iter().enumerate().filter(|(_, barrier)| barrier.arrived > 0) {
                text += &format!("    CTA {}: barrier {id} has {} of {} threads\n", cta.linear, barrier.arrived, barrier.count);
            }
            for (word, bits) in cta.mbarriers.iter().enumerate() {
                for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
                    let at = (word * 64 + bit) * 8;
                    let state = super::mbarrier::State::unpack(u64::from_le_bytes(cta.shared[at..at + 8].try_into().unwrap()));
                    text += &format!("    CTA {}: mbarrier {at:#x} {state:?}\n", cta.linear);
                }
            }
        }
        text + &format!("  {} copies under way\n", self.copies.len())
    }
}
