//! The IDL compiler: what it accepts and what that means, what it refuses and in which words.

mod constants;
mod errors;
mod field;
mod includes;
mod ros;
mod schema_spec;
mod workloads;
