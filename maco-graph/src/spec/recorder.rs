//! What a body does while it is replayed: tensors are declared, dimensions computed, calls recorded, mistakes kept.
//!
//! Checks do not belong here: calls are checked in `call.rs` and `graph.rs`, reads and writes in `flow.rs`.

use maco_abi::RANK;

use super::dims::{Dim, DimRow};
use super::fault::{Fault, FaultKind, TensorName};
use super::flow::Kind;
use super::fused_op::FusedOp;
use super::{CallSite, Element, Placement, ScalarType, TaskSpec, Value, Via, View, ViewAxis};

/// No token of the user: a fault there is not reported.
pub const NO_SITE: u32 = u32::MAX;

/// One tensor.
#[derive(Clone, Copy, Debug)]
pub struct TensorRow {
    /// In the user's words.
    pub name: TensorName,
    /// Where it lives.
    pub kind: Kind,
    /// Element type.
    pub element: Element,
    /// Axes.
    pub rank: u8,
    /// Extents, outermost first.
    pub dims: [Dim; RANK],
    /// Spread over the ranks.
    pub placement: Placement,
    /// Lies where other ranks store.
    pub symmetric: bool,
    /// Token that declared it.
    pub site: u32,
    /// Whether anything has written it, or it came with a value.
    pub(super) written: bool,
    /// Whether anything has read it.
    pub(super) read: bool,
    /// The last write that nothing has read yet.
    pub(super) pending: Option<Pending>,
}

/// A write waiting for a reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) task: &'static str,
    pub(super) param: &'static str,
    pub(super) site: u32,
    pub(super) view: View,
}

impl TensorRow {
    /// Fills unused capacity.
    pub const EMPTY: TensorRow = TensorRow {
        name: TensorName { name: "", index: u32::MAX },
        kind: Kind::Temp,
        element: Element::F32,
        rank: 0,
        dims: [Dim::UNKNOWN; RANK],
        placement: Placement::Replicated,
        symmetric: false,
        site: NO_SITE,
        written: false,
        read: false,
        pending: None,
    };
}

/// One run-time scalar.
#[derive(Clone, Copy, Debug)]
pub struct ScalarRow {
    /// Name in the user's source.
    pub name: &'static str,
    /// Its type.
    pub ty: ScalarType,
}

impl ScalarRow {
    /// Fills unused capacity.
    pub const EMPTY: ScalarRow = ScalarRow { name: "", ty: ScalarType::F32 };
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct CallRow {
    /// What it promises.
    pub task: &'static TaskSpec,
    /// Dense number of the task's first instance.
    pub slot: u32,
    /// Which of the task's elements.
    pub element: u32,
    /// What the accumulator is rounded to, if the call says so.
    pub result: Option<Element>,
    /// First of its views.
    pub first_operand: u32,
    /// First of its scalars.
    pub first_value: u32,
    /// Forced tile sizes; 0 where none.
    pub tile: [u32; 3],
    /// Forced number of split-K parts of each tile; 0 where none.
    pub split: u32,
    /// Fused epilogues.
    pub fused: &'static [FusedOp],
    /// Larger is earlier.
    pub priority: i32,
    /// Claimed by whichever worker is free.
    pub drain: bool,
    /// How tiles of an all-reduce go.
    pub via: Via,
}

impl CallRow {
    /// Fills unused capacity.
    pub const EMPTY: CallRow = CallRow {
        task: &TaskSpec {
            name: "",
            kind: super::TaskKind::Tiles,
            axes: &[],
            dims: &[],
            equal: &[],
            elements: &[],
            params: &[],
            gemv: None,
        },
        slot: 0,
        element: 0,
        result: None,
        first_operand: 0,
        first_value: 0,
        tile: [0; 3],
        split: 0,
        fused: &[],
        priority: 0,
        drain: false,
        via: Via::Automatic,
    };
}

/// How much of everything a recording holds, or would hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Rows of dimensions: an upper bound when only counted.
    pub dims: usize,
    /// Tensors.
    pub tensors: usize,
    /// Run-time scalars.
    pub scalars: usize,
    /// Calls.
    pub calls: usize,
    /// Views of all calls.
    pub operands: usize,
    /// Scalar arguments of all calls.
    pub values: usize,
}

/// Everything about a recording that is not in a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) counting: bool,
    /// Whether the graph is built at run time: help lines speak of the builder.
    pub(super) built: bool,
    pub(super) counts: Counts,
    pub(super) symbols: &'static [&'static str],
    pub(super) equal: &'static [(u8, u8)],
    /// 0 and 1, once they are interned.
    pub(super) units: (Dim, Dim),
    /// One bit per task instance in use.
    pub(super) mask: u128,
    /// Added to the slots of calls: the place of the graph being replayed.
    pub(super) base: u32,
    /// Where faults of the graph being replayed go instead.
    pub(super) redirect: u32,
    /// The graph being replayed inside another body.
    pub(super) inside: &'static str,
    /// The call being checked is that of a graph.
    pub(super) graph: bool,
    /// Faults are known already and dropped.
    pub(super) mute: bool,
    /// Faults seen, reported or not.
    pub(super) failures: u32,
}

impl State {
    pub(super) const fn new(symbols: &'static [&'static str], counting: bool) -> State {
        State {
            counting,
            built: false,
            counts: Counts { dims: 0, tensors: 0, scalars: 0, calls: 0, operands: 0, values: 0 },
            symbols,
            equal: &[],
            units: (Dim::UNKNOWN, Dim::UNKNOWN),
            mask: 0,
            base: 0,
            redirect: NO_SITE,
            inside: "",
            graph: false,
            mute: false,
            failures: 0,
        }
    }
}

/// Records calls into tables of a given capacity, in const evaluation or at run time.
pub struct Recorder<'a> {
    pub(super) state: &'a mut State,
    pub(super) dims: &'a mut [DimRow],
    pub(super) tensors: &'a mut [TensorRow],
    pub(super) scalars: &'a mut [ScalarRow],
    pub(super) calls: &'a mut [CallRow],
    pub(super) operands: &'a mut [View],
    pub(super) values: &'a mut [Value],
    pub(super) faults: &'a mut [Option<Fault>],
}

impl Recorder<'_> {
    /// What has been recorded or counted so far.
    pub const fn counts(&self) -> Counts {
        self.state.counts
    }

    /// Keeps the first mistake of a site.
    pub(super) const fn fault(&mut self, site: u32, task: &'static str, param: &'static str, kind: FaultKind) {
        let site = if self.state.redirect == NO_SITE { site } else { self.state.redirect };
        self.fault_at(site, task, param, kind);
    }

    /// Keeps a mistake at a site of the outermost body.
    pub(super) const fn fault_at(&mut self, site: u32, task: &'static str, param: &'static str, kind: FaultKind) {
        if self.state.counting {
            return;
        }
        self.state.failures += 1;
        let site = site as usize;
        if !self.state.mute && site < self.faults.len() && self.faults[site].is_none() {
            self.faults[site] = Some(Fault { inside: self.state.inside, task, graph: self.state.graph, param, kind });
        }
    }

    /// Checks a number the user chose, such as `workers`.
    pub const fn range(&mut self, site: u32, what: &'static str, found: u64, low: u64, high: u64) {
        if found < low || found > high {
            self.fault(site, "", "", FaultKind::Range { what, found, low, high });
        }
    }

    /// Declares a tensor and returns the view of all of it.
    pub const fn tensor(
        &mut self,
        name: &'static str,
        kind: Kind,
        element: Element,
        dims: &[Dim],
        placement: Placement,
        site: u32,
    ) -> View {
        self.element_of(TensorName { name, index: u32::MAX }, kind, element, dims, placement, site)
    }

    /// Marks a tensor symmetric: it lies where other ranks store.
    pub const fn symmetric(&mut self, view: View) {
        if !self.state.counting && !view.none() {
            self.tensors[view.tensor as usize].symmetric = true;
        }
    }

    /// Declares an array of tensors of one shape.
    pub const fn array<const N: usize>(
        &mut self,
        name: &'static str,
        kind: Kind,
        element: Element,
        dims: &[Dim],
        placement: Placement,
        site: u32,
    ) -> [View; N] {
        let mut views = [View::NONE; N];
        let mut n = 0;
        while n < N {
            views[n] = self.element_of(TensorName { name, index: n as u32 }, kind, element, dims, placement, site);
            n += 1;
        }
        views
    }

    const fn element_of(&mut self, name: TensorName, kind: Kind, element: Element, dims: &[Dim], placement: Placement, site: u32) -> View {
        let (zero, unit) = self.units(site);
        let index = self.state.counts.tensors;
        self.state.counts.tensors += 1;
        if self.state.counting {
            return View::NONE;
        }
        if dims.len() > RANK {
            self.fault(site, "", "", FaultKind::Limit { what: "axes", found: dims.len() as u64, limit: RANK as u64 });
        }
        if let Placement::Sharded(axis) = placement
            && axis as usize >= dims.len()
        {
            let rank = dims.len() as u32;
            self.fault(site, "", "", FaultKind::ShardAxis { tensor: name, axis: axis as u32, rank });
        }
        if index >= self.tensors.len() || dims.len() > RANK {
            return View::NONE;
        }
        let row = &mut self.tensors[index];
        row.name = name;
        row.kind = kind;
        row.element = element;
        row.rank = dims.len() as u8;
        row.placement = placement;
        row.symmetric = false;
        row.site = site;
        row.written = kind.given();
        let mut view = View { tensor: index as u32, rank: dims.len() as u8, ..View::NONE };
        let mut n = 0;
        while n < dims.len() {
            row.dims[n] = dims[n];
            view.axes[n] = ViewAxis { axis: n as u8, step: unit, extent: dims[n] };
            view.offset[n] = zero;
            n += 1;
        }
        view
    }

    /// Declares a scalar parameter.
    pub const fn scalar(&mut self, name: &'static str, ty: ScalarType) -> Value {
        let index = self.state.counts.scalars;
        self.state.counts.scalars += 1;
        if !self.state.counting {
            self.scalars[index] = ScalarRow { name, ty };
        }
        Value::Parameter(index as u32, ty)
    }

    /// A temp that is not bound to a name of its own yet: `let h = temp::<bf16, M, K>()` calls it `h`.
    pub const fn temp(&mut self, name: &'static str, element: Element, dims: &[Dim], placement: Placement, site: u32) -> View {
        let site = if self.state.redirect == NO_SITE { site } else { self.state.redirect };
        self.tensor(name, Kind::Temp, element, dims, placement, site)
    }

    /// Adds a call whose operands and values have been pushed.
    pub(super) const fn push_call(&mut self, row: CallRow) {
        let index = self.state.counts.calls;
        self.state.counts.calls += 1;
        if !self.state.counting && index < self.calls.len() {
            self.calls[index] = row;
        }
    }

    pub(super) const fn push_operand(&mut self, view: View) {
        let index = self.state.counts.operands;
        self.state.counts.operands += 1;
        if !self.state.counting && index < self.operands.len() {
            self.operands[index] = view;
        }
    }

    pub(super) const fn push_value(&mut self, value: Value) {
        let index = self.state.counts.values;
        self.state.counts.values += 1;
        if !self.state.counting && index < self.values.len() {
            self.values[index] = value;
        }
    }

    /// The name of the tensor a view shows.
    pub(super) const fn name(&self, view: &View) -> TensorName {
        if view.none() { TensorRow::EMPTY.name } else { self.tensors[view.tensor as usize].name }
    }

    /// Marks the instances of one form that a call may use: the element's, of the forced variant or of all.
    pub(super) const fn mark(&mut self, form: &TaskSpec, site: &CallSite, slot: u32, element: u32, forced: Option<u32>) {
        let variants = form.tile_variants();
        let (first, count) = match forced {
            Some(variant) => (slot + element * variants + variant, 1),
            None => (slot + element * variants, variants),
        };
        if first + count > u128::BITS {
            let found = (first + count) as u64;
            self.fault(site.path, form.name, "", FaultKind::Limit { what: "task instances", found, limit: u128::BITS as u64 });
            return;
        }
        let ones = if count == u128::BITS { u128::MAX } else { (1 << count) - 1 };
        self.state.mask |= ones << first;
    }
}
