//! The client's side: making calls, and waiting for replies by blocking or as a future.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use polywire_core::{
    envelope::{Id128, Kind},
    qos::Qos,
    rpc::{self, RequestHeader},
};

use super::{CallError, Place, calls::Calls, check, services, waiting::block_on};
use crate::{
    clock,
    coding::{Coding, Typed},
    error::NodeError,
    publisher::PublisherOf,
    spans::{Span, span},
    subscriber::{Sample, Subscription},
};

/// The default limit on calls of one client that are under way.
const PENDING: usize = 1024;

/// Options of a client. [`ClientBuilder::open`] makes it.
pub struct ClientBuilder<Q: Coding, R: Coding> {
    place: Place<Q, R>,
    qos: Qos,
    pending: usize,
}

impl<Q: Coding, R: Coding> ClientBuilder<Q, R> {
    pub(super) fn new(place: Place<Q, R>) -> Self {
        ClientBuilder { place, qos: services(), pending: PENDING }
    }

    /// Sets the quality of service, [`Qos::services`] by default: reliability, partition, latency
    /// budget and transport priority. History has no meaning for a client; other policies are
    /// refused.
    pub fn qos(mut self, qos: Qos) -> Result<Self, NodeError> {
        self.qos = check(qos)?;
        Ok(self)
    }

    /// Sets how many calls may be under way, 1024 by default. A call counts until its result is
    /// taken or dropped.
    pub fn pending(mut self, calls: usize) -> Self {
        self.pending = calls;
        self
    }

    /// Makes the client.
    pub fn open(self) -> Result<ClientOf<Q, R>, NodeError> {
        let ClientBuilder { place, qos, pending } = self;
        let Place { node, service, wire, requests, replies } = place;
        let publish = node.publish_of(&rpc::request_topic(&service), Some(&wire), requests)?;
        let requests = Arc::new(publish.qos(qos.clone())?.alone().open()?);
        let calls = Calls::new(&requests, pending);
        let subscribe = node.subscribe_of(&rpc::reply_topic(&service), Some(&wire), replies)?;
        let replies = subscribe.qos(qos)?.hand_to(calls.clone());
        Ok(ClientOf { service, requests, calls, replies })
    }
}

/// Calls a service with values of Rust types.
pub type Client<Q, R> = ClientOf<Typed<Q>, Typed<R>>;

/// Calls a service with requests and replies of these [`Coding`]s. Threads may share it. Dropping
/// it ends its calls with [`CallError::Closed`].
///
/// There is an example at [`service`](super).
pub struct ClientOf<Q: Coding, R: Coding> {
    service: String,
    requests: Arc<PublisherOf<Q>>,
    calls: Arc<Calls<R::Value>>,
    replies: Subscription,
}

impl<Q: Coding, R: Coding> Drop for ClientOf<Q, R> {
    fn drop(&mut self) {
        self.calls.close();
    }
}

impl<Q: Coding, R: Coding> ClientOf<Q, R> {
    /// Calls one server and waits for its reply. If there is no server, first waits for one. Of
    /// several servers, picks the one with the fewest calls of this client. Blocks for at most
    /// `timeout`, and as [`PublisherOf::publish`] does.
    pub fn call(&self, request: &Q::Value, timeout: Duration) -> Result<R::Value, CallError> {
        block_on(self.call_async(request, timeout))
    }

    /// Like [`ClientOf::call`], without blocking the thread while it waits. Dropping the future
    /// cancels the call.
    pub async fn call_async(&self, request: &Q::Value, timeout: Duration) -> Result<R::Value, CallError> {
        let deadline = clock::now().saturating_add(timeout);
        self.until_ready(deadline).await?;
        Ok(self.send_one(request, deadline)?.await?.value)
    }

    /// Waits until a server can be called. Fails with [`CallError::NoServer`] at the time-out.
    /// Fails at once if there are servers and none of them matches.
    pub async fn ready(&self, timeout: Duration) -> Result<(), CallError> {
        self.until_ready(clock::now().saturating_add(timeout)).await
    }

    /// Like [`ClientOf::ready`], but blocks the thread.
    pub fn wait_for_server(&self, timeout: Duration) -> Result<(), CallError> {
        block_on(self.ready(timeout))
    }

    /// Sends a request to one server. Fails with [`CallError::NoServer`] if there is none now. The
    /// [`Reply`] receives the reply, or fails after `timeout`.
    pub fn request(&self, request: &Q::Value, timeout: Duration) -> Result<Reply<R::Value>, CallError> {
        self.forget_refusals();
        self.send_one(request, clock::now().saturating_add(timeout))
    }

    /// Sends a request to all servers that are known now. Each gives one reply or error.
    pub fn request_all(&self, request: &Q::Value, timeout: Duration) -> Result<Replies<R::Value>, CallError> {
        self.forget_refusals();
        self.send(request, true, clock::now().saturating_add(timeout)).map(Replies)
    }

    /// Returns the servers that can be called now, as the ids of the writers of their replies.
    pub fn servers(&self) -> Vec<Id128> {
        self.calls.servers()
    }

    /// The name of the service.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Returns a request to fill and send. A record to send must come from this method, or be a
    /// clone of one that does.
    pub fn default_request(&self) -> Q::Value {
        self.requests.default_value()
    }

    async fn until_ready(&self, deadline: Duration) -> Result<(), CallError> {
        self.forget_refusals();
        std::future::poll_fn(|context| self.calls.poll_ready(deadline, context)).await
    }

    fn send_one(&self, request: &Q::Value, deadline: Duration) -> Result<Reply<R::Value>, CallError> {
        self.send(request, false, deadline).map(Reply)
    }

    fn send(&self, request: &Q::Value, all: bool, deadline: Duration) -> Result<Call<R::Value>, CallError> {
        let servers = self.calls.pick(all)?;
        let header = RequestHeader { to: servers.first().copied().filter(|_| !all), cancels: None };
        let extensions = header.to_extensions();
        let span = span!(
            DEBUG,
            "call",
            topic = %self.service,
            wire = %crate::spans::wires(self.requests.wires().iter()),
            writer = %self.requests.writer(),
            sequence = ::tracing::field::Empty,
        );
        let mut call = None;
        let sent = span.in_scope(|| {
            self.requests.send_call(Some(request), Kind::Request, extensions.as_extensions(), |sequence| {
                self.calls.begin(sequence, servers, deadline);
                span.record("sequence", sequence);
                call = Some(Call { calls: self.calls.clone(), sequence, _span: span.clone() });
            })
        });
        sent?;
        // A request that was sent has a sequence number, so `call` is set.
        call.ok_or(CallError::Closed)
    }

    /// Forgets why servers did not match, if these servers are gone by now.
    fn forget_refusals(&self) {
        self.calls.forget_refusals(|| self.replies.status().unreadable == 0);
    }
}

/// A call under way. Dropping it cancels the call.
struct Call<V: Send + 'static> {
    calls: Arc<Calls<V>>,
    sequence: u64,
    _span: Span,
}

impl<V: Send + 'static> Drop for Call<V> {
    fn drop(&mut self) {
        self.calls.end(self.sequence);
    }
}

/// The reply of one server, as a future or by [`Reply::wait`]. Dropping it cancels the call, which
/// the server sees by [`RequestOf::is_cancelled`](super::RequestOf::is_cancelled).
///
/// ```
/// use polywire::{Node, service::{CallError, Reply}};
/// # use std::time::Duration;
/// # #[derive(Default, polywire::Message)]
/// # struct Number { value: i64 }
/// let node = Node::new();
/// let slow = node.service::<Number, Number>("slow", Some("cdr@inproc/reply-doc"))?.open()?;
/// let client = node.client::<Number, Number>("slow", Some("cdr@inproc/reply-doc"))?.open()?;
/// let soon = Duration::from_secs(10);
/// client.wait_for_server(soon)?;
/// let replies: Vec<Reply<Number>> =
///     [1, 2, 3].into_iter().map(|value| client.request(&Number { value }, soon)).collect::<Result<_, _>>()?;
/// let requests: Vec<_> = (0..3).map(|_| slow.recv().unwrap()).collect();
/// drop(replies);
/// assert!(requests.iter().all(|request| request.is_cancelled()));
/// let late = client.request(&Number { value: 4 }, Duration::from_millis(1))?;
/// assert!(matches!(late.wait(), Err(CallError::TimedOut)));
///
/// // As futures, in any runtime.
/// let calls = async |value| {
///     client.ready(soon).await?;
///     client.call_async(&Number { value }, soon).await
/// };
/// drop(calls(5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it cancels the call"]
pub struct Reply<V: Send + 'static>(Call<V>);

impl<V: Send + 'static> Reply<V> {
    /// Blocks until the reply has arrived, or the call has failed.
    pub fn wait(self) -> Result<Sample<V>, CallError> {
        block_on(self)
    }
}

impl<V: Send + 'static> Future for Reply<V> {
    type Output = Result<Sample<V>, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Reply(call) = &*self;
        call.calls.poll_result(call.sequence, context).map(|result| result.unwrap_or(Err(CallError::Closed)))
    }
}

/// The replies of all servers, as a stream or as an iterator that blocks. It ends when all servers
/// have answered or are gone, or after the error [`CallError::TimedOut`]. Dropping it cancels the
/// call.
///
/// ```
/// use polywire::{Node, service::Replies};
/// # use std::time::Duration;
/// # #[derive(Default, polywire::Message)]
/// # struct Empty {}
/// # #[derive(Default, polywire::Message)]
/// # struct Status { number: u32 }
/// let node = Node::new();
/// let serve = |number| {
///     let service = node.service::<Empty, Status>("status", Some("cdr@inproc/replies-doc"))?;
///     service.on_request(1, move |_, _| if number < 3 { Ok(Status { number }) } else { Err("out of order") })
/// };
/// let _servers = [serve(1)?, serve(2)?, serve(3)?];
/// let client = node.client::<Empty, Status>("status", Some("cdr@inproc/replies-doc"))?.open()?;
/// assert_eq!(client.servers().len(), 3);
/// let replies: Replies<Status> = client.request_all(&Empty {}, Duration::from_secs(10))?;
/// let mut texts: Vec<String> = replies
///     .map(|reply| reply.map_or_else(|error| error.to_string(), |sample| sample.value.number.to_string()))
///     .collect();
/// texts.sort();
/// assert_eq!(texts, ["1", "2", "out of order"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it cancels the call"]
pub struct Replies<V: Send + 'static>(Call<V>);

impl<V: Send + 'static> Iterator for Replies<V> {
    type Item = Result<Sample<V>, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(std::future::poll_fn(|context| self.0.calls.poll_result(self.0.sequence, context)))
    }
}

impl<V: Send + 'static> futures_core::Stream for Replies<V> {
    type Item = Result<Sample<V>, CallError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.calls.poll_result(self.0.sequence, context)
    }
}
