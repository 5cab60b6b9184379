//! Merges the channels of each writer, over all links, for one subscriber. The subscriber gets each
//! message once and in order, and the number of messages that no channel delivers.
//!
//! A writer has several channels while it changes its wire, while a link replaces another one, and
//! as long as its topic is at several endpoints. If earlier messages may still arrive on another
//! channel, a message is held until they have arrived, until no channel can deliver them any more,
//! or for [`PATIENCE`].

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire_core::envelope::{Announcement, Id128};

use crate::{clock, unwind::restoring};

/// The most writers that a subscriber remembers after their last channel has ended.
const REMEMBERED: usize = 1024;

/// How long a message waits for earlier messages on other channels.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How often messages that wait are checked.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A writer in one incarnation.
type Writer = (Id128, u64);

/// The writers that a subscriber knows. `T` is the type of messages that wait.
pub(crate) struct Writers<T> {
    live: Mutex<BTreeMap<Writer, Weak<WriterState<T>>>>,
    left: Arc<Mutex<Left>>,
}

/// Writers without an open channel, each with its last message, in the order in which their last
/// channels ended.
#[derive(Default)]
struct Left(VecDeque<(Writer, u64)>);

/// The state of one writer.
struct WriterState<T> {
    state: Mutex<State<T>>,
    /// Notified when the thread that delivers has made room.
    freed: Condvar,
}

struct State<T> {
    channels: Vec<Arc<Progress>>,
    /// Every message up to this one was delivered or counted as lost. `None` before the first.
    last: Option<u64>,
    /// Messages that wait, with their sizes in bytes, by sequence number.
    held: BTreeMap<u64, (T, usize)>,
    held_bytes: usize,
    /// Since when the first held message waits for another channel.
    since: Option<Duration>,
    /// The thread that delivers. Other threads leave their messages to it.
    busy: Option<ThreadId>,
    /// Whether sequence numbers that no channel delivers do not count as losses.
    has_gaps: bool,
}

/// The progress of one channel.
#[derive(Debug)]
struct Progress {
    /// Whether the engine keeps the order, so that a missing message does not arrive later.
    is_ordered: bool,
    /// The last sequence number, of a message or a report of losses; [`NONE`] before the first.
    last: AtomicU64,
    /// The last message whose delivery has begun, and the last one whose delivery is done. They
    /// differ during a delivery. Set while this is the writer's only channel.
    begun: AtomicU64,
    done: AtomicU64,
    /// Whether a wait for this channel was given up.
    is_late: AtomicBool,
}

/// No message yet. No writer reaches this number.
const NONE: u64 = u64::MAX;

/// One channel of a writer, as a subscriber follows it until [`Follow::end`].
pub(crate) struct Follow<T> {
    writers: Arc<Writers<T>>,
    writer: Writer,
    writer_state: Arc<WriterState<T>>,
    progress: Arc<Progress>,
}

/// Messages of a writer that no channel delivers: `count` messages, the last of which is `last`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) last: u64,
    pub(crate) count: u64,
}

/// What to do with a message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// Deliver it, then call [`Follow::done`], or [`Follow::panicked`] after a panic. The given
    /// messages are missing before it.
    Deliver(Missing),
    /// Pass it to [`Follow::hold`].
    Hold,
    /// Drop it: it was delivered or given up before.
    Drop,
}

impl<T> Default for Writers<T> {
    fn default() -> Self {
        Writers { live: Mutex::default(), left: Arc::default() }
    }
}

impl<T> Follow<T> {
    /// Begins to follow a channel. A writer with the zero id is followed on this channel alone,
    /// because other writers may have that id too.
    pub(crate) fn new(writers: &Arc<Writers<T>>, announced: &Announcement, is_ordered: bool) -> Follow<T> {
        let writer = (announced.writer, announced.incarnation);
        let writers = if writer.0.is_zero() { Arc::default() } else { writers.clone() };
        let progress = Arc::new(Progress {
            is_ordered,
            last: AtomicU64::new(NONE),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            is_late: AtomicBool::new(false),
        });
        let writer_state = writers.join(writer, &progress);
        Follow { writers, writer, writer_state, progress }
    }

    /// Sets whether the writer has gaps: numbers that no channel delivers do not count as losses,
    /// unless a sender reports them. Such a writer is not Polywire's. When it comes back, its
    /// numbers may have begun again.
    pub(crate) fn with_gaps(self, has_gaps: bool) -> Follow<T> {
        let mut state = self.writer_state.lock();
        state.has_gaps |= has_gaps;
        if has_gaps && state.channels.len() == 1 {
            state.last = None;
        }
        drop(state);
        self
    }

    /// Records that a message has arrived, and decides what to do. Calls of one channel do not
    /// overlap.
    #[inline]
    pub(crate) fn on_message(&self, sequence: u64) -> Disposition {
        let mut state = self.writer_state.lock();
        self.progress.last.store(sequence, Ordering::Relaxed);
        match state.channels.len() {
            1 if state.held.is_empty() && state.busy.is_none() => self.decide_alone(&mut state, sequence),
            _ => self.decide_among(&mut state, sequence),
        }
    }

    /// Records that the messages from `first` to `last` have arrived together. If they may be
    /// delivered now, one after the other, returns the messages that are missing before them. The
    /// caller delivers them and then calls [`Follow::done`] with the last number, or
    /// [`Follow::panicked`]. If not, returns `None` without a change, and the caller must call
    /// [`Follow::on_message`] for each message.
    pub(crate) fn on_messages(&self, first: u64, last: u64) -> Option<Missing> {
        let mut state = self.writer_state.lock();
        if state.channels.len() != 1 || !state.held.is_empty() || state.busy.is_some() {
            return None;
        }
        let Disposition::Deliver(missing) = self.decide_alone(&mut state, first) else { return None };
        state.last = state.last.max(Some(last));
        self.progress.last.store(last, Ordering::Relaxed);
        self.progress.begun.store(last, Ordering::Relaxed);
        Some(missing)
    }

    fn decide_alone(&self, state: &mut State<T>, sequence: u64) -> Disposition {
        let before = sequence.saturating_sub(1);
        let count = match state.last {
            Some(last) if sequence <= last && self.progress.is_ordered && !self.writer.0.is_zero() => {
                return Disposition::Drop;
            }
            Some(last) if self.progress.is_ordered => before.saturating_sub(last),
            _ => 0,
        };
        state.last = state.last.max(Some(sequence));
        self.progress.begun.store(sequence, Ordering::Relaxed);
        Disposition::Deliver(state.counted(Missing { last: before, count }))
    }

    #[cold]
    fn decide_among(&self, state: &mut State<T>, sequence: u64) -> Disposition {
        self.progress.is_late.store(false, Ordering::Relaxed);
        if state.last.is_some_and(|last| sequence <= last) || state.held.contains_key(&sequence) {
            return Disposition::Drop;
        }
        if state.is_busy() || state.held.first_key_value().is_some_and(|(first, _)| *first < sequence) {
            return Disposition::Hold;
        }
        if state.may_come_before(sequence) {
            return Disposition::Hold;
        }
        let missing = state.counted(Missing::between(state.last, sequence));
        state.last = Some(sequence);
        state.busy = Some(thread::current().id());
        Disposition::Deliver(missing)
    }

    /// Records that the message of [`Disposition::Deliver`] was delivered. Returns true if
    /// [`Follow::release`] may have more.
    #[inline]
    pub(crate) fn done(&self, sequence: u64) -> bool {
        if self.progress.begun.load(Ordering::Relaxed) == sequence {
            // If a channel that has just begun holds messages meanwhile, the timer hands them over.
            self.progress.done.store(sequence, Ordering::Release);
            return false;
        }
        let mut state = self.writer_state.lock();
        if state.busy == Some(thread::current().id()) {
            state.busy = None;
        }
        !state.held.is_empty()
    }

    /// Records that the delivery of the message of [`Disposition::Deliver`] has panicked. Held
    /// messages are left to other threads and to the next [`Writers::give_up`].
    #[cold]
    pub(crate) fn panicked(&self, sequence: u64) {
        self.done(sequence);
        self.writer_state.freed.notify_all();
    }

    /// Holds a message of [`Disposition::Hold`]. If more than `room` messages or bytes are held,
    /// waits while another thread delivers, or else gives up waiting for other channels.
    pub(crate) fn hold(&self, sequence: u64, message: T, bytes: usize, room: (usize, usize)) {
        let mut state = self.writer_state.lock();
        while state.is_full(room) && state.busy.is_some_and(|thread| thread != thread::current().id()) {
            self.writer_state.freed.wait(&mut state);
        }
        if state.last.is_some_and(|last| sequence <= last) {
            return;
        }
        state.held_bytes = state.held_bytes.saturating_add(bytes);
        state.held.insert(sequence, (message, bytes));
        if state.is_full(room) {
            state.give_up();
        }
    }

    /// Passes the held messages that may be delivered now to `deliver`, each with the messages that
    /// are missing before it. Returns true if there were any. Meanwhile, other threads leave their
    /// messages to this one. If `deliver` panics, they no longer do.
    pub(crate) fn release(&self, deliver: impl FnMut(Missing, T)) -> bool {
        self.writer_state.release(deliver)
    }

    /// Records that the sender dropped `lost` messages up to and including this one. A `lost` of 0
    /// means that the channel begins after this one. Returns the missing messages that were not
    /// counted before. Afterwards, [`Follow::release`] may have messages.
    pub(crate) fn on_loss_report(&self, sequence: u64, lost: u64) -> Missing {
        let mut state = self.writer_state.lock();
        let first = self.progress.last.swap(sequence, Ordering::Relaxed) == NONE;
        if !self.progress.is_ordered && state.channels.len() == 1 {
            return Missing { last: sequence, count: lost.min(sequence) };
        }
        if state.last.is_none() && (lost == 0 || !first) {
            return Missing::default();
        }
        state.pass_lost(sequence, lost.min(sequence))
    }

    /// Ends the channel. Returns the messages that are missing now. Afterwards, [`Follow::release`]
    /// may have messages.
    pub(crate) fn end(&self) -> Missing {
        let mut live = self.writers.live();
        let mut state = self.writer_state.lock();
        state.channels.retain(|other| !Arc::ptr_eq(other, &self.progress));
        if !state.channels.is_empty() {
            let last = self.progress.last.load(Ordering::Relaxed);
            return if last == NONE { Missing::default() } else { state.pass_lost(last, 0) };
        }
        let newest = state.held.last_key_value().map(|(last, _)| *last).max(state.last);
        drop(state);
        live.remove(&self.writer);
        if let Some(newest) = newest {
            self.writers.left().remember(self.writer, newest);
        }
        Missing::default()
    }
}

impl Missing {
    /// The messages after `last` and before `next`. None if `last` is not known.
    fn between(last: Option<u64>, next: u64) -> Missing {
        let before = next.saturating_sub(1);
        Missing { last: before, count: last.map_or(0, |last| before.saturating_sub(last)) }
    }

    /// The sequence numbers of the messages.
    pub(crate) fn numbers(self) -> RangeInclusive<u64> {
        self.last.saturating_sub(self.count).saturating_add(1)..=self.last
    }
}

impl<T> WriterState<T> {
    fn release(&self, mut deliver: impl FnMut(Missing, T)) -> bool {
        let mut any = false;
        while let Some((missing, message)) = self.next() {
            restoring(|| self.stop(), || deliver(missing, message));
            any = true;
        }
        any
    }

    /// Lets other threads deliver after a panic of this one.
    #[cold]
    fn stop(&self) {
        self.lock().busy.take_if(|busy| *busy == thread::current().id());
        self.freed.notify_all();
    }

    /// Returns a message that may be delivered now, and the messages that are missing before it.
    /// The caller delivers it and calls again, until there is none. Meanwhile, other threads leave
    /// their messages to the caller.
    fn next(&self) -> Option<(Missing, T)> {
        let mut state = self.lock();
        let here = thread::current().id();
        if state.busy == Some(here) {
            state.busy = None;
        }
        let next = state.next();
        state.busy = if next.is_some() { Some(here) } else { state.busy };
        drop(state);
        self.freed.notify_all();
        next
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }
}

impl<T> State<T> {
    /// Checks whether a message is being delivered. The caller leaves the next one to the thread
    /// that delivers, even if that is the caller's own thread, further up the stack.
    fn is_busy(&self) -> bool {
        let is_within =
            |channel: &Arc<Progress>| channel.begun.load(Ordering::Relaxed) != channel.done.load(Ordering::Acquire);
        self.busy.is_some() || self.channels.iter().any(is_within)
    }

    /// Checks whether a channel may still deliver a message that is missing before this one.
    fn may_come_before(&self, sequence: u64) -> bool {
        if self.last.is_some_and(|last| last.checked_add(1) == Some(sequence)) {
            return false;
        }
        let may = |channel: &Arc<Progress>| {
            let last = channel.last.load(Ordering::Relaxed);
            channel.is_ordered
                && (last == NONE || last.saturating_add(1) < sequence)
                && !channel.is_late.load(Ordering::Relaxed)
        };
        self.channels.iter().any(may)
    }

    fn next(&mut self) -> Option<(Missing, T)> {
        if self.is_busy() {
            return None;
        }
        let first = *self.held.first_key_value()?.0;
        if self.may_come_before(first) {
            self.since = self.since.or_else(|| Some(clock::now()));
            return None;
        }
        self.since = None;
        let (message, bytes) = self.held.pop_first()?.1;
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        let missing = self.counted(Missing::between(self.last, first));
        self.last = self.last.max(Some(first));
        Some((missing, message))
    }

    /// Records that messages up to this one do not arrive on one channel. Returns those that no
    /// other channel delivers either, or `reported` of them if no message of the writer is known
    /// yet.
    fn pass_lost(&mut self, sequence: u64, reported: u64) -> Missing {
        let is_next_held = self.held.first_key_value().is_some_and(|(first, _)| *first <= sequence.saturating_add(1));
        let Some(after) = sequence.checked_add(1).filter(|_| !is_next_held && !self.is_busy()) else {
            return Missing::default();
        };
        if self.last.is_some_and(|last| last >= sequence) || self.may_come_before(after) {
            return Missing::default();
        }
        let count = self.last.filter(|_| !self.has_gaps).map_or(reported, |last| sequence - last);
        self.last = Some(sequence);
        Missing { last: sequence, count }
    }

    #[inline]
    fn counted(&self, missing: Missing) -> Missing {
        Missing { count: if self.has_gaps { 0 } else { missing.count }, ..missing }
    }

    fn is_full(&self, room: (usize, usize)) -> bool {
        self.held.len() > room.0 || self.held_bytes > room.1
    }

    /// Stops waiting for the channels that the first held message waits for.
    fn give_up(&mut self) {
        let Some((first, _)) = self.held.first_key_value() else { return };
        for channel in &self.channels {
            let last = channel.last.load(Ordering::Relaxed);
            if last == NONE || last.saturating_add(1) < *first {
                channel.is_late.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl<T> Writers<T> {
    /// Makes the set for another topic. Both sets share the memory of writers without a channel.
    pub(crate) fn beside(&self) -> Writers<T> {
        Writers { live: Mutex::default(), left: self.left.clone() }
    }

    /// Checks whether messages wait for other channels.
    pub(crate) fn is_any_holding(&self) -> bool {
        self.writer_states().iter().any(|writer_state| !writer_state.lock().held.is_empty())
    }

    /// Gives up waits that have lasted for [`PATIENCE`], and delivers what may be delivered now.
    pub(crate) fn give_up(&self, now: Duration, mut deliver: impl FnMut(Missing, T)) {
        for writer_state in self.writer_states() {
            {
                let mut state = writer_state.lock();
                if state.since.is_some_and(|since| now.saturating_sub(since) >= PATIENCE) {
                    state.give_up();
                }
            }
            writer_state.release(&mut deliver);
        }
    }

    fn writer_states(&self) -> Vec<Arc<WriterState<T>>> {
        self.live().values().filter_map(Weak::upgrade).collect()
    }

    /// Adds a channel to those of its writer.
    fn join(&self, writer: Writer, progress: &Arc<Progress>) -> Arc<WriterState<T>> {
        let mut live = self.live();
        if let Some(writer_state) = live.get(&writer).and_then(Weak::upgrade) {
            writer_state.lock().channels.push(progress.clone());
            return writer_state;
        }
        let last = self.left().take(writer);
        let state = State {
            channels: vec![progress.clone()],
            last,
            held: BTreeMap::new(),
            held_bytes: 0,
            since: None,
            busy: None,
            has_gaps: false,
        };
        let writer_state = Arc::new(WriterState { state: Mutex::new(state), freed: Condvar::new() });
        live.insert(writer, Arc::downgrade(&writer_state));
        writer_state
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<Writer, Weak<WriterState<T>>>> {
        self.live.lock()
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock()
    }
}

impl Left {
    fn take(&mut self, writer: Writer) -> Option<u64> {
        let at = self.0.iter().position(|(left, _)| *left == writer)?;
        self.0.remove(at).map(|(_, last)| last)
    }

    fn remember(&mut self, writer: Writer, last: u64) {
        let before = self.take(writer).unwrap_or(0);
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((writer, last.max(before)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: (usize, usize) = (100, 1000);

    fn follow(writers: &Arc<Writers<u64>>, writer: u8) -> Follow<u64> {
        let announced = Announcement { writer: Id128([writer; 16]), incarnation: 1, ..Announcement::default() };
        Follow::new(writers, &announced, true)
    }

    /// What a subscriber delivers because of this message, and what it counts as lost.
    fn pass(channel: &Follow<u64>, sequence: u64) -> (Vec<u64>, u64) {
        let (mut delivered, mut lost) = (Vec::new(), 0);
        match channel.on_message(sequence) {
            Disposition::Drop => return (delivered, lost),
            Disposition::Hold => channel.hold(sequence, sequence, 1, ROOM),
            Disposition::Deliver(missing) => {
                lost += missing.count;
                delivered.push(sequence);
                channel.done(sequence);
            }
        }
        let (more, missing) = rest(channel);
        delivered.extend(more);
        (delivered, lost + missing)
    }

    fn rest(channel: &Follow<u64>) -> (Vec<u64>, u64) {
        let all: Vec<(Missing, u64)> = std::iter::from_fn(|| channel.writer_state.next()).collect();
        (all.iter().map(|(_, message)| *message).collect(), all.iter().map(|(missing, _)| missing.count).sum())
    }

    #[test]
    fn what_came_before_the_first_message_is_not_missing() {
        let channel = follow(&Arc::default(), 1);
        assert_eq!((channel.on_loss_report(99, 0).count, pass(&channel, 100).1, pass(&channel, 101).1), (0, 0, 0));
        assert_eq!((pass(&channel, 105), pass(&channel, 103), pass(&channel, 106).1), ((vec![105], 3), (vec![], 0), 0));
    }

    #[test]
    fn what_is_missing_has_numbers() {
        let channel = follow(&Arc::default(), 1);
        assert_eq!(
            (channel.on_message(3), channel.done(3)),
            (Disposition::Deliver(Missing { last: 2, count: 0 }), false)
        );
        let Disposition::Deliver(missing) = channel.on_message(7) else { panic!("it is due") };
        assert_eq!((missing.numbers(), channel.done(7), channel.on_loss_report(9, 1).numbers()), (4..=6, false, 8..=9));
        assert!(Missing::default().numbers().is_empty());
    }

    #[test]
    fn reported_losses_are_counted_once() {
        let channel = follow(&Arc::default(), 1);
        assert_eq!((pass(&channel, 1).1, channel.on_loss_report(5, 4).count, pass(&channel, 6).1), (0, 4, 0));
        assert_eq!((channel.on_loss_report(8, 1).count, pass(&channel, 10).1), (2, 1));
        let fresh = follow(&Arc::default(), 1);
        assert_eq!(
            (fresh.on_loss_report(5, 3).count, pass(&fresh, 6).1),
            (3, 0),
            "held messages that made room before the first came"
        );
        let forged = follow(&Arc::default(), 1);
        assert_eq!((forged.on_loss_report(5, u64::MAX).count, forged.on_loss_report(6, u64::MAX).count), (5, 1));
    }

    #[test]
    fn a_writer_is_followed_from_link_to_link() {
        let writers = Arc::default();
        let first = follow(&writers, 1);
        assert_eq!((pass(&first, 7).1, first.end().count), (0, 0));
        let second = follow(&writers, 1);
        assert_eq!((second.on_loss_report(10, 0).count, pass(&second, 11).1, pass(&second, 12).1), (3, 0, 0));
        assert_eq!(second.end().count, 0);
        let other = follow(&writers, 2);
        assert_eq!((pass(&other, 50).1, other.end().count), (0, 0));
        let third = follow(&writers, 1);
        assert_eq!(
            (third.on_loss_report(15, 1).count, pass(&third, 16).1),
            (3, 0),
            "two on the way and one that made room"
        );
    }

    #[test]
    fn the_next_link_waits_for_the_last_one() {
        let writers = Arc::default();
        let (old, new) = (follow(&writers, 1), follow(&writers, 1));
        assert_eq!(pass(&old, 1), (vec![], 0), "the other channel may begin before it");
        assert_eq!((pass(&new, 6), pass(&new, 7)), ((vec![1], 0), (vec![], 0)));
        assert_eq!((pass(&old, 2), pass(&old, 3)), ((vec![2], 0), (vec![3], 0)), "what was still on its way");
        assert_eq!((old.end().count, rest(&new)), (0, (vec![6, 7], 2)));
        assert_eq!(pass(&new, 8), (vec![8], 0));
        let unused = follow(&writers, 1);
        assert_eq!((unused.end().count, new.end().count), (0, 0));
        assert_eq!(pass(&follow(&writers, 1), 10).1, 1);
    }

    #[test]
    fn nothing_comes_twice_and_a_loss_on_one_channel_is_none() {
        let writers = Arc::default();
        let (a, b) = (follow(&writers, 1), follow(&writers, 1));
        assert_eq!((a.on_loss_report(0, 0).count, b.on_loss_report(0, 0).count), (0, 0));
        assert_eq!((pass(&a, 1), pass(&b, 1)), ((vec![1], 0), (vec![], 0)));
        assert_eq!(
            (pass(&a, 3), a.on_loss_report(5, 2).count),
            ((vec![], 0), 0),
            "2, 4 and 5 may come on the other channel"
        );
        assert_eq!((pass(&b, 2), pass(&b, 3)), ((vec![2, 3], 0), (vec![], 0)));
        assert_eq!((pass(&b, 5), b.on_loss_report(6, 1).count), ((vec![5], 1), 0), "4 came on neither");
        assert_eq!((pass(&a, 6), pass(&b, 7)), ((vec![6], 0), (vec![7], 0)));
        assert_eq!((b.on_loss_report(9, 2).count, a.on_loss_report(9, 2).count), (0, 2), "lost on both, counted once");
    }

    #[test]
    fn waiting_ends_when_the_room_is_full_or_patience_is() {
        let writers = Arc::default();
        let (a, b) = (follow(&writers, 1), follow(&writers, 1));
        assert_eq!((b.on_loss_report(0, 0).count, pass(&a, 2)), (0, (vec![], 0)));
        assert!(writers.is_any_holding());
        let mut out = Vec::new();
        writers.give_up(clock::now(), |missing, message| out.push((missing.count, message)));
        assert!(out.is_empty());
        writers.give_up(clock::now() + 2 * PATIENCE, |missing, message| out.push((missing.count, message)));
        assert_eq!((out.as_slice(), pass(&a, 4)), (&[(0, 2)][..], (vec![4], 1)), "it is not waited for again");
        assert_eq!((pass(&b, 3), pass(&b, 5)), ((vec![], 0), (vec![5], 0)));
        for sequence in 7..7 + ROOM.0 as u64 {
            assert_eq!(pass(&a, sequence), (vec![], 0), "6 may come");
        }
        let (delivered, lost) = pass(&a, 7 + ROOM.0 as u64);
        assert_eq!((delivered.len(), lost), (ROOM.0 + 1, 1));
    }

    #[test]
    fn messages_are_left_to_the_thread_that_delivers() {
        let writers = Arc::default();
        let (a, b) = (follow(&writers, 1), follow(&writers, 1));
        assert_eq!((a.on_loss_report(0, 0).count, b.on_loss_report(0, 0).count), (0, 0));
        assert!(matches!(a.on_message(1), Disposition::Deliver(_)));
        assert_eq!(b.on_message(2), Disposition::Hold);
        b.hold(2, 2, 1, ROOM);
        assert!(a.done(1));
        assert_eq!(rest(&a), (vec![2], 0));
        // A channel that was alone when it began.
        let alone = follow(&writers, 2);
        assert!(matches!(alone.on_message(1), Disposition::Deliver(_)));
        let other = follow(&writers, 2);
        assert_eq!(other.on_message(2), Disposition::Hold);
        other.hold(2, 2, 1, ROOM);
        assert!(other.writer_state.next().is_none() && !alone.done(1));
        assert_eq!(rest(&other), (vec![2], 0));
    }

    #[test]
    fn a_delivery_that_panics_holds_up_no_later_message() {
        fn fail() {
            panic!("as the test wants");
        }
        let elsewhere = |delivers: &(dyn Fn() + Sync)| {
            thread::scope(|scope| assert!(scope.spawn(delivers).join().is_err(), "it panics"));
        };
        let writers = Arc::default();
        let (a, b) = (follow(&writers, 1), follow(&writers, 1));
        assert_eq!((a.on_loss_report(0, 0).count, b.on_loss_report(0, 0).count), (0, 0));
        elsewhere(&|| {
            assert!(matches!(a.on_message(1), Disposition::Deliver(_)));
            restoring(|| a.panicked(1), fail);
        });
        assert_eq!((pass(&b, 3), pass(&b, 4)), ((vec![], 0), (vec![], 0)), "2 may come on the other channel");
        assert_eq!(a.on_loss_report(2, 1).count, 0);
        elsewhere(&|| {
            a.release(|_, _| fail());
        });
        assert_eq!((rest(&b), pass(&b, 5)), ((vec![4], 0), (vec![5], 0)));
        // A channel that was alone when it began.
        let alone = follow(&writers, 2);
        elsewhere(&|| {
            assert!(matches!(alone.on_message(1), Disposition::Deliver(_)));
            restoring(|| alone.panicked(1), fail);
        });
        assert_eq!(pass(&follow(&writers, 2), 2), (vec![2], 0));
    }

    #[test]
    fn gaps_of_a_writer_that_has_them_are_no_losses() {
        let writers = Arc::<Writers<u64>>::default();
        let message = |channel: &Follow<u64>, number| {
            let disposition = channel.on_message(number);
            channel.done(number);
            disposition
        };
        let deliver = |last| Disposition::Deliver(Missing { last, count: 0 });
        let channel = follow(&writers, 1).with_gaps(true);
        assert_eq!(
            (message(&channel, 3), message(&channel, 9), message(&channel, 9)),
            (deliver(2), deliver(8), Disposition::Drop)
        );
        assert_eq!(
            (channel.on_loss_report(12, 2).count, message(&channel, 20), channel.end().count),
            (2, deliver(19), 0)
        );
        let again = follow(&writers, 1).with_gaps(true);
        assert_eq!(message(&again, 1), deliver(0), "it counts again");
        let other = follow(&writers, 1).with_gaps(true);
        assert_eq!(message(&other, 1), Disposition::Drop, "both bring the same messages");
    }

    #[test]
    fn few_writers_are_remembered_and_none_without_a_name() {
        let writers = Arc::<Writers<u64>>::default();
        for _ in 0..2 {
            let nameless = Follow::new(&writers, &Announcement::default(), true);
            assert_eq!(
                (
                    nameless.on_loss_report(5, u64::MAX).count,
                    nameless.on_loss_report(5, u64::MAX).count,
                    pass(&nameless, 6).1
                ),
                (5, 0, 0)
            );
            assert_eq!((pass(&nameless, 9).1, nameless.end().count), (2, 0));
        }
        for incarnation in 0..2 * REMEMBERED as u64 {
            let announced = Announcement { writer: Id128([1; 16]), incarnation, ..Announcement::default() };
            let channel = Follow::new(&writers, &announced, true);
            assert_eq!((pass(&channel, 1).1, channel.end().count), (0, 0));
        }
        assert_eq!((writers.left().0.len(), writers.live().len()), (REMEMBERED, 0));
        let beside = Arc::new(writers.beside());
        let last = 2 * REMEMBERED as u64 - 1;
        let announced = Announcement { writer: Id128([1; 16]), incarnation: last, ..Announcement::default() };
        let again = Follow::new(&beside, &announced, true);
        assert_eq!((pass(&again, 1), pass(&again, 3)), ((vec![], 0), (vec![3], 1)), "as it was beside");
    }
}
