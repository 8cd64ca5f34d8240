//! What a name stands for in a megakernel that is a function only, so that its call is one mistake and not five.

use maco_device::{Callable, Combine, Elementwise, Epilogue, Filter, Role, Task};
use maco_graph::spec::{Argument, CallSite, Recorder};

/// No task.
pub enum NotATask {}

impl Callable for NotATask {
    const SLOTS: u32 = 0;
    const IS_TASK: bool = false;
    fn dispatch<R: Role, T: Epilogue, F: Filter>(_: &mut R, _: Task, _: u32) {}
}

impl Elementwise for NotATask {
    fn apply(value: f32) -> f32 {
        value
    }
}

impl Combine for NotATask {
    fn combine(value: f32, _: f32) -> f32 {
        value
    }
}

impl NotATask {
    /// What is passed counts as used.
    pub const fn __maco_call(recorder: &mut Recorder<'_>, _: &CallSite<'_>, arguments: &[Argument<'_>]) {
        recorder.excuse(arguments);
    }
}

/// Fails the compilation for what is no task.
///
/// # Panics
/// In const evaluation, with `message`.
#[track_caller]
pub const fn check_task<C: Callable>(message: &str) {
    assert!(C::IS_TASK, "{}", message);
}
