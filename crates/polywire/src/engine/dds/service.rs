//! Requests and replies as services of ROS 2, as its middleware on Cyclone DDS has them: a tag of
//! 16 bytes stands in front of the value and names the request. Servers send it back as it came.
//!
//! There is no place for what our own services have beside the value: which server is meant,
//! cancellations, and errors.

use std::collections::{BTreeMap, VecDeque};

use polywire_core::{
    envelope::{Envelope, Id128, Kind},
    rpc::{self, ReplyHeader, RequestHeader, Role, SampleIdentity},
};

use super::form::Form;

/// Names a request: eight bytes of its client, and its number.
pub(super) type Tag = [u8; 16];

/// The bytes of an encapsulation header, which stand in front of the tag.
const HEADER: usize = 4;

/// Most requests whose tags are kept until they are answered. The oldest are forgotten first.
const MOST: usize = 4096;

/// Which end of a service a channel is, if its samples are tagged.
pub(super) fn role_of(form: Form, topic: &str) -> Option<Role> {
    let (_, role) = rpc::service_of(topic)?;
    matches!(form, Form::Native { .. }).then_some(role)
}

/// The tags of requests that have not been answered.
#[derive(Default)]
pub(super) struct Pending {
    tags: BTreeMap<SampleIdentity, Tag>,
    order: VecDeque<SampleIdentity>,
}

impl Pending {
    pub(super) fn note(&mut self, request: SampleIdentity, tag: Tag) {
        if self.tags.insert(request, tag).is_none() {
            self.order.push_back(request);
        }
        if self.order.len() > MOST {
            self.order.pop_front().map(|oldest| self.tags.remove(&oldest));
        }
    }

    /// The tag of a message that a client or server of this node sends. `None` for those that ROS 2
    /// has no place for.
    pub(super) fn tag(&mut self, role: Role, writer: Id128, envelope: &Envelope<'_>) -> Option<Tag> {
        match role {
            Role::Request => {
                let header = RequestHeader::parse(envelope.extensions)?;
                (envelope.kind == Kind::Request && header.cancels.is_none()).then(|| own(writer, envelope.sequence))
            }
            Role::Reply => {
                let ReplyHeader { request, error } = ReplyHeader::parse(envelope.extensions)?;
                let tag = self.tags.remove(&request)?;
                self.order.retain(|other| *other != request);
                error.is_none().then_some(tag)
            }
        }
    }
}

fn own(writer: Id128, sequence: u64) -> Tag {
    let mut tag = [0; 16];
    let (client, number) = tag.split_at_mut(8);
    client.copy_from_slice(&writer.0[8..]);
    number.copy_from_slice(&sequence.to_le_bytes());
    tag
}

/// The number of the request of this writer that a tag names. `None` if it names another's.
pub(super) fn sequence_of(tag: &Tag, writer: Id128) -> Option<u64> {
    let (_, number) = tag.split_last_chunk()?;
    let sequence = u64::from_le_bytes(*number);
    (own(writer, sequence) == *tag).then_some(sequence)
}

/// A payload with a tag in front of the value.
pub(super) fn tagged(payload: &[u8], has_header: bool, tag: &Tag) -> Vec<u8> {
    let (header, value) = payload.split_at(if has_header { HEADER.min(payload.len()) } else { 0 });
    [header, tag, value].concat()
}

/// The tag of a payload, and the payload without it. `None` if it is too short.
pub(super) fn untagged(payload: &[u8], has_header: bool) -> Option<(Tag, Vec<u8>)> {
    let (header, rest) = payload.split_at_checked(if has_header { HEADER } else { 0 })?;
    let (tag, value) = rest.split_first_chunk()?;
    Some((*tag, [header, value].concat()))
}

#[cfg(test)]
mod tests {
    use polywire_core::{
        envelope::ChannelId,
        rpc::{RemoteCode, RemoteError},
    };

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
        assert_eq!(sequence_of(&own(CLIENT, 300), CLIENT), Some(300));
        assert_eq!(sequence_of(&own(CLIENT, 300), Id128([8; 16])), None);
    }

    #[test]
    fn what_ros_has_no_place_for_is_not_sent() {
        let mut pending = Pending::default();
        let request = SampleIdentity { writer: CLIENT, sequence: 5 };
        let plain = Envelope { kind: Kind::Request, ..Envelope::data(ChannelId(1), 5, 0) };
        assert_eq!(pending.tag(Role::Request, CLIENT, &plain), Some(own(CLIENT, 5)));
        let cancels = RequestHeader { to: None, cancels: Some(4) }.to_extensions();
        let cancels = Envelope { extensions: cancels.as_extensions(), ..plain };
        assert_eq!(pending.tag(Role::Request, CLIENT, &cancels), None);
        for error in [None, Some(RemoteError::new(RemoteCode::Failed, "no"))] {
            let reply = ReplyHeader { request, error: error.clone() }.to_extensions();
            let reply = Envelope { kind: Kind::Reply, extensions: reply.as_extensions(), ..plain };
            assert_eq!(pending.tag(Role::Reply, Id128([9; 16]), &reply), None, "nobody has asked");
            pending.note(request, [3; 16]);
            let tag = pending.tag(Role::Reply, Id128([9; 16]), &reply);
            assert_eq!((tag, pending.order.len()), (error.is_none().then_some([3; 16]), 0));
        }
    }

    #[test]
    fn the_oldest_requests_are_forgotten() {
        let mut pending = Pending::default();
        for sequence in 0..2 * MOST as u64 {
            pending.note(SampleIdentity { writer: CLIENT, sequence }, [1; 16]);
        }
        assert_eq!((pending.tags.len(), pending.order.len()), (MOST, MOST));
        assert!(!pending.tags.contains_key(&SampleIdentity { writer: CLIENT, sequence: 0 }));
    }
}
