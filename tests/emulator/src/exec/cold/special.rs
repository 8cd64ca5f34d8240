//! Special registers: who a thread is, and what time it is.

use super::*;

impl Launch {
    pub(in crate::exec) unsafe fn special(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32, steps: u32) {
        let cta = &self.ctas[warp.cta];
        let (block, grid) = (self.config.block, self.config.grid);
        let clusters = |n: u32| n / self.config.cluster;
        let now = self.now + u64::from(steps) * self.tick;
        // SAFETY: a number that the decoder wrote.
        let which: Special = unsafe { std::mem::transmute(i.x as u8) };
        each_lane!(mask, lane, {
            let thread = warp.index * 32 + lane as u32;
            let value: u64 = match which {
                Special::TidX => u64::from(thread % block[0]),
                Special::TidY => u64::from(thread / block[0] % block[1]),
                Special::TidZ => u64::from(thread / block[0] / block[1]),
                Special::NtidX => block[0].into(),
                Special::NtidY => block[1].into(),
                Special::NtidZ => block[2].into(),
                Special::CtaidX => cta.place[0].into(),
                Special::CtaidY => cta.place[1].into(),
                Special::CtaidZ => cta.place[2].into(),
                Special::NctaidX => grid[0].into(),
                Special::NctaidY => grid[1].into(),
                Special::NctaidZ => grid[2].into(),
                Special::Lane => lane as u64,
                Special::Warp => warp.index.into(),
                Special::Nwarp => 64,
                Special::Sm => cta.sm.into(),
                Special::Nsm => self.config.multiprocessors.into(),
                Special::Grid | Special::Zero => 0,
                Special::Clock => now & 0xFFFF_FFFF,
                Special::ClockHi => now >> 32,
                Special::Clock64 => now,
                // The hardware's timer moves in steps of 32 ns.
                Special::Timer => now & !31,
                Special::TimerLo => now & 0xFFFF_FFE0,
                Special::TimerHi => now >> 32,
                Special::MaskEq => 1 << lane,
                Special::MaskLt => (1 << lane) - 1,
                Special::MaskLe => (2 << lane) - 1,
                Special::MaskGt => !((2u64 << lane) - 1) & 0xFFFF_FFFF,
                Special::MaskGe => !((1u64 << lane) - 1) & 0xFFFF_FFFF,
                Special::DynamicShared => self.config.dynamic_shared.into(),
                Special::TotalShared => cta.shared.len() as u64,
                Special::ClusterX | Special::ClusterRank => cta.rank.into(),
                Special::ClusterSize => self.config.cluster.into(),
                Special::ClusterId => clusters(cta.place[0]).into(),
                Special::Clusters => clusters(grid[0]).into(),
            };
            // SAFETY: slots of the program.
            unsafe { set(bases, i.d, i.dw, lane, value) };
        });
    }
}
