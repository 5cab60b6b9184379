//! The state of a client: the servers that it knows, and its calls. It receives the replies.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    envelope::{Envelope, Id128, Kind},
    rpc::{ReplyHeader, RequestHeader, SampleIdentity},
};

use super::{CallError, waiting::Wakers};
use crate::{
    clock,
    coding::Coding,
    engine::LinkId,
    node::{Inner, Source, Wake, Watcher},
    publisher::PublisherOf,
    subscriber::{
        Info, Sample,
        take::{Take, Wanted},
    },
};

/// The publisher of the requests, whatever their type.
pub(super) trait Requests: Send + Sync {
    /// Informs servers that nobody waits for a reply any more.
    fn cancel(&self, header: &RequestHeader);
    /// Checks whether the peer on a link has accepted requests. Before, the peer may drop them.
    fn is_taken_on(&self, link: LinkId) -> bool;
    /// Returns why the peer on a link refuses requests. `None` if it does not refuse them.
    fn refusal_on(&self, link: LinkId) -> Option<String>;
    /// Returns why a peer refuses requests now. `None` if no peer refuses them.
    fn refused(&self) -> Option<String>;
}

impl<C: Coding> Requests for PublisherOf<C> {
    fn cancel(&self, header: &RequestHeader) {
        // An error means that the port has closed, which the servers notice by themselves.
        let _ = self.send_call(None, Kind::Request, header.to_extensions().as_extensions(), |_| {});
    }

    fn is_taken_on(&self, link: LinkId) -> bool {
        self.is_taken(link)
    }

    fn refusal_on(&self, link: LinkId) -> Option<String> {
        self.refusal(link)
    }

    fn refused(&self) -> Option<String> {
        PublisherOf::refused(self)
    }
}

/// The calls of one client.
pub(super) struct Calls<V> {
    this: Weak<Calls<V>>,
    /// The writer of the requests.
    writer: Id128,
    node: Weak<Inner>,
    /// The publisher of the requests, which the client owns.
    requests: Weak<dyn Requests>,
    limit: usize,
    state: Mutex<State<V>>,
}

struct State<V> {
    /// The servers, by the writer of their replies.
    servers: BTreeMap<Id128, Server>,
    /// The calls, by the sequence number of the request.
    calls: BTreeMap<u64, Call<V>>,
    /// When calls time out, by sequence number. Number 0 stands for callers that wait for a server.
    deadlines: BTreeSet<(Duration, u64)>,
    /// Why a server does not match, until a server matches.
    refused: Option<String>,
    /// The number of refusals so far.
    refusals: u64,
    /// The callers that wait for a server.
    waiting: Wakers,
    picked: u64,
    closed: bool,
}

#[derive(Default)]
struct Server {
    /// The open channels of its replies.
    channels: Vec<Replies>,
    /// Calls of this client that it has not answered.
    pending: usize,
    /// The value of `State::picked` when this server was picked last.
    picked: u64,
}

/// A channel of replies.
struct Replies {
    link: LinkId,
    /// Whether the peer on the link knows that replies are received. Before, it may drop them.
    is_heard: bool,
}

struct Call<V> {
    /// The servers that have not answered.
    open: BTreeSet<Id128>,
    /// Whether the call has failed as a whole, so that it waits for nothing more.
    failed: bool,
    results: VecDeque<Result<Sample<V>, CallError>>,
    deadline: Duration,
    waiting: Wakers,
}

impl<V: Send + 'static> Calls<V> {
    pub(super) fn new<Q: Coding>(requests: &Arc<PublisherOf<Q>>, limit: usize) -> Arc<Calls<V>> {
        let calls = Arc::new_cyclic(|this| Calls {
            this: this.clone(),
            writer: requests.writer(),
            node: Arc::downgrade(requests.node().inner()),
            requests: Arc::downgrade(&(requests.clone() as Arc<dyn Requests>)),
            limit,
            state: Mutex::default(),
        });
        let watcher: Weak<dyn Watcher> = Arc::downgrade(&(calls.clone() as Arc<dyn Watcher>));
        requests.watch_answers(&watcher);
        calls
    }

    /// Polls until a server can be called. The error says why none can be called.
    pub(super) fn poll_ready(&self, deadline: Duration, context: &Context<'_>) -> Poll<Result<(), CallError>> {
        let mut state = self.lock();
        if state.closed {
            return Poll::Ready(Err(CallError::Closed));
        }
        if !self.usable(&state).is_empty() {
            return Poll::Ready(Ok(()));
        }
        if let Some(reason) = self.refusal(&state) {
            return Poll::Ready(Err(CallError::refused(reason)));
        }
        if deadline <= clock::now() {
            return Poll::Ready(Err(CallError::NoServer));
        }
        state.waiting.add(context.waker());
        state.deadlines.insert((deadline, 0));
        self.arm(state);
        Poll::Pending
    }

    /// Forgets why servers did not match, if these servers are gone. A refusal that arrives while
    /// `are_gone` runs is not forgotten.
    pub(super) fn forget_refusals(&self, are_gone: impl FnOnce() -> bool) {
        let before = self.lock().refusals;
        if are_gone() {
            let mut state = self.lock();
            if state.refusals == before {
                state.refused = None;
            }
        }
    }

    /// Returns the servers that can be called now.
    pub(super) fn servers(&self) -> Vec<Id128> {
        self.usable(&self.lock())
    }

    fn usable(&self, state: &State<V>) -> Vec<Id128> {
        let Some(requests) = self.requests.upgrade() else { return Vec::new() };
        let is_ready = |replies: &Replies| replies.is_heard && requests.is_taken_on(replies.link);
        let takes = |server: &Server| server.channels.iter().any(is_ready);
        state.servers.iter().filter(|(_, server)| takes(server)).map(|(writer, _)| *writer).collect()
    }

    /// Returns why the present servers do not match.
    fn refusal(&self, state: &State<V>) -> Option<String> {
        self.requests.upgrade()?.refused().or_else(|| state.refused.clone())
    }

    /// Picks the servers for a new call: all, or the one with the fewest calls. Fails if there is
    /// none.
    pub(super) fn pick(&self, all: bool) -> Result<Vec<Id128>, CallError> {
        let mut state = self.lock();
        if state.closed {
            return Err(CallError::Closed);
        }
        if state.calls.len() >= self.limit {
            return Err(CallError::TooMany { limit: self.limit });
        }
        let usable = self.usable(&state);
        let load = |server: &&Id128| state.servers.get(server).map(|server| (server.pending, server.picked));
        let picked = if all { usable } else { usable.iter().min_by_key(load).copied().into_iter().collect() };
        if picked.is_empty() {
            return Err(self.refusal(&state).map_or(CallError::NoServer, CallError::refused));
        }
        state.picked += 1;
        let now = state.picked;
        for writer in &picked {
            state.servers.entry(*writer).and_modify(|server| server.picked = now);
        }
        Ok(picked)
    }

    /// Records a call whose request is about to be sent to these servers.
    pub(super) fn begin(&self, sequence: u64, servers: Vec<Id128>, deadline: Duration) {
        let mut state = self.lock();
        let call = Call {
            open: servers.iter().copied().collect(),
            failed: false,
            results: VecDeque::new(),
            deadline,
            waiting: Wakers::default(),
        };
        state.calls.insert(sequence, call);
        state.deadlines.insert((deadline, sequence));
        for writer in servers {
            match state.servers.get_mut(&writer) {
                Some(server) => server.pending += 1,
                None => state.settle(sequence, writer, Err(CallError::ServerGone { server: writer })).wake(),
            }
        }
        self.arm(state);
    }

    /// Polls for the next result of a call. `None` if no more results follow.
    pub(super) fn poll_result(
        &self,
        sequence: u64,
        context: &Context<'_>,
    ) -> Poll<Option<Result<Sample<V>, CallError>>> {
        let mut state = self.lock();
        let Some(call) = state.calls.get_mut(&sequence) else { return Poll::Ready(None) };
        if let Some(result) = call.results.pop_front() {
            return Poll::Ready(Some(result));
        }
        if call.open.is_empty() || call.failed {
            return Poll::Ready(None);
        }
        call.waiting.add(context.waker());
        Poll::Pending
    }

    /// Ends a call whose replies nobody waits for. Informs the servers that have not answered.
    pub(super) fn end(&self, sequence: u64) {
        let (open, one) = {
            let mut state = self.lock();
            let Some(call) = state.calls.remove(&sequence) else { return };
            state.deadlines.remove(&(call.deadline, sequence));
            for writer in &call.open {
                state.release(*writer);
            }
            (!call.open.is_empty() && !state.closed, call.open.first().copied().filter(|_| call.open.len() == 1))
        };
        if let Some(requests) = self.requests.upgrade().filter(|_| open) {
            requests.cancel(&RequestHeader { to: one, cancels: Some(sequence) });
        }
    }

    /// Sets the timer to wake this client when the next call times out.
    fn arm(&self, state: MutexGuard<'_, State<V>>) {
        let Some((next, _)) = state.deadlines.first().copied() else { return };
        drop(state);
        if let Some(node) = self.node.upgrade() {
            let this: Weak<Calls<V>> = self.this.clone();
            node.timer.at(next, this);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock()
    }

    /// Ends all calls, and refuses new ones.
    pub(super) fn close(&self) {
        let waiting: Vec<Wakers> = {
            let mut state = self.lock();
            state.closed = true;
            let calls: Vec<u64> = state.calls.keys().copied().collect();
            let failed = calls.into_iter().map(|sequence| state.fail(sequence, CallError::Closed));
            let mut waiting: Vec<Wakers> = failed.collect();
            waiting.push(state.waiting.take());
            waiting
        };
        waiting.into_iter().for_each(Wakers::wake);
    }
}

impl<V> Default for State<V> {
    fn default() -> Self {
        State {
            servers: BTreeMap::new(),
            calls: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            refused: None,
            refusals: 0,
            waiting: Wakers::default(),
            picked: 0,
            closed: false,
        }
    }
}

impl<V> State<V> {
    /// Records that a server has answered a call, or will not. Returns the wakers of the call. Does
    /// nothing if the server was not asked, or has answered before.
    fn settle(&mut self, sequence: u64, server: Id128, result: Result<Sample<V>, CallError>) -> Wakers {
        let call = self.calls.get_mut(&sequence).filter(|call| call.open.contains(&server));
        let Some(call) = call else { return Wakers::default() };
        call.open.remove(&server);
        if !call.failed {
            call.results.push_back(result);
        }
        let waiting = call.waiting.take();
        self.release(server);
        waiting
    }

    /// Fails the call for all servers that have not answered. Returns the wakers of the call.
    fn fail(&mut self, sequence: u64, error: CallError) -> Wakers {
        let call = self.calls.get_mut(&sequence).filter(|call| !call.open.is_empty() && !call.failed);
        let Some(call) = call else { return Wakers::default() };
        call.failed = true;
        call.results.push_back(Err(error));
        call.waiting.take()
    }

    fn release(&mut self, server: Id128) {
        if let Some(server) = self.servers.get_mut(&server) {
            server.pending = server.pending.saturating_sub(1);
        }
    }

    /// The calls that a server has not answered.
    fn calls_of(&self, server: Id128) -> Vec<u64> {
        self.calls.iter().filter(|(_, call)| call.open.contains(&server)).map(|(sequence, _)| *sequence).collect()
    }
}

impl<V: Send + 'static> Take<V> for Calls<V> {
    fn wants(&self, envelope: &Envelope<'_>) -> Wanted {
        let request = ReplyHeader::request_of(envelope.extensions).filter(|_| envelope.kind == Kind::Reply);
        let Some(SampleIdentity { writer, sequence }) = request else { return Wanted::Nothing };
        if writer != self.writer || !self.lock().calls.contains_key(&sequence) {
            return Wanted::Nothing;
        }
        match ReplyHeader::parse(envelope.extensions) {
            Some(ReplyHeader { error: None, .. }) => Wanted::Value,
            _ => Wanted::Envelope,
        }
    }

    fn take(&self, envelope: &Envelope<'_>, info: Info, value: Option<Result<V, String>>) {
        let Some(request) = ReplyHeader::request_of(envelope.extensions) else { return };
        let server = info.source.announcement.writer;
        let error = ReplyHeader::parse(envelope.extensions).and_then(|header| header.error);
        let result = match (value, error) {
            (_, Some(error)) => Err(CallError::Remote(error)),
            (Some(Ok(value)), None) => Ok(Sample { value, info }),
            (Some(Err(reason)), None) => Err(CallError::Undecodable { reason }),
            (None, None) => Err(CallError::Undecodable { reason: "the reply's header is malformed".into() }),
        };
        let waiting = self.lock().settle(request.sequence, server, result);
        waiting.wake();
    }

    fn opened(&self, source: &Arc<Source>) {
        let mut state = self.lock();
        let server = state.servers.entry(source.announcement.writer).or_default();
        server.channels.push(Replies { link: source.link.id, is_heard: false });
        state.refused = None;
    }

    fn accepted(&self, source: &Arc<Source>) {
        let waiting = {
            let mut state = self.lock();
            let Some(server) = state.servers.get_mut(&source.announcement.writer) else { return };
            let here = server.channels.iter_mut().filter(|replies| replies.link == source.link.id);
            here.for_each(|replies| replies.is_heard = true);
            state.waiting.take()
        };
        waiting.wake();
    }

    fn closed(&self, source: &Arc<Source>) {
        let writer = source.announcement.writer;
        let waiting: Vec<Wakers> = {
            let mut state = self.lock();
            let Some(server) = state.servers.get_mut(&writer) else { return };
            let here = server.channels.iter().position(|replies| replies.link == source.link.id);
            here.map(|at| server.channels.swap_remove(at));
            if !server.channels.is_empty() {
                return;
            }
            state.servers.remove(&writer);
            let gone = || Err(CallError::ServerGone { server: writer });
            state.calls_of(writer).into_iter().map(|sequence| state.settle(sequence, writer, gone())).collect()
        };
        waiting.into_iter().for_each(Wakers::wake);
    }

    fn refused(&self, reason: &str) {
        let waiting = {
            let mut state = self.lock();
            state.refused = Some(reason.into());
            state.refusals += 1;
            state.waiting.take()
        };
        waiting.wake();
    }

    fn node_closed(&self) {
        self.close();
    }
}

impl<V: Send + 'static> Watcher for Calls<V> {
    /// Fails the calls to servers that refuse requests now.
    fn answered(&self) {
        let Some(requests) = self.requests.upgrade() else { return };
        let waiting: Vec<Wakers> = {
            let mut state = self.lock();
            let reason = |server: &Server| requests.refusal_on(server.channels.last()?.link);
            let refused: Vec<(Id128, String)> =
                state.servers.iter().filter_map(|(writer, server)| Some((*writer, reason(server)?))).collect();
            let mut waiting = vec![state.waiting.take()];
            for (writer, reason) in refused {
                for sequence in state.calls_of(writer) {
                    waiting.push(state.settle(sequence, writer, Err(CallError::refused(reason.clone()))));
                }
            }
            waiting
        };
        waiting.into_iter().for_each(Wakers::wake);
    }
}

impl<V: Send + 'static> Wake for Calls<V> {
    fn wake(&self) {
        let mut waiting = Vec::new();
        {
            let mut state = self.lock();
            let now = clock::now();
            while let Some((_, sequence)) = state.deadlines.first().copied().filter(|(due, _)| *due <= now) {
                state.deadlines.pop_first();
                waiting.push(match sequence {
                    0 => state.waiting.take(),
                    sequence => state.fail(sequence, CallError::TimedOut),
                });
            }
            self.arm(state);
        }
        waiting.into_iter().for_each(Wakers::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::{task::Waker, thread};

    use super::*;
    use crate::{coding::Bytes, node::Node};

    fn calls_of(node: &Node) -> Arc<Calls<Vec<u8>>> {
        Arc::new_cyclic(|this| Calls {
            this: this.clone(),
            writer: Id128::ZERO,
            node: Arc::downgrade(node.inner()),
            requests: Weak::<PublisherOf<Bytes>>::new(),
            limit: 1,
            state: Mutex::default(),
        })
    }

    #[test]
    fn a_refusal_that_arrives_while_former_ones_are_forgotten_is_kept() {
        let calls = calls_of(&Node::new());
        let refused = || calls.lock().refused.clone();
        calls.refused("another type");
        calls.forget_refusals(|| false);
        assert_eq!(refused().as_deref(), Some("another type"));
        calls.forget_refusals(|| {
            calls.refused("a third type");
            true
        });
        assert_eq!(refused().as_deref(), Some("a third type"));
        calls.forget_refusals(|| true);
        assert_eq!(refused(), None);
    }

    #[test]
    fn time_outs_of_calls_do_not_multiply_in_the_timer() {
        let node = Node::new();
        let calls = calls_of(&node);
        let (now, context) = (clock::now(), Context::from_waker(Waker::noop()));
        // Each time is earlier than the one before.
        for ms in [3_600_000].into_iter().chain((2_000..2_050).rev()) {
            assert!(calls.poll_ready(now + Duration::from_millis(ms), &context).is_pending());
        }
        while calls.lock().deadlines.len() > 1 {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(100));
        assert_eq!(node.inner().timer.entries(), 1);
    }
}
