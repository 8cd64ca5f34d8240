//! Step 3: the body as tokens of a `const fn` that replays it, its sites and the tasks it calls.
//!
//! `for` becomes `while`, calls go to the recorder, dimensions become operations on interned ones; everything else stays the user's.

use std::collections::{HashMap, HashSet};

use maco_graph::spec::{Code, FusedOperand};
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::{Block, Expr, ExprForLoop, ExprIf, Item, Local, Pat, Path, RangeLimits, Stmt};

use super::callee::Callees;
use super::parse::{Kernel, ParamKind};
use crate::attribute::element_variant;
use crate::errors::{Errors, error};
use crate::shape::Symbols;
use crate::spans::{Site, hidden};

/// A task or graph with its epilogues: one range of slots in the dispatch.
pub struct Operation {
    /// The callee's type.
    pub ty: TokenStream,
    pub fused: Vec<FusedOp>,
    /// The elements of the arguments, if they differ: a result may have another element than the operands.
    pub elements: Option<Elements>,
    key: String,
}

/// One `.first(..)` or `.then(..)`: a function, and what it takes beside the value.
#[derive(Clone)]
pub struct FusedOp {
    pub path: Path,
    /// Its type.
    pub ty: TokenStream,
    pub operand: FusedOperand,
    /// `.first(..)`, on operand A; else `.then(..)`, on the accumulator.
    pub on_operand_a: bool,
}

/// Variants of `spec::Element`, one for each argument that is a tensor.
pub type Elements = Vec<Option<Ident>>;

pub struct Model {
    pub p: TokenStream,
    pub symbols: Symbols,
    pub equal: Vec<(u8, u8)>,
    pub operations: Vec<Operation>,
    pub callees: Callees,
    /// The user's token for each fault slot. The first ones are the parameters, in order.
    pub sites: Vec<Site>,
    /// Checks of numbers in the attribute.
    pub ranges: TokenStream,
    /// Statements of the replay.
    pub replay: TokenStream,
}

/// State of the translation.
pub(super) struct Replay<'a> {
    pub(super) p: TokenStream,
    pub(super) symbols: Symbols,
    pub(super) errors: &'a mut Errors,
    sites: Vec<Site>,
    operations: Vec<Operation>,
    pub(super) callees: Callees,
    /// Variables that hold an array of tensors, and the elements of these.
    pub(super) arrays: HashMap<String, Option<Ident>>,
    /// Variables that hold a tensor, and its element.
    pub(super) tensors: HashMap<String, Option<Ident>>,
    /// Parameters that are scalars.
    pub(super) scalars: HashSet<String>,
    /// Constants, loop variables and variables of the body that are none of these.
    pub(super) locals: HashSet<String>,
}

pub fn analyse(kernel: &Kernel<'_>, errors: &mut Errors) -> Model {
    let p = kernel.arguments.private();
    let mut symbols = Symbols::default();
    for param in &kernel.params {
        if let ParamKind::Tensor { dims, .. } = &param.kind {
            symbols.introduce(dims, errors);
        }
    }
    for param in &kernel.params {
        if let ParamKind::Tensor { dims, .. } = &param.kind {
            symbols.constants(dims, errors);
        }
    }
    let equal = symbols.equal(&kernel.arguments.equal, errors);
    let mut replay = Replay {
        p,
        symbols,
        errors,
        sites: Vec::new(),
        operations: Vec::new(),
        callees: Callees::of(kernel),
        arrays: HashMap::new(),
        tensors: HashMap::new(),
        scalars: HashSet::new(),
        locals: HashSet::new(),
    };
    for param in &kernel.params {
        replay.site(&param.name);
        match &param.kind {
            ParamKind::Tensor { array: Some(_), element, .. } => {
                replay.arrays.insert(param.name.to_string(), element_variant(element));
            }
            ParamKind::Tensor { element, .. } => {
                replay.tensors.insert(param.name.to_string(), element_variant(element));
            }
            ParamKind::Scalar { .. } => drop(replay.scalars.insert(param.name.to_string())),
        }
    }
    let ranges = replay.ranges(kernel);
    let body = replay.statements(&kernel.statements);
    let Replay { p, symbols, operations, callees, sites, .. } = replay;
    Model { p, symbols, equal, operations, callees, sites, ranges, replay: body }
}

impl Replay<'_> {
    /// A new fault slot for these tokens.
    pub(super) fn site(&mut self, tokens: &impl ToTokens) -> u32 {
        self.add_site(Site::of(tokens))
    }

    pub(super) fn add_site(&mut self, site: Site) -> u32 {
        self.sites.push(site);
        self.sites.len() as u32 - 1
    }

    /// The place of an operation in the dispatch.
    pub(super) fn operation(&mut self, path: &Path, fused: Vec<FusedOp>, elements: Option<Elements>) -> usize {
        let text = |path: &Path| path.to_token_stream().to_string();
        let start = elements.iter().flatten().fold(text(path), |key, element| match element {
            Some(element) => format!("{key} {element}"),
            None => format!("{key} _"),
        });
        let key = fused.iter().fold(start, |key, op| {
            let option = if op.on_operand_a { "first" } else { "then" };
            format!("{key} {option} {} {:?}", text(&op.path), op.operand)
        });
        if let Some(place) = self.operations.iter().position(|operation| operation.key == key) {
            return place;
        }
        let ty = self.callees.ty(path);
        self.operations.push(Operation { ty, fused, elements, key });
        self.operations.len() - 1
    }

    fn ranges(&mut self, kernel: &Kernel<'_>) -> TokenStream {
        let mut ranges = TokenStream::new();
        let numbers = [("workers", &kernel.arguments.workers, 1u64, 65535u64), ("schedulers", &kernel.arguments.schedulers, 0, 64)];
        for (what, expression, low, high) in numbers {
            if let Some(expression) = expression {
                let (site, recorder) = (self.site(expression), recorder());
                ranges.extend(quote! { #recorder.range(#site, #what, (#expression) as u64, #low, #high); });
            }
        }
        ranges
    }

    fn statements(&mut self, statements: &[Stmt]) -> TokenStream {
        statements.iter().map(|statement| self.statement(statement)).collect()
    }

    fn block(&mut self, block: &Block) -> TokenStream {
        let statements = self.statements(&block.stmts);
        quote! { { #statements } }
    }

    fn statement(&mut self, statement: &Stmt) -> TokenStream {
        let translated = match statement {
            Stmt::Local(local) => self.local(local),
            Stmt::Item(Item::Const(item)) => {
                self.locals.insert(item.ident.to_string());
                Ok(item.to_token_stream())
            }
            Stmt::Item(item) => Err(unsupported(item, "this item cannot stand in a body", "move it out of the function")),
            Stmt::Macro(call) => {
                Err(unsupported(call, "macros cannot stand in a body", "write the calls out, or put them into a `#[maco::graph]`"))
            }
            Stmt::Expr(expression, _) => self.expression(expression),
        };
        translated.unwrap_or_else(|error| {
            self.errors.extend(&error);
            TokenStream::new()
        })
    }

    fn local(&mut self, local: &Local) -> syn::Result<TokenStream> {
        if let (Pat::Wild(pattern), Some(init)) = (&local.pat, &local.init) {
            let value = self.value(&init.expr, None)?;
            return Ok(quote! { let #pattern = #value; });
        }
        let Pat::Ident(pattern) = &local.pat else {
            return Err(unsupported(&local.pat, "a variable is a plain name", "write `let h = …;` or `let mut h = …;`"));
        };
        let Some(init) = &local.init else {
            return Err(unsupported(local, format!("`{}` has no value", pattern.ident), "write `let h = temp::<bf16, M, K>();`"));
        };
        if let Some((_, diverge)) = &init.diverge {
            return Err(unsupported(diverge, "`let … else` cannot stand in a body", "use `if` on constants"));
        }
        let name = pattern.ident.to_string();
        let value = self.value(&init.expr, Some(&pattern.ident))?;
        // Before the name means something else: `let mut x = x;`.
        let (array, tensor) = (self.is_array(&init.expr), self.is_tensor(&init.expr));
        let element = self.holds(&init.expr);
        let scalar = matches!(strip(&init.expr), Expr::Path(path) if self.scalars.contains(&path.path.to_token_stream().to_string()));
        self.tensors.remove(&name);
        self.arrays.remove(&name);
        self.scalars.remove(&name);
        self.locals.remove(&name);
        if scalar {
            self.scalars.insert(name);
        } else if array {
            self.arrays.insert(name, element);
        } else if tensor {
            self.tensors.insert(name, element);
        } else {
            self.locals.insert(name);
        }
        let attributes = &local.attrs;
        Ok(quote! { #(#attributes)* let #pattern = #value; })
    }

    fn expression(&mut self, expression: &Expr) -> syn::Result<TokenStream> {
        match expression {
            Expr::Call(_) | Expr::MethodCall(_) => self.call(expression),
            Expr::Assign(assign) => {
                let value = self.value(&assign.right, None)?;
                let left = &assign.left;
                match &**left {
                    Expr::Path(_) | Expr::Index(_) => Ok(quote! { #left = #value; }),
                    other => Err(unsupported(other, "only variables can be assigned", "write `h = next;`")),
                }
            }
            Expr::ForLoop(four) => self.for_loop(four),
            Expr::If(branch) => self.branch(branch),
            Expr::Block(block) if block.label.is_none() => Ok(self.block(&block.block)),
            Expr::Break(jump) if jump.label.is_none() && jump.expr.is_none() => Ok(quote! { #jump; }),
            Expr::Continue(jump) if jump.label.is_none() => Ok(quote! { #jump; }),
            Expr::While(other) => Err(unsupported(other.while_token, "`while` cannot stand in a body", LOOP)),
            Expr::Loop(other) => Err(unsupported(other.loop_token, "`loop` cannot stand in a body", LOOP)),
            Expr::Match(other) => Err(unsupported(other.match_token, "`match` cannot stand in a body", "use `if` on constants")),
            Expr::Return(other) => Err(unsupported(other, "`return` cannot stand in a body", "put what follows into an `if` on constants")),
            Expr::Macro(other) => {
                Err(unsupported(other, "macros cannot stand in a body", "write the calls out, or put them into a `#[maco::graph]`"))
            }
            other => Err(unsupported(other, "this statement does nothing a kernel can do", STATEMENT)),
        }
    }

    fn for_loop(&mut self, four: &ExprForLoop) -> syn::Result<TokenStream> {
        if let Some(label) = &four.label {
            return Err(unsupported(label, "loops in a body have no labels", "remove the label"));
        }
        if !matches!(&*four.pat, Pat::Ident(_) | Pat::Wild(_)) {
            return Err(unsupported(&four.pat, "a loop variable is a plain name", "write `for layer in 0..LAYERS`"));
        }
        let (range, reverse) = match &*four.expr {
            Expr::MethodCall(call) if call.method == "rev" && call.args.is_empty() => (strip(&call.receiver), true),
            other => (strip(other), false),
        };
        let Expr::Range(range) = range else {
            return Err(unsupported(&four.expr, "a loop runs over a range of constants", LOOP));
        };
        let (Some(start), Some(end)) = (&range.start, &range.end) else {
            return Err(unsupported(range, "a loop needs both bounds", LOOP));
        };
        self.constant(start, "a bound of a loop")?;
        self.constant(end, "a bound of a loop")?;
        if let Pat::Ident(pattern) = &*four.pat {
            self.locals.insert(pattern.ident.to_string());
        }
        let end = match range.limits {
            RangeLimits::HalfOpen(_) => quote! { #end },
            RangeLimits::Closed(_) => quote! { (#end) + 1 },
        };
        let (pattern, body) = (&four.pat, self.statements(&four.body.stmts));
        let (next, last) = (hidden("next"), hidden("last"));
        // The counter moves before the body, so that `continue` is what it is in a `for`.
        Ok(if reverse {
            quote! {
                {
                    let #last: usize = #start;
                    let mut #next: usize = #end;
                    while #next > #last {
                        #next -= 1;
                        let #pattern = #next;
                        #body
                    }
                }
            }
        } else {
            quote! {
                {
                    let mut #next: usize = #start;
                    let #last: usize = #end;
                    while #next < #last {
                        let #pattern = #next;
                        #next += 1;
                        #body
                    }
                }
            }
        })
    }

    fn branch(&mut self, branch: &ExprIf) -> syn::Result<TokenStream> {
        if let Expr::Let(condition) = &*branch.cond {
            return Err(unsupported(condition, "`if let` cannot stand in a body", "conditions are constants: `if layer == 0`"));
        }
        self.constant(&branch.cond, "a condition")?;
        let (condition, then) = (&branch.cond, self.block(&branch.then_branch));
        let otherwise = match &branch.else_branch {
            None => TokenStream::new(),
            Some((_, other)) => {
                let other = self.expression(other)?;
                quote! { else #other }
            }
        };
        Ok(quote! { if #condition #then #otherwise })
    }

    /// A tensor's element as a variant of `spec::Element`.
    pub(super) fn element(&mut self, element: &Ident) -> syn::Result<Ident> {
        element_variant(element).ok_or_else(|| {
            error(Code::Attribute, element, format!("`{element}` is not an element type"), "elements are bf16, f16, f32, i8, i32 and u32")
        })
    }
}

const LOOP: &str = "write `for layer in 0..LAYERS`: bounds are constants";
const STATEMENT: &str = "a body is calls of tasks, `let`, assignments, `for` over constant bounds and `if` on constants";

/// The recorder's name in generated code, which the user's tokens cannot mean.
pub(super) fn recorder() -> Ident {
    hidden("recorder")
}

/// The dimensions' name in generated code.
pub(super) fn dimensions() -> Ident {
    hidden("dims")
}

pub(super) fn unsupported(tokens: impl ToTokens, message: impl AsRef<str>, help: &str) -> syn::Error {
    error(Code::Statement, tokens, message, help)
}

/// Without parentheses.
pub(super) fn strip(expression: &Expr) -> &Expr {
    match expression {
        Expr::Paren(inner) => strip(&inner.expr),
        Expr::Group(inner) => strip(&inner.expr),
        other => other,
    }
}
