//! The signature of a task as const data.

use maco_abi::MAX_SPLIT_K;

use super::Collective;

/// Element type of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Element {
    /// bfloat16: 8 bits of exponent, 7 of fraction.
    Bf16,
    /// IEEE 754 binary16.
    F16,
    /// IEEE 754 binary32.
    F32,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer (indices).
    U32,
    /// Signed 8-bit integer (quantised weights and activations).
    I8,
}

impl Element {
    /// Size of one element in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Element::Bf16 | Element::F16 => 2,
            Element::F32 | Element::I32 | Element::U32 => 4,
            Element::I8 => 1,
        }
    }

    /// The name as a user writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Element::Bf16 => "bf16",
            Element::F16 => "f16",
            Element::F32 => "f32",
            Element::I32 => "i32",
            Element::U32 => "u32",
            Element::I8 => "i8",
        }
    }
}

/// What a task does to a region of one parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Access {
    /// `#[read(..)]`
    Read,
    /// `#[write(..)]`: every element of the region is written; the old value is not read.
    Write,
    /// `#[update(..)]`: read and written in place.
    Update,
    /// `#[reduce(sum)]`: added to, in a fixed order.
    Reduce,
}

impl Access {
    /// Whether the old value matters.
    pub const fn reads(self) -> bool {
        !matches!(self, Access::Write)
    }

    /// Whether the region changes.
    pub const fn writes(self) -> bool {
        !matches!(self, Access::Read)
    }
}

/// One grid axis of a task with the tile sizes it may be instantiated with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The index the regions use, such as `i`.
    pub name: &'static str,
    /// Allowed tile sizes in elements; one instance each.
    pub tiles: &'static [u32],
}

/// The part of one tensor axis that one tile of the grid touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// `..`: the whole axis.
    All,
    /// `i`: elements `i * tile .. (i + 1) * tile`, clipped to the axis.
    Tile(u8),
    /// `i / G`: the tile of index `i / G` (grouped heads). The tile size along this axis is that of axis `i`.
    TileOver(u8, u32),
    /// `i + -b..=a`: the tile with `before` elements in front and `after` behind it, clipped.
    Halo {
        /// Grid axis.
        axis: u8,
        /// Elements before the tile.
        before: u32,
        /// Elements after the tile.
        after: u32,
    },
    /// `ids[i]`, `off[e]..off[e + 1]`: known on the device only; planned as the whole axis. With the tensor parameter whose elements
    /// name the indices, [`NOT_NAMED`] where no single one does.
    Data(u8),
}

/// See [`Index::Data`].
pub const NOT_NAMED: u8 = u8::MAX;

/// The `G` of `i / G`; 1 where [`check_group`] complains.
pub const fn group(size: u64) -> u32 {
    if size > 0 && size <= i32::MAX as u64 { size as u32 } else { 1 }
}

/// Fails the compilation for a `G` that no group can have.
///
/// # Panics
/// In const evaluation, when `G` is 0 or beyond 31 bits.
#[track_caller]
pub const fn check_group(size: u64) {
    assert!(
        size > 0 && size <= i32::MAX as u64,
        "MACO0012: a group has at least one tile\n  = help: in `i / G`, `G` is how many tiles of `i` share one"
    );
}

/// One dimension in a task's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimSpec {
    /// A bare name: index into [`TaskSpec::dims`].
    Symbol(u8),
    /// A number.
    Constant(u64),
    /// `{2 * H}` in reverse Polish notation.
    Expression(&'static [DimOp]),
}

/// One step of a dimension expression in reverse Polish notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimOp {
    /// Push a symbol: index into the list of names beside the expression.
    Symbol(u8),
    /// Push a number.
    Constant(u64),
    /// Pop two, push the sum.
    Add,
    /// Pop two, push the difference.
    Sub,
    /// Pop two, push the product.
    Mul,
    /// Pop two, push the exact quotient.
    Div,
}

/// The element type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementSpec {
    /// A named type.
    Fixed(Element),
    /// The task's generic `E`, one of [`TaskSpec::elements`].
    Generic,
    /// That of a result which the body only stores an accumulator in: `E`, or what a call rounds the accumulator to, one of [`RESULTS`].
    Result,
}

/// What an accumulator can be rounded to, and what operands of epilogues can hold.
pub const RESULTS: &[Element] = &[Element::Bf16, Element::F16, Element::F32];

/// What a call with arguments of `elements` rounds its accumulator to, where `result` is `maco_device::Callable::RESULT`; none: what the
/// task's signature says.
pub const fn result_of(result: usize, elements: &[Option<Element>]) -> Option<Element> {
    if result < elements.len() { elements[result] } else { None }
}

/// [`result_of`] as a number, `N` of `maco_device::ResultCode`; 0 also for an element that an accumulator cannot be rounded to, which the recorder
/// reports.
pub const fn result_code(result: usize, elements: &[Option<Element>]) -> u8 {
    match result_of(result, elements) {
        Some(Element::Bf16) => 1,
        Some(Element::F16) => 2,
        Some(Element::F32) => 3,
        _ => 0,
    }
}

/// One tensor parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorParam {
    /// Name in the signature.
    pub name: &'static str,
    /// What the task does to it.
    pub access: Access,
    /// Element type.
    pub element: ElementSpec,
    /// Shape, outermost first.
    pub dims: &'static [DimSpec],
    /// Region of one tile, one index per dimension.
    pub region: &'static [Index],
    /// Whether tiles of it travel through the ring by TMA (a staged operand or result).
    pub staged: bool,
}

/// Type of a scalar parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarType {
    /// `f32`
    F32,
    /// `u32`
    U32,
    /// `i32`
    I32,
}

/// One parameter of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// A tensor.
    Tensor(TensorParam),
    /// A value that may change at every launch.
    Scalar {
        /// Name in the signature.
        name: &'static str,
        /// Its type.
        ty: ScalarType,
    },
}

/// How the body of a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// GEMMs on the tensor cores: operands are staged through the shared-memory ring.
    Gemm {
        /// Whether it supports split-K: one accumulator, stored once, and every `mma` in a loop over `steps`.
        splits_k: bool,
    },
    /// One GEMV: rows of operand B come through the ring by bulk copies.
    Gemv {
        /// Which tensor parameter is operand B, the weights.
        operand_b: u8,
        /// Which tensor parameter is operand A, if the body is the `gemv` call and nothing else: so nothing else reads operand A, and nothing
        /// else writes the result. See [`crate::plan::Relation::in_band`].
        operand_a: Option<u8>,
    },
    /// Any operations on tiles: the consumer threads load and store global memory directly.
    Tiles,
    /// One operation on elements or rows: tiles that are read may come through the ring by bulk copies.
    Rows(RowsForm),
    /// One operation on columns: a tile comes through the ring by TMA tensor copies, if the tensor can have a tensor map.
    Columns {
        /// Which tensor parameter.
        operand: u8,
    },
    /// One operation on rows that data name: they may come through the ring by bulk copies.
    Indexed,
    /// One operation of all ranks, which exchange tiles.
    Collective(Collective),
    /// `#[task(simt)]`: an `unsafe` body, compiled for the device only.
    Simt {
        /// Whether `cpu = reference_fn` was given.
        cpu: bool,
        /// `#[task(simt, prologue)]`: early start. The body begins before its inputs are complete, and waits for them itself.
        early_start: bool,
        /// `#[task(simt, shared = 32768)]`: bytes of shared memory that the body has to itself, taken from the ring.
        shared: u32,
        /// `boxes(x = 128)`: the tensor parameters that the body copies by TMA tensor copies.
        boxes: &'static [BoxSpec],
    },
    /// `#[task(simt, warp)]`: an `unsafe` body of one warp. A worker runs several such tasks at a time.
    Warp {
        /// Whether `cpu = reference_fn` was given.
        cpu: bool,
        /// See [`TaskKind::Simt`].
        early_start: bool,
    },
}

/// What the plan knows of the one operation of a task of [`TaskKind::Rows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsForm {
    /// Nothing.
    Any,
    /// Unary and element-wise: the body is `cta.zip(x, y, f)` and nothing else, of two tensor parameters.
    Unary {
        /// Which tensor parameter `f` is applied to.
        x: u8,
        /// Which tensor parameter is the result.
        y: u8,
    },
    /// The body is `cta.rmsnorm(x, weight, y, epsilon)` and nothing else.
    RmsNorm {
        /// Which tensor parameter is normalised.
        x: u8,
        /// Which tensor parameter holds the weights.
        weight: u8,
        /// Which tensor parameter is the result.
        y: u8,
        /// Which scalar parameter is added to the mean square.
        epsilon: u8,
    },
}

/// The box of the tensor map by which a body copies a tensor: `boxes(x = 128)`, or with another swizzle `boxes(x = 128 swizzle 64)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxSpec {
    /// Which tensor parameter.
    pub operand: u8,
    /// Rows of a box, at most 256.
    pub rows: u32,
    /// Bytes of a row of a box, and of its swizzle: 128, 64 or 32, or 16 for none.
    pub swizzle: u32,
}

/// What a task promises: the const that stands beside a type of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// The function's name.
    pub name: &'static str,
    /// How its body runs.
    pub kind: TaskKind,
    /// Grid axes; the grid is their product, first axis slowest.
    pub axes: &'static [Axis],
    /// Names of the symbolic dimensions.
    pub dims: &'static [&'static str],
    /// `where M == N`: pairs of indices into [`TaskSpec::dims`].
    pub equal: &'static [(u8, u8)],
    /// `E in [..]`; empty when the task is not generic.
    pub elements: &'static [Element],
    /// Parameters in order, without `cta`.
    pub params: &'static [Param],
    /// The GEMV form of a GEMM, for calls with few rows: it has tiles of its own, and its instances follow this one's. See
    /// [`check_gemv_form`](super::check_gemv_form).
    pub gemv: Option<&'static TaskSpec>,
}

const fn contains(elements: &[Element], element: Element) -> bool {
    let mut n = 0;
    while n < elements.len() {
        if elements[n] as u8 == element as u8 {
            return true;
        }
        n += 1;
    }
    false
}

impl TaskSpec {
    /// Operand B of a GEMV, counted among the tensor parameters.
    pub const fn gemv_operand_b(&self) -> Option<usize> {
        match self.kind {
            TaskKind::Gemv { operand_b, .. } => Some(operand_b as usize),
            _ => None,
        }
    }

    /// What ranks do together in it.
    pub const fn collective(&self) -> Option<Collective> {
        match self.kind {
            TaskKind::Collective(collective) => Some(collective),
            _ => None,
        }
    }

    /// Which parameter is [`ElementSpec::Result`]; [`usize::MAX`]: none.
    pub const fn rounded(&self) -> usize {
        let mut n = 0;
        while n < self.params.len() {
            if let Param::Tensor(TensorParam { element: ElementSpec::Result, .. }) = &self.params[n] {
                return n;
            }
            n += 1;
        }
        usize::MAX
    }

    /// Whether tiles that it reads may come through the ring by bulk or tensor copies.
    pub const fn reads_in_bulk(&self) -> bool {
        matches!(self.kind, TaskKind::Rows(_) | TaskKind::Columns { .. } | TaskKind::Indexed)
    }

    /// Which tensor parameter comes by TMA tensor copies, if it can have a tensor map.
    pub const fn tensor_map_operand(&self) -> Option<usize> {
        match self.kind {
            TaskKind::Columns { operand } => Some(operand as usize),
            _ => None,
        }
    }

    /// Input and result of a unary element-wise task.
    pub const fn unary_operands(&self) -> Option<(usize, usize)> {
        match self.kind {
            TaskKind::Rows(RowsForm::Unary { x, y }) => Some((x as usize, y as usize)),
            _ => None,
        }
    }

    /// The instances of a unary element-wise task that can be a GEMV's prologue, one bit each: both tensors have the same element, of two bytes.
    pub const fn unary_instances(&self) -> u128 {
        let Some((x, y)) = self.unary_operands() else { return 0 };
        let (mut instances, mut element) = (0, 0);
        while element < self.instances() / self.tile_variants() {
            if let (Some(x), Some(y)) = (self.element_of(x, element), self.element_of(y, element))
                && x as u8 == y as u8
                && x.bytes() == 2
            {
                let mut tile = 0;
                while tile < self.tile_variants() {
                    let instance = element * self.tile_variants() + tile;
                    instances |= if instance < u128::BITS { 1 << instance } else { 0 };
                    tile += 1;
                }
            }
            element += 1;
        }
        instances
    }

    /// The element type of tensor parameter `tensor` in instances of element choice `element`, if the task says so.
    const fn element_of(&self, tensor: usize, element: u32) -> Option<Element> {
        let (mut n, mut before) = (0, 0);
        while n < self.params.len() {
            if let Param::Tensor(param) = &self.params[n] {
                if before == tensor {
                    return match param.element {
                        ElementSpec::Fixed(element) => Some(element),
                        ElementSpec::Generic if (element as usize) < self.elements.len() => Some(self.elements[element as usize]),
                        _ => None,
                    };
                }
                before += 1;
            }
            n += 1;
        }
        None
    }

    /// Operand A of a GEMV, if the body is the `gemv` call and nothing else.
    pub const fn gemv_operand_a(&self) -> Option<usize> {
        match self.kind {
            TaskKind::Gemv { operand_a: Some(operand_a), .. } => Some(operand_a as usize),
            _ => None,
        }
    }

    /// Most split-K parts of a tile.
    pub const fn max_split_k(&self) -> u32 {
        if self.splits_k() { MAX_SPLIT_K } else { 1 }
    }

    /// Whether its body is `unsafe`, and compiled for the device only.
    pub const fn is_simt(&self) -> bool {
        matches!(self.kind, TaskKind::Simt { .. } | TaskKind::Warp { .. })
    }

    /// Whether the CPU can run it: an `unsafe` body has a reference for it, or has none.
    pub const fn runs_on_cpu(&self) -> bool {
        !matches!(self.kind, TaskKind::Simt { cpu: false, .. } | TaskKind::Warp { cpu: false, .. })
    }

    /// Whether its body begins before its inputs are complete.
    pub const fn starts_early(&self) -> bool {
        matches!(self.kind, TaskKind::Simt { early_start: true, .. } | TaskKind::Warp { early_start: true, .. })
    }

    /// Whether it is a warp task: one warp runs the body.
    pub const fn is_warp_task(&self) -> bool {
        matches!(self.kind, TaskKind::Warp { .. })
    }

    /// Bytes of shared memory of a `simt` body's own: it may copy what it reads and writes in bulk.
    pub const fn shared(&self) -> u32 {
        match self.kind {
            TaskKind::Simt { shared, .. } => shared,
            _ => 0,
        }
    }

    /// The box by which a `simt` body copies tensor parameter `operand`, if it does.
    pub fn boxes(&self, operand: usize) -> Option<BoxSpec> {
        let TaskKind::Simt { boxes, .. } = self.kind else { return None };
        boxes.iter().find(|boxes| usize::from(boxes.operand) == operand).copied()
    }

    /// Whether it supports `.split_k(n)`.
    pub const fn splits_k(&self) -> bool {
        // The third tile coordinate of a split task is the chunk of its partial sums.
        matches!(self.kind, TaskKind::Gemm { splits_k: true }) && self.axes.len() <= 2
    }

    /// Number of tile variants: the product over the axes.
    pub const fn tile_variants(&self) -> u32 {
        let mut product = 1;
        let mut a = 0;
        while a < self.axes.len() {
            product *= self.axes[a].tiles.len() as u32;
            a += 1;
        }
        product
    }

    /// Number of instances of this form: `elements × tile variants` (at least one element).
    pub const fn instances(&self) -> u32 {
        let elements = if self.elements.is_empty() { 1 } else { self.elements.len() as u32 };
        elements * self.tile_variants()
    }

    /// The instances that compute with one of `chosen`, one bit each as in `maco_device::Filter::MASK`; all of them if nothing is chosen.
    pub const fn instances_with(&self, chosen: &[Element]) -> u128 {
        let variants = self.tile_variants();
        let (mut mask, mut n) = (0, 0);
        while n < self.instances() {
            // One that is not generic has no element to choose: `has_element` says so.
            let element = (n / variants) as usize;
            let is_chosen = chosen.is_empty() || element < self.elements.len() && contains(chosen, self.elements[element]);
            // A mask has no bit for what follows: the recorder refuses a call of it.
            mask |= if is_chosen && n < u128::BITS { 1 << n } else { 0 };
            n += 1;
        }
        mask
    }

    /// Whether it is generic, and `element` is one of its elements.
    pub const fn has_element(&self, element: Element) -> bool {
        contains(self.elements, element)
    }

    /// The instance of an element choice and one tile variant per axis: mixed radix, element slowest, last axis fastest.
    pub const fn instance(&self, element: u32, variants: &[u32]) -> u32 {
        let mut index = element;
        let mut a = 0;
        while a < self.axes.len() {
            index = index * self.axes[a].tiles.len() as u32 + variants[a];
            a += 1;
        }
        index
    }
}
