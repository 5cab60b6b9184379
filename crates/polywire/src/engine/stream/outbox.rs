//! The sending side of a link. A publisher writes to the stream directly while the peer keeps up.
//! Messages of a burst are gathered, and messages for a slow peer are queued; both are written by
//! the link's second thread, the *flusher*. This is where the overflow policy applies.

use std::{
    collections::BTreeMap,
    io,
    net::Shutdown,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Extensions},
    frame::{Answer, Frame, FrameError, Start, StreamEncoder},
};

use super::{
    pace::{Burst, Pace, Turn},
    payload::{Messages, Payload},
    peer_liveliness::{Finding, LeaseMonitor, PeerLiveliness},
    queue::Queue,
    transport::ByteStream,
};
use crate::engine::{
    Disconnect, EngineOptions, Overflow, Sent,
    delivery::{Delivery, Ended, Holdable, Leaving, Missing, Notice, Outcome, start_of},
};

pub(super) use progress::Progress;

mod progress;

/// The number of bytes that one call of `pump` writes, approximately.
const PUMP_BYTES: usize = 256 << 10;
/// Bytes of frames other than messages that may wait for a peer. If more wait, this end breaks the
/// link.
const CONTROL_BYTES: usize = 16 << 20;
/// Why this end breaks the link to a silent peer.
const MOVED: &str = "this machine does not have the link's address any more";

/// The sending side of one link.
pub(super) struct Outbox {
    stream: Arc<dyn ByteStream>,
    options: EngineOptions,
    /// The pace of the port, which its links share.
    pace: Arc<Pace>,
    state: Mutex<Outgoing>,
    pub(super) peer_liveliness: PeerLiveliness,
    /// The number of received messages that the next heartbeat confirms; 0 if there are none to
    /// confirm.
    owed: AtomicU64,
    /// The peer relays.
    peer_relays: AtomicBool,
    /// Wakes the flusher.
    work: Condvar,
    /// Wakes publishers that wait for room, and callers of `flush`.
    room: Condvar,
}

/// What the flusher reports.
#[derive(Debug)]
pub(super) enum Report {
    /// Messages were dropped.
    Dropped(Notice),
    /// Nothing arrived from the peer for this lease.
    Silent(Duration),
    /// The peer is heard again.
    Heard,
}

struct Outgoing {
    encoder: StreamEncoder,
    /// The port's channels on this link.
    delivery: Delivery<Held>,
    /// The port's channel by the link's id for it.
    ids: BTreeMap<ChannelId, ChannelId>,
    /// Channels that the peer may not subscribe to: the link's id by the port's channel.
    denied: BTreeMap<ChannelId, ChannelId>,
    /// The topics of the denied channels, by the link's id.
    denied_topics: BTreeMap<ChannelId, Arc<str>>,
    queue: Queue,
    scratch: Vec<u8>,
    last_written: Instant,
    burst: Burst,
    /// The stream accepts no bytes for now; the flusher waits until it does.
    full: bool,
    /// While the stream is full: a publisher tries to write again when this many bytes wait. If
    /// only the flusher wrote, a fast publisher would fill the whole queue, which exceeds processor
    /// caches.
    retry: usize,
    /// A publisher has waited for room in vain. Publishers do not wait until half of the queue is
    /// free.
    stalled: bool,
    /// Bytes that have left the queue so far. With it, a waiting publisher distinguishes a slow
    /// peer from a stuck one.
    written: u64,
    /// Messages written or queued.
    handed: u64,
    /// Messages that the peer has confirmed.
    confirmed: u64,
    broken: bool,
    /// Why this end broke the link, if it did.
    reason: Option<Disconnect>,
}

/// A message that waits for the peer's answer to an announcement.
struct Held {
    channel: ChannelId,
    envelope: Envelope<'static>,
    extensions: Vec<u8>,
    payload: Vec<u8>,
}

impl Holdable for Held {
    fn at(&self) -> (ChannelId, Start) {
        (self.channel, start_of(&self.envelope))
    }

    fn size(&self) -> usize {
        self.payload.len() + self.extensions.len() + size_of::<Held>()
    }
}

/// A message in the queue: the link's id for the channel, and the channel's position after it.
type Mark = (ChannelId, Start);

impl Outbox {
    pub(super) fn new(stream: Arc<dyn ByteStream>, options: &EngineOptions, pace: Arc<Pace>) -> Self {
        let state = Outgoing {
            encoder: StreamEncoder::new(options.limits),
            delivery: Delivery::default(),
            ids: BTreeMap::new(),
            denied: BTreeMap::new(),
            denied_topics: BTreeMap::new(),
            queue: Queue::new(options.overflow == Overflow::DropOldest),
            scratch: Vec::new(),
            last_written: Instant::now(),
            burst: Burst::default(),
            full: false,
            retry: 0,
            stalled: false,
            written: 0,
            handed: 0,
            confirmed: 0,
            broken: false,
            reason: None,
        };
        let (work, room) = (Condvar::new(), Condvar::new());
        let (options, state) = (options.clone(), Mutex::new(state));
        Outbox {
            stream,
            options,
            pace,
            state,
            peer_liveliness: PeerLiveliness::default(),
            owed: AtomicU64::new(0),
            peer_relays: AtomicBool::new(false),
            work,
            room,
        }
    }

    /// Announces one of the port's channels.
    pub(super) fn announce(&self, channel: ChannelId, start: Start, a: &Announcement) -> Result<(), FrameError> {
        let mut state = self.lock();
        let mut out = Vec::new();
        let id = state.encoder.announce(a, start, &mut out)?;
        state.delivery.announce(channel, id, a);
        state.ids.insert(id, channel);
        self.push_control(&mut state, &out, false);
        Ok(())
    }

    /// Announces a denied channel, of which the peer gets no messages.
    pub(super) fn deny(&self, channel: ChannelId, start: Start, a: &Announcement) -> Result<(), FrameError> {
        let mut state = self.lock();
        let mut out = Vec::new();
        let id = state.encoder.announce(a, start, &mut out)?;
        state.denied.insert(channel, id);
        state.denied_topics.insert(id, a.topic.as_str().into());
        self.push_control(&mut state, &out, false);
        Ok(())
    }

    /// Returns the topic of the denied channel that the peer knows as `id`.
    pub(super) fn denied_topic(&self, id: ChannelId) -> Option<Arc<str>> {
        self.lock().denied_topics.get(&id).cloned()
    }

    /// Ends one of the port's channels, after the messages held for it have left.
    pub(super) fn retire(&self, channel: ChannelId) {
        let mut state = self.lock();
        if let Some(id) = state.denied.remove(&channel) {
            state.denied_topics.remove(&id);
            let mut out = Vec::new();
            // Fails only for a channel that has ended.
            if state.encoder.retire(id, &mut out).is_ok() {
                self.push_control(&mut state, &out, false);
            }
            return;
        }
        state.delivery.retire(channel);
        self.finish_retiring(&mut state);
    }

    /// Notes the peer's answer to the channel that it knows as `id`, and returns the port's
    /// channel.
    pub(super) fn answered(&self, id: ChannelId, answer: &Answer) -> Option<ChannelId> {
        let mut state = self.lock();
        let channel = *state.ids.get(&id)?;
        let leaving = state.delivery.answered(channel, answer);
        self.release(&mut state, leaving);
        self.room.notify_all();
        Some(channel)
    }

    /// Sends, queues, holds or drops a message of the port's channel `envelope.channel`, and counts
    /// the outcome in `sent`. Returns the notice of dropped messages that is due, if any. Blocks
    /// only with [`Overflow::Block`]. Fails if the message is too large.
    #[inline]
    pub(super) fn send(
        &self,
        envelope: &Envelope<'_>,
        payload: &mut Payload<'_>,
        turn: Turn,
        sent: &mut Sent,
    ) -> Result<Option<Notice>, FrameError> {
        let mut state = self.lock();
        let gathers = !matches!(turn, Turn::AtOnce(_));
        if gathers && self.queue_some(&mut state, [(*envelope, payload.bytes())].as_slice(), 0..1, turn, sent) > 0 {
            return Ok(None);
        }
        let (outcome, notice) = self.send_in(&mut state, envelope, payload, turn)?;
        outcome.count(sent);
        Ok(notice)
    }

    /// Writes the messages that waited to be written together ([`Turn::Together`]).
    pub(super) fn leave(&self) {
        let state = self.lock();
        // During a burst, the flusher writes the queue.
        if !state.burst.gathering {
            self.leave_in(state, Instant::now());
        }
    }

    #[inline]
    fn leave_in(&self, mut state: MutexGuard<'_, Outgoing>, now: Instant) {
        if !state.full && !state.queue.is_empty() {
            self.pump_at(&mut state, PUMP_BYTES, now);
        }
    }

    /// Sends the first `count` messages one after the other, and counts the outcomes in `sent`.
    /// With [`Turn::AtOnce`], it writes them together. Passes each notice of dropped messages that
    /// is due to `tell`, without holding the lock. Fails with the index of the first message that
    /// is too large.
    #[inline]
    pub(super) fn send_all(
        &self,
        messages: &(impl Messages + ?Sized),
        count: usize,
        turn: Turn,
        sent: &mut Sent,
        tell: impl Fn(Notice),
    ) -> Result<(), (usize, FrameError)> {
        let each = if turn == Turn::Gather { turn } else { Turn::Together };
        let mut state = self.lock();
        let queued = self.queue_some(&mut state, messages, 0..count, each, sent);
        let result = match queued == count {
            true => Ok(()),
            false => self.send_rest(&mut state, messages, queued..count, each, sent, tell),
        };
        if let Turn::AtOnce(began) = turn {
            self.leave_in(state, began);
        }
        result
    }

    /// Sends the messages of a range.
    #[inline(never)]
    fn send_rest(
        &self,
        state: &mut MutexGuard<'_, Outgoing>,
        messages: &(impl Messages + ?Sized),
        mut range: Range<usize>,
        turn: Turn,
        sent: &mut Sent,
        tell: impl Fn(Notice),
    ) -> Result<(), (usize, FrameError)> {
        loop {
            range.start += self.queue_some(state, messages, range.clone(), turn, sent);
            let Some(index) = range.next() else { return Ok(()) };
            let Some((envelope, payload)) = messages.get(index) else { return Ok(()) };
            let sending = self.send_in(state, &envelope, &mut Payload::Bytes(payload), turn);
            let (outcome, notice) = sending.map_err(|error| (index, error))?;
            outcome.count(sent);
            if let Some(notice) = notice {
                MutexGuard::unlocked(state, || tell(notice));
            }
        }
    }

    /// Queues the first messages of a range that belong to one channel, as long as the queue has
    /// room and is not due to be written, and nothing is held or missing before them. Counts them
    /// in `sent`, and returns how many they are.
    #[inline(always)]
    fn queue_some(
        &self,
        state: &mut Outgoing,
        messages: &(impl Messages + ?Sized),
        range: Range<usize>,
        turn: Turn,
        sent: &mut Sent,
    ) -> usize {
        let Outgoing { encoder, delivery, queue, full, .. } = state;
        let Range { start, end } = range;
        let Some((first, payload)) = messages.get(start).filter(|_| start < end && !state.broken) else { return 0 };
        let channel = first.channel;
        let Some((id, subscribers)) = delivery.ready_channel(channel) else { return 0 };
        let Ok(mut encoder) = encoder.channel(id) else { return 0 };
        let (mut adding, options, full) = (queue.adding(), &self.options, *full);
        // The first message is not part of the loop, which costs more for one message.
        let mut count = usize::from(adding.add(&mut encoder, (id, &first, payload), options, full));
        while count > 0
            && start + count < end
            && let Some((envelope, payload)) = messages.get(start + count)
            && envelope.channel == channel
            && adding.add(&mut encoder, (id, &envelope, payload), options, full)
        {
            count += 1;
        }
        delivery.count_sent(count as u64);
        state.handed += count as u64;
        sent.peers += count;
        sent.subscribers += count * subscribers as usize;
        if count > 0 {
            self.queued(state, turn);
        }
        count
    }

    /// Sends, queues, holds or drops a message. Returns the outcome, and the notice of dropped
    /// messages that is due, if any. Fails if the message is too large.
    #[inline(never)]
    fn send_in(
        &self,
        state: &mut MutexGuard<'_, Outgoing>,
        envelope: &Envelope<'_>,
        payload: &mut Payload<'_>,
        turn: Turn,
    ) -> Result<(Outcome, Option<Notice>), FrameError> {
        let size = payload.bytes().len();
        let mut notice = None;
        let Some(mut subscribers) = state.wanted(envelope) else { return Ok((Outcome::Unwanted, None)) };
        if !state.has_room(size, &self.options) {
            self.make_room(state, size);
            // Waiting released the lock, so the channel may have ended or been answered.
            let Some(now) = state.wanted(envelope) else { return Ok((Outcome::Unwanted, None)) };
            subscribers = now;
            if !state.has_room(size, &self.options) {
                state.delivery.drop_newest(envelope);
                self.work.notify_one();
                let notice = state.delivery.notice(Instant::now());
                return Ok((Outcome::Dropped, notice));
            }
            notice = state.delivery.notice(Instant::now());
        }
        let is_held = state.delivery.must_hold(envelope.channel, subscribers);
        if is_held {
            self.options.limits.check_message(envelope, size)?;
        }
        state.delivery.count_sent(1);
        if is_held {
            state.hold(envelope, payload.bytes());
        } else {
            let Some((id, missing)) = state.delivery.next(envelope.channel) else {
                return Err(FrameError::UnknownChannel(envelope.channel));
            };
            let to = Envelope { channel: id, ..*envelope };
            self.dispatch(state, &to, missing, payload, turn)?;
        }
        Ok((Outcome::Sent(subscribers), notice))
    }

    /// Notes that `lost` messages up to `start` were lost before they reached this node. The next
    /// message or the flusher reports it to the peer.
    pub(super) fn lose(&self, channel: ChannelId, start: Start, lost: u64) {
        self.lock().delivery.lose(channel, Missing { start, lost });
        self.work.notify_one();
    }

    /// Promises the peer a lease, if the options have one.
    pub(super) fn promise(&self) {
        if !self.options.lease.is_zero() {
            let milliseconds = u64::try_from(self.options.lease.as_millis()).unwrap_or(u64::MAX).max(1);
            self.control(&Frame::Lease { milliseconds });
        }
    }

    /// Notes the lease that the peer has promised.
    pub(super) fn promised(&self, milliseconds: u64) {
        self.peer_liveliness.promised(milliseconds);
        // The flusher may be asleep, and would not check the peer's lease.
        let _state = self.lock();
        self.work.notify_one();
    }

    /// Sends a frame that is neither a message nor an announcement.
    pub(super) fn control(&self, frame: &Frame<'_>) {
        let mut state = self.lock();
        let mut out = Vec::new();
        state.encoder.control(frame, &mut out);
        let reply = matches!(frame, Frame::Answer { .. } | Frame::Document { .. });
        self.push_control(&mut state, &out, reply);
    }

    /// Confirms to the peer how many of its messages were received. Returns false, and sends
    /// nothing, while the stream is full.
    pub(super) fn confirm(&self, messages: u64) -> bool {
        let mut state = self.lock();
        if state.full {
            return false;
        }
        let mut out = Vec::new();
        state.encoder.control(&Frame::Taken { messages }, &mut out);
        self.push_control(&mut state, &out, false);
        self.owed.store(0, Ordering::Relaxed);
        true
    }

    /// Returns whether heartbeats confirm received messages. Heartbeats are rare, so a thin stream
    /// of received messages does not cost a frame in the other direction for each message.
    pub(super) fn confirms_by_heartbeats(&self) -> bool {
        self.options.thin && !self.options.lease.is_zero()
    }

    /// Sets the number of received messages that the next heartbeat confirms.
    pub(super) fn confirm_later(&self, messages: u64) {
        self.owed.store(messages, Ordering::Relaxed);
    }

    /// Waits while the replies that wait for the peer exceed the size of one document. Breaks the
    /// link and returns false if the peer reads nothing for `patience`.
    pub(super) fn replies_leave(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        let (mut deadline, mut written) = (Instant::now() + patience, state.written);
        while !state.broken && state.queue.reply_bytes() > self.options.limits.document_bytes {
            if state.written != written {
                (deadline, written) = (Instant::now() + patience, state.written);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.end(&mut state, Disconnect::Unread);
            } else if state.full {
                self.room.wait_for(&mut state, left.min(Duration::from_millis(20)));
            } else {
                self.pump(&mut state, PUMP_BYTES);
            }
        }
        // If the link broke by itself, the bytes received before may still be handled.
        state.reason.is_none()
    }

    /// Returns why this end broke the link off, if it did.
    pub(super) fn reason(&self) -> Option<Disconnect> {
        self.lock().reason.clone()
    }

    /// Ends the link, because there is another link to the same node.
    pub(super) fn replace(&self) {
        self.end(&mut self.lock(), Disconnect::Replaced);
    }

    /// Ends the link's sending side and wakes all waiting threads.
    pub(super) fn break_off(&self) {
        self.lock().broken = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// Runs the flusher until the link ends: writes what publishers left in the queue, sends
    /// heartbeats, and checks whether the peer is alive.
    pub(super) fn run_flusher(&self, tell: impl Fn(Report)) {
        let mut monitor = LeaseMonitor::new(self.options.lease, Instant::now());
        let mut state = self.lock();
        while !state.broken {
            let caught_up = state.waiting_bytes() <= self.options.queue_bytes / 2;
            let notice = if caught_up { state.delivery.end_of_episode() } else { None };
            let report = notice.map(Report::Dropped).or_else(|| self.beat(&mut state, &mut monitor));
            if let Some(report) = report {
                MutexGuard::unlocked(&mut state, || tell(report));
                continue;
            }
            self.flusher_step(&mut state, &monitor);
        }
    }

    /// Sends a heartbeat if one is due, and checks whether the peer is alive.
    fn beat(&self, state: &mut Outgoing, monitor: &mut LeaseMonitor) -> Option<Report> {
        let now = Instant::now();
        // A queued frame serves as a heartbeat once it leaves.
        if state.queue.is_empty() && !state.full && monitor.is_due(now, state.last_written) {
            let mut out = Vec::new();
            let frame = match self.owed.swap(0, Ordering::Relaxed) {
                0 => Frame::Heartbeat,
                messages => Frame::Taken { messages },
            };
            state.encoder.control(&frame, &mut out);
            self.push_control(state, &out, false);
        }
        let report = match monitor.look(&self.peer_liveliness, now)? {
            Finding::StillSilent if self.stream.has_moved() => {
                self.end(state, Disconnect::Lost(MOVED.into()));
                return None;
            }
            Finding::StillSilent => return None,
            Finding::Silent(lease) => Report::Silent(lease),
            Finding::Heard => Report::Heard,
        };
        // Wakes publishers that wait for room: they do not wait for a silent peer.
        self.room.notify_all();
        Some(report)
    }

    fn flusher_step(&self, state: &mut MutexGuard<'_, Outgoing>, monitor: &LeaseMonitor) {
        if state.queue.is_empty() && !state.full {
            self.tell_lost(state);
        }
        if state.full {
            // Bounded, because the link may be broken off meanwhile. The next write shows whether
            // the stream is ready.
            MutexGuard::unlocked(state, || self.stream.wait_writable(Duration::from_millis(100)));
            state.full = false;
            self.pump(state, PUMP_BYTES);
        } else if state.burst.gathering {
            if self.work.wait_for(state, self.pace.rest()).timed_out() {
                self.look(state);
            }
        } else if !state.queue.is_empty() {
            self.pump(state, PUMP_BYTES);
        } else {
            // The queue keeps memory for its usual content, and frees what one huge message took.
            state.queue.shrink(self.options.queue_bytes.saturating_mul(2));
            match monitor.rest(&self.peer_liveliness, Instant::now(), state.last_written) {
                Some(rest) => {
                    self.work.wait_for(state, rest);
                }
                None => self.work.wait(state),
            }
        }
    }

    /// Writes the gathered messages if the burst is over, or if no thread has written since the
    /// flusher's last check. Asks the publisher to write them with its next message if it is busy
    /// on this link, since it would have to wait for the lock while this thread writes. If it is no
    /// longer busy at the next check, writes them then.
    fn look(&self, state: &mut Outgoing) {
        state.burst.gathering = self.pace.look(&mut state.burst);
        let Burst { gathering, written, asked, handed, .. } = state.burst;
        let is_due = !gathering || !written;
        let is_busy = state.handed.saturating_sub(handed) >= u64::from(self.options.burst);
        state.burst.asked = is_due && gathering && is_busy && !asked;
        if is_due && !state.burst.asked && !state.full {
            self.pump(state, PUMP_BYTES);
        }
        (state.burst.written, state.burst.handed) = (false, state.handed);
    }

    /// Reports to the peer the losses after the last message sent, which no later message reports
    /// yet.
    fn tell_lost(&self, state: &mut Outgoing) {
        let mut out = Vec::new();
        for (id, Missing { start, lost }) in state.delivery.take_unreported() {
            // Fails only for a channel that has ended.
            let _ = state.encoder.position(id, start, lost, &mut out);
        }
        if !out.is_empty() {
            self.push_control(state, &out, false);
        }
    }

    /// Waits until no message or frame waits any more, at most until `deadline`. Returns whether
    /// that is so. Does not wait for a silent peer.
    pub(super) fn flush(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        loop {
            if state.broken || state.has_left() {
                return !state.broken;
            }
            if !state.full {
                self.pump(&mut state, PUMP_BYTES);
                self.work.notify_one();
                if state.has_left() {
                    continue;
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.peer_liveliness.is_silent() {
                return false;
            }
            self.room.wait_for(&mut state, left.min(Duration::from_millis(20)));
        }
    }

    /// Encodes a message, whose envelope has the link's id for the channel, and writes or queues
    /// it.
    fn dispatch(
        &self,
        state: &mut Outgoing,
        envelope: &Envelope<'_>,
        missing: Option<Missing>,
        payload: &mut Payload<'_>,
        turn: Turn,
    ) -> Result<(), FrameError> {
        let Outgoing { encoder, queue, scratch, .. } = state;
        if let Some(Missing { start, lost }) = missing {
            scratch.clear();
            encoder.position(envelope.channel, start, lost, scratch)?;
            queue.push(scratch, 0, None);
        }
        scratch.clear();
        let encoded = encoder.data(envelope, payload.bytes().len(), scratch);
        if let Err(error) = encoded {
            // The position before it is still sent.
            self.queued(state, turn);
            return Err(error);
        }
        state.handed += 1;
        let mark = (envelope.channel, start_of(envelope));
        if let Turn::AtOnce(began) = turn
            && let Payload::Loan(loan) = payload
            && state.queue.is_empty()
            && !state.full
            && let Some(frame) = loan.with_header(&state.scratch)
        {
            let written = self.stream.write(frame);
            state.last_written = began;
            return self.after_write(state, frame, written, mark);
        }
        let Outgoing { queue, scratch, .. } = state;
        let mut adding = queue.adding();
        adding.bytes.extend_from_slice(scratch);
        adding.bytes.extend_from_slice(payload.bytes());
        adding.end_message(mark);
        self.queued(state, turn);
        Ok(())
    }

    /// Called after frames were queued. Writes them, unless more messages are to follow.
    #[inline]
    fn queued(&self, state: &mut Outgoing, turn: Turn) {
        if state.full {
            if state.queue.len() >= state.retry {
                state.full = false;
                self.pump(state, PUMP_BYTES);
            }
            return;
        }
        if state.queue.is_empty() {
            return;
        }
        match turn {
            Turn::AtOnce(began) => self.pump_at(state, PUMP_BYTES, began),
            _ if state.queue.len() >= self.options.write_bytes => self.pump(state, PUMP_BYTES),
            Turn::Gather if state.burst.asked => self.pump(state, PUMP_BYTES),
            Turn::Gather if !state.burst.gathering => {
                state.burst = Burst { handed: state.handed, ..self.pace.burst_of_link() };
                self.work.notify_one();
            }
            Turn::Gather | Turn::Together => {}
        }
    }

    fn after_write(
        &self,
        state: &mut Outgoing,
        frame: &[u8],
        written: io::Result<usize>,
        mark: Mark,
    ) -> Result<(), FrameError> {
        match written {
            Ok(sent) if sent == frame.len() => {}
            Ok(sent) => self.queue_rest(state, frame, sent, mark),
            Err(e) if is_full(&e) => self.queue_rest(state, frame, 0, mark),
            Err(_) => self.broke(state),
        }
        Ok(())
    }

    fn queue_rest(&self, state: &mut Outgoing, frame: &[u8], sent: usize, mark: Mark) {
        state.queue.push(frame, sent, Some(mark));
        state.full = true;
        self.work.notify_one();
    }

    /// Queues a frame that is not a message. `reply`: the peer has requested it.
    fn push_control(&self, state: &mut Outgoing, frame: &[u8], reply: bool) {
        if state.queue.control_bytes() > CONTROL_BYTES {
            // The peer requests more than it reads.
            return self.end(state, Disconnect::Unread);
        }
        state.queue.push_control(frame, reply);
        if !state.full {
            self.pump(state, usize::MAX);
        }
    }

    fn pump(&self, state: &mut Outgoing, most: usize) {
        self.pump_at(state, most, Instant::now());
    }

    /// Writes about `most` bytes of the queue, and notes that it did so at `now`.
    fn pump_at(&self, state: &mut Outgoing, most: usize, now: Instant) {
        if state.broken {
            return;
        }
        let before = state.queue.len();
        let pumped = state.queue.pump(most, |bytes| self.stream.write(bytes));
        state.written += before.saturating_sub(state.queue.len()) as u64;
        match pumped {
            // The flusher, which may be asleep, writes the rest.
            Ok(()) if !state.queue.is_empty() => {
                self.work.notify_one();
            }
            Ok(()) => {}
            Err(e) if is_full(&e) => {
                state.full = true;
                state.retry = state.queue.len().saturating_add(self.options.write_bytes);
                self.work.notify_one();
            }
            Err(_) => self.broke(state),
        }
        state.last_written = now;
        (state.burst.written, state.burst.asked) = (true, false);
        if state.waiting_bytes() <= self.options.queue_bytes / 2 {
            state.stalled = false;
            self.room.notify_all();
        }
    }

    fn end(&self, state: &mut Outgoing, reason: Disconnect) {
        state.reason = Some(reason);
        self.broke(state);
    }

    /// Ends the stream. The reading thread notices and ends the link.
    fn broke(&self, state: &mut Outgoing) {
        state.broken = true;
        self.stream.shutdown(Shutdown::Both);
        self.work.notify_all();
        self.room.notify_all();
    }

    fn make_room(&self, state: &mut MutexGuard<'_, Outgoing>, size: usize) {
        if !state.full {
            // Gathered messages make room when they are written.
            self.pump(state, PUMP_BYTES);
        }
        match self.options.overflow {
            Overflow::DropNewest => {}
            Overflow::DropOldest => {
                while !state.has_room(size, &self.options) && state.drop_oldest() {}
                self.work.notify_one();
            }
            Overflow::Block { patience } => self.wait_for_room(state, size, patience),
        }
    }

    fn wait_for_room(&self, state: &mut MutexGuard<'_, Outgoing>, size: usize, patience: Duration) {
        let (mut deadline, mut written) = (Instant::now() + patience, state.written);
        while !state.has_room(size, &self.options)
            && !state.broken
            && !state.stalled
            && !self.peer_liveliness.is_silent()
        {
            if state.written != written {
                (deadline, written) = (Instant::now() + patience, state.written);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.stalled = true;
                break;
            }
            if !state.full && !state.queue.is_empty() {
                // Write as long as the stream accepts bytes. Once it is full, the flusher
                // continues. Held messages wait for an answer, whose handling needs the lock.
                self.pump(state, PUMP_BYTES);
            } else {
                self.room.wait_for(state, left);
            }
        }
    }

    /// Sends the messages that an answer has released.
    fn release(&self, state: &mut Outgoing, leaving: Vec<Leaving<Held>>) {
        let turn = Turn::AtOnce(Instant::now());
        for (held, id, missing) in leaving {
            let extensions = Extensions::parse(&held.extensions).unwrap_or_default();
            let envelope = Envelope { channel: id, extensions, ..held.envelope };
            // The size was checked before the message was held. If the stream fails, the link ends.
            let _ = self.dispatch(state, &envelope, missing, &mut Payload::Bytes(&held.payload), turn);
        }
        self.finish_retiring(state);
        if state.delivery.has_unreported() {
            self.work.notify_one();
        }
    }

    fn finish_retiring(&self, state: &mut Outgoing) {
        for (id, missing) in state.delivery.ended() {
            state.ids.remove(&id);
            let mut out = Vec::new();
            if state.encode_end((id, missing), &mut out).is_ok() {
                self.push_control(state, &out, false);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        self.state.lock()
    }
}

impl Outgoing {
    #[inline]
    fn wanted(&mut self, envelope: &Envelope<'_>) -> Option<u32> {
        if self.broken {
            return None;
        }
        self.delivery.wanted(envelope)
    }

    fn waiting_bytes(&self) -> usize {
        self.queue.len() + self.delivery.held_bytes()
    }

    /// Returns whether no frame is queued, no message is held, and no loss is unreported.
    fn has_left(&self) -> bool {
        self.queue.is_empty() && !self.delivery.is_holding() && !self.delivery.has_unreported()
    }

    /// Returns whether there is room for a message. One that is larger than the queue has room if
    /// nothing else waits.
    #[inline]
    fn has_room(&self, size: usize, options: &EngineOptions) -> bool {
        let used = self.waiting_bytes();
        used == 0 || used.saturating_add(size) <= options.queue_bytes
    }

    fn hold(&mut self, envelope: &Envelope<'_>, payload: &[u8]) {
        self.delivery.hold(Held {
            channel: envelope.channel,
            envelope: Envelope { extensions: Extensions::default(), ..*envelope },
            extensions: envelope.extensions.bytes().to_vec(),
            payload: payload.to_vec(),
        });
    }

    fn encode_end(&mut self, (id, missing): Ended, out: &mut Vec<u8>) -> Result<(), FrameError> {
        if let Some(Missing { start, lost }) = missing {
            self.encoder.position(id, start, lost, out)?;
        }
        self.encoder.retire(id, out)
    }

    fn drop_oldest(&mut self) -> bool {
        if self.delivery.drop_oldest_held() {
            return true;
        }
        let Some(id) = self.queue.drop_oldest() else { return false };
        self.handed -= 1;
        let channel = self.ids.get(&id).copied().unwrap_or_default();
        self.delivery.count_drop(channel);
        true
    }
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

#[cfg(test)]
mod tests;
