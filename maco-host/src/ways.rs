//! The table by which plans choose the ways of collectives: the lines of a tuning file, and behind them those that MACO comes with. What a plan makes of it does not belong
//! here ([`maco_graph::plan::Options::ways`]), nor how lines are measured (`cargo xtask tune ways`).

use std::borrow::Cow;

use maco_graph::plan::WayLine;
use maco_graph::spec::Via;

use crate::device::Device;
use crate::options::PlanOptions;
use crate::tuning::Tuning;

/// Of two H200s (docs/results/several_gpus.md); others have the same, for nobody measured them. Up to 1 MiB packets were faster than NCCL, and from 32 MiB tiles that go to
/// all ranks at once; between the two, and of more ranks, nothing has been measured. NCCL beside the kernel was at no size faster.
const SHIPPED: [WayLine; 2] = [all_reduce(0, Some((1 << 20) + 1), Via::Packets), all_reduce(32 << 20, None, Via::OneShot)];

const fn all_reduce(from_bytes: u64, below_bytes: Option<u64>, via: Via) -> WayLine {
    WayLine { collective: Cow::Borrowed("all_reduce"), ranks: 2, from_bytes, below_bytes, via }
}

/// The table of a plan: the first line that is for a call counts.
#[derive(Debug)]
pub(crate) struct WayTable {
    lines: Vec<WayLine>,
    /// How many are of the tuning file: the first ones.
    measured: usize,
}

impl WayTable {
    /// For plans for `device`, by this file.
    pub(crate) fn of(device: &Device, tuning: Option<&Tuning>) -> WayTable {
        let measured = tuning.map_or(&[][..], |tuning| tuning.ways_of(device));
        let shipped: &[WayLine] = if device.is_gpu() { &SHIPPED } else { &[] };
        WayTable { lines: [measured, shipped].concat(), measured: measured.len() }
    }

    /// Those by which a plan chooses.
    pub(crate) fn lines(&self, options: &PlanOptions) -> Vec<WayLine> {
        self.lines.iter().filter(|line| options.choose_nccl || line.via != Via::Nccl).cloned().collect()
    }

    /// What all ranks must have alike: the options, then each line, by its place.
    pub(crate) fn texts(&self, options: &PlanOptions) -> Vec<String> {
        let nccl = if options.choose_nccl { "may" } else { "may not" };
        let asked = format!("ways of collectives: {} by the options, NCCL {nccl} be chosen", options.via.name());
        let line = |(n, line): (usize, &WayLine)| match n.checked_sub(self.measured) {
            None => format!("line {n} of the tuning file, `maco_tuning.ways[{n}]`: {line}"),
            Some(n) => format!("line {n} of MACO's own table of ways: {line}"),
        };
        std::iter::once(asked).chain(self.lines.iter().enumerate().map(line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(device: &Device, ways: Vec<WayLine>) -> Tuning {
        Tuning { ways, ..Tuning::new(device) }
    }

    #[test]
    fn a_file_of_this_kind_of_device_comes_first() {
        let device = Device::cpu_with(1);
        let own = all_reduce(7, None, Via::Nccl);
        let table = WayTable::of(&device, Some(&tuning(&device, vec![own.clone()])));
        assert_eq!((&table.lines[..], table.measured), (&[own.clone()][..], 1));
        // NCCL's lines are left out where it may not be chosen.
        assert_eq!(table.lines(&PlanOptions::new()), std::slice::from_ref(&own));
        assert_eq!(table.lines(&PlanOptions::new().choose_nccl(false)), []);
        let other = Tuning { device: "another".into(), ..tuning(&device, vec![own]) };
        assert_eq!(WayTable::of(&device, Some(&other)).lines, []);
    }

    #[test]
    fn each_line_has_its_place() {
        let table = WayTable { lines: vec![all_reduce(0, Some(9), Via::Packets), all_reduce(9, None, Via::Nccl)], measured: 1 };
        assert_eq!(
            table.texts(&PlanOptions::new().choose_nccl(false).via(Via::TwoShot)),
            [
                "ways of collectives: TwoShot by the options, NCCL may not be chosen",
                "line 0 of the tuning file, `maco_tuning.ways[0]`: all_reduce of 2 ranks, from 0 bytes, below 9: Packets",
                "line 0 of MACO's own table of ways: all_reduce of 2 ranks, from 9 bytes: Nccl",
            ]
        );
    }

    /// Where GPUs have access to each other, MACO chooses no NCCL by itself, and its lines leave no choice.
    #[test]
    fn what_is_shipped_names_no_nccl() {
        for (n, line) in SHIPPED.iter().enumerate() {
            assert!(line.fault().is_none() && line.via != Via::Nccl && SHIPPED[..n].iter().all(|other| !other.meets(line)), "{line}");
        }
    }
}
