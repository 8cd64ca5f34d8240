//! Elements of a task set: one that the task has not, one that no task has, and an empty set.
use maco::tasks::{linear, relu};

maco::task_set! { ops: linear<bf16>, relu<f32, i8> }

maco::task_set! { names: linear<half> }

maco::task_set! { nothing: }

fn main() {}
