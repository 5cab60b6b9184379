//! The part of Polywire that opens no socket, starts no thread and reads no clock: everything here
//! is a function of its inputs.
//!
//! `no_std` with `alloc` when the features `std` and `jit` are off.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;
// Derived code names this crate from the root, also in its own tests.
#[cfg(test)]
extern crate self as polywire_core;

pub mod codec;
pub mod compress;
pub mod envelope;
pub mod frame;
pub mod framing;
pub mod layout;
#[cfg(feature = "std")]
pub mod netsim;
pub mod program;
pub mod schema;
pub mod session;
