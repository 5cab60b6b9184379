//! Typed publish/subscribe in which the wire is a run-time choice.

pub mod coding;
pub mod config;
pub mod engine;
pub mod events;
pub mod node;
pub mod publisher;
mod queue;
pub mod subscriber;
mod suggest;
pub mod wire;

pub use config::Config;
pub use events::{Events, NodeEvent};
pub use node::{Node, NodeError};
pub use publisher::{BytesPublisher, DynPublisher, PublishError, Publisher, PublisherOf};
pub use subscriber::{DynSubscriber, Info, Sample, Subscribe, Subscriber, Subscription};
pub use wire::Wire;
