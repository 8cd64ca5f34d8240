//! What a module declares and names, in one world.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, ItemUse, Meta, Stmt, Token, UseTree};

use super::{Sources, World};

/// A module of a file, or an inline one.
#[derive(Default)]
pub struct Scope {
    pub module: Vec<String>,
    /// The module of the file that it is in.
    pub file: Vec<String>,
    /// Items that it defines, its modules among them.
    pub items: Vec<String>,
    /// Names that `use` brings, and the path of each.
    pub names: Vec<(String, Vec<String>)>,
    /// Paths whose items `use` brings all.
    pub globs: Vec<Vec<String>>,
    /// All paths in its code. Those of `use` end in `{use}` here.
    pub paths: Vec<Vec<String>>,
}

/// Last segment of a path of a `use`.
pub const USE: &str = "{use}";

impl Scope {
    /// All of a crate, by their paths.
    pub fn all(sources: &Sources, world: World) -> BTreeMap<Vec<String>, Scope> {
        let mut reader = Reader { sources, world, scopes: BTreeMap::new() };
        reader.read(Vec::new(), Vec::new(), &sources.read(&[], None).items);
        reader.scopes
    }
}

struct Reader<'a> {
    sources: &'a Sources,
    world: World,
    scopes: BTreeMap<Vec<String>, Scope>,
}

impl Reader<'_> {
    /// The items of module `module`, in the file of module `file`.
    fn read(&mut self, module: Vec<String>, file: Vec<String>, items: &[Item]) {
        let mut scope = Scope { module: module.clone(), file: file.clone(), ..Scope::default() };
        let mut visitor = Visitor { world: self.world, scope: &mut scope, modules: Vec::new(), root: true };
        items.iter().for_each(|item| visitor.visit_item(item));
        for item in visitor.modules {
            let name = item.ident.to_string();
            scope.items.push(name.clone());
            let inner: Vec<String> = module.iter().cloned().chain([name]).collect();
            match &item.content {
                Some((_, items)) => self.read(inner, file.clone(), items),
                None => {
                    let items = self.sources.read(&inner, file_name(&item.attrs).as_deref()).items;
                    self.read(inner.clone(), inner, &items);
                }
            }
        }
        self.scopes.insert(module, scope);
    }
}

/// What `#[path = ".."]` says.
fn file_name(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("path")).find_map(|attribute| match &attribute.meta {
        Meta::NameValue(value) => match &value.value {
            Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Whether code is compiled, if its `#[cfg]`s say so: `None`, it may be.
fn holds(meta: &Meta, world: World) -> Option<bool> {
    let inner = |list: &syn::MetaList| list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).expect("a list of conditions");
    match meta {
        Meta::Path(path) if path.is_ident("test") => Some(false),
        Meta::NameValue(value) if value.path.is_ident("target_arch") => {
            let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(arch), .. }) = &value.value else { panic!("the name of an architecture") };
            Some((arch.value() == "nvptx64") == (world == World::Device))
        }
        Meta::List(list) if list.path.is_ident("not") => holds(inner(list).first()?, world).map(|holds| !holds),
        Meta::List(list) if list.path.is_ident("all") || list.path.is_ident("any") => {
            let decisive = list.path.is_ident("any");
            let all: Vec<Option<bool>> = inner(list).iter().map(|meta| holds(meta, world)).collect();
            if all.contains(&Some(decisive)) {
                Some(decisive)
            } else if all.contains(&None) {
                None
            } else {
                Some(!decisive)
            }
        }
        _ => None,
    }
}

struct Visitor<'a, 'ast> {
    world: World,
    scope: &'a mut Scope,
    /// To be read as scopes of their own.
    modules: Vec<&'ast syn::ItemMod>,
    /// Whether an item is the module's own, and not one in a body.
    root: bool,
}

impl<'ast> Visitor<'_, 'ast> {
    fn is_compiled(&self, attributes: &[Attribute]) -> bool {
        attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).all(|attribute| {
            let meta: Meta = attribute.parse_args().expect("a condition");
            holds(&meta, self.world) != Some(false)
        })
    }

    /// The names of a tree of `use`.
    fn tree(&mut self, tree: &UseTree, path: &mut Vec<String>) {
        match tree {
            UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.tree(&inner.tree, path);
                path.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree, path)),
            UseTree::Glob(_) => {
                self.scope.globs.push(path.clone());
                self.used(path.clone());
            }
            UseTree::Name(syn::UseName { ident }) if ident == "self" => {
                let name = path.last().expect("`self` of a module").clone();
                self.scope.names.push((name, path.clone()));
                self.used(path.clone());
            }
            UseTree::Name(syn::UseName { ident }) => self.name(ident.to_string(), path, ident.to_string()),
            UseTree::Rename(rename) => self.name(rename.rename.to_string(), path, rename.ident.to_string()),
        }
    }

    fn name(&mut self, name: String, path: &[String], last: String) {
        let path: Vec<String> = path.iter().cloned().chain([last]).collect();
        self.scope.names.push((name, path.clone()));
        self.used(path);
    }

    fn used(&mut self, mut path: Vec<String>) {
        path.push(USE.to_owned());
        self.scope.paths.push(path);
    }

    /// Paths in what a macro makes, or is given.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    self.tokens(group.stream());
                    colons = 0;
                }
                _ => {
                    self.end(&mut path);
                    colons = 0;
                }
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        if !path.is_empty() {
            self.scope.paths.push(std::mem::take(path));
        }
    }

    fn defines(&mut self, name: &syn::Ident) {
        if self.root {
            self.scope.items.push(name.to_string());
        }
    }
}

/// The attributes of an expression that is a statement, or the value of a block.
fn attributes(expr: &Expr) -> &[Attribute] {
    match expr {
        Expr::Block(expr) => &expr.attrs,
        Expr::Return(expr) => &expr.attrs,
        Expr::Unsafe(expr) => &expr.attrs,
        Expr::If(expr) => &expr.attrs,
        Expr::Match(expr) => &expr.attrs,
        Expr::Call(expr) => &expr.attrs,
        Expr::MethodCall(expr) => &expr.attrs,
        Expr::Macro(expr) => &expr.attrs,
        Expr::Path(expr) => &expr.attrs,
        Expr::Assign(expr) => &expr.attrs,
        Expr::Binary(expr) => &expr.attrs,
        Expr::Loop(expr) => &expr.attrs,
        Expr::While(expr) => &expr.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Visitor<'_, 'ast> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes: &[Attribute] = match item {
            Item::Const(item) => &item.attrs,
            Item::Enum(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Macro(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Static(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Trait(item) => &item.attrs,
            Item::Type(item) => &item.attrs,
            Item::Union(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => &[],
        };
        if !self.is_compiled(attributes) {
            return;
        }
        match item {
            Item::Const(item) => self.defines(&item.ident),
            Item::Enum(item) => self.defines(&item.ident),
            Item::Fn(item) => self.defines(&item.sig.ident),
            Item::Static(item) => self.defines(&item.ident),
            Item::Struct(item) => self.defines(&item.ident),
            Item::Trait(item) => self.defines(&item.ident),
            Item::Type(item) => self.defines(&item.ident),
            Item::Union(item) => self.defines(&item.ident),
            Item::Macro(item) => item.ident.iter().for_each(|ident| self.defines(ident)),
            Item::Mod(item) => {
                self.modules.push(item);
                return;
            }
            _ => {}
        }
        let root = std::mem::replace(&mut self.root, false);
        visit::visit_item(self, item);
        self.root = root;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.tree(&item.tree, &mut Vec::new());
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        let attributes = match stmt {
            Stmt::Local(local) => &local.attrs,
            Stmt::Expr(expr, _) => attributes(expr),
            Stmt::Macro(stmt) => &stmt.attrs,
            _ => &[],
        };
        if self.is_compiled(attributes) {
            visit::visit_stmt(self, stmt);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if self.is_compiled(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if self.is_compiled(&item.attrs) {
            visit::visit_trait_item_fn(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if self.is_compiled(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.scope.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, makro: &'ast syn::Macro) {
        self.tokens(makro.tokens.clone());
        visit::visit_macro(self, makro);
    }
}
