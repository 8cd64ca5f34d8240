//! What a body calls: types of these names, or [`NotATask`] where a name means a function only.
//!
//! A task is a type, an ordinary function a value. A `use` takes a name in all its meanings and fails for a name without any. So each callee is brought into a
//! block under a name of ours; outside of that block the same name is a type that stands for no task, and where the name has no type, that one is found.

use maco_graph::spec::Code;
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::Path;

use super::parse::Kernel;
use crate::spans::Site;

/// The callees of one megakernel or graph.
pub struct Callees {
    /// The trait with a type for each.
    holder: Ident,
    paths: Vec<Path>,
}

impl Callees {
    pub fn of(kernel: &Kernel<'_>) -> Callees {
        Callees { holder: format_ident!("__maco_callees_{}", kernel.name()), paths: Vec::new() }
    }

    /// The type of a callee, in `impl`s of the megakernel's own type. It is underlined as the user's path.
    pub fn ty(&mut self, path: &Path) -> TokenStream {
        let text = |path: &Path| path.to_token_stream().to_string();
        let n = self.paths.iter().position(|known| text(known) == text(path)).unwrap_or_else(|| {
            self.paths.push(path.clone());
            self.paths.len() - 1
        });
        let (holder, name) = (&self.holder, name(n));
        Site::of(path).spread(quote! { <Self as #holder>::#name })
    }

    /// The trait and its implementation for `program`.
    pub fn items(&self, kernel: &Kernel<'_>, program: &Ident, p: &TokenStream) -> TokenStream {
        if self.paths.is_empty() {
            return TokenStream::new();
        }
        let (holder, conditions) = (&self.holder, kernel.function.conditions());
        let names: Vec<Ident> = (0..self.paths.len()).map(name).collect();
        let imports = self.paths.iter().zip(&names).map(|(path, name)| import(path, name));
        quote! {
            #conditions
            #[allow(non_camel_case_types)]
            trait #holder {
                #(type #names;)*
            }

            #conditions
            const _: () = {
                #(#[allow(unused_imports)] use #p::NotATask as #names;)*
                const _: () = {
                    #(#[allow(unused_imports)] #imports)*
                    #[automatically_derived]
                    impl #holder for #program {
                        #(type #names = #names;)*
                    }
                };
            };
        }
    }

    /// One check for each callee, underlined as the user's path.
    pub fn checks(&self, program: &Ident, p: &TokenStream) -> TokenStream {
        let holder = &self.holder;
        let checks = self.paths.iter().enumerate().map(|(n, path)| {
            let (name, message) = (name(n), message(path));
            let ty = Site::of(path).spread(quote! { <#program as #holder>::#name });
            let check = Site::of(path).over(quote! { #p::check_task::<#ty> }, quote! { #message });
            quote! { const _: () = #check; }
        });
        quote! { #(#checks)* }
    }
}

fn name(n: usize) -> Ident {
    format_ident!("__Callee{n}")
}

/// `use linear as __Callee0;`. One name is looked up in the module, where a crate of that name does not matter. What is not found is underlined as the user's.
fn import(path: &Path, name: &Ident) -> TokenStream {
    let plain = path.get_ident().is_some_and(|name| !PRELUDE.iter().any(|known| name == known));
    let own = plain.then(|| quote! { self:: });
    let site = Site::of(path);
    let ([before, behind], path) = ([quote! { use #own }, quote! { as #name; }].map(|tokens| site.respan(tokens)), path);
    quote! { #before #path #behind }
}

/// Functions that every module has.
const PRELUDE: [&str; 8] = ["drop", "Some", "Ok", "Err", "size_of", "size_of_val", "align_of", "align_of_val"];

/// What is wrong with the call of an ordinary function.
fn message(path: &Path) -> String {
    let (what, help) = texts(path);
    format!("{}: {what}\n  = help: {help}", Code::NotATask)
}

/// The mistake, and what to do.
pub fn texts(path: &Path) -> (String, String) {
    let name = path.segments.last().map_or_else(String::new, |last| last.ident.to_string());
    (format!("`{name}` is a function, and no task"), format!("put `#[maco::task(..)]` on `{name}`, or call it from inside a task"))
}
