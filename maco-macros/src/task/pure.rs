//! What a body may hold: nothing that can change behind its outline. All roles run the outline, and one of them its closures, so a value that a closure leaves behind
//! somewhere is seen by that role alone.
//!
//! - Closures of operations become `move`: what they capture is copied, and rustc checks that it can be (`Pure` of `maco-device`).
//! - Names of constants and statics are checked by the same trait, in code that never runs.
//! - Cells, atomics and statics in the text of a body are reported at their names.

use std::collections::HashSet;

use maco_graph::spec::Code;
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Block, Expr, ExprConst, ExprPath, FnArg, GenericArgument, Item, Macro, Pat, Signature, Stmt, Token, Type, TypeParamBound, UnOp,
    parse_quote,
};

use crate::errors::Errors;

/// Types of `core` and `std` that change through a shared reference; atomics are all that begin so.
const CHANGING: [&str; 11] =
    ["Cell", "RefCell", "OnceCell", "LazyCell", "UnsafeCell", "SyncUnsafeCell", "Mutex", "RwLock", "OnceLock", "LazyLock", "Condvar"];

/// `core`'s atomics behind `Atomic`: nothing else has such a name.
const ATOMICS: [&str; 12] = ["Bool", "I8", "I16", "I32", "I64", "Isize", "Ptr", "U8", "U16", "U32", "U64", "Usize"];

const HELP: &str = "what a number depends on is a constant or a scalar of the task; values go from one operation to the next in tiles";

/// Reports what can change in the text of a body.
pub fn check(body: TokenStream, errors: &mut Errors) {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let is = |at: usize, letter: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == letter);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => check(group.stream(), errors),
            TokenTree::Ident(name) => {
                let text = name.to_string();
                let lifetime = at > 0 && is(at - 1, '\'');
                let named = matches!(tokens.get(at + 1), Some(TokenTree::Ident(_)));
                // `Cell::new`, `Cell<u32>`; a variable or a method may have the name.
                let typed = is(at + 1, '<') || (is(at + 1, ':') && is(at + 2, ':'));
                let atomic = text.strip_prefix("Atomic").is_some_and(|of| ATOMICS.contains(&of));
                let changing = CHANGING.contains(&text.as_str()) || (text.starts_with("Atomic") && text.len() > "Atomic".len());
                // Of `static SEEN: AtomicU32` the static is reported.
                let of_static = at > 2 && is(at - 1, ':') && matches!(&tokens[at - 3], TokenTree::Ident(word) if word == "static");
                // `use ..::AtomicU32 as Count;`, `let count: AtomicU32`
                let typed = typed || (atomic && !of_static);
                if text == "static" && named && !lifetime {
                    errors.push(
                        Code::Changing,
                        name,
                        "a body has no statics",
                        "write `const`; values go from one operation to the next in tiles",
                    );
                } else if changing && typed {
                    let message = format!("a body holds nothing that can change: `{text}` is seen by some of its threads only");
                    errors.push(Code::Changing, name, message, HELP);
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The body whose closures copy what they capture, and in which rustc checks what it names. `cta`: the name of that parameter.
pub fn body(body: &Group, signature: &Signature, cta: Option<&str>, p: &TokenStream) -> Group {
    let mut copied = Group::new(body.delimiter(), cta.map_or_else(|| body.stream(), |cta| moved(body.stream(), cta)));
    copied.set_span(body.span());
    // What syn does not know, rustc may.
    let Ok(mut block) = syn::parse2::<Block>(copied.to_token_stream()) else { return copied };
    let mut bound = Bound::default();
    for input in &signature.inputs {
        if let FnArg::Typed(typed) = input {
            bound.visit_pat_mut(&mut typed.pat.clone());
        }
    }
    bound.visit_block_mut(&mut block.clone());
    let mut named = Named { bound, blocks: Vec::new(), found: false, p };
    named.visit_block_mut(&mut block);
    if !named.found {
        return copied;
    }
    match block.to_token_stream().into_iter().next() {
        Some(TokenTree::Group(group)) => group,
        _ => copied,
    }
}

/// Bounds of a helper's parameter: a function that its operations may call holds nothing that can change.
pub fn functions(bounds: &mut Punctuated<TypeParamBound, Token![+]>, p: &TokenStream) {
    let is_function = |bound: &TypeParamBound| match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last().is_some_and(|last| last.ident == "Fn"),
        _ => false,
    };
    if bounds.iter().any(is_function) {
        bounds.push(parse_quote! { #p::pure::Pure });
    }
}

/// Makes closures `move` that are arguments of `cta.operation(..)`.
fn moved(tokens: TokenStream, cta: &str) -> TokenStream {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut arguments = None;
    for at in 0..tokens.len() {
        if let [TokenTree::Ident(name), TokenTree::Punct(dot), TokenTree::Ident(_), ..] = &tokens[at..]
            && *name == cta
            && dot.as_char() == '.'
        {
            arguments = arguments.or(Some(Vec::new())).map(|mut list| {
                list.extend(call(&tokens, at + 3));
                list
            });
        }
    }
    let arguments = arguments.unwrap_or_default();
    let each = tokens.into_iter().enumerate().map(|(at, token)| match token {
        TokenTree::Group(group) => {
            let inner = moved(group.stream(), cta);
            let inner = if arguments.contains(&at) { closures(inner) } else { inner };
            let mut copied = Group::new(group.delimiter(), inner);
            copied.set_span(group.span());
            TokenTree::Group(copied)
        }
        other => other,
    });
    each.collect()
}

/// Where the arguments of a call are whose method ends before `at`: behind `::<..>`, if that is there.
fn call(tokens: &[TokenTree], mut at: usize) -> Option<usize> {
    let mut depth = 0;
    loop {
        match tokens.get(at)? {
            TokenTree::Group(group) if depth == 0 => return (group.delimiter() == Delimiter::Parenthesis).then_some(at),
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' => depth -= 1,
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            _ if depth > 0 => {}
            _ => return None,
        }
        at += 1;
    }
}

/// Arguments, of which those that are closures are `move`.
fn closures(arguments: TokenStream) -> TokenStream {
    let mut first = true;
    let mut out = Vec::new();
    // Behind the parameters of a closure a comma ends it; between them it does not, and a `|` there begins no other.
    let mut parameters = false;
    for token in arguments {
        let bar = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '|');
        if bar && first {
            out.push(TokenTree::Ident(Ident::new("move", token.span())));
            parameters = true;
        } else if bar && parameters {
            parameters = false;
        }
        first = !parameters && matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ',');
        out.push(token);
    }
    out.into_iter().collect()
}

/// Names that patterns of a body bind.
#[derive(Default)]
struct Bound {
    names: HashSet<String>,
    /// A macro may bind others.
    macros: bool,
}

impl VisitMut for Bound {
    fn visit_pat_mut(&mut self, pattern: &mut Pat) {
        if let Pat::Ident(pattern) = pattern {
            self.names.insert(pattern.ident.to_string());
        }
        visit_mut::visit_pat_mut(self, pattern);
    }

    fn visit_stmt_mut(&mut self, statement: &mut Stmt) {
        self.macros |= matches!(statement, Stmt::Macro(_));
        visit_mut::visit_stmt_mut(self, statement);
    }

    fn visit_type_mut(&mut self, _: &mut Type) {}
}

/// Finds what a body names, and adds to each block a closure that rustc checks and nobody calls.
struct Named<'a> {
    bound: Bound,
    /// The blocks around, with what is named there.
    blocks: Vec<Vec<ExprPath>>,
    found: bool,
    p: &'a TokenStream,
}

impl Named<'_> {
    /// An expression that is used where it lies: what is handed on by value is copied, or rustc says that a static cannot be moved.
    fn in_place(&mut self, expression: &Expr) {
        let path = match expression {
            Expr::Path(path) if path.qself.is_some() || !self.is_local(path) => path,
            Expr::Paren(inner) => return self.in_place(&inner.expr),
            Expr::Group(inner) => return self.in_place(&inner.expr),
            _ => return,
        };
        if let Some(names) = self.blocks.last_mut() {
            names.push(path.clone());
        }
    }

    fn is_local(&self, path: &ExprPath) -> bool {
        let Some(name) = path.path.get_ident().map(Ident::to_string) else { return false };
        let by_macro = self.bound.macros && name.chars().any(char::is_lowercase);
        self.bound.names.contains(&name) || by_macro || ["None", "self"].contains(&name.as_str())
    }
}

impl VisitMut for Named<'_> {
    fn visit_block_mut(&mut self, block: &mut Block) {
        self.blocks.push(Vec::new());
        visit_mut::visit_block_mut(self, block);
        let names = self.blocks.pop().unwrap_or_default();
        if names.is_empty() {
            return;
        }
        self.found = true;
        let p = self.p;
        let checks: TokenStream = names.iter().map(|name| quote! { #p::pure::named(#name); }).collect();
        block.stmts.insert(0, parse_quote! { let _ = || { #checks }; });
    }

    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        match expression {
            // Its author's promise.
            Expr::Unsafe(_) => return,
            Expr::MethodCall(call) => self.in_place(&call.receiver),
            Expr::Field(field) => self.in_place(&field.base),
            Expr::Index(index) => self.in_place(&index.expr),
            Expr::Reference(reference) => self.in_place(&reference.expr),
            Expr::Binary(binary) => {
                self.in_place(&binary.left);
                self.in_place(&binary.right);
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Deref(_)) => self.in_place(&unary.expr),
            Expr::Match(choice) => self.in_place(&choice.expr),
            Expr::Let(choice) => self.in_place(&choice.expr),
            _ => {}
        }
        visit_mut::visit_expr_mut(self, expression);
    }

    fn visit_stmt_mut(&mut self, statement: &mut Stmt) {
        // Such as `let ref name = STATIC;`.
        if let Stmt::Local(local) = statement
            && let Some(init) = &local.init
            && !matches!(local.pat, Pat::Ident(ref pattern) if pattern.by_ref.is_none())
        {
            self.in_place(&init.expr);
        }
        visit_mut::visit_stmt_mut(self, statement);
    }

    /// What a macro is given, as far as it is expressions.
    fn visit_macro_mut(&mut self, call: &mut Macro) {
        let Ok(arguments) = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(call.tokens.clone()) else { return };
        for mut argument in arguments {
            self.in_place(&argument);
            // Blocks in it are not this one's to change: what is named there counts to the block around the macro.
            Inner(self).visit_expr_mut(&mut argument);
        }
    }

    fn visit_item_mut(&mut self, item: &mut Item) {
        if let Item::Fn(function) = item {
            self.visit_block_mut(&mut function.block);
        }
    }

    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_generic_argument_mut(&mut self, _: &mut GenericArgument) {}
    fn visit_expr_const_mut(&mut self, _: &mut ExprConst) {}
    fn visit_pat_mut(&mut self, _: &mut Pat) {}
}

/// Only looks.
struct Inner<'a, 'b>(&'a mut Named<'b>);

impl VisitMut for Inner<'_, '_> {
    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        match expression {
            Expr::MethodCall(call) => self.0.in_place(&call.receiver),
            Expr::Field(field) => self.0.in_place(&field.base),
            Expr::Index(index) => self.0.in_place(&index.expr),
            Expr::Reference(reference) => self.0.in_place(&reference.expr),
            _ => {}
        }
        visit_mut::visit_expr_mut(self, expression);
    }

    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_item_mut(&mut self, _: &mut Item) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: &str) -> String {
        let function: syn::ItemFn = syn::parse_str(&format!("fn t(cta: u32, x: u32, by: f32) {{ {body} }}")).unwrap();
        let Some(TokenTree::Group(group)) = function.block.to_token_stream().into_iter().next() else { panic!() };
        let quoted: TokenStream = quote! { p };
        super::body(&group, &function.sig, Some("cta"), &quoted).stream().to_string()
    }

    fn same(body: &str, other: &str) {
        let words = |text: &str| text.replace(' ', "");
        assert_eq!(words(&text(body)), words(other));
    }

    #[test]
    fn closures_of_operations_are_moved() {
        same("cta.zip(x, y, |v| v * by)", "cta.zip(x, y, move |v| v * by)");
        same("cta.zip::<A, (B, C)>(x, y, |v| v)", "cta.zip::<A, (B, C)>(x, y, move |v| v)");
        same("cta.columns(x, y, 0.0, |v| v, |a, b| a | b, f)", "cta.columns(x, y, 0.0, move |v| v, move |a, b| a | b, f)");
        same("cta.rows(x, y, move |x, y| y.zip(x, |v| v))", "cta.rows(x, y, move |x, y| y.zip(x, |v| v))");
        same("if by > 0.0 { cta.go(|| 0) }", "if by > 0.0 { cta.go(move || 0) }");
        same("x.sum(|v| v)", "x.sum(|v| v)");
    }

    #[test]
    fn what_is_used_in_place_is_checked() {
        same("cta.zip(x, y, |v| v + A)", "let _ = || { p::pure::named(A); }; cta.zip(x, y, move |v| v + A)");
        same(
            "if m::SEEN.load(by) { f(&B, C) }",
            "let _ = || { p::pure::named(m::SEEN); }; if m::SEEN.load(by) { let _ = || { p::pure::named(B); }; f(&B, C) }",
        );
        same("let w = 1; w + x.cols() + None.a()", "let w = 1; w + x.cols() + None.a()");
        same("unsafe { SEEN.load() }", "unsafe { SEEN.load() }");
        same("assert!(SEEN.load() > 1)", "let _ = || { p::pure::named(SEEN); }; assert!(SEEN.load() > 1)");
    }

    #[test]
    fn what_can_change_is_reported_at_its_name() {
        let reports = |body: &str| {
            let mut errors = Errors::new();
            check(body.parse().unwrap(), &mut errors);
            let any = errors.any();
            let _ = errors.finish();
            any
        };
        for body in [
            "let c = Cell::new(0);",
            "let a: AtomicU32 = f();",
            "use core::sync::atomic::AtomicU32 as A;",
            "use core::sync::atomic::{Ordering, AtomicBool};",
            "static S: u32 = 0;",
            "{ core::cell::RefCell::<u32>::new(0) }",
        ] {
            assert!(reports(body), "{body}");
        }
        assert!(!reports("let s: &'static str = f; let cell = x.cell(Cell); Cells::new()"));
    }
}
