//! Tables that grow, for graphs built at run time.
//!
//! The same recorder, the same checks, the same codes; a mistake is an error of the method that made it.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use super::dims::{Dim, DimRow};
use super::fault::Fault;
use super::recorder::{CallRow, Recorder, ScalarRow, State, TensorRow};
use super::storage::{Recording, recording};
use super::{Argument, CallSite, Code, Element, Kind, NO_SITE, Placement, ScalarType, TaskSpec, Value, Via, View};

/// Dimension rows one call can add: one constant for each axis and step of an expression.
const SPARE_DIMS: usize = 64;

/// A recording that grows call by call.
///
/// Sites are the arguments of the call being made: site 0 is the callee, site `n + 1` argument `n`. Tensors keep a site of their own
/// ([`NO_SITE`]), so that what [`Owned::finish`] finds names the tensor only.
pub struct Owned {
    state: State,
    dims: Vec<DimRow>,
    tensors: Vec<TensorRow>,
    scalars: Vec<ScalarRow>,
    calls: Vec<CallRow>,
    operands: Vec<View>,
    values: Vec<Value>,
    faults: Vec<Option<Fault>>,
}

/// A mistake of a run-time graph: what const evaluation would have said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct BuildError {
    /// Its code.
    pub code: Code,
    /// Code, sentence and help line.
    pub text: String,
}

/// What follows a call: `linear(x, w, y).tile(64, 128).split_k(2).priority(1).drain()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions<'a> {
    /// What the accumulator is rounded to, if not to the element of the signature: the dispatch must have code for it.
    pub result: Option<Element>,
    /// Forced tile sizes, one per grid axis.
    pub tile: Option<&'a [u32]>,
    /// Forced number of split-K parts of each tile.
    pub split: Option<u32>,
    /// Larger is earlier among ready tasks.
    pub priority: i32,
    /// With static lists, workers claim the tasks by ticket.
    pub drain: bool,
    /// How tiles of an all-reduce go to the other ranks.
    pub via: Via,
}

impl Default for Owned {
    fn default() -> Self {
        Owned::new()
    }
}

impl Owned {
    /// An empty recording: all sizes will be numbers.
    pub fn new() -> Owned {
        Owned {
            state: State { built: true, ..State::new(&[], false) },
            dims: Vec::new(),
            tensors: Vec::new(),
            scalars: Vec::new(),
            calls: Vec::new(),
            operands: Vec::new(),
            values: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// A recorder with room for one more operation and `sites` fault slots, all empty.
    fn recorder(&mut self, sites: usize) -> Recorder<'_> {
        let counts = self.state.counts;
        grow(&mut self.dims, counts.dims + SPARE_DIMS, DimRow::EMPTY);
        grow(&mut self.tensors, counts.tensors + 1, TensorRow::EMPTY);
        grow(&mut self.scalars, counts.scalars + 1, ScalarRow::EMPTY);
        grow(&mut self.calls, counts.calls + 1, CallRow::EMPTY);
        grow(&mut self.operands, counts.operands + 8, View::NONE);
        grow(&mut self.values, counts.values + 32, Value::Integer(0));
        self.faults.clear();
        self.faults.resize(sites, None);
        Recorder {
            state: &mut self.state,
            dims: &mut self.dims,
            tensors: &mut self.tensors,
            scalars: &mut self.scalars,
            calls: &mut self.calls,
            operands: &mut self.operands,
            values: &mut self.values,
            faults: &mut self.faults,
        }
    }

    /// The recording so far.
    pub fn recording(&self) -> Recording<'_> {
        recording(&self.state, &self.dims, &self.tensors, &self.scalars, &self.calls, &self.operands, &self.values, &self.faults)
    }

    fn outcome<T>(&self, value: T) -> Result<T, BuildError> {
        let recording = self.recording();
        match recording.first_fault() {
            Some(fault) => Err(BuildError { code: fault.kind.code(), text: recording.message(fault).as_str().to_owned() }),
            None => Ok(value),
        }
    }

    /// A number as a dimension.
    ///
    /// # Errors
    /// A number beyond 2⁶³ - 1.
    pub fn size(&mut self, size: u64) -> Result<Dim, BuildError> {
        let dim = self.recorder(1).constant(size, 0);
        self.outcome(dim)
    }

    /// Declares a tensor: a parameter, or a temp with [`Kind::Temp`]. Parameters come first.
    ///
    /// # Errors
    /// Too many axes, or a size beyond 2⁶³ - 1.
    pub fn tensor(&mut self, name: &str, kind: Kind, element: Element, shape: &[u64], placement: Placement) -> Result<View, BuildError> {
        let dims = shape.iter().map(|&size| self.size(size)).collect::<Result<Vec<Dim>, _>>()?;
        let view = self.recorder(1).tensor(intern(name), kind, element, &dims, placement, 0);
        if !view.none() {
            self.tensors[view.tensor as usize].site = NO_SITE;
        }
        self.outcome(view)
    }

    /// Marks a tensor symmetric: it lies where other ranks store.
    pub fn symmetric(&mut self, view: View) {
        if let (false, Some(row)) = (view.none(), self.tensors.get_mut(view.tensor as usize)) {
            row.symmetric = true;
        }
    }

    /// Declares a run-time scalar.
    pub fn scalar(&mut self, name: &str, ty: ScalarType) -> Value {
        self.recorder(0).scalar(intern(name), ty)
    }

    /// `view.slice(axis, start..end)`
    ///
    /// # Errors
    /// No such axis, or a range beyond it.
    pub fn slice(&mut self, view: View, axis: usize, range: std::ops::Range<u64>) -> Result<View, BuildError> {
        let (start, end) = (self.size(range.start)?, self.size(range.end)?);
        let view = self.recorder(1).slice(view, axis, Some(start), Some(end), 0);
        self.outcome(view)
    }

    /// `view.split(axis, groups)`
    ///
    /// # Errors
    /// No such axis, or no groups.
    pub fn split(&mut self, view: View, axis: usize, groups: u64) -> Result<View, BuildError> {
        let groups = self.size(groups)?;
        let view = self.recorder(1).split(view, axis, groups, 0);
        self.outcome(view)
    }

    /// `view.swap(a, b)`
    ///
    /// # Errors
    /// No such axis.
    pub fn swapped(&mut self, view: View, a: usize, b: usize) -> Result<View, BuildError> {
        let view = self.recorder(1).swapped(view, a, b, 0);
        self.outcome(view)
    }

    /// `view.t()`
    ///
    /// # Errors
    /// Fewer than two axes.
    pub fn transposed(&mut self, view: View) -> Result<View, BuildError> {
        let view = self.recorder(1).transposed(view, 0);
        self.outcome(view)
    }

    /// Calls a task: `slot` is the number of its first instance in the dispatch that will run it.
    ///
    /// # Errors
    /// What const evaluation would say about the same call; the call stays in the recording, so stop building.
    pub fn call(
        &mut self,
        task: &'static TaskSpec,
        slot: u32,
        arguments: &[Argument<'_>],
        options: CallOptions<'_>,
    ) -> Result<(), BuildError> {
        let CallOptions { result, tile, split, priority, drain, via } = options;
        let first_tile = arguments.len() as u32 + 1;
        let site = CallSite {
            slot,
            path: 0,
            arguments: 1,
            result,
            fused: &[],
            prologue_site: 0,
            epilogue_site: 0,
            fused_arguments: &[],
            fused_site: 0,
            tile,
            tile_site: first_tile,
            split,
            split_site: 0,
            priority,
            drain,
            via,
            via_site: 0,
        };
        let sites = first_tile as usize + tile.map_or(0, <[u32]>::len) + 1;
        self.recorder(sites).call(task, &site, arguments);
        self.outcome(())
    }

    /// The end of the graph.
    ///
    /// # Errors
    /// A temp nobody reads, an `Out` nobody writes.
    pub fn finish(&mut self) -> Result<Recording<'_>, BuildError> {
        // Every finding goes to one slot: the first is told.
        self.state.redirect = 0;
        self.recorder(1).finish();
        self.state.redirect = NO_SITE;
        self.outcome(())?;
        Ok(self.recording())
    }
}

fn grow<T: Clone>(table: &mut Vec<T>, len: usize, fill: T) {
    if table.len() < len {
        table.resize(len.max(table.len() * 2), fill);
    }
}

/// A name that lives as long as the program; equal names share memory, so that this is bounded by the names a program uses.
pub fn intern(name: &str) -> &'static str {
    static NAMES: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
            names.insert(kept);
            kept
        }
    }
}
