//! What users of a megakernel see: the module with `Dims`, `plan`, `plan_with` and `Plan`; and the device entry.

use maco_graph::spec::Access;
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};

use super::analyse::Model;
use super::emit::access;
use super::parse::{Kernel, ParamKind};
use crate::attribute::element_variant;
use crate::entry::{embedded, entry_name};

/// `pub mod mlp { pub struct Dims { … } pub fn plan(…) … }`
pub fn module(kernel: &Kernel<'_>, model: &Model, program: &Ident) -> TokenStream {
    let p = &model.p;
    let (name, visibility) = (kernel.name(), &kernel.function.visibility);
    let (conditions, documentation) = (kernel.function.conditions(), kernel.function.documentation());
    let text = name.to_string();
    let symbols = &model.symbols.names;
    let field_docs = symbols.iter().map(|symbol| format!("Size of dimension `{symbol}`."));
    let entry = entry_text(kernel);
    let (include, embedded) = embedded(p, &entry);
    let number = |expression: &Option<syn::Expr>| match expression {
        Some(expression) => quote! { ::core::option::Option::Some((#expression) as u32) },
        None => quote! { ::core::option::Option::None },
    };
    let (workers, schedulers) = (number(&kernel.arguments.workers), number(&kernel.arguments.schedulers));
    let (params, pushes) = (parameters(kernel, p, None), pushes(kernel));
    let (borrowed, borrowed_pushes) = (parameters(kernel, p, Some(quote! { 'a })), &pushes);
    quote! {
        #documentation
        #conditions
        #[cfg(not(target_arch = "nvptx64"))]
        #visibility mod #name {
            #[allow(unused_imports)]
            use super::*;

            #[doc = concat!("Sizes of the dimensions of `", #text, "`.")]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[allow(non_snake_case)]
            pub struct Dims {
                #(
                    #[doc = #field_docs]
                    pub #symbols: u64,
                )*
            }

            #[doc = concat!("A plan of `", #text, "` for one device and one choice of sizes.")]
            pub struct Plan(#p::Plan);

            mod embedded {
                #include
                pub(super) const CODE: #p::Embedded = #embedded;
            }

            #[doc = concat!("Plans `", #text, "`: tiles, events and lists for these sizes.")]
            ///
            /// # Errors
            /// Sizes the megakernel cannot have, or a device that cannot run it.
            pub fn plan(device: &#p::Device, dims: Dims) -> ::core::result::Result<Plan, #p::Error> {
                plan_with(device, dims, &#p::PlanOptions::default())
            }

            #[doc = concat!("Plans `", #text, "` with options.")]
            ///
            /// # Errors
            /// As for [`plan`].
            pub fn plan_with(device: &#p::Device, dims: Dims, options: &#p::PlanOptions) -> ::core::result::Result<Plan, #p::Error> {
                let Dims { #(#symbols),* } = dims;
                let graph = super::#program::__RECORDING.resolve(#text, &[#(#symbols),*])?;
                let program = #p::Program {
                    name: #text,
                    graph,
                    entry: #entry,
                    embedded: embedded::CODE,
                    cpu: <super::#program as #p::Callable>::dispatch::<#p::Cpu, #p::Identity, super::#program>,
                    fuse_elementwise: #p::fuses_elementwise_prologues::<super::#program>(<super::#program as #p::Filter>::MASK),
                    workers: #workers,
                    schedulers: #schedulers,
                };
                ::core::result::Result::Ok(Plan(#p::Plan::build(device, program, options)?))
            }

            #[allow(non_snake_case, clippy::too_many_arguments)]
            impl Plan {
                /// Runs the plan and waits for it.
                ///
                /// # Errors
                /// Arguments that do not fit the plan, or a launch that fails.
                pub fn run(&self, #params) -> ::core::result::Result<#p::Report, #p::Error> {
                    self.0.run(#p::Arguments::new() #pushes)
                }

                /// Starts the plan on a stream; the arguments stay borrowed until it is done.
                ///
                /// # Errors
                /// Arguments that do not fit the plan, or a launch that fails.
                pub fn run_on<'a>(&'a self, stream: &'a #p::Stream, #borrowed) -> ::core::result::Result<#p::Pending, #p::Error> {
                    self.0.run_on(stream, #p::Arguments::new() #borrowed_pushes)
                }
            }

            impl ::core::ops::Deref for Plan {
                type Target = #p::Plan;
                fn deref(&self) -> &#p::Plan {
                    &self.0
                }
            }
        }
    }
}

/// The kernel that the device runs, in the last crate only: a library with a megakernel leaves no entry in its users' code.
pub fn entry(kernel: &Kernel<'_>, model: &Model, program: &Ident) -> TokenStream {
    let p = &model.p;
    let conditions = kernel.function.conditions();
    let name = Ident::new(&entry_text(kernel), kernel.name().span());
    quote! {
        #conditions
        #[cfg(target_arch = "nvptx64")]
        #[allow(unexpected_cfgs)]
        const _: () = {
            /// # Safety
            /// Launched by the host with a valid `Launch` in device memory.
            #[cfg(maco_root)]
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn #name(launch: *const #p::Launch) {
                // SAFETY: passed on from the host, which launches this kernel.
                unsafe { #p::megakernel::<#program, #program>(launch) }
            }
        };
    }
}

fn entry_text(kernel: &Kernel<'_>) -> String {
    let signature = &kernel.function.signature;
    let body = &kernel.function.body;
    entry_name(kernel.name(), quote! { #signature #body })
}

/// Parameters of `run`, with one lifetime for `run_on`.
fn parameters(kernel: &Kernel<'_>, p: &TokenStream, lifetime: Option<TokenStream>) -> TokenStream {
    let params = kernel.params.iter().map(|param| {
        let name = &param.name;
        match &param.kind {
            ParamKind::Scalar { ty } => quote! { #name: #ty },
            ParamKind::Tensor { word, element, array, .. } => {
                let element = match element_variant(element) {
                    Some(_) => element.to_token_stream(),
                    None => quote! { ::core::primitive::f32 },
                };
                let mutable = (access(word) != Access::Read).then(|| quote! { mut });
                let tensor = quote! { #p::Tensor<#element> };
                let ty = match array {
                    Some(length) => quote! { [#tensor; #length] },
                    None => tensor,
                };
                quote! { #name: &#lifetime #mutable #ty }
            }
        }
    });
    quote! { #(#params),* }
}

/// The arguments in signature order.
fn pushes(kernel: &Kernel<'_>) -> TokenStream {
    kernel
        .params
        .iter()
        .map(|param| {
            let name = &param.name;
            match &param.kind {
                ParamKind::Scalar { .. } => quote! { .scalar(#name) },
                ParamKind::Tensor { word, array, .. } => match (access(word), array) {
                    (Access::Read, None) => quote! { .tensor(#name) },
                    (Access::Read, Some(_)) => quote! { .tensors(#name) },
                    (_, None) => quote! { .tensor_mut(#name) },
                    (_, Some(_)) => quote! { .tensors_mut(#name) },
                },
            }
        })
        .collect()
}
