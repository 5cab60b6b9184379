//! `#[derive(Message)]`: what it says of a type, and what programs do to values of the type.

mod access;
mod description;
