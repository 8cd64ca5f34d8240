//! MACO.
