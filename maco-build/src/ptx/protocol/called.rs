//! Rules of the functions that entries call.

use std::collections::BTreeSet;

use maco_ptx::{Function, Module, Statement};

use super::Rules;
use super::statement::*;
use crate::ptx::calls;
use crate::ptx::flow::{Flow, Way};
use crate::ptx::lint::Report;

/// What a function is by what it does: those of consumers have barriers, and rules, of their own.
struct Kind {
    receives: bool,
    rmsnorm: bool,
    elementwise: bool,
    sums: bool,
    table: bool,
}

impl Kind {
    fn of(function: &Function<'_>) -> Kind {
        let has = |is: Is| function.body.iter().any(is);
        // Rows that an RMSNorm prologue has made are written as received ones are.
        Kind {
            receives: has(RECEIVED) && !has(SQUARES),
            rmsnorm: has(SQUARES),
            elementwise: has(MADE),
            sums: has(PRODUCT),
            table: has(RAISED),
        }
    }

    /// A prologue, a main loop or a table of all consumers.
    fn of_consumers(&self) -> bool {
        self.receives || self.rmsnorm || self.elementwise || self.sums || self.table
    }
}

/// Names of the functions with a part in the protocol: they are looked at where they are called. A body has none. It takes tiles from the ring and
/// gives them back: plain waits, which acquire, and plain arrivals, which release, among the threads of the CTA, and if it has written there, the fence of
/// its proxy; consumers meet between its operations. Nor have prologues and main loops that all consumers run, which have rules of their own.
pub(in crate::ptx) fn followed<'a>(module: &'a Module<'a>) -> BTreeSet<&'a str> {
    let orders = |statement: &Statement<'_>| ORDERS(statement) && !OF_BODIES(statement);
    calls::leading_to(module, |function| function.body.iter().any(orders) && !Kind::of(function).of_consumers())
}

/// A function by itself, reached from an entry. `wgmma` in a function is serialised, and ptxas takes `setmaxnreg` in entries alone.
pub(in crate::ptx) fn check_called(function: &Function<'_>, report: &mut Report<'_>) {
    let kind = Kind::of(function);
    for statement in &function.body {
        let opcode = statement.opcode();
        if op(statement, "wgmma.") {
            report.add(
                statement,
                format!("`{opcode}` in a function that a megakernel calls: ptxas serialises it; it belongs into the entry"),
            );
        } else if op(statement, "setmaxnreg.") {
            report.add(
                statement,
                format!(
                    "`{opcode}` in a function that a megakernel calls: ptxas moves registers in entries only; it belongs into the entry"
                ),
            );
        } else if kind.of_consumers() {
            let together = MET(statement) || (kind.receives || kind.sums) && (FETCH(statement) || FETCHED(statement));
            if ORDERS(statement) && !OF_BODIES(statement) && !together {
                report.add(statement, format!("`{opcode}` in a function that all consumers run: it belongs into the entry"));
            }
        }
    }
    let mut rules = Rules { flow: Flow::new(function), function: function.name, report };
    rules.scopes();
    if kind.receives {
        rules.receives();
    }
    if kind.rmsnorm {
        rules.rmsnorm_prologue();
    }
    if kind.elementwise {
        rules.elementwise_prologue();
    }
    if kind.sums {
        rules.sums();
    }
    if kind.table {
        rules.tables();
    }
}

impl Rules<'_, '_, '_> {
    /// Operand A is received, in a function of its own or with what reads it.
    fn receives(&mut self) {
        let received =
            "other warps may not have received their elements: consumers meet (`bar.sync`) before they read them, or the function ends";
        self.always(RECEIVED, Way::Forward, MET, |s| PRODUCT(s) || CALL(s) || ARRIVE(s), received);
        let fetched = "weights of an RMSNorm prologue may not have come: `cp.async.wait_all` belongs before the barrier behind which consumers read them";
        self.always(FETCH, Way::Forward, FETCHED, |s| MET(s) || CALL(s) || ARRIVE(s), fetched);
        let of_others = "other warps may not have received their weights of an RMSNorm prologue: consumers meet (`bar.sync`) between that and the prologue";
        self.always(FETCHED, Way::Forward, MET, |s| PRODUCT(s) || CALL(s) || ARRIVE(s), of_others);
    }

    /// The main loop of a GEMV, in a function of its own.
    fn sums(&mut self) {
        let read = "other warps may still read the stage in which sums are left: consumers meet (`bar.sync`) between products and that";
        self.always(SUMS, Way::Backward, MET, |s| PRODUCT(s) || WAIT(s), read);
        let overtaken = "the stage's next bytes may be overtaken by these: `fence.proxy.async.shared::cta` belongs before the barrier behind which it is given back";
        self.always(SUMS, Way::Forward, PROXY_SHARED, |s| MET(s) || ARRIVE(s), overtaken);
        let left = "other warps may not have left their sums: consumers meet (`bar.sync`) before the function ends";
        self.always(SUMS, Way::Forward, MET, ARRIVE, left);
    }

    /// A table in pages of the ring, in a function of its own.
    fn tables(&mut self) {
        let cleared = "other warps may still clear the table: consumers meet (`bar.sync`) between that and what raises its words";
        self.always(RAISED, Way::Backward, MET, WAIT, cleared);
        let raised = "other warps may not have raised their words: consumers meet (`bar.sync`) before they read the table";
        self.always(RAISED, Way::Forward, MET, |s| op(s, "ld.shared.b32") || ARRIVE(s), raised);
        let overtaken =
            "the stage's next bytes may be overtaken by the table: `fence.proxy.async.shared::cta` belongs before it is given back";
        self.always(RAISED, Way::Forward, PROXY_SHARED, ARRIVE, overtaken);
    }

    /// The RMSNorm prologue of operand A, in a function of its own. Its caller has met before it calls.
    fn rmsnorm_prologue(&mut self) {
        let squares = "squares of other warps may be missing in a row's sum: consumers meet (`bar.sync`) before they are added up";
        self.always(SQUARES, Way::Forward, MET, SQUARED, squares);
        let factor = "a row's factor may not be there: consumers meet (`bar.sync`) before they multiply by it";
        self.always(SCALE, Way::Forward, MET, SCALED, factor);
        let made = "other warps may not have run their part of the RMSNorm prologue: consumers meet (`bar.sync`) before the function ends";
        self.always(RECEIVED, Way::Forward, MET, NEVER, made);
    }

    /// The elementwise prologue of operand A, in a function of its own.
    fn elementwise_prologue(&mut self) {
        let received =
            "other warps may not have received their elements: consumers meet (`bar.sync`) between that and the elementwise prologue";
        self.always(RECEIVED, Way::Forward, MET, TAKEN, received);
        let made =
            "other warps may not have run the elementwise prologue on their elements: consumers meet (`bar.sync`) before the function ends";
        self.always(MADE, Way::Forward, MET, NEVER, made);
    }
}
