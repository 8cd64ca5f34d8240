//! A call with its options: `linear(x, w, y).first(silu).then(gelu).tile(64, 128)`.

use maco_graph::spec::{Code, Element, FusedOperand, Via};
use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::{Expr, ExprCall, ExprLit, ExprMethodCall, Ident, Lit, LitStr, Path, PathArguments};

use super::analyse::{Elements, FusedOp, Replay, recorder, strip, unsupported};
use crate::errors::error;
use crate::spans::{Site, hidden, plain};

/// What the options of a call say.
#[derive(Default)]
struct Options {
    /// Functions of `.first(..)` and their operands.
    prologue: Vec<(Path, Option<Expr>)>,
    /// Functions of `.then(..)` and their operands.
    epilogue: Vec<(Path, Option<Expr>)>,
    tile: Option<Vec<Expr>>,
    split: Option<Expr>,
    priority: Option<Expr>,
    drain: bool,
    /// The way in `.via(..)`, where it stands.
    via: Option<(Via, Path)>,
    /// The name in `.overlap_group(..)`.
    overlap_group: Option<LitStr>,
    /// The token of `.overlap_next()`.
    overlap_next: Option<Ident>,
}

impl Replay<'_> {
    pub(super) fn call(&mut self, expression: &Expr) -> syn::Result<TokenStream> {
        let mut chain = Vec::new();
        let mut base = expression;
        while let Expr::MethodCall(method) = base {
            chain.push(method);
            base = strip(&method.receiver);
        }
        chain.reverse();
        let Expr::Call(call) = base else {
            return Err(unsupported(expression, "this does nothing", "views and temps are bound with `let`, or passed to a task"));
        };
        let path = callee(call)?;
        super::forgotten::check(&path)?;
        if path.segments.last().is_some_and(|last| last.ident == "temp") {
            return Err(unsupported(expression, "this temp is not bound to a name", "write `let h = temp::<bf16, M, K>();`"));
        }
        let mut options = Options::default();
        for method in chain {
            // A wrong option does not hide the others.
            if let Err(error) = options.read(method) {
                self.errors.extend(&error);
            }
        }
        self.emit(&path, call, &options)
    }

    fn emit(&mut self, path: &Path, call: &ExprCall, options: &Options) -> syn::Result<TokenStream> {
        let path_site = self.site(path);
        let arguments: Vec<&Expr> = call.args.iter().collect();
        let first: Vec<u32> = arguments.iter().map(|argument| self.site(argument)).collect();
        let mut translated = Vec::new();
        for (argument, site) in arguments.iter().zip(&first) {
            match self.argument(argument, *site) {
                Ok(tokens) => translated.push(tokens),
                Err(error) => self.errors.extend(&error),
            }
        }
        let arguments_site = first.first().copied().unwrap_or(path_site);
        if self.numbers_are_wrong(options) {
            return Ok(TokenStream::new());
        }
        let mut site_of = |ops: &[(Path, Option<Expr>)]| match ops.first() {
            Some((path, _)) => self.site(path),
            None => path_site,
        };
        let (prologue_site, epilogue_site) = (site_of(&options.prologue), site_of(&options.epilogue));
        let fused = || options.prologue.iter().chain(&options.epilogue);
        let operands: Vec<&Expr> = fused().filter_map(|(_, operand)| operand.as_ref()).collect();
        let operand_sites: Vec<u32> = operands.iter().map(|operand| self.site(operand)).collect();
        let fused_site = operand_sites.first().copied().unwrap_or(path_site);
        let mut fused_arguments = Vec::new();
        for (operand, site) in operands.iter().zip(&operand_sites) {
            match self.argument(operand, *site) {
                Ok(tokens) => fused_arguments.push(tokens),
                Err(error) => self.errors.extend(&error),
            }
        }
        let tile_sites: Vec<u32> = options.tile.iter().flatten().map(|size| self.site(size)).collect();
        let tile_site = tile_sites.first().copied().unwrap_or(path_site);
        let split_site = match &options.split {
            Some(parts) => self.site(parts),
            None => path_site,
        };
        let (via, via_site) = match &options.via {
            Some((via, path)) => (*via, self.site(path)),
            None => (Via::Automatic, path_site),
        };
        let (group, group_site) = match &options.overlap_group {
            Some(name) => (name.value(), self.site(name)),
            None => (String::new(), path_site),
        };
        let (next, next_site) = match &options.overlap_next {
            Some(option) => (true, self.site(option)),
            None => (false, path_site),
        };
        let mut ops = Vec::new();
        for (n, (path, operand)) in fused().enumerate() {
            ops.push(self.fused_op(path, operand.as_ref(), n < options.prologue.len()));
        }
        let elements = self.elements(&arguments);
        let operation = self.operation(path, ops.clone(), elements.clone());
        let ty = self.callees.ty(path);
        let (p, recorder) = (&self.p, recorder());
        let result = match &elements {
            Some(elements) => {
                let elements = held(elements, p);
                quote! { #p::spec::result_of(<#ty as #p::Callable>::RESULT, #elements) }
            }
            None => quote! { ::core::option::Option::None },
        };
        let fused_ops = ops.iter().map(|FusedOp { path, operand, on_operand_a, .. }| {
            let name = path.segments.last().map(|last| plain(&last.ident));
            let operand = match operand {
                FusedOperand::Nothing => quote! { Nothing },
                FusedOperand::Tensor(element) => {
                    let element = format_ident!("{element:?}");
                    quote! { Tensor(#p::spec::Element::#element) }
                }
                FusedOperand::Scalar => quote! { Scalar },
            };
            quote! { #p::spec::FusedOp { name: #name, operand: #p::spec::FusedOperand::#operand, on_operand_a: #on_operand_a } }
        });
        let tile = match &options.tile {
            Some(sizes) => quote! { ::core::option::Option::Some(&[#((#sizes) as u32),*]) },
            None => quote! { ::core::option::Option::None },
        };
        let split = match &options.split {
            Some(parts) => quote! { ::core::option::Option::Some((#parts) as u32) },
            None => quote! { ::core::option::Option::None },
        };
        let priority = match &options.priority {
            Some(priority) => priority.to_token_stream(),
            None => quote! { 0 },
        };
        let drain = options.drain;
        let via = format_ident!("{}", via.name());
        let callee = Site::of(path);
        let record = callee.respan(quote! { ::__maco_call });
        let (place, values, hidden_operands) = (hidden("site"), hidden("arguments"), hidden("operands"));
        Ok(quote! {
            // `match`, so that what the arguments borrow lives as long as the call.
            match [#(#translated),*] {
                #values => match [#(#fused_arguments),*] {
                    #hidden_operands => {
                        let #place = #p::spec::CallSite {
                            slot: Self::__BASE[#operation],
                            path: #path_site,
                            arguments: #arguments_site,
                            result: #result,
                            fused: &[#(#fused_ops),*],
                            prologue_site: #prologue_site,
                            epilogue_site: #epilogue_site,
                            fused_arguments: &#hidden_operands,
                            fused_site: #fused_site,
                            tile: #tile,
                            tile_site: #tile_site,
                            split: #split,
                            split_site: #split_site,
                            priority: #priority,
                            drain: #drain,
                            via: #p::spec::Via::#via,
                            via_site: #via_site,
                            overlap: #p::spec::CallOverlap::new(#group, #group_site, #next, #next_site),
                        };
                        <#ty> #record(#recorder, &#place, &#values)
                    }
                },
            }
        })
    }
}

impl Replay<'_> {
    /// Reports numbers of options that are no constants.
    fn numbers_are_wrong(&mut self, options: &Options) -> bool {
        let tile = options.tile.iter().flatten().map(|size| (size, "a tile size"));
        let split = options.split.iter().map(|parts| (parts, "a number of parts"));
        let priority = options.priority.iter().map(|level| (level, "a priority"));
        let wrong: Vec<syn::Error> =
            tile.chain(split).chain(priority).filter_map(|(number, what)| self.constant(number, what).err()).collect();
        wrong.iter().for_each(|error| self.errors.extend(error));
        !wrong.is_empty()
    }
}

impl Replay<'_> {
    /// Whether an operand is a tensor or a scalar is decided here from its tokens, since an instance is for one or the other. The recorder checks it.
    fn fused_op(&mut self, path: &Path, operand: Option<&Expr>, on_operand_a: bool) -> FusedOp {
        let operand = match operand {
            None => FusedOperand::Nothing,
            Some(operand) if self.is_tensor(operand) || self.is_array(operand) => {
                // What has no element has been told.
                let known = |element: &Element| self.holds(operand).is_some_and(|held| held == format!("{element:?}"));
                FusedOperand::Tensor(ELEMENTS.into_iter().find(known).unwrap_or(Element::Bf16))
            }
            Some(_) => FusedOperand::Scalar,
        };
        FusedOp { path: path.clone(), ty: self.callees.ty(path), operand, on_operand_a }
    }
}

impl Replay<'_> {
    /// The elements of the arguments of a call, if its floating-point elements differ: then one may be a result that is rounded to
    /// another element. The callee knows which.
    fn elements(&self, arguments: &[&Expr]) -> Option<Elements> {
        let held: Elements = arguments.iter().map(|argument| self.holds(argument)).collect();
        let mut numbers = held.iter().flatten().filter(|element| !["I8", "I32", "U32"].iter().any(|integer| element == integer));
        let first = numbers.next()?;
        numbers.any(|other| other != first).then_some(held)
    }
}

/// Every element.
const ELEMENTS: [Element; 6] = [Element::Bf16, Element::F16, Element::F32, Element::I32, Element::U32, Element::I8];

/// `&[Some(Element::Bf16), None]`
pub(super) fn held(elements: &Elements, p: &TokenStream) -> TokenStream {
    let elements = elements.iter().map(|element| match element {
        Some(element) => quote! { ::core::option::Option::Some(#p::spec::Element::#element) },
        None => quote! { ::core::option::Option::None },
    });
    quote! { &[#(#elements),*] }
}

impl Options {
    fn read(&mut self, method: &ExprMethodCall) -> syn::Result<()> {
        let arguments: Vec<&Expr> = method.args.iter().collect();
        let name = method.method.to_string();
        match (name.as_str(), arguments.as_slice()) {
            ("first", [function]) => self.prologue.push(fused(
                "first",
                function,
                "write `.first(gelu)` or `.first(scale(s))`, where `gelu` and `scale` are element-wise",
            )?),
            ("then", [function]) => self.epilogue.push(fused(
                "then",
                function,
                "write `.then(gelu)` or `.then(add(r))`, where `gelu` and `add` are element-wise",
            )?),
            ("tile" | "split_k" | "priority" | "drain" | "via" | "overlap_group" | "overlap_next", _) if self.has(&name) => {
                return Err(error(Code::CallOption, &method.method, format!("`.{name}` is given twice"), "give each option once"));
            }
            ("tile", sizes) if !sizes.is_empty() => self.tile = Some(sizes.iter().map(|&size| size.clone()).collect()),
            ("split_k", [parts]) => self.split = Some((*parts).clone()),
            ("priority", [level]) => self.priority = Some((*level).clone()),
            ("drain", []) => self.drain = true,
            ("via", [way]) => self.via = Some(named_way(way)?),
            ("overlap_group", [name]) => self.overlap_group = Some(group_name(name)?),
            ("overlap_next", []) => self.overlap_next = Some(method.method.clone()),
            ("first" | "then" | "tile" | "split_k" | "priority" | "drain" | "via" | "overlap_group" | "overlap_next", _) => {
                return Err(error(Code::CallOption, &method.method, format!("`.{name}` takes other arguments"), HELP));
            }
            _ => return Err(error(Code::CallOption, &method.method, format!("`.{name}` is not an option of a call"), HELP)),
        }
        Ok(())
    }

    /// Whether option `name` has been read.
    fn has(&self, name: &str) -> bool {
        match name {
            "tile" => self.tile.is_some(),
            "split_k" => self.split.is_some(),
            "priority" => self.priority.is_some(),
            "drain" => self.drain,
            "via" => self.via.is_some(),
            "overlap_group" => self.overlap_group.is_some(),
            "overlap_next" => self.overlap_next.is_some(),
            _ => false,
        }
    }
}

const HELP: &str = "options are `.first(gelu)`, `.then(gelu)`, `.then(add(r))`, `.tile(64, 128)`, `.split_k(2)`, `.priority(1)`, `.drain()`, `.via(TwoShot)`, `.overlap_group(\"name\")` and `.overlap_next()`";

/// The name in `.overlap_group("name")`.
fn group_name(name: &Expr) -> syn::Result<LitStr> {
    match strip(name) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if !text.value().is_empty() => Ok(text.clone()),
        other => Err(error(Code::CallOption, other, "this is no name of an overlap group", "write `.overlap_group(\"gates\")`")),
    }
}

/// The way of `.via(TwoShot)`, or of `.via(maco::Via::TwoShot)`.
fn named_way(way: &Expr) -> syn::Result<(Via, Path)> {
    let wrong = || {
        error(
            Code::CallOption,
            way,
            "this is no way for the tiles of an all-reduce",
            "write `.via(Packets)`, `.via(OneShot)`, `.via(TwoShot)` or `.via(Nccl)`",
        )
    };
    let Expr::Path(path) = strip(way) else { return Err(wrong()) };
    let name = path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
    let via = Via::ALL.into_iter().find(|via| via.name() == name).ok_or_else(wrong)?;
    Ok((via, path.path.clone()))
}

/// `gelu` or `add(r)` of `.then(..)`, or of `.first(..)`.
fn fused(option: &str, function: &Expr, forms: &str) -> syn::Result<(Path, Option<Expr>)> {
    let call = match strip(function) {
        Expr::Path(path) if path.qself.is_none() => return Ok((path.path.clone(), None)),
        Expr::Call(call) => call,
        other => return Err(error(Code::CallOption, other, "this is not an elementwise task", forms)),
    };
    let help = match option {
        "first" => "write `.first(scale(s))`: the value is operand A's, and beside it is one number",
        _ => "write `.then(add(r))`: the value comes from the call, and beside it is one tensor or number",
    };
    match (strip(&call.func), call.args.len()) {
        (Expr::Path(path), 1) if path.qself.is_none() => Ok((path.path.clone(), call.args.first().cloned())),
        (Expr::Path(_), found) => Err(error(Code::CallOption, call, format!("`.{option}(f(..))` takes one operand, found {found}"), help)),
        _ => Err(error(Code::CallOption, &call.func, "this is not an element-wise task", help)),
    }
}

fn callee(call: &ExprCall) -> syn::Result<Path> {
    let Expr::Path(path) = strip(&call.func) else {
        return Err(unsupported(&call.func, "only tasks and graphs can be called", "name the task: `linear(x, w, y)`"));
    };
    if path.qself.is_some() {
        return Err(unsupported(&call.func, "only tasks and graphs can be called", "name the task: `linear(x, w, y)`"));
    }
    if let Some(last) = path.path.segments.last()
        && last.ident != "temp"
        && let Some(segment) = path.path.segments.iter().find(|segment| !matches!(segment.arguments, PathArguments::None))
    {
        return Err(unsupported(&segment.arguments, "a call names no types", "elements follow from the arguments: `linear(x, w, y)`"));
    }
    Ok(path.path.clone())
}
