//! Which thread hands messages to the node: the port's thread, or directly the thread of Cyclone
//! that receives them, which saves a thread switch.
//!
//! Cyclone holds locks while it delivers, and processes no acknowledgements meanwhile. So its
//! threads hand over only messages that go to callbacks, and only while the callbacks are fast.
//! What the node calls during such a callback neither waits for peers nor creates or deletes
//! entities, but leaves that to other threads.

use std::{
    cell::Cell,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope},
    frame::{DatagramDecoder, Limits},
};
use polywire_dds::{Guid, Receive, Sample};

use super::{
    super::{
        Aligned,
        inline::{self, Inline},
    },
    form::{self, Form, Place, of_sample},
    inbox::{Inbox, Item},
    keys::{Keys, payload},
    peer::{EndId, Link},
    service::Call,
};

thread_local! {
    /// Whether this is a thread of Cyclone that is handing a message over.
    static DELIVERS: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread is writing. Readers of this process then receive in this thread.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// Checks whether this is a thread of Cyclone that is handing a message over.
pub(super) fn is_delivering() -> bool {
    DELIVERS.get()
}

/// Calls `write` to write a sample. Readers in this process do not call back meanwhile.
pub(super) fn writing<T>(write: impl FnOnce() -> T) -> T {
    let before = WRITES.replace(true);
    let written = write();
    WRITES.set(before);
    written
}

/// Takes in the samples of all readers. It owns no entity of Cyclone, because a thread of Cyclone
/// may drop it.
pub(super) struct Inlet {
    pub(super) inbox: Arc<Inbox>,
    hands: Mutex<Hands>,
    is_delivering: AtomicBool,
    is_closed: AtomicBool,
}

/// What is needed to hand messages over, by one thread at a time.
pub(super) struct Hands {
    decoders: Decoders,
    /// The ways of samples, by writer.
    ways: BTreeMap<Guid, Way>,
    inline: Inline,
}

/// The decoders of each participant's letters and octets.
struct Decoders {
    known: BTreeMap<Guid, DatagramDecoder>,
    limits: Limits,
}

impl Decoders {
    fn of(&mut self, participant: Guid) -> &mut DatagramDecoder {
        self.known.entry(participant).or_insert_with(|| DatagramDecoder::new(self.limits))
    }
}

/// How a writer's samples reach the node.
pub(super) struct Way {
    pub(super) link: Arc<Link>,
    pub(super) channel: ChannelId,
    pub(super) announcement: Arc<Announcement>,
    pub(super) form: Form,
    /// `Some` if the samples belong to a service of ROS 2 or DDS-RPC.
    pub(super) call: Option<Call>,
    pub(super) is_node: bool,
    pub(super) place: Place,
    /// The reader whose samples are passed on. Other readers of the topic may match the writer as
    /// well, and receive the same samples. `None` if the writer is a node's: numbers then show
    /// duplicates.
    pub(super) end: Option<EndId>,
    /// `Some` if the samples have keys and the writer is not a node's.
    pub(super) keys: Option<Keys>,
    /// The channel has retired. The port's thread checks after each message whether it was the
    /// last.
    pub(super) ends: bool,
}

impl Way {
    /// Checks whether a reader's samples are passed on.
    pub(super) fn is_from(&self, end: EndId) -> bool {
        self.end.is_none_or(|own| own == end)
    }
}

impl Inlet {
    pub(super) fn new(inbox: Arc<Inbox>, limits: Limits) -> Arc<Inlet> {
        let decoders = Decoders { known: BTreeMap::new(), limits };
        let hands = Mutex::new(Hands { decoders, ways: BTreeMap::new(), inline: Inline::default() });
        let (is_delivering, is_closed) = Default::default();
        Arc::new(Inlet { inbox, hands, is_delivering, is_closed })
    }

    /// Waits for the turn to hand over. For the port's thread, which takes items out of the inbox
    /// only during its turn, so that the order is kept.
    pub(super) fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock()
    }

    /// Checks whether a thread of Cyclone runs a callback, or waits for room in the inbox: then it
    /// processes no acknowledgements.
    pub(super) fn is_held_up(&self) -> bool {
        self.is_delivering.load(Ordering::Relaxed) || self.inbox.is_full()
    }

    /// Stops Cyclone's threads from handing samples over. Waits for a thread that is doing so,
    /// unless the calling thread has the turn.
    pub(super) fn close(&self, has_turn: bool) {
        self.is_closed.store(true, Ordering::Relaxed);
        if !has_turn {
            let ways = std::mem::take(&mut self.hands().ways);
            drop(ways);
        }
    }

    /// Takes the turn to hand over, for a thread of Cyclone. `None` if the inbox has items, or if
    /// the turn does not become free soon.
    fn turn(&self) -> Option<MutexGuard<'_, Hands>> {
        let turn = inline::shortly(|| match self.hands.try_lock() {
            Some(hands) => Poll::Ready(Some(hands)),
            None if self.inbox.is_empty() => Poll::Pending,
            None => Poll::Ready(None),
        });
        turn.flatten().filter(|_| self.inbox.is_empty())
    }

    /// Hands a sample over in this thread, if that is possible now. Returns false otherwise.
    fn hand_over_here(&self, end: EndId, writer: Guid, sample: &Sample) -> bool {
        if WRITES.get() || DELIVERS.get() {
            return false;
        }
        let Some(mut hands) = self.turn() else { return false };
        let began = inline::now();
        if self.is_closed.load(Ordering::Relaxed) || !hands.inline.is_fast(began) {
            return false;
        }
        // `with` avoids the extra function call of `set`.
        DELIVERS.with(|delivers| delivers.set(true));
        self.is_delivering.store(true, Ordering::Relaxed);
        // A panic, which was printed, must not reach Cyclone.
        let is_taken = catch_unwind(AssertUnwindSafe(|| hands.pass_inline(end, writer, sample))).unwrap_or(true);
        self.is_delivering.store(false, Ordering::Relaxed);
        DELIVERS.with(|delivers| delivers.set(false));
        if is_taken {
            hands.inline.called(began, inline::now());
        }
        is_taken
    }
}

impl Hands {
    /// Decodes a sample and passes its messages on, if a thread of Cyclone may do so because they
    /// go only to callbacks. Otherwise returns false, and nothing has happened.
    fn pass_inline(&mut self, end: EndId, writer: Guid, sample: &Sample) -> bool {
        let fits = |way: &&Way| way.call.is_none() && !way.ends && way.is_from(end);
        let Some(before) = self.ways.get(&writer).filter(fits).map(|way| way.place) else { return false };
        let mut is_taken = None;
        self.pass(writer, sample, &mut |way, envelope, payload| match is_taken {
            None => is_taken = Some(way.link.sink.message_inline(envelope, payload)),
            // The sample's first message was taken, so the other messages follow it.
            Some(true) => way.link.sink.message(envelope, payload),
            Some(false) => {}
        });
        let is_taken = is_taken.unwrap_or(true);
        if let (false, Some(way)) = (is_taken, self.ways.get_mut(&writer)) {
            way.place = before;
        }
        is_taken
    }

    pub(super) fn decoder(&mut self, participant: Guid) -> &mut DatagramDecoder {
        self.decoders.of(participant)
    }

    pub(super) fn way(&self, writer: Guid) -> Option<&Way> {
        self.ways.get(&writer)
    }

    pub(super) fn open(&mut self, writer: Guid, way: Way) {
        self.ways.insert(writer, way);
    }

    pub(super) fn shut(&mut self, writer: Guid) {
        self.ways.remove(&writer);
    }

    /// Notes that the channel of a writer will end. Returns the number of its last message so far.
    pub(super) fn end(&mut self, writer: Guid) -> Option<u64> {
        let way = self.ways.get_mut(&writer)?;
        way.ends = true;
        Some(way.place.last)
    }

    pub(super) fn forget(&mut self, participant: Guid) {
        self.decoders.known.remove(&participant);
        self.ways.retain(|writer, _| writer.participant() != participant);
    }

    /// Decodes a sample and passes its messages on.
    pub(super) fn pass(
        &mut self,
        writer: Guid,
        sample: &Sample,
        hand_over: &mut dyn FnMut(&Way, &Envelope<'_>, &[u8]),
    ) {
        let Hands { decoders, ways, .. } = self;
        let Some(way) = ways.get_mut(&writer) else { return };
        let (channel, mut place) = (way.channel, way.place);
        let blank = Envelope::data(channel, 0, 0);
        if way.is_node {
            let of = writer.participant();
            form::open(way.form, &mut place, sample, blank, move || decoders.of(of), &mut |envelope, payload| {
                hand_over(way, &Envelope { channel, ..*envelope }, payload);
            });
        } else {
            let sequence = sample.sequence.unwrap_or(place.last.saturating_add(1));
            // The sample arrived before, at another reader.
            if sequence <= place.last {
                return;
            }
            place = Place { last: sequence, begins_after_ns: None };
            let envelope = Envelope { sequence: place.last, ..of_sample(sample, blank) };
            hand_over(way, &envelope, Aligned::default().place(&payload(way.keys.as_ref(), sample)));
        }
        way.place = place;
    }
}

/// Takes the samples that one reader receives.
pub(super) struct Door {
    pub(super) inlet: Arc<Inlet>,
    pub(super) end: EndId,
}

impl Receive for Door {
    fn receive(&self, writer: Guid, sample: Sample) -> bool {
        let Door { inlet, end } = self;
        inlet.hand_over_here(*end, writer, &sample) || inlet.inbox.push(Item::Arrived(*end, writer, sample))
    }
}
