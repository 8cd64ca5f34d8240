//! Mistakes of one item, collected so that all are reported at once.
//!
//! What is a mistake does not belong here.

use maco_graph::spec::Code;
use proc_macro2::TokenStream;
use quote::ToTokens;

/// The mistakes so far. It must be asked for them: dropping it unasked is a bug of the macro.
pub struct Errors {
    all: Vec<syn::Error>,
    asked: bool,
}

impl Errors {
    pub fn new() -> Errors {
        Errors { all: Vec::new(), asked: false }
    }

    /// Adds a mistake at exactly these tokens.
    pub fn push(&mut self, code: Code, tokens: impl ToTokens, message: impl AsRef<str>, help: impl AsRef<str>) {
        self.all.push(error(code, tokens, message, help));
    }

    /// Adds what a parser found: its own span, our code.
    pub fn parser(&mut self, code: Code, error: &syn::Error, help: &str) {
        for error in error.clone() {
            let message = error.to_string();
            let text = if message.starts_with("MACO") { message } else { text(code, &message, help) };
            self.all.push(syn::Error::new(error.span(), text));
        }
    }

    /// Adds mistakes made with [`error`].
    pub fn extend(&mut self, error: &syn::Error) {
        self.all.extend(error.clone());
    }

    pub fn any(&self) -> bool {
        !self.all.is_empty()
    }

    /// One `compile_error!` for each.
    pub fn finish(mut self) -> TokenStream {
        self.asked = true;
        self.all.iter().map(syn::Error::to_compile_error).collect()
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        assert!(self.asked || std::thread::panicking(), "errors were not reported");
    }
}

/// A mistake at exactly these tokens, for parsers that return it.
pub fn error(code: Code, tokens: impl ToTokens, message: impl AsRef<str>, help: impl AsRef<str>) -> syn::Error {
    syn::Error::new_spanned(tokens, text(code, message.as_ref(), help.as_ref()))
}

fn text(code: Code, message: &str, help: &str) -> String {
    if help.is_empty() { format!("{code}: {message}") } else { format!("{code}: {message}\n= help: {help}") }
}
