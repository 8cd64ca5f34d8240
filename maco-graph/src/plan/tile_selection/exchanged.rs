//! Tiles that ranks exchange: which way they go by their size, in how many tasks, and what they cost.
//!
//! What is asked of the way does not belong here (`ways`).

use maco_abi::ExchangeTask;

use super::super::region::tensor_of;
use super::super::split_k::SplitK;
use super::super::ways::{self, Way, Why};
use super::super::{Options, PlanError, Site, nccl_chunks};
use super::{Choice, Chooser, CostModel, Time, bytes, digits, volume};
use crate::ir::Call;
use crate::spec::{Access, Collective, Index, Via};

impl Choice {
    /// Whether ranks exchange its tiles by signals.
    pub fn is_signalled(&self, call: &Call) -> bool {
        call.task.collective().is_some() && self.split_k.parts > 1
    }

    /// With several tasks for each tile if ranks exchange it by signals, as its body finds too (`operations/collective.rs` of `maco-device`): by its size, whatever of it is
    /// inside the tensor. They are those of [`ExchangeTask`]. `asked`: which way it is to go.
    pub(super) fn apart(self, call: &Call, asked: Way, options: &Options) -> Choice {
        let Some(collective) = call.task.collective() else { return self };
        let sums = matches!(collective, Collective::AllReduce(_));
        let two_shot = match asked.via {
            Via::TwoShot => options.ranks > 1,
            Via::OneShot => false,
            Via::Automatic | Via::Packets | Via::Nccl => options.ranks > 2,
        };
        let (via, split_k) = match self.goes_with_signals(call) {
            false => (Via::Packets, self.split_k),
            true if sums && two_shot => (Via::TwoShot, SplitK { whole: 0, parts: ExchangeTask::TWO_SHOT }),
            true => (Via::OneShot, SplitK { whole: 0, parts: ExchangeTask::ONE_SHOT }),
        };
        let why = if via == asked.via || asked.via == Via::Automatic { asked.why } else { Why::OnlyWay };
        let way = (!matches!(collective, Collective::Channel(_))).then_some(Way { via, why });
        Choice { split_k, way, ..self }
    }

    /// Whether ranks exchange tiles of this size by signals: large ones, if all ranks answer.
    fn goes_with_signals(&self, call: &Call) -> bool {
        call.task.collective().is_some_and(Collective::is_answered) && self.is_large(call)
    }

    /// Whether a tile is large enough for signals: then there is code for it in several tasks.
    pub fn is_large(&self, call: &Call) -> bool {
        let written = call.task.params.iter().filter_map(tensor_of).find(|param| param.access == Access::Write);
        written.is_some_and(|param| match param.region {
            [.., Index::Tile(rows), Index::Tile(cols)] => {
                let size = |axis: u8| u64::from(self.tile[usize::from(axis)]);
                maco_abi::is_signalled(size(*rows), size(*cols), bytes(call, param))
            }
            _ => false,
        })
    }

    /// Whether tiles of this size go this way.
    pub(super) fn goes_via(&self, call: &Call, via: Via) -> bool {
        match via {
            Via::Automatic | Via::Nccl => true,
            Via::Packets => !self.goes_with_signals(call),
            Via::OneShot | Via::TwoShot => self.goes_with_signals(call),
        }
    }
}

impl Chooser {
    /// What is asked of the way of `call`, which has passed [`super::super::check::call`]; and if nothing is, whether it has a choice.
    pub fn asked(&mut self, site: Site, call: &Call, options: &Options) -> Way {
        if call.task.collective().is_none() {
            return Way { via: Via::Automatic, why: Why::Model };
        }
        self.collect_uses(call);
        let asked = ways::asked(call, || self.can_nccl(site, call), options);
        if asked.via != Via::Automatic || self.has_ways(site, call, options) { asked } else { Way { why: Why::OnlyWay, ..asked } }
    }

    /// What NCCL exchanges of `call`, chunk by chunk; none of what it cannot.
    pub(super) fn chunks(&self, site: Site, call: &Call) -> Result<Option<Choice>, PlanError> {
        let form = call.task.own_form();
        let whole = self.tile_grid(site, form, digits(form.spec, form.spec.tile_variants() - 1))?;
        Ok(nccl_chunks::of(call, whole))
    }

    fn can_nccl(&self, site: Site, call: &Call) -> bool {
        self.chunks(site, call).is_ok_and(|chunks| chunks.is_some())
    }

    /// Whether a collective can go more than one way.
    fn has_ways(&self, site: Site, call: &Call, options: &Options) -> bool {
        if options.ranks == 1 || call.task.collective().is_none() {
            return false;
        }
        let form = call.task.own_form();
        let is_allowed = |index: &u32| call.tile.as_ref().is_none_or(|tile| form.spec.variant(tile) == Some(*index));
        let tiles = (0..form.spec.tile_variants()).filter(is_allowed);
        let choices = tiles.filter_map(|index| self.tile_grid(site, form, digits(form.spec, index)).ok());
        let (large, small): (Vec<Choice>, Vec<Choice>) = choices.partition(|choice| choice.goes_with_signals(call));
        let sums = matches!(call.task.collective(), Some(Collective::AllReduce(_)));
        !large.is_empty() && (sums || !small.is_empty()) || options.nccl && self.can_nccl(site, call)
    }
}

impl CostModel<'_> {
    /// Of tiles that ranks exchange: what does not depend on their bytes, most of all how long they travel, and what does.
    pub(super) fn exchange(&self, choice: &Choice) -> Time {
        let bytes = self.operands().filter(|(param, _)| param.access.writes()).map(|(param, view)| {
            let elements = volume(choice, param, view);
            elements * f64::from(bytes(self.call, param))
        });
        let (fixed, rate) = if choice.goes_with_signals(self.call) {
            (self.model.signalled_tile, self.model.signalled_rate)
        } else {
            (self.model.packet_tile, self.model.packet_rate)
        };
        let waves = self.waves(choice.tiles() as f64);
        Time { load: waves * bytes.sum::<f64>() / rate, rest: waves * fixed }
    }
}
