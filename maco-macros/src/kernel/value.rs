//! Expressions of a body: temps, views, dimensions, arguments.
//!
//! What is not one of these stays the user's tokens: constants, loop variables, variables.

use maco_graph::spec::{Code, Reduction};
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprCall, ExprIf, ExprLit, ExprMethodCall, GenericArgument, Lit, PathArguments, RangeLimits, Stmt, Type, UnOp};

use super::analyse::{Replay, dimensions, recorder, strip, unsupported};
use crate::attribute::element_variant;
use crate::errors::error;
use crate::shape::{Arithmetic, Dimension, Symbols, not_arithmetic, operation, shape};
use crate::spans::{Site, hidden, plain};

impl Replay<'_> {
    /// An expression where a tensor, an array of them or a constant may stand. `name` is the variable it is bound to.
    pub(super) fn value(&mut self, expression: &Expr, name: Option<&Ident>) -> syn::Result<TokenStream> {
        match expression {
            Expr::Paren(inner) => self.value(&inner.expr, name),
            Expr::Group(inner) => self.value(&inner.expr, name),
            Expr::Call(call) if is_temp(call) => self.temp(call, name, &quote! { Replicated }),
            Expr::Call(call) => {
                if call.args.iter().any(|argument| self.is_tensor(argument) || self.is_array(argument)) {
                    return Err(unsupported(
                        expression,
                        "a call has no value",
                        "pass the tensor it writes as an argument: `let y = temp::<bf16, M, K>(); task(x, y);`",
                    ));
                }
                Ok(expression.to_token_stream())
            }
            Expr::MethodCall(call) => self.method(call, name),
            Expr::Index(index) => match strip(&index.expr) {
                Expr::Path(path) if self.arrays.contains_key(&path.path.to_token_stream().to_string()) => {
                    self.constant(&index.index, "an index")?;
                    let (recorder, site) = (recorder(), self.site(expression));
                    let (array, at, name) = (&index.expr, &index.index, path.path.get_ident().map(plain));
                    Ok(quote! { #recorder.at(&#array, #name, #at, #site) })
                }
                _ => Ok(expression.to_token_stream()),
            },
            Expr::Array(array) => {
                let elements = array.elems.iter().map(|element| self.value(element, name)).collect::<syn::Result<Vec<_>>>()?;
                Ok(quote! { [#(#elements),*] })
            }
            Expr::Repeat(repeat) if self.is_tensor(&repeat.expr) && !matches!(strip(&repeat.expr), Expr::Path(_)) => {
                Err(unsupported(expression, "this would be one tensor many times", "make each one by a call of its own, in a loop"))
            }
            Expr::If(branch) => self.choice(branch, name),
            Expr::Macro(call) => {
                Err(unsupported(call, "macros cannot stand in a body", "a value is a tensor, a temp, a view or a constant"))
            }
            other => {
                self.constant_value(other, "a computed value")?;
                Ok(other.to_token_stream())
            }
        }
    }

    /// `if layer == 0 { x } else { h }`
    fn choice(&mut self, branch: &ExprIf, name: Option<&Ident>) -> syn::Result<TokenStream> {
        let [Stmt::Expr(then, None)] = branch.then_branch.stmts.as_slice() else {
            return Err(unsupported(
                branch,
                "a value chosen by `if` is one expression in each branch",
                "write `if layer == 0 { x } else { h }`",
            ));
        };
        let Some((_, other)) = &branch.else_branch else {
            return Err(unsupported(branch, "this `if` has no value without `else`", "write `if layer == 0 { x } else { h }`"));
        };
        self.constant(&branch.cond, "a condition")?;
        let (condition, then) = (&branch.cond, self.value(then, name)?);
        let other = match &**other {
            Expr::Block(block) => match block.block.stmts.as_slice() {
                [Stmt::Expr(value, None)] => self.value(value, name)?,
                _ => {
                    return Err(unsupported(
                        block,
                        "a value chosen by `if` is one expression in each branch",
                        "write `if layer == 0 { x } else { h }`",
                    ));
                }
            },
            other => self.value(other, name)?,
        };
        Ok(quote! { if #condition { #then } else { #other } })
    }

    /// `temp::<bf16, M, K>()`
    fn temp(&mut self, call: &ExprCall, name: Option<&Ident>, placement: &TokenStream) -> syn::Result<TokenStream> {
        let Expr::Path(path) = strip(&call.func) else { unreachable!("`is_temp` has seen a path") };
        let segment = path.path.segments.last().expect("a path has a segment");
        let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
            return Err(error(Code::Signature, &call.func, "this temp has no shape", "write `temp::<bf16, M, K>()`"));
        };
        if let Some(argument) = call.args.first() {
            return Err(error(Code::Statement, argument, "`temp` takes no arguments", "write `temp::<bf16, M, K>()`"));
        }
        let shape = shape(&segment.ident, arguments.args.iter())?;
        let element = self.element(&shape.element)?;
        if let Some(extra) = shape.dims.get(4) {
            let message = format!("{} dimensions, but there is room for 4", shape.dims.len());
            return Err(error(Code::Limit, extra, message, "fold some of them, and use `x.split(axis, n)`"));
        }
        let (site, word) = match name {
            Some(name) => (self.site(name), plain(name)),
            None => (self.site(call), "temp".to_owned()),
        };
        let mut dims = Vec::new();
        for dimension in &shape.dims {
            // Only arithmetic can be wrong.
            let at = if matches!(dimension, Dimension::Expression(_)) { self.site(dimension) } else { site };
            dims.push(self.dimension(dimension, at)?);
        }
        let (p, recorder) = (&self.p, recorder());
        let local = hidden("shape");
        Ok(quote! {
            {
                let #local = [#(#dims),*];
                #recorder.temp(#word, #p::spec::Element::#element, &#local, #p::spec::Placement::#placement, #site)
            }
        })
    }

    /// `.slice(..)`, `.split(..)`, `.swap(..)`, `.t()`, `.partial(Sum)`, `.shard(0)`; other methods stay.
    fn method(&mut self, call: &ExprMethodCall, name: Option<&Ident>) -> syn::Result<TokenStream> {
        let arguments: Vec<&Expr> = call.args.iter().collect();
        let recorder = recorder();
        match (call.method.to_string().as_str(), arguments.as_slice()) {
            ("partial", [sum]) => {
                let reduction = match strip(sum) {
                    Expr::Path(path) => path.path.segments.last().filter(|last| Reduction::named(&last.ident.to_string()).is_some()),
                    _ => None,
                };
                let Some(reduction) = reduction.map(|last| &last.ident) else {
                    let help = "write `.partial(Sum)`, or `Mean`, `Max` or `Min`";
                    return Err(error(Code::Placement, sum, "this is not a way to combine partial results", help));
                };
                let p = &self.p;
                let placement = quote! { Partial(#p::spec::Reduction::#reduction) };
                match strip(&call.receiver) {
                    Expr::Call(temp) if is_temp(temp) => self.temp(temp, name, &placement),
                    other => Err(error(Code::Placement, other, "only a temp can be partial", "write `temp::<bf16, M, K>().partial(Sum)`")),
                }
            }
            ("symmetric", []) => {
                let mut of = strip(&call.receiver);
                while let Expr::MethodCall(placed) = of {
                    of = strip(&placed.receiver);
                }
                if !matches!(of, Expr::Call(temp) if is_temp(temp)) {
                    let help = "write `temp::<bf16, M, K>().symmetric()`, or `#[symmetric]` before a parameter";
                    return Err(error(Code::Placement, of, "only a temp is symmetric so", help));
                }
                let (temp, view) = (self.value(&call.receiver, name)?, hidden("view"));
                Ok(quote! {{
                    let #view = #temp;
                    #recorder.symmetric(#view);
                    #view
                }})
            }
            ("shard", [axis]) => {
                let Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) = strip(axis) else {
                    return Err(error(Code::Placement, axis, "this is not the number of an axis", "write `.shard(0)`"));
                };
                let number =
                    number.base10_parse::<u8>().map_err(|_| error(Code::Placement, axis, "there is no such axis", "axes count from 0"))?;
                let placement = quote! { Sharded(#number) };
                match strip(&call.receiver) {
                    Expr::Call(temp) if is_temp(temp) => self.temp(temp, name, &placement),
                    other => Err(error(
                        Code::Placement,
                        other,
                        "only a temp is sharded so",
                        "write `temp::<bf16, M, K>().shard(0)`, or `#[shard(0)]` before a parameter",
                    )),
                }
            }
            ("slice", [axis, range]) => {
                let view = self.value(&call.receiver, name)?;
                let site = self.add_site(Site::between(call.method.span(), call.paren_token.span.close()));
                let Expr::Range(range) = strip(range) else {
                    return Err(error(Code::View, range, "this is not a range", "write `x.slice(axis, start..end)`"));
                };
                if let RangeLimits::Closed(token) = &range.limits {
                    return Err(error(Code::View, token, "a slice ends before its end", "write `x.slice(axis, start..end)`"));
                }
                let start = self.bound(range.start.as_deref(), site)?;
                let end = self.bound(range.end.as_deref(), site)?;
                let (local, first, last) = (hidden("view"), hidden("first"), hidden("last"));
                Ok(quote! {
                    {
                        let #local = #view;
                        let #first = #start;
                        let #last = #end;
                        #recorder.slice(#local, #axis, #first, #last, #site)
                    }
                })
            }
            ("split", [axis, groups]) => {
                let view = self.value(&call.receiver, name)?;
                let site = self.add_site(Site::between(call.method.span(), call.paren_token.span.close()));
                let groups = self.dim(groups, site)?;
                let (local, count) = (hidden("view"), hidden("groups"));
                Ok(quote! {
                    {
                        let #local = #view;
                        let #count = #groups;
                        #recorder.split(#local, #axis, #count, #site)
                    }
                })
            }
            ("swap", [a, b]) => {
                let view = self.value(&call.receiver, name)?;
                let site = self.add_site(Site::between(call.method.span(), call.paren_token.span.close()));
                let local = hidden("view");
                Ok(quote! {
                    {
                        let #local = #view;
                        #recorder.swapped(#local, #a, #b, #site)
                    }
                })
            }
            ("t", []) => {
                let view = self.value(&call.receiver, name)?;
                let site = self.add_site(Site::between(call.method.span(), call.paren_token.span.close()));
                let local = hidden("view");
                Ok(quote! {
                    {
                        let #local = #view;
                        #recorder.transposed(#local, #site)
                    }
                })
            }
            (view @ ("slice" | "split" | "swap" | "t" | "partial" | "shard" | "symmetric"), _) if self.is_tensor(&call.receiver) => {
                let help = "views are `x.slice(axis, start..end)`, `x.split(axis, n)`, `x.swap(0, 1)` and `x.t()`";
                Err(error(Code::View, &call.method, format!("`.{view}` takes other arguments"), help))
            }
            (other, _) if self.is_tensor(&call.receiver) => {
                let help = "views are `x.slice(axis, start..end)`, `x.split(axis, n)`, `x.swap(0, 1)` and `x.t()`; options such as `.then(gelu)` follow a call";
                Err(error(Code::View, &call.method, format!("a tensor has no view `.{other}`"), help))
            }
            _ => Ok(call.to_token_stream()),
        }
    }

    fn bound(&mut self, bound: Option<&Expr>, site: u32) -> syn::Result<TokenStream> {
        Ok(match bound {
            Some(bound) => {
                let dim = self.dim(bound, site)?;
                quote! { ::core::option::Option::Some(#dim) }
            }
            None => quote! { ::core::option::Option::None },
        })
    }

    /// One dimension of a shape.
    pub(super) fn dimension(&mut self, dimension: &Dimension, site: u32) -> syn::Result<TokenStream> {
        match dimension {
            Dimension::Name(name) if self.symbols.index(name).is_none() => Err(self.symbols.unknown(name)),
            Dimension::Name(name) => {
                let (dims, index) = (dimensions(), self.symbols.index(name));
                Ok(quote! { #dims[#index] })
            }
            Dimension::Number(number) => {
                let recorder = recorder();
                Ok(quote! { #recorder.constant(#number as u64, #site) })
            }
            Dimension::Expression(expression) => {
                self.symbols.constant(expression, &|name| self.is_named(name))?;
                self.dim(expression, site)
            }
        }
    }

    /// Whether the megakernel gives this name to anything.
    fn is_named(&self, name: &Ident) -> bool {
        let text = name.to_string();
        let tensor = self.tensors.contains_key(&text) || self.arrays.contains_key(&text);
        tensor || self.scalars.contains(&text) || self.locals.contains(&text)
    }

    /// Arithmetic over dimensions, as operations of the recorder.
    pub(super) fn dim(&mut self, expression: &Expr, site: u32) -> syn::Result<TokenStream> {
        dimension_tokens(&self.symbols, expression, site)
    }

    /// One argument of a call as `spec::Argument`.
    pub(super) fn argument(&mut self, argument: &Expr, site: u32) -> syn::Result<TokenStream> {
        let p = self.p.clone();
        let scalar = |value: TokenStream| quote! { #p::spec::Argument::Scalar(#p::spec::Value::#value) };
        let expression = strip(argument);
        if let Some(number) = literal(expression) {
            return Ok(scalar(number));
        }
        // A parameter may be called like a dimension.
        if self.symbols.mentioned(expression) && !self.is_variable(expression) {
            let dim = self.dim(expression, site)?;
            return Ok(scalar(quote! { Dimension(#dim) }));
        }
        match expression {
            Expr::Lit(other) => Err(error(Code::Sort, other, "this is neither a tensor nor a number", "scalars are f32, u32 and i32")),
            Expr::Reference(reference) => Err(unsupported(
                reference,
                "tensors are passed by name",
                "remove the `&`: what a task does to a tensor stands in its signature",
            )),
            _ => {
                let value = self.value(expression, None)?;
                // A type that is no argument is then underlined where it stands.
                let span = Site::of(argument).start();
                let value = match expression {
                    Expr::Binary(_) | Expr::Cast(_) | Expr::Unary(_) => quote! { (#value) },
                    _ => value,
                };
                Ok(quote_spanned! { span => #p::spec::Operand(&#value).argument() })
            }
        }
    }

    /// Whether an expression is a tensor, as far as its tokens tell.
    pub(super) fn is_tensor(&self, expression: &Expr) -> bool {
        match strip(expression) {
            Expr::Path(path) => self.tensors.contains_key(&path.path.to_token_stream().to_string()),
            Expr::Index(index) => self.is_array(&index.expr),
            Expr::Call(call) => is_temp(call),
            Expr::MethodCall(call) => self.is_tensor(&call.receiver),
            Expr::If(branch) => matches!(branch.then_branch.stmts.as_slice(), [Stmt::Expr(value, None)] if self.is_tensor(value)),
            _ => false,
        }
    }

    /// Whether an expression is an array of tensors, as far as its tokens tell.
    pub(super) fn is_array(&self, expression: &Expr) -> bool {
        match strip(expression) {
            Expr::Path(path) => self.arrays.contains_key(&path.path.to_token_stream().to_string()),
            Expr::Array(array) => array.elems.first().is_some_and(|first| self.is_tensor(first)),
            Expr::Repeat(repeat) => self.is_tensor(&repeat.expr),
            _ => false,
        }
    }

    /// Whether an expression is a tensor, an array of them or a scalar parameter.
    pub(super) fn is_variable(&self, expression: &Expr) -> bool {
        let scalar = matches!(strip(expression), Expr::Path(path) if self.scalars.contains(&path.path.to_token_stream().to_string()));
        scalar || self.is_tensor(expression) || self.is_array(expression)
    }

    /// What a tensor, or an array of them, holds, as far as its tokens tell: a variant of `spec::Element`.
    pub(super) fn holds(&self, expression: &Expr) -> Option<Ident> {
        match strip(expression) {
            Expr::Path(path) => {
                let name = path.path.to_token_stream().to_string();
                self.tensors.get(&name).or_else(|| self.arrays.get(&name)).cloned().flatten()
            }
            Expr::Index(index) => self.holds(&index.expr),
            Expr::Call(call) if is_temp(call) => temp_holds(call),
            Expr::MethodCall(call) => self.holds(&call.receiver),
            Expr::If(branch) => match branch.then_branch.stmts.as_slice() {
                [Stmt::Expr(value, None)] => self.holds(value),
                _ => None,
            },
            Expr::Array(array) => self.holds(array.elems.first()?),
            Expr::Repeat(repeat) => self.holds(&repeat.expr),
            _ => None,
        }
    }
}

/// A number, possibly negative.
fn literal(expression: &Expr) -> Option<TokenStream> {
    let (sign, number) = match expression {
        Expr::Unary(unary) => match unary.op {
            UnOp::Neg(minus) => (Some(minus), strip(&unary.expr)),
            _ => return None,
        },
        other => (None, other),
    };
    let Expr::Lit(literal) = number else { return None };
    match &literal.lit {
        Lit::Float(float) => Some(quote! { F32(#sign #float) }),
        Lit::Int(integer) if integer.suffix().is_empty() => Some(quote! { Integer(#sign #integer) }),
        Lit::Int(integer) => Some(quote! { Integer((#sign #integer) as i64) }),
        _ => None,
    }
}

fn is_temp(call: &ExprCall) -> bool {
    matches!(strip(&call.func), Expr::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "temp"))
}

/// `bf16` of `temp::<bf16, M, K>()`.
fn temp_holds(call: &ExprCall) -> Option<Ident> {
    let Expr::Path(path) = strip(&call.func) else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(Type::Path(element)) => element_variant(element.path.get_ident()?),
        _ => None,
    }
}

/// Arithmetic over dimensions, as operations of the recorder.
pub(super) fn dimension_tokens(symbols: &Symbols, expression: &Expr, site: u32) -> syn::Result<TokenStream> {
    let (recorder, dims) = (recorder(), dimensions());
    if !symbols.mentioned(expression) {
        return Ok(quote! { #recorder.constant((#expression) as u64, #site) });
    }
    match strip(expression) {
        Expr::Path(path) => {
            let index = path.path.get_ident().and_then(|name| symbols.index(name));
            Ok(quote! { #dims[#index] })
        }
        Expr::Binary(binary) => {
            let method = match operation(&binary.op) {
                Some(Arithmetic::Add) => quote! { add },
                Some(Arithmetic::Sub) => quote! { sub },
                Some(Arithmetic::Mul) => quote! { mul },
                Some(Arithmetic::Div) => quote! { div },
                None => return Err(not_arithmetic(expression)),
            };
            let (left, right) = (dimension_tokens(symbols, &binary.left, site)?, dimension_tokens(symbols, &binary.right, site)?);
            let (one, other) = (hidden("left"), hidden("right"));
            Ok(quote! {
                {
                    let #one = #left;
                    let #other = #right;
                    #recorder.#method(#one, #other, #site)
                }
            })
        }
        _ => Err(not_arithmetic(expression)),
    }
}
