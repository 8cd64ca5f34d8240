//! `#[helper(Rows)]`: a function that bodies of tasks call. The macro writes the generics that the user does not see: who runs the body, of which kind it is, the
//! axes and dimensions of each tile and how large the tiles are; and the type that says what the helper has written.

use maco_graph::spec::{Access, Code};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Block, FnArg, GenericParam, Meta, Pat, ReturnType, Stmt, Type, parse_quote};

use super::kind::STATED;
use super::parse::{self, Param, TensorParam};
use super::region::{Index, IndexKind};
use crate::attribute::{Arguments, HELPER};
use crate::errors::Errors;
use crate::item::{Function, unparsed};
use crate::shape::Dimension;
use crate::spans::hidden;

/// Expands `#[helper(attribute)] item`.
pub fn expand(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let arguments = Arguments::parse(attribute, &HELPER, &mut errors);
    let function = match syn::parse2::<Function>(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            errors.parser(Code::Signature, &error, "`#[helper(..)]` goes on a function");
            return unparsed(item, errors);
        }
    };
    let Some(kind) = &arguments.kind else {
        if !errors.any() {
            errors.push(Code::Attribute, &function.signature.ident, "a helper says what operations it has", HELPER.help);
        }
        return unparsed(item, errors);
    };
    if !STATED.iter().any(|(known, _)| kind == known) {
        errors.push(Code::Attribute, kind, format!("`{kind}` is not a kind of body"), HELPER.help);
    }
    super::no_std::check(function.body.stream(), &mut errors);
    super::pure::check(function.body.stream(), &mut errors);
    let mut helper = Helper { kind, p: arguments.private(), hidden: Vec::new(), consts: Vec::new(), results: Vec::new(), result: None };
    let output = helper.emit(&function, &mut errors);
    // A function with mistakes has no types.
    let output = if errors.any() { TokenStream::new() } else { output };
    let errors = errors.finish();
    quote! { #output #errors }
}

struct Helper<'a> {
    kind: &'a Ident,
    p: TokenStream,
    /// Names of axes, dimensions and parameters that are type parameters.
    hidden: Vec<Ident>,
    /// Extents of tiles: axis, elements before and after.
    consts: Vec<(Ident, u32, u32)>,
    /// Which result of the caller's body each written parameter is.
    results: Vec<Ident>,
    /// The axis of the result's columns: of a GEMV, the rows of operand B.
    result: Option<Ident>,
}

impl Helper<'_> {
    fn emit(&mut self, function: &Function, errors: &mut Errors) -> TokenStream {
        let (signature, p, kind) = (&function.signature, self.p.clone(), self.kind);
        if let ReturnType::Type(_, ty) = &signature.output {
            let help = "remove it: what is returned is what the body has written of its `#[write(..)]` parameters";
            errors.push(Code::Signature, ty, "a helper's return type is written by the macro", help);
        }
        let mut inputs = signature.inputs.iter();
        let (cta, borrowed) = match inputs.next() {
            Some(FnArg::Typed(typed)) if let Some(cta) = parse::cta(&typed.ty) => (&*typed.pat, cta.borrowed),
            _ => {
                errors.push(Code::Signature, &signature.ident, "the first parameter of a helper is its CTA", "write `cta: &mut Cta` first");
                return TokenStream::new();
            }
        };
        let mut params = Vec::new();
        let mut tensors = Vec::new();
        for input in inputs {
            let FnArg::Typed(typed) = input else { continue };
            if typed.attrs.is_empty() {
                let mut typed = typed.clone();
                if let Type::ImplTrait(ty) = &mut *typed.ty {
                    super::pure::functions(&mut ty.bounds, &p);
                }
                params.push((None, typed.to_token_stream()));
                continue;
            }
            // `#[written(..)]` is read as `#[read(..)]` is.
            let mut typed = typed.clone();
            let written = typed.attrs.iter_mut().any(of_written);
            match parse::param(&typed) {
                Ok(Param::Tensor(tensor)) => {
                    tensors.push((*tensor, written));
                    params.push((Some(tensors.len() - 1), TokenStream::new()));
                }
                Ok(Param::Scalar { .. }) => params.push((None, typed.to_token_stream())),
                Err(error) => errors.extend(&error),
            }
        }
        let result = tensors.iter().find(|(tensor, _)| tensor.access.writes()).and_then(|(tensor, _)| tensor.region.last());
        self.result = result.and_then(Index::name).cloned();
        let types: Vec<[TokenStream; 2]> = tensors.iter().map(|(tensor, written)| self.tile(tensor, *written, errors)).collect();
        let mut taken = TokenStream::new();
        let inputs = params.iter().map(|(n, other)| match n {
            Some(n) => {
                let (Pat::Ident(pattern), [ty, _]) = (&tensors[*n].0.pattern, &types[*n]) else { return other.clone() };
                let name = &pattern.ident;
                // Not the tile itself: of what does not fit, rustc then says which part.
                taken.extend(quote! { let #pattern = #p::given::Given::<#ty>::given(#name); });
                quote! { #name: impl #p::given::Given<#ty> }
            }
            None => other.clone(),
        });
        let inputs: Vec<TokenStream> = inputs.collect();
        let returned: Vec<&TokenStream> =
            tensors.iter().zip(&types).filter(|((tensor, _), _)| tensor.access == Access::Write).map(|(_, [_, after])| after).collect();
        let cta_name = match cta {
            Pat::Ident(pattern) => Some(pattern.ident.to_string()),
            _ => None,
        };
        let mut user = super::pure::body(&function.body, signature, cta_name.as_deref(), &p).to_token_stream();
        let output = match returned.as_slice() {
            [] => None,
            [one] => Some((*one).clone()),
            all => Some(quote! { (#(#all),*) }),
        };
        let body = match &output {
            None => quote! { let _ = #user; },
            Some(output) => {
                // What syn does not know, rustc may.
                if let Ok(mut block) = syn::parse2::<Block>(user.clone())
                    && let Some(Stmt::Expr(last, None)) = block.stmts.last_mut()
                {
                    let span = last.span();
                    let asked = quote_spanned! { span => #p::access::returned_by_helper::<#output, _>(#last) };
                    *last = parse_quote! { #asked };
                    user = block.into_token_stream();
                }
                quote! { #user }
            }
        };
        let output = output.map(|output| quote! { -> #output });
        let [r, t] = ["role", "epilogue"].map(hidden_type);
        // It stands in messages.
        let k = format_ident!("__HelperOf{kind}", span = Span::mixed_site());
        let (count, lent) = match borrowed {
            true => (quote! { Several }, quote! { &mut }),
            false => (quote! { Single }, TokenStream::new()),
        };
        let own = signature.generics.params.iter();
        let (lifetimes, mut others): (Vec<_>, Vec<_>) = own.cloned().partition(|param| matches!(param, GenericParam::Lifetime(_)));
        for other in &mut others {
            if let GenericParam::Type(other) = other {
                super::pure::functions(&mut other.bounds, &p);
            }
        }
        let (names, results, clause) = (&self.hidden, &self.results, &signature.generics.where_clause);
        let consts = self.consts.iter().map(const_name);
        let (attributes, visibility, name) = (&function.attributes, &function.visibility, &signature.ident);
        quote! {
            #(#attributes)*
            #[inline(always)]
            #[allow(non_camel_case_types, clippy::too_many_arguments, clippy::type_complexity, clippy::extra_unused_type_parameters)]
            #visibility fn #name <
                #(#lifetimes,)*
                #(#others,)*
                #k: #p::kind::Has<#p::kind::#kind> + #p::kind::#count, #r: #p::Role, #t: #p::Epilogue,
                #(#names: 'static,)*
                #(const #consts: usize,)*
                #(const #results: usize,)*
            >(#cta: #lent #p::Cta<'_, #k, #r, #t>, #(#inputs),*) #output #clause {
                #[allow(unused_imports)]
                use #p::{Channels as _, Collectives as _, Operations as _};
                #taken
                #body
            }
        }
    }

    /// The type of a parameter, and of what the helper returns of it.
    fn tile(&mut self, tensor: &TensorParam, written: bool, errors: &mut Errors) -> [TokenStream; 2] {
        let (p, element) = (self.p.clone(), &tensor.element);
        let mut last = tensor.region.iter().zip(&tensor.dims).rev();
        let [column, row] = [last.next(), last.next()].map(|index| self.index(index, errors));
        let (row_type, row_extent) = row;
        let (column_type, column_extent) = column;
        let is_operand_b = self.kind == "Gemv"
            && matches!(tensor.region.as_slice(), [.., row, last] if row.name().is_some() && row.name() == self.result.as_ref() && matches!(last.kind, IndexKind::All));
        let which = hidden(&format!("RESULT_{}", tensor.name.unraw()));
        if written || tensor.access == Access::Write {
            self.results.push(which.clone());
        }
        let before = match tensor.access {
            Access::Read if written => quote! { #p::access::Written<#p::access::Write<#which>> },
            Access::Read if is_operand_b => quote! { #p::access::Streamed },
            Access::Read => quote! { #p::access::Read },
            Access::Write => quote! { #p::access::Write<#which> },
            Access::Update | Access::Reduce => quote! { #p::access::Update },
        };
        let after = match self.kind == "Gemm" || self.kind == "Gemv" {
            true => quote! { #p::access::Stored<#p::access::Write<#which>> },
            false => quote! { #p::access::Written<#p::access::Write<#which>> },
        };
        [before, after].map(|access| {
            quote! { #p::access::TaskTile<#element, (#row_type, #column_type), #access, #row_extent, #column_extent> }
        })
    }

    /// The type of an index and the extent of the tile along it; of a tensor of one dimension there are no rows.
    fn index(&mut self, index: Option<(&Index, &Dimension)>, errors: &mut Errors) -> (TokenStream, TokenStream) {
        let p = self.p.clone();
        let Some((index, dimension)) = index else { return (quote! { #p::region::One }, quote! { 1 }) };
        let dimension = match dimension {
            Dimension::Name(name) => {
                self.hide(name);
                name.to_token_stream()
            }
            Dimension::Number(number) => quote! { #p::region::Size<{ #number as u64 }> },
            Dimension::Expression(expression) => {
                let help = "give it a name of its own: a helper takes tiles of any dimensions that agree where its parameters do";
                errors.push(Code::Signature, expression, "a dimension of a helper is a name or a number", help);
                return (quote! { #p::region::One }, quote! { 1 });
            }
        };
        match &index.kind {
            IndexKind::All => (quote! { #p::region::Whole<#dimension> }, quote! { 0 }),
            IndexKind::Tile(axis) => {
                self.hide(axis);
                (quote! { #p::region::At<#axis, #dimension> }, self.extent(axis, 0, 0))
            }
            IndexKind::Over(axis, group) => {
                self.hide(axis);
                let group = quote! { { #p::spec::group((#group) as u64) as u64 } };
                (quote! { #p::region::Over<#axis, #dimension, #group> }, self.extent(axis, 0, 0))
            }
            IndexKind::Halo(axis, before, after) => {
                self.hide(axis);
                (quote! { #p::region::Halo<#axis, #dimension, #before, #after> }, self.extent(axis, *before, *after))
            }
            IndexKind::Data(by) => {
                by.iter().for_each(|by| self.hide(by));
                (quote! { #p::region::Data<(#(#by,)*), #dimension> }, quote! { 0 })
            }
        }
    }

    fn hide(&mut self, name: &Ident) {
        if !self.hidden.contains(name) {
            self.hidden.push(name.clone());
        }
    }

    fn extent(&mut self, axis: &Ident, before: u32, after: u32) -> TokenStream {
        let extent = (axis.clone(), before, after);
        let name = const_name(&extent);
        if !self.consts.contains(&extent) {
            self.consts.push(extent);
        }
        name.to_token_stream()
    }
}

/// Makes `#[written(..)]` a `#[read(..)]`; whether it was one.
fn of_written(attribute: &mut Attribute) -> bool {
    let Meta::List(list) = &mut attribute.meta else { return false };
    let written = list.path.is_ident("written");
    if written {
        list.path = Ident::new("read", Span::call_site()).into();
    }
    written
}

fn const_name((axis, before, after): &(Ident, u32, u32)) -> Ident {
    let axis = axis.to_string();
    hidden(&format!("TILE_{}_{before}_{after}", axis.trim_start_matches("r#")))
}

fn hidden_type(name: &str) -> Ident {
    format_ident!("__{}", name.to_uppercase(), span = Span::mixed_site())
}
