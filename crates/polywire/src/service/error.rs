//! Why a call has no reply.

use polywire_core::{envelope::Id128, rpc::RemoteError};

use crate::{access::DENIED, publisher::PublishError};

/// Why a call has no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Nobody serves the service at this endpoint.
    #[error("nobody serves it")]
    NoServer,
    /// No reply arrived in time. The server may still be working on the request; it is informed
    /// that nobody waits.
    #[error("no reply in time")]
    TimedOut,
    /// The server was present when the request was sent, and is gone: it closed or died, or its
    /// link broke. It may have executed the request.
    #[error("server {server} has gone")]
    ServerGone {
        /// The server, by the writer of its replies.
        server: Id128,
    },
    /// The types of client and server do not match, or their quality of service does not.
    #[error("client and server do not match: {reason}")]
    Refused {
        /// Which type or policy, and why.
        reason: String,
    },
    /// The rules of access of one of the nodes do not allow the call: [`access`](crate::access).
    #[error("{reason}")]
    Denied {
        /// Which peer may not do what.
        reason: String,
    },
    /// The server replied with an error.
    #[error("{0}")]
    Remote(RemoteError),
    /// A reply arrived that cannot be decoded.
    #[error("cannot read the reply: {reason}")]
    Undecodable {
        /// What is wrong with the reply.
        reason: String,
    },
    /// The client has reached its limit of calls under way: [`ClientBuilder::pending`].
    ///
    /// [`ClientBuilder::pending`]: super::ClientBuilder::pending
    #[error("{limit} calls are under way already")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The request cannot be sent.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The client or its node has closed.
    #[error("the client has closed")]
    Closed,
}

impl CallError {
    /// The error for a reason that the peer or this node gave for refusing a channel.
    pub(super) fn refused(reason: String) -> CallError {
        match reason.starts_with(DENIED) {
            true => CallError::Denied { reason },
            false => CallError::Refused { reason },
        }
    }
}
