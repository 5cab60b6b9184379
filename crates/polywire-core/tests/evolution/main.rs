//! Readers and writers with different versions of a type, by the rules of `spec/evolution.md`.

mod matrix;
mod random;
mod same_hash;
