//! Step 4: the type that holds the replay, its recording and its dispatch.
//!
//! It stands beside the user's function, where the user's names mean what they say. The module users see is in `module.rs`.

use maco_graph::spec::{Access, Element, FusedOperand};
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};

use super::analyse::{FusedOp, Model, Operation, dimensions, recorder};
use super::call::held;
use super::parse::{Kernel, Param, ParamKind};
use crate::attribute::{element_variant, scalar_variant};
use crate::spans::{Site, hidden, plain};

/// A megakernel: a hidden type for the program, a module for its users, an entry for the device.
pub fn megakernel(kernel: &Kernel<'_>, model: &Model, reports: bool) -> TokenStream {
    let p = &model.p;
    let program = format_ident!("__maco_{}", kernel.name());
    let conditions = kernel.function.conditions();
    let callable = callable(kernel, &program, model, &quote! { pub(crate) }, &TokenStream::new(), reports);
    let planning = super::module::planning(kernel, model, &program);
    let module = super::module::module(kernel, model, &program);
    let entry = super::module::entry(kernel, model, &program);
    let reports = if reports { self::reports(kernel, model, &program) } else { TokenStream::new() };
    quote! {
        #callable

        #conditions
        #[automatically_derived]
        impl #p::Filter for #program {
            const MASK: u128 = #program::__RECORDING.mask();
        }

        #planning
        #module
        #entry
        #reports
    }
}

/// A graph: a type of its name that can be called like a task.
pub fn graph(kernel: &Kernel<'_>, model: &Model, reports: bool) -> TokenStream {
    let (p, name) = (&model.p, kernel.name());
    let conditions = kernel.function.conditions();
    let documentation = kernel.function.documentation();
    let callable = callable(kernel, name, model, &kernel.function.visibility.to_token_stream(), &documentation, reports);
    let spec = graph_spec(kernel, model);
    let (recorder, dims, site) = (recorder(), dimensions(), hidden("site"));
    let (arguments, enclosing) = (hidden("arguments"), hidden("enclosing"));
    let count = model.symbols.names.len();
    let symbols = 0..count as u8;
    let values = kernel.params.iter().enumerate().map(|(n, param)| match &param.kind {
        ParamKind::Tensor { array: Some(length), .. } => quote! { #arguments[#n].views::<{ #length }>() },
        ParamKind::Tensor { .. } => quote! { #arguments[#n].view() },
        ParamKind::Scalar { .. } => quote! { #arguments[#n].value() },
    });
    let reports = if reports { self::reports(kernel, model, name) } else { TokenStream::new() };
    quote! {
        #callable

        #conditions
        #[automatically_derived]
        #[allow(long_running_const_eval)]
        impl #name {
            #[doc(hidden)]
            pub const __SPEC: #p::spec::GraphSpec = #spec;

            #[doc(hidden)]
            pub const fn __maco_call(
                #recorder: &mut #p::spec::Recorder<'_>,
                #site: &#p::spec::CallSite<'_>,
                #arguments: &[#p::spec::Argument<'_>],
            ) {
                if let ::core::option::Option::Some(#enclosing) =
                    #recorder.enter(&Self::__SPEC, Self::__RECORDING.clean(), #site, #arguments)
                {
                    let #dims: [#p::spec::Dim; #count] = [#(#enclosing.dim(#symbols)),*];
                    Self::__replay(#recorder, &#dims, #(#values),*);
                    #recorder.leave(#enclosing);
                }
            }
        }
        #reports
    }
}

/// The type, its replay, its recording and its dispatch.
fn callable(
    kernel: &Kernel<'_>,
    name: &Ident,
    model: &Model,
    visibility: &TokenStream,
    documentation: &TokenStream,
    whole: bool,
) -> TokenStream {
    let p = &model.p;
    let conditions = kernel.function.conditions();
    let lints = kernel.function.lints();
    let (recorder, dims) = (recorder(), dimensions());
    let count = model.symbols.names.len();
    let sites = model.sites.len();
    let symbols = model.symbols.names.iter().map(plain);
    let (base, storage) = (hidden("base"), hidden("storage"));
    let equal = model.equal.iter().map(|(left, right)| quote! { (#left, #right) });
    let params = kernel.params.iter().map(|param| {
        let pattern = &param.pattern;
        let ty = match &param.kind {
            ParamKind::Tensor { array: Some(length), .. } => quote! { [#p::spec::View; #length] },
            ParamKind::Tensor { .. } => quote! { #p::spec::View },
            ParamKind::Scalar { .. } => quote! { #p::spec::Value },
        };
        quote! { #pattern: #ty }
    });
    let declarations = kernel.params.iter().enumerate().map(|(n, param)| declaration(n, param, model));
    let values = (0..kernel.params.len()).map(|n| hidden(&format!("parameter{n}")));
    let elements = kernel.params.iter().filter_map(|param| match &param.kind {
        // A wrong element has been reported.
        ParamKind::Tensor { element, .. } => element_variant(element).map(|_| element),
        ParamKind::Scalar { ty } => Some(ty),
    });
    let (ranges, body) = (&model.ranges, &model.replay);
    let operations = model.operations.len();
    let bases = (0..operations).map(|n| {
        let ty = &model.operations[n].ty;
        quote! { #base[#n + 1] = #base[#n] + <#ty as #p::Callable>::SLOTS; }
    });
    let callees: Vec<_> = model.operations.iter().map(|operation| &operation.ty).collect();
    let numbers: Vec<usize> = (0..operations).collect();
    let dispatch = dispatch(name, model);
    let instances = instances(name, model);
    let named = model.callees.items(kernel, name, p);
    // Where statements were left out, the variables they used are not the user's mistake.
    let unused = (!whole).then(|| quote! { #[allow(unused)] });
    let hide = documentation.is_empty().then(|| quote! { #[doc(hidden)] });
    quote! {
        #documentation
        #hide
        #conditions
        #[allow(non_camel_case_types)]
        #visibility enum #name {}

        #named

        #conditions
        #[automatically_derived]
        #[allow(long_running_const_eval)]
        impl #name {
            const __SYMBOLS: &'static [&'static str] = &[#(#symbols),*];

            /// First slot of each callee; the last entry is the number of slots.
            const __BASE: [u32; #operations + 1] = {
                #[allow(unused_mut)]
                let mut #base = [0; #operations + 1];
                #(#bases)*
                #base
            };

            /// The user's body.
            #lints
            #unused
            #[allow(clippy::too_many_arguments)]
            const fn __replay(#recorder: &mut #p::spec::Recorder<'_>, #dims: &[#p::spec::Dim; #count], #(#params),*) {
                let _ = (&#recorder, #dims);
                // The elements are what they are in the user's file, and imports of them are used.
                let _: ::core::option::Option<(#(#elements,)*)> = ::core::option::Option::None;
                #body
            }

            /// The body by itself, with its own parameters.
            const fn __record(#recorder: &mut #p::spec::Recorder<'_>) {
                let #dims: [#p::spec::Dim; #count] = #recorder.dimensions(&[#(#equal),*]);
                #(#declarations)*
                #ranges
                Self::__replay(#recorder, &#dims, #(#values),*);
                #recorder.finish();
            }

            const __COUNTS: #p::spec::Counts = {
                let mut #storage = #p::spec::Storage::counting(Self::__SYMBOLS);
                let mut #recorder = #storage.recorder();
                Self::__record(&mut #recorder);
                #recorder.counts()
            };

            #[doc(hidden)]
            pub const __RECORDING: #p::spec::Recording<'static> = {
                const __STORAGE: &#p::spec::Storage<
                    { #name::__COUNTS.dims },
                    { #name::__COUNTS.tensors },
                    { #name::__COUNTS.scalars },
                    { #name::__COUNTS.calls },
                    { #name::__COUNTS.operands },
                    { #name::__COUNTS.values },
                    #sites,
                > = &{
                    let mut #storage = #p::spec::Storage::new(#name::__SYMBOLS);
                    #name::__record(&mut #storage.recorder());
                    #storage
                };
                __STORAGE.recording()
            };
        }

        #conditions
        #[automatically_derived]
        impl #p::Callable for #name {
            const SLOTS: u32 = #name::__BASE[#operations];
            const WARP_TASKS: u128 = 0 #(| #p::warp_tasks::<#callees>(#name::__BASE[#numbers]))*;
            const ELEMENTWISE: u128 = 0 #(| #p::elementwise::<#callees>(#name::__BASE[#numbers]))*;
            const GEMVS: u128 = 0 #(| #p::gemvs::<#callees>(#name::__BASE[#numbers]))*;
            const COLLECTIVES: bool = false #(|| <#callees as #p::Callable>::COLLECTIVES)*;
            #instances
            #dispatch
        }
    }
}

fn declaration(n: usize, param: &Param, model: &Model) -> TokenStream {
    let p = &model.p;
    let (recorder, dims, variable) = (recorder(), dimensions(), hidden(&format!("parameter{n}")));
    let (name, site, local) = (plain(&param.name), n as u32, hidden("shape"));
    match &param.kind {
        ParamKind::Scalar { ty } => {
            let ty = scalar_variant(ty);
            quote! { let #variable = #recorder.scalar(#name, #p::spec::ScalarType::#ty); }
        }
        ParamKind::Tensor { word, element, dims: shape, array, shard, symmetric } => {
            // A wrong element has been reported.
            let element = element_variant(element).unwrap_or_else(|| format_ident!("Bf16"));
            let shape = shape.iter().map(|dimension| runtime_dimension(dimension, model, site));
            let placement = match shard {
                Some(axis) => quote! { Sharded(#axis) },
                None => quote! { Replicated },
            };
            let method = match array {
                Some(length) => quote! { array::<{ #length }> },
                None => quote! { tensor },
            };
            let mark = symmetric.then(|| quote! { #recorder.symmetric(#variable); });
            quote! {
                let #variable = {
                    let #local = [#(#shape),*];
                    let _ = &#dims;
                    #recorder.#method(#name, #p::spec::Kind::#word, #p::spec::Element::#element, &#local, #p::spec::Placement::#placement, #site)
                };
                #mark
            }
        }
    }
}

/// A dimension of a parameter as an operation of the recorder.
fn runtime_dimension(dimension: &crate::shape::Dimension, model: &Model, site: u32) -> TokenStream {
    use crate::shape::Dimension;
    let (recorder, dims) = (recorder(), dimensions());
    match dimension {
        Dimension::Name(name) => {
            let index = model.symbols.index(name).unwrap_or(0);
            quote! { #dims[#index] }
        }
        Dimension::Number(number) => quote! { #recorder.constant(#number as u64, #site) },
        Dimension::Expression(expression) => {
            super::value::dimension_tokens(&model.symbols, expression, site).unwrap_or_else(|error| error.to_compile_error())
        }
    }
}

fn graph_spec(kernel: &Kernel<'_>, model: &Model) -> TokenStream {
    let p = &model.p;
    let name = plain(kernel.name());
    let dims = model.symbols.names.iter().map(plain);
    let equal = model.equal.iter().map(|(left, right)| quote! { (#left, #right) });
    let params = kernel.params.iter().map(|param| {
        let name = plain(&param.name);
        match &param.kind {
            ParamKind::Scalar { ty } => {
                let ty = scalar_variant(ty);
                quote! { #p::spec::GraphParam::Scalar { name: #name, ty: #p::spec::ScalarType::#ty } }
            }
            ParamKind::Tensor { word, element, dims, array, .. } => {
                let element = element_variant(element).unwrap_or_else(|| format_ident!("Bf16"));
                let access = match access(word) {
                    Access::Read => quote! { Read },
                    Access::Write => quote! { Write },
                    _ => quote! { Update },
                };
                let array = match array {
                    Some(length) => quote! { ::core::option::Option::Some(#length) },
                    None => quote! { ::core::option::Option::None },
                };
                let dims = dims.iter().map(|dimension| model.symbols.spec(dimension, p).unwrap_or_else(|error| error.to_compile_error()));
                quote! {
                    #p::spec::GraphParam::Tensor {
                        name: #name,
                        access: #p::spec::Access::#access,
                        element: #p::spec::Element::#element,
                        dims: &[#(#dims),*],
                        array: #array,
                    }
                }
            }
        }
    });
    quote! { #p::spec::GraphSpec { name: #name, dims: &[#(#dims),*], equal: &[#(#equal),*], params: &[#(#params),*] } }
}

/// What a graph does to a parameter, by its word.
pub fn access(word: &Ident) -> Access {
    match word.to_string().as_str() {
        "In" => Access::Read,
        "Out" => Access::Write,
        _ => Access::Update,
    }
}

/// One range of slots for each callee with its epilogues.
fn dispatch(name: &Ident, model: &Model) -> TokenStream {
    let p = &model.p;
    let (role, task, slot, offset) = (hidden("role"), hidden("task"), hidden("slot"), hidden("offset"));
    let arms = model.operations.iter().enumerate().map(|(n, operation)| {
        let (ty, epilogue) = (&operation.ty, epilogue(operation, p));
        quote! {
            // Instances that nobody uses cost the compiler nothing either.
            if const { <#p::After<__F, { #name::__BASE[#n] }> as #p::Filter>::MASK != 0 } {
                let #offset = #slot.wrapping_sub(#name::__BASE[#n]);
                if #offset < <#ty as #p::Callable>::SLOTS {
                    return <#ty as #p::Callable>::dispatch::<__R, #epilogue, #p::After<__F, { #name::__BASE[#n] }>>(#role, #task, #offset);
                }
            }
        }
    });
    quote! {
        #[inline(always)]
        fn dispatch<__R: #p::Role, __T: #p::Epilogue, __F: #p::Filter>(#role: &mut __R, #task: #p::Task, #slot: u32) {
            let _ = (&#role, #task, #slot);
            #(#arms)*
        }
    }
}

/// What is known of the instances of all callees, and the epilogue of each.
fn instances(name: &Ident, model: &Model) -> TokenStream {
    let p = &model.p;
    let (slot, offset, what) = (hidden("slot"), hidden("offset"), hidden("what"));
    let known = model.operations.iter().enumerate().map(|(n, operation)| {
        let (ty, epilogue) = (&operation.ty, epilogue(operation, p));
        quote! { .with::<#epilogue>(&<#ty as #p::Callable>::INSTANCES, #name::__BASE[#n], <#ty as #p::Callable>::SLOTS) }
    });
    let arms = model.operations.iter().enumerate().map(|(n, operation)| {
        let (ty, epilogue) = (&operation.ty, epilogue(operation, p));
        quote! {
            if const { <#p::After<__F, { #name::__BASE[#n] }> as #p::Filter>::MASK != 0 } {
                let #offset = #slot.wrapping_sub(#name::__BASE[#n]);
                if #offset < <#ty as #p::Callable>::SLOTS {
                    return <#ty as #p::Callable>::with_epilogue::<__W, #epilogue, #p::After<__F, { #name::__BASE[#n] }>>(#offset, #what);
                }
            }
        }
    });
    quote! {
        const INSTANCES: #p::Instances = #p::Instances::NONE #(#known)*;
        #[inline(always)]
        fn with_epilogue<__W: #p::WithEpilogue, __T: #p::Epilogue, __F: #p::Filter>(#slot: u32, #what: __W) -> __W::Output {
            let _ = #slot;
            #(#arms)*
            __W::none()
        }
    }
}

/// The type of a call's epilogue: `Each<gelu>`, `Then<WithTensor<add, 0, bf16>, Each<gelu>>`, or the identity; in `First<Each<silu>, ..>` with a prologue; and
/// the element of the result, if arguments have different elements.
fn epilogue(operation: &Operation, p: &TokenStream) -> TokenStream {
    let (mut tensors, mut scalars) = (0usize, 0usize);
    let number = |count: &mut usize| {
        *count += 1;
        *count - 1
    };
    let steps: Vec<(bool, TokenStream)> = operation
        .fused
        .iter()
        .map(|FusedOp { path, ty, operand, on_operand_a }| {
            let step = match operand {
                FusedOperand::Nothing => quote! { #p::Each<#ty> },
                FusedOperand::Tensor(element) => {
                    let n = number(&mut tensors);
                    let element = match element {
                        Element::Bf16 => quote! { #p::bf16 },
                        Element::F16 => quote! { #p::f16 },
                        // Integers are an error of the recorder's.
                        _ => quote! { ::core::primitive::f32 },
                    };
                    quote! { #p::WithTensor<#ty, #n, #element> }
                }
                FusedOperand::Scalar => {
                    let n = number(&mut scalars);
                    quote! { #p::WithScalar<#ty, #n> }
                }
            };
            // A function that does not fit is then underlined where it stands.
            (*on_operand_a, Site::of(path).respan(step))
        })
        .collect();
    let then = |rest: TokenStream, first: TokenStream| quote! { #p::Then<#first, #rest> };
    let chain = |of: bool| steps.iter().rev().filter(|(first, _)| *first == of).map(|(_, step)| step.clone()).reduce(then);
    let sum = chain(false).unwrap_or_else(|| quote! { #p::Identity });
    let steps = match (chain(true), operation.fused.first()) {
        (Some(map), Some(first)) => {
            let site = Site::of(&first.path);
            let [open, between, close] = [quote! { #p::First< }, quote! { , }, quote! { > }].map(|tokens| site.respan(tokens));
            quote! { #open #map #between #sum #close }
        }
        _ => sum,
    };
    match &operation.elements {
        Some(elements) => {
            let (ty, elements) = (&operation.ty, held(elements, p));
            quote! { #p::Rounded<#steps, #p::ResultCode<{ #p::spec::result_code(<#ty as #p::Callable>::RESULT, #elements) }>> }
        }
        None => steps,
    }
}

/// One const per site, underlined as the user's token. On the host only: a mistake must not fail the build script.
fn reports(kernel: &Kernel<'_>, model: &Model, name: &Ident) -> TokenStream {
    let conditions = kernel.function.conditions();
    let reports = model.sites.iter().enumerate().map(|(n, site)| {
        let call = site.over(quote! { #name::__RECORDING.report }, quote! { #n });
        quote! { const _: () = #call; }
    });
    let callees = model.callees.checks(name, &model.p);
    quote! {
        #conditions
        #[cfg(not(target_arch = "nvptx64"))]
        const _: () = {
            #callees
            #(#reports)*
        };
    }
}
