//! The check of one call against what its task promises: arguments, shapes, options.
//!
//! Calls of graphs are in `graph.rs`, operands of `.first(..)` and `.then(..)` in `fused_op.rs`, reads and writes in `flow.rs`, and one tensor twice in one
//! call in `alias.rs`.

use maco_abi::MAX_SPLIT_K;

use super::bindings::{Bindings, Formal};
use super::fault::FaultKind;
use super::fused_op::{self, FusedOp, Operands};
use super::gemv_form::{Form, position};
use super::recorder::CallRow;
use super::{Access, Argument, CallOverlap, Collective, Element, ElementSpec, Index, Param, Recorder, TaskKind, TaskSpec, Via, View};

/// Where a call stands and what its options say.
#[derive(Clone, Copy, Debug)]
pub struct CallSite<'a> {
    /// First instance of the callee in the caller's dispatch.
    pub slot: u32,
    /// Token of the callee's name.
    pub path: u32,
    /// Token of the first argument; the others follow.
    pub arguments: u32,
    /// What the accumulator is rounded to, if not to the element of the signature: see [`result_of`](super::result_of).
    pub result: Option<Element>,
    /// The functions of `.first(..)`, then those of `.then(..)`.
    pub fused: &'static [FusedOp],
    /// Token of the first of those in `.first(..)`.
    pub prologue_site: u32,
    /// Token of the first of those in `.then(..)`.
    pub epilogue_site: u32,
    /// Their operands.
    pub fused_arguments: &'a [Argument<'a>],
    /// Token of the first of these; the others follow.
    pub fused_site: u32,
    /// Sizes in `.tile(..)`.
    pub tile: Option<&'a [u32]>,
    /// Token of the first of them; the others follow.
    pub tile_site: u32,
    /// Parts in `.split_k(n)`.
    pub split: Option<u32>,
    /// Token of the number.
    pub split_site: u32,
    /// `.priority(n)`
    pub priority: i32,
    /// `.drain()`
    pub drain: bool,
    /// `.via(TwoShot)`
    pub via: Via,
    /// Token of the way.
    pub via_site: u32,
    /// `.overlap_group("name")`, `.overlap_next()`
    pub overlap: CallOverlap,
}

impl Recorder<'_> {
    /// Records the call of a task.
    ///
    /// Const evaluation pays for every function call and every step, so this looks at nothing twice.
    pub const fn call(&mut self, spec: &'static TaskSpec, site: &CallSite<'_>, arguments: &[Argument<'_>]) {
        if self.state.counting {
            self.count(spec);
            return self.count_fused_ops(spec, site.fused);
        }
        let failures = self.state.failures;
        let (params, given) = (spec.params.len(), arguments.len());
        if params != given {
            let missing = if given < params { spec.params[given].name() } else { "" };
            self.arity(spec.name, params, missing, site, given);
        }
        let first_operand = self.state.counts.operands;
        let first_value = self.state.counts.values;
        let mut bindings = Bindings::new(spec.dims, spec.equal);
        let mut known = Operands::NONE;
        let mut rounded = usize::MAX;
        let mut n = 0;
        while n < params {
            let at = site.arguments + n as u32;
            match &spec.params[n] {
                Param::Scalar { name, ty } => {
                    let mut value = super::Value::Integer(0);
                    if n < given {
                        value = self.scalar_argument(spec.name, name, *ty, &arguments[n], at);
                    }
                    self.push_value(value);
                }
                Param::Tensor(param) => {
                    let mut view = View::NONE;
                    if n < given {
                        view = match &arguments[n] {
                            Argument::Tensor(view) => *view,
                            other => self.no_tensor(spec.name, param.name, other, at),
                        };
                    }
                    self.push_operand(view);
                    let formal = Formal {
                        task: spec.name,
                        name: param.name,
                        access: param.access,
                        element: param.element,
                        dims: param.dims,
                        scattered: matches!(param.access, Access::Write) && scattered(param.region),
                    };
                    if view.tensor != u32::MAX && !self.fits(&formal, spec.elements, &view, at, &mut bindings) {
                        view = View::NONE;
                    }
                    if matches!(param.element, ElementSpec::Result) {
                        rounded = known.count;
                    }
                    known.push(formal, view, at);
                }
            }
            n += 1;
        }
        // The last of them may have said what the task runs on.
        if rounded < known.count {
            self.rounds(&known.formals[rounded], &known.views[rounded], site.result, known.sites[rounded], &bindings);
        }
        if !site.fused.is_empty() {
            self.fused_ops(spec, site, &mut known, &mut bindings);
        }
        let Operands { formals, views, sites, count } = &known;
        let (mut n, count) = (0, *count);
        while n < count {
            self.compare(&formals[n], &views[n], sites[n], &bindings);
            n += 1;
        }
        if self.state.failures == failures {
            self.aliases(formals, views, sites, count);
            self.flow(spec.collective(), formals, views, sites, count);
        } else {
            self.forgive_all(arguments);
        }
        if self.state.failures != failures || !spec.stores() {
            // They have not been looked at.
            self.forgive_all(site.fused_arguments);
        }
        self.options(spec, site, bindings.element, first_operand as u32, first_value as u32);
    }

    /// What [`Recorder::call`] would add.
    const fn count(&mut self, spec: &TaskSpec) {
        let (mut n, count) = (0, spec.params.len());
        while n < count {
            match &spec.params[n] {
                Param::Scalar { .. } => self.state.counts.values += 1,
                Param::Tensor(tensor) => {
                    self.state.counts.operands += 1;
                    self.count_dims(tensor.dims);
                }
            }
            n += 1;
        }
        self.state.counts.calls += 1;
    }

    /// The options of a call, and the call itself.
    const fn options(
        &mut self,
        spec: &'static TaskSpec,
        site: &CallSite<'_>,
        element: Option<Element>,
        first_operand: u32,
        first_value: u32,
    ) {
        let element = match element {
            Some(element) => match element.position(spec.elements) {
                Some(position) => position,
                None => 0,
            },
            None => 0,
        };
        let slot = self.state.base + site.slot;
        let (tile, form) = match site.tile {
            Some(tile) => self.tiles(spec, site, tile, element),
            None => ([0; 3], None),
        };
        let split = match site.split {
            Some(parts) => self.parts(if let Some(form) = form { form.spec } else { spec }, site, parts),
            None => 0,
        };
        if !site.fused.is_empty() {
            self.epilogue(spec, site, first_operand);
        }
        let goes = match (site.via, spec.collective()) {
            (Via::Automatic, _) | (_, Some(Collective::AllReduce(_))) => true,
            (Via::Nccl, Some(collective)) => collective.by_nccl(),
            _ => false,
        };
        if !goes {
            self.fault(site.via_site, spec.name, "", FaultKind::ViaWithoutAllReduce);
        }
        if site.overlap.next && spec.collective().is_none() {
            self.fault(site.overlap.next_site, spec.name, "", FaultKind::OverlapNextOfCompute);
        }
        let overlap = CallOverlap { scope: self.state.scope, ..site.overlap };
        self.mark_forms(spec, site, slot, element, form, split);
        let (result, fused, priority, drain, via) = (site.result, site.fused, site.priority, site.drain, site.via);
        self.push_call(CallRow {
            task: spec,
            slot,
            element,
            result,
            first_operand,
            first_value,
            tile,
            split,
            fused,
            priority,
            drain,
            via,
            overlap,
        });
    }

    /// Marks the instances that a plan may use: that of the forced tile, else those of every form that supports the split-K.
    const fn mark_forms(
        &mut self,
        spec: &'static TaskSpec,
        site: &CallSite<'_>,
        slot: u32,
        element: u32,
        forced: Option<Form>,
        split: u32,
    ) {
        if let (Some(Form { spec, first_instance }), Some(tile)) = (forced, site.tile) {
            return self.mark(spec, site, slot + first_instance, element, spec.variant(tile));
        }
        self.mark(spec, site, slot, element, None);
        if let Some(Form { spec, first_instance }) = gemv_form(spec, site, element)
            && split <= spec.max_split_k()
        {
            self.mark(spec, site, slot + first_instance, element, None);
        }
    }

    /// `.split_k(4)`: the number of split-K parts, 0 after a fault.
    const fn parts(&mut self, spec: &'static TaskSpec, site: &CallSite<'_>, parts: u32) -> u32 {
        let fault = if !spec.splits_k() {
            FaultKind::SplitWithoutSum
        } else if parts == 0 || parts > MAX_SPLIT_K {
            FaultKind::SplitCount { found: parts }
        } else {
            return parts;
        };
        self.fault(site.split_site, spec.name, "", fault);
        0
    }

    /// `.first(gelu)` needs an operand A of `cta.mma`, and `.then(gelu)` a store of an accumulator, whose result is not a partial sum of a rank.
    const fn epilogue(&mut self, spec: &'static TaskSpec, site: &CallSite<'_>, first_operand: u32) {
        if fused_op::has_prologue(site.fused) && !matches!(spec.kind, TaskKind::Gemm { .. }) {
            self.fault(site.prologue_site, spec.name, "", FaultKind::FirstWithoutGemm);
            return;
        }
        if matches!(site.fused, [.., FusedOp { on_operand_a: true, .. }]) {
            return;
        }
        if !spec.stores() {
            self.fault(site.epilogue_site, spec.name, "", FaultKind::ThenWithoutStore);
            return;
        }
        let mut operand = first_operand as usize;
        let mut n = 0;
        while n < spec.params.len() {
            if let Param::Tensor(tensor) = &spec.params[n] {
                let view = &self.operands[operand];
                operand += 1;
                if tensor.access.writes() && !view.none() {
                    let row = &self.tensors[view.tensor as usize];
                    if matches!(row.placement, super::Placement::Partial(_)) {
                        let tensor = row.name;
                        self.fault(site.epilogue_site, spec.name, "", FaultKind::ThenOnPartial { tensor });
                    }
                }
            }
            n += 1;
        }
    }

    /// The call of a task that has mistakes of its own: everything passed to it counts as used.
    pub const fn excuse(&mut self, arguments: &[Argument<'_>]) {
        self.forgive_all(arguments);
    }

    pub(super) const fn arity(&mut self, task: &'static str, expected: usize, missing: &'static str, site: &CallSite<'_>, found: usize) {
        let at = if found > expected { site.arguments + expected as u32 } else { site.path };
        self.fault(at, task, "", FaultKind::Arity { expected: expected as u32, found: found as u32, missing });
    }

    /// Reads of a call come before its writes.
    const fn flow(&mut self, collective: Option<Collective>, formals: &[Formal], views: &[View], sites: &[u32], count: usize) {
        let (mut n, mut exchanged) = (0, false);
        while n < count {
            let formal = &formals[n];
            // Ranks exchange the first tensor that they read; the others are read as by any task.
            let beside = exchanged && formal.access.reads();
            exchanged |= formal.access.reads();
            self.placed(if beside { None } else { collective }, formal, &views[n], sites[n]);
            if !matches!(formal.access, Access::Write) {
                self.touch(&views[n], Access::Read, formal.task, formal.name, sites[n]);
            }
            n += 1;
        }
        let mut n = 0;
        while n < count {
            let formal = &formals[n];
            match formal.access {
                Access::Read => {}
                Access::Write if formal.scattered => self.scatter(&views[n], formal.task, formal.name, sites[n]),
                _ => self.touch(&views[n], Access::Write, formal.task, formal.name, sites[n]),
            }
            n += 1;
        }
    }

    /// After a wrong call.
    pub(super) const fn forgive_all(&mut self, arguments: &[Argument<'_>]) {
        let mut n = 0;
        while n < arguments.len() {
            match &arguments[n] {
                Argument::Tensor(view) => self.forgive(view),
                Argument::Array(views) => {
                    let mut v = 0;
                    while v < views.len() {
                        self.forgive(&views[v]);
                        v += 1;
                    }
                }
                Argument::Scalar(_) => {}
            }
            n += 1;
        }
    }

    /// `.tile(64, 128)`: the sizes, and the form that has them.
    const fn tiles(&mut self, spec: &'static TaskSpec, site: &CallSite<'_>, tile: &[u32], element: u32) -> ([u32; 3], Option<Form>) {
        if tile.len() != spec.axes.len() {
            let (expected, found) = (spec.axes.len() as u32, tile.len() as u32);
            self.fault(site.tile_site, spec.name, "", FaultKind::TileCount { expected, found });
            return ([0; 3], None);
        }
        let mut sizes = [0; 3];
        let mut axis = 0;
        while axis < tile.len() {
            sizes[axis] = tile[axis];
            axis += 1;
        }
        match (spec.form(tile, element), gemv_form(spec, site, element)) {
            (Some(form), gemv) if form.first_instance == 0 || gemv.is_some() => return (sizes, Some(form)),
            (_, Some(Form { spec: gemv, .. })) => {
                self.fault(site.tile_site, spec.name, "", FaultKind::TileOfForms { spec, gemv, found: sizes })
            }
            (_, None) => self.wrong_tiles(spec, site, tile),
        }
        ([0; 3], None)
    }

    /// A fault for each size that the only form has not.
    const fn wrong_tiles(&mut self, spec: &'static TaskSpec, site: &CallSite<'_>, tile: &[u32]) {
        let mut axis = 0;
        while axis < tile.len() {
            let tiles = spec.axes[axis].tiles;
            if position(tiles, tile[axis]).is_none() {
                let at = site.tile_site + axis as u32;
                self.fault(at, spec.name, "", FaultKind::Tile { axis: spec.axes[axis].name, tiles, found: tile[axis] });
            }
            axis += 1;
        }
    }
}

/// The GEMV form, if the call may have it: it has no prologue functions.
const fn gemv_form(spec: &'static TaskSpec, site: &CallSite<'_>, element: u32) -> Option<Form> {
    if fused_op::has_prologue(site.fused) { None } else { spec.gemv_form(element) }
}

/// Whether data decides which elements a region holds.
const fn scattered(region: &[Index]) -> bool {
    let (mut n, count) = (0, region.len());
    while n < count {
        if matches!(region[n], Index::Data(_)) {
            return true;
        }
        n += 1;
    }
    false
}

impl Param {
    /// Name in the signature.
    pub const fn name(&self) -> &'static str {
        match self {
            Param::Tensor(tensor) => tensor.name,
            Param::Scalar { name, .. } => name,
        }
    }
}

impl TaskSpec {
    /// Whether the body stores an accumulator, so that an epilogue can be fused into it.
    pub const fn stores(&self) -> bool {
        if self.gemv_operand_b().is_some() {
            return true;
        }
        let mut n = 0;
        while n < self.params.len() {
            if let Param::Tensor(tensor) = &self.params[n]
                && tensor.staged
                && tensor.access.writes()
            {
                return true;
            }
            n += 1;
        }
        false
    }
}
