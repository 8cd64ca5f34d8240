//! `#[task]`: one function becomes a type that is `Callable`, its spec, and `on_cpu`.

mod analyse;
mod check;
mod dispatch;
mod elementwise;
mod emit;
pub mod helper;
mod kind;
mod names;
mod no_std;
mod parse;
mod pure;
mod region;
mod written;

use proc_macro2::TokenStream;
use quote::quote;

use crate::attribute::{Arguments, TASK};
use crate::errors::Errors;
use crate::item::{Function, unparsed};

/// Expands `#[task(attribute)] item`.
pub fn expand(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let arguments = Arguments::parse(attribute, &TASK, &mut errors);
    let function = match syn::parse2::<Function>(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            errors.parser(maco_graph::spec::Code::Signature, &error, "`#[task]` goes on a function");
            return unparsed(item, errors);
        }
    };
    if arguments.elementwise.is_some() {
        return elementwise::expand(&arguments, &function, errors);
    }
    let output = one(&arguments, &function, &mut errors);
    let errors = errors.finish();
    quote! { #output #errors }
}

/// All four steps for an ordinary task.
fn one(arguments: &Arguments, function: &Function, errors: &mut Errors) -> TokenStream {
    let task = parse::parse(arguments, function, errors);
    check::check(&task, errors);
    no_std::check(function.body.stream(), errors);
    // What a SIMT body does its author promises.
    let safe = arguments.simt.is_none();
    if safe {
        pure::check(function.body.stream(), errors);
    }
    let model = analyse::analyse(&task, errors);
    match model {
        Some(model) if !errors.any() && safe => {
            let body = pure::body(&function.body, &function.signature, task.cta_name().as_deref(), &arguments.private());
            let function = Function { body, ..function.clone() };
            emit::emit(&parse::Task { function: &function, ..task }, &model)
        }
        Some(model) if !errors.any() => emit::emit(&task, &model),
        _ => emit::placeholder(&task),
    }
}
