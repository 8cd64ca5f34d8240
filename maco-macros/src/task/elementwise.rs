//! `#[task(elementwise)] fn gelu(v: f32) -> f32`: an epilogue for `.then(gelu)`, and a task of two tensors. Of two values, an epilogue for
//! `.then(f(r))`, and a task of three.

use maco_graph::spec::Code;
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{FnArg, ReturnType, Type};

use crate::attribute::{Arguments, TASK};
use crate::errors::Errors;
use crate::item::Function;
use crate::spans::hidden;

pub fn expand(arguments: &Arguments, function: &Function, mut errors: Errors) -> TokenStream {
    function.check("an elementwise task", &mut errors);
    function.not_unsafe("an elementwise task", "it sees values only; a raw body is `#[task(simt)] unsafe fn`", &mut errors);
    check(arguments, function, &mut errors);
    super::no_std::check(function.body.stream(), &mut errors);
    super::pure::check(function.body.stream(), &mut errors);
    let mut inner = Errors::new();
    let task = task(arguments, function, &mut inner);
    let (p, name, conditions) = (arguments.private(), &function.signature.ident, function.conditions());
    let [value, operand] = ["value", "operand"].map(hidden);
    let values: &[TokenStream] = if two(function) { &[quote! { #value }, quote! { #operand }] } else { &[quote! { #value }] };
    let apply = if errors.any() {
        quote! { #value }
    } else {
        let (input, output, lints) = (&function.signature.inputs, &function.signature.output, function.lints());
        let body = super::pure::body(&function.body, &function.signature, None, &p);
        quote! {
            #lints
            #[inline(always)]
            fn __apply(#input) #output #body
            __apply(#(#values),*)
        }
    };
    let implementation = if two(function) {
        quote! {
            impl #p::Combine for #name {
                #[inline(always)]
                fn combine(#value: f32, #operand: f32) -> f32 {
                    #apply
                }
            }
        }
    } else {
        quote! {
            impl #p::Elementwise for #name {
                #[inline(always)]
                fn apply(#value: f32) -> f32 {
                    #apply
                }
            }
        }
    };
    let (errors, inner) = (errors.finish(), inner.finish());
    quote! {
        #task

        #conditions
        #[automatically_derived]
        #implementation
        #errors
        #inner
    }
}

/// Whether it is a function of two values.
fn two(function: &Function) -> bool {
    function.signature.inputs.len() > 1
}

/// One or two `f32` in, `f32` out, no other argument of the attribute.
fn check(arguments: &Arguments, function: &Function, errors: &mut Errors) {
    let help = "write `fn f(v: f32) -> f32` or `fn f(v: f32, r: f32) -> f32`";
    let takes = "an elementwise task takes one f32, or two";
    for (n, input) in function.signature.inputs.iter().enumerate() {
        if n > 1 || !matches!(input, FnArg::Typed(typed) if is_f32(&typed.ty)) {
            errors.push(Code::Signature, input, takes, help);
        }
    }
    if function.signature.inputs.is_empty() {
        errors.push(Code::Signature, &function.signature.ident, takes, help);
    }
    match &function.signature.output {
        ReturnType::Type(_, ty) if is_f32(ty) => {}
        ReturnType::Type(_, ty) => errors.push(Code::Signature, ty, "an elementwise task returns an f32", help),
        ReturnType::Default => errors.push(Code::Signature, &function.signature.ident, "an elementwise task returns an f32", help),
    }
    let name = &function.signature.ident;
    if let Some(simt) = &arguments.simt {
        errors.push(Code::Attribute, simt, format!("`{name}` cannot be both elementwise and simt"), "choose one");
    }
    if let Some(cpu) = &arguments.cpu {
        errors.push(Code::Attribute, cpu, "`cpu = function` is for `simt` tasks", "remove it: the function itself runs on the CPU");
    }
    if let Some(shared) = &arguments.shared {
        errors.push(
            Code::Attribute,
            &shared.key,
            "`shared = ..` is for `simt` tasks",
            "remove it: an elementwise task has no body of its own",
        );
    }
    if let Some(warp) = &arguments.warp {
        errors.push(Code::Attribute, warp, "`warp` is for `simt` tasks", "remove it: an elementwise task has no body of its own");
    }
    if let Some(prologue) = &arguments.prologue {
        errors.push(Code::Attribute, prologue, "`prologue` is for `simt` tasks", "remove it: an elementwise task has no body of its own");
    }
    if let Some(few) = &arguments.few {
        errors.push(Code::Attribute, few, "`few = task` is for GEMMs", "remove it: an elementwise task has one form");
    }
    if let Some(axis) = arguments.axes.iter().flatten().next() {
        errors.push(Code::Attribute, &axis.name, "an elementwise task chooses its own tiles", "remove `tile(..)`");
    }
    if let Some(elements) = &arguments.elements {
        errors.push(Code::Attribute, &elements.name, "an elementwise task runs on bf16, f16 and f32", "remove the list");
    }
}

fn is_f32(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("f32"))
}

/// The function as a task `y = f(x)` or `y = f(x, r)`.
fn task(arguments: &Arguments, function: &Function, errors: &mut Errors) -> TokenStream {
    let p = arguments.private();
    let (name, visibility): (&Ident, _) = (&function.signature.ident, &function.visibility);
    let (documentation, conditions) = (function.documentation(), function.conditions());
    // A task may be called like what stands for its element.
    let e = hidden("E");
    let mut task_arguments = Arguments::parse(quote! { tile(i = 4 | 16 | 64, j = 1024), #e in [bf16, f16, f32] }, &TASK, errors);
    task_arguments.made_from(arguments);
    let [cta, x, r, y, v] = ["cta", "x", "r", "y", "v"].map(hidden);
    let (operand, body) = if two(function) {
        (
            quote! { #[read(i, j)] #r: Tensor<#e, M, N>, },
            quote! { #cta.zip((#x, #r), #y, |(#v, #r)| <#name as #p::Combine>::combine(#v, #r)) },
        )
    } else {
        (TokenStream::new(), quote! { #cta.zip(#x, #y, |#v| <#name as #p::Elementwise>::apply(#v)) })
    };
    let item = quote! {
        #documentation
        #conditions
        #visibility fn #name(#cta: &mut Cta, #[read(i, j)] #x: Tensor<#e, M, N>, #operand #[write(i, j)] #y: Tensor<#e, M, N>) {
            #body
        }
    };
    match syn::parse2::<Function>(item) {
        Ok(function) => super::one(&task_arguments, &function, errors),
        Err(error) => error.to_compile_error(),
    }
}
