//! Step 1: the parameters of a task. What does not parse is reported and left out.

use maco_graph::spec::{Access, Code};
use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::{Attribute, FnArg, GenericArgument, Meta, Pat, PatType, PathArguments, PathSegment, Type};

use super::kind::stated;
use super::region::{Index, region};
use crate::attribute::{Arguments, BoxArgument, scalar_variant};
use crate::errors::{Errors, error};
use crate::item::Function;
use crate::shape::{Dimension, shaped};

/// A task as written.
pub struct Task<'a> {
    pub arguments: &'a Arguments,
    pub function: &'a Function,
    /// The pattern of `cta`.
    pub cta: Option<Pat>,
    /// The kind that its type says: `&mut Cta<Gemm>`.
    pub kind: Option<Ident>,
    pub params: Vec<Param>,
    /// A parameter did not parse and is left out.
    pub broken: bool,
}

pub enum Param {
    Tensor(Box<TensorParam>),
    Scalar { pattern: Box<Pat>, name: Ident, ty: Ident },
}

pub struct TensorParam {
    pub pattern: Pat,
    pub name: Ident,
    pub access: Access,
    /// `#[read(..)]`, for errors about all of it.
    pub attribute: Attribute,
    /// `#[unsafe(write(..))]`
    pub unsafety: bool,
    pub region: Vec<Index>,
    /// `Tensor<E, M, K>`
    pub ty: Type,
    pub element: Ident,
    pub dims: Vec<Dimension>,
}

impl Task<'_> {
    pub fn tensors(&self) -> impl Iterator<Item = &TensorParam> {
        self.params.iter().filter_map(|param| match param {
            Param::Tensor(tensor) => Some(&**tensor),
            Param::Scalar { .. } => None,
        })
    }

    /// The name of `cta`.
    pub fn cta_name(&self) -> Option<String> {
        match &self.cta {
            Some(Pat::Ident(pattern)) => Some(pattern.ident.to_string()),
            _ => None,
        }
    }

    /// The boxes in which the body copies a tensor.
    pub fn boxes(&self, tensor: &TensorParam) -> Option<&BoxArgument> {
        let (_, boxes) = self.arguments.boxes.as_ref()?;
        boxes.iter().find(|boxes| boxes.name == tensor.name)
    }

    /// The generic element's name.
    pub fn generic(&self) -> Option<&Ident> {
        self.arguments.elements.as_ref().map(|elements| &elements.name)
    }
}

pub fn parse<'a>(arguments: &'a Arguments, function: &'a Function, errors: &mut Errors) -> Task<'a> {
    let mut task = Task { arguments, function, cta: None, kind: None, params: Vec::new(), broken: false };
    for (n, input) in function.signature.inputs.iter().enumerate() {
        match input {
            FnArg::Receiver(receiver) => {
                errors.push(Code::Signature, receiver, "a task must not take `self`", "write `cta: &mut Cta` first");
                if n == 0 {
                    // One mistake, one error: not also "no `cta`".
                    task.cta = Some(Pat::Verbatim(TokenStream::new()));
                }
            }
            FnArg::Typed(typed)
                if n == 0
                    && let Some(cta) = cta(&typed.ty) =>
            {
                task.cta = Some((*typed.pat).clone());
                task.kind = cta.stated(errors);
            }
            FnArg::Typed(typed) => match param(typed) {
                Ok(param) => task.params.push(param),
                Err(error) => {
                    task.broken = true;
                    errors.extend(&error);
                }
            },
        }
    }
    if task.cta.is_none() {
        let name = &function.signature.ident;
        errors.push(Code::Signature, name, "the first parameter of a task is its CTA", "write `cta: &mut Cta` first");
    }
    task
}

/// The type of `cta`: `&mut Cta`, `&mut Cta<Gemm>`, `Cta<Rows>`, `&mut Simt`.
pub struct Cta<'a> {
    pub borrowed: bool,
    last: &'a PathSegment,
}

/// The type of `cta`, if it is one.
pub fn cta(ty: &Type) -> Option<Cta<'_>> {
    let (borrowed, ty) = match ty {
        Type::Reference(reference) if reference.mutability.is_some() => (true, &*reference.elem),
        Type::Reference(_) => return None,
        ty => (false, ty),
    };
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| ["Cta", "Simt", "SimtWarp"].iter().any(|name| last.ident == name))?;
    Some(Cta { borrowed, last })
}

impl Cta<'_> {
    /// The kind that it says.
    fn stated(&self, errors: &mut Errors) -> Option<Ident> {
        let kinds = "a kind is `Gemm` or `Tiles` of a body with several operations, `cta: &mut Cta<Gemm>`, and `Gemv`, `Rows`, `Columns`, `Indexed`, `MemoryChannel`, `PacketChannel`, `PortChannel` or `SymmetricChannel` of one that is one operation, `cta: Cta<Rows>`";
        let name = match &self.last.arguments {
            PathArguments::None => {
                if !self.borrowed {
                    errors.push(Code::Signature, self.last, "a body that takes its `Cta` says of what kind it is", kinds);
                }
                return None;
            }
            PathArguments::AngleBracketed(list) if self.last.ident == "Cta" && list.args.len() == 1 => match list.args.first() {
                Some(GenericArgument::Type(Type::Path(path))) => path.path.segments.last().map(|kind| kind.ident.clone()),
                _ => None,
            },
            _ => None,
        };
        let Some((known, several)) = name.as_ref().and_then(stated) else {
            errors.push(Code::Signature, &self.last.arguments, "this is not a kind of body", kinds);
            return None;
        };
        if several != self.borrowed {
            let (what, write) = match several {
                true => ("has several operations", format!("`&mut Cta<{known}>`")),
                false => ("is one operation, which takes its `Cta`", format!("`Cta<{known}>`")),
            };
            errors.push(Code::Signature, self.last, format!("a body of kind `{known}` {what}"), format!("write {write}"));
        }
        name
    }
}

pub fn param(typed: &PatType) -> syn::Result<Param> {
    let Pat::Ident(pattern) = &*typed.pat else {
        return Err(error(Code::Signature, &typed.pat, "a parameter of a task is a plain name", "destructure it in the body"));
    };
    let name = pattern.ident.clone();
    if let Some(scalar) = scalar(&typed.ty) {
        if let Some(attribute) = typed.attrs.first() {
            return Err(error(Code::Attribute, attribute, format!("`{name}` is a scalar: it has no region"), "remove the attribute"));
        }
        return Ok(Param::Scalar { pattern: typed.pat.clone(), name, ty: scalar });
    }
    let shape = match shaped(&typed.ty) {
        Some(shape) => shape?,
        None => {
            let help = "a parameter is `Tensor<E, M, K>` or a scalar: f32, u32 or i32";
            return Err(error(Code::Signature, &typed.ty, "a task cannot take this type", help));
        }
    };
    if shape.word != "Tensor" {
        let help = "a parameter of a task is `#[read(..)] x: Tensor<E, M, K>`; `In` and `Out` belong to megakernels";
        return Err(error(Code::Signature, &shape.word, format!("a task cannot take `{}`", shape.word), help));
    }
    let (attribute, access, unsafety, region_tokens) = access(typed, &name)?;
    let region = region(region_tokens).map_err(|error| coded(&error))?;
    Ok(Param::Tensor(Box::new(TensorParam {
        pattern: (*typed.pat).clone(),
        name,
        access,
        attribute,
        unsafety,
        region,
        ty: (*typed.ty).clone(),
        element: shape.element,
        dims: shape.dims,
    })))
}

fn scalar(ty: &Type) -> Option<Ident> {
    let Type::Path(path) = ty else { return None };
    let name = path.path.get_ident()?;
    scalar_variant(name).map(|_| name.clone())
}

/// The one access attribute of a tensor.
fn access(typed: &PatType, name: &Ident) -> syn::Result<(Attribute, Access, bool, TokenStream)> {
    let help = "write `#[read(i, ..)]`, `#[write(i, j)]` or `#[update(i, j)]` with one index per dimension";
    let [attribute, rest @ ..] = typed.attrs.as_slice() else {
        return Err(error(Code::Attribute, name, format!("`{name}` has no region"), help));
    };
    if let [second, ..] = rest {
        return Err(error(
            Code::Attribute,
            second,
            format!("`{name}` has two regions"),
            "use `#[update(..)]` for what is read and written",
        ));
    }
    let Meta::List(list) = &attribute.meta else { return Err(error(Code::Attribute, attribute, "this names no region", help)) };
    let (word, tokens, unsafety) = if list.path.is_ident("unsafe") {
        let inner: syn::MetaList = syn::parse2(list.tokens.clone()).map_err(|error| coded(&error))?;
        (inner.path, inner.tokens, true)
    } else {
        (list.path.clone(), list.tokens.clone(), false)
    };
    let access = match word.to_token_stream().to_string().as_str() {
        "read" => Access::Read,
        "write" => Access::Write,
        "update" => Access::Update,
        "reduce" => {
            let help = "give each tile a region of its own, and add them with a second task";
            return Err(error(Code::CallOption, attribute, "`#[reduce(..)]` is not supported yet", help));
        }
        other => return Err(error(Code::Attribute, attribute, format!("`{other}` is not a kind of access"), help)),
    };
    Ok((attribute.clone(), access, unsafety, tokens))
}

/// Gives a parser's error the code of attributes, unless it has one.
fn coded(source: &syn::Error) -> syn::Error {
    let mut errors = source.clone().into_iter().map(|one| {
        let message = one.to_string();
        if message.starts_with("MACO") {
            return one;
        }
        let help = "an index is `i`, `i / G`, `i + -1..=1`, `..`, `ids[i]` or `off[e]..off[e + 1]`";
        syn::Error::new(one.span(), format!("{}: {message}\n= help: {help}", Code::Attribute))
    });
    let mut first = errors.next().expect("an error has at least one message");
    first.extend(errors);
    first
}
