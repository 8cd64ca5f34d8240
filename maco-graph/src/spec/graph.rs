//! Calls of `#[maco::graph]` functions: their bodies are replayed inside the caller's, with the caller's tensors and dimensions.
//!
//! What is wrong with a graph by itself is reported where it stands, not at its callers.

use super::bindings::{Bindings, Formal};
use super::fault::FaultKind;
use super::{Access, Argument, CallSite, Dim, DimSpec, Element, ElementSpec, Recorder, ScalarType, View};

/// What a graph takes.
#[derive(Clone, Copy, Debug)]
pub struct GraphSpec {
    /// The function's name.
    pub name: &'static str,
    /// Names of its symbolic dimensions.
    pub dims: &'static [&'static str],
    /// `where M == N`: pairs of indices into `dims`.
    pub equal: &'static [(u8, u8)],
    /// In order.
    pub params: &'static [GraphParam],
}

/// One parameter of a graph.
#[derive(Clone, Copy, Debug)]
pub enum GraphParam {
    /// One tensor, or an array of them.
    Tensor {
        /// Name in the signature.
        name: &'static str,
        /// `In` reads, `Out` writes, `InOut` and `State` update.
        access: Access,
        /// Element type.
        element: Element,
        /// Shape.
        dims: &'static [DimSpec],
        /// Length of an array.
        array: Option<usize>,
    },
    /// A scalar.
    Scalar {
        /// Name in the signature.
        name: &'static str,
        /// Its type.
        ty: ScalarType,
    },
}

impl GraphParam {
    const fn name(&self) -> &'static str {
        match self {
            GraphParam::Tensor { name, .. } | GraphParam::Scalar { name, .. } => name,
        }
    }
}

/// What `enter` changed, for `leave` to restore.
#[must_use]
pub struct Enclosing {
    base: u32,
    redirect: u32,
    inside: &'static str,
    mute: bool,
    scope: u32,
    bindings: Bindings,
}

impl Enclosing {
    /// The caller's dimension for the graph's symbol `symbols[index]`.
    pub const fn dim(&self, index: u8) -> Dim {
        self.bindings.dim(index)
    }
}

impl Recorder<'_> {
    /// Checks the arguments of a graph's call and begins the replay of its body; `None` when its shape forbids that.
    ///
    /// `clean`: nothing is wrong with the graph by itself.
    pub const fn enter(
        &mut self,
        spec: &'static GraphSpec,
        clean: bool,
        site: &CallSite<'_>,
        arguments: &[Argument<'_>],
    ) -> Option<Enclosing> {
        let failures = self.state.failures;
        self.state.graph = true;
        let mut bindings = Bindings::new(spec.dims, spec.equal);
        let mut missing = "";
        if arguments.len() < spec.params.len() {
            missing = spec.params[arguments.len()].name();
        }
        if arguments.len() != spec.params.len() {
            self.arity(spec.name, spec.params.len(), missing, site, arguments.len());
        }
        if !site.fused.is_empty() {
            let (at, option) =
                if super::fused_op::has_prologue(site.fused) { (site.prologue_site, "first") } else { (site.epilogue_site, "then") };
            self.fault(at, spec.name, "", FaultKind::OptionOnGraph { option });
        }
        if site.tile.is_some() {
            self.fault(site.tile_site, spec.name, "", FaultKind::OptionOnGraph { option: "tile" });
        }
        if site.split.is_some() {
            self.fault(site.split_site, spec.name, "", FaultKind::OptionOnGraph { option: "split_k" });
        }
        if !matches!(site.via, super::Via::Automatic) {
            self.fault(site.via_site, spec.name, "", FaultKind::OptionOnGraph { option: "via" });
        }
        if !site.overlap.group.is_empty() {
            self.fault(site.overlap.group_site, spec.name, "", FaultKind::OptionOnGraph { option: "overlap_group" });
        }
        if site.overlap.next {
            self.fault(site.overlap.next_site, spec.name, "", FaultKind::OptionOnGraph { option: "overlap_next" });
        }
        // Both passes must agree on whether the body is replayed, so this looks at the sorts of arguments only.
        let mut possible = arguments.len() == spec.params.len();
        let mut n = 0;
        while n < spec.params.len() && n < arguments.len() {
            let at = site.arguments + n as u32;
            match (&spec.params[n], &arguments[n]) {
                (GraphParam::Scalar { name, ty }, argument) => {
                    possible &= matches!(argument, Argument::Scalar(_));
                    self.scalar_argument(spec.name, name, *ty, argument, at);
                }
                (GraphParam::Tensor { array: Some(len), .. }, Argument::Array(views)) if *len == views.len() => {
                    let mut v = 0;
                    while v < views.len() {
                        self.graph_tensor(spec, n, &views[v], at, &mut bindings);
                        v += 1;
                    }
                }
                (GraphParam::Tensor { name, array: Some(len), .. }, argument) => {
                    possible = false;
                    let found = match argument {
                        Argument::Array(views) => views.len() as u32,
                        Argument::Tensor(_) => 1,
                        Argument::Scalar(_) => 0,
                    };
                    self.fault(at, spec.name, name, FaultKind::Array { expected: *len as u32, found });
                }
                (GraphParam::Tensor { name, array: None, .. }, argument) => {
                    possible &= matches!(argument, Argument::Tensor(_));
                    let view = match argument {
                        Argument::Tensor(view) => *view,
                        other => self.no_tensor(spec.name, name, other, at),
                    };
                    self.graph_tensor(spec, n, &view, at, &mut bindings);
                }
            }
            n += 1;
        }
        let mut n = 0;
        while n < spec.params.len() && n < arguments.len() {
            if let (Some(formal), Some(view)) = (formal(spec, n), first(&arguments[n])) {
                self.compare(&formal, &view, site.arguments + n as u32, &bindings);
            }
            n += 1;
        }
        if self.state.failures == failures {
            self.graph_aliases(spec, site, arguments);
        }
        if self.state.failures == failures {
            self.graph_flow(spec, site, arguments);
        }
        self.state.graph = false;
        let good = self.state.failures == failures;
        if !good {
            self.forgive_all(arguments);
            self.forgive_all(site.fused_arguments);
        }
        if !possible {
            return None;
        }
        let before = Enclosing {
            base: self.state.base,
            redirect: self.state.redirect,
            inside: self.state.inside,
            mute: self.state.mute,
            scope: self.state.scope,
            bindings,
        };
        self.state.base += site.slot;
        if self.state.redirect == super::NO_SITE {
            self.state.redirect = site.path;
            self.state.inside = spec.name;
        }
        self.state.mute |= !clean || !good;
        self.state.scopes += 1;
        self.state.scope = self.state.scopes;
        Some(before)
    }

    /// Ends the replay of a graph's body.
    pub const fn leave(&mut self, before: Enclosing) {
        self.state.base = before.base;
        self.state.redirect = before.redirect;
        self.state.inside = before.inside;
        self.state.mute = before.mute;
        self.state.scope = before.scope;
    }

    const fn graph_tensor(&mut self, spec: &'static GraphSpec, param: usize, view: &View, site: u32, bindings: &mut Bindings) {
        if !view.none()
            && let Some(formal) = formal(spec, param)
        {
            self.fits(&formal, &[], view, site, bindings);
        }
    }

    /// An `In` must have been written, an `Out` or `InOut` must not be the caller's `In`. What happens to them is the body's affair.
    const fn graph_flow(&mut self, spec: &'static GraphSpec, site: &CallSite<'_>, arguments: &[Argument<'_>]) {
        let mut n = 0;
        while n < arguments.len() {
            if let Some(formal) = formal(spec, n) {
                let at = site.arguments + n as u32;
                match &arguments[n] {
                    Argument::Tensor(view) => self.foresee(&formal, view, at),
                    Argument::Array(views) => {
                        let mut v = 0;
                        while v < views.len() {
                            self.foresee(&formal, &views[v], at);
                            v += 1;
                        }
                    }
                    Argument::Scalar(_) => {}
                }
            }
            n += 1;
        }
    }

    const fn foresee(&mut self, formal: &Formal, view: &View, site: u32) {
        if view.none() || self.state.counting {
            return;
        }
        let row = self.tensors[view.tensor as usize];
        if formal.access.reads() && !row.written {
            let out = matches!(row.kind, super::Kind::Out);
            self.fault(site, formal.task, formal.name, FaultKind::Unwritten { tensor: row.name, out });
        }
        if formal.access.writes() && matches!(row.kind, super::Kind::In) {
            self.fault(site, formal.task, formal.name, FaultKind::WritesIn { tensor: row.name });
        }
    }

    /// The parameters of a graph are different tensors inside it: a written one may not be passed twice.
    const fn graph_aliases(&mut self, spec: &'static GraphSpec, site: &CallSite<'_>, arguments: &[Argument<'_>]) {
        let mut b = 0;
        while b < arguments.len() {
            let mut a = 0;
            while a <= b {
                if let (Some(first), Some(second)) = (formal(spec, a), formal(spec, b))
                    && (first.access.writes() || second.access.writes())
                {
                    let (mut i, count_a, count_b) = (0, count(&arguments[a]), count(&arguments[b]));
                    while i < count_a {
                        let mut j = if a == b { i + 1 } else { 0 };
                        while j < count_b {
                            let formals = [first, second];
                            let views = [nth(&arguments[a], i), nth(&arguments[b], j)];
                            self.aliases(&formals, &views, &[site.arguments + a as u32, site.arguments + b as u32], 2);
                            j += 1;
                        }
                        i += 1;
                    }
                }
                a += 1;
            }
            b += 1;
        }
    }
}

const fn formal(spec: &'static GraphSpec, param: usize) -> Option<Formal> {
    match &spec.params[param] {
        GraphParam::Tensor { name, access, element, dims, .. } => {
            Some(Formal { task: spec.name, name, access: *access, element: ElementSpec::Fixed(*element), dims, scattered: false })
        }
        GraphParam::Scalar { .. } => None,
    }
}

const fn count(argument: &Argument<'_>) -> usize {
    match argument {
        Argument::Tensor(_) => 1,
        Argument::Array(views) => views.len(),
        Argument::Scalar(_) => 0,
    }
}

const fn nth(argument: &Argument<'_>, index: usize) -> View {
    match argument {
        Argument::Array(views) => views[index],
        _ => argument.view(),
    }
}

const fn first(argument: &Argument<'_>) -> Option<View> {
    if count(argument) > 0 { Some(nth(argument, 0)) } else { None }
}
