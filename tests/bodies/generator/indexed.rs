//! Rows and elements that numbers name, read and written.

use super::body::Body;
use super::element::Element;
use super::signature::{Access, Kind};

impl Body<'_> {
    pub fn take(&mut self) -> bool {
        if self.room() < 3 {
            return false;
        }
        let ids = self.of_kind(Access::Read, Kind::Ids);
        let ids = self.params[ids].name.clone();
        let Some(result) = self.fresh_result() else { return false };
        let region = format!("{ids}[i], {}", self.col());
        let table = self.known(Kind::Table, &region, result.element, &["V", "N"]);
        self.each(&self.tensor(&result), "{0}", &[format!("{table}.at({ids}.at(0, r) as isize, c)")]);
        self.operation(format!("cta.take({ids}, {table}, {})", result.name), Some(&result));
        true
    }

    pub fn scatter(&mut self) -> bool {
        if self.room() < 3 {
            return false;
        }
        let Some(result) = self.held_result() else { return false };
        let ids = self.other("i, ..", Element::U32, &["M", "K"]);
        let x = self.other("i, ..", result.element, &["M", "K"]);
        let y = self.tensor(&result);
        self.reference
            .push(format!("for r in 0..{x}.rows {{ for k in 0..{x}.cols {{ {y}.put(r, {ids}.at(r, k) as isize, {x}.at(r, k)); }} }}"));
        self.operation(format!("cta.scatter({ids}, {x}, {})", result.name), Some(&result));
        true
    }

    pub fn indexed(&mut self, method: &str) -> bool {
        if self.room() < 3 {
            return false;
        }
        let is_sum = method == "index_add";
        let result = if is_sum { self.held_result_of(&Element::FLOATS) } else { self.held_result() };
        let Some(result) = result else { return false };
        let ids = self.other("..", Element::U32, &["K"]);
        let x = self.known(if is_sum { Kind::Small } else { Kind::Other }, ".., j", result.element, &["K", "N"]);
        let y = self.tensor(&result);
        let old = if is_sum { "sums.at(to, c) + " } else { "" };
        self.large |= is_sum;
        // Rounded when all is there.
        self.reference.push(format!(
            "let mut sums = {y}.exact(); for k in 0..{x}.rows {{ for c in 0..{x}.cols {{ let to = {ids}.at(0, k) as isize; \
             let v = {old}{x}.at(k, c); sums.put(to, c, v); }} }} each({y}, |_, r, c| sums.at(r, c));"
        ));
        self.operation(format!("cta.{method}({ids}, {x}, {})", result.name), Some(&result));
        true
    }

    pub fn sums(&mut self) -> bool {
        if self.room() < 3 {
            return false;
        }
        let element = self.float();
        let Some(result) = self.fresh_result_of(element) else { return false };
        let ids = self.other("i, ..", Element::U32, &["M", "K"]);
        let x = self.known(Kind::Small, ".., ..", element, &["V", "N"]);
        self.large = true;
        let sum = format!("(0..{ids}.cols).map(|k| 2.0 * {x}.at({ids}.at(r, k) as isize, c)).sum::<f32>()");
        self.each(&self.tensor(&result), "{0}", &[sum]);
        let call = format!("cta.sums({ids}, {x}, {}, {ids}.cols(), |ids, r, k| (ids.at(r, k) as i32, 2.0))", result.name);
        self.operation(call, Some(&result));
        true
    }
}
