//! Which way a collective is asked to go: by its call, by the options, or by a table of what was the fastest; and whether NCCL does any call of a graph, which is known
//! before the workers are counted.
//!
//! Which tiles go that way does not belong here (`tile_selection`), nor how the table is measured (`cargo xtask tune ways`).

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::check;
use super::options::Options;
use super::region::tensor_of;
use super::tile_selection::{Chooser, bytes};
use crate::ir::{Call, Graph, View};
use crate::spec::{Collective, TensorParam, Via};

/// Names of the collectives that a table may have.
const COLLECTIVES: [&str; 7] = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send", "ring"];

/// A line of a table of ways: how the collectives of one name go, between so many ranks, whose largest tensor has so many bytes on a rank. In files ways have their names in
/// the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WayLine {
    /// `all_reduce`, of any reduction, `reduce_scatter`, `all_gather`, `all_to_all`, `broadcast`, `send` or `ring`.
    #[serde(deserialize_with = "collective")]
    pub collective: Cow<'static, str>,
    /// How many ranks, 2 or more.
    #[serde(deserialize_with = "several")]
    pub ranks: u32,
    /// The way. Of other collectives than all-reduces packets are small tiles, one-shot is large ones, and there is no two-shot.
    #[serde(serialize_with = "by_name", deserialize_with = "named")]
    pub via: Via,
    /// Least bytes.
    #[serde(default)]
    pub from_bytes: u64,
    /// The end of the range: fewer bytes than these. None: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below_bytes: Option<u64>,
}

impl WayLine {
    /// Why it can be no line of a table, if so: no bytes, or a way that its collective does not go.
    pub fn fault(&self) -> Option<String> {
        let WayLine { collective, from_bytes, below_bytes, via, .. } = self;
        let answered = !matches!(&**collective, "broadcast" | "send" | "ring");
        let goes = match via {
            Via::Automatic => false,
            Via::Nccl | Via::Packets => true,
            Via::OneShot => answered,
            Via::TwoShot => collective == "all_reduce",
        };
        if below_bytes.is_some_and(|below| below <= *from_bytes) {
            return Some(format!("there is no number from {from_bytes} and below {}", below_bytes.unwrap_or(0)));
        }
        (!goes).then(|| format!("no `{collective}` goes by `{}`", via.name()))
    }

    /// Whether both are for some call.
    pub fn meets(&self, other: &WayLine) -> bool {
        let ends_behind = |line: &WayLine, begin: u64| line.below_bytes.is_none_or(|below| begin < below);
        self.collective == other.collective
            && self.ranks == other.ranks
            && ends_behind(self, other.from_bytes)
            && ends_behind(other, self.from_bytes)
    }

    fn is_for(&self, collective: Collective, ranks: u32, bytes: u64) -> bool {
        name(collective) == Some(&*self.collective)
            && self.ranks == ranks
            && self.from_bytes <= bytes
            && self.below_bytes.is_none_or(|below| bytes < below)
    }
}

/// `all_reduce of 2 ranks, from 0 bytes, below 1048577: Packets`
impl fmt::Display for WayLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} ranks, from {} bytes", self.collective, self.ranks, self.from_bytes)?;
        self.below_bytes.iter().try_for_each(|below| write!(f, ", below {below}"))?;
        write!(f, ": {}", self.via.name())
    }
}

/// Which way a collective goes, and who chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The way.
    pub via: Via,
    /// Who chose it.
    pub why: Why,
}

/// Who chose the way of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// `.via(..)` of the call.
    Call,
    /// [`Options::via`].
    Option,
    /// A line of [`Options::ways`].
    Table,
    /// No line is for it: what its tiles cost by the device model, and of large ones of an all-reduce how many ranks there are.
    Model,
    /// It can go no other way, or not the one that the table, or on one rank the call, says.
    OnlyWay,
}

impl Why {
    /// As plans have it.
    pub const fn name(self) -> &'static str {
        match self {
            Why::Call => "call",
            Why::Option => "option",
            Why::Table => "table",
            Why::Model => "model",
            Why::OnlyWay => "only way",
        }
    }

    /// Whether a call that cannot go this way is an error.
    pub(super) const fn is_demanded(self) -> bool {
        matches!(self, Why::Call | Why::Option)
    }
}

/// Whether NCCL does any call of `graph`, so that multiprocessors have to be free for it. [`Options::workers`] does not matter.
pub fn uses_nccl(graph: &Graph, options: &Options) -> bool {
    let by_nccl = |index: usize| {
        let call = &graph.calls[index];
        if call.task.collective().is_none() {
            return false;
        }
        // What is malformed is said when it is planned.
        let Ok(site) = check::call(graph, index) else { return false };
        Chooser::default().asked(site, call, options).via == Via::Nccl
    };
    options.nccl && check::tensors(graph).is_ok() && (0..graph.calls.len()).any(by_nccl)
}

/// What is asked of the way of `call`; [`Via::Automatic`] if nothing. `can_nccl`: whether NCCL can exchange what it has, in chunks.
pub(super) fn asked(call: &Call, can_nccl: impl Fn() -> bool, options: &Options) -> Way {
    let chosen = Way { via: Via::Automatic, why: Why::Model };
    let Some(collective) = call.task.collective() else { return chosen };
    let has = |via| match via {
        Via::Automatic => false,
        Via::Nccl => options.nccl && collective.by_nccl(),
        Via::Packets | Via::OneShot | Via::TwoShot => matches!(collective, Collective::AllReduce(_)),
    };
    let (said, why) = if call.via == Via::Automatic { (options.via, Why::Option) } else { (call.via, Why::Call) };
    if has(said) {
        return Way { via: said, why };
    }
    let by_nccl = || options.nccl && can_nccl();
    if !options.peers && by_nccl() {
        return Way { via: Via::Nccl, why: Why::OnlyWay };
    }
    let bytes = largest(call);
    let mut lines = options.ways.iter().filter(|line| line.is_for(collective, options.ranks, bytes));
    let line = lines.find(|line| line.via != Via::Nccl || by_nccl());
    line.map_or(chosen, |line| Way { via: line.via, why: Why::Table })
}

/// Bytes of the largest tensor of a call.
fn largest(call: &Call) -> u64 {
    let params = call.task.params.iter().filter_map(tensor_of);
    let one = |(param, view): (&TensorParam, &View)| {
        view.axes.iter().fold(u64::from(bytes(call, param)), |bytes, axis| bytes.saturating_mul(axis.extent))
    };
    params.zip(&call.operands).map(one).max().unwrap_or(0)
}

/// As tables have it; none of a user's own exchange.
fn name(collective: Collective) -> Option<&'static str> {
    Some(match collective {
        Collective::AllReduce(_) => "all_reduce",
        Collective::ReduceScatter(_) => "reduce_scatter",
        Collective::AllGather => "all_gather",
        Collective::AllToAll => "all_to_all",
        Collective::Broadcast => "broadcast",
        Collective::Send => "send",
        Collective::Ring => "ring",
        Collective::Channel(_) => return None,
    })
}

fn collective<'de, D: Deserializer<'de>>(from: D) -> Result<Cow<'static, str>, D::Error> {
    let found = String::deserialize(from)?;
    let known = COLLECTIVES.into_iter().find(|name| *name == found);
    known.map(Cow::Borrowed).ok_or_else(|| D::Error::unknown_variant(&found, &COLLECTIVES))
}

fn several<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let found = u32::deserialize(from)?;
    if found > 1 { Ok(found) } else { Err(D::Error::invalid_value(Unexpected::Unsigned(found.into()), &"2 ranks or more")) }
}

fn by_name<S: Serializer>(via: &Via, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(via.name())
}

fn named<'de, D: Deserializer<'de>>(from: D) -> Result<Via, D::Error> {
    const NAMES: [&str; 4] = [Via::ALL[0].name(), Via::ALL[1].name(), Via::ALL[2].name(), Via::ALL[3].name()];
    let found = String::deserialize(from)?;
    Via::ALL.into_iter().find(|via| via.name() == found).ok_or_else(|| D::Error::unknown_variant(&found, &NAMES))
}
