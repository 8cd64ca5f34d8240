//! Step 4, the code of a task: one generic body and one match arm per instance, followed by those of its GEMV form.

use maco_graph::spec::Access;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};

use super::analyse::{Bound, Extent, Model, extent, names_indices};
use super::kind::Kind;
use super::parse::{Param, Task, TensorParam};
use super::region::{Index, IndexKind};
use super::written::Checked;
use crate::entry::hash;
use crate::spans::hidden;

/// What is known of each instance ahead, and how to end those of a GEMM with one sum.
pub fn instances(task: &Task<'_>, model: &Model, p: &TokenStream) -> TokenStream {
    let name = &task.function.signature.ident;
    let text = hash(task.function.body.to_token_stream());
    let variants = each_variant(task, model);
    let called = is_function(model);
    let known = variants.iter().map(|(element, variant)| {
        // What is the same for all tiles of a GEMM differs otherwise.
        let sizes = variant.iter().enumerate().filter(|(axis, _)| !model.result_axes.is_some_and(|axes| axes.contains(axis)));
        let sizes: String = sizes.map(|(axis, size)| format!(" {axis}:{size}")).collect();
        let element_name = element.map(|element| element.to_string()).unwrap_or_default();
        let path = format!("::{name} {element_name}{sizes}");
        let body = quote! { #p::body_id(::core::concat!(::core::module_path!(), #path), #text) };
        match model.result_axes {
            Some([row, column]) => {
                let result = result_element(task, *element);
                let [rows, columns] = [variant[row], variant[column]].map(Literal::u32_unsuffixed);
                let form = if matches!(model.kind, Kind::Gemm { .. }) {
                    quote! { gemm }
                } else {
                    quote! { gemv }
                };
                quote! { #p::Instance::#form::<#result>(#body, #rows, #columns) }
            }
            None if called => quote! { #p::Instance::function(#body) },
            None => quote! { #p::Instance::of(#body) },
        }
    });
    let first = Literal::u32_unsuffixed(variants.len() as u32);
    let few = task.arguments.few.as_ref().map(|gemv| {
        quote! { .with::<#p::Identity>(&<#gemv as #p::Callable>::INSTANCES, #first, <#gemv as #p::Callable>::SLOTS) }
    });
    let ends = model.result_axes.is_some() && matches!(model.kind, Kind::Gemm { .. });
    let with_epilogue = ends.then(|| {
        let (what, slot, epilogue) = (hidden("what"), hidden("slot"), epilogue(task, model, p));
        let arms = variants.iter().enumerate().take(128).map(|(n, (element, _))| {
            let (n, result) = (Literal::u32_unsuffixed(n as u32), result_element(task, *element));
            quote! {
                #n if const { __F::MASK & (1 << #n) != 0 } => #what.of::<#epilogue, <__T as #p::Epilogue>::Result<#result>>(),
            }
        });
        quote! {
            #[inline(always)]
            fn with_epilogue<__W: #p::WithEpilogue, __T: #p::Epilogue, __F: #p::Filter>(#slot: u32, #what: __W) -> __W::Output {
                match #slot {
                    #(#arms)*
                    _ => __W::none(),
                }
            }
        }
    });
    quote! {
        const INSTANCES: #p::Instances = #p::Instances::new(&[#(#known),*]) #few;
        #with_epilogue
    }
}

/// The element of a GEMM's result, of an instance for `element`.
fn result_element(task: &Task<'_>, element: Option<&Ident>) -> TokenStream {
    let result = task.tensors().find(|tensor| tensor.access.writes());
    let own =
        result.map(|result| if Some(&result.element) == task.generic() { element.unwrap_or(&result.element) } else { &result.element });
    own.map(|own| task.arguments.element_type(own)).to_token_stream()
}

/// Every instance: its element, if the task is generic, and its tile.
fn each_variant<'a>(task: &'a Task<'_>, model: &Model) -> Vec<(Option<&'a Ident>, Vec<u32>)> {
    let elements: Vec<Option<&Ident>> = match &task.arguments.elements {
        Some(elements) => elements.list.iter().map(Some).collect(),
        None => vec![None],
    };
    let tiles = variants(&model.tiles);
    elements.into_iter().flat_map(|element| tiles.iter().map(move |tile| (element, tile.clone()))).collect()
}

/// A body without tensor cores keeps no accumulator in registers: as a function of its own it compiles in a fraction of the time. It has no epilogue, since it
/// stores no accumulator.
fn is_function(model: &Model) -> bool {
    !model.kind.is_gemm_or_gemv() && !model.kind.is_simt()
}

/// The generic body and one arm per instance.
pub fn dispatch(task: &Task<'_>, model: &Model, user: &Checked, p: &TokenStream) -> TokenStream {
    let body = body(task, model, user, p);
    let (role, descriptor, slot) = (hidden("role"), hidden("task"), hidden("slot"));
    let [ring, consumer, axis] = ["ring", "consumer", "axis"].map(hidden);
    let called = is_function(model);
    let epilogue = epilogue(task, model, p);
    let mut arms = Vec::new();
    for (element, variant) in each_variant(task, model) {
        let n = arms.len();
        let guard = if n < 128 {
            quote! { if const { __F::MASK & (1 << #n) != 0 } }
        } else {
            // Instance masks have no bit for this one: the recorder refuses such a call.
            quote! { if false }
        };
        let n = Literal::u32_unsuffixed(n as u32);
        let element = element.map(|element| {
            let element = task.arguments.element_type(element);
            quote! { #element, }
        });
        let sizes = model.extents.iter().filter(|extent| model.varies(extent)).map(|extent| size(*extent, &variant));
        let sizes = quote! { #element #(#sizes),* };
        let arguments = arguments(task, model, &variant, &descriptor, p, !model.kind.is_simt());
        let lent = model.kind.borrows().then(|| quote! { &mut });
        // It may have a result, which is of no use here.
        let call = quote! { { __body::<__R, #epilogue, #sizes>(#lent #p::Cta::new(#role, #descriptor), #(#arguments),*); } };
        // A role may have one code for all tiles.
        let call = match model.result_axes {
            Some(axes) => {
                let [rows, columns] = axes.map(|axis| Literal::u32_unsuffixed(variant[axis]));
                let sizes = ["rows", "columns"].map(hidden);
                quote! {{
                    let [#(#sizes),*] = [#p::Role::tile_rows(#role, #rows), #p::Role::tile_columns(#role, #columns)];
                    #call
                }}
            }
            None => call,
        };
        // Where a warp runs the task, what its tile is only the role knows.
        let here = match task.arguments.warp.is_some() {
            true => {
                let coord = hidden("coord");
                quote! {{
                    let #coord = [0, 1, 2].map(|#axis| #p::Role::coord(#role, #descriptor, #axis));
                    #call
                }}
            }
            false => call,
        };
        let apart = called.then(|| {
            quote! {
                #[cfg(target_arch = "nvptx64")]
                #n #guard => if const { __R::CALLS } {
                    #[inline(never)]
                    fn __apart(#descriptor: #p::Task, #ring: u64) -> u64 {
                        let mut #consumer = #p::SimtConsumer::consumers(#ring);
                        __body::<#p::SimtConsumer, #p::Identity, #sizes>(#lent #p::Cta::new(&mut #consumer, #descriptor), #(#arguments),*);
                        #p::Role::ring(&#consumer)
                    }
                    #p::Role::set_ring(#role, __apart(#descriptor, #p::Role::ring(#role)))
                } else {
                    #here
                },
                #[cfg(not(target_arch = "nvptx64"))]
            }
        });
        arms.push(quote! { #apart #n #guard => #here, });
    }
    let rest = match &task.arguments.few {
        // Its instances follow these.
        Some(gemv) => {
            let first = Literal::u32_unsuffixed(arms.len() as u32);
            let filter = quote! { #p::After<__F, #first> };
            quote! {
                _ => if const { <#filter as #p::Filter>::MASK != 0 } {
                    <#gemv as #p::Callable>::dispatch::<__R, __T, #filter>(#role, #descriptor, #slot.wrapping_sub(#first))
                }
            }
        }
        None => quote! { _ => {} },
    };
    quote! {
        #[inline(always)]
        fn dispatch<__R: #p::Role, __T: #p::Epilogue, __F: #p::Filter>(#role: &mut __R, #descriptor: #p::Task, #slot: u32) {
            #body
            match #slot {
                #(#arms)*
                #rest
            }
        }
    }
}

/// The epilogue type of a body that stores accumulators, with the positions of its operands. Other bodies have none.
fn epilogue(task: &Task<'_>, model: &Model, p: &TokenStream) -> TokenStream {
    if !model.kind.is_gemm_or_gemv() {
        return quote! { __T };
    }
    // The recorder refuses operands of a task whose result is not tiled like this: `TaskSpec::result`.
    let none = || quote! { { #p::NO_AXIS } };
    let axis = |index: &Index| match extent(task, &index.kind) {
        Some(Extent { axis, .. }) => quote! { #axis },
        None => none(),
    };
    let result = task.tensors().find(|tensor| tensor.access.writes()).map(|tensor| tensor.region.as_slice());
    let axes = match result {
        Some([plane, row, column]) => [axis(plane), axis(row), axis(column)],
        Some([row, column]) => [none(), axis(row), axis(column)],
        _ => [none(), none(), none()],
    };
    let tensors = task.tensors().count();
    let scalars = task.params.len() - tensors;
    quote! { #p::Anchored<__T, #tensors, #scalars, #(#axes),*> }
}

fn body(task: &Task<'_>, model: &Model, user: &Checked, p: &TokenStream) -> TokenStream {
    let lints = task.function.lints();
    let safe = !model.kind.is_simt();
    let (generics, bound) = (task.generic(), bound(model.bound));
    let element = generics.map(|element| quote! { #element: #p::#bound, });
    let varying = |place: &usize| model.varies(&model.extents[*place]);
    let consts: Vec<Ident> = (0..model.extents.len()).filter(varying).map(const_name).collect();
    let params: Vec<TokenStream> = task
        .params
        .iter()
        .map(|param| match param {
            Param::Tensor(tensor) => {
                let (pattern, ty) = (&tensor.pattern, tile_type(task, model, tensor, p, safe));
                // Its elements are used in the region of another parameter.
                let named = names_indices(task, tensor).then(|| quote! { #[allow(unused_variables)] });
                quote! { #named #pattern: #ty }
            }
            Param::Scalar { pattern, ty, .. } => quote! { #pattern: #ty },
        })
        .collect();
    let cta = task.cta.as_ref().map(ToTokens::to_token_stream);
    let head = quote! { <__R: #p::Role, __T: #p::Epilogue, #element #(const #consts: usize),*> };
    let kind = model.kind.ty(p);
    let Checked { body: user, returns, .. } = user;
    if safe {
        let [output, result] = match returns {
            true => [quote! { -> #p::access::WritesItsResults }, quote! { #p::access::WritesItsResults }],
            false => [TokenStream::new(), TokenStream::new()],
        };
        let lent = model.kind.borrows().then(|| quote! { &mut });
        return quote! {
            #lints
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn __body #head (#cta: #lent #p::Cta<'_, #kind, __R, __T>, #(#params),*) #output {
                #[allow(unused_imports)]
                use #p::{Channels as _, Collectives as _, Operations as _};
                // What the last operation returns is of no use here.
                let _ = #user;
                #result
            }
        };
    }
    let names: Vec<&Ident> = task.params.iter().map(Param::name).collect();
    let types = task.params.iter().map(|param| match param {
        Param::Tensor(tensor) => tile_type(task, model, tensor, p, false),
        Param::Scalar { ty, .. } => ty.to_token_stream(),
    });
    let device_head = quote! { <#element #(const #consts: usize),*> };
    let turbofish = {
        let element = generics.map(|element| quote! { #element, });
        quote! { ::<#element #(#consts),*> }
    };
    let early = task.arguments.prologue.is_some();
    let [outer, inner] = ["cta", "simt"].map(hidden);
    // Who runs it, and how.
    let (threads, simt) = match model.kind {
        Kind::Simt { shared, .. } => {
            let shared = Literal::u32_unsuffixed(shared);
            (quote! { #p::Simt<'_, #shared> }, quote! { simt::<#shared> })
        }
        _ => (quote! { #p::SimtWarp<'_> }, quote! { simt_warp }),
    };
    let on_host = match &task.arguments.cpu {
        Some(reference) => quote! { #p::Cta::#simt(#outer, #early, |_| #reference(#(#names),*)); },
        // The CPU device refuses the task when a plan is made.
        None => quote! { let _ = (#outer, #(#names),*); },
    };
    quote! {
        #[inline(always)]
        #[allow(clippy::too_many_arguments)]
        fn __body #head (#outer: &mut #p::Cta<'_, #kind, __R, __T>, #(#names: #types),*) {
            #[cfg(target_arch = "nvptx64")]
            {
                #lints
                #[inline(always)]
                unsafe fn __device #device_head (#cta: &mut #threads, #(#params),*) #user
                #p::Cta::#simt(#outer, #early, |#inner| {
                    // SAFETY: the task's author has promised that it stays inside its regions; `unsafe fn` says so.
                    unsafe { __device #turbofish (#inner, #(#names),*) }
                });
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                #on_host
            }
        }
    }
}

/// `TaskTile<E, (At<i, M>, Whole<K>), Read, I, 0>`; of SIMT bodies, which are not `safe`, `ReadTile<E, I, 0>` or `Tile<E, I, 0>`, or `Mapped<E, I, 0, ROWS, SWIZZLE>` of what is copied in boxes.
pub fn tile_type(task: &Task<'_>, model: &Model, tensor: &TensorParam, p: &TokenStream, safe: bool) -> TokenStream {
    let element = task.arguments.element_type(&tensor.element);
    let extents: Vec<TokenStream> = last_two(tensor)
        .into_iter()
        .map(|index| match index {
            None => quote! { 1 },
            Some(index) => match extent(task, &index.kind).and_then(|extent| model.extents.iter().position(|known| *known == extent)) {
                Some(place) if model.varies(&model.extents[place]) => const_name(place).to_token_stream(),
                Some(place) => size(model.extents[place], &model.first()).to_token_stream(),
                None => quote! { 0 },
            },
        })
        .collect();
    match task.boxes(tensor) {
        Some(boxes) => {
            let [rows, swizzle] = [boxes.rows.1, boxes.swizzle.1].map(Literal::u32_unsuffixed);
            quote! { #p::Mapped<#element, #(#extents),*, #rows, #swizzle> }
        }
        None if safe => {
            let access = match tensor.access {
                Access::Read if model.streams(task, tensor) => quote! { Streamed },
                Access::Read => quote! { Read },
                Access::Write => {
                    let which = task.tensors().filter(|other| other.access == Access::Write).position(|other| other.name == tensor.name);
                    let which = Literal::usize_unsuffixed(which.unwrap_or_default());
                    quote! { Write<#which> }
                }
                Access::Update | Access::Reduce => quote! { Update },
            };
            let region = model.names.region(task, &model.symbols, tensor, p);
            quote! { #p::access::TaskTile<#element, #region, #p::access::#access, #(#extents),*> }
        }
        None if tensor.access == Access::Read => quote! { #p::ReadTile<#element, #(#extents),*> },
        None => quote! { #p::Tile<#element, #(#extents),*> },
    }
}

/// The indices of rows and columns; a tensor of rank 1 is one row.
fn last_two(tensor: &TensorParam) -> [Option<&Index>; 2] {
    match tensor.region.as_slice() {
        [.., row, column] => [Some(row), Some(column)],
        [column] => [None, Some(column)],
        [] => [None, None],
    }
}

/// What one instance passes to the body.
fn arguments(task: &Task<'_>, model: &Model, variant: &[u32], descriptor: &Ident, p: &TokenStream, safe: bool) -> Vec<TokenStream> {
    let (mut operand, mut scalar) = (0usize, 0usize);
    task.params
        .iter()
        .map(|param| match param {
            Param::Scalar { ty, .. } => {
                let n = Literal::usize_unsuffixed(scalar);
                scalar += 1;
                quote! { #descriptor.scalar::<#ty>(#n) }
            }
            Param::Tensor(tensor) => {
                let n = Literal::usize_unsuffixed(operand);
                operand += 1;
                let plane = match tensor.region.as_slice() {
                    [Index { kind: IndexKind::Data(names), .. }, _, _] => named(task, model, names, variant, descriptor),
                    [plane, _, _] => origin(task, model, plane, variant, descriptor),
                    _ => quote! { 0 },
                };
                let [row, column] = last_two(tensor).map(|index| match index {
                    Some(index) => origin(task, model, index, variant, descriptor),
                    None => quote! { 0 },
                });
                match task.boxes(tensor) {
                    Some(_) => quote! { #p::Mapped::of_task(#descriptor, #n, #plane, #row, #column) },
                    None if safe => quote! { #p::access::TaskTile::new(#descriptor.tile(#n, #plane, #row, #column)) },
                    None if tensor.access == Access::Read => quote! { #p::ReadTile::new(#descriptor.tile(#n, #plane, #row, #column)) },
                    None => quote! { #descriptor.tile(#n, #plane, #row, #column) },
                }
            }
        })
        .collect()
}

/// The plane that the element of a tile names.
fn named(task: &Task<'_>, model: &Model, names: &[Ident], variant: &[u32], descriptor: &Ident) -> TokenStream {
    let by = task.tensors().enumerate().find(|(_, tensor)| names.contains(&tensor.name));
    let Some((n, [index])) = by.map(|(n, tensor)| (n, tensor.region.as_slice())) else { return quote! { 0 } };
    let (n, at) = (Literal::usize_unsuffixed(n), origin(task, model, index, variant, descriptor));
    quote! { #descriptor.plane(#n, #at) }
}

/// First element of a tile along one axis.
fn origin(task: &Task<'_>, model: &Model, index: &Index, variant: &[u32], descriptor: &Ident) -> TokenStream {
    let p = task.arguments.private();
    let Some(extent) = extent(task, &index.kind) else { return quote! { 0 } };
    let axis = Literal::usize_unsuffixed(extent.axis);
    let tile = match model.result_axes {
        Some([row, _]) if row == extent.axis => hidden("rows").into_token_stream(),
        Some([_, column]) if column == extent.axis => hidden("columns").into_token_stream(),
        _ => Literal::u32_unsuffixed(variant[extent.axis]).into_token_stream(),
    };
    let coord = match task.arguments.warp.is_some() {
        true => {
            let coord = hidden("coord");
            quote! { #coord[#axis] }
        }
        false => quote! { #descriptor.coord(#axis) },
    };
    match &index.kind {
        IndexKind::Over(_, group) => quote! { #coord / const { #p::spec::group((#group) as u64) as i32 } * #tile },
        IndexKind::Halo(_, before, _) => {
            let before = Literal::u32_unsuffixed(*before);
            quote! { #coord * #tile - #before }
        }
        _ => quote! { #coord * #tile },
    }
}

/// Every choice of one tile per axis, last axis fastest: the order of `TaskSpec::instance`.
fn variants(tiles: &[Vec<u32>]) -> Vec<Vec<u32>> {
    tiles.iter().fold(vec![Vec::new()], |variants, axis| {
        variants
            .iter()
            .flat_map(|variant| {
                axis.iter().map(move |&tile| {
                    let mut next = variant.clone();
                    next.push(tile);
                    next
                })
            })
            .collect()
    })
}

fn size(extent: Extent, variant: &[u32]) -> Literal {
    Literal::u32_unsuffixed(variant[extent.axis] + extent.before + extent.after)
}

fn bound(bound: Bound) -> Ident {
    let name = match bound {
        Bound::Half => "HalfElement",
        Bound::Mma => "MmaElement",
        Bound::Any => "Element",
    };
    Ident::new(name, Span::call_site())
}

fn const_name(place: usize) -> Ident {
    format_ident!("__EXTENT_{place}")
}
