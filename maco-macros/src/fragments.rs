//! Tokens without the invisible groups in which `macro_rules!` passes its fragments on: `$t:ty`, `$b:block`, `$e:expr`.
//!
//! The one place that knows of them: nothing behind it meets `Delimiter::None`.

use proc_macro2::{Delimiter, Group, Punct, Spacing, TokenStream, TokenTree};
use syn::{Expr, UnOp};

/// The same tokens with no invisible group. What binds weaker than its surroundings might, such as the `a + b` of `$e * 2`, gets parentheses.
pub fn visible(tokens: TokenStream) -> TokenStream {
    if !has_invisible(&tokens) {
        return tokens;
    }
    let mut visible = TokenStream::new();
    let mut rest = tokens.into_iter().peekable();
    while let Some(next) = rest.next() {
        let ends = rest.peek().is_some_and(|after| matches!(after, TokenTree::Punct(end) if end.as_char() == ';'));
        let whole = !ends && is_let(&next);
        visible.extend(tree(next));
        // The semicolon is not part of a `$s:stmt`.
        visible.extend(whole.then(|| Punct::new(';', Spacing::Alone)).map(TokenTree::Punct));
    }
    visible
}

/// Whether this is a `$s:stmt` that binds a variable.
fn is_let(tree: &TokenTree) -> bool {
    let TokenTree::Group(group) = tree else { return false };
    group.delimiter() == Delimiter::None && matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(word)) if word == "let")
}

fn tree(tree: TokenTree) -> TokenStream {
    let TokenTree::Group(group) = tree else { return tree.into() };
    if group.delimiter() != Delimiter::None && !has_invisible(&group.stream()) {
        // With both its spans, which a new one has not.
        return TokenTree::Group(group).into();
    }
    let inner = visible(group.stream());
    let delimiter = match group.delimiter() {
        Delimiter::None if binds_weakly(&inner) => Delimiter::Parenthesis,
        Delimiter::None => return inner,
        delimiter => delimiter,
    };
    let mut visible = Group::new(delimiter, inner);
    visible.set_span(group.span());
    TokenTree::Group(visible).into()
}

fn has_invisible(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::None || has_invisible(&group.stream()),
        _ => false,
    })
}

/// Whether these tokens are an expression whose parts neighbours could take: not a name, a call, a literal or a block.
fn binds_weakly(tokens: &TokenStream) -> bool {
    match syn::parse2::<Expr>(tokens.clone()) {
        // `-1` is a literal wherever one may stand.
        Ok(Expr::Unary(unary)) => !matches!((&unary.op, &*unary.expr), (UnOp::Neg(_), Expr::Lit(_))),
        Ok(Expr::Binary(_) | Expr::Cast(_) | Expr::Closure(_) | Expr::Range(_)) => true,
        // Types and patterns too: `&mut Cta` is one, and no body refers to what it names.
        Ok(_) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invisible(text: &str) -> TokenTree {
        TokenTree::Group(Group::new(Delimiter::None, text.parse().unwrap()))
    }

    fn seen(before: &str, fragment: &str, after: &str) -> String {
        let [before, after]: [TokenStream; 2] = [before, after].map(|text| text.parse().unwrap());
        let inner: TokenStream = before.into_iter().chain([invisible(fragment)]).chain(after).collect();
        visible(TokenTree::Group(Group::new(Delimiter::Brace, inner)).into()).to_string()
    }

    #[test]
    fn types_blocks_and_names_lose_their_group() {
        for (fragment, text) in [
            ("bf16", "bf16"),
            ("&mut Cta", "& mut Cta"),
            ("Tensor<E, M, {2 * N}>", "Tensor < E , M , { 2 * N } >"),
            ("{ cta.map(x, f) }", "{ cta . map (x , f) }"),
            ("-1", "- 1"),
            ("mut h", "mut h"),
            ("a::b", "a :: b"),
            ("task(x, y)", "task (x , y)"),
            ("let h = x", "let h = x;"),
            ("", ""),
        ] {
            assert_eq!(
                seen("a", fragment, "b").split_whitespace().collect::<String>(),
                format!("{{a{text}b}}").split_whitespace().collect::<String>()
            );
        }
    }

    #[test]
    fn operators_keep_their_operands() {
        for fragment in ["a + b", "a as u32", "0 .. 4", "|v| v + 1.0", "!a"] {
            let text = seen("2 *", fragment, "").split_whitespace().collect::<String>();
            assert_eq!(text, format!("{{2*({fragment})}}").split_whitespace().collect::<String>());
        }
    }

    #[test]
    fn groups_in_groups_are_found() {
        let inner: TokenStream = [TokenTree::Group(Group::new(Delimiter::None, invisible("bf16").into()))].into_iter().collect();
        assert_eq!(visible(inner).to_string(), "bf16");
    }
}
