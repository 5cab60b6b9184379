//! The ends of services in Zenoh: a server of this node is a queryable, and a client of this node
//! queries the queryables of others. The module `services` has what the node knows of foreign
//! clients and servers.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    qos::Qos,
    rpc::{self, RemoteCode, RemoteError, Role, SampleIdentity},
};
use zenoh::{
    Wait,
    key_expr::OwnedKeyExpr,
    liveliness::LivelinessToken,
    qos::CongestionControl,
    query::{ConsolidationMode, Query, QueryTarget, Reply},
    sample::Locality,
};

use super::{
    super::foreign::{SampleEncoding, encoding},
    end::{Form, ServiceEnd},
    errors,
    outgoing::{Answering, ERROR, Put},
    port::Shared,
    ros::{self, End},
    services::{Outcome, PendingQuery},
    state::{Channel, State},
};
use crate::clock;

/// The longest time that a query waits for its reply. The clients' own time-outs are shorter.
const LONGEST: Duration = Duration::from_secs(3600);

/// The key of a service, and its liveliness token in ROS 2.
struct Place {
    key: OwnedKeyExpr,
    token: Option<String>,
}

impl Shared {
    /// Declares a queryable for a server of this node, if the channel is one of replies. Fails if
    /// the channel must be a service of ROS 2 and cannot be one.
    pub(super) fn serve(
        &self,
        channel: ChannelId,
        announced: &Announcement,
    ) -> Result<Option<Arc<ServiceEnd>>, String> {
        let of = rpc::service_of(&announced.topic).filter(|_| self.keys.are_services_open(announced));
        let Some((service, Role::Reply)) = of else { return Ok(None) };
        let requests = rpc::request_topic(service);
        let (request, reply) = (self.sink.subscribed(&requests), self.sink.document(announced.schema));
        let place = self.place_of_service(service, End::Server, channel, request.as_deref(), reply.as_deref())?;
        let (shared, is_ros) = (self.this.clone(), self.keys.is_ros());
        let queryable = self.session.declare_queryable(place.key.clone()).complete(true);
        let queryable = queryable.callback(move |query| {
            if let Some(shared) = shared.upgrade() {
                shared.query_came(&requests, is_ros, query);
            }
        });
        let queryable = queryable.wait().map_err(errors::text)?;
        let (form, token) = (Form::of(announced, is_ros), self.declare_token(place.token)?);
        Ok(Some(Arc::new(ServiceEnd::Server { key: place.key, form, _queryable: queryable, _token: token })))
    }

    fn place_of_service(
        &self,
        service: &str,
        end: End,
        channel: ChannelId,
        request: Option<&[u8]>,
        reply: Option<&[u8]>,
    ) -> Result<Place, String> {
        let none = || format!("'{service}' is no key");
        let Some(graph) = &self.graph else {
            return Ok(Place { key: self.keys.of(service).ok_or_else(none)?, token: None });
        };
        let topic = ros::Topic::of_service(service, request, reply).map_err(|unfit| unfit.to_string())?;
        let token = graph.token_of(end, channel.0, &topic, &Qos::default().keep_last(ros::DEPTH));
        Ok(Place { key: self.keys.of_ros_topic(&topic).ok_or_else(none)?, token: Some(token) })
    }

    fn declare_token(&self, token: Option<String>) -> Result<Option<LivelinessToken>, String> {
        let token = token.map(|token| self.session.liveliness().declare_token(token).wait());
        token.transpose().map_err(errors::text)
    }

    /// Handles a query to a server of this node. Called by Zenoh's threads.
    fn query_came(&self, requests: &str, is_ros: bool, query: Query) {
        let attached = query.attachment().and_then(|bytes| ros::parse_attachment(&bytes.to_bytes()));
        let (encoding, named, timestamp_ns) = match (is_ros, attached) {
            (false, _) => {
                let encoding = encoding::read(&query.encoding().map(ToString::to_string).unwrap_or_default());
                (SampleEncoding { type_name: String::new(), ..encoding }, None, clock::wall_ns())
            }
            (true, Some((writer, at))) => {
                let encoding = SampleEncoding {
                    codec: ros::CODEC.into(),
                    options: ros::WITH_HEADER.into(),
                    ..SampleEncoding::default()
                };
                (encoding, Some(SampleIdentity { writer, sequence: at.sequence }), at.timestamp_ns)
            }
            (true, None) => return log::debug!("{}: a query without an attachment of ROS 2", query.key_expr()),
        };
        let mut state = self.lock();
        if !state.is_closing {
            state.asked(requests, encoding, timestamp_ns, PendingQuery { query, named });
        }
        self.wake(state);
    }

    /// Declares queriers for the clients of a service, when the node has subscribed to the replies:
    /// the clients may call foreign servers from now on.
    pub(super) fn open_clients(&self, replies: &str) {
        let Some((service, Role::Reply)) = rpc::service_of(replies) else { return };
        let requests = rpc::request_topic(service);
        let of =
            |(_, channel): &(&ChannelId, &Channel)| channel.service.is_none() && channel.announcement.topic == requests;
        let found: Vec<(ChannelId, Arc<Announcement>)> = {
            let state = self.lock();
            state.channels.iter().filter(of).map(|(id, channel)| (*id, channel.announcement.clone())).collect()
        };
        for (channel, announced) in found.iter().filter(|(_, announced)| self.keys.are_services_open(announced)) {
            if let Err(reason) = self.open_client(service, replies, *channel, announced) {
                log::warn!("{}: '{service}' can be called at nodes alone: {reason}", self.endpoint);
            }
        }
    }

    fn open_client(
        &self,
        service: &str,
        replies: &str,
        channel: ChannelId,
        announced: &Announcement,
    ) -> Result<(), String> {
        let (request, reply) = (self.sink.document(announced.schema), self.sink.subscribed(replies));
        let place = self.place_of_service(service, End::Client, channel, request.as_deref(), reply.as_deref())?;
        let is_ros = self.keys.is_ros();
        let target = if is_ros { QueryTarget::AllComplete } else { QueryTarget::BestMatching };
        let querier = self.session.declare_querier(place.key).target(target).consolidation(ConsolidationMode::None);
        let querier = querier.congestion_control(CongestionControl::Block).express(true).timeout(LONGEST);
        let querier = querier.allowed_destination(Locality::Remote).wait().map_err(errors::text)?;
        let token = self.declare_token(place.token)?;
        let end = ServiceEnd::Client {
            querier,
            form: Form::of(announced, is_ros),
            codec: announced.codec.clone(),
            _token: token,
        };
        let (codec, options) = if is_ros { (ros::CODEC, ros::WITH_HEADER) } else { ("", "") };
        let (codec, options) = (codec.into(), options.into());
        let told = Announcement { topic: replies.into(), codec, options, ..Announcement::default() };
        let end = Arc::new(end);
        {
            let mut state = self.lock();
            let Some(open) = state.channels.get_mut(&channel) else { return Ok(()) };
            open.service = Some(end.clone());
            state.add_client(channel, announced.writer, told);
        }
        let ServiceEnd::Client { querier, .. } = &*end else { return Ok(()) };
        let shared = self.this.clone();
        let matched = move |is_there| {
            if let Some(shared) = shared.upgrade() {
                let mut state = shared.lock();
                state.matched(channel, is_there, Instant::now());
                shared.wake(state);
            }
        };
        let told = matched.clone();
        querier
            .matching_listener()
            .callback(move |status| told(status.matching()))
            .background()
            .wait()
            .map_err(errors::text)?;
        if querier.matching_status().wait().map_err(errors::text)?.matching() {
            matched(true);
        }
        Ok(())
    }

    /// Sends a request as a query. Called without a lock: the session may wait for the network.
    pub(super) fn call(
        &self,
        end: &ServiceEnd,
        channel: ChannelId,
        sequence: u64,
        attachment: Vec<u8>,
        payload: Vec<u8>,
    ) -> zenoh::Result<()> {
        let ServiceEnd::Client { querier, form, codec, .. } = end else { return Ok(()) };
        let (shared, is_answered) = (self.this.clone(), AtomicBool::new(false));
        let most = self.local.options.limits.frame_bytes;
        let call = Call { shared, channel, sequence, codec: codec.clone(), most, is_answered };
        let query = querier.get().payload(payload).attachment(attachment);
        let query = match form.encoding() {
            Some(encoding) => query.encoding(encoding),
            None => query,
        };
        query.callback(move |reply| call.replied(&reply)).wait()
    }
}

/// A query of a client that is under way. The first reply counts. If there is none when the query
/// ends, the client gets an error.
struct Call {
    shared: Weak<Shared>,
    channel: ChannelId,
    sequence: u64,
    codec: String,
    most: usize,
    is_answered: AtomicBool,
}

impl Call {
    fn replied(&self, reply: &Reply) {
        let outcome = match reply.result() {
            Ok(sample) if sample.payload().len() > self.most => {
                let text = format!("the reply has more than {} bytes", self.most);
                Err(RemoteError::new(RemoteCode::Unsupported, &text))
            }
            Ok(sample) => match encoding::read(&sample.encoding().to_string()).codec {
                codec if codec.is_empty() || codec == self.codec => Ok(sample.payload().clone()),
                codec => {
                    let text = format!("the reply is in {codec}, and the request was in {}", self.codec);
                    Err(RemoteError::new(RemoteCode::Unsupported, &text))
                }
            },
            Err(error) => Err(remote(&error.encoding().to_string(), &error.payload().to_bytes())),
        };
        self.end(outcome);
    }

    fn end(&self, outcome: Outcome) {
        if !self.is_answered.swap(true, Ordering::AcqRel)
            && let Some(shared) = self.shared.upgrade()
        {
            let mut state = shared.lock();
            state.called(self.channel, self.sequence, outcome);
            shared.wake(state);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(Err(RemoteError::new(RemoteCode::Unsupported, "nobody has answered the query")));
    }
}

/// Reads an error reply of a foreign server.
fn remote(encoding: &str, text: &[u8]) -> RemoteError {
    let code = encoding.strip_prefix(ERROR).and_then(|number| number.parse().ok()).and_then(RemoteCode::of);
    // A character has four bytes at most.
    let text = text.get(..4 * rpc::MAX_ERROR_BYTES).unwrap_or(text);
    RemoteError::new(code.unwrap_or(RemoteCode::Failed), &String::from_utf8_lossy(text))
}

impl State {
    /// Sends a message of a service's end to foreign applications, as a reply or as a query.
    /// Returns false if the message is not for them.
    pub(super) fn speak(
        &mut self,
        end: &Arc<ServiceEnd>,
        writer: Id128,
        envelope: &Envelope<'_>,
        payload: &[u8],
    ) -> bool {
        let put = match &**end {
            ServiceEnd::Server { key, form, .. } => {
                let Some((PendingQuery { query, named }, error)) = self.replied(envelope) else { return false };
                let value = || Answering::Value {
                    key: key.clone(),
                    encoding: form.encoding(),
                    attachment: form.attachment(writer, envelope, named),
                    payload: form.payload(payload),
                };
                Put::reply(query, error.map_or_else(value, Answering::Error))
            }
            ServiceEnd::Client { .. } if !self.calls(envelope) => return false,
            ServiceEnd::Client { form, .. } => {
                let (attachment, payload) = (form.attachment(writer, envelope, None), form.payload(payload));
                let (channel, sequence) = (envelope.channel, envelope.sequence);
                Put::Call { end: end.clone(), channel, sequence, attachment, payload }
            }
        };
        self.out.push(put);
        true
    }

    /// Ends what belongs to the service of a channel that has ended.
    pub(super) fn service_ended(&mut self, id: ChannelId, channel: Option<&Channel>) {
        match channel
            .and_then(|channel| Some((channel.service.as_deref()?, rpc::service_of(&channel.announcement.topic)?)))
        {
            Some((ServiceEnd::Server { .. }, (service, _))) => self.server_ended(&rpc::request_topic(service)),
            Some((ServiceEnd::Client { .. }, _)) => self.client_ended(id),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_back_with_their_kind() {
        let error = RemoteError::new(RemoteCode::Busy, "later");
        let encoding = format!("{ERROR}{}", error.code as u8);
        assert_eq!(remote(&encoding, b"later"), error);
        for (encoding, text) in
            [("text/plain", &b"no"[..]), ("text/plain;99", b"no"), ("", b"no"), ("text/plain;x", b"no")]
        {
            assert_eq!(remote(encoding, text), RemoteError::new(RemoteCode::Failed, "no"), "{encoding}");
        }
        let long = remote("", &[b'\xff'; 100_000]);
        assert!(long.text.len() <= rpc::MAX_ERROR_BYTES);
    }
}
