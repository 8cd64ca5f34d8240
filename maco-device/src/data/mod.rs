//! What a task works on: elements, tiles, rows, its descriptor, its epilogue and its part of a split-K sum.

pub mod access;
pub mod argmax;
pub mod element;
pub mod epilogue;
pub mod exchange;
pub mod given;
pub mod inputs;
pub mod kind;
pub mod lane_pairs;
pub mod number;
pub mod operand_type;
pub mod pure;
pub mod reader;
pub mod region;
pub mod rmsnorm;
pub mod row;
pub mod split_k;
pub mod task;
pub mod tile;
pub mod tile_shape;
pub mod unaligned;
