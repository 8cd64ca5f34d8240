//! Tasks of graphs that are built at run time.

use maco::tasks;

maco::task_set! { pub built: tasks::copy<f32>, tasks::all_reduce<f32>, tasks::all_gather<f32>, tasks::reduce_scatter<f32>, tasks::linear<f32>, tasks::add<f32> }
