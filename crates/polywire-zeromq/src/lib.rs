#![cfg_attr(feature = "libzmq", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "libzmq"), doc = "Empty without the feature `libzmq`.")]
#![cfg(feature = "libzmq")]

mod context;
mod error;
mod message;
mod monitor;
mod raw;
mod socket;
mod wait;

pub use context::Context;
pub use error::Error;
pub use message::Message;
pub use monitor::{ConnectionEvent, Monitor};
pub use socket::{Kind, Socket};
pub use wait::{Wait, Waited, wait};
