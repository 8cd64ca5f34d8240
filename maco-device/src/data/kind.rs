//! The kind of a task's body, as a type: which operations it has, and whether it may have several of them.
//!
//! A plan, the host and the device treat a task by its kind: what comes through the ring, what is loaded ahead, what may be fused. `#[maco::task]` finds the kind
//! from the body, or reads it from the signature (`cta: &mut Cta<Gemm>`), and these types check that the body, and all that it calls, keeps to it.

/// A kind of body: one of the types below.
pub trait Kind {}

/// The body has several operations, which take `&mut Cta`.
#[diagnostic::on_unimplemented(
    message = "MACO0068: a body of kind `{Self}` is one operation",
    label = "a helper function may have several",
    note = "write `cta: &mut Cta` in the signature of the task: then it is of a kind that has several operations"
)]
pub trait Several: Kind {}

/// The body is one operation, which takes `Cta`: what it reads is loaded before the body runs, and a second operation could write it.
pub trait Single: Kind {}

/// Operations of kind `O` are among those of this kind.
#[diagnostic::on_unimplemented(
    message = "MACO0068: this is an operation of kind `{O}`, and this body is of kind `{Self}`",
    label = "not an operation of this body",
    note = "loads of a GEMM or GEMV begin before its body runs, so it has no other operations: make them a task of their own, or fuse them: `linear(x, w, y).then(add(b)).then(gelu)`, `cta.gemv_with(..)`",
    note = "a body is of the kind that its text looks like; one whose helper functions multiply says so: `cta: &mut Cta<Gemm>`"
)]
pub trait Has<O>: Kind {}

/// GEMMs on the tensor cores: `accumulator`, `steps`, `mma`, `store` and those of pairs. Operands are staged through the ring.
pub enum Gemm {}
/// `gemv` or `gemv_with`: few rows; operand B comes through the ring.
pub enum Gemv {}
/// Any operations on tiles, one after the other. Nothing comes through the ring.
pub enum Tiles {}
/// One of `zip`, `map`, `rows` and `rmsnorm`: what is read comes through the ring in bulk copies.
pub enum Rows {}
/// One of `columns` and `transpose`: what is read comes through the ring in tensor copies.
pub enum Columns {}
/// One of `take`, `index_copy` and `index_add`: rows that data name come through the ring in bulk copies.
pub enum Indexed {}
/// One of `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast`, `send` and `ring`: ranks exchange tiles.
pub enum Collective {}
/// `put` or `offer` of a tile, which the task at the other end receives: this rank stores or loads that rank's memory, and signals.
pub enum MemoryChannel {}
/// `put` of a tile, which the task at the other end receives: each word carries its flag.
pub enum PacketChannel {}
/// `put` of a tile, which the task at the other end receives: a proxy copies and signals.
pub enum PortChannel {}
/// `open` of the result, which the task at the other end stores: it lies in symmetric memory.
pub enum SymmetricChannel {}
/// `#[maco::task(simt)]`: the body is the threads' own.
pub enum Simt {}
/// `#[maco::task(simt, warp)]`: the body is one warp's.
pub enum Warp {}

impl Kind for Gemm {}
impl Kind for Gemv {}
impl Kind for Tiles {}
impl Kind for Rows {}
impl Kind for Columns {}
impl Kind for Indexed {}
impl Kind for Collective {}
impl Kind for MemoryChannel {}
impl Kind for PacketChannel {}
impl Kind for PortChannel {}
impl Kind for SymmetricChannel {}
impl Kind for Simt {}
impl Kind for Warp {}

impl Several for Gemm {}
impl Single for Gemv {}
impl Several for Tiles {}
impl Single for Rows {}
impl Single for Columns {}
impl Single for Indexed {}
impl Single for Collective {}
impl Single for MemoryChannel {}
impl Single for PacketChannel {}
impl Single for PortChannel {}
impl Single for SymmetricChannel {}
impl Several for Simt {}
impl Several for Warp {}

impl Has<Gemm> for Gemm {}
impl Has<Gemv> for Gemv {}
impl Has<Tiles> for Tiles {}
impl Has<Rows> for Rows {}
impl Has<Columns> for Columns {}
impl Has<Indexed> for Indexed {}
impl Has<Collective> for Collective {}
impl Has<MemoryChannel> for MemoryChannel {}
impl Has<PacketChannel> for PacketChannel {}
impl Has<PortChannel> for PortChannel {}
impl Has<SymmetricChannel> for SymmetricChannel {}
impl Has<Simt> for Simt {}
impl Has<Warp> for Warp {}
impl Has<Rows> for Tiles {}
impl Has<Columns> for Tiles {}
impl Has<Indexed> for Tiles {}
