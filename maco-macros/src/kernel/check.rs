//! Step 2: what the signature alone can get wrong.

use maco_abi::RANK;
use maco_graph::spec::Code;

use super::parse::{Kernel, ParamKind};
use crate::attribute::element_variant;
use crate::errors::Errors;

pub fn check(kernel: &Kernel<'_>, errors: &mut Errors) {
    let what = format!("a {}", kernel.what);
    kernel.function.check(&what, errors);
    kernel.function.no_return(&what, errors);
    kernel.function.not_unsafe(&what, "what is unsafe belongs into a task", errors);
    for (n, param) in kernel.params.iter().enumerate() {
        if kernel.params[..n].iter().any(|other| other.name == param.name) {
            errors.push(Code::Signature, &param.name, format!("`{}` is a parameter already", param.name), "give each its own name");
        }
        let ParamKind::Tensor { element, dims, .. } = &param.kind else { continue };
        if element_variant(element).is_none() {
            let help = "elements are bf16, f16, f32, i8, i32 and u32";
            errors.push(Code::Attribute, element, format!("`{element}` is not an element type"), help);
        }
        if let Some(extra) = dims.get(RANK) {
            let message = format!("{} dimensions, but there is room for {RANK}", dims.len());
            errors.push(Code::Limit, extra, message, "fold some of them, and use `x.split(axis, n)` in the body");
        }
    }
}
