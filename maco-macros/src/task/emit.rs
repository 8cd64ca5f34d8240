//! Step 4: the type of the task's name, its spec, `on_cpu`. Its code is in `dispatch.rs`.

use maco_graph::spec::Access;
use proc_macro2::TokenStream;
use quote::quote;

use super::analyse::{Model, extent};
use super::kind::{Kind, RowsForm};
use super::parse::{Param, Task, TensorParam};
use super::region::{Index, IndexKind};
use crate::attribute::element_variant;
use crate::spans::{Site, hidden, plain};

pub fn emit(task: &Task<'_>, model: &Model) -> TokenStream {
    let p = task.arguments.private();
    let name = &task.function.signature.ident;
    let (visibility, documentation, conditions) = (&task.function.visibility, task.function.documentation(), task.function.conditions());
    let spec = spec(task, model, &p);
    let tile = |tensor: &TensorParam| super::dispatch::tile_type(task, model, tensor, &p, true);
    let checked = super::written::check(task, tile);
    let (dispatch, unwritten) = (super::dispatch::dispatch(task, model, &checked, &p), &checked.reports);
    let instances = super::dispatch::instances(task, model, &p);
    let on_cpu = on_cpu(task, Some(model), &p);
    let (groups, gemv) = (groups(task, &p), gemv_form(task, &p));
    let narrow = matches!(model.kind, Kind::Warp { .. }).then(|| quote! { const WARP_TASKS: u128 = u128::MAX; });
    let exchanges = matches!(model.kind, Kind::Collective { .. }).then(|| quote! { const COLLECTIVES: bool = true; });
    let maps = matches!(model.kind, Kind::Rows(RowsForm::Unary { .. }));
    let maps = maps.then(|| quote! { const ELEMENTWISE: u128 = #name::SPEC.unary_instances(); });
    let gemvs = gemvs(task, model, &p);
    // SIMT bodies see tiles without a region.
    let names = (!model.kind.is_simt()).then(|| model.names.items(task, &p));
    let [recorder, site, arguments] = ["recorder", "site", "arguments"].map(hidden);
    quote! {
        #documentation
        #conditions
        #[allow(non_camel_case_types)]
        #visibility enum #name {}

        #groups
        #gemv
        #unwritten
        #names

        #conditions
        #[automatically_derived]
        impl #p::Callable for #name {
            const SLOTS: u32 = #name::SPEC.slots();
            const RESULT: usize = #name::SPEC.rounded();
            #narrow
            #exchanges
            #maps
            #gemvs
            #instances
            #dispatch
        }

        #conditions
        #[automatically_derived]
        impl #name {
            /// What the task promises.
            pub const SPEC: #p::spec::TaskSpec = #spec;

            #[doc(hidden)]
            pub const fn __maco_call(
                #recorder: &mut #p::spec::Recorder<'_>,
                #site: &#p::spec::CallSite<'_>,
                #arguments: &[#p::spec::Argument<'_>],
            ) {
                #recorder.call(&Self::SPEC, #site, #arguments);
            }

            #on_cpu
        }
    }
}

/// The instances that are GEMVs: all of a GEMV, or those of a GEMM's GEMV form, which follow its own.
fn gemvs(task: &Task<'_>, model: &Model, p: &TokenStream) -> Option<TokenStream> {
    if matches!(model.kind, Kind::Gemv { operand_a: Some(_), .. }) {
        return Some(quote! { const GEMVS: u128 = u128::MAX; });
    }
    let gemv = task.arguments.few.as_ref()?;
    let name = &task.function.signature.ident;
    Some(quote! { const GEMVS: u128 = #p::gemvs::<#gemv>(#name::SPEC.instances()); })
}

/// What stands for a task with mistakes: a type of its name that every call fits, so that its callers are not wrong too.
pub fn placeholder(task: &Task<'_>) -> TokenStream {
    let p = task.arguments.private();
    let name = &task.function.signature.ident;
    let (visibility, conditions) = (&task.function.visibility, task.function.conditions());
    let on_cpu = on_cpu(task, None, &p);
    let [recorder, arguments, value] = ["recorder", "arguments", "value"].map(hidden);
    quote! {
        #conditions
        #[allow(non_camel_case_types, missing_docs)]
        #visibility enum #name {}

        #conditions
        #[automatically_derived]
        impl #p::Callable for #name {
            const SLOTS: u32 = 1;
            fn dispatch<__R: #p::Role, __T: #p::Epilogue, __F: #p::Filter>(_: &mut __R, _: #p::Task, _: u32) {}
        }

        #conditions
        #[automatically_derived]
        impl #p::Elementwise for #name {
            fn apply(#value: f32) -> f32 {
                #value
            }
        }

        #conditions
        #[automatically_derived]
        impl #p::Combine for #name {
            fn combine(#value: f32, _: f32) -> f32 {
                #value
            }
        }

        #conditions
        #[allow(missing_docs)]
        #[automatically_derived]
        impl #name {
            pub const SPEC: #p::spec::TaskSpec = #p::spec::TaskSpec {
                name: ::core::stringify!(#name),
                kind: #p::spec::TaskKind::Tiles,
                axes: &[],
                dims: &[],
                equal: &[],
                elements: &[],
                params: &[],
                gemv: ::core::option::Option::None,
            };

            #[doc(hidden)]
            pub const fn __maco_call(
                #recorder: &mut #p::spec::Recorder<'_>,
                _: &#p::spec::CallSite<'_>,
                #arguments: &[#p::spec::Argument<'_>],
            ) {
                #recorder.excuse(#arguments);
            }

            #on_cpu
        }
    }
}

fn spec(task: &Task<'_>, model: &Model, p: &TokenStream) -> TokenStream {
    let name = plain(&task.function.signature.ident);
    let boxes = task.tensors().enumerate().filter_map(|(operand, tensor)| {
        let boxes = task.boxes(tensor)?;
        let (operand, rows, swizzle) = (operand as u8, boxes.rows.1, boxes.swizzle.1);
        Some(quote! { #p::spec::BoxSpec { operand: #operand, rows: #rows, swizzle: #swizzle } })
    });
    let kind = model.kind.spec(&quote! { #(#boxes),* }, p);
    let axes = task.arguments.axes.iter().flatten().zip(&model.tiles).map(|(axis, tiles)| {
        let name = plain(&axis.name);
        quote! { #p::spec::Axis { name: #name, tiles: &[#(#tiles),*] } }
    });
    let dims = model.symbols.names.iter().map(plain);
    let equal = model.equal.iter().map(|(left, right)| quote! { (#left, #right) });
    let elements = task.arguments.elements.iter().flat_map(|elements| &elements.list).filter_map(element_variant);
    let mut staged = model.staged.iter();
    let params = task.params.iter().map(|param| match param {
        Param::Tensor(tensor) => tensor_spec(task, model, tensor, *staged.next().expect("one flag per tensor"), p),
        Param::Scalar { name, ty, .. } => {
            let (name, ty) = (plain(name), crate::attribute::scalar_variant(ty));
            quote! { #p::spec::Param::Scalar { name: #name, ty: #p::spec::ScalarType::#ty } }
        }
    });
    // Both forms have the user's name.
    let gemv = match &task.arguments.few {
        Some(gemv) => quote! { ::core::option::Option::Some(&#p::spec::TaskSpec { name: #name, ..<#gemv>::SPEC }) },
        None => quote! { ::core::option::Option::None },
    };
    quote! {
        #p::spec::TaskSpec {
            name: #name,
            kind: #kind,
            axes: &[#(#axes),*],
            dims: &[#(#dims),*],
            equal: &[#(#equal),*],
            elements: &[#(#p::spec::Element::#elements),*],
            params: &[#(#params),*],
            gemv: #gemv,
        }
    }
}

fn tensor_spec(task: &Task<'_>, model: &Model, tensor: &TensorParam, staged: bool, p: &TokenStream) -> TokenStream {
    let name = plain(&tensor.name);
    let access = match tensor.access {
        Access::Read => quote! { Read },
        Access::Write => quote! { Write },
        Access::Update => quote! { Update },
        Access::Reduce => quote! { Reduce },
    };
    let element = match element_variant(&tensor.element) {
        Some(variant) if Some(&tensor.element) != task.generic() => quote! { Fixed(#p::spec::Element::#variant) },
        _ if model.rounded(task, tensor) => quote! { Result },
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
        IndexKind::Over(_, group) => quote! { #p::spec::Index::TileOver(#axis, #p::spec::group((#group) as u64)) },
        IndexKind::Halo(_, before, after) => quote! { #p::spec::Index::Halo { axis: #axis, before: #before, after: #after } },
        IndexKind::Data(names) => {
            let by = match names.as_slice() {
                [name] => task.tensors().position(|tensor| tensor.name == *name).map_or(maco_graph::spec::NOT_NAMED, |by| by as u8),
                _ => maco_graph::spec::NOT_NAMED,
            };
            quote! { #p::spec::Index::Data(#by) }
        }
    }
}

/// `linear::on_cpu(&x, &w, &mut y)`
fn on_cpu(task: &Task<'_>, model: Option<&Model>, p: &TokenStream) -> TokenStream {
    let name = &task.function.signature.ident;
    let result = task.tensors().find(|tensor| model.is_some_and(|model| model.rounded(task, tensor)));
    let (generic, epilogue, stated) = match (task.generic(), result) {
        // Sums are rounded to what the result holds.
        (Some(generic), Some(_)) => (
            quote! { <#generic: #p::TensorElement, __Y: #p::TensorElement + #p::MmaElement + #p::ResultElement> },
            quote! { #p::Rounded<#p::Identity, __Y> },
            quote! { ::core::option::Option::Some(<__Y as #p::TensorElement>::ELEMENT) },
        ),
        (generic, _) => {
            let generic = generic.map(|generic| quote! { <#generic: #p::TensorElement> });
            (quote! { #generic }, quote! { #p::Identity }, quote! { ::core::option::Option::None })
        }
    };
    let params = task.params.iter().map(|param| match param {
        Param::Tensor(tensor) => {
            let (name, mut element) = (&tensor.name, task.arguments.element_type(&tensor.element));
            if result.is_some_and(|result| result.name == tensor.name) {
                element = quote! { __Y };
            }
            let mutable = tensor.access.writes().then(|| quote! { mut });
            quote! { #name: &#mutable #p::Tensor<#element> }
        }
        Param::Scalar { name, ty, .. } => quote! { #name: #ty },
    });
    let pushes = task.params.iter().map(|param| match param {
        Param::Tensor(tensor) => {
            let name = &tensor.name;
            if tensor.access.writes() {
                quote! { .tensor_mut(#name) }
            } else {
                quote! { .tensor(#name) }
            }
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
                <#name as #p::Callable>::dispatch::<#p::Cpu, #epilogue, #p::All>,
                #stated,
                #p::Arguments::new() #(#pushes)*,
            )
        }
    }
}

/// The check of `few = task`, with the span of the user's path. On the host only, as below.
fn gemv_form(task: &Task<'_>, p: &TokenStream) -> Option<TokenStream> {
    let gemv = task.arguments.few.as_ref()?;
    let (name, conditions) = (&task.function.signature.ident, task.function.conditions());
    let check = Site::of(gemv).over(quote! { #p::spec::check_gemv_form }, quote! { &#name::SPEC, &<#gemv>::SPEC });
    Some(quote! { #conditions #[cfg(not(target_arch = "nvptx64"))] const _: () = #check; })
}

/// One check for each `i / G`, underlined as the user's `G`. On the host only: a mistake must not fail the build script.
fn groups(task: &Task<'_>, p: &TokenStream) -> TokenStream {
    let conditions = task.function.conditions();
    task.tensors()
        .flat_map(|tensor| &tensor.region)
        .filter_map(|index| match &index.kind {
            IndexKind::Over(_, group) => {
                let check = Site::of(group).over(quote! { #p::spec::check_group }, quote! { (#group) as u64 });
                Some(quote! { #conditions #[cfg(not(target_arch = "nvptx64"))] const _: () = #check; })
            }
            _ => None,
        })
        .collect()
}
