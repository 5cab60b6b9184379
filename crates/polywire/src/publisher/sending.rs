//! The state of a publisher: it encodes each value once for each format, and sends it at each
//! endpoint. The file `moving` changes formats and endpoints.

mod moving;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    codec::{
        Codec as _,
        cdr::{CDR, Cdr, XCDR2},
    },
    envelope::{ChannelId, Envelope, Extensions, Id128, Kind},
    frame::Start,
    program::CodecError,
    qos::Offer,
};

use super::{
    PublishAllError, PublishError,
    channels::{Announce, Group, Role, WriterChannel},
    time::Time,
};
use crate::{
    clock,
    coding::{Coding, KeyHash},
    engine::{Batch, EngineError, LinkId, Loan, PayloadEnd, Sent},
    error::NodeError,
    history::KeptSample,
    liveliness::LivelinessAsserter,
    node::{Inner, Place, PortEntry, Watcher},
    offered::Offered,
    spans::{Span, span},
    stats::SenderCounts,
    status::PublisherStatus,
    wire::Wire,
};

/// The most messages that are passed to the port in one call.
const MESSAGES: usize = 256;

/// The size, in bytes, from which on no further message is added to one call of the port.
const BYTES: usize = 64 << 10;

/// A payload for a port that gathers messages is encoded apart and copied if the last one had up to
/// this size, in bytes. All others are encoded in a loan, behind room for the header: for a small
/// one, that costs more than the copy.
const SMALL: usize = 4 << 10;

/// A publisher's state, and what identifies it.
pub(crate) struct Core<C: Coding> {
    this: Weak<Core<C>>,
    pub(super) inner: Arc<Inner>,
    pub(super) topic: String,
    pub(super) writer: Id128,
    incarnation: u64,
    pub(super) coding: C,
    /// What all channels offer, apart from the history.
    offer: Offer,
    counts: Arc<SenderCounts>,
    role: Role,
    /// Asserts that the publisher is alive, if it offers a lease.
    asserter: Option<Arc<LivelinessAsserter>>,
    channels: Channels,
    state: Mutex<Sending<C>>,
}

/// The present channels of a publisher. They have their own lock, since a blocked publication holds
/// the lock of the state.
type Channels = Arc<Mutex<Vec<(Arc<PortEntry>, ChannelId)>>>;

/// The ports that the publisher uses.
type Entries = Arc<[Arc<PortEntry>]>;

/// A payload, its anchor, and the sample that the history keeps of it.
type Encoded = (Loan, Option<u64>, Option<KeptSample>);

pub(crate) struct Sending<C: Coding> {
    /// Never empty until the publisher is closed.
    groups: Vec<Group<C::Encoder>>,
    entries: Entries,
    last: Start,
    time: Time,
    /// The version of CDR that keys are hashed in.
    cdr: &'static Cdr,
    /// Data messages are not hashed: neither `hash_data` nor `offered` needs it.
    plain: bool,
    /// Data messages carry key hashes as well.
    hash_data: bool,
    /// The parts of the quality of service that need more than sending.
    offered: Option<Box<Offered>>,
    hasher: Hasher<C::Value>,
    /// The time until which peers may follow to the new endpoints. `None` if no endpoint is being
    /// left.
    moving: Option<Instant>,
    /// Channels that announce at former endpoints where the publisher is.
    forwards: Vec<(Arc<PortEntry>, ChannelId)>,
    /// The wires given in code; the configuration completes them.
    given: Vec<Wire>,
    asserter: Option<Arc<LivelinessAsserter>>,
    published: Channels,
    closed: bool,
}

/// The properties of a message that another writer has sent before, and that is sent again here.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    pub(crate) at: Start,
    pub(crate) key_hash: Option<Id128>,
}

/// The key hasher, compiled at first use.
enum Hasher<V> {
    Unknown,
    /// The type has no key.
    None,
    Known(KeyHash<V>),
}

impl<C: Coding> Core<C> {
    pub(crate) fn open(
        inner: &Arc<Inner>,
        topic: String,
        ids: (Id128, u64),
        coding: C,
        offer: Offer,
        role: Role,
        (places, given): (Vec<Place>, Vec<Wire>),
    ) -> Result<Arc<Core<C>>, NodeError> {
        let (writer, incarnation) = ids;
        // The node of a bridged writer itself enforces the policies that the writer offers.
        let offered = (role != Role::Bridge).then(|| Offered::new(inner, &topic, &offer.qos)).flatten();
        let asserter = offer.qos.lease.map(|lease| LivelinessAsserter::new(inner, &topic, offer.qos.liveliness, lease));
        let channels = Channels::default();
        let cdr = places.first().map_or(&CDR, |place| cdr_of(&place.wire));
        let state = Sending {
            groups: Vec::new(),
            entries: Arc::from([]),
            last: Start { sequence: 0, timestamp_ns: clock::wall_ns() },
            time: Time::default(),
            cdr,
            plain: offered.is_none(),
            hash_data: false,
            offered,
            hasher: Hasher::Unknown,
            moving: None,
            forwards: Vec::new(),
            given: Vec::new(),
            asserter: asserter.clone(),
            published: channels.clone(),
            closed: false,
        };
        let counts = inner.totals.sender(&topic);
        let core = Arc::new_cyclic(|this| Core {
            this: this.clone(),
            inner: inner.clone(),
            topic,
            writer,
            incarnation,
            coding,
            offer,
            counts,
            role,
            asserter,
            channels,
            state: Mutex::new(state),
        });
        core.move_to(places, given).inspect_err(|_| core.close())?;
        let started = core.asserter.iter().try_for_each(LivelinessAsserter::start);
        started.map_err(NodeError::Thread).inspect_err(|_| core.close())?;
        Ok(core)
    }

    #[inline]
    pub(super) fn send(&self, value: &C::Value, kind: Kind) -> Result<Sent, PublishError> {
        self.send_as(value, kind, None)
    }

    /// Sends a message with the number and time of another writer, if `given`, or else with the
    /// next number and the present time.
    #[inline]
    pub(crate) fn send_as(&self, value: &C::Value, kind: Kind, given: Option<Given>) -> Result<Sent, PublishError> {
        let mut state = self.lock();
        let mut sent = Sent::default();
        match kind == Kind::Data && given.is_none() && state.copies() {
            true => self.send_small(&mut state, value, &mut sent)?,
            false => sent = self.send_in(&mut state, value, kind, given)?,
        }
        let entries = state.to_settle();
        drop(state);
        self.sent(entries);
        Ok(sent)
    }

    /// Sends values one after the other, as many at a time as [`Group::encode_some`] takes.
    pub(super) fn send_all(&self, values: &[C::Value]) -> Result<Sent, PublishAllError> {
        let (mut sum, mut published) = (Sent::default(), 0);
        while let Some(left @ [first, ..]) = values.get(published..) {
            let mut state = self.lock();
            let done = match state.is_simple() {
                true => self.send_some(&mut state, left, &mut sum),
                false => self.send_first(&mut state, first, &mut sum),
            };
            let entries = state.to_settle();
            drop(state);
            self.sent(entries);
            published += done.map_err(|error| PublishAllError { published: published + error.published, ..error })?;
        }
        Ok(sum)
    }

    /// Sends one value from [`Group::payloads`], and counts it in `sent`: to return what was just
    /// written is slow. The port must [copy](Sending::copies) payloads.
    #[inline(always)]
    fn send_small(&self, state: &mut Sending<C>, value: &C::Value, sent: &mut Sent) -> Result<(), PublishError> {
        let _span = self.span(state, state.last.sequence + 1).entered();
        let Sending { groups, last, time, .. } = state;
        let [only, ..] = groups.as_mut_slice() else { return Err(EngineError::Closed.into()) };
        let Group { channels, payloads, writing, last: estimate, .. } = only;
        let (sequence, channel) = (last.sequence + 1, &channels[0]);
        payloads.clear();
        payloads.reserve(estimate.wanted());
        let anchor = writing.encode::<C>(sequence, value, payloads).map_err(|error| {
            free_large(payloads);
            PublishError::Encode(error)
        })?;
        let timestamp_ns = time.of(channel.gathering());
        let end = PayloadEnd { offset: payloads.len(), anchor: anchor.and_then(NonZeroU64::new) };
        let envelope = Envelope::data(channel.id, sequence, timestamp_ns);
        let done = channel.entry.send_all(&Batch::new(envelope, payloads, &[end]), sent);
        estimate.size = payloads.len();
        free_large(payloads);
        if let Err((_, error)) = done {
            writing.failed();
            return Err(error.into());
        }
        sent.refused = channel.refusing.peers();
        *last = Start { sequence, timestamp_ns };
        self.counts.count(1, estimate.size, sent.dropped);
        Ok(())
    }

    /// Sends at least one of the values, and returns how many. The messages must be
    /// [simple](Sending::is_simple).
    fn send_some(&self, state: &mut Sending<C>, values: &[C::Value], sum: &mut Sent) -> Result<usize, PublishAllError> {
        let _span = self.span(state, state.last.sequence + 1).entered();
        let Sending { groups, last, time, .. } = state;
        let [only, ..] = groups.as_mut_slice() else { return Err(not_published(0, EngineError::Closed)) };
        let (sequence, dropped) = (last.sequence + 1, sum.dropped);
        let failed = only.encode_some::<C>(sequence, values);
        let Group { channels, ends, payloads, writing, .. } = only;
        let channel = &channels[0];
        let first = Envelope::data(channel.id, sequence, time.of(channel.gathering()));
        let batch = Batch::new(first, payloads, ends);
        let done = channel.entry.send_all(&batch, sum);
        let count = done.as_ref().map_or_else(|(count, _)| *count, |()| ends.len());
        sum.refused += count * channel.refusing.peers();
        *last = Start { sequence: last.sequence + count as u64, timestamp_ns: first.timestamp_ns };
        self.counts.count(count, batch.bytes(count), sum.dropped - dropped);
        free_large(payloads);
        match (done, failed) {
            (Ok(()), None) => Ok(count),
            (Ok(()), Some(error)) => Err(not_published(count, PublishError::Encode(error))),
            (Err((_, error)), _) => {
                writing.failed();
                Err(not_published(count, error))
            }
        }
    }

    /// Sends the first of several values.
    #[cold]
    fn send_first(&self, state: &mut Sending<C>, value: &C::Value, sum: &mut Sent) -> Result<usize, PublishAllError> {
        *sum += self.send_in(state, value, Kind::Data, None).map_err(|error| not_published(0, error))?;
        Ok(1)
    }

    #[inline]
    fn send_in(
        &self,
        state: &mut Sending<C>,
        value: &C::Value,
        kind: Kind,
        given: Option<Given>,
    ) -> Result<Sent, PublishError> {
        let (key_hash, instance) = match given {
            Some(given) => (given.key_hash, Id128::ZERO),
            None if kind == Kind::Data && state.plain => (None, Id128::ZERO),
            None => self.keys(state, value, kind)?,
        };
        let last = match given {
            Some(given) => given.at,
            None => Start { sequence: state.last.sequence + 1, timestamp_ns: state.time_ns() },
        };
        let sequence = last.sequence;
        let _span = self.span(state, sequence).entered();
        let sent = match (state.groups.as_mut_slice(), &state.offered) {
            ([only], None) if only.channels.len() == 1 => {
                let channel = &only.channels[0];
                let mut loan = channel.entry.port().reserve(only.last.wanted());
                let anchor = only.writing.encode::<C>(sequence, value, loan.buffer());
                let anchor = anchor.map_err(PublishError::Encode)?;
                only.last.note(&mut loan);
                let plain = Envelope::data(channel.id, sequence, last.timestamp_ns);
                let envelope = Envelope { kind, key_hash, anchor, ..plain };
                let sent = channel.entry.commit(&envelope, loan).inspect_err(|_| only.writing.failed())?;
                state.last = last;
                Sent { refused: channel.refusing.peers(), ..sent }
            }
            _ => state.send_all(value, kind, key_hash, instance, last)?,
        };
        self.counts.count(1, state.groups.iter().map(|group| group.last.size).sum(), sent.dropped);
        Ok(sent)
    }

    /// Completes the sending of messages: ports may deliver now, and the lease is renewed. The
    /// caller must hold no lock.
    #[inline]
    fn sent(&self, entries: Option<Entries>) {
        if let Some(entries) = entries {
            entries.iter().for_each(|entry| entry.settle());
        }
        if let Some(asserter) = &self.asserter {
            asserter.published();
        }
    }

    /// Sends a message with extensions, and with the value if there is one. `before` is called with
    /// the sequence number before any peer can receive the message; it must not call the publisher.
    pub(super) fn send_call(
        &self,
        value: Option<&C::Value>,
        kind: Kind,
        extensions: Extensions<'_>,
        before: impl FnOnce(u64),
    ) -> Result<Sent, PublishError> {
        let (sent, entries) = {
            let mut guard = self.lock();
            let state = &mut *guard;
            let last = Start { sequence: state.last.sequence + 1, timestamp_ns: clock::wall_ns() };
            let plain = Envelope::data(ChannelId::default(), last.sequence, last.timestamp_ns);
            let envelope = Envelope { kind, extensions, ..plain };
            let _span = self.span(state, last.sequence).entered();
            let encoded = match value {
                Some(value) => state.encode_all(value, &envelope, Id128::ZERO)?,
                None => {
                    state.groups.iter().map(|group| (group.channels[0].entry.port().reserve(0), None, None)).collect()
                }
            };
            before(last.sequence);
            (state.send_encoded(&envelope, encoded, last)?, state.to_settle())
        };
        entries.iter().flat_map(|entries| entries.iter()).for_each(|entry| entry.settle());
        Ok(sent)
    }

    /// Whether the peer on a link has accepted the messages.
    pub(super) fn is_taken(&self, link: LinkId) -> bool {
        self.present().iter().any(|(entry, channel)| entry.is_taken(*channel, link))
    }

    /// A span in which a message is published.
    #[inline]
    #[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "only spans have fields"))]
    fn span(&self, state: &Sending<C>, sequence: u64) -> Span {
        span!(TRACE, "publish", topic = %self.topic, wire = %crate::spans::wires(state.channels().map(|channel| &channel.wire)), writer = %self.writer, sequence)
    }

    /// Returns why no subscriber of the peer on a link can read the messages. `None` if the peer
    /// has not refused them.
    pub(super) fn refusal(&self, link: LinkId) -> Option<String> {
        self.present().iter().find_map(|(entry, channel)| entry.refusal(*channel, link))
    }

    /// Returns the reason of a peer that refuses the messages now. `None` if no peer refuses them.
    pub(super) fn refused(&self) -> Option<String> {
        let channels = self.present();
        let statuses = channels.iter().map(|(entry, channel)| entry.status(*channel));
        statuses.filter(|status| status.refusing > 0).find_map(|status| Some(status.refusals.last()?.reason.clone()))
    }

    /// The present channels. Does not wait for a publication.
    fn present(&self) -> Vec<(Arc<PortEntry>, ChannelId)> {
        self.channels.lock().clone()
    }

    /// Notifies `watcher` of later answers to the present channels.
    pub(super) fn watch_answers(&self, watcher: &Weak<dyn Watcher>) {
        self.present().iter().for_each(|(entry, channel)| entry.watch_answers(*channel, watcher.clone()));
    }

    pub(super) fn assert_liveliness(&self) -> Result<(), PublishError> {
        self.asserter.as_ref().map_or(Ok(()), |asserter| asserter.assert()).map_err(PublishError::Engine)
    }

    /// Returns the key hash to send with a message, and the message's instance. Fails if the
    /// publisher's quality of service has no room for the instance.
    #[cold]
    fn keys(
        &self,
        state: &mut Sending<C>,
        value: &C::Value,
        kind: Kind,
    ) -> Result<(Option<Id128>, Id128), PublishError> {
        let key_hash = self.key_hash(state, value, kind)?;
        let instance = key_hash.unwrap_or_default();
        if let Some(offered) = &state.offered {
            let history =
                state.groups.iter().flat_map(|group| &group.channels).find_map(|channel| channel.history.as_deref());
            offered.admit(kind, instance, history).map_err(PublishError::Limit)?;
        }
        Ok((key_hash.filter(|_| kind != Kind::Data || state.hash_data), instance))
    }

    #[cold]
    fn key_hash(&self, state: &mut Sending<C>, value: &C::Value, kind: Kind) -> Result<Option<Id128>, PublishError> {
        if let Hasher::Unknown = state.hasher {
            let hasher = self.coding.key_hasher(state.cdr).map_err(PublishError::Key)?;
            state.hasher = hasher.map_or(Hasher::None, Hasher::Known);
        }
        match &mut state.hasher {
            Hasher::Known(hash) => hash(value).map(Some).map_err(PublishError::Encode),
            _ if kind == Kind::Data => Ok(None),
            _ => Err(PublishError::NoKey(self.topic.clone())),
        }
    }

    pub(super) fn hash_keys(&self, with_data: bool) {
        let mut state = self.lock();
        (state.hash_data, state.plain) = (with_data, !with_data && state.offered.is_none());
    }

    /// The wires on which the publisher publishes, without those that it is leaving.
    pub(super) fn wires(&self) -> Vec<Wire> {
        self.lock().channels().filter(|channel| !channel.leaving).map(|channel| channel.wire.clone()).collect()
    }

    pub(super) fn status(&self) -> PublisherStatus {
        let state = self.lock();
        let deadline = state.offered.as_ref().and_then(|offered| offered.deadline.as_ref());
        let mut status = PublisherStatus {
            dropped: self.counts.dropped(),
            deadlines_missed: deadline.map_or(0, |deadline| deadline.missed()),
            liveliness_lost: self.asserter.as_ref().map_or(0, |asserter| asserter.lost()),
            ..Default::default()
        };
        let mut refusing = BTreeSet::new();
        for channel in state.channels() {
            let here = channel.entry.status(channel.id);
            refusing.extend(channel.entry.refused_by(channel.id));
            status.refused_total += here.refused_total;
            status.refusals.extend(here.refusals);
        }
        let channels = state.channel_ids();
        drop(state);
        (status.accepting, status.refusing) = (accepting(&channels).len(), refusing.len());
        status
    }

    pub(super) fn wait_for_subscribers(&self, least: usize, timeout: Duration) -> usize {
        // The publisher may move to other endpoints meanwhile.
        let count = || accepting(&self.present()).values().sum::<usize>();
        self.inner.answered.wait_while(timeout, || count() < least);
        count()
    }

    pub(super) fn flush(&self, deadline: Instant) -> bool {
        let entries = self.lock().entries.clone();
        // Flushes every port, even after one has timed out.
        entries.iter().filter(|entry| !entry.flush(deadline)).count() == 0
    }

    pub(crate) fn close(&self) {
        let (groups, forwards) = {
            let mut state = self.lock();
            state.closed = true;
            (std::mem::take(&mut state.groups), std::mem::take(&mut state.forwards))
        };
        self.asserter.iter().for_each(|asserter| asserter.close());
        groups.iter().flat_map(|group| &group.channels).for_each(WriterChannel::close);
        self.inner.totals.end_sender(&self.counts);
        forwards.iter().for_each(|(entry, channel)| entry.retire(*channel));
    }

    /// Returns the data with which the publisher's channels are opened.
    pub(crate) fn announce(&self) -> Announce<'_, C> {
        Announce {
            node: &self.inner,
            topic: &self.topic,
            writer: self.writer,
            incarnation: self.incarnation,
            coding: &self.coding,
            offer: &self.offer,
            role: self.role,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sending<C>> {
        self.state.lock()
    }
}

impl<C: Coding> Sending<C> {
    fn channels(&self) -> impl Iterator<Item = &WriterChannel> {
        self.groups.iter().flat_map(|group| &group.channels)
    }

    /// Whether data messages only have to be encoded once and sent at one endpoint.
    #[inline]
    fn is_simple(&self) -> bool {
        self.plain && matches!(self.groups.as_slice(), [Group { channels, .. }] if channels.len() == 1)
    }

    /// Whether data messages are [simple](Sending::is_simple) and small, and the port copies small
    /// payloads in any case.
    #[inline]
    fn copies(&self) -> bool {
        let is_copied = |only: &Group<C::Encoder>| only.last.size <= SMALL && only.channels[0].gathers();
        self.is_simple() && self.groups.first().is_some_and(is_copied)
    }

    /// Returns the time of publication for the next message.
    #[inline]
    fn time_ns(&mut self) -> i64 {
        let gathering = if self.is_simple() { self.groups[0].channels[0].gathering() } else { 0 };
        self.time.of(gathering)
    }

    /// Returns the ports if one of them may deliver in [`PortEntry::settle`], which must be called
    /// without the lock.
    #[inline]
    fn to_settle(&self) -> Option<Entries> {
        self.entries.iter().any(|entry| entry.settles()).then(|| self.entries.clone())
    }

    fn channel_ids(&self) -> Vec<(Arc<PortEntry>, ChannelId)> {
        self.channels().map(|channel| (channel.entry.clone(), channel.id)).collect()
    }

    fn changed(&mut self) {
        self.groups.retain(|group| !group.channels.is_empty());
        self.entries = self.channels().map(|channel| channel.entry.clone()).collect();
        *self.published.lock() = self.channel_ids();
        if let Some(asserter) = &self.asserter {
            let channels =
                self.channels().filter_map(|channel| Some((Arc::downgrade(&channel.entry), channel.assertions?)));
            asserter.set_channels(channels.collect());
        }
    }

    /// Encodes for each format, and then sends at each endpoint.
    #[cold]
    fn send_all(
        &mut self,
        value: &C::Value,
        kind: Kind,
        key_hash: Option<Id128>,
        instance: Id128,
        last: Start,
    ) -> Result<Sent, PublishError> {
        let envelope =
            Envelope { kind, key_hash, ..Envelope::data(ChannelId::default(), last.sequence, last.timestamp_ns) };
        let encoded = self.encode_all(value, &envelope, instance)?;
        let sum = self.send_encoded(&envelope, encoded, last);
        if self.last == last
            && let Some(offered) = &mut self.offered
        {
            offered.published(kind, instance);
            if is_end(kind) {
                let channels = self.groups.iter().flat_map(|group| &group.channels);
                channels.filter_map(|channel| channel.history.as_ref()).for_each(|history| history.ended(instance));
            }
        }
        sum
    }

    /// Sends the payload of each format. If an endpoint fails, the message is still sent at the
    /// others, and the first error is returned.
    fn send_encoded(
        &mut self,
        envelope: &Envelope<'_>,
        encoded: Vec<Encoded>,
        last: Start,
    ) -> Result<Sent, PublishError> {
        let (mut sum, mut failed, mut any) = (Sent::default(), None, false);
        for (group, (mut loan, anchor, kept)) in self.groups.iter_mut().zip(encoded) {
            group.last.note(&mut loan);
            let results = group.send_payload(&Envelope { anchor, ..*envelope }, loan, kept.as_ref());
            for result in results {
                match result {
                    Ok(sent) => {
                        any = true;
                        sum += sent;
                    }
                    Err(error) => {
                        group.writing.failed();
                        failed = failed.or(Some(error));
                    }
                }
            }
        }
        if any {
            self.last = last;
        }
        failed.map_or(Ok(sum), |error| Err(error.into()))
    }

    /// Encodes the payload of each format, and the sample that its histories keep. Fails if one
    /// format cannot carry the value; nothing has been sent then.
    fn encode_all(
        &mut self,
        value: &C::Value,
        envelope: &Envelope<'_>,
        instance: Id128,
    ) -> Result<Vec<Encoded>, PublishError> {
        let mut encoded = Vec::with_capacity(self.groups.len());
        for at in 0..self.groups.len() {
            match self.groups[at].encode::<C>(value, envelope, instance) {
                Ok(parts) => encoded.push(parts),
                Err(error) => {
                    self.groups[..at].iter_mut().for_each(|group| group.writing.failed());
                    return Err(PublishError::Encode(error));
                }
            }
        }
        Ok(encoded)
    }
}

impl<E> Group<E> {
    /// Encodes values for the only endpoint until [`MESSAGES`] or [`BYTES`] are reached. Returns
    /// the error if the next value cannot be encoded.
    #[inline]
    fn encode_some<C: Coding<Encoder = E>>(&mut self, first: u64, values: &[C::Value]) -> Option<CodecError> {
        let most = values.len().min(MESSAGES);
        self.ends.clear();
        self.payloads.clear();
        // The last payload may begin just before the bound.
        self.payloads.reserve(BYTES.min(most * self.last.size) + self.last.wanted());
        for (value, sequence) in values[..most].iter().zip(first..) {
            let start = self.payloads.len();
            match self.writing.encode::<C>(sequence, value, &mut self.payloads) {
                Ok(anchor) => {
                    let (offset, anchor) = (self.payloads.len(), anchor.and_then(NonZeroU64::new));
                    self.ends.push(PayloadEnd { offset, anchor });
                }
                Err(error) => return Some(error),
            }
            self.last.size = self.payloads.len() - start;
            if self.payloads.len() >= BYTES {
                break;
            }
        }
        None
    }

    fn encode<C: Coding<Encoder = E>>(
        &mut self,
        value: &C::Value,
        envelope: &Envelope<'_>,
        instance: Id128,
    ) -> Result<(Loan, Option<u64>, Option<KeptSample>), CodecError> {
        let leader = &self.channels[self.channels.len() - 1];
        let mut loan = leader.entry.port().reserve(self.last.wanted());
        let anchor = self.writing.encode::<C>(envelope.sequence, value, loan.buffer())?;
        if envelope.kind != Kind::Data || leader.history.is_none() {
            return Ok((loan, anchor, None));
        }
        let (mut alone, is_key_frame) = (Vec::new(), self.key_frames.is_some());
        let payload = match &mut self.key_frames {
            // Not needed if the message itself is a key frame, which refers to no other message
            // either.
            Some(writing) if anchor != Some(envelope.sequence) => {
                writing.encode_alone::<C>(value, &mut alone).inspect_err(|_| self.writing.failed())?;
                &alone
            }
            _ => loan.payload(),
        };
        let sample = KeptSample {
            timestamp_ns: envelope.timestamp_ns,
            key_hash: envelope.key_hash,
            instance,
            is_key_frame,
            payload: payload.into(),
            channel: ChannelId::default(),
        };
        Ok((loan, anchor, Some(sample)))
    }

    /// Sends a payload at each endpoint. The last endpoint, which owns the loan, gets it without a
    /// copy.
    fn send_payload(
        &self,
        envelope: &Envelope<'_>,
        loan: Loan,
        kept: Option<&KeptSample>,
    ) -> Vec<Result<Sent, crate::engine::EngineError>> {
        let mut results = Vec::with_capacity(self.channels.len());
        let mut loan = Some(loan);
        for (at, channel) in self.channels.iter().enumerate() {
            let envelope = Envelope { channel: channel.id, ..*envelope };
            let publishing = channel.history.as_ref().map(|history| history.publishing());
            let result = match loan.take_if(|_| at + 1 == self.channels.len()) {
                Some(own) => channel.entry.commit(&envelope, own),
                None => channel.entry.send(&envelope, loan.as_ref().map_or(&[], |loan| loan.payload())),
            };
            if let (Ok(_), Some(history), Some(sample)) = (&result, &channel.history, kept) {
                history.keep(envelope.sequence, KeptSample { channel: history.channel(), ..sample.clone() });
            }
            drop(publishing);
            results.push(result.map(|sent| Sent { refused: channel.refusing.peers(), ..sent }));
        }
        results
    }
}

/// The nodes that accept any of these channels, with the number of their subscribers.
fn accepting(channels: &[(Arc<PortEntry>, ChannelId)]) -> BTreeMap<Id128, usize> {
    let mut all = BTreeMap::new();
    for (node, subscribers) in channels.iter().flat_map(|(entry, channel)| entry.accepting(*channel)) {
        let known = all.entry(node).or_default();
        *known = subscribers.max(*known);
    }
    all
}

/// Whether a message ends an instance.
fn is_end(kind: Kind) -> bool {
    matches!(kind, Kind::Dispose | Kind::Unregister)
}

/// Frees a large buffer: large values are rare, or take so long that the allocation does not
/// matter.
#[inline]
fn free_large(payloads: &mut Vec<u8>) {
    if payloads.capacity() > 2 * BYTES {
        *payloads = Vec::new();
    }
}

fn not_published(published: usize, cause: impl Into<PublishError>) -> PublishAllError {
    PublishAllError { published, cause: cause.into() }
}

/// The version of CDR that keys are hashed in: XCDR2 on topics in XCDR2, and `cdr` on all others.
fn cdr_of(wire: &Wire) -> &'static Cdr {
    if wire.codec.name == XCDR2.name() { &XCDR2 } else { &CDR }
}
