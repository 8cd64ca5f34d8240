//! Whether a body writes each of its `#[write]` parameters, on every path through it. What it leaves out would hold what was there before.
//!
//! A write is the parameter as an argument of an operation, `cta.zip(x, y, f)`, or of a helper function; that one must return the tile as written, which rustc
//! checks. What a macro in the body does with a parameter is not seen: naming it is enough.

use maco_graph::spec::{Access, Code};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{BinOp, Block, Expr, Pat, Stmt, parse_quote};

use super::kind::mentions;
use super::parse::{Task, TensorParam};

/// The body, in which calls of helper functions are asked for what they have written; and reports of what is not written. These are made in const evaluation,
/// which comes after what rustc says of a misspelt name.
pub fn check(task: &Task<'_>, ty: impl Fn(&TensorParam) -> TokenStream) -> (TokenStream, TokenStream) {
    let body = task.function.body.to_token_stream();
    let results: Vec<&TensorParam> = task.tensors().filter(|tensor| tensor.access == Access::Write).collect();
    // What a SIMT body writes its author promises. What syn does not know, rustc may.
    let (None, Ok(mut block)) = (&task.arguments.simt, syn::parse2::<Block>(body.clone())) else { return (body, TokenStream::new()) };
    let mut paths = Paths {
        cta: task.cta_name().unwrap_or_default(),
        results: results.iter().map(|result| (ty(result), vec![result.name.to_string()])).collect(),
        early: vec![None; results.len()],
        ever: vec![false; results.len()],
        wrapped: false,
        p: task.arguments.private(),
    };
    let written = paths.block(&mut block, vec![false; results.len()]);
    let reports = results.iter().zip(written).zip(paths.early.iter().zip(&paths.ever)).filter_map(|((result, written), (early, &ever))| {
        let name = &result.name;
        let (span, what, help) = match (early, written) {
            (Some(span), _) => (*span, " on some paths only, and not where it leaves here", "write it on every path"),
            (None, true) => return None,
            (None, false) if ever => (
                name.span(),
                " on some paths only",
                "make it the result of an operation in each branch, and not in a loop that may not run",
            ),
            (None, false) => {
                (name.span(), " nowhere", "make it the result of an operation, such as `cta.zip(x, y, f)`, or mark it `#[read(..)]`")
            }
        };
        let text = format!("{}: the body writes `{name}`{what}, which would hold what was there before\nhelp: {help}", Code::NeverWritten);
        Some(quote_spanned! { span => const _: () = ::core::panic!(#text); })
    });
    let reports = reports.collect();
    (if paths.wrapped { block.to_token_stream() } else { body }, reports)
}

/// Which results are written where a path through the body ends.
struct Paths {
    cta: String,
    /// The type of each, and its names.
    results: Vec<(TokenStream, Vec<String>)>,
    /// Where a path ends before a result is written.
    early: Vec<Option<Span>>,
    /// Whether any path writes it.
    ever: Vec<bool>,
    /// A call was asked for what it has written.
    wrapped: bool,
    p: TokenStream,
}

/// Which of the results are written.
type Written = Vec<bool>;

fn both(mut a: Written, b: &Written) -> Written {
    a.iter_mut().zip(b).for_each(|(a, b)| *a &= *b);
    a
}

impl Paths {
    fn block(&mut self, block: &mut Block, mut written: Written) -> Written {
        let names: Vec<Vec<String>> = self.results.iter().map(|(_, names)| names.clone()).collect();
        for statement in &mut block.stmts {
            written = match statement {
                Stmt::Local(local) => {
                    let renamed = match &local.init {
                        Some(init) => self.result(&init.expr),
                        None => None,
                    };
                    if let Some(init) = &mut local.init {
                        written = self.expression(&mut init.expr, written);
                        if let Some((_, diverge)) = &mut init.diverge {
                            self.expression(diverge, written.clone());
                        }
                    }
                    self.bind(&local.pat, renamed);
                    written
                }
                Stmt::Expr(expression, _) => self.expression(expression, written),
                Stmt::Macro(call) => self.named(&call.mac.tokens, written),
                Stmt::Item(_) => written,
            };
        }
        self.results.iter_mut().zip(names).for_each(|((_, known), names)| *known = names);
        written
    }

    /// The result that an expression is.
    fn result(&self, expression: &Expr) -> Option<usize> {
        let Expr::Path(path) = expression else { return None };
        self.results.iter().position(|(_, names)| names.iter().any(|name| path.path.is_ident(name)))
    }

    /// The names of a pattern are no results any more, but for one that is another name of a result.
    fn bind(&mut self, pattern: &Pat, renamed: Option<usize>) {
        let tokens = pattern.to_token_stream();
        for (n, (_, names)) in self.results.iter_mut().enumerate() {
            names.retain(|name| mentions(tokens.clone(), name) == 0);
            if let (true, Pat::Ident(pattern)) = (renamed == Some(n), pattern) {
                names.push(pattern.ident.to_string());
            }
        }
    }

    /// The path ends here.
    fn leave(&mut self, at: Span, written: &Written) -> Written {
        for (early, written) in self.early.iter_mut().zip(written) {
            if !written && early.is_none() {
                *early = Some(at);
            }
        }
        vec![true; written.len()]
    }

    fn named(&mut self, tokens: &TokenStream, written: Written) -> Written {
        let is_named = |(_, names): &(_, Vec<String>)| names.iter().any(|name| mentions(tokens.clone(), name) > 0);
        let named: Vec<usize> = (0..self.results.len()).filter(|&n| is_named(&self.results[n])).collect();
        self.write(&named, written)
    }

    fn write(&mut self, results: &[usize], mut written: Written) -> Written {
        for &result in results {
            (written[result], self.ever[result]) = (true, true);
        }
        written
    }

    /// The results that an argument hands on: itself, or as a member of a tuple.
    fn handed(&self, argument: &Expr, list: &mut Vec<usize>) {
        match argument {
            Expr::Path(_) => list.extend(self.result(argument)),
            Expr::Tuple(tuple) => tuple.elems.iter().for_each(|member| self.handed(member, list)),
            Expr::Paren(inner) => self.handed(&inner.expr, list),
            Expr::Group(inner) => self.handed(&inner.expr, list),
            _ => {}
        }
    }

    fn all<'e>(&mut self, expressions: impl IntoIterator<Item = &'e mut Expr>, written: Written) -> Written {
        expressions.into_iter().fold(written, |written, expression| self.expression(expression, written))
    }

    fn expression(&mut self, expression: &mut Expr, written: Written) -> Written {
        let span = expression.span();
        match expression {
            Expr::MethodCall(call) => {
                let of_cta = matches!(&*call.receiver, Expr::Path(path) if path.path.is_ident(&self.cta));
                let mut handed = Vec::new();
                call.args.iter().for_each(|argument| self.handed(argument, &mut handed));
                let written = self.expression(&mut call.receiver, written);
                let written = self.all(&mut call.args, written);
                let written = self.write(&handed, written);
                if !of_cta {
                    self.ask(expression, &handed);
                }
                written
            }
            Expr::Call(call) => {
                let mut handed = Vec::new();
                call.args.iter().for_each(|argument| self.handed(argument, &mut handed));
                let written = self.expression(&mut call.func, written);
                let written = self.all(&mut call.args, written);
                let written = self.write(&handed, written);
                self.ask(expression, &handed);
                written
            }
            Expr::If(branch) => {
                let written = self.expression(&mut branch.cond, written);
                let then = self.block(&mut branch.then_branch, written.clone());
                match &mut branch.else_branch {
                    Some((_, otherwise)) => both(self.expression(otherwise, written), &then),
                    None => both(written, &then),
                }
            }
            Expr::Match(choice) => {
                let written = self.expression(&mut choice.expr, written);
                let arms: Vec<Written> = choice.arms.iter_mut().map(|arm| self.expression(&mut arm.body, written.clone())).collect();
                arms.iter().fold(vec![true; written.len()], both)
            }
            Expr::Binary(binary) => {
                let left = self.expression(&mut binary.left, written);
                let right = self.expression(&mut binary.right, left.clone());
                // The right one may not run.
                if matches!(binary.op, BinOp::And(_) | BinOp::Or(_)) { left } else { right }
            }
            Expr::ForLoop(repeated) => {
                let written = self.expression(&mut repeated.expr, written);
                self.block(&mut repeated.body, written.clone());
                written
            }
            Expr::While(repeated) => {
                let written = self.expression(&mut repeated.cond, written);
                self.block(&mut repeated.body, written.clone());
                written
            }
            // A `break` may come before what it writes.
            Expr::Loop(repeated) => {
                self.block(&mut repeated.body, written.clone());
                written
            }
            Expr::Return(end) => {
                let written = self.all(end.expr.as_deref_mut(), written);
                self.leave(span, &written)
            }
            Expr::Try(inner) => {
                let written = self.expression(&mut inner.expr, written);
                self.leave(span, &written);
                written
            }
            Expr::Block(inner) => self.block(&mut inner.block, written),
            Expr::Unsafe(inner) => self.block(&mut inner.block, written),
            Expr::Paren(inner) => self.expression(&mut inner.expr, written),
            Expr::Group(inner) => self.expression(&mut inner.expr, written),
            Expr::Reference(inner) => self.expression(&mut inner.expr, written),
            Expr::Unary(inner) => self.expression(&mut inner.expr, written),
            Expr::Cast(inner) => self.expression(&mut inner.expr, written),
            Expr::Field(inner) => self.expression(&mut inner.base, written),
            Expr::Let(inner) => self.expression(&mut inner.expr, written),
            Expr::Tuple(inner) => self.all(&mut inner.elems, written),
            Expr::Array(inner) => self.all(&mut inner.elems, written),
            Expr::Index(inner) => {
                let written = self.expression(&mut inner.expr, written);
                self.expression(&mut inner.index, written)
            }
            Expr::Assign(inner) => {
                let written = self.expression(&mut inner.right, written);
                self.expression(&mut inner.left, written)
            }
            Expr::Macro(call) => self.named(&call.mac.tokens, written),
            // Closures run when they are called, if they are; the rest hold no calls, or are rare in bodies.
            _ => written,
        }
    }

    /// Asks a call of a helper function for what it returns of the results that it was handed.
    fn ask(&mut self, call: &mut Expr, handed: &[usize]) {
        let types = handed.iter().map(|&result| &self.results[result].0);
        let p = &self.p;
        let of = match handed {
            [] => return,
            [_] => quote! { #(#types)* },
            _ => quote! { (#(#types,)*) },
        };
        let span = call.span();
        let inner = call.to_token_stream();
        let asked = quote_spanned! { span => #p::access::written_by_helper::<#of, _>(#inner) };
        *call = parse_quote! { #asked };
        self.wrapped = true;
    }
}
