//! The end of a service for foreign applications: a queryable of a server, or a querier of a
//! client, and the form of requests and replies.

use polywire_core::{
    envelope::{Announcement, Envelope, Id128},
    rpc::SampleIdentity,
};
use zenoh::{
    bytes::Encoding,
    key_expr::OwnedKeyExpr,
    liveliness::LivelinessToken,
    query::{Querier, Queryable},
};

use super::{
    super::foreign::encoding,
    attachment,
    ros::{self, HEADER},
};

/// The end of a service for foreign applications. Dropping it ends what is declared in Zenoh.
pub(super) enum ServiceEnd {
    /// The end of a channel of replies.
    Server { key: OwnedKeyExpr, form: Form, _queryable: Queryable<()>, _token: Option<LivelinessToken> },
    /// The end of a channel of requests.
    Client { querier: Querier<'static>, form: Form, codec: String, _token: Option<LivelinessToken> },
}

/// The form of requests and replies in Zenoh.
pub(super) enum Form {
    Plain(Encoding),
    /// The form in ROS 2, with the header that the engine puts in front of payloads.
    Ros(Option<[u8; HEADER]>),
}

impl Form {
    pub(super) fn of(announced: &Announcement, is_ros: bool) -> Form {
        match is_ros {
            false => Form::Plain(Encoding::from(encoding::of(announced))),
            true => Form::Ros(ros::header(announced)),
        }
    }

    pub(super) fn encoding(&self) -> Option<Encoding> {
        match self {
            Form::Plain(encoding) => Some(encoding.clone()),
            Form::Ros(_) => None,
        }
    }

    pub(super) fn payload(&self, payload: &[u8]) -> Vec<u8> {
        match self {
            Form::Ros(Some(header)) => [header, payload].concat(),
            Form::Plain(_) | Form::Ros(None) => payload.to_vec(),
        }
    }

    /// Returns the attachment of a message. In ROS 2, the attachment of a reply names the request.
    pub(super) fn attachment(&self, writer: Id128, envelope: &Envelope<'_>, named: Option<SampleIdentity>) -> Vec<u8> {
        match (self, named) {
            (Form::Plain(_), _) => attachment::put(writer, envelope),
            (Form::Ros(_), None) => ros::attachment(writer, envelope),
            (Form::Ros(_), Some(SampleIdentity { writer, sequence })) => {
                ros::attachment(writer, &Envelope { sequence, ..*envelope })
            }
        }
    }
}
