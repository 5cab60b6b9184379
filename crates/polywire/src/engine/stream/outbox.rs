//! The sending side of a link: written directly while the peer keeps up, gathered in bursts, queued when it does not.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Extensions, Id128},
    frame::{Answer, Frame, FrameError, Start, StreamEncoder},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SendFlags, send},
};
use socket2::Socket;

use super::{pace::Pace, queue::Queue};
use crate::engine::{EngineOptions, Loan, Overflow};

/// Bytes that the flusher writes before it lets others at the queue.
const PUMP_BYTES: usize = 256 << 10;
/// How long the flusher stays near after a burst, at least.
const AFTER_BURST: Duration = Duration::from_millis(2);
/// Nothing is gathered for longer, however many links a port has.
const LONGEST_GATHER: Duration = Duration::from_millis(5);
/// Pause between two events about the same slow peer.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// One link's outgoing half.
pub(super) struct Outbox {
    socket: Arc<Socket>,
    options: EngineOptions,
    state: Mutex<State>,
    /// Wakes the flusher.
    work: Condvar,
    /// Wakes writers that wait for room, and those who flush.
    room: Condvar,
}

/// What a port knows of a publication that one of its links does not.
#[derive(Clone, Copy, Default)]
pub(super) struct Round {
    /// How long the publisher was away since the port's last publication.
    pub(super) pause: Option<Duration>,
    /// Links that it goes to.
    pub(super) links: u32,
}

struct State {
    encoder: StreamEncoder,
    lanes: BTreeMap<ChannelId, Lane>,
    ids: BTreeMap<ChannelId, ChannelId>,
    queue: Queue,
    /// Messages of channels that the peer has not answered, and what follows them from the same writers.
    held: VecDeque<Held>,
    held_bytes: usize,
    scratch: Vec<u8>,
    pace: Pace,
    /// Links of the port, as of the last publication.
    links: u32,
    /// The socket takes no more for now; the flusher waits until it does.
    full: bool,
    /// The peer was waited for in vain.
    stalled: bool,
    /// Bytes that pumping has moved: tells a slow peer from one that takes nothing.
    written: u64,
    broken: bool,
    tally: Tally,
}

/// One of the port's channels on this link.
struct Lane {
    id: ChannelId,
    writer: Id128,
    topic: Arc<str>,
    interest: Interest,
    /// The last message that was not sent, if the one before the next was not.
    skipped: Option<Start>,
    /// Messages dropped since the last one sent.
    lost: u64,
    /// Ends once nothing is held for it.
    retiring: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Interest {
    Asked,
    Wanted,
    Unwanted,
}

struct Held {
    channel: ChannelId,
    envelope: Envelope<'static>,
    extensions: Vec<u8>,
    payload: Vec<u8>,
}

impl Held {
    fn size(&self) -> usize {
        self.payload.len() + self.extensions.len() + size_of::<Held>()
    }
}

/// Counts for [`super::LinkStats`] and the events.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) dropped: u64,
    pub(super) queued_bytes: usize,
    /// Dropped and not told by an event yet.
    untold: u64,
    /// When the last event went out, while messages are being dropped.
    told: Option<Instant>,
    last_topic: Option<Arc<str>>,
}

/// A message in the queue: the link's channel, and where that stands after it.
type Mark = (ChannelId, Start);

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Written, queued or held.
    Sent,
    /// The peer does not want the channel.
    Unwanted,
    /// No room.
    Dropped,
}

/// Messages dropped that an event is due for: the topic of the last one, and how many.
pub(super) type Notice = (Arc<str>, u64);

/// A payload, where it lies.
pub(super) enum Payload<'a> {
    /// With room in front for the header.
    Loan(&'a mut Loan),
    /// Anywhere.
    Bytes(&'a [u8]),
}

impl Payload<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Payload::Loan(loan) => loan.payload(),
            Payload::Bytes(bytes) => bytes,
        }
    }
}

impl Outbox {
    pub(super) fn new(socket: Arc<Socket>, options: &EngineOptions) -> Self {
        let state = State {
            encoder: StreamEncoder::new(options.limits),
            lanes: BTreeMap::new(),
            ids: BTreeMap::new(),
            queue: Queue::new(options.overflow == Overflow::DropOldest),
            held: VecDeque::new(),
            held_bytes: 0,
            scratch: Vec::new(),
            pace: Pace::new(),
            links: 1,
            full: false,
            stalled: false,
            written: 0,
            broken: false,
            tally: Tally::default(),
        };
        let (work, room) = (Condvar::new(), Condvar::new());
        Outbox { socket, options: options.clone(), state: Mutex::new(state), work, room }
    }

    /// Announces one of the port's channels.
    pub(super) fn announce(&self, channel: ChannelId, start: Start, a: &Announcement) -> Result<(), FrameError> {
        let mut state = self.lock();
        let mut out = Vec::new();
        let id = state.encoder.announce(a, start, &mut out)?;
        let lane = Lane {
            id,
            writer: a.writer,
            topic: a.topic.as_str().into(),
            interest: Interest::Asked,
            skipped: None,
            lost: 0,
            retiring: false,
        };
        state.lanes.insert(channel, lane);
        state.ids.insert(id, channel);
        self.push_control(&mut state, &out);
        Ok(())
    }

    /// Ends one of the port's channels, after what is held for it.
    pub(super) fn retire(&self, channel: ChannelId) {
        let mut state = self.lock();
        let Some(lane) = state.lanes.get_mut(&channel) else { return };
        lane.retiring = true;
        self.finish_retiring(&mut state);
    }

    /// The peer's word on the channel that it knows as `id`; gives the port's channel.
    pub(super) fn answered(&self, id: ChannelId, answer: &Answer) -> Option<ChannelId> {
        let mut state = self.lock();
        let channel = *state.ids.get(&id)?;
        let lane = state.lanes.get_mut(&channel)?;
        lane.interest = if answer.accepts() { Interest::Wanted } else { Interest::Unwanted };
        if lane.interest == Interest::Unwanted {
            state.skip_held(channel);
        }
        self.release(&mut state);
        self.room.notify_all();
        Some(channel)
    }

    /// Sends a message of the port's channel `envelope.channel`.
    #[inline]
    pub(super) fn send(
        &self,
        envelope: &Envelope<'_>,
        payload: &mut Payload<'_>,
        round: Round,
    ) -> Result<(Outcome, Option<Notice>), FrameError> {
        let size = payload.bytes().len();
        let mut state = self.lock();
        let mut notice = None;
        if !state.wants(envelope) {
            return Ok((Outcome::Unwanted, None));
        }
        if !state.has_room(size, &self.options) {
            state = self.make_room(state, size);
            // Waiting gave the lock away: the channel may be gone or answered.
            if !state.wants(envelope) {
                return Ok((Outcome::Unwanted, None));
            }
            if !state.has_room(size, &self.options) {
                state.drop_newest(envelope);
                return Ok((Outcome::Dropped, state.notice(envelope.channel)));
            }
            notice = state.notice(envelope.channel);
        }
        state.tally.sent += 1;
        state.links = round.links;
        if state.must_hold(envelope.channel) {
            state.hold(envelope, payload.bytes());
        } else {
            self.dispatch(&mut state, envelope, payload, round.pause)?;
        }
        Ok((Outcome::Sent, notice))
    }

    /// The peer has to be told that `lost` messages up to `start` are missing.
    pub(super) fn lose(&self, channel: ChannelId, start: Start, lost: u64) {
        let mut state = self.lock();
        let Some(lane) = state.lanes.get_mut(&channel) else { return };
        lane.skipped = Some(start);
        lane.lost += lost;
        self.work.notify_one();
    }

    /// Sends a frame that concerns no channel of this direction.
    pub(super) fn control(&self, frame: &Frame<'_>) {
        let mut state = self.lock();
        let mut out = Vec::new();
        state.encoder.control(frame, &mut out);
        self.push_control(&mut state, &out);
    }

    /// Ends everything; those who wait are woken.
    pub(super) fn break_off(&self) {
        self.lock().broken = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// The flusher's whole life: writes what nobody else will.
    pub(super) fn run_flusher(&self, tell: impl Fn(Notice)) {
        let mut state = self.lock();
        while !state.broken {
            if let Some(notice) = state.end_of_episode(&self.options) {
                drop(state);
                tell(notice);
                state = self.lock();
                continue;
            }
            state = self.flusher_step(state);
        }
    }

    fn flusher_step<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.queue.is_empty() && !state.full {
            self.tell_lost(&mut state);
        }
        if state.full {
            drop(state);
            self.wait_writable();
            state = self.lock();
            state.full = false;
            self.pump(&mut state, PUMP_BYTES);
        } else if !state.queue.is_empty() {
            let age = state.pace.since.elapsed();
            let gather = self.gather(&state);
            if !state.pace.gathering || age >= gather {
                self.pump(&mut state, PUMP_BYTES);
            } else {
                return wait_timeout(&self.work, state, gather - age);
            }
        } else if state.pace.gathering {
            let before = state.pace.last_publish;
            // A round of writes to other links is no end of the burst.
            let near = AFTER_BURST.max(self.gather(&state).saturating_mul(2));
            state = wait_timeout(&self.work, state, near);
            if state.pace.last_publish == before && state.queue.is_empty() {
                state.pace.calm_down();
            }
            return state;
        } else {
            // A queue that fills now and then keeps its memory; only what one huge message took goes back.
            state.queue.shrink(self.options.queue_bytes.saturating_mul(2));
            return self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// How long gathered messages wait for company: for as long as two rounds of writes to all links of the port take, if that is longer than asked for. Were what they gather due before
    /// a round is through, each message would be a write of its own to each link again, and every flusher would wake between any two.
    fn gather(&self, state: &State) -> Duration {
        let rounds = state.pace.write.saturating_mul(state.links.saturating_mul(2));
        self.options.gather.max(rounds.min(LONGEST_GATHER))
    }

    /// Messages dropped at the end of what is queued would go untold until the next one.
    fn tell_lost(&self, state: &mut State) {
        let mut out = Vec::new();
        let State { lanes, encoder, .. } = state;
        for lane in lanes.values_mut().filter(|lane| lane.lost > 0 && lane.interest == Interest::Wanted) {
            let start = lane.skipped.take().unwrap_or_default();
            // A position that the encoder does not take concerns a channel that is gone.
            let _ = encoder.position(lane.id, start, std::mem::take(&mut lane.lost), &mut out);
        }
        if !out.is_empty() {
            self.push_control(state, &out);
        }
    }

    fn wait_writable(&self) {
        let mut fds = [PollFd::new(&*self.socket, PollFlags::OUT)];
        // Whatever it says, the next write tells; the time-out is there for links that are broken off meanwhile.
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 }));
    }

    /// Waits until all has left, or `deadline`.
    pub(super) fn flush(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        loop {
            let lost = state.lanes.values().any(|lane| lane.lost > 0 && lane.interest == Interest::Wanted);
            if state.broken || (state.queue.is_empty() && state.held.is_empty() && !lost) {
                return !state.broken;
            }
            if !state.full {
                self.pump(&mut state, PUMP_BYTES);
                self.work.notify_one();
                if state.queue.is_empty() && state.held.is_empty() && !lost {
                    continue;
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = wait_timeout(&self.room, state, left.min(Duration::from_millis(20)));
        }
    }

    pub(super) fn tally(&self) -> Tally {
        let state = self.lock();
        Tally { queued_bytes: state.queue.len() + state.held_bytes, ..state.tally.clone() }
    }

    /// Encodes the message and writes it, or has it written soon.
    #[inline]
    fn dispatch(
        &self,
        state: &mut State,
        envelope: &Envelope<'_>,
        payload: &mut Payload<'_>,
        pause: Option<Duration>,
    ) -> Result<(), FrameError> {
        let now = Instant::now();
        let (told, mark) = state.encode_header(envelope, payload.bytes().len())?;
        // Asked for each message, or the pace would take the time between two writes for a pause.
        let at_once = state.pace.at_once(now, pause, self.options.burst);
        let direct = at_once && state.queue.is_empty() && !state.full;
        if direct
            && told == 0
            && let Payload::Loan(loan) = payload
        {
            let State { scratch, .. } = state;
            if let Some(frame) = loan.with_header(scratch) {
                let written = self.write(frame);
                state.pace.last_written = Instant::now();
                return self.after_write(state, frame, written, mark);
            }
        }
        let State { scratch, queue, pace, .. } = state;
        if queue.is_empty() {
            pace.since = now;
        }
        let (position, header) = scratch.split_at(told);
        if told > 0 {
            queue.push([position, &[]], 0, None);
        }
        queue.push([header, payload.bytes()], 0, Some(mark));
        if state.full {
            return Ok(());
        }
        let ripe =
            at_once || state.queue.len() >= self.options.write_bytes || now - state.pace.since >= self.gather(state);
        if ripe {
            self.pump(state, PUMP_BYTES);
            state.pace.since = now;
        }
        if state.pace.flusher_needed() {
            self.work.notify_one();
        }
        Ok(())
    }

    fn after_write(
        &self,
        state: &mut State,
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

    fn queue_rest(&self, state: &mut State, frame: &[u8], sent: usize, mark: Mark) {
        state.queue.push([frame, &[]], sent, Some(mark));
        state.full = true;
        self.work.notify_one();
    }

    fn push_control(&self, state: &mut State, frame: &[u8]) {
        // A peer that asks for more than it reads gets nothing at all.
        if state.queue.len() > self.options.queue_bytes.saturating_mul(2) + (64 << 20) {
            return self.broke(state);
        }
        state.queue.push([frame, &[]], 0, None);
        if !state.full {
            self.pump(state, usize::MAX);
        }
    }

    fn pump(&self, state: &mut State, most: usize) {
        if state.broken {
            return;
        }
        let (before, began) = (state.queue.len(), Instant::now());
        let pumped = state.queue.pump(most, |bytes| self.write(bytes));
        state.written += before.saturating_sub(state.queue.len()) as u64;
        match pumped {
            // What is more than one turn's worth is the flusher's, who may be asleep.
            Ok(()) if !state.queue.is_empty() => self.work.notify_one(),
            Ok(()) => {}
            Err(e) if is_full(&e) => {
                state.full = true;
                self.work.notify_one();
            }
            Err(_) => self.broke(state),
        }
        state.pace.wrote(began, Instant::now());
        if state.queue.len() + state.held_bytes <= self.options.queue_bytes / 2 {
            state.stalled = false;
            self.room.notify_all();
        }
    }

    #[inline]
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(&*self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// The reader notices by itself, once nothing can be sent or received.
    fn broke(&self, state: &mut State) {
        state.broken = true;
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        self.work.notify_all();
        self.room.notify_all();
    }

    fn make_room<'a>(&'a self, mut state: MutexGuard<'a, State>, size: usize) -> MutexGuard<'a, State> {
        match self.options.overflow {
            Overflow::DropNewest => state,
            Overflow::DropOldest => {
                while !state.has_room(size, &self.options) && state.drop_oldest() {}
                self.work.notify_one();
                state
            }
            Overflow::Block { patience } => self.wait_for_room(state, size, patience),
        }
    }

    fn wait_for_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        size: usize,
        patience: Duration,
    ) -> MutexGuard<'a, State> {
        let (mut deadline, mut written) = (Instant::now() + patience, state.written);
        while !state.has_room(size, &self.options) && !state.broken && !state.stalled {
            if state.written != written {
                (deadline, written) = (Instant::now() + patience, state.written);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.stalled = true;
                break;
            }
            if !state.full {
                // On, as long as the socket takes it: it says when it is full, and then the flusher goes on.
                self.pump(&mut state, PUMP_BYTES);
            } else {
                state = wait_timeout(&self.room, state, left);
            }
        }
        state
    }

    /// Sends what is no longer held back by a channel without an answer.
    fn release(&self, state: &mut State) {
        let mut waiting: Vec<Id128> = Vec::new();
        for held in std::mem::take(&mut state.held) {
            let Some(lane) = state.lanes.get(&held.channel) else { continue };
            if lane.interest == Interest::Asked || waiting.contains(&lane.writer) {
                waiting.push(lane.writer);
                state.held.push_back(held);
                continue;
            }
            state.held_bytes -= held.size();
            let extensions = Extensions::parse(&held.extensions).unwrap_or_default();
            let envelope = Envelope { extensions, ..held.envelope };
            // It was accepted before; what cannot be written now is the link's trouble.
            let _ = self.dispatch(state, &envelope, &mut Payload::Bytes(&held.payload), None);
        }
        self.finish_retiring(state);
    }

    fn finish_retiring(&self, state: &mut State) {
        let held = |channel| state.held.iter().any(|held: &Held| held.channel == channel);
        let done =
            |(channel, lane): (&ChannelId, &Lane)| (lane.retiring && !held(*channel)).then_some((*channel, lane.id));
        let done: Vec<_> = state.lanes.iter().filter_map(done).collect();
        for (channel, id) in done {
            state.lanes.remove(&channel);
            state.ids.remove(&id);
            let mut out = Vec::new();
            if state.encoder.retire(id, &mut out).is_ok() {
                self.push_control(state, &out);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wants(&mut self, envelope: &Envelope<'_>) -> bool {
        if self.broken {
            return false;
        }
        match self.lanes.get_mut(&envelope.channel) {
            None => false,
            Some(lane) if lane.interest == Interest::Unwanted => {
                lane.skipped = Some(start_of(envelope));
                lane.lost = 0;
                false
            }
            Some(_) => true,
        }
    }

    /// A message larger than the queue is taken when nothing else waits.
    #[inline]
    fn has_room(&self, size: usize, options: &EngineOptions) -> bool {
        let used = self.queue.len() + self.held_bytes;
        used == 0 || used.saturating_add(size) <= options.queue_bytes
    }

    fn must_hold(&self, channel: ChannelId) -> bool {
        let Some(lane) = self.lanes.get(&channel) else { return false };
        if self.held.is_empty() {
            return lane.interest == Interest::Asked;
        }
        let same_writer = |held: &Held| self.lanes.get(&held.channel).is_some_and(|other| other.writer == lane.writer);
        lane.interest == Interest::Asked || self.held.iter().any(same_writer)
    }

    fn hold(&mut self, envelope: &Envelope<'_>, payload: &[u8]) {
        let held = Held {
            channel: envelope.channel,
            envelope: Envelope { extensions: Extensions::default(), ..*envelope },
            extensions: envelope.extensions.bytes().to_vec(),
            payload: payload.to_vec(),
        };
        self.held_bytes += held.size();
        self.held.push_back(held);
    }

    fn skip_held(&mut self, channel: ChannelId) {
        let last = self.held.iter().rev().find(|held| held.channel == channel).map(|held| start_of(&held.envelope));
        if let (Some(lane), Some(last)) = (self.lanes.get_mut(&channel), last) {
            lane.skipped = Some(last);
        }
        self.forget_held(channel);
    }

    fn forget_held(&mut self, channel: ChannelId) {
        let freed: usize = self.held.iter().filter(|held| held.channel == channel).map(Held::size).sum();
        self.held.retain(|held| held.channel != channel);
        self.held_bytes -= freed;
    }

    /// Puts everything that goes in front of the payload into `scratch`. The first bytes, as many as it says, are a frame of their own.
    #[inline]
    fn encode_header(&mut self, envelope: &Envelope<'_>, payload: usize) -> Result<(usize, Mark), FrameError> {
        self.scratch.clear();
        let lane = self.lanes.get_mut(&envelope.channel).ok_or(FrameError::UnknownChannel(envelope.channel))?;
        if let Some(start) = lane.skipped.take() {
            self.encoder.position(lane.id, start, std::mem::take(&mut lane.lost), &mut self.scratch)?;
        }
        let told = self.scratch.len();
        self.encoder.data(&Envelope { channel: lane.id, ..*envelope }, payload, &mut self.scratch)?;
        Ok((told, (lane.id, start_of(envelope))))
    }

    fn drop_oldest(&mut self) -> bool {
        if let Some(held) = self.held.pop_front() {
            self.held_bytes -= held.size();
            if let Some(lane) = self.lanes.get_mut(&held.channel) {
                lane.skipped = Some(start_of(&held.envelope));
                lane.lost += 1;
            }
        } else if !self.queue.drop_oldest() {
            return false;
        }
        self.count_drop();
        true
    }

    fn drop_newest(&mut self, envelope: &Envelope<'_>) {
        if let Some(lane) = self.lanes.get_mut(&envelope.channel) {
            lane.skipped = Some(start_of(envelope));
            lane.lost += 1;
        }
        self.count_drop();
    }

    /// What to tell while messages are being dropped: the first, then now and then.
    fn notice(&mut self, channel: ChannelId) -> Option<Notice> {
        if self.tally.untold == 0 || self.tally.told.is_some_and(|told| told.elapsed() < TELL_AGAIN) {
            return None;
        }
        let topic = self.lanes.get(&channel)?.topic.clone();
        self.tally.told = Some(Instant::now());
        self.tally.last_topic = Some(topic.clone());
        Some((topic, std::mem::take(&mut self.tally.untold)))
    }

    fn count_drop(&mut self) {
        self.tally.dropped += 1;
        self.tally.untold += 1;
    }

    /// What to tell once the peer has caught up.
    fn end_of_episode(&mut self, options: &EngineOptions) -> Option<Notice> {
        if self.tally.untold == 0 || self.queue.len() + self.held_bytes > options.queue_bytes / 2 {
            return None;
        }
        self.tally.told = None;
        let topic = self.tally.last_topic.clone().unwrap_or_else(|| "".into());
        Some((topic, std::mem::take(&mut self.tally.untold)))
    }
}

fn start_of(envelope: &Envelope<'_>) -> Start {
    Start { sequence: envelope.sequence, timestamp_ns: envelope.timestamp_ns }
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn wait_timeout<'a>(condvar: &Condvar, guard: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
    condvar.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
}
