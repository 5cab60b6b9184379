//! Request and reply, as DDS-RPC 1.0 and the services of ROS 2 have them: the topics of a service,
//! and what travels with a request and a reply beside the value. `spec/services.md` defines the
//! bytes. Nothing here reads a clock; the crate `polywire` makes the calls.
//!
//! ```
//! use polywire_core::{envelope::Id128, rpc::{self, RemoteCode, RemoteError, ReplyHeader, Role, SampleIdentity}};
//!
//! assert_eq!(rpc::request_topic("plant/add"), "rq/plant/addRequest");
//! assert_eq!(rpc::reply_topic("plant/add"), "rr/plant/addReply");
//! assert_eq!(rpc::service_of("rr/plant/addReply"), Some(("plant/add", Role::Reply)));
//! assert_eq!(rpc::service_of("plant/add"), None);
//!
//! let request = SampleIdentity { writer: Id128([7; 16]), sequence: 300 };
//! let error = RemoteError::new(RemoteCode::Failed, "no such pump");
//! assert_eq!(error.to_string(), "no such pump");
//! let header = ReplyHeader { request, error: Some(error) };
//! let extensions = header.to_extensions();
//! assert_eq!(ReplyHeader::request_of(extensions.as_extensions()), Some(request));
//! assert_eq!(ReplyHeader::parse(extensions.as_extensions()), Some(header));
//! ```

use alloc::{format, string::String, vec::Vec};
use core::fmt;

use crate::{
    envelope::{Extensions, ExtensionsBuf, Id128},
    frame::varint,
};

/// On requests: the sequence number of a request that is cancelled. Must be understood: such a
/// message has no value.
const CANCELS: u32 = 3;
/// On requests: the server that is meant, by the writer of its replies.
const TO: u32 = 4;
/// On replies: the reply is an error. Must be understood: such a message has no value.
const ERROR: u32 = 5;
/// On replies: the request.
const REQUEST: u32 = 6;

/// The extensions of requests and replies that must be understood, and are.
pub const EXTENSIONS: &[u32] = &[CANCELS, ERROR];

/// Longest text of an error, in bytes. Longer ones are cut.
pub const MAX_ERROR_BYTES: usize = 768;

/// Identifies a sample: its writer and its sequence number. A reply names its request so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleIdentity {
    /// The writer.
    pub writer: Id128,
    /// The writer's sequence number of the sample.
    pub sequence: u64,
}

/// Which of a service's topics a topic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Clients publish requests.
    Request,
    /// Servers publish replies.
    Reply,
}

/// The topic on which clients publish their requests.
pub fn request_topic(service: &str) -> String {
    format!("rq/{service}Request")
}

/// The topic on which servers publish their replies.
pub fn reply_topic(service: &str) -> String {
    format!("rr/{service}Reply")
}

/// The service that a topic belongs to, and which of its topics it is. `None` for other topics.
pub fn service_of(topic: &str) -> Option<(&str, Role)> {
    let of = |prefix, suffix| topic.strip_prefix(prefix)?.strip_suffix(suffix);
    let request = of("rq/", "Request").map(|service| (service, Role::Request));
    request.or_else(|| of("rr/", "Reply").map(|service| (service, Role::Reply)))
}

/// What a request carries beside its value.
///
/// ```
/// use polywire_core::{envelope::Id128, rpc::RequestHeader};
/// let header = RequestHeader { to: Some(Id128([7; 16])), cancels: None };
/// assert_eq!(RequestHeader::parse(header.to_extensions().as_extensions()), Some(header));
/// assert!(RequestHeader::default().to_extensions().as_extensions().is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// The server that is to answer, by the writer of its replies; `None` for all servers.
    pub to: Option<Id128>,
    /// The message has no value: it cancels the request with this sequence number.
    pub cancels: Option<u64>,
}

impl RequestHeader {
    /// The extensions that travel.
    pub fn to_extensions(&self) -> ExtensionsBuf {
        let mut all = ExtensionsBuf::default();
        if let Some(server) = &self.to {
            all.push(TO, &server.0);
        }
        if let Some(sequence) = self.cancels {
            let mut value = Vec::new();
            varint::put(&mut value, sequence);
            all.push(CANCELS, &value);
        }
        all
    }

    /// Reads extensions. `None` if one of these has no valid value.
    pub fn parse(extensions: Extensions<'_>) -> Option<RequestHeader> {
        let mut header = RequestHeader::default();
        for (id, value) in extensions.iter() {
            match id {
                TO => header.to = Some(Id128(value.try_into().ok()?)),
                CANCELS => header.cancels = Some(number(value)?),
                _ => {}
            }
        }
        Some(header)
    }
}

/// What a reply carries beside its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The request.
    pub request: SampleIdentity,
    /// Why there is no value.
    pub error: Option<RemoteError>,
}

impl ReplyHeader {
    /// The extensions that travel.
    pub fn to_extensions(&self) -> ExtensionsBuf {
        let (mut all, mut request) = (ExtensionsBuf::default(), self.request.writer.0.to_vec());
        varint::put(&mut request, self.request.sequence);
        all.push(REQUEST, &request);
        if let Some(RemoteError { code, text }) = &self.error {
            let mut value = Vec::from([*code as u8]);
            value.extend_from_slice(text.as_bytes());
            all.push(ERROR, &value);
        }
        all
    }

    /// The request that a reply names, without reading the rest. `None` if it names none.
    pub fn request_of(extensions: Extensions<'_>) -> Option<SampleIdentity> {
        let (_, value) = extensions.iter().find(|(id, _)| *id == REQUEST)?;
        let (writer, sequence) = value.split_at_checked(16)?;
        Some(SampleIdentity { writer: Id128(writer.try_into().ok()?), sequence: number(sequence)? })
    }

    /// Reads extensions. `None` if they name no request, or an error is malformed.
    pub fn parse(extensions: Extensions<'_>) -> Option<ReplyHeader> {
        let request = ReplyHeader::request_of(extensions)?;
        let error = extensions.iter().find(|(id, _)| *id == ERROR);
        let error = error.map(|(_, value)| RemoteError::parse(value).ok_or(())).transpose().ok()?;
        Some(ReplyHeader { request, error })
    }
}

/// Why a server has no value to reply with.
///
/// ```
/// use polywire_core::rpc::{MAX_ERROR_BYTES, RemoteCode, RemoteError};
/// let long = RemoteError::new(RemoteCode::Failed, &"ä".repeat(10_000));
/// assert_eq!(long.text.len(), MAX_ERROR_BYTES);
/// assert_eq!(RemoteError::new(RemoteCode::Busy, "").to_string(), "the server is busy");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteError {
    /// The kind of error.
    pub code: RemoteCode,
    /// The reason, for people.
    pub text: String,
}

/// The kinds of errors, with the numbers of DDS-RPC 1.0 (`RemoteExceptionCode_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RemoteCode {
    /// The server does not do this.
    Unsupported = 1,
    /// The server cannot read the request.
    InvalidArgument = 2,
    /// The server has as many requests as it takes at a time.
    Busy = 3,
    /// The operation does not exist.
    UnknownOperation = 4,
    /// The application failed.
    Failed = 5,
}

impl RemoteCode {
    const ALL: [RemoteCode; 5] = [
        RemoteCode::Unsupported,
        RemoteCode::InvalidArgument,
        RemoteCode::Busy,
        RemoteCode::UnknownOperation,
        RemoteCode::Failed,
    ];

    /// The kind with this number.
    ///
    /// ```
    /// use polywire_core::rpc::RemoteCode;
    /// assert_eq!([RemoteCode::of(3), RemoteCode::of(99)], [Some(RemoteCode::Busy), None]);
    /// ```
    pub fn of(number: u8) -> Option<RemoteCode> {
        RemoteCode::ALL.into_iter().find(|known| *known as u8 == number)
    }

    fn meaning(self) -> &'static str {
        match self {
            RemoteCode::Unsupported => "the server does not support this",
            RemoteCode::InvalidArgument => "the server cannot read the request",
            RemoteCode::Busy => "the server is busy",
            RemoteCode::UnknownOperation => "the operation does not exist",
            RemoteCode::Failed => "the server failed",
        }
    }
}

impl RemoteError {
    /// An error with a text, which is cut to [`MAX_ERROR_BYTES`].
    pub fn new(code: RemoteCode, text: &str) -> RemoteError {
        RemoteError { code, text: text[..text.floor_char_boundary(MAX_ERROR_BYTES)].into() }
    }

    fn parse(value: &[u8]) -> Option<RemoteError> {
        let (code, text) = value.split_first()?;
        Some(RemoteError { code: RemoteCode::of(*code)?, text: core::str::from_utf8(text).ok()?.into() })
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.text.is_empty() { self.code.meaning() } else { &self.text })
    }
}

fn number(value: &[u8]) -> Option<u64> {
    let (number, rest) = varint::split(value)?;
    rest.is_empty().then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(all: &ExtensionsBuf) -> Vec<u8> {
        all.as_extensions().bytes().to_vec()
    }

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let request = RequestHeader { to: Some(Id128([7; 16])), cancels: Some(300) };
        let expected = [&[4, 16][..], &[7; 16], &[3, 2, 0xac, 2]].concat();
        assert_eq!(bytes(&request.to_extensions()), expected);
        let identity = SampleIdentity { writer: Id128([7; 16]), sequence: 300 };
        let error = Some(RemoteError::new(RemoteCode::Failed, "no"));
        let expected = [&[6, 18][..], &[7; 16], &[0xac, 2, 5, 3, 5, b'n', b'o']].concat();
        assert_eq!(bytes(&ReplyHeader { request: identity, error }.to_extensions()), expected);
    }

    #[test]
    fn topics_name_their_service() {
        for service in ["a", "a/b", "Request", "Reply"] {
            assert_eq!(service_of(&request_topic(service)), Some((service, Role::Request)));
            assert_eq!(service_of(&reply_topic(service)), Some((service, Role::Reply)));
        }
        assert_eq!([service_of("rq/a"), service_of("rr/aRequest"), service_of("aReply")], [None; 3]);
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for value in [&[][..], &[1; 15], &[1; 16], &[0x80; 17], &[1; 18]] {
            let mut wrong = ExtensionsBuf::default();
            wrong.push(REQUEST, value);
            assert_eq!(ReplyHeader::parse(wrong.as_extensions()), None, "{value:?}");
        }
        let mut unknown = ReplyHeader { request: SampleIdentity::default(), error: None }.to_extensions();
        unknown.push(ERROR, &[99]);
        assert_eq!(ReplyHeader::parse(unknown.as_extensions()), None, "an unknown kind of error");
        let mut short = ExtensionsBuf::default();
        short.push(TO, &[1; 15]);
        assert_eq!(RequestHeader::parse(short.as_extensions()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(extensions) = Extensions::parse(&bytes) {
                let _ = (RequestHeader::parse(extensions), ReplyHeader::parse(extensions));
            }
        }
    }
}
