//! `#[megakernel]` and `#[graph]`: a body of calls becomes a `const fn` that is replayed against a recorder, and a dispatch function.

mod analyse;
mod call;
mod callee;
mod check;
mod constant;
mod emit;
pub mod forgotten;
mod module;
mod parse;
mod value;

use maco_graph::spec::Code;
use proc_macro2::TokenStream;
use quote::quote;

use crate::attribute::{Arguments, GRAPH, Grammar, MEGAKERNEL};
use crate::errors::Errors;
use crate::item::{Function, unparsed};

/// Expands `#[megakernel(attribute)] item`.
pub fn expand_megakernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand(attribute, item, &MEGAKERNEL)
}

/// Expands `#[graph(attribute)] item`.
pub fn expand_graph(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand(attribute, item, &GRAPH)
}

fn expand(attribute: TokenStream, item: TokenStream, grammar: &Grammar) -> TokenStream {
    let mut errors = Errors::new();
    let arguments = Arguments::parse(attribute, grammar, &mut errors);
    let function = match syn::parse2::<Function>(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            errors.parser(Code::Signature, &error, "this attribute goes on a function");
            return unparsed(item, errors);
        }
    };
    let kernel = parse::parse(&arguments, &function, grammar.what, &mut errors);
    check::check(&kernel, &mut errors);
    let model = analyse::analyse(&kernel, &mut errors);
    // After an error of the macro, faults of the replay would only repeat it.
    let reports = !errors.any();
    let output = if grammar.what == "graph" { emit::graph(&kernel, &model, reports) } else { emit::megakernel(&kernel, &model, reports) };
    let errors = errors.finish();
    quote! { #output #errors }
}
