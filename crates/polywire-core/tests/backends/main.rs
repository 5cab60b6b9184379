//! The interpreter and machine code produce the same bytes, values, and errors, under every codec.

mod branches;
mod changes;
mod derived;
mod direct;
mod error_words;
mod foreign;
mod foreign_codecs;
mod foreign_state;
mod left_out;
mod random;
mod random_state;
mod recursion;
