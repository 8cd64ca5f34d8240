//! The role of a warp that runs a warp task.

use crate::data::task::Task;
use crate::role::Role;
use crate::simt::warp::SimtWarp;
use crate::sync::warp_task::WarpTask;

impl Role for WarpTask {
    type Accumulator<const I: usize, const J: usize> = ();

    #[inline(always)]
    fn coord(&self, _: Task, axis: usize) -> i32 {
        WarpTask::coord(self, axis)
    }

    #[inline(always)]
    fn simt_warp(&mut self, early: bool, f: impl FnOnce(&mut SimtWarp<'_>)) {
        // What does not wait itself has been waited for.
        if early || !self.stopped() {
            f(&mut SimtWarp::new(self));
        }
        if early {
            // SAFETY: the warp runs this task.
            unsafe { self.end_early() };
        }
    }

    #[inline(always)]
    fn zeros<const I: usize, const J: usize>(&mut self) {}
}
