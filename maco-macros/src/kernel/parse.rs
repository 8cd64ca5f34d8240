//! Step 1: parameters and statements. What does not parse is reported and left out.

use maco_graph::spec::Code;
use proc_macro2::Ident;
use syn::parse::Parser;
use syn::{Block, Expr, FnArg, LitInt, Pat, PatType, Stmt, Type};

use crate::attribute::{Arguments, scalar_variant};
use crate::errors::{Errors, error};
use crate::item::Function;
use crate::shape::{Dimension, shaped};

/// A megakernel or graph as written.
pub struct Kernel<'a> {
    /// "megakernel" or "graph".
    pub what: &'static str,
    pub arguments: &'a Arguments,
    pub function: &'a Function,
    pub params: Vec<Param>,
    pub statements: Vec<Stmt>,
}

pub struct Param {
    pub pattern: Pat,
    pub name: Ident,
    pub kind: ParamKind,
}

pub enum ParamKind {
    Tensor {
        /// `In`, `Out`, `InOut` or `State`.
        word: Ident,
        element: Ident,
        dims: Vec<Dimension>,
        /// Length of an array.
        array: Option<Box<Expr>>,
        /// `#[shard(axis)]`
        shard: Option<Box<LitInt>>,
        /// `#[symmetric]`
        symmetric: bool,
    },
    Scalar {
        ty: Ident,
    },
}

impl Kernel<'_> {
    pub fn name(&self) -> &Ident {
        &self.function.signature.ident
    }
}

pub fn parse<'a>(arguments: &'a Arguments, function: &'a Function, what: &'static str, errors: &mut Errors) -> Kernel<'a> {
    let mut params = Vec::new();
    for input in &function.signature.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                errors.push(Code::Signature, receiver, format!("a {what} must not take `self`"), "pass tensors and scalars as parameters");
            }
            FnArg::Typed(typed) => match param(typed, what) {
                Ok(param) => params.push(param),
                Err(error) => errors.extend(&error),
            },
        }
    }
    let statements = match Block::parse_within.parse2(function.body.stream()) {
        Ok(statements) => statements,
        Err(error) => {
            errors.parser(Code::Statement, &error, "a body is calls of tasks, `let`, `for` over constant bounds and `if` on constants");
            Vec::new()
        }
    };
    Kernel { what, arguments, function, params, statements }
}

fn param(typed: &PatType, what: &str) -> syn::Result<Param> {
    let Pat::Ident(pattern) = &*typed.pat else {
        return Err(error(
            Code::Signature,
            &typed.pat,
            format!("a parameter of a {what} is a plain name"),
            "name it, and use views in the body",
        ));
    };
    let name = pattern.ident.clone();
    let kind = match &*typed.ty {
        Type::Array(array) => tensor(typed, &array.elem, Some(array.len.clone()), what)?,
        Type::Path(path) if path.path.get_ident().and_then(scalar_variant).is_some() => {
            if let Some(attribute) = typed.attrs.first() {
                return Err(error(
                    Code::Attribute,
                    attribute,
                    format!("`{name}` is a scalar: it is the same on all ranks"),
                    "remove the attribute",
                ));
            }
            ParamKind::Scalar { ty: path.path.get_ident().cloned().expect("checked by the guard") }
        }
        other => tensor(typed, other, None, what)?,
    };
    Ok(Param { pattern: (*typed.pat).clone(), name, kind })
}

fn tensor(typed: &PatType, ty: &Type, array: Option<Expr>, what: &str) -> syn::Result<ParamKind> {
    let help = "a parameter is `In<bf16, M, K>`, `Out`, `InOut`, `State`, an array `[In<bf16, M, K>; N]`, or a scalar: f32, u32 or i32";
    let Some(shape) = shaped(ty) else { return Err(error(Code::Signature, ty, format!("a {what} cannot take this type"), help)) };
    let shape = shape?;
    if !["In", "Out", "InOut", "State"].iter().any(|word| shape.word == word) {
        return Err(error(Code::Signature, &shape.word, format!("a {what} cannot take `{}`", shape.word), help));
    }
    let (mut shard, mut symmetric) = (None, false);
    for attribute in &typed.attrs {
        if attribute.path().is_ident("symmetric") {
            if array.is_some() || attribute.meta.require_path_only().is_err() {
                let help = "write `#[symmetric]` before one tensor: arrays are not symmetric yet";
                return Err(error(Code::Attribute, attribute, "this marks no tensor", help));
            }
            symmetric = true;
            continue;
        }
        if !attribute.path().is_ident("shard") {
            return Err(error(
                Code::Attribute,
                attribute,
                format!("this is not an attribute of a {what}'s parameter"),
                "`#[shard(axis)]` spreads a tensor over the ranks, and `#[symmetric]` has it where other ranks store",
            ));
        }
        if shard.is_some() {
            return Err(error(Code::Attribute, attribute, "a tensor is sharded along one axis", "remove one of them"));
        }
        shard = Some(attribute.parse_args::<LitInt>().map_err(|_| {
            error(
                Code::Attribute,
                attribute,
                "this names no axis",
                "write `#[shard(0)]`: the number of the axis that is spread over the ranks",
            )
        })?);
    }
    Ok(ParamKind::Tensor {
        word: shape.word,
        element: shape.element,
        dims: shape.dims,
        array: array.map(Box::new),
        shard: shard.map(Box::new),
        symmetric,
    })
}
