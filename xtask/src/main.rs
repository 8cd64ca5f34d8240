//! The one door of the repository.

fn main() {}
