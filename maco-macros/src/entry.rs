//! Names of device entries, and where the build script left the code that holds them.

use std::env;
use std::path::PathBuf;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::ext::IdentExt;

/// The directory of the user's package, where device code is compiled in another one: set by `maco-build`.
const PACKAGE: &str = "MACO_PACKAGE_DIR";

/// The device entry of a megakernel: its name, and a hash of its tokens, its file in the package and its line. The host half and the device
/// half are expanded by different compilers in differently named packages, so nothing else goes into it.
pub fn entry_name(name: &Ident, item: TokenStream) -> String {
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    hash.tokens(item);
    hash.bytes(file(name.span()).as_os_str().as_encoded_bytes());
    hash.bytes(&(name.span().unwrap().line() as u64).to_le_bytes());
    // PTX knows no other letters; the hash tells names apart.
    let name = name.unraw().to_string().replace(|letter: char| !letter.is_ascii(), "_");
    format!("maco_{name}_{:016x}", hash.0)
}

/// A number for tokens: the same for the same text.
pub fn hash(tokens: TokenStream) -> u64 {
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    hash.tokens(tokens);
    hash.0
}

/// The file of a token, from its package's directory on: a file of equal text is another one. Of a file elsewhere all of its path; nothing where the
/// compiler does not know, as in an editor.
fn file(span: Span) -> PathBuf {
    let Some(file) = span.unwrap().local_file().and_then(|file| file.canonicalize().ok()) else { return PathBuf::new() };
    let package =
        env::var_os(PACKAGE).or_else(|| env::var_os("CARGO_MANIFEST_DIR")).and_then(|path| PathBuf::from(path).canonicalize().ok());
    match package.and_then(|package| Some(file.strip_prefix(package).ok()?.to_owned())) {
        Some(inside) => inside,
        None => file,
    }
}

/// What `maco_build::compile` left in `OUT_DIR` for `entry`, as an `Embedded`; without it, no device code. The included text is an expression that names
/// two types: what their crate is called only the macro knows.
pub fn embedded(p: &TokenStream, entry: &str) -> TokenStream {
    let files = [format!("/maco/{entry}.rs"), "/maco.rs".to_owned()];
    let built =
        env::var("OUT_DIR").ok().and_then(|out| files.into_iter().find(|file| std::path::Path::new(&format!("{out}{file}")).exists()));
    match built {
        Some(file) => quote! {
            {
                use #p::{DeviceModule, Embedded};
                ::core::include!(::core::concat!(::core::env!("OUT_DIR"), #file))
            }
        },
        None => quote! { #p::Embedded::NONE },
    }
}

/// FNV-1a, 64 bits: short, and the same in every compiler.
struct Hash(u64);

impl Hash {
    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    self.bytes(b"(");
                    self.tokens(group.stream());
                    self.bytes(b")");
                }
                TokenTree::Ident(name) => self.bytes(name.to_string().as_bytes()),
                TokenTree::Punct(punct) => self.bytes(&[punct.as_char() as u8]),
                TokenTree::Literal(literal) => self.bytes(literal.to_string().as_bytes()),
            }
            self.bytes(b" ");
        }
    }
}
