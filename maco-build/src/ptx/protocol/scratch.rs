//! Rules of bodies with scratch: pages of the ring that a task's own threads write, copy from and give back.

use super::Rules;
use super::statement::*;
use crate::ptx::flow::Way;

impl Rules<'_, '_, '_> {
    /// What bodies write to their scratch, pages of the ring, and copy from there.
    pub(super) fn scratch(&mut self) {
        let consumers = self.consumers();
        for &at in consumers.iter().filter(|&&at| SCRATCH(&self.flow.statements[at])).collect::<Vec<_>>() {
            if !self.flow.meets(at, Way::Forward, PROXY_SHARED, ARRIVE) {
                self.broken(
                    at,
                    "the next bytes of a body's pages may be overtaken by these: `fence.proxy.async.shared::cta` belongs between the body and the arrival that gives its pages back",
                );
            }
            let copied: Is = |s| BODY_STORE(s) || COPY(s);
            let until: Is = |s| PROXY_SHARED(s) || ARRIVE(s);
            if self.flow.may_meet(at, Way::Forward, copied, until) {
                self.broken(
                    at,
                    "a body's copy may overtake what threads wrote before it: `fence.proxy.async.shared::cta` (`sync_copies`) belongs between the two",
                );
            }
        }
        for &at in consumers.iter().filter(|&&at| SCRATCH(&self.flow.statements[at])).collect::<Vec<_>>() {
            let multiplied = |rules: &Self, until: Is| rules.flow.may_meet(at, Way::Forward, MULTIPLY, until);
            if multiplied(self, |s| PROXY_SHARED(s) || ARRIVE(s)) {
                self.broken(
                    at,
                    "tensor cores may not see what a body wrote: `fence.proxy.async.shared::cta` (`sync_copies`) belongs between that and `wgmma`",
                );
            }
            // At the end of a body a warp meets, and gives its pages back.
            if multiplied(self, |s| MET(s) || ARRIVE(s) || MET_WARP(s)) {
                self.broken(
                    at,
                    "other threads of a body may not have written their part: they meet (`sync_copies`) between that and `wgmma`",
                );
            }
        }
        self.always(
            MULTIPLY,
            Way::Backward,
            HANDED,
            |s| op(s, "wgmma.commit_group"),
            "tensor cores may not see what is in a product's registers: `wgmma.fence` belongs before the first product of a group",
        );
        for at in consumers.into_iter().filter(|&at| INIT(&self.flow.statements[at])).collect::<Vec<_>>() {
            // By the thread that has initialised it: other paths go by.
            if !self.flow.may_meet(at, Way::Forward, INVALIDATE, ARRIVE) {
                self.broken(
                    at,
                    "a body's mbarrier still is one when its page is given back: `mbarrier.inval` belongs to the end of its scope",
                );
            }
        }
        let consumers = self.consumers();
        for at in consumers.into_iter().filter(|&at| PROXY_MAP(&self.flow.statements[at])).collect::<Vec<_>>() {
            // Once for each tensor and task, as the map. A store of a box ends with it.
            if !self.flow.meets(at, Way::Forward, PROXY_GLOBAL, COPY) {
                self.broken(
                    at,
                    "a body's copy may not see what other tasks wrote: `fence.proxy.async.global` belongs between the fence of a tensor map and the first copy",
                );
            }
        }
        self.always(BODY_STORE, Way::Forward, COMMIT, ARRIVE, "a body's copy that is not committed is never waited for");
        self.always(
            BODY_STORE,
            Way::Forward,
            STORED,
            ARRIVE,
            "a body's copy may not have arrived when the task ends: `cp.async.bulk.wait_group 0` belongs behind it",
        );
        self.always(
            BODY_STORE,
            Way::Forward,
            PROXY_GLOBAL,
            ARRIVE,
            "threads may not see what a body's copy wrote: `fence.proxy.async.global` belongs behind its completion",
        );
    }
}
