//! Requests and replies in the form of other systems' services, which put an identifier of the
//! request in front of the value. In the middleware of ROS 2 on Cyclone DDS, it is a tag of 16
//! bytes, which servers send back unchanged. In DDS-RPC, it is a header ([`super::rpc`]).
//!
//! These forms have no field for what Polywire's own services send beside the value: which server
//! is meant, cancellations, and, in ROS 2, errors.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use polywire_core::{
    envelope::{Announcement, Envelope, Id128, Kind},
    rpc::{self, RemoteCode, RemoteError, ReplyHeader, RequestHeader, Role, SampleIdentity},
    schema::Schema,
};

use super::{
    super::Aligned,
    dispatch::SampleRoute,
    form::Form,
    rpc::{Header, Wrapper},
    state::{Channel, Shared},
};

/// Identifies a request: eight bytes of its client's id, and its number.
pub(super) type Tag = [u8; 16];

/// The length of an encapsulation header, which is in front of the tag.
const HEADER: usize = 4;

/// The maximum number of unanswered requests whose identifiers are kept. The oldest are forgotten
/// first.
const MAX_PENDING: usize = 4096;

/// The identifier of a request in the samples of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestId {
    Tag(Tag),
    Identity(SampleIdentity),
}

/// How the samples of a service's topic identify requests.
pub(super) enum RequestIdCodec {
    /// By a tag, as in ROS 2.
    Tagged(Role),
    /// By a header, as in DDS-RPC.
    Wrapped(Box<Wrapper>),
}

impl RequestIdCodec {
    /// Returns how a channel of this form identifies requests. `None` if its samples belong to no
    /// service. The error is for people.
    pub(super) fn new(
        is_wrapped: bool,
        form: Form,
        announcement: &Announcement,
        value: Option<&Schema>,
    ) -> Option<Result<RequestIdCodec, String>> {
        let (_, role) = rpc::service_of(&announcement.topic)?;
        if !matches!(form, Form::Native { .. }) {
            return None;
        }
        if !is_wrapped {
            return Some(Ok(RequestIdCodec::Tagged(role)));
        }
        let value = value.ok_or_else(|| "the type of its values is not known".to_owned());
        Some(value.and_then(|value| Wrapper::new(role, announcement, value)).map(Box::new).map(RequestIdCodec::Wrapped))
    }

    pub(super) fn role(&self) -> Role {
        match self {
            RequestIdCodec::Tagged(role) => *role,
            RequestIdCodec::Wrapped(wrapper) => wrapper.role,
        }
    }

    /// Returns the payload of a sample for a message that a client or server of this node sends.
    /// `None` for messages that the service has no form for.
    pub(super) fn wrap(
        &self,
        pending: &Mutex<Pending>,
        channel: &Channel,
        envelope: &Envelope<'_>,
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        let (id, error) = match self.role() {
            Role::Request => (has_place(envelope).then(|| self.own(channel, envelope.sequence))?, None),
            Role::Reply => pending.lock().answer(envelope)?,
        };
        match (self, id) {
            (RequestIdCodec::Tagged(_), RequestId::Tag(tag)) if error.is_none() => {
                Some(tagged(payload, channel.form.has_header(), &tag))
            }
            (RequestIdCodec::Wrapped(wrapper), RequestId::Identity(request)) => {
                let exception = error.map_or(0, |error| error.code as u32);
                let wrapped = wrapper.wrap(Header { request, exception }, payload);
                let topic = &channel.topic;
                wrapped.inspect_err(|reason| log::warn!("a message of '{topic}' is not sent: {reason}")).ok()
            }
            _ => None,
        }
    }

    /// Returns the identifier of a request of this node.
    fn own(&self, channel: &Channel, sequence: u64) -> RequestId {
        match self {
            RequestIdCodec::Tagged(_) => RequestId::Tag(own(channel.announcement.writer, sequence)),
            RequestIdCodec::Wrapped(_) => {
                RequestId::Identity(SampleIdentity { writer: Id128(channel.writer.guid().0), sequence })
            }
        }
    }

    /// Returns the number of the request of this channel that a reply identifies. `None` if it
    /// identifies another channel's request.
    fn sequence_of(&self, id: &RequestId, channel: &Channel) -> Option<u64> {
        let sequence = match id {
            RequestId::Tag(tag) => number_in(tag),
            RequestId::Identity(request) => request.sequence,
        };
        (self.role() == Role::Request && self.own(channel, sequence) == *id).then_some(sequence)
    }

    /// Passes a peer's sample on to the node, as a request or a reply.
    pub(super) fn deliver(&self, shared: &Shared, route: &SampleRoute, envelope: &Envelope<'_>, sample: &[u8]) {
        let SampleRoute { link, announcement, form, .. } = route;
        let (id, error, value) = match self.unwrap_sample(*form, sample) {
            Ok(unwrapped) => unwrapped,
            Err(reason) => {
                log::debug!("{}: a sample of '{}' is ignored: {reason}", shared.endpoint, announcement.topic);
                return link.sink.undecodable(route.channel, envelope.sequence, &reason);
            }
        };
        let mut aligned = Aligned::default();
        match self.role() {
            Role::Request => {
                let request = SampleIdentity { writer: announcement.writer, sequence: envelope.sequence };
                shared.pending.lock().note(request, id);
                link.sink.message(&Envelope { kind: Kind::Request, ..*envelope }, aligned.place(&value));
            }
            Role::Reply => {
                let request_of = |channel: &Arc<Channel>| {
                    let sequence = channel.id_codec.as_ref()?.sequence_of(&id, channel)?;
                    Some(SampleIdentity { writer: channel.announcement.writer, sequence })
                };
                // The reply may be for another client of the service.
                let Some(request) = shared.state.lock().channels.values().find_map(request_of) else { return };
                let header = ReplyHeader { request, error }.to_extensions();
                let envelope = Envelope { kind: Kind::Reply, extensions: header.as_extensions(), ..*envelope };
                link.sink.message(&envelope, aligned.place(&value));
            }
        }
    }

    /// Returns the identifier of the request in a sample, and the error or the value in it. The
    /// error of this function is for people.
    fn unwrap_sample(&self, form: Form, sample: &[u8]) -> Result<(RequestId, Option<RemoteError>, Vec<u8>), String> {
        match self {
            RequestIdCodec::Tagged(_) => {
                let (tag, value) = untagged(sample, form.has_header()).ok_or("it is too short")?;
                Ok((RequestId::Tag(tag), None, value))
            }
            RequestIdCodec::Wrapped(wrapper) => {
                let (Header { request, exception }, value) = wrapper.unwrap(sample)?;
                let code = || u8::try_from(exception).ok().and_then(RemoteCode::of).unwrap_or(RemoteCode::Failed);
                let error = (exception != 0).then(|| RemoteError::new(code(), ""));
                Ok((RequestId::Identity(request), error, value))
            }
        }
    }
}

/// Checks whether services of other systems have a form for a client's message.
fn has_place(envelope: &Envelope<'_>) -> bool {
    let header = RequestHeader::parse(envelope.extensions);
    envelope.kind == Kind::Request && header.is_some_and(|header| header.cancels.is_none())
}

/// The identifiers of requests that have not been answered.
#[derive(Default)]
pub(super) struct Pending {
    ids: BTreeMap<SampleIdentity, RequestId>,
    order: VecDeque<SampleIdentity>,
}

impl Pending {
    pub(super) fn note(&mut self, request: SampleIdentity, id: RequestId) {
        if self.ids.insert(request, id).is_none() {
            self.order.push_back(request);
        }
        if self.order.len() > MAX_PENDING {
            self.order.pop_front().map(|oldest| self.ids.remove(&oldest));
        }
    }

    /// Takes the identifier of the request that a reply answers, and returns it with the error in
    /// the reply. `None` if the request is not pending.
    fn answer(&mut self, envelope: &Envelope<'_>) -> Option<(RequestId, Option<RemoteError>)> {
        let ReplyHeader { request, error } = ReplyHeader::parse(envelope.extensions)?;
        let id = self.ids.remove(&request)?;
        self.order.retain(|other| *other != request);
        Some((id, error))
    }
}

fn own(writer: Id128, sequence: u64) -> Tag {
    let mut tag = [0; 16];
    let (client, number) = tag.split_at_mut(8);
    client.copy_from_slice(&writer.0[8..]);
    number.copy_from_slice(&sequence.to_le_bytes());
    tag
}

/// Returns the number of the request in a tag that [`own`] has made.
fn number_in(tag: &Tag) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = *tag;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// Puts a tag in front of the value in a payload.
pub(super) fn tagged(payload: &[u8], has_header: bool, tag: &Tag) -> Vec<u8> {
    let (header, value) = payload.split_at(if has_header { HEADER.min(payload.len()) } else { 0 });
    [header, tag, value].concat()
}

/// Returns the tag of a payload, and the payload without it. `None` if it is too short.
pub(super) fn untagged(payload: &[u8], has_header: bool) -> Option<(Tag, Vec<u8>)> {
    let (header, rest) = payload.split_at_checked(if has_header { HEADER } else { 0 })?;
    let (tag, value) = rest.split_first_chunk()?;
    Some((*tag, [header, value].concat()))
}

#[cfg(test)]
mod tests {
    use polywire_core::envelope::ChannelId;

    use super::*;

    const CLIENT: Id128 = Id128([7; 16]);

    #[test]
    fn tags_come_back() {
        for has_header in [false, true] {
            let payload = b"\0\x01\0\0value";
            let tag = own(CLIENT, 300);
            let sample = tagged(payload, has_header, &tag);
            assert_eq!(untagged(&sample, has_header), Some((tag, payload.to_vec())));
            assert_eq!(sample.len(), payload.len() + 16);
            assert_eq!(untagged(&sample[..15], has_header), None);
        }
        assert_eq!(number_in(&own(CLIENT, 300)), 300);
    }

    #[test]
    fn what_others_have_no_place_for_is_not_sent() {
        let mut pending = Pending::default();
        let request = SampleIdentity { writer: CLIENT, sequence: 5 };
        let plain = Envelope { kind: Kind::Request, ..Envelope::data(ChannelId(1), 5, 0) };
        assert!(has_place(&plain));
        let cancels = RequestHeader { to: None, cancels: Some(4) }.to_extensions();
        assert!(!has_place(&Envelope { extensions: cancels.as_extensions(), ..plain }));
        for error in [None, Some(RemoteError::new(RemoteCode::Failed, "no"))] {
            let reply = ReplyHeader { request, error: error.clone() }.to_extensions();
            let reply = Envelope { kind: Kind::Reply, extensions: reply.as_extensions(), ..plain };
            assert_eq!(pending.answer(&reply), None, "nobody has asked");
            pending.note(request, RequestId::Tag([3; 16]));
            assert_eq!((pending.answer(&reply), pending.order.len()), (Some((RequestId::Tag([3; 16]), error)), 0));
        }
    }

    #[test]
    fn the_oldest_requests_are_forgotten() {
        let mut pending = Pending::default();
        for sequence in 0..2 * MAX_PENDING as u64 {
            pending.note(SampleIdentity { writer: CLIENT, sequence }, RequestId::Tag([1; 16]));
        }
        assert_eq!((pending.ids.len(), pending.order.len()), (MAX_PENDING, MAX_PENDING));
        assert!(!pending.ids.contains_key(&SampleIdentity { writer: CLIENT, sequence: 0 }));
    }
}
