//! A queue of messages, announcements and answers from one sender to one receiver in the same
//! process, without a thread: [`Pipe::deliver`] delivers on the calling thread. Ports of `inproc`
//! have one in each direction between any two of them; every other port has one to its own node's
//! subscribers ([`loopback`](super::loopback)).

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock, Weak},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Extensions, Id128},
    frame::{Answer, Start},
};

use super::{
    Event, LinkInfo, LinkSink, LinkStats, Loan, Local, Overflow, Sink,
    delivery::{Delivery, Holdable, Leaving, Missing, Notice, Outcome, start_of},
    stream::Aligned,
};
use crate::unwind::restoring;

/// The queue from a sender to a receiver.
pub(super) struct Pipe {
    state: Mutex<PipeState>,
    room: Condvar,
    /// Set once, by [`Pipe::connect`]. Nothing is delivered before.
    receiver: OnceLock<Arc<dyn LinkSink>>,
    /// The pipe in the opposite direction. The answers in this pipe are for the channels of that
    /// one.
    back: OnceLock<Weak<Pipe>>,
    /// The sender's sink, which receives the events of dropped messages.
    sink: Arc<dyn Sink>,
    /// The receiver, as the sender knows it.
    info: LinkInfo,
    overflow: Overflow,
    limit: usize,
}

#[derive(Default)]
struct PipeState {
    queue: VecDeque<Item>,
    /// Sum of the sizes of the messages in `queue`.
    bytes: usize,
    delivery: Delivery<Arc<Message>>,
    /// The thread that is delivering.
    delivering: Option<ThreadId>,
    /// Messages delivered so far. A sender that waits for room uses it to tell a slow receiver from
    /// a stuck one.
    taken: u64,
    /// A sender has waited for room in vain. Later senders do not wait until half of the queue is
    /// free.
    stalled: bool,
    closed: bool,
}

/// An item that waits in a pipe.
pub(super) enum Item {
    /// Boxed, since most items are messages and an announcement is much larger.
    Announce(ChannelId, Start, Box<Announcement>),
    Message(Arc<Message>),
    Position(ChannelId, Start, u64),
    Retire(ChannelId),
    Answer(ChannelId, Answer),
    Want(Id128),
    Supply(Id128, Option<Vec<u8>>),
    Down,
}

/// A message that all receivers share.
pub(super) struct Message {
    envelope: Envelope<'static>,
    extensions: Vec<u8>,
    loan: Loan,
}

impl Message {
    #[inline]
    pub(super) fn new(envelope: &Envelope<'_>, loan: Loan) -> Arc<Message> {
        let extensions = envelope.extensions.bytes().to_vec();
        let envelope = Envelope { extensions: Extensions::default(), ..*envelope };
        Arc::new(Message { envelope, extensions, loan })
    }
}

impl Holdable for Arc<Message> {
    fn at(&self) -> (ChannelId, Start) {
        (self.envelope.channel, start_of(&self.envelope))
    }

    fn size(&self) -> usize {
        self.loan.payload().len() + self.extensions.len() + size_of::<Message>()
    }
}

impl Pipe {
    /// Creates an empty pipe from a port to the receiver `to`. Dropped messages are reported to
    /// `sink`.
    pub(super) fn new(local: &Local, sink: &Arc<dyn Sink>, to: &LinkInfo) -> Arc<Pipe> {
        Arc::new(Pipe {
            state: Mutex::default(),
            room: Condvar::new(),
            receiver: OnceLock::new(),
            back: OnceLock::new(),
            sink: sink.clone(),
            info: to.clone(),
            overflow: local.options.overflow,
            limit: local.options.queue_bytes,
        })
    }

    /// Sets the pipe's receiver, and the pipe that leads back, if there is one. Called once.
    pub(super) fn connect(&self, receiver: Arc<dyn LinkSink>, back: Option<&Arc<Pipe>>) {
        // Both are unset: a pipe is connected by the code that makes it.
        let _ = self.receiver.set(receiver);
        if let Some(back) = back {
            let _ = self.back.set(Arc::downgrade(back));
        }
    }

    pub(super) fn info(&self) -> &LinkInfo {
        &self.info
    }

    pub(super) fn back(&self) -> Option<Arc<Pipe>> {
        self.back.get().and_then(Weak::upgrade)
    }

    /// Adds an item that is not a message.
    pub(super) fn push(&self, item: Item) {
        self.state.lock().queue.push_back(item);
    }

    /// Passes to `with` whether the receiver may want any channel, under the lock: no other thread
    /// can change that during the call.
    pub(super) fn interest(&self, with: impl FnOnce(bool)) {
        with(self.state.lock().delivery.wants_any());
    }

    /// Whether the receiver may want messages of the channel.
    pub(super) fn wants(&self, channel: ChannelId) -> bool {
        self.state.lock().delivery.wants(channel)
    }

    pub(super) fn announce(&self, channel: ChannelId, start: Start, announcement: &Announcement) {
        let mut state = self.state.lock();
        state.delivery.announce(channel, channel, announcement);
        state.queue.push_back(Item::Announce(channel, start, Box::new(announcement.clone())));
    }

    pub(super) fn retire(&self, channel: ChannelId) {
        let mut state = self.state.lock();
        state.delivery.retire(channel);
        state.finish_retiring();
    }

    /// Queues or holds a message, or drops it by the overflow policy, which may block. Call
    /// [`Pipe::deliver`] after it.
    pub(super) fn send(&self, message: &Arc<Message>) -> Outcome {
        let (envelope, size) = (&message.envelope, message.size());
        let mut state = self.state.lock();
        let Some(mut subscribers) = state.wanted(envelope) else { return Outcome::Unwanted };
        let mut notice = None;
        if !state.has_room(size, self.limit) {
            state = self.make_room(state, size);
            // Waiting released the lock, so the channel may have ended or been answered.
            let Some(now) = state.wanted(envelope) else { return Outcome::Unwanted };
            subscribers = now;
            if !state.has_room(size, self.limit) {
                state.delivery.drop_newest(envelope);
                let notice = state.delivery.notice(Instant::now());
                drop(state);
                notice.into_iter().for_each(|notice| self.tell_dropped(notice));
                return Outcome::Dropped;
            }
            notice = state.delivery.notice(Instant::now());
        }
        state.delivery.count_sent(1);
        if state.delivery.must_hold(envelope.channel, subscribers) {
            state.delivery.hold(message.clone());
        } else if let Some((channel, missing)) = state.delivery.next(envelope.channel) {
            state.push((message.clone(), channel, missing));
        }
        drop(state);
        notice.into_iter().for_each(|notice| self.tell_dropped(notice));
        Outcome::Sent(subscribers)
    }

    fn tell_dropped(&self, (topic, count): Notice) {
        self.sink.event(Event::Dropped { link: self.info.clone(), topic: (*topic).into(), count });
    }

    fn make_room<'a>(&'a self, mut state: MutexGuard<'a, PipeState>, size: usize) -> MutexGuard<'a, PipeState> {
        match self.overflow {
            Overflow::DropNewest => state,
            Overflow::DropOldest => {
                while !state.has_room(size, self.limit) && state.drop_oldest() {}
                state
            }
            // This thread is delivering, so no other thread makes room.
            Overflow::Block { .. } if state.delivering == Some(thread::current().id()) => state,
            Overflow::Block { patience } => {
                drop(state);
                self.deliver();
                self.wait_for_room(size, patience)
            }
        }
    }

    fn wait_for_room(&self, size: usize, patience: Duration) -> MutexGuard<'_, PipeState> {
        let mut state = self.state.lock();
        loop {
            let taken = state.taken;
            let full = |state: &mut PipeState| !state.closed && !state.stalled && !state.has_room(size, self.limit);
            let timed_out = self.room.wait_while_for(&mut state, full, patience).timed_out();
            if !timed_out || state.taken == taken {
                state.stalled |= timed_out;
                return state;
            }
        }
    }

    /// Delivers everything that waits. Returns at once if another thread is delivering: that thread
    /// delivers the new items, too.
    pub(super) fn deliver(&self) {
        let Some(receiver) = self.receiver.get() else { return };
        let mut state = self.state.lock();
        if state.delivering.is_some() || (state.queue.is_empty() && !state.delivery.has_unreported()) {
            return;
        }
        state.delivering = Some(thread::current().id());
        let mut aligned = Aligned::default();
        while let Some(item) = state.pop(self.limit) {
            if let Item::Message(_) = &item {
                self.room.notify_all();
            }
            drop(state);
            self.call(|| self.hand_over(item, &**receiver, &mut aligned));
            state = self.state.lock();
            if state.queue.is_empty() {
                drop(state);
                self.call(|| receiver.drained());
                state = self.state.lock();
            }
        }
        state.delivering = None;
        self.room.notify_all();
        let notice = state.delivery.end_of_episode();
        drop(state);
        notice.into_iter().for_each(|notice| self.tell_dropped(notice));
    }

    /// Calls the receiver. If that panics, this delivery ends; the next one delivers what waits.
    #[inline]
    fn call(&self, call: impl FnOnce()) {
        let end = || {
            self.state.lock().delivering = None;
            self.room.notify_all();
        };
        restoring(end, call);
    }

    fn hand_over(&self, item: Item, receiver: &dyn LinkSink, aligned: &mut Aligned) {
        match item {
            Item::Announce(channel, start, announcement) => receiver.announced(channel, start, &announcement),
            Item::Message(message) => {
                let extensions = Extensions::parse(&message.extensions).unwrap_or_default();
                let envelope = Envelope { extensions, ..message.envelope };
                receiver.message(&envelope, aligned.place(message.loan.payload()));
            }
            Item::Position(channel, start, lost) => receiver.position(channel, start, lost),
            Item::Retire(channel) => receiver.retired(channel),
            Item::Answer(channel, answer) => {
                if let Some(back) = self.back() {
                    back.answered(channel, &answer);
                    receiver.answered(channel, &answer);
                    back.deliver();
                }
            }
            Item::Want(document) => receiver.wanted(document),
            Item::Supply(document, bytes) => receiver.supplied(document, bytes.as_deref()),
            Item::Down => receiver.down(),
        }
    }

    /// Notes the receiver's answer to a channel, and queues the messages held for it.
    pub(super) fn answered(&self, channel: ChannelId, answer: &Answer) {
        let mut state = self.state.lock();
        for leaving in state.delivery.answered(channel, answer) {
            state.push(leaving);
        }
        state.finish_retiring();
        self.room.notify_all();
    }

    pub(super) fn flush(&self, deadline: Instant) -> bool {
        let me = thread::current().id();
        let busy = |state: &mut PipeState| {
            let here = state.delivering == Some(me);
            let waits = state.delivering.is_some() || !state.queue.is_empty() || state.delivery.is_holding();
            !state.closed && !here && waits
        };
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        !self.room.wait_while_for(&mut self.state.lock(), busy, left).timed_out()
    }

    /// Ends the link, after everything that was sent before is delivered.
    pub(super) fn close(&self) {
        {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.closed, true) {
                return;
            }
            state.queue.push_back(Item::Down);
        }
        self.room.notify_all();
        self.deliver();
    }

    pub(super) fn stats(&self) -> LinkStats {
        let state = self.state.lock();
        let (sent, dropped) = state.delivery.counts();
        LinkStats { link: self.info.clone(), sent, dropped, queued_bytes: state.waiting_bytes(), silences: 0 }
    }
}

impl PipeState {
    fn wanted(&mut self, envelope: &Envelope<'_>) -> Option<u32> {
        if self.closed {
            return None;
        }
        self.delivery.wanted(envelope)
    }

    fn push(&mut self, (message, channel, missing): Leaving<Arc<Message>>) {
        if let Some(Missing { start, lost }) = missing {
            self.queue.push_back(Item::Position(channel, start, lost));
        }
        self.bytes += message.size();
        self.queue.push_back(Item::Message(message));
    }

    /// Removes and returns the next item. If the queue is empty, first queues the positions of the
    /// losses that no message follows.
    #[inline]
    fn pop(&mut self, limit: usize) -> Option<Item> {
        if self.queue.is_empty() && self.delivery.has_unreported() {
            let unreported = self.delivery.take_unreported();
            self.queue
                .extend(unreported.into_iter().map(|(id, missing)| Item::Position(id, missing.start, missing.lost)));
        }
        let item = self.queue.pop_front()?;
        if let Item::Message(message) = &item {
            self.bytes -= message.size();
            self.taken += 1;
            self.stalled &= self.waiting_bytes() > limit / 2;
        }
        Some(item)
    }

    fn finish_retiring(&mut self) {
        for (id, missing) in self.delivery.ended() {
            let position = missing.map(|Missing { start, lost }| Item::Position(id, start, lost));
            self.queue.extend(position.into_iter().chain([Item::Retire(id)]));
        }
    }

    fn waiting_bytes(&self) -> usize {
        self.bytes + self.delivery.held_bytes()
    }

    fn has_room(&self, size: usize, limit: usize) -> bool {
        let used = self.waiting_bytes();
        used == 0 || used.saturating_add(size) <= limit
    }

    fn drop_oldest(&mut self) -> bool {
        let at = self.queue.iter().position(|item| matches!(item, Item::Message(_)));
        let Some((at, Item::Message(message))) = at.and_then(|at| Some((at, self.queue.remove(at)?))) else {
            return self.delivery.drop_oldest_held();
        };
        let (channel, start) = message.at();
        // No message is in front of the dropped one, so one position per channel suffices.
        let told = self.queue.iter_mut().take(at).find_map(|item| match item {
            Item::Position(of, to, lost) if *of == channel => Some((to, lost)),
            _ => None,
        });
        match told {
            Some((to, lost)) => (*to, *lost) = (start, *lost + 1),
            None => self.queue.insert(at, Item::Position(channel, start, 1)),
        }
        self.bytes -= message.size();
        self.delivery.count_drop(channel);
        true
    }
}
