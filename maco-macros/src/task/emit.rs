//! Step 4: the type of the task's name, its spec, its dispatch, `on_cpu`.

use maco_graph::spec::Access;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};

use super::analyse::{Bound, Extent, Kind, Model, extent};
use super::parse::{Param, Task, TensorParam};
use super::region::{Index, IndexKind};
use crate::attribute::element_variant;
use crate::spans::hidden;

pub fn emit(task: &Task<'_>, model: &Model) -> TokenStream {
    let p = task.arguments.private();
    let name = &task.function.signature.ident;
    let (visibility, documentation, conditions) = (&task.function.visibility, task.function.documentation(), task.function.conditions());
    let spec = spec(task, model, &p);
    let dispatch = dispatch(task, model, &p);
    let on_cpu = on_cpu(task, &p);
    quote! {
        #documentation
        #conditions
        #[allow(non_camel_case_types)]
        #visibility enum #name {}

        #conditions
        #[automatically_derived]
        impl #p::Callable for #name {
            const SLOTS: u32 = #name::SPEC.instances();
            #dispatch
        }

        #conditions
        #[automatically_derived]
        impl #name {
            /// What the task promises.
            pub const SPEC: #p::spec::TaskSpec = #spec;

            #[doc(hidden)]
            pub const fn __maco_call(
                recorder: &mut #p::spec::Recorder<'_>,
                site: &#p::spec::CallSite<'_>,
                arguments: &[#p::spec::Argument<'_>],
            ) {
                recorder.call(&Self::SPEC, site, arguments);
            }

            #on_cpu
        }
    }
}

/// What stands for a task with mistakes: a type of its name that every call fits, so that its callers are not wrong too.
pub fn placeholder(task: &Task<'_>) -> TokenStream {
    let p = task.arguments.private();
    let name = &task.function.signature.ident;
    let (visibility, conditions) = (&task.function.visibility, task.function.conditions());
    let on_cpu = on_cpu(task, &p);
    quote! {
        #conditions
        #[allow(non_camel_case_types, missing_docs)]
        #visibility enum #name {}

        #conditions
        #[automatically_derived]
        impl #p::Callable for #name {
            const SLOTS: u32 = 1;
            fn dispatch<R: #p::Role, T: #p::Elementwise, F: #p::Filter>(_: &mut R, _: #p::Task, _: u32) {}
        }

        #conditions
        #[automatically_derived]
        impl #p::Elementwise for #name {
            fn apply(value: f32) -> f32 {
                value
            }
        }

        #conditions
        #[allow(missing_docs)]
        #[automatically_derived]
        impl #name {
            pub const SPEC: #p::spec::TaskSpec = #p::spec::TaskSpec {
                name: ::core::stringify!(#name),
                kind: #p::spec::TaskKind::Direct,
                axes: &[],
                dims: &[],
                equal: &[],
                elements: &[],
                params: &[],
            };

            #[doc(hidden)]
            pub const fn __maco_call(
                recorder: &mut #p::spec::Recorder<'_>,
                _: &#p::spec::CallSite<'_>,
                arguments: &[#p::spec::Argument<'_>],
            ) {
                recorder.excuse(arguments);
            }

            #on_cpu
        }
    }
}

fn spec(task: &Task<'_>, model: &Model, p: &TokenStream) -> TokenStream {
    let name = task.function.signature.ident.to_string();
    let kind = match model.kind {
        Kind::Staged => quote! { Staged },
        Kind::Direct => quote! { Direct },
        Kind::Simt { cpu } => quote! { Simt { cpu: #cpu } },
        Kind::Elementwise => quote! { Elementwise },
    };
    let axes = task.arguments.axes.iter().flatten().zip(&model.tiles).map(|(axis, tiles)| {
        let name = axis.name.to_string();
        quote! { #p::spec::Axis { name: #name, tiles: &[#(#tiles),*] } }
    });
    let dims = model.symbols.names.iter().map(Ident::to_string);
    let equal = model.equal.iter().map(|(left, right)| quote! { (#left, #right) });
    let elements = task.arguments.elements.iter().flat_map(|elements| &elements.list).filter_map(element_variant);
    let mut staged = model.staged.iter();
    let params = task.params.iter().map(|param| match param {
        Param::Tensor(tensor) => tensor_spec(task, model, tensor, *staged.next().expect("one flag per tensor"), p),
        Param::Scalar { name, ty, .. } => {
            let (name, ty) = (name.to_string(), crate::attribute::scalar_variant(ty));
            quote! { #p::spec::Param::Scalar { name: #name, ty: #p::spec::ScalarType::#ty } }
        }
    });
    quote! {
        #p::spec::TaskSpec {
            name: #name,
            kind: #p::spec::TaskKind::#kind,
            axes: &[#(#axes),*],
            dims: &[#(#dims),*],
            equal: &[#(#equal),*],
            elements: &[#(#p::spec::Element::#elements),*],
            params: &[#(#params),*],
        }
    }
}

fn tensor_spec(task: &Task<'_>, model: &Model, tensor: &TensorParam, staged: bool, p: &TokenStream) -> TokenStream {
    let name = tensor.name.to_string();
    let access = match tensor.access {
        Access::Read => quote! { Read },
        Access::Write => quote! { Write },
        Access::Update => quote! { Update },
        Access::Reduce => quote! { Reduce },
    };
    let element = match element_variant(&tensor.element) {
        Some(variant) if Some(&tensor.element) != task.generic() => quote! { Fixed(#p::spec::Element::#variant) },
        _ => quote! { Generic },
    };
    let dims = tensor.dims.iter().map(|dimension| model.symbols.spec(dimension, p).unwrap_or_else(|error| error.to_compile_error()));
    let region = tensor.region.iter().map(|index| region_spec(task, index, p));
    quote! {
        #p::spec::Param::Tensor(#p::spec::TensorParam {
            name: #name,
            access: #p::spec::Access::#access,
            element: #p::spec::ElementSpec::#element,
            dims: &[#(#dims),*],
            region: &[#(#region),*],
            staged: #staged,
        })
    }
}

fn region_spec(task: &Task<'_>, index: &Index, p: &TokenStream) -> TokenStream {
    let axis = extent(task, &index.kind).map(|extent| extent.axis as u8);
    match &index.kind {
        IndexKind::All => quote! { #p::spec::Index::All },
        IndexKind::Tile(_) => quote! { #p::spec::Index::Tile(#axis) },
        IndexKind::Over(_, group) => quote! { #p::spec::Index::TileOver(#axis, (#group) as u32) },
        IndexKind::Halo(_, before, after) => quote! { #p::spec::Index::Halo { axis: #axis, before: #before, after: #after } },
        IndexKind::Data(_) => quote! { #p::spec::Index::Data },
    }
}

/// The generic body and one arm per instance.
fn dispatch(task: &Task<'_>, model: &Model, p: &TokenStream) -> TokenStream {
    let body = body(task, model, p);
    let (role, descriptor, slot) = (hidden("role"), hidden("task"), hidden("slot"));
    let elements: Vec<Option<&Ident>> = match &task.arguments.elements {
        Some(elements) => elements.list.iter().map(Some).collect(),
        None => vec![None],
    };
    let mut arms = Vec::new();
    for element in elements {
        for variant in variants(&model.tiles) {
            let n = arms.len();
            let guard = if n < 128 {
                quote! { if const { __F::MASK & (1 << #n) != 0 } }
            } else {
                // No mask reaches this far: the recorder refuses such a call.
                quote! { if false }
            };
            let n = Literal::u32_unsuffixed(n as u32);
            let element = element.map(|element| {
                let element = task.arguments.element_type(element);
                quote! { #element, }
            });
            let sizes = model.extents.iter().filter(|extent| model.varies(extent)).map(|extent| size(*extent, &variant));
            let arguments = arguments(task, &variant, &descriptor);
            arms.push(quote! {
                #n #guard => __body::<__R, __T, #element #(#sizes),*>(&mut #p::Cta::new(#role, #descriptor), #(#arguments),*),
            });
        }
    }
    quote! {
        #[inline(always)]
        fn dispatch<__R: #p::Role, __T: #p::Elementwise, __F: #p::Filter>(#role: &mut __R, #descriptor: #p::Task, #slot: u32) {
            #body
            match #slot {
                #(#arms)*
                _ => {}
            }
        }
    }
}

fn body(task: &Task<'_>, model: &Model, p: &TokenStream) -> TokenStream {
    let lints = task.function.lints();
    let (generics, bound) = (task.generic(), bound(model.bound));
    let element = generics.map(|element| quote! { #element: #p::#bound, });
    let varying = |place: &usize| model.varies(&model.extents[*place]);
    let consts: Vec<Ident> = (0..model.extents.len()).filter(varying).map(const_name).collect();
    let params: Vec<TokenStream> = task
        .params
        .iter()
        .map(|param| match param {
            Param::Tensor(tensor) => {
                let (pattern, ty) = (&tensor.pattern, tile_type(task, model, tensor, p));
                quote! { #pattern: #ty }
            }
            Param::Scalar { pattern, ty, .. } => quote! { #pattern: #ty },
        })
        .collect();
    let cta = task.cta.as_ref().map(ToTokens::to_token_stream);
    let user = &task.function.body;
    let head = quote! { <__R: #p::Role, __T: #p::Elementwise, #element #(const #consts: usize),*> };
    let Kind::Simt { .. } = model.kind else {
        return quote! {
            #lints
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn __body #head (#cta: &mut #p::Cta<'_, __R, __T>, #(#params),*) #user
        };
    };
    let names: Vec<&Ident> = task.params.iter().map(Param::name).collect();
    let types = task.params.iter().map(|param| match param {
        Param::Tensor(tensor) => tile_type(task, model, tensor, p),
        Param::Scalar { ty, .. } => ty.to_token_stream(),
    });
    let device_head = quote! { <#element #(const #consts: usize),*> };
    let turbofish = {
        let element = generics.map(|element| quote! { #element, });
        quote! { ::<#element #(#consts),*> }
    };
    let on_host = match &task.arguments.cpu {
        Some(reference) => quote! { #p::Cta::simt(__cta, |_| #reference(#(#names),*)); },
        // The CPU device refuses the task when a plan is made.
        None => quote! { let _ = (__cta, #(#names),*); },
    };
    quote! {
        #[inline(always)]
        #[allow(clippy::too_many_arguments)]
        fn __body #head (__cta: &mut #p::Cta<'_, __R, __T>, #(#names: #types),*) {
            #[cfg(target_arch = "nvptx64")]
            {
                #lints
                #[inline(always)]
                unsafe fn __device #device_head (#cta: &mut #p::Simt, #(#params),*) #user
                #p::Cta::simt(__cta, |__simt| {
                    // SAFETY: the task's author has promised that it stays inside its regions; `unsafe fn` says so.
                    unsafe { __device #turbofish (__simt, #(#names),*) }
                });
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                #on_host
            }
        }
    }
}

/// `Tile<E, I, 0>`
fn tile_type(task: &Task<'_>, model: &Model, tensor: &TensorParam, p: &TokenStream) -> TokenStream {
    let element = task.arguments.element_type(&tensor.element);
    let extents: Vec<TokenStream> = last_two(tensor).into_iter().map(|index| match index {
        None => quote! { 1 },
        Some(index) => match extent(task, &index.kind).and_then(|extent| model.extents.iter().position(|known| *known == extent)) {
            Some(place) if model.varies(&model.extents[place]) => const_name(place).to_token_stream(),
            Some(place) => size(model.extents[place], &model.first()).to_token_stream(),
            None => quote! { 0 },
        },
    })
    .collect();
    quote! { #p::Tile<#element, #(#extents),*> }
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
fn arguments(task: &Task<'_>, variant: &[u32], descriptor: &Ident) -> Vec<TokenStream> {
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
                    [plane, _, _] => origin(task, plane, variant, descriptor),
                    _ => quote! { 0 },
                };
                let [row, column] = last_two(tensor).map(|index| match index {
                    Some(index) => origin(task, index, variant, descriptor),
                    None => quote! { 0 },
                });
                quote! { #descriptor.tile(#n, #plane, #row, #column) }
            }
        })
        .collect()
}

/// First element of a tile along one axis.
fn origin(task: &Task<'_>, index: &Index, variant: &[u32], descriptor: &Ident) -> TokenStream {
    let Some(extent) = extent(task, &index.kind) else { return quote! { 0 } };
    let axis = Literal::usize_unsuffixed(extent.axis);
    let tile = Literal::u32_unsuffixed(variant[extent.axis]);
    let coord = quote! { #descriptor.coord(#axis) };
    match &index.kind {
        IndexKind::Over(_, group) => quote! { #coord / ((#group) as i32) * #tile },
        IndexKind::Halo(_, before, _) => {
            let before = Literal::u32_unsuffixed(*before);
            quote! { #coord * #tile - #before }
        }
        _ => quote! { #coord * #tile },
    }
}

/// `linear::on_cpu(&x, &w, &mut y)`
fn on_cpu(task: &Task<'_>, p: &TokenStream) -> TokenStream {
    let name = &task.function.signature.ident;
    let generic = task.generic().map(|generic| quote! { <#generic: #p::TensorElement> });
    let params = task.params.iter().map(|param| match param {
        Param::Tensor(tensor) => {
            let (name, element) = (&tensor.name, task.arguments.element_type(&tensor.element));
            let mutable = tensor.access.writes().then(|| quote! { mut });
            quote! { #name: &#mutable #p::Tensor<#element> }
        }
        Param::Scalar { name, ty, .. } => quote! { #name: #ty },
    });
    let pushes = task.params.iter().map(|param| match param {
        Param::Tensor(tensor) => {
            let name = &tensor.name;
            if tensor.access.writes() { quote! { .tensor_mut(#name) } } else { quote! { .tensor(#name) } }
        }
        Param::Scalar { name, .. } => quote! { .scalar(#name) },
    });
    quote! {
        /// Runs the task alone, on the CPU.
        ///
        /// # Errors
        /// Shapes or elements that do not fit the task.
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(clippy::too_many_arguments)]
        pub fn on_cpu #generic (#(#params),*) -> ::core::result::Result<(), #p::Error> {
            #p::on_cpu(
                &Self::SPEC,
                <#name as #p::Callable>::dispatch::<#p::Cpu, #p::Identity, #p::All>,
                #p::Arguments::new() #(#pushes)*,
            )
        }
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
        Bound::Mma => "MmaElement",
        Bound::Float => "FloatElement",
        Bound::Any => "Element",
    };
    Ident::new(name, Span::call_site())
}

fn const_name(place: usize) -> Ident {
    format_ident!("__EXTENT_{place}")
}
