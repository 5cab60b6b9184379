//! The part of Polywire that opens no socket, starts no thread and reads no clock: everything here
//! is a function of its inputs.
//!
//! | you write | read |
//! |---|---|
//! | an application | the crate `polywire`, which re-exports what it needs of this one |
//! | a codec | [`codec`], [`codec::lower`] and [`program`]: a codec turns a schema and a layout into a program |
//! | a compressor | [`compress`] |
//! | an engine | [`envelope`] and [`frame`]; `netsim` to test it on an emulated link |
//! | a tool for types, recordings or foreign files | [`schema`], [`layout`], [`framing`] |
//!
//! ```
//! use polywire_core::codec::{self, Decoder, Encoder, Options};
//!
//! #[derive(Debug, Default, PartialEq, polywire_derive::Message)]
//! struct Pump { id: u32, pressure_bar: f64 }
//!
//! let (json, options) = (codec::find("json").unwrap(), Options::default());
//! let encoder = Encoder::<Pump>::new(json, &options)?;
//! let mut bytes = Vec::new();
//! encoder.encode(&Pump { id: 7, pressure_bar: 2.5 }, &mut bytes)?;
//! assert_eq!(bytes, br#"{"id":7,"pressure_bar":2.5}"#);
//!
//! let decoder = Decoder::<Pump>::new(json, &options, encoder.schema())?;
//! let mut pump = Pump::default();
//! decoder.decode(&bytes, &mut pump)?;
//! assert_eq!(pump, Pump { id: 7, pressure_bar: 2.5 });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `no_std` with `alloc` when the features `std` and `jit` are off.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;
// Derived code names this crate from the root, also in its own tests.
#[cfg(test)]
extern crate self as polywire_core;

pub mod codec;
pub mod compress;
pub mod directory;
pub mod envelope;
pub mod frame;
pub mod framing;
pub mod layout;
pub mod multicast;
#[cfg(feature = "std")]
pub mod netsim;
pub mod program;
pub mod qos;
pub mod ros;
pub mod rpc;
pub mod schema;
pub mod session;
pub mod topic;
