//! Typed publish/subscribe in which the wire is a run-time choice.
//!
//! Define a type once. One string per topic, its *wire*, chooses the format, the compression and
//! the engine. All three can change while the system runs ([`PublisherOf::set_wire`]). Writers and
//! readers may have different versions of the type.
//!
//! ```
//! use std::time::Duration;
//! use polywire::{Message, Node};
//!
//! #[derive(Clone, Debug, Default, PartialEq, Message)]
//! #[polywire(name = "Plant::Pump")]
//! struct Pump { #[polywire(key)] id: u32, pressure_bar: f64 }
//!
//! /// The type as software two versions older has it.
//! #[derive(Clone, Debug, Default, PartialEq, Message)]
//! #[polywire(name = "Plant::Pump")]
//! struct OldPump { pressure_bar: f64, #[polywire(key)] id: u32 }
//!
//! let node = Node::new();
//! let pumps = node.subscriber_on::<OldPump>("pumps", "cdr@inproc/plant")?;
//! let publisher = node.publisher_on::<Pump>("pumps", "cdr@inproc/plant")?;
//! publisher.publish(&Pump { id: 7, pressure_bar: 2.5 })?;
//! publisher.set_wire("json")?;
//! publisher.publish(&Pump { id: 8, pressure_bar: 3.5 })?;
//!
//! for (id, pressure_bar) in [(7, 2.5), (8, 3.5)] {
//!     let sample = pumps.recv_timeout(Duration::from_secs(10)).expect("it was published");
//!     assert_eq!(sample.value, OldPump { id, pressure_bar });
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who needs what
//!
//! **Applications** need this page: a [`Node`] makes a [`Publisher`] or a [`Subscriber`] of a topic
//! for a type that derives [`Message`], or for [`Record`]s of a type known at run time
//! ([`coding::Dynamic`]). A [`Wire`] says how the topic travels, a [`Config`] has wires and queue
//! policies for all topics ([`config`] shows the file), and [`Subscribe`] and [`Publish`] have the
//! options of one subscriber or publisher, such as its quality of service ([`qos`]).
//! [`NodeEvent`], [`PublisherStatus`] and [`SubscriberStatus`] report connections, losses,
//! incompatible types and quality of service that is not offered or not kept. The errors are
//! [`NodeError`] for opening, [`PublishError`] for publishing, and [`ConfigError`].
//! [`codec::Encoder`] and [`codec::Decoder`] encode and decode without a node; [`schema`] has types
//! as data, and checks whether one version of a type can read another.
//!
//! **Authors of engines** need [`engine`], and [`engine::stream`] if the engine has byte streams.
//!
//! **Authors of codecs and compressors** need [`extend`].
//!
//! # Log
//!
//! Every event of a node goes to the `log` crate's logger as well as to [`Node::events`]. The log's
//! targets begin with `polywire`. Cranelift, which compiles machine code, logs a line for each
//! function that it compiles, under the target `cranelift_jit`. `RUST_LOG=info,cranelift_jit=warn`
//! suppresses these lines.
//!
//! # Spans
//!
//! With the feature `tracing`, a node opens spans of the crate `tracing`, under the target
//! `polywire`. `examples/spans.rs` prints them. If no subscriber of `tracing` collects spans, each
//! span costs one comparison.
//!
//! | span | level | what | fields |
//! |---|---|---|---|
//! | `connect` | debug | a link is established, and both ends announce their channels | `wire` (the endpoint), `peer`, `address` |
//! | `negotiate` | debug | the subscribers decide whether they accept a writer's channel | `topic`, `wire`, `writer`, `address` |
//! | `publish` | trace | a message is encoded and sent | `topic`, `wire`, `writer`, `sequence` |
//! | `deliver` | trace | a message is decoded and handed to its subscribers; inline callbacks run | `topic`, `wire`, `writer`, `sequence` |
//! | `call` | debug | from the request to the reply, or to the end of the call | `topic` (the service), `wire`, `writer`, `sequence` |
//! | `serve` | debug | from the arrival of a request to its answer | `topic` (the service), `wire`, `writer`, `sequence` |

pub mod access;
mod async_publisher;
pub mod bridge;
mod builtin;
mod chosen;
mod clock;
pub mod coding;
mod compile;
pub mod config;
mod delta;
mod description;
pub mod directory;
pub mod engine;
mod error;
mod events;
pub mod extend;
mod history;
mod liveliness;
pub mod metrics;
pub mod node;
mod offered;
mod packing;
mod publisher;
pub mod qos;
mod queue;
mod replayed;
pub mod service;
mod spans;
pub mod stats;
mod status;
mod subscriber;
pub mod suggest;
mod system;
mod unwind;
pub mod wire;
mod writers;

pub use async_publisher::{AsyncPublisher, AsyncPublisherOf, Publishing, PublishingAll};
pub use bridge::{Bridge, BridgeStatus};
pub use config::{Config, ConfigError};
pub use engine::Overflow;
pub use error::NodeError;
pub use events::{Events, NodeEvent};
pub use node::{Node, NodeBuilder, NodeLimits, Source};
pub use polywire_core::{
    codec, compress,
    envelope::Kind,
    layout::{Char8, Char16, Float128, Message, Record, Shape, SharedBytes, SharedStr},
    schema::{self, Schema},
    topic::{Pattern, TopicError},
};
pub use polywire_derive::Message;
pub use publisher::{BytesPublisher, DynPublisher, Publish, PublishAllError, PublishError, Publisher, PublisherOf};
pub use status::{Mismatch, PublisherStatus, Refusal, SubscriberStatus};
pub use subscriber::{DynSubscriber, Info, Sample, Subscribe, Subscriber, Subscription};
pub use wire::{Wire, WireError};

/// For the code that `#[derive(Message)]` generates.
#[doc(hidden)]
pub use polywire_core as __private;
