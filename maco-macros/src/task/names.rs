//! The names of a task's axes, dimensions and indices as types, so that rustc can tell tiles apart by their region.
//!
//! Each name is an enum, out of the body's sight: it cannot hide a type of the user's. The body's signature gets to it through the task's own type.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{BinOp, Expr};

use super::parse::{Task, TensorParam};
use super::region::{Index, IndexKind};
use crate::shape::{Dimension, Symbols};

/// What a name stands for: an axis and a dimension may have the same one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Axis,
    Dimension,
    Data,
}

pub struct Names {
    /// What they stand for, the text that makes them equal, and the enum.
    list: Vec<(Of, String, Ident)>,
    /// For each symbol the first of those that are equal by `where`.
    roots: Vec<usize>,
    /// What the enums' block refers to by name, and they must not hide: the task and the path of the crate.
    taken: Vec<Ident>,
}

impl Names {
    pub fn of(task: &Task<'_>, symbols: &Symbols, equal: &[(u8, u8)]) -> Names {
        let mut roots: Vec<usize> = (0..symbols.names.len()).collect();
        for &(left, right) in equal {
            let (left, right) = (roots[usize::from(left)], roots[usize::from(right)]);
            roots.iter_mut().filter(|root| **root == left.max(right)).for_each(|root| *root = left.min(right));
        }
        let path =
            task.arguments.private().into_iter().filter_map(|token| if let TokenTree::Ident(word) = token { Some(word) } else { None });
        let taken = path.chain([task.function.signature.ident.clone()]).collect();
        let mut names = Names { list: Vec::new(), roots, taken };
        for tensor in task.tensors() {
            for (index, dimension) in tensor.region.iter().zip(&tensor.dims) {
                names.index(index);
                names.dimension(dimension, symbols);
            }
        }
        names
    }

    fn index(&mut self, index: &Index) {
        match &index.kind {
            IndexKind::Data(by) => by.iter().for_each(|by| self.add(Of::Data, by.unraw().to_string(), by.clone())),
            _ => index.name().into_iter().for_each(|name| self.add(Of::Axis, name.unraw().to_string(), name.clone())),
        }
    }

    fn dimension(&mut self, dimension: &Dimension, symbols: &Symbols) {
        match dimension {
            Dimension::Expression(expression) if symbols.mentioned(expression) => {
                let text = self.text(expression, symbols);
                let words: Vec<&str> = text.split(' ').map(spelled).filter(|word| !word.is_empty()).collect();
                let name = format_ident!("_{}", words.join("_"));
                self.add(Of::Dimension, text, name);
            }
            Dimension::Name(name) => {
                let Some(symbol) = symbols.index(name) else { return };
                let root = symbols.names[self.roots[symbol]].clone();
                self.add(Of::Dimension, root.unraw().to_string(), root);
            }
            Dimension::Number(_) | Dimension::Expression(_) => {}
        }
    }

    /// Sums and products in one order: `{2 * H}` is `{H * 2}`.
    fn text(&self, expression: &Expr, symbols: &Symbols) -> String {
        match expression {
            Expr::Paren(inner) => self.text(&inner.expr, symbols),
            Expr::Group(inner) => self.text(&inner.expr, symbols),
            Expr::Path(path) => match path.path.get_ident().and_then(|name| symbols.index(name)) {
                Some(symbol) => symbols.names[self.roots[symbol]].unraw().to_string(),
                None => quote! { #path }.to_string(),
            },
            Expr::Binary(binary) => {
                let mut sides = [self.text(&binary.left, symbols), self.text(&binary.right, symbols)];
                let operator = &binary.op;
                if matches!(operator, BinOp::Add(_) | BinOp::Mul(_)) {
                    sides.sort();
                }
                let [left, right] = sides;
                format!("( {left} {} {right} )", quote! { #operator })
            }
            other => quote! { #other }.to_string(),
        }
    }

    fn add(&mut self, of: Of, text: String, mut name: Ident) {
        if self.find(of, &text).is_some() {
            return;
        }
        name.set_span(Span::call_site());
        while self.list.iter().map(|(_, _, known)| known).chain(&self.taken).any(|known| known.unraw() == name.unraw()) {
            name = format_ident!("{}_", name);
        }
        self.list.push((of, text, name));
    }

    fn find(&self, of: Of, text: &str) -> Option<usize> {
        self.list.iter().position(|(known, name, _)| *known == of && name == text)
    }

    /// The enums, and the task's own type as the way to them.
    pub fn items(&self, task: &Task<'_>, p: &TokenStream) -> TokenStream {
        let (name, conditions) = (&task.function.signature.ident, task.function.conditions());
        let items = self.list.iter().enumerate().map(|(n, (_, _, item))| {
            quote! {
                #[allow(non_camel_case_types)]
                pub enum #item {}
                impl #p::region::Name<#n> for #name {
                    type Type = #item;
                }
            }
        });
        quote! {
            #conditions
            #[automatically_derived]
            const _: () = { #(#items)* };
        }
    }

    /// The region of a tensor's tile: the indices of its rows and of its columns.
    pub fn region(&self, task: &Task<'_>, symbols: &Symbols, tensor: &TensorParam, p: &TokenStream) -> TokenStream {
        let mut last = tensor.region.iter().zip(&tensor.dims).rev();
        let column = last.next();
        let one = || quote! { #p::region::One };
        let index = |index: Option<(&Index, &Dimension)>| {
            let Some((index, dimension)) = index else { return one() };
            let dimension = self.dimension_type(task, symbols, dimension, p);
            let of = |of, text: &Ident| self.name(task, of, &text.unraw().to_string(), p);
            match &index.kind {
                IndexKind::All => quote! { #p::region::Whole<#dimension> },
                IndexKind::Tile(axis) => {
                    let axis = of(Of::Axis, axis);
                    quote! { #p::region::At<#axis, #dimension> }
                }
                IndexKind::Over(axis, group) => {
                    let axis = of(Of::Axis, axis);
                    quote! { #p::region::Over<#axis, #dimension, { #p::spec::group((#group) as u64) as u64 }> }
                }
                IndexKind::Halo(axis, before, after) => {
                    let axis = of(Of::Axis, axis);
                    quote! { #p::region::Halo<#axis, #dimension, #before, #after> }
                }
                IndexKind::Data(by) => {
                    let by = by.iter().map(|by| of(Of::Data, by));
                    quote! { #p::region::Data<(#(#by,)*), #dimension> }
                }
            }
        };
        let column = index(column);
        let row = index(last.next());
        quote! { (#row, #column) }
    }

    fn dimension_type(&self, task: &Task<'_>, symbols: &Symbols, dimension: &Dimension, p: &TokenStream) -> TokenStream {
        match dimension {
            Dimension::Number(number) => quote! { #p::region::Size<{ #number as u64 }> },
            Dimension::Expression(expression) if symbols.mentioned(expression) => {
                self.name(task, Of::Dimension, &self.text(expression, symbols), p)
            }
            Dimension::Expression(expression) => quote! { #p::region::Size<{ (#expression) as u64 }> },
            Dimension::Name(name) => {
                let root = symbols.index(name).map_or(name, |symbol| &symbols.names[self.roots[symbol]]);
                self.name(task, Of::Dimension, &root.unraw().to_string(), p)
            }
        }
    }

    fn name(&self, task: &Task<'_>, of: Of, text: &str, p: &TokenStream) -> TokenStream {
        let (name, n) = (&task.function.signature.ident, self.find(of, text).unwrap_or(usize::MAX));
        quote! { <#name as #p::region::Name<#n>>::Type }
    }
}

/// How a token of an expression is spelled in a name.
fn spelled(token: &str) -> &str {
    match token {
        "+" => "plus",
        "-" => "minus",
        "*" => "times",
        "/" => "over",
        "(" | ")" => "",
        word if word.chars().all(|letter| letter.is_alphanumeric() || letter == '_') => word,
        _ => "x",
    }
}
