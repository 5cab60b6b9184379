//! Experiments that write pages of `docs/`: repetitions of the papers' experiments ([`papers`]) and
//! the costs of large systems ([`scaling`]). `polywire bench papers` and `polywire bench scaling`
//! run them. They use only public items of the rest of this crate, which does not use them.

mod page;
pub mod papers;
pub mod scaling;

pub use page::Experiment;
