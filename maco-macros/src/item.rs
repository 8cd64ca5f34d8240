//! The annotated function: signature parsed, body kept as the user's tokens, so that half-typed code still expands.

use maco_graph::spec::Code;
use proc_macro2::{Group, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, ReturnType, Safety, Signature, Visibility};

use crate::errors::Errors;

/// A function item with an unparsed body.
#[derive(Clone)]
pub struct Function {
    pub attributes: Vec<Attribute>,
    pub visibility: Visibility,
    pub signature: Signature,
    pub body: Group,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        Ok(Function {
            attributes: input.call(Attribute::parse_outer)?,
            visibility: input.parse()?,
            signature: input.parse()?,
            body: input.parse()?,
        })
    }
}

impl Function {
    /// Attributes that describe the item: documentation.
    pub fn documentation(&self) -> TokenStream {
        self.attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).map(ToTokens::to_token_stream).collect()
    }

    /// Attributes that decide whether the item exists, needed on everything generated for it.
    pub fn conditions(&self) -> TokenStream {
        self.attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).map(ToTokens::to_token_stream).collect()
    }

    /// Attributes about the body: lint levels.
    pub fn lints(&self) -> TokenStream {
        let levels = ["allow", "warn", "expect", "deny", "forbid", "cfg_attr"];
        let about_body = |attribute: &&Attribute| levels.iter().any(|level| attribute.path().is_ident(level));
        self.attributes.iter().filter(about_body).map(ToTokens::to_token_stream).collect()
    }

    /// What neither a task nor a megakernel can be. Return values, `unsafe` and parameters are checked by each.
    pub fn check(&self, what: &str, errors: &mut Errors) {
        let signature = &self.signature;
        if let Some(token) = &signature.asyncness {
            errors.push(
                Code::Signature,
                token,
                format!("{what} must not be `async`"),
                "remove `async`: what runs at the same time follows from the regions",
            );
        }
        if let Some(token) = &signature.constness {
            errors.push(Code::Signature, token, format!("{what} must not be `const`"), "remove `const`");
        }
        if let Some(token) = &signature.abi {
            errors.push(Code::Signature, token, format!("{what} must not have an ABI"), "remove `extern`");
        }
        if let Safety::Safe(token) = &signature.safety {
            errors.push(Code::Signature, token, format!("{what} must not be marked `safe`"), "remove `safe`");
        }
        if let Some(token) = &signature.variadic {
            errors.push(Code::Signature, token, format!("{what} must not be variadic"), "name every parameter");
        }
        if !signature.generics.params.is_empty() {
            let generics = &signature.generics;
            let help = if what == "a task" {
                "elements are listed in the attribute: `E in [bf16, f16]`; dimensions are bare names in the types"
            } else {
                "name each element; dimensions are bare names in the types"
            };
            errors.push(Code::Signature, generics, format!("{what} must not be generic"), help);
        }
        if let Some(clause) = &signature.generics.where_clause {
            errors.push(Code::Signature, clause, format!("{what} must not have a `where` clause"), "write `where M == N` in the attribute");
        }
    }

    /// Complains about a return type.
    pub fn no_return(&self, what: &str, errors: &mut Errors) {
        if let ReturnType::Type(_, ty) = &self.signature.output {
            errors.push(
                Code::Signature,
                ty,
                format!("{what} must not return a value"),
                "add an output parameter: a tensor that is written",
            );
        }
    }

    /// Complains about `unsafe`.
    pub fn not_unsafe(&self, what: &str, help: &str, errors: &mut Errors) {
        if let Safety::Unsafe(token) = &self.signature.safety {
            errors.push(Code::Signature, token, format!("{what} must not be `unsafe`"), help);
        }
    }
}

/// What is emitted where not even the signature could be parsed: the user's own tokens, for the editor's sake.
pub fn unparsed(item: TokenStream, errors: Errors) -> TokenStream {
    let errors = errors.finish();
    quote! { #errors #item }
}
