//! Dimensions as the user writes them: `M`, `64`, `{2 * H}`.
//!
//! A bare name is a dimension. Inside braces a name is a dimension if a parameter introduces it, else a Rust constant.

use maco_graph::spec::Code;
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::{BinOp, Expr, GenericArgument, Lit, LitInt, PathArguments, Stmt, Type};

use crate::errors::{Errors, error};

/// One dimension.
pub enum Dimension {
    Name(Ident),
    Number(LitInt),
    Expression(Expr),
}

impl ToTokens for Dimension {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Dimension::Name(name) => name.to_tokens(tokens),
            Dimension::Number(number) => number.to_tokens(tokens),
            Dimension::Expression(expression) => expression.to_tokens(tokens),
        }
    }
}

/// `Tensor<E, M, K>` or `In<bf16, M, K>`: the word in front, the element, the shape.
pub struct Shaped {
    pub word: Ident,
    pub element: Ident,
    pub dims: Vec<Dimension>,
}

/// Reads `word<element, dims…>`; `None` when the type is something else.
pub fn shaped(ty: &Type) -> Option<syn::Result<Shaped>> {
    let Type::Path(path) = ty else { return None };
    let segment = path.path.segments.last()?;
    if path.qself.is_some() || path.path.segments.len() != 1 {
        return None;
    }
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    Some(shape(&segment.ident, arguments.args.iter()))
}

/// Reads `element, dims…` between the angle brackets of `word`.
pub fn shape<'a>(word: &Ident, mut arguments: impl Iterator<Item = &'a GenericArgument>) -> syn::Result<Shaped> {
    let help = format!("write the element, then one dimension per axis: `{word}<bf16, M, K>`");
    let element = match arguments.next() {
        Some(GenericArgument::Type(Type::Path(path))) if path.path.get_ident().is_some() => path.path.get_ident().cloned(),
        Some(other) => return Err(error(Code::Signature, other, "this is not an element type", help)),
        None => None,
    };
    let Some(element) = element else { return Err(error(Code::Signature, word, format!("`{word}` has no element type"), help)) };
    let dims = arguments.map(dimension).collect::<syn::Result<Vec<_>>>()?;
    if dims.is_empty() {
        return Err(error(Code::Signature, &element, format!("`{word}` has no dimension"), help));
    }
    Ok(Shaped { word: word.clone(), element, dims })
}

fn dimension(argument: &GenericArgument) -> syn::Result<Dimension> {
    match argument {
        GenericArgument::Type(Type::Path(path)) if path.path.get_ident().is_some() => {
            Ok(Dimension::Name(path.path.get_ident().cloned().expect("checked by the guard")))
        }
        GenericArgument::Const(Expr::Lit(literal)) if matches!(literal.lit, Lit::Int(_)) => match &literal.lit {
            Lit::Int(number) => Ok(Dimension::Number(number.clone())),
            _ => unreachable!("checked by the guard"),
        },
        GenericArgument::Const(Expr::Block(block)) => match block.block.stmts.as_slice() {
            [Stmt::Expr(expression, None)] => Ok(Dimension::Expression(expression.clone())),
            _ => Err(malformed(argument)),
        },
        other => Err(malformed(other)),
    }
}

fn malformed(tokens: impl ToTokens) -> syn::Error {
    error(Code::Signature, tokens, "this is not a dimension", "a dimension is a name `M`, a number `64`, or arithmetic in braces `{2 * H}`")
}

/// The names of an item's dimensions, in order of first appearance.
#[derive(Default)]
pub struct Symbols {
    pub names: Vec<Ident>,
}

impl Symbols {
    /// Most symbols of one task or graph.
    const LIMIT: usize = 16;

    /// Adds the bare names of a parameter.
    pub fn introduce(&mut self, dims: &[Dimension], errors: &mut Errors) {
        for dimension in dims {
            let Dimension::Name(name) = dimension else { continue };
            if self.index(name).is_some() {
                continue;
            }
            if self.names.len() == Symbols::LIMIT {
                let message = format!("more than {} dimensions", Symbols::LIMIT);
                errors.push(Code::Limit, name, message, "use the same name for equal dimensions, or split the task");
            }
            self.names.push(name.clone());
        }
    }

    pub fn index(&self, name: &Ident) -> Option<usize> {
        self.names.iter().position(|known| known.unraw() == name.unraw())
    }

    /// Indices of the `where` pairs.
    pub fn equal(&self, pairs: &[(Ident, Ident)], errors: &mut Errors) -> Vec<(u8, u8)> {
        let mut out = Vec::new();
        for (left, right) in pairs {
            match (self.index(left), self.index(right)) {
                (Some(left), Some(right)) => out.push((left as u8, right as u8)),
                (None, _) => errors.extend(&self.unknown(left)),
                (_, None) => errors.extend(&self.unknown(right)),
            }
        }
        out
    }

    /// A name that no parameter introduces.
    pub fn unknown(&self, name: &Ident) -> syn::Error {
        let known: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let help = if known.is_empty() {
            "no parameter introduces a dimension".to_owned()
        } else {
            format!("dimensions are introduced by parameters: here {}; a constant is written `{{{name}}}`", known.join(", "))
        };
        error(Code::UnknownDimension, name, format!("no parameter introduces the dimension `{name}`"), help)
    }

    /// Whether an expression mentions a dimension.
    pub fn mentioned(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Path(path) => path.path.get_ident().is_some_and(|name| self.index(name).is_some()),
            Expr::Binary(binary) => self.mentioned(&binary.left) || self.mentioned(&binary.right),
            Expr::Paren(inner) => self.mentioned(&inner.expr),
            Expr::Group(inner) => self.mentioned(&inner.expr),
            Expr::Cast(cast) => self.mentioned(&cast.expr),
            Expr::Unary(unary) => self.mentioned(&unary.expr),
            Expr::MethodCall(call) => self.mentioned(&call.receiver) || call.args.iter().any(|argument| self.mentioned(argument)),
            Expr::Call(call) => call.args.iter().any(|argument| self.mentioned(argument)),
            _ => false,
        }
    }

    /// Reports each name in these dimensions that is neither a dimension nor a constant.
    pub fn constants(&self, dims: &[Dimension], errors: &mut Errors) {
        for dimension in dims {
            if let Dimension::Expression(expression) = dimension
                && let Err(error) = self.constant(expression, &|_| false)
            {
                errors.extend(&error);
            }
        }
    }

    /// Refuses a name that is no dimension, no constant and not `known`. What may be a constant rustc looks up, and says so if it is none.
    pub fn constant(&self, expression: &Expr, known: &dyn Fn(&Ident) -> bool) -> syn::Result<()> {
        match expression {
            Expr::Path(path) => {
                let Some(name) = path.path.get_ident().filter(|name| self.index(name).is_none() && !known(name)) else { return Ok(()) };
                if !crate::file::of(name).is_some_and(|file| file.has_no_value(name)) {
                    return Ok(());
                }
                let names: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
                let here = if names.is_empty() { String::new() } else { format!(": here {}", names.join(", ")) };
                let help = format!("dimensions are introduced by parameters{here}; a constant is `const {name}: usize = 64;`");
                Err(error(Code::UnknownDimension, name, format!("`{name}` is neither a dimension nor a constant"), help))
            }
            Expr::Binary(binary) => self.constant(&binary.left, known).and_then(|()| self.constant(&binary.right, known)),
            Expr::Paren(inner) => self.constant(&inner.expr, known),
            Expr::Group(inner) => self.constant(&inner.expr, known),
            Expr::Cast(cast) => self.constant(&cast.expr, known),
            _ => Ok(()),
        }
    }

    /// An expression as steps of `spec::DimOp`.
    pub fn steps(&self, expression: &Expr, p: &TokenStream) -> syn::Result<Vec<TokenStream>> {
        if !self.mentioned(expression) {
            return Ok(vec![quote! { #p::spec::DimOp::Constant((#expression) as u64) }]);
        }
        match expression {
            Expr::Paren(inner) => self.steps(&inner.expr, p),
            Expr::Group(inner) => self.steps(&inner.expr, p),
            Expr::Path(path) => {
                let symbol = path.path.get_ident().and_then(|name| self.index(name)).expect("mentioned") as u8;
                Ok(vec![quote! { #p::spec::DimOp::Symbol(#symbol) }])
            }
            Expr::Binary(binary) => {
                let operation = match operation(&binary.op) {
                    Some(Arithmetic::Add) => quote! { Add },
                    Some(Arithmetic::Sub) => quote! { Sub },
                    Some(Arithmetic::Mul) => quote! { Mul },
                    Some(Arithmetic::Div) => quote! { Div },
                    None => return Err(not_arithmetic(expression)),
                };
                let mut steps = self.steps(&binary.left, p)?;
                steps.extend(self.steps(&binary.right, p)?);
                steps.push(quote! { #p::spec::DimOp::#operation });
                Ok(steps)
            }
            _ => Err(not_arithmetic(expression)),
        }
    }

    /// A dimension as `spec::DimSpec`.
    pub fn spec(&self, dimension: &Dimension, p: &TokenStream) -> syn::Result<TokenStream> {
        Ok(match dimension {
            Dimension::Name(name) => {
                let index = self.index(name).ok_or_else(|| self.unknown(name))? as u8;
                quote! { #p::spec::DimSpec::Symbol(#index) }
            }
            Dimension::Number(number) => quote! { #p::spec::DimSpec::Constant(#number as u64) },
            Dimension::Expression(expression) if !self.mentioned(expression) => {
                quote! { #p::spec::DimSpec::Constant((#expression) as u64) }
            }
            Dimension::Expression(expression) => {
                let steps = self.steps(expression, p)?;
                quote! { #p::spec::DimSpec::Expression(&[#(#steps),*]) }
            }
        })
    }
}

/// What dimensions can do.
pub enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
}

pub fn operation(operator: &BinOp) -> Option<Arithmetic> {
    match operator {
        BinOp::Add(_) => Some(Arithmetic::Add),
        BinOp::Sub(_) => Some(Arithmetic::Sub),
        BinOp::Mul(_) => Some(Arithmetic::Mul),
        BinOp::Div(_) => Some(Arithmetic::Div),
        _ => None,
    }
}

pub fn not_arithmetic(expression: &Expr) -> syn::Error {
    error(
        Code::UnknownDimension,
        expression,
        "this is not arithmetic over dimensions",
        "dimensions can be added, subtracted, multiplied and divided exactly",
    )
}
