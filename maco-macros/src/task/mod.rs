//! `#[task]`: one function becomes a type that is `Callable`, its spec, and `on_cpu`.

mod analyse;
mod check;
mod dispatch;
mod elementwise;
mod emit;
mod names;
mod no_std;
mod operations;
mod parse;
mod region;

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
    let output = one(&arguments, &function, None, &mut errors);
    let errors = errors.finish();
    quote! { #output #errors }
}

/// All four steps for an ordinary task. `kind` overrules what the body says.
fn one(arguments: &Arguments, function: &Function, kind: Option<analyse::Kind>, errors: &mut Errors) -> TokenStream {
    let task = parse::parse(arguments, function, errors);
    check::check(&task, errors);
    operations::check(&task, errors);
    no_std::check(function.body.stream(), errors);
    let model = analyse::analyse(&task, kind, errors);
    let output = match model {
        Some(model) if !errors.any() => emit::emit(&task, &model),
        _ => emit::placeholder(&task),
    };
    let unwritten = if errors.any() { TokenStream::new() } else { operations::unwritten(&task) };
    quote! { #output #unwritten }
}
