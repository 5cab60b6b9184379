//! `#[derive(Message)]`: its description of a type, and the access of programs to values of the
//! type.

mod access;
mod description;
