//! The hot loops of the formats: number text, tokenisers, bytes as text. Codecs build their kernels from them.
//!
//! They work on [`Input`](super::Input) and [`Output`](super::Output), whose bytes they may touch without bounds checks where the code says
//! why that is safe. None panics on any bytes.

pub mod base64;
pub mod float;
pub mod json;
pub mod number;
pub mod scan;
