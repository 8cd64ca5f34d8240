//! `.overlap_group("name")` and `.overlap_next()`: which calls a collective waits beside.
//!
//! What is moved where does not belong here: the planner does it (`plan::overlap_options`).

use super::fault::FaultKind;
use super::gemv_form::same_text;
use super::recorder::CallRow;
use super::{NO_SITE, Recorder};

/// What a call says of the calls that it overlaps with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOverlap {
    /// `.overlap_group("name")`: collectives and other calls of one group overlap. Empty: in none.
    pub group: &'static str,
    /// Token of the name.
    pub group_site: u32,
    /// `.overlap_next()`: a collective overlaps the call behind it.
    pub next: bool,
    /// Token of the option.
    pub next_site: u32,
    /// Which replay of a body the call stands in: groups of a graph that is called twice are two. 0 in the outermost body.
    pub(super) scope: u32,
}

impl CallOverlap {
    /// The call says nothing of it.
    pub const NONE: CallOverlap = CallOverlap { group: "", group_site: NO_SITE, next: false, next_site: NO_SITE, scope: 0 };

    /// In group `group`, if that is not empty, and with the call behind it if `next`; at the tokens of the two.
    pub const fn new(group: &'static str, group_site: u32, next: bool, next_site: u32) -> CallOverlap {
        CallOverlap { group, group_site, next, next_site, scope: 0 }
    }

    /// The name of its group, one for each replay of a body.
    #[cfg(feature = "std")]
    pub(crate) fn group_name(&self) -> Option<String> {
        match (self.group, self.scope) {
            ("", _) => None,
            (group, 0) => Some(group.into()),
            (group, scope) => Some(format!("{group}#{scope}")),
        }
    }
}

impl Default for CallOverlap {
    fn default() -> CallOverlap {
        CallOverlap::NONE
    }
}

impl Recorder<'_> {
    /// At the end of a body: a group has a collective and another call, and behind `.overlap_next()` there is a call. Graphs called by this body have been checked as bodies of
    /// their own.
    pub(super) const fn check_overlaps(&mut self) {
        let mut n = 0;
        while n < self.state.counts.calls && n < self.calls.len() {
            let CallRow { task, overlap, .. } = self.calls[n];
            if overlap.scope == 0 && overlap.next && n + 1 == self.state.counts.calls {
                self.fault(overlap.next_site, task.name, "", FaultKind::OverlapNextAtEnd);
            }
            if overlap.scope == 0 && !overlap.group.is_empty() && !self.in_group(overlap.group, 0, n, None) {
                let last = self.state.counts.calls;
                let collective = self.in_group(overlap.group, 0, last, Some(true));
                if !collective || !self.in_group(overlap.group, 0, last, Some(false)) {
                    self.fault(overlap.group_site, "", "", FaultKind::OverlapGroup { group: overlap.group, collective });
                }
            }
            n += 1;
        }
    }

    /// Whether any of the calls from `first` to `end` is in the group: one that is a collective, or is none, if that is asked.
    const fn in_group(&self, group: &str, first: usize, end: usize, collective: Option<bool>) -> bool {
        let mut n = first;
        while n < end && n < self.calls.len() {
            let CallRow { task, overlap, .. } = self.calls[n];
            let fits = match collective {
                Some(collective) => task.collective().is_some() == collective,
                None => true,
            };
            if fits && overlap.scope == 0 && same_text(overlap.group, group) {
                return true;
            }
            n += 1;
        }
        false
    }
}
