//! The server's side: receiving requests by blocking, as a stream or by callback, and answering
//! them.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    envelope::{Envelope, Id128, Kind},
    qos::Qos,
    rpc::{self, RemoteCode, RemoteError, ReplyHeader, RequestHeader, SampleIdentity},
};

use super::{
    Place, check, services,
    waiting::{Wakers, block_on, block_until},
};
use crate::{
    clock,
    coding::{Coding, Typed},
    engine::Sent,
    error::NodeError,
    node::Source,
    publisher::{PublishError, PublisherOf},
    spans::{Span, span},
    subscriber::{
        Info, Subscription,
        take::{Take, Wanted},
    },
};

/// The default limit on requests that a server has at a time.
const CONCURRENT: usize = 256;

/// Options of a service. [`ServiceBuilder::open`] makes a server to receive from,
/// [`ServiceBuilder::on_request`] installs a callback.
pub struct ServiceBuilder<Q: Coding, R: Coding> {
    place: Place<Q, R>,
    qos: Qos,
    concurrent: usize,
}

impl<Q: Coding, R: Coding> ServiceBuilder<Q, R> {
    pub(super) fn new(place: Place<Q, R>) -> Self {
        ServiceBuilder { place, qos: services(), concurrent: CONCURRENT }
    }

    /// Sets the quality of service, [`Qos::services`] by default: reliability, partition, latency
    /// budget and transport priority. History has no meaning here; other policies are refused.
    pub fn qos(mut self, qos: Qos) -> Result<Self, NodeError> {
        self.qos = check(qos)?;
        Ok(self)
    }

    /// Sets how many requests the server may have at a time, waiting or being served: 256 by
    /// default. Further requests get the error [`RemoteCode::Busy`].
    pub fn concurrent(mut self, requests: usize) -> Self {
        self.concurrent = requests;
        self
    }

    /// Makes a server to receive requests from.
    pub fn open(self) -> Result<ServiceOf<Q, R>, NodeError> {
        let ServiceBuilder { place, qos, concurrent } = self;
        let Place { node, service, wire, requests, replies } = place;
        let publish = node.publish_of(&rpc::reply_topic(&service), Some(&wire), replies)?;
        let (id, replies) = (publish.writer(), OnceLock::new());
        let server = Arc::new(Serving { id, replies, concurrent, state: Mutex::default() });
        // The subscription opens first: a client that discovers the replies may send at once.
        let subscribe = node.subscribe_of(&rpc::request_topic(&service), Some(&wire), requests)?;
        let requests = subscribe.qos(qos.clone())?.hand_to(server.clone());
        let _ = server.replies.set(publish.qos(qos)?.alone().open()?);
        Ok(ServiceOf { service, server, requests: Arc::new(requests) })
    }

    /// Answers requests by a callback, on this number of threads. If the callback returns an `Err`
    /// or panics, the client gets an error of the code [`RemoteCode::Failed`] with a text. Fails if
    /// a thread cannot be started.
    pub fn on_request<E: Display>(
        self,
        threads: usize,
        callback: impl Fn(&Q::Value, &RequestOf<Q, R>) -> Result<R::Value, E> + Send + Sync + 'static,
    ) -> Result<Server, NodeError>
    where
        Q::Value: Sync,
    {
        let (service, callback) = (Arc::new(self.open()?), Arc::new(callback));
        let mut server = Server { threads: Vec::new(), close: Box::new(|| {}) };
        let closing = service.clone();
        server.close = Box::new(move || closing.close());
        for _ in 0..threads.max(1) {
            let (service, callback) = (service.clone(), callback.clone());
            let work = move || {
                while let Some(request) = service.recv() {
                    request.answer(&*callback);
                }
            };
            server
                .threads
                .push(thread::Builder::new().name("pw-service".into()).spawn(work).map_err(NodeError::Thread)?);
        }
        Ok(server)
    }
}

/// Serves values of Rust types.
pub type Service<Q, R> = ServiceOf<Typed<Q>, Typed<R>>;

/// A server: receives requests from a queue, by blocking or as a stream. Dropping it fails the
/// requests that wait in the queue, at once.
///
/// There is an example at [`service`](super).
pub struct ServiceOf<Q: Coding, R: Coding> {
    service: String,
    server: Arc<Serving<Q::Value, R>>,
    requests: Arc<Subscription>,
}

impl<Q: Coding, R: Coding> ServiceOf<Q, R> {
    /// Waits for the next request. `None` after [`ServiceOf::close`] or [`Node::close`], when no
    /// request waits.
    ///
    /// [`Node::close`]: crate::Node::close
    pub fn recv(&self) -> Option<RequestOf<Q, R>> {
        block_on(std::future::poll_fn(|context| self.poll(context)))
    }

    /// Waits for the next request, for at most `timeout`. After a time-out, the next request that
    /// arrives still unparks the thread.
    pub fn recv_timeout(&self, timeout: Duration) -> Option<RequestOf<Q, R>> {
        block_until(clock::deadline(timeout), |context| self.poll(context)).flatten()
    }

    /// The requests, as [`ServiceOf::recv`] returns them.
    pub fn iter(&self) -> impl Iterator<Item = RequestOf<Q, R>> + '_ {
        std::iter::from_fn(|| self.recv())
    }

    /// Accepts no more requests. Requests that wait can still be received.
    pub fn close(&self) {
        self.server.close();
    }

    /// The name of the service.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The server's id, by which clients know it: the writer of its replies.
    pub fn id(&self) -> Id128 {
        self.server.id
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Option<RequestOf<Q, R>>> {
        let mut state = self.server.lock();
        if let Some((value, ticket)) = state.waiting.pop_front() {
            let (server, requests) = (self.server.clone(), self.requests.clone());
            let span = span!(
                DEBUG,
                "serve",
                topic = %self.service,
                wire = %ticket.info.source.announcement.codec,
                writer = %ticket.info.source.announcement.writer,
                sequence = ticket.info.sequence,
            );
            return Poll::Ready(Some(RequestOf { value, ticket, server, _requests: requests, answered: false, span }));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.receivers.add(context.waker());
        Poll::Pending
    }
}

impl<Q: Coding, R: Coding> futures_core::Stream for ServiceOf<Q, R> {
    type Item = RequestOf<Q, R>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RequestOf<Q, R>>> {
        self.poll(context)
    }
}

impl<Q: Coding, R: Coding> Drop for ServiceOf<Q, R> {
    fn drop(&mut self) {
        self.close();
        let waiting = std::mem::take(&mut self.server.lock().waiting);
        for (_, ticket) in waiting {
            self.server.fail(&ticket, RemoteCode::Unsupported, "the server has closed");
        }
    }
}

/// Keeps a service with a callback open. Dropping it accepts no more requests, and waits until the
/// waiting and running ones are answered. A drop inside the callback does not wait for that
/// callback.
pub struct Server {
    threads: Vec<JoinHandle<()>>,
    close: Box<dyn Fn() + Send + Sync>,
}

impl Drop for Server {
    fn drop(&mut self) {
        (self.close)();
        let here = thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != here) {
            // Panics of the callback are caught.
            let _ = thread.join();
        }
    }
}

/// A request of values of Rust types.
pub type Request<Q, R> = RequestOf<Typed<Q>, Typed<R>>;

/// A request that a server has received. The application replies to it or fails it, on any thread.
/// If it is dropped without an answer, it fails.
pub struct RequestOf<Q: Coding, R: Coding> {
    value: Q::Value,
    ticket: Ticket,
    server: Arc<Serving<Q::Value, R>>,
    /// Keeps the subscription: while clients see the server, requests that still arrive are
    /// refused.
    _requests: Arc<Subscription>,
    answered: bool,
    span: Span,
}

impl<Q: Coding, R: Coding> RequestOf<Q, R> {
    /// What the client sent.
    pub fn value(&self) -> &Q::Value {
        &self.value
    }

    /// The metadata of the request, such as its sequence number and the client's link.
    pub fn info(&self) -> &Info {
        &self.ticket.info
    }

    /// Checks whether nobody waits for the reply any more: the client has cancelled the call or is
    /// gone, or the call has timed out.
    pub fn is_cancelled(&self) -> bool {
        self.ticket.cancelled.load(Ordering::Acquire)
    }

    /// Returns a reply to fill. A record to reply with must come from this method, or be a clone of
    /// one that does.
    pub fn default_reply(&self) -> R::Value {
        self.server.default_reply()
    }

    /// Sends the reply, unless nobody waits for it any more. If the format cannot represent the
    /// value, the client gets an error. Blocks as [`PublisherOf::publish`] does.
    pub fn reply(mut self, value: &R::Value) -> Result<Sent, PublishError> {
        self.answered = true;
        self.span.in_scope(|| self.server.reply(&self.ticket, value))
    }

    /// Replies with an error of the application, of the code [`RemoteCode::Failed`]. Texts longer
    /// than [`MAX_ERROR_BYTES`](polywire_core::rpc::MAX_ERROR_BYTES) are cut.
    pub fn fail(mut self, text: &str) {
        self.answered = true;
        self.span.in_scope(|| self.server.fail(&self.ticket, RemoteCode::Failed, text));
    }

    fn answer<E: Display>(self, callback: &(impl Fn(&Q::Value, &Self) -> Result<R::Value, E> + ?Sized)) {
        // State of the callback that a panic leaves inconsistent is dropped with the request.
        match catch_unwind(AssertUnwindSafe(|| self.span.in_scope(|| callback(&self.value, &self)))) {
            // The error is ignored: the client is informed of a reply that cannot be encoded, and
            // notices a closed port by itself.
            Ok(Ok(value)) => drop(self.reply(&value)),
            Ok(Err(error)) => self.fail(&error.to_string()),
            Err(_) => self.fail("the server panicked"),
        }
    }
}

impl<Q: Coding, R: Coding> Drop for RequestOf<Q, R> {
    fn drop(&mut self) {
        if !self.answered {
            self.server.fail(&self.ticket, RemoteCode::Failed, "the server dropped the request");
        }
        self.server.lock().active.remove(&self.ticket.identity());
    }
}

/// A request without its value.
struct Ticket {
    info: Info,
    cancelled: Arc<AtomicBool>,
}

impl Ticket {
    fn identity(&self) -> SampleIdentity {
        SampleIdentity { writer: self.info.source.announcement.writer, sequence: self.info.sequence }
    }
}

/// The state that the parts of a server share.
struct Serving<V, R: Coding> {
    /// The writer of the replies.
    id: Id128,
    /// The publisher of the replies, which is set when the server is open.
    replies: OnceLock<PublisherOf<R>>,
    concurrent: usize,
    state: Mutex<State<V>>,
}

struct State<V> {
    waiting: VecDeque<(V, Ticket)>,
    /// All requests that wait or are being served, and whether they are cancelled.
    active: BTreeMap<SampleIdentity, Arc<AtomicBool>>,
    /// The number of open channels of each client.
    clients: BTreeMap<Id128, usize>,
    receivers: Wakers,
    closed: bool,
}

impl<V> Default for State<V> {
    fn default() -> Self {
        State {
            waiting: VecDeque::new(),
            active: BTreeMap::new(),
            clients: BTreeMap::new(),
            receivers: Wakers::default(),
            closed: false,
        }
    }
}

impl<V, R: Coding> Serving<V, R> {
    fn default_reply(&self) -> R::Value {
        // Requests are received from an open server, so `replies` is set.
        self.replies.wait().default_value()
    }

    fn reply(&self, ticket: &Ticket, value: &R::Value) -> Result<Sent, PublishError> {
        if ticket.cancelled.load(Ordering::Acquire) {
            return Ok(Sent::default());
        }
        let header = ReplyHeader { request: ticket.identity(), error: None };
        let extensions = header.to_extensions();
        let sent = self.replies.wait().send_call(Some(value), Kind::Reply, extensions.as_extensions(), |_| {});
        if let Err(error) = &sent {
            self.fail(ticket, RemoteCode::Failed, &error.to_string());
        }
        sent
    }

    fn fail(&self, ticket: &Ticket, code: RemoteCode, text: &str) {
        if !ticket.cancelled.load(Ordering::Acquire) {
            self.refuse(ticket.identity(), RemoteError::new(code, text));
        }
    }

    fn refuse(&self, request: SampleIdentity, error: RemoteError) {
        let header = ReplyHeader { request, error: Some(error) };
        if let Some(replies) = self.replies.get() {
            // An error means that the port has closed, which the client notices by itself.
            let _ = replies.send_call(None, Kind::Reply, header.to_extensions().as_extensions(), |_| {});
        }
    }

    fn close(&self) {
        let receivers = {
            let mut state = self.lock();
            state.closed = true;
            state.receivers.take()
        };
        receivers.wake();
    }

    /// Queues a request for the application. Fails if the server has closed or has too many
    /// requests.
    fn admit(&self, info: Info, value: V) -> Result<(), RemoteError> {
        let receivers = {
            let mut state = self.lock();
            if state.closed {
                return Err(RemoteError::new(RemoteCode::Unsupported, "the server has closed"));
            }
            let ticket = Ticket { info, cancelled: Arc::default() };
            // An engine that is not reliable may repeat a message.
            if state.active.contains_key(&ticket.identity()) {
                return Ok(());
            }
            if state.active.len() >= self.concurrent {
                let text = format!("the server has {} requests already", self.concurrent);
                return Err(RemoteError::new(RemoteCode::Busy, &text));
            }
            state.active.insert(ticket.identity(), ticket.cancelled.clone());
            state.waiting.push_back((value, ticket));
            state.receivers.take()
        };
        receivers.wake();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock()
    }
}

impl<V> State<V> {
    fn cancel(&self, request: SampleIdentity) {
        if let Some(cancelled) = self.active.get(&request) {
            cancelled.store(true, Ordering::Release);
        }
    }
}

impl<V: Send + 'static, R: Coding> Take<V> for Serving<V, R> {
    fn wants(&self, envelope: &Envelope<'_>) -> Wanted {
        let header = RequestHeader::parse(envelope.extensions).filter(|_| envelope.kind == Kind::Request);
        let Some(RequestHeader { to, cancels }) = header else { return Wanted::Nothing };
        match to.is_none_or(|server| server == self.id) {
            false => Wanted::Nothing,
            true if cancels.is_some() => Wanted::Envelope,
            true => Wanted::Value,
        }
    }

    fn take(&self, envelope: &Envelope<'_>, info: Info, value: Option<Result<V, String>>) {
        let writer = info.source.announcement.writer;
        let request = SampleIdentity { writer, sequence: info.sequence };
        let cancels = RequestHeader::parse(envelope.extensions).and_then(|header| header.cancels);
        let admitted = match (value, cancels) {
            (_, Some(sequence)) => return self.lock().cancel(SampleIdentity { writer, sequence }),
            (None, None) => return,
            (Some(Ok(value)), None) => self.admit(info, value),
            (Some(Err(reason)), None) => Err(RemoteError::new(RemoteCode::InvalidArgument, &reason)),
        };
        if let Err(error) = admitted {
            self.refuse(request, error);
        }
    }

    fn opened(&self, source: &Arc<Source>) {
        *self.lock().clients.entry(source.announcement.writer).or_default() += 1;
    }

    fn accepted(&self, _: &Arc<Source>) {}

    fn closed(&self, source: &Arc<Source>) {
        let (writer, mut state) = (source.announcement.writer, self.lock());
        let open = state.clients.entry(writer).or_default();
        *open = open.saturating_sub(1);
        if *open == 0 {
            state.clients.remove(&writer);
            state.active.iter().filter(|(request, _)| request.writer == writer).for_each(|(_, cancelled)| {
                cancelled.store(true, Ordering::Release);
            });
        }
    }

    fn refused(&self, _: &str) {}

    fn node_closed(&self) {
        self.close();
    }
}
