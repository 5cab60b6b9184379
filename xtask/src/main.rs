//! Chores of the workspace: the tests of this crate hold rules that the compiler does not check.

fn main() {}
