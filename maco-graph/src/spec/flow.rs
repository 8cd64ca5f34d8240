//! Who has written what a call reads, and who will read what it writes.
//!
//! Shapes do not belong here. Granularity is the tensor: which part a slice wrote is checked when sizes are known.

use super::fault::FaultKind;
use super::recorder::Pending;
use super::{Access, Recorder, View};

/// Where a tensor lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// Read only.
    In,
    /// Wholly written before it is read.
    Out,
    /// Read and written.
    InOut,
    /// Kept between launches.
    State,
    /// Memory of the plan.
    Temp,
}

impl Kind {
    /// Whether it has a value before the first call.
    pub const fn given(self) -> bool {
        matches!(self, Kind::In | Kind::InOut | Kind::State)
    }
}

impl Recorder<'_> {
    /// Checks one access, [`Access::Read`] or [`Access::Write`], and remembers it. Reads of a call come before its writes.
    pub(super) const fn touch(&mut self, view: &View, access: Access, task: &'static str, param: &'static str, site: u32) {
        if view.tensor == u32::MAX {
            return;
        }
        let row = &mut self.tensors[view.tensor as usize];
        let (tensor, kind) = (row.name, row.kind);
        if matches!(access, Access::Read) {
            let written = row.written;
            row.read = true;
            row.pending = None;
            if !written {
                self.fault(site, task, param, FaultKind::Unwritten { tensor, out: matches!(kind, Kind::Out) });
            }
            return;
        }
        let before = row.pending;
        row.written = true;
        let shown = if self.state.redirect == super::NO_SITE { site } else { self.state.redirect };
        row.pending = Some(Pending { task, param, site: shown, view: *view });
        if matches!(kind, Kind::In) {
            self.fault(site, task, param, FaultKind::WritesIn { tensor });
        }
        if let Some(before) = before
            && before.view.same(view)
        {
            self.fault_at(before.site, before.task, before.param, FaultKind::Overwritten { tensor, by: task });
        }
    }

    /// A write of elements that data decides: those written before may still be there.
    pub(super) const fn scatter(&mut self, view: &View, task: &'static str, param: &'static str, site: u32) {
        if view.tensor == u32::MAX {
            return;
        }
        self.tensors[view.tensor as usize].pending = None;
        self.touch(view, Access::Write, task, param, site);
    }

    /// After a call that is wrong: its tensors count as used, so that one mistake is reported once.
    pub(super) const fn forgive(&mut self, view: &View) {
        if view.none() || self.state.counting {
            return;
        }
        let row = &mut self.tensors[view.tensor as usize];
        row.written = true;
        row.read = true;
        row.pending = None;
    }

    /// The end of a body: temps nobody reads, outputs nobody writes.
    pub const fn finish(&mut self) {
        if self.state.counting {
            return;
        }
        let mut n = 0;
        while n < self.state.counts.tensors {
            let row = self.tensors[n];
            match row.kind {
                Kind::Out if !row.written => self.fault(row.site, "", "", FaultKind::NeverWritten { tensor: row.name }),
                Kind::Temp if !row.read => self.fault(row.site, "", "", FaultKind::NeverRead { tensor: row.name }),
                Kind::Temp => {
                    if let Some(write) = row.pending {
                        self.fault(write.site, write.task, write.param, FaultKind::DeadWrite { tensor: row.name });
                    }
                }
                _ => {}
            }
            n += 1;
        }
        self.check_overlaps();
    }
}
