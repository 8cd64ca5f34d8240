//! Whether a body writes each of its `#[write]` parameters, on every path through it. What it leaves out would hold what was there before.
//!
//! A write is the parameter as an argument of an operation, `cta.zip(x, y, f)`, or of a helper function or a macro; these must return the tile as written, which
//! rustc checks. What stands in a macro is not seen: it counts only if it is handed both `cta` and the parameter, and as its value. Behind a macro a name may be
//! another variable's, so operations are asked for what they return as well; and the body has a result, so that no macro returns from it.

use maco_graph::spec::{Access, Code};
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{BinOp, Block, Expr, Item, Label, Macro, Pat, Stmt, StmtMacro, parse_quote};

use super::kind::mentions;
use super::parse::{Task, TensorParam};

/// A body and what is wrong with it.
pub struct Checked {
    /// The body, in which calls are asked for what they have written.
    pub body: TokenStream,
    /// Reports of what is not written. These are made in const evaluation, which comes after what rustc says of a misspelt name.
    pub reports: TokenStream,
    /// Whether the body returns `WritesItsResults`.
    pub returns: bool,
}

pub fn check(task: &Task<'_>, ty: impl Fn(&TensorParam) -> TokenStream) -> Checked {
    let body = task.function.body.to_token_stream();
    let results: Vec<&TensorParam> = task.tensors().filter(|tensor| tensor.access == Access::Write).collect();
    // What a SIMT body writes its author promises. What syn does not know, rustc may.
    let (None, Ok(block)) = (&task.arguments.simt, syn::parse2::<Block>(body.clone())) else {
        return Checked { body, reports: TokenStream::new(), returns: false };
    };
    let walk = |returns: bool| {
        let mut block = block.clone();
        let mut paths = Paths {
            ctas: task.cta_name().into_iter().collect(),
            results: results.iter().map(|result| (ty(result), vec![result.name.to_string()])).collect(),
            early: vec![None; results.len()],
            ever: vec![false; results.len()],
            in_macro: vec![false; results.len()],
            blocks: Vec::new(),
            unseen: false,
            may_return: false,
            returns,
            wrapped: false,
            p: task.arguments.private(),
        };
        let written = paths.block(&mut block, vec![false; results.len()]);
        (block, paths, written)
    };
    let (mut block, mut paths, mut written) = walk(false);
    let returns = paths.may_return;
    if returns {
        (block, paths, written) = walk(true);
    }
    let reports = results.iter().enumerate().filter_map(|(n, result)| {
        let name = &result.name;
        let (span, what, help) = match (paths.early[n], written[n]) {
            (Some(span), _) => (span, " on some paths only, and not where it leaves here", "write it on every path"),
            (None, true) => return None,
            (None, false) if paths.ever[n] => (
                name.span(),
                " on some paths only",
                "make it the result of an operation in each branch, and not in a loop that may not run",
            ),
            (None, false) if paths.in_macro[n] => (
                name.span(),
                " nowhere",
                "what a macro does with it is not seen: make it the result of an operation outside of the macro, such as `cta.zip(x, y, f)`",
            ),
            (None, false) => {
                (name.span(), " nowhere", "make it the result of an operation, such as `cta.zip(x, y, f)`, or mark it `#[read(..)]`")
            }
        };
        let text = format!("{}: the body writes `{name}`{what}, which would hold what was there before\nhelp: {help}", Code::NeverWritten);
        Some(quote_spanned! { span => const _: () = ::core::panic!(#text); })
    });
    let reports = reports.collect();
    Checked { body: if paths.wrapped || returns { block.to_token_stream() } else { body }, reports, returns }
}

/// Which results are written where a path through the body ends.
struct Paths {
    /// The names of `cta`.
    ctas: Vec<String>,
    /// The type of each, and its names.
    results: Vec<(TokenStream, Vec<String>)>,
    /// Where a path ends before a result is written.
    early: Vec<Option<Span>>,
    /// Whether any path writes it.
    ever: Vec<bool>,
    /// Whether a macro is handed it that does not count as a write.
    in_macro: Vec<bool>,
    /// The labelled blocks around, and what is written wherever one is left by `break`.
    blocks: Vec<(String, Written)>,
    /// A macro has come, which may have given a name to another variable.
    unseen: bool,
    /// A macro that could return comes before all is written.
    may_return: bool,
    /// The body has a result because of it.
    returns: bool,
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

/// Macros of the standard library: of their arguments they only take values.
const OF_VALUES: [&str; 24] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "matches",
    "panic",
    "unreachable",
    "todo",
    "unimplemented",
    "print",
    "println",
    "eprint",
    "eprintln",
    "dbg",
    "format",
    "format_args",
    "write",
    "writeln",
    "concat",
    "stringify",
    "cfg",
    "vec",
];

/// Names and their meaning, to be given back at the end of a scope.
type Scope = (Vec<String>, Vec<Vec<String>>);

impl Paths {
    fn block(&mut self, block: &mut Block, mut written: Written) -> Written {
        let scope = self.scope();
        for statement in &block.stmts {
            if let Stmt::Item(item) = statement {
                self.item(item);
            }
        }
        let last = block.stmts.len().saturating_sub(1);
        for (n, statement) in block.stmts.iter_mut().enumerate() {
            let otherwise = is_conditional(statement).then(|| written.clone());
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
                Stmt::Macro(StmtMacro { mac, semi_token, attrs }) => {
                    let (written, handed) = self.called(mac, written);
                    if !handed.is_empty() {
                        let mut call: Expr = parse_quote! { #mac };
                        let of = self.all_of(&handed);
                        self.ask(&mut call, of);
                        call = parse_quote! { #(#attrs)* #call };
                        let end = if n == last { *semi_token } else { Some(Default::default()) };
                        *statement = Stmt::Expr(call, end);
                    }
                    written
                }
                Stmt::Item(_) => written,
            };
            if let Some(otherwise) = otherwise {
                written = both(written, &otherwise);
            }
        }
        self.leave_scope(scope);
        written
    }

    fn scope(&self) -> Scope {
        (self.ctas.clone(), self.results.iter().map(|(_, names)| names.clone()).collect())
    }

    fn leave_scope(&mut self, (ctas, names): Scope) {
        self.ctas = ctas;
        self.results.iter_mut().zip(names).for_each(|((_, known), names)| *known = names);
    }

    /// The name of an item hides a variable in all of its block.
    fn item(&mut self, item: &Item) {
        let tokens = match item {
            Item::Const(item) => item.ident.to_token_stream(),
            Item::Static(item) => item.ident.to_token_stream(),
            Item::Fn(item) => item.sig.ident.to_token_stream(),
            Item::Struct(item) => item.ident.to_token_stream(),
            Item::Use(item) => item.tree.to_token_stream(),
            _ => return,
        };
        self.hide(&tokens);
    }

    fn hide(&mut self, tokens: &TokenStream) {
        let lists = self.results.iter_mut().map(|(_, names)| names).chain([&mut self.ctas]);
        lists.for_each(|names| names.retain(|name| mentions(tokens.clone(), name) == 0));
    }

    /// The result that an expression is.
    fn result(&self, expression: &Expr) -> Option<usize> {
        let Expr::Path(path) = expression else { return None };
        self.results.iter().position(|(_, names)| names.iter().any(|name| path.path.is_ident(name)))
    }

    /// The names of a pattern are no results any more, but for one that is another name of a result.
    fn bind(&mut self, pattern: &Pat, renamed: Option<usize>) {
        self.hide(&pattern.to_token_stream());
        for (n, (_, names)) in self.results.iter_mut().enumerate() {
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

    /// What comes after a macro, and which results it must return.
    fn called(&mut self, call: &Macro, written: Written) -> (Written, Vec<usize>) {
        let named = |names: &[String]| names.iter().any(|name| mentions(call.tokens.clone(), name) > 0);
        self.unseen = true;
        self.may_return |= written.contains(&false);
        if mentions(call.tokens.clone(), "return") > 0 {
            self.leave(call.span(), &written);
        }
        for (label, left) in &mut self.blocks {
            if names_label(call.tokens.clone(), label) {
                left.iter_mut().zip(&written).for_each(|(left, written)| *left &= *written);
            }
        }
        let of_values = call.path.segments.last().is_some_and(|last| OF_VALUES.iter().any(|known| last.ident == known));
        let handed: Vec<usize> = (0..self.results.len()).filter(|&n| !of_values && !written[n] && named(&self.results[n].1)).collect();
        if !named(&self.ctas) {
            handed.iter().for_each(|&n| self.in_macro[n] = true);
            return (written, Vec::new());
        }
        (self.write(&handed, written), handed)
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

    /// The type of what an argument hands on, as [`Paths::handed`] lists it.
    fn shape(&self, argument: &Expr) -> TokenStream {
        match argument {
            Expr::Path(_) if let Some(result) = self.result(argument) => self.results[result].0.clone(),
            Expr::Tuple(tuple) => {
                let members = tuple.elems.iter().map(|member| self.shape(member));
                quote! { (#(#members,)*) }
            }
            Expr::Paren(inner) => self.shape(&inner.expr),
            Expr::Group(inner) => self.shape(&inner.expr),
            _ => {
                let p = &self.p;
                quote! { #p::access::Other }
            }
        }
    }

    /// The type of these results.
    fn all_of(&self, handed: &[usize]) -> TokenStream {
        let types = handed.iter().map(|&result| &self.results[result].0);
        match handed {
            [_] => quote! { #(#types)* },
            _ => quote! { (#(#types,)*) },
        }
    }

    fn all<'e>(&mut self, expressions: impl IntoIterator<Item = &'e mut Expr>, written: Written) -> Written {
        expressions.into_iter().fold(written, |written, expression| self.expression(expression, written))
    }

    fn expression(&mut self, expression: &mut Expr, written: Written) -> Written {
        let span = expression.span();
        match expression {
            Expr::MethodCall(call) => {
                let of_cta = matches!(&*call.receiver, Expr::Path(path) if self.ctas.iter().any(|cta| path.path.is_ident(cta)));
                let mut handed = Vec::new();
                let mut of = None;
                for argument in &call.args {
                    let before = handed.len();
                    self.handed(argument, &mut handed);
                    if handed.len() > before {
                        // An operation has one argument that it writes, which may be a tuple.
                        of = Some(if before == 0 { self.shape(argument) } else { self.all_of(&handed) });
                    }
                }
                let written = self.expression(&mut call.receiver, written);
                let written = self.all(&mut call.args, written);
                let written = self.write(&handed, written);
                if let (Some(of), true) = (of, !of_cta || self.unseen) {
                    self.ask(expression, of);
                }
                written
            }
            Expr::Call(call) => {
                let mut handed = Vec::new();
                call.args.iter().for_each(|argument| self.handed(argument, &mut handed));
                let of = self.all_of(&handed);
                let written = self.expression(&mut call.func, written);
                let written = self.all(&mut call.args, written);
                let written = self.write(&handed, written);
                if !handed.is_empty() {
                    self.ask(expression, of);
                }
                written
            }
            Expr::If(branch) => {
                let scope = self.scope();
                let written = self.expression(&mut branch.cond, written);
                let then = self.block(&mut branch.then_branch, written.clone());
                self.leave_scope(scope);
                match &mut branch.else_branch {
                    Some((_, otherwise)) => both(self.expression(otherwise, written), &then),
                    None => both(written, &then),
                }
            }
            Expr::Match(choice) => {
                let written = self.expression(&mut choice.expr, written);
                let mut after = vec![true; written.len()];
                for arm in &mut choice.arms {
                    let scope = self.scope();
                    self.bind(&arm.pat, None);
                    // Of a guard.
                    self.returning(&arm.pat.to_token_stream(), &written);
                    after = both(after, &self.expression(&mut arm.body, written.clone()));
                    self.leave_scope(scope);
                }
                after
            }
            Expr::Binary(binary) => {
                let left = self.expression(&mut binary.left, written);
                let right = self.expression(&mut binary.right, left.clone());
                // The right one may not run.
                if matches!(binary.op, BinOp::And(_) | BinOp::Or(_)) { left } else { right }
            }
            Expr::ForLoop(repeated) => {
                let written = self.expression(&mut repeated.expr, written);
                let scope = self.scope();
                self.bind(&repeated.pat, None);
                self.block(&mut repeated.body, written.clone());
                self.leave_scope(scope);
                written
            }
            Expr::While(repeated) => {
                let scope = self.scope();
                let written = self.expression(&mut repeated.cond, written);
                self.block(&mut repeated.body, written.clone());
                self.leave_scope(scope);
                written
            }
            // A `break` may come before what it writes.
            Expr::Loop(repeated) => {
                self.block(&mut repeated.body, written.clone());
                written
            }
            // Behind a loop nothing counts that its body writes.
            Expr::Break(end) => {
                let written = self.all(end.expr.as_deref_mut(), written);
                let label = end.label.as_ref().map(|label| label.ident.to_string());
                if let Some((_, left)) = self.blocks.iter_mut().rev().find(|(block, _)| Some(block) == label.as_ref()) {
                    *left = both(std::mem::take(left), &written);
                }
                vec![true; written.len()]
            }
            Expr::Continue(_) => vec![true; written.len()],
            Expr::Return(end) => {
                let written = self.all(end.expr.as_deref_mut(), written);
                if self.returns {
                    let (p, before) = (&self.p, end.expr.take());
                    let before = before.map(|before| quote! { #before; });
                    end.expr = Some(parse_quote! {{ #before #p::access::WritesItsResults }});
                }
                self.leave(span, &written)
            }
            Expr::Try(inner) => {
                let written = self.expression(&mut inner.expr, written);
                self.leave(span, &written);
                written
            }
            Expr::Block(inner) => {
                let Some(Label { name, .. }) = &inner.label else { return self.block(&mut inner.block, written) };
                self.blocks.push((name.ident.to_string(), vec![true; written.len()]));
                let written = self.block(&mut inner.block, written);
                self.blocks.pop().map_or_else(|| written.clone(), |(_, left)| both(left, &written))
            }
            Expr::Unsafe(inner) => self.block(&mut inner.block, written),
            Expr::Paren(inner) => self.expression(&mut inner.expr, written),
            Expr::Group(inner) => self.expression(&mut inner.expr, written),
            Expr::Reference(inner) => self.expression(&mut inner.expr, written),
            Expr::Unary(inner) => self.expression(&mut inner.expr, written),
            Expr::Cast(inner) => self.expression(&mut inner.expr, written),
            Expr::Field(inner) => self.expression(&mut inner.base, written),
            Expr::Let(inner) => {
                let written = self.expression(&mut inner.expr, written);
                self.bind(&inner.pat, None);
                written
            }
            Expr::Range(inner) => {
                let written = self.all(inner.start.as_deref_mut(), written);
                self.all(inner.end.as_deref_mut(), written)
            }
            Expr::Repeat(inner) => self.expression(&mut inner.expr, written),
            Expr::Struct(inner) => {
                let written = inner.fields.iter_mut().fold(written, |written, field| self.expression(&mut field.expr, written));
                self.all(inner.rest.as_deref_mut(), written)
            }
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
            Expr::Macro(call) => {
                let (written, handed) = self.called(&call.mac, written);
                if !handed.is_empty() {
                    let of = self.all_of(&handed);
                    self.ask(expression, of);
                }
                written
            }
            // Closures run when they are called, if they are.
            Expr::Closure(_) | Expr::Async(_) => written,
            // The rest hold no calls, or are rare in bodies.
            other => {
                self.returning(&other.to_token_stream(), &written);
                written
            }
        }
    }

    /// The path may end somewhere in these tokens.
    fn returning(&mut self, tokens: &TokenStream, written: &Written) {
        if mentions(tokens.clone(), "return") > 0 {
            self.leave(tokens.span(), written);
        }
    }

    /// Asks a call for what it returns of the results that it was handed, of type `of`.
    fn ask(&mut self, call: &mut Expr, of: TokenStream) {
        let (p, span, inner) = (&self.p, call.span(), call.to_token_stream());
        let asked = quote_spanned! { span => #p::access::written_by_helper::<#of, _>(#inner) };
        *call = parse_quote! { #asked };
        self.wrapped = true;
    }
}

/// Whether it may not be there: under a `#[cfg(..)]`.
fn is_conditional(statement: &Stmt) -> bool {
    let mut tokens = statement.to_token_stream().into_iter();
    let mut conditional = false;
    while let (Some(TokenTree::Punct(hash)), Some(TokenTree::Group(attribute))) = (tokens.next(), tokens.next()) {
        let word = attribute.stream().into_iter().next().map(|word| word.to_string());
        conditional |= hash.as_char() == '#' && word.is_some_and(|word| word.starts_with("cfg"));
    }
    conditional
}

/// Whether a label is named in the tokens: to break from its block.
fn names_label(tokens: TokenStream, label: &str) -> bool {
    let mut after_quote = false;
    tokens.into_iter().any(|token| {
        let quoted = std::mem::replace(&mut after_quote, matches!(&token, TokenTree::Punct(quote) if quote.as_char() == '\''));
        match token {
            TokenTree::Ident(word) => quoted && word == label,
            TokenTree::Group(group) => names_label(group.stream(), label),
            TokenTree::Punct(_) | TokenTree::Literal(_) => false,
        }
    })
}
