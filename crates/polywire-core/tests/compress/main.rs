//! Compressors: one suite for all of them, the examples of `spec/compress.md`, other
//! implementations.

mod oracles;
mod spec;
mod suite;
