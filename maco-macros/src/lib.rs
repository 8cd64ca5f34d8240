//! The attribute macros `#[task]`, `#[megakernel]` and `#[graph]`.
//!
//! What a task promises is checked in `maco-graph::spec`; here is only what tokens alone can tell. Each macro is
//! parse → check → analyse → emit, one file per step. All mistakes of an item are reported at once, each on its own token, and a usable
//! item is emitted all the same, so that one mistake does not hide others.

mod attribute;
mod entry;
mod errors;
mod file;
mod fragments;
mod item;
mod kernel;
mod shape;
mod spans;
mod task;
mod task_set;

use fragments::visible;
use proc_macro::TokenStream;

/// A function that makes one tile: `#[maco::task(tile(i = 64 | 128, j = 128 | 256), E in [bf16, f16])]`.
///
/// | argument | meaning |
/// |---|---|
/// | `tile(i = 64 \| 128, j = 128)` | the grid axes, slowest first, each with the tile sizes it may have; without it the task is one tile |
/// | `E in [bf16, f16]` | the task is generic over the element type `E`, one of these |
/// | `where M == N` | these dimensions are the same |
/// | `elementwise` | `fn f(v: f32) -> f32`: usable in `.then(f)`, and as the task `f(x, y)`; `fn f(v: f32, r: f32) -> f32`: in `.then(f(r))`, and as `f(x, r, y)` |
/// | `simt` | an `unsafe fn` with a body for the device only |
/// | `warp` | a warp task: a `simt` body of one warp, `cta: &mut SimtWarp`; a worker runs eight such tasks at a time |
/// | `prologue` | early start: a `simt` body that begins before its inputs are ready, reads what no task writes, then calls `cta.wait_for_inputs()` |
/// | `shared = 32768` | a `simt` body with so many bytes of shared memory, 1 to 196608: `cta.shared::<f32, 0, 1024>()` |
/// | `boxes(x = 128, w = 64 swizzle 32)` | a `simt` body with shared memory that copies boxes of so many rows of these tensors, swizzled by 128 bytes or what is said: `tile.load(&x, row, col, &barrier)` |
/// | `cpu = function` | what a `simt` task does on the CPU |
/// | `few = task` | the GEMV form of a GEMM, for few rows: a task with tiles of its own whose body calls `cta.gemv`. The planner or `.tile(..)` chooses |
/// | `crate = path` | where the `maco` crate is, `::maco` by default |
///
/// The first parameter is `cta: &mut Cta`; a body whose helper functions multiply says so, `cta: &mut Cta<Gemm>` (`maco::kind`). A tensor is `#[read(i, ..)] x: Tensor<E, M, K>` with one index per dimension: a grid axis
/// `i`, `i / G` (grouped heads), `i + -1..=1` (halo), `..` (the whole axis), `ids[i]` or `off[e]..off[e + 1]` (known on the device
/// only). `#[write(..)]` writes every element of its region, which must name every grid axis; `#[update(..)]` reads and writes in place.
/// A scalar is `by: f32`, `u32` or `i32`. A bare name is a dimension, a number or `{2 * H}` is a constant or arithmetic.
#[proc_macro_attribute]
pub fn task(attribute: TokenStream, item: TokenStream) -> TokenStream {
    task::expand(visible(attribute.into()), visible(item.into())).into()
}

/// A function that bodies of tasks call: `#[maco::helper(Rows)] fn centre(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, N>, #[write(i, ..)] y: Tensor<bf16, M, N>) { … }`.
///
/// | argument | meaning |
/// |---|---|
/// | `Gemm`, `Gemv`, `Tiles`, `Rows`, `Columns` or `Indexed` | the kind of its operations (`maco::kind`) |
/// | `crate = path` | where the `maco` crate is, `::maco` by default |
///
/// Its parameters are those of a task, of any tile size: axes and dimensions of one name are one. What an operation of the caller has written it takes as
/// `#[written(i, j)]`; whatever has no attribute is an ordinary parameter, and it may have generics of its own: `E: Element`. It returns what it has written of its
/// `#[write(..)]` parameters: its body ends with the operation that writes, or with a tuple of what operations returned.
///
/// A task whose helpers multiply says so: `cta: &mut Cta<Gemm>`.
#[proc_macro_attribute]
pub fn helper(attribute: TokenStream, item: TokenStream) -> TokenStream {
    task::helper::expand(visible(attribute.into()), visible(item.into())).into()
}

/// A program of calls that becomes one persistent kernel: `#[maco::megakernel] pub fn mlp(x: In<bf16, M, K>, y: Out<bf16, M, K>) { … }`.
///
/// It becomes a module of that name with `Dims`, `plan`, `plan_with` and `Plan`. The body means what it says, top to bottom; it is
/// replayed in const evaluation, so loops have constant bounds and conditions are constant.
///
/// | argument | meaning |
/// |---|---|
/// | `workers = 128` | worker CTAs; by default one per multiprocessor |
/// | `schedulers = 4` | scheduler CTAs; by default none |
/// | `where M == N` | these dimensions are the same |
/// | `crate = path` | where the `maco` crate is, `::maco` by default |
#[proc_macro_attribute]
pub fn megakernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand_megakernel(visible(attribute.into()), visible(item.into())).into()
}

/// A group of calls that megakernels and other graphs can call like a task.
///
/// Arguments: `where M == N`, `crate = path`, as for [`macro@megakernel`].
#[proc_macro_attribute]
pub fn graph(attribute: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand_graph(visible(attribute.into()), visible(item.into())).into()
}

/// What `maco::task_set! { pub ops: linear<bf16>, relu }` becomes, with the path of the crate before it: `$crate; pub ops: linear<bf16>, relu`.
#[proc_macro]
pub fn task_set(input: TokenStream) -> TokenStream {
    task_set::expand(visible(input.into())).into()
}
