//! Bodies with one fault, between operations that keep the rules.

use super::super::Rng;
use super::super::body::Body;
use super::super::element::Element;
use super::super::signature::Access;
use super::Fault::{self, *};
use super::{Site, operations, signature};

pub fn body(rng: &mut Rng, fault: Fault) -> Option<String> {
    // For what does not change which operations there are.
    let mut own = Rng::new(rng.clone().below(1 << 32) as u64, 0);
    let layout = rng.pick(fault.layouts());
    let (before, after) = (rng.below(3), rng.below(2));
    let mut body = Body::new(rng, "task".to_owned(), layout);
    // What is wrong with types is not to hide what else is.
    body.only = Some(body.rng.pick(&Element::FLOATS));
    body.planes = fault == PlaneAxis || fault.has_planes() && body.rng.one_of(4);
    match fault {
        GroupBeside | GroupWritten => body.tile[0] = 1,
        // Of a tile of one row they may be.
        ManyRows => body.tile[0] = body.tile[0].max(4),
        _ => {}
    }
    if before > 0 {
        body.operations(before);
    }
    if body.room() < 3 {
        return None;
    }
    match fault.site() {
        Site::Signature => signature::break_rule(&mut body, fault)?,
        _ => {
            operations::break_rule(&mut body, fault)?;
            if own.one_of(3) && fault != WrittenTwice {
                body.outline_wrong(&mut own);
            }
        }
    }
    for _ in 0..after {
        body.right();
    }
    // A task that writes nothing breaks another rule.
    if body.params.iter().all(|param| param.access == Access::Read) {
        body.count_up();
    }
    (body.params.len() <= 6).then(|| body.task())
}

impl Fault {
    /// Whether its tasks may have planes: not where what is wrong is a parameter that has none.
    fn has_planes(self) -> bool {
        self.site() == Site::Operation
    }
}
