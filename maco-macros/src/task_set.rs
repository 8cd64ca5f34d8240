//! `task_set!`: tasks that graphs built at run time may call, with their device code.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Path, Token, Visibility};

use crate::attribute::element_variant;
use crate::entry::{embedded, entry_name};
use crate::spans::hidden;

/// `$crate; /// docs pub ops: linear<bf16>, relu, mylib::scale`
struct TaskSet {
    krate: Path,
    /// What the user wrote.
    tokens: TokenStream,
    attributes: Vec<Attribute>,
    visibility: Visibility,
    name: Ident,
    tasks: Vec<Member>,
}

/// A task, and the elements that it is compiled for; none: all that it has.
struct Member {
    path: Path,
    elements: Vec<Ident>,
}

impl Parse for Member {
    fn parse(input: ParseStream<'_>) -> syn::Result<Member> {
        let path = Path::parse_mod_style(input)?;
        let mut elements = Vec::new();
        if input.peek(Token![<]) {
            input.parse::<Token![<]>()?;
            while !input.peek(Token![>]) {
                let element: Ident = input.parse()?;
                if element_variant(&element).is_none() {
                    let text = format!("MACO0012: `{element}` is no element type\nhelp: write `bf16`, `f16`, `f32`, `i32`, `u32` or `i8`");
                    return Err(syn::Error::new(element.span(), text));
                }
                elements.push(element);
                if !input.peek(Token![>]) {
                    input.parse::<Token![,]>()?;
                }
            }
            input.parse::<Token![>]>()?;
        }
        Ok(Member { path, elements })
    }
}

impl Parse for TaskSet {
    fn parse(input: ParseStream<'_>) -> syn::Result<TaskSet> {
        let krate = input.call(Path::parse_mod_style)?;
        input.parse::<Token![;]>()?;
        let tokens = input.fork().parse()?;
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let name: Ident = input.parse()?;
        input.parse::<Token![:]>()?;
        let tasks = Punctuated::<Member, Token![,]>::parse_terminated(input)?;
        if tasks.is_empty() {
            let text = "MACO0012: a task set names at least one task\nhelp: write `maco::task_set! { pub ops: linear<bf16>, gelu }`";
            return Err(syn::Error::new(name.span(), text));
        }
        Ok(TaskSet { krate, tokens, attributes, visibility, name, tasks: tasks.into_iter().collect() })
    }
}

pub fn expand(input: TokenStream) -> TokenStream {
    let set: TaskSet = match syn::parse2(input) {
        Ok(set) => set,
        Err(error) => return error.to_compile_error(),
    };
    let krate = &set.krate;
    let p = quote! { #krate::__private };
    let (attributes, visibility, name) = (&set.attributes, &set.visibility, &set.name);
    let tasks: Vec<&Path> = set.tasks.iter().map(|member| &member.path).collect();
    let elements = set.tasks.iter().map(|member| {
        let variants = member.elements.iter().filter_map(element_variant);
        quote! { &[#(#p::spec::Element::#variants),*] }
    });
    let checks = set.tasks.iter().flat_map(|Member { path, elements }| {
        let p = &p;
        elements.iter().map(move |element| {
            let variant = element_variant(element);
            let task = path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
            let text = format!("MACO0012: task `{task}` is not generic over `{element}`\nhelp: write `{task}` or one of its elements");
            quote_spanned! { element.span() => const _: () = ::core::assert!(<#path>::SPEC.has_element(#p::spec::Element::#variant), #text); }
        })
    });
    let program = format_ident!("__maco_{}", name);
    let entry = entry_name(name, set.tokens.clone());
    let entry_ident = Ident::new(&entry, name.span());
    let embedded = embedded(&p, &entry);
    let count = tasks.len();
    let index: Vec<usize> = (0..count).collect();
    let [base, mask, launch] = ["base", "mask", "launch"].map(hidden);
    let (role, task, slot, offset, what) = (hidden("role"), hidden("task"), hidden("slot"), hidden("offset"), hidden("what"));
    quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types)]
        pub(crate) enum #program {}

        impl #program {
            const BASE: [u32; #count + 1] = {
                let mut #base = [0; #count + 1];
                // A set links all its instances, so GEMV forms are left out.
                #(#base[#index + 1] = #base[#index] + <#tasks>::SPEC.instances();)*
                #base
            };
        }

        #(#checks)*

        /// The instances that it has code for.
        #[automatically_derived]
        impl #p::Filter for #program {
            const MASK: u128 = {
                let mut #mask = 0;
                #(if #program::BASE[#index] < u128::BITS {
                    #mask |= <#tasks>::SPEC.instances_with(#elements) << #program::BASE[#index];
                })*
                #mask
            };
        }

        #[automatically_derived]
        impl #p::Callable for #program {
            const SLOTS: u32 = #program::BASE[#count];
            const WARP_TASKS: u128 = 0 #(| #p::warp_tasks::<#tasks>(#program::BASE[#index]))*;
            const ELEMENTWISE: u128 = 0 #(| #p::elementwise::<#tasks>(#program::BASE[#index]))*;
            const GEMVS: u128 = 0 #(| #p::gemvs::<#tasks>(#program::BASE[#index]))*;
            const COLLECTIVES: bool = false #(|| <#tasks as #p::Callable>::COLLECTIVES)*;
            const INSTANCES: #p::Instances = #p::Instances::NONE
                #(.with::<#p::Identity>(&<#tasks as #p::Callable>::INSTANCES, #program::BASE[#index], <#tasks>::SPEC.instances()))*;
            #[inline(always)]
            fn with_epilogue<__W: #p::WithEpilogue, __T: #p::Epilogue, __F: #p::Filter>(#slot: u32, #what: __W) -> __W::Output {
                #(
                    if const { <#p::After<__F, { #program::BASE[#index] }> as #p::Filter>::MASK != 0 } {
                        let #offset = #slot.wrapping_sub(#program::BASE[#index]);
                        if #offset < const { <#tasks>::SPEC.instances() } {
                            return <#tasks as #p::Callable>::with_epilogue::<__W, #p::Identity, #p::After<__F, { #program::BASE[#index] }>>(#offset, #what);
                        }
                    }
                )*
                __W::none()
            }
            #[inline(always)]
            fn dispatch<__R: #p::Role, __T: #p::Epilogue, __F: #p::Filter>(#role: &mut __R, #task: #p::Task, #slot: u32) {
                #(
                    // Instances that nobody uses cost the compiler nothing either.
                    if const { <#p::After<__F, { #program::BASE[#index] }> as #p::Filter>::MASK != 0 } {
                        let #offset = #slot.wrapping_sub(#program::BASE[#index]);
                        if #offset < const { <#tasks>::SPEC.instances() } {
                            return <#tasks as #p::Callable>::dispatch::<__R, #p::Identity, #p::After<__F, { #program::BASE[#index] }>>(#role, #task, #offset);
                        }
                    }
                )*
            }
        }

        #(#attributes)*
        #[cfg(not(target_arch = "nvptx64"))]
        #visibility fn #name() -> #p::TaskSet {
            const __TASKS: &[(&#p::spec::TaskSpec, u32)] = &[#((&<#tasks>::SPEC.own(), #program::BASE[#index])),*];
            #p::TaskSet {
                tasks: __TASKS,
                instances: <#program as #p::Filter>::MASK,
                cpu: <#program as #p::Callable>::dispatch::<#p::Cpu, #p::Identity, #program>,
                entry: #entry,
                fuse_elementwise: #p::fuses_elementwise_prologues::<#program>(<#program as #p::Filter>::MASK),
                embedded: const { #embedded },
            }
        }

        #[cfg(target_arch = "nvptx64")]
        #[allow(unexpected_cfgs)]
        const _: () = {
            /// # Safety
            /// Launched by the host with a valid `Launch` in device memory.
            #[cfg(maco_root)]
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn #entry_ident(#launch: *const #p::Launch) {
                // SAFETY: passed on from the host, which launches this kernel.
                unsafe { #p::megakernel::<#program, #program>(#launch) }
            }
        };
    }
}
