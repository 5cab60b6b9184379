//! FAST 1.1.

pub mod template;
