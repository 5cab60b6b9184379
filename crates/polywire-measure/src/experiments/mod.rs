//! Experiments whose results are pages of the documentation: the papers' ([`papers`]) and the model
//! of large systems ([`scaling`]). They use the rest of this crate as any other program could; the
//! rest does not know them.

mod page;
pub mod papers;
pub mod scaling;

pub use page::Experiment;
