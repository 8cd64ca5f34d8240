//! What users of a megakernel see: the module with `Dims`, `plan`, `plan_with` and `Plan`; and the device entry.

use maco_graph::spec::Access;
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::analyse::Model;
use super::emit::access;
use super::parse::{Kernel, ParamKind};
use crate::attribute::element_variant;
use crate::entry::{embedded, entry_name};
use crate::spans::{hidden, plain, shown};

/// `pub mod mlp { pub struct Dims { … } pub fn plan(…) … }`
///
/// Nothing of the user's is in scope in it: its parameters may be called like the user's constants. What the user has written, lengths of arrays and the numbers
/// of the attribute, stands in `plan` of [`planning`].
pub fn module(kernel: &Kernel<'_>, model: &Model, program: &Ident) -> TokenStream {
    let (name, visibility, text) = (kernel.name(), &kernel.function.visibility, plain(kernel.name()));
    let (conditions, documentation) = (kernel.function.conditions(), kernel.function.documentation());
    let private = format_ident!("__maco_private_{}", name);
    let (path, p) = (&model.p, quote! { super::#private });
    let symbols = &model.symbols.names;
    let field_docs = symbols.iter().map(|symbol| format!("Size of dimension `{}`.", plain(symbol)));
    let [sizes, one, planned, with_options, in_context] = [
        format!("Sizes of the dimensions of `{text}`."),
        format!("A plan of `{text}` for one device and one choice of sizes."),
        format!("Plans `{text}`: tiles, events and lists for these sizes."),
        format!("Plans `{text}` with options."),
        format!("Plans `{text}` for the device and the ranks of a context, by its choices."),
    ];
    let [device, dims, options, context, stream] = ["device", "dims", "options", "context", "stream"].map(shown);
    let (params, pushes) = (parameters(kernel, program, &p, None), pushes(kernel));
    let (borrowed, borrowed_pushes) = (parameters(kernel, program, &p, Some(quote! { 'a })), &pushes);
    quote! {
        // What the crate is called here it need not be in the module.
        #conditions
        #[cfg(not(target_arch = "nvptx64"))]
        #[doc(hidden)]
        use #path as #private;

        #documentation
        #conditions
        #[cfg(not(target_arch = "nvptx64"))]
        #visibility mod #name {
            #[doc = #sizes]
            #[derive(
                ::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug, ::core::cmp::PartialEq, ::core::cmp::Eq
            )]
            #[allow(non_snake_case)]
            pub struct Dims {
                #(
                    #[doc = #field_docs]
                    pub #symbols: u64,
                )*
            }

            #[doc = #one]
            pub struct Plan {
                plan: #p::Plan,
            }

            #[doc = #planned]
            ///
            /// # Errors
            /// Sizes the megakernel cannot have, or a device that cannot run it.
            pub fn plan(#device: &#p::Device, #dims: Dims) -> ::core::result::Result<Plan, #p::Error> {
                plan_with(#device, #dims, &#p::PlanOptions::default())
            }

            #[doc = #with_options]
            ///
            /// # Errors
            /// As for [`plan`].
            pub fn plan_with(
                #device: &#p::Device,
                #dims: Dims,
                #options: &#p::PlanOptions,
            ) -> ::core::result::Result<Plan, #p::Error> {
                ::core::result::Result::Ok(Plan { plan: super::#program::__plan(#device, &[#(#dims.#symbols),*], #options)? })
            }

            #[doc = #in_context]
            ///
            /// # Errors
            /// As for [`plan`].
            pub fn plan_in(#context: &#p::Context, #dims: Dims) -> ::core::result::Result<Plan, #p::Error> {
                plan_with(#context.device(), #dims, &#context.options())
            }

            #[allow(non_snake_case, clippy::too_many_arguments)]
            impl Plan {
                /// Runs the plan and waits for it.
                ///
                /// # Errors
                /// Arguments that do not fit the plan, or a launch that fails.
                pub fn run(&self, #params) -> ::core::result::Result<#p::Report, #p::Error> {
                    self.plan.run(#p::Arguments::new() #pushes)
                }

                /// Starts the plan on a stream; the arguments stay borrowed until it is done.
                ///
                /// # Errors
                /// Arguments that do not fit the plan, or a launch that fails.
                pub fn run_on<'a>(
                    &'a self,
                    #stream: &'a #p::Stream,
                    #borrowed
                ) -> ::core::result::Result<#p::Pending, #p::Error> {
                    self.plan.run_on(#stream, #p::Arguments::new() #borrowed_pushes)
                }
            }

            impl ::core::ops::Deref for Plan {
                type Target = #p::Plan;
                fn deref(&self) -> &#p::Plan {
                    &self.plan
                }
            }
        }
    }
}

/// What planning needs of the user's: beside the function, where their names mean what they say.
pub fn planning(kernel: &Kernel<'_>, model: &Model, program: &Ident) -> TokenStream {
    let (p, conditions, text) = (&model.p, kernel.function.conditions(), plain(kernel.name()));
    let entry = entry_text(kernel);
    let embedded = embedded(p, &entry);
    let number = |expression: &Option<syn::Expr>| match expression {
        Some(expression) => quote! { ::core::option::Option::Some((#expression) as u32) },
        None => quote! { ::core::option::Option::None },
    };
    let (workers, schedulers) = (number(&kernel.arguments.workers), number(&kernel.arguments.schedulers));
    let [device, sizes, options, graph, program_of] = ["device", "sizes", "options", "graph", "program"].map(hidden);
    let count = model.symbols.names.len();
    let lengths = kernel.params.iter().enumerate().filter_map(|(n, param)| match &param.kind {
        ParamKind::Tensor { array: Some(length), .. } => {
            let name = length_name(n);
            Some(quote! { const #name: usize = #length; })
        }
        _ => None,
    });
    quote! {
        #conditions
        #[cfg(not(target_arch = "nvptx64"))]
        #[automatically_derived]
        impl #program {
            #(#lengths)*

            fn __plan(
                #device: &#p::Device,
                #sizes: &[u64; #count],
                #options: &#p::PlanOptions,
            ) -> ::core::result::Result<#p::Plan, #p::Error> {
                let #program_of = || {
                    let #graph = Self::__RECORDING.resolve(#text, #sizes)?;
                    ::core::result::Result::Ok(#p::Program {
                        name: #text,
                        graph: #graph,
                        entry: #entry,
                        embedded: const { #embedded },
                        cpu: <Self as #p::Callable>::dispatch::<#p::Cpu, #p::Identity, Self>,
                        fuse_elementwise: #p::fuses_elementwise_prologues::<Self>(<Self as #p::Filter>::MASK),
                        workers: #workers,
                        schedulers: #schedulers,
                    })
                };
                #p::Plan::build_from(#device, #text, #program_of, #options)
            }
        }
    }
}

/// The constant with the length of an array, the `n`th parameter.
fn length_name(n: usize) -> Ident {
    format_ident!("__LENGTH_{n}")
}

/// The kernel that the device runs, in the last crate only: a library with a megakernel leaves no entry in its users' code.
pub fn entry(kernel: &Kernel<'_>, model: &Model, program: &Ident) -> TokenStream {
    let p = &model.p;
    let conditions = kernel.function.conditions();
    let name = Ident::new(&entry_text(kernel), kernel.name().span());
    let launch = hidden("launch");
    quote! {
        #conditions
        #[cfg(target_arch = "nvptx64")]
        #[allow(unexpected_cfgs)]
        const _: () = {
            /// # Safety
            /// Launched by the host with a valid `Launch` in device memory.
            #[cfg(maco_root)]
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn #name(#launch: *const #p::Launch) {
                // SAFETY: passed on from the host, which launches this kernel.
                unsafe { #p::megakernel::<#program, #program>(#launch) }
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
fn parameters(kernel: &Kernel<'_>, program: &Ident, p: &TokenStream, lifetime: Option<TokenStream>) -> TokenStream {
    let params = kernel.params.iter().enumerate().map(|(n, param)| {
        let name = &param.name;
        match &param.kind {
            ParamKind::Scalar { ty } => quote! { #name: ::core::primitive::#ty },
            ParamKind::Tensor { word, element, array, .. } => {
                let element = match element.to_string().as_str() {
                    "bf16" | "f16" => quote! { #p::#element },
                    _ if element_variant(element).is_some() => quote! { ::core::primitive::#element },
                    // A wrong element has been reported.
                    _ => quote! { ::core::primitive::f32 },
                };
                let mutable = (access(word) != Access::Read).then(|| quote! { mut });
                let tensor = quote! { #p::Tensor<#element> };
                let ty = match array {
                    Some(_) => {
                        let length = length_name(n);
                        quote! { [#tensor; super::#program::#length] }
                    }
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
