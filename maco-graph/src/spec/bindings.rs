//! What the arguments of one call say about the dimensions and the element type of its task or graph.
//!
//! The order of checks does not belong here: see `call.rs`.

use maco_abi::RANK;

use super::fault::FaultKind;
use super::{
    Access, Argument, Collective, Dim, DimOp, DimSpec, Element, ElementSpec, Placement, RESULTS, Recorder, ScalarType, Value, View,
};

/// Most symbolic dimensions of one task or graph.
pub(super) const SYMBOLS: usize = 16;

/// One tensor parameter, of a task or of a graph.
#[derive(Clone, Copy)]
pub(super) struct Formal {
    pub(super) task: &'static str,
    pub(super) name: &'static str,
    pub(super) access: Access,
    pub(super) element: ElementSpec,
    pub(super) dims: &'static [DimSpec],
    /// Part of a data-dependent region: what is written is not known, so it hides no earlier write.
    pub(super) scattered: bool,
}

impl Formal {
    /// Fills unused capacity.
    pub(super) const NONE: Formal =
        Formal { task: "", name: "", access: Access::Read, element: ElementSpec::Generic, dims: &[], scattered: false };
}

/// The symbols of one call.
pub(super) struct Bindings {
    pub(super) symbols: &'static [&'static str],
    pub(super) equal: &'static [(u8, u8)],
    /// `equal` is empty.
    plain: bool,
    pub(super) dims: [Dim; SYMBOLS],
    by: [&'static str; SYMBOLS],
    pub(super) element: Option<Element>,
    element_by: &'static str,
}

impl Bindings {
    pub(super) const fn new(symbols: &'static [&'static str], equal: &'static [(u8, u8)]) -> Bindings {
        Bindings {
            symbols,
            equal,
            plain: equal.is_empty(),
            dims: [Dim::UNKNOWN; SYMBOLS],
            by: [""; SYMBOLS],
            element: None,
            element_by: "",
        }
    }

    /// The dimension a symbol stands for.
    pub(super) const fn dim(&self, symbol: u8) -> Dim {
        self.dims[representative(self.equal, symbol) as usize]
    }
}

/// The symbol that stands for all those `where` makes equal to `symbol`.
pub(super) const fn representative(equal: &[(u8, u8)], symbol: u8) -> u8 {
    let mut symbol = symbol;
    let mut n = 0;
    // Each step goes down, so that following the pairs from the start again terminates.
    while n < equal.len() {
        let (a, b) = equal[n];
        let (low, high) = if a < b { (a, b) } else { (b, a) };
        n += 1;
        if symbol == high && low != high {
            symbol = low;
            n = 0;
        }
    }
    symbol
}

impl Recorder<'_> {
    /// Rank, element and bare dimensions of one tensor argument, which is not `View::NONE`.
    pub(super) const fn fits(
        &mut self,
        formal: &Formal,
        listed: &'static [Element],
        view: &View,
        site: u32,
        bindings: &mut Bindings,
    ) -> bool {
        let row = &self.tensors[view.tensor as usize];
        let (tensor, found) = (row.name, row.element);
        let wrong = match (formal.element, bindings.element) {
            (ElementSpec::Fixed(expected), _) if expected as u8 == found as u8 => None,
            (ElementSpec::Fixed(expected), _) => Some(FaultKind::Element { expected, tensor, found }),
            (ElementSpec::Result, _) if found.position(RESULTS).is_some() => None,
            (ElementSpec::Result, _) => Some(FaultKind::NotListed { listed: RESULTS, tensor, found }),
            (ElementSpec::Generic, Some(expected)) if expected as u8 == found as u8 => None,
            (ElementSpec::Generic, Some(expected)) => Some(FaultKind::Mixed { expected, by: bindings.element_by, tensor, found }),
            (ElementSpec::Generic, None) => match found.position(listed) {
                None => Some(FaultKind::NotListed { listed, tensor, found }),
                Some(_) => {
                    bindings.element = Some(found);
                    bindings.element_by = formal.name;
                    None
                }
            },
        };
        if let Some(wrong) = wrong {
            self.fault(site, formal.task, formal.name, wrong);
            return false;
        }
        let rank = formal.dims.len();
        if view.rank as usize != rank {
            let (expected, found) = (rank as u32, view.rank as u32);
            self.fault(site, formal.task, formal.name, FaultKind::Rank { expected, tensor, found });
            return false;
        }
        let mut n = 0;
        while n < rank {
            if let DimSpec::Symbol(symbol) = formal.dims[n] {
                let found = view.axes[n].extent;
                let place = if bindings.plain { symbol as usize } else { representative(bindings.equal, symbol) as usize };
                let expected = bindings.dims[place];
                if expected.0 == u16::MAX {
                    bindings.dims[place] = found;
                    bindings.by[place] = formal.name;
                } else if found.0 != expected.0 && found.0 != u16::MAX {
                    let (symbol, by) = (bindings.symbols[symbol as usize], bindings.by[place]);
                    self.fault(site, formal.task, formal.name, FaultKind::Bound { symbol, expected, by, tensor, found });
                    return false;
                }
            }
            n += 1;
        }
        true
    }

    /// Whether the accumulator is rounded to the element of `view`: what the call has `stated`, else the element that the task runs on.
    pub(super) const fn rounds(&mut self, formal: &Formal, view: &View, stated: Option<Element>, site: u32, bindings: &Bindings) {
        if view.none() {
            return;
        }
        let row = &self.tensors[view.tensor as usize];
        let (tensor, found) = (row.name, row.element);
        let expected = match (stated, bindings.element) {
            (Some(element), _) | (None, Some(element)) => element,
            (None, None) => return,
        };
        if !expected.same(found) {
            self.fault(site, formal.task, formal.name, FaultKind::Rounded { expected, tensor, found });
        }
    }

    /// Compares the numbers and expressions of one parameter's shape, once every name is bound.
    pub(super) const fn compare(&mut self, formal: &Formal, view: &View, site: u32, bindings: &Bindings) {
        let (mut n, rank) = (0, formal.dims.len());
        while n < rank && n < RANK {
            let expected = match formal.dims[n] {
                DimSpec::Symbol(_) => {
                    n += 1;
                    continue;
                }
                DimSpec::Constant(number) => self.constant(number, site),
                DimSpec::Expression(steps) => self.expression(steps, bindings, site),
            };
            let found = view.axes[n].extent;
            if !view.none() && !expected.unknown() && !found.unknown() && !expected.same(found) {
                let tensor = self.name(view);
                self.fault(site, formal.task, formal.name, FaultKind::Fixed { axis: n as u32, expected, tensor, found });
                return;
            }
            n += 1;
        }
    }

    /// Rows that [`Recorder::compare`] can add at most.
    pub(super) const fn count_dims(&mut self, dims: &[DimSpec]) {
        let (mut n, rank) = (0, dims.len());
        while n < rank {
            match dims[n] {
                DimSpec::Symbol(_) => {}
                DimSpec::Constant(_) => self.state.counts.dims += 1,
                // A division adds a numerator, a divisor, a quotient and a sum.
                DimSpec::Expression(steps) => self.state.counts.dims += 4 * steps.len(),
            }
            n += 1;
        }
    }

    /// An expression over a task's symbols, as a dimension of the megakernel.
    const fn expression(&mut self, steps: &[DimOp], bindings: &Bindings, site: u32) -> Dim {
        let mut stack = [Dim::UNKNOWN; 8];
        let mut top = 0;
        let mut n = 0;
        while n < steps.len() {
            let pushed = match steps[n] {
                DimOp::Symbol(symbol) => bindings.dim(symbol),
                DimOp::Constant(number) => self.constant(number, site),
                operation => {
                    if top < 2 {
                        return Dim::UNKNOWN;
                    }
                    top -= 2;
                    let (left, right) = (stack[top], stack[top + 1]);
                    match operation {
                        DimOp::Add => self.add(left, right, site),
                        DimOp::Sub => self.sub(left, right, site),
                        DimOp::Mul => self.mul(left, right, site),
                        _ => self.div(left, right, site),
                    }
                }
            };
            if top == stack.len() {
                self.fault(site, "", "", FaultKind::Complicated);
                return Dim::UNKNOWN;
            }
            stack[top] = pushed;
            top += 1;
            n += 1;
        }
        stack[0]
    }

    /// Something else where a tensor is due.
    pub(super) const fn no_tensor(&mut self, task: &'static str, param: &'static str, argument: &Argument<'_>, site: u32) -> View {
        let kind = match argument {
            Argument::Array(views) => FaultKind::Array { expected: 1, found: views.len() as u32 },
            _ => FaultKind::ScalarForTensor,
        };
        self.fault(site, task, param, kind);
        View::NONE
    }

    /// The scalar of an argument where one is due.
    pub(super) const fn scalar_argument(
        &mut self,
        task: &'static str,
        param: &'static str,
        ty: ScalarType,
        argument: &Argument<'_>,
        site: u32,
    ) -> Value {
        let value = match argument {
            Argument::Scalar(value) => *value,
            Argument::Tensor(view) => {
                if !self.state.counting {
                    let tensor = self.name(view);
                    self.fault(site, task, param, FaultKind::TensorForScalar { tensor });
                }
                return Value::Integer(0);
            }
            Argument::Array(views) => {
                self.fault(site, task, param, FaultKind::Array { expected: 0, found: views.len() as u32 });
                return Value::Integer(0);
            }
        };
        let found = match (value, ty) {
            (Value::Parameter(_, found), _) => {
                if found.same(ty) {
                    return value;
                }
                found.name()
            }
            (Value::F32(_), ScalarType::F32) => return value,
            (Value::F32(_), _) => "f32",
            (Value::Integer(_) | Value::Dimension(_), ScalarType::F32) => "an integer",
            (Value::Integer(number), _) => {
                let (low, high) = match ty {
                    ScalarType::I32 => (i32::MIN as i64, i32::MAX as i64),
                    _ => (0, u32::MAX as i64),
                };
                if number < low || number > high {
                    self.fault(site, task, param, FaultKind::ScalarRange { expected: ty, found: number });
                }
                return value;
            }
            (Value::Dimension(_), _) => return value,
        };
        self.fault(site, task, param, FaultKind::Scalar { expected: ty, found });
        Value::Integer(0)
    }

    /// Whether a task may use a tensor as it is placed.
    pub(super) const fn placed(&mut self, collective: Option<Collective>, formal: &Formal, view: &View, site: u32) {
        if view.tensor == u32::MAX {
            return;
        }
        let row = &self.tensors[view.tensor as usize];
        let (tensor, found) = (row.name, row.placement);
        let Some(collective) = collective else {
            if matches!(found, Placement::Partial(_)) && formal.access.reads() {
                self.fault(site, formal.task, formal.name, FaultKind::PartialRead { tensor, found });
            }
            return;
        };
        let reads = formal.access.reads();
        let fits = if reads { collective.takes(found) } else { collective.gives(found) };
        if !fits {
            self.fault(site, formal.task, formal.name, FaultKind::Collective { collective, reads, tensor, found });
        }
    }
}
