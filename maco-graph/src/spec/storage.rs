//! Tables of exactly the needed size for one body, and what can be read from them afterwards.
//!
//! What fills them is in `recorder.rs`.

use super::dims::DimRow;
use super::expression::write_dim;
use super::fault::Fault;
use super::message::Names;
use super::recorder::{CallRow, Counts, Recorder, ScalarRow, State, TensorRow};
use super::{Dim, Text, Value, View};

/// Tables for a body of known counts.
pub struct Storage<
    const DIMS: usize,
    const TENSORS: usize,
    const SCALARS: usize,
    const CALLS: usize,
    const OPERANDS: usize,
    const VALUES: usize,
    const SITES: usize,
> {
    state: State,
    dims: [DimRow; DIMS],
    tensors: [TensorRow; TENSORS],
    scalars: [ScalarRow; SCALARS],
    calls: [CallRow; CALLS],
    operands: [View; OPERANDS],
    values: [Value; VALUES],
    faults: [Option<Fault>; SITES],
}

impl Storage<0, 0, 0, 0, 0, 0, 0> {
    /// Tables without room, for the first pass.
    pub const fn counting(symbols: &'static [&'static str]) -> Self {
        let mut storage = Storage::new(symbols);
        storage.state.counting = true;
        storage
    }
}

impl<
    const DIMS: usize,
    const TENSORS: usize,
    const SCALARS: usize,
    const CALLS: usize,
    const OPERANDS: usize,
    const VALUES: usize,
    const SITES: usize,
> Storage<DIMS, TENSORS, SCALARS, CALLS, OPERANDS, VALUES, SITES>
{
    /// Empty tables; `symbols` are the names of the body's dimensions.
    pub const fn new(symbols: &'static [&'static str]) -> Self {
        Storage {
            state: State::new(symbols, false),
            dims: [DimRow::EMPTY; DIMS],
            tensors: [TensorRow::EMPTY; TENSORS],
            scalars: [ScalarRow::EMPTY; SCALARS],
            calls: [CallRow::EMPTY; CALLS],
            operands: [View::NONE; OPERANDS],
            values: [Value::Integer(0); VALUES],
            faults: [None; SITES],
        }
    }

    /// Access for a replay.
    pub const fn recorder(&mut self) -> Recorder<'_> {
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

    /// What a replay has left.
    pub const fn recording(&self) -> Recording<'_> {
        recording(&self.state, &self.dims, &self.tensors, &self.scalars, &self.calls, &self.operands, &self.values, &self.faults)
    }
}

#[allow(clippy::too_many_arguments)] // One argument for each table.
pub(super) const fn recording<'a>(
    state: &'a State,
    dims: &'a [DimRow],
    tensors: &'a [TensorRow],
    scalars: &'a [ScalarRow],
    calls: &'a [CallRow],
    operands: &'a [View],
    values: &'a [Value],
    faults: &'a [Option<Fault>],
) -> Recording<'a> {
    Recording {
        symbols: state.symbols,
        built: state.built,
        equal: state.equal,
        mask: state.mask,
        failures: state.failures,
        dims: dims.split_at(state.counts.dims).0,
        tensors: tensors.split_at(state.counts.tensors).0,
        scalars: scalars.split_at(state.counts.scalars).0,
        calls: calls.split_at(state.counts.calls).0,
        operands: operands.split_at(state.counts.operands).0,
        values: values.split_at(state.counts.values).0,
        faults,
    }
}

/// A finished replay.
#[derive(Clone, Copy)]
pub struct Recording<'a> {
    pub(crate) built: bool,
    pub(crate) symbols: &'static [&'static str],
    #[cfg_attr(not(feature = "std"), expect(dead_code, reason = "sizes are known on the host only"))]
    pub(crate) equal: &'static [(u8, u8)],
    pub(crate) mask: u128,
    pub(crate) failures: u32,
    pub(crate) dims: &'a [DimRow],
    pub(crate) tensors: &'a [TensorRow],
    pub(crate) scalars: &'a [ScalarRow],
    pub(crate) calls: &'a [CallRow],
    pub(crate) operands: &'a [View],
    pub(crate) values: &'a [Value],
    pub(crate) faults: &'a [Option<Fault>],
}

impl Recording<'_> {
    /// One bit per task instance in use.
    pub const fn mask(self) -> u128 {
        self.mask
    }

    /// Whether nothing is wrong.
    pub const fn clean(self) -> bool {
        self.failures == 0
    }

    /// How much was recorded.
    pub const fn counts(&self) -> Counts {
        Counts {
            dims: self.dims.len(),
            tensors: self.tensors.len(),
            scalars: self.scalars.len(),
            calls: self.calls.len(),
            operands: self.operands.len(),
            values: self.values.len(),
        }
    }

    /// Fails the compilation if something is wrong at this site. The macro calls it once per site, with the span of the user's token.
    #[track_caller]
    pub const fn report(self, site: usize) {
        if let Some(fault) = &self.faults[site] {
            let text = self.message(fault);
            panic!("{}", text.as_str());
        }
    }

    /// The message of a fault.
    pub const fn message(&self, fault: &Fault) -> Text {
        fault.message(&Names { symbols: self.symbols, dims: self.dims, built: self.built })
    }

    /// Adds a dimension in the user's names.
    pub const fn write_dim(&self, text: &mut Text, row: usize) {
        write_dim(text, &Names { symbols: self.symbols, dims: self.dims, built: self.built }, Dim(row as u16), false);
    }

    /// The first fault, by site.
    pub const fn first_fault(&self) -> Option<&Fault> {
        let mut n = 0;
        while n < self.faults.len() {
            if let Some(fault) = &self.faults[n] {
                return Some(fault);
            }
            n += 1;
        }
        None
    }
}
