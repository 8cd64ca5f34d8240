//! The two forms of a task: its own, a GEMM, and a GEMV for few rows. Which of them a call gets does not belong here.

use super::{DimOp, DimSpec, ElementSpec, Index, Param, TaskSpec};

/// One form of a task.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// What it promises.
    pub spec: &'static TaskSpec,
    /// Its first instance, counted from the task's own first one.
    pub first_instance: u32,
}

pub(super) const fn same_text(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut n = 0;
    while n < a.len() && n < b.len() && a[n] == b[n] {
        n += 1;
    }
    n == a.len() && n == b.len()
}

/// Whether two slices are equal, by a `const fn` for their elements.
macro_rules! same {
    ($a:expr, $b:expr, $equal:expr) => {{
        let (a, b) = ($a, $b);
        let mut n = 0;
        while n < a.len() && n < b.len() && $equal(&a[n], &b[n]) {
            n += 1;
        }
        n == a.len() && n == b.len()
    }};
}

const fn same_name(a: &&str, b: &&str) -> bool {
    same_text(a, b)
}

const fn same_element(a: &super::Element, b: &super::Element) -> bool {
    *a as u8 == *b as u8
}

const fn same_pair(a: &(u8, u8), b: &(u8, u8)) -> bool {
    a.0 == b.0 && a.1 == b.1
}

const fn same_axis(a: &super::Axis, b: &super::Axis) -> bool {
    same_text(a.name, b.name)
}

const fn same_index(a: &Index, b: &Index) -> bool {
    match (*a, *b) {
        (Index::All, Index::All) => true,
        (Index::Tile(a), Index::Tile(b)) | (Index::Data(a), Index::Data(b)) => a == b,
        (Index::TileOver(a, by), Index::TileOver(b, other)) => a == b && by == other,
        (Index::Halo { axis, before, after }, Index::Halo { axis: other, before: front, after: back }) => {
            axis == other && before == front && after == back
        }
        _ => false,
    }
}

const fn same_step(a: &DimOp, b: &DimOp) -> bool {
    match (*a, *b) {
        (DimOp::Symbol(a), DimOp::Symbol(b)) => a == b,
        (DimOp::Constant(a), DimOp::Constant(b)) => a == b,
        (DimOp::Add, DimOp::Add) | (DimOp::Sub, DimOp::Sub) | (DimOp::Mul, DimOp::Mul) | (DimOp::Div, DimOp::Div) => true,
        _ => false,
    }
}

const fn same_dim(a: &DimSpec, b: &DimSpec) -> bool {
    match (*a, *b) {
        (DimSpec::Symbol(a), DimSpec::Symbol(b)) => a == b,
        (DimSpec::Constant(a), DimSpec::Constant(b)) => a == b,
        (DimSpec::Expression(a), DimSpec::Expression(b)) => same!(a, b, same_step),
        _ => false,
    }
}

/// Equal, except for how the tensor is loaded.
const fn same_param(a: &Param, b: &Param) -> bool {
    match (a, b) {
        (Param::Tensor(a), Param::Tensor(b)) => {
            let elements = match (a.element, b.element) {
                // Whether a form can round to another element is checked per call: see `call_spec`.
                (ElementSpec::Generic | ElementSpec::Result, ElementSpec::Generic | ElementSpec::Result) => true,
                (ElementSpec::Fixed(a), ElementSpec::Fixed(b)) => same_element(&a, &b),
                _ => false,
            };
            let places = same!(a.dims, b.dims, same_dim) && same!(a.region, b.region, same_index);
            elements && places && same_text(a.name, b.name) && a.access as u8 == b.access as u8
        }
        (Param::Scalar { name: a, ty }, Param::Scalar { name: b, ty: other }) => same_text(a, b) && *ty as u8 == *other as u8,
        _ => false,
    }
}

/// Fails the compilation where `gemv` cannot be the GEMV form of `task`.
///
/// # Panics
/// In const evaluation, when `gemv` is not a GEMV with the same signature and tiles of its own.
#[track_caller]
pub const fn check_gemv_form(task: &TaskSpec, gemv: &TaskSpec) {
    assert!(
        gemv.gemv_operand_b().is_some() && gemv.gemv.is_none() && gemv.axes.len() == task.axes.len(),
        "MACO0012: this task streams no weights\n  = help: `few = task` names one whose body calls `cta.gemv(..)`, with the same grid axes"
    );
    assert!(
        task.signature_of(gemv),
        "MACO0012: this task has another signature\n  = help: `few = task` names one with the same dimensions, parameters and regions, and with the first elements of the list or all, in the same order"
    );
    assert!(
        task.stores() && !task.shares_tiles(gemv),
        "MACO0012: these two forms cannot be told apart\n  = help: a tile of one must not be one of the other, and both must store sums, as `.then(..)` needs"
    );
}

impl TaskSpec {
    /// Whether calls of the other task are calls of this one: the same grid axes, dimensions and parameters, and the first elements of its list.
    pub const fn signature_of(&self, other: &TaskSpec) -> bool {
        let axes = same!(self.axes, other.axes, same_axis);
        let dims = same!(self.dims, other.dims, same_name) && same!(self.equal, other.equal, same_pair);
        let mut n = 0;
        while n < other.elements.len() && n < self.elements.len() && same_element(&self.elements[n], &other.elements[n]) {
            n += 1;
        }
        let elements = n == other.elements.len() && (n > 0 || self.elements.is_empty());
        axes && dims && elements && same!(self.params, other.params, same_param)
    }

    /// Whether some tile is a tile of both: on every axis they have a size in common.
    const fn shares_tiles(&self, other: &TaskSpec) -> bool {
        let mut axis = 0;
        while axis < self.axes.len() {
            let (own, tiles) = (self.axes[axis].tiles, other.axes[axis].tiles);
            let (mut n, mut common) = (0, false);
            while n < own.len() {
                common |= position(tiles, own[n]).is_some();
                n += 1;
            }
            if !common {
                return false;
            }
            axis += 1;
        }
        true
    }

    /// The number of the variant with these sizes, one per axis, last axis fastest: see [`TaskSpec::instance`].
    pub const fn variant(&self, tile: &[u32]) -> Option<u32> {
        if tile.len() != self.axes.len() {
            return None;
        }
        let (mut axis, mut variant) = (0, 0);
        while axis < tile.len() {
            match position(self.axes[axis].tiles, tile[axis]) {
                Some(n) => variant = variant * self.axes[axis].tiles.len() as u32 + n,
                None => return None,
            }
            axis += 1;
        }
        Some(variant)
    }

    /// The task without its GEMV form.
    pub const fn own(self) -> TaskSpec {
        TaskSpec { gemv: None, ..self }
    }

    /// The task's own form.
    pub const fn own_form(&'static self) -> Form {
        Form { spec: self, first_instance: 0 }
    }

    /// The GEMV form, if there is one for element `element`.
    pub const fn gemv_form(&self, element: u32) -> Option<Form> {
        match self.gemv {
            Some(spec) if spec.elements.is_empty() || (element as usize) < spec.elements.len() => {
                Some(Form { spec, first_instance: self.instances() })
            }
            _ => None,
        }
    }

    /// The form of element `element` that has this tile.
    pub const fn form(&'static self, tile: &[u32], element: u32) -> Option<Form> {
        match self.gemv_form(element) {
            _ if self.variant(tile).is_some() => Some(self.own_form()),
            Some(gemv) if gemv.spec.variant(tile).is_some() => Some(gemv),
            _ => None,
        }
    }

    /// Dispatch numbers of a call: the instances of both forms.
    pub const fn slots(&self) -> u32 {
        match self.gemv {
            Some(gemv) => self.instances() + gemv.instances(),
            None => self.instances(),
        }
    }
}

/// Where `size` is among `tiles`.
pub(super) const fn position(tiles: &[u32], size: u32) -> Option<u32> {
    let mut n = 0;
    while n < tiles.len() {
        if tiles[n] == size {
            return Some(n as u32);
        }
        n += 1;
    }
    None
}
