//! The IDL compiler: accepted files and their schemas, refused files and their diagnostics.

mod constants;
mod errors;
mod field;
mod includes;
mod operations;
mod ros;
mod ros_hashes;
mod schema_spec;
mod workloads;
