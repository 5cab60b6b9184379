//! Which thread dispatches messages to the node: the port's thread, or directly the thread of
//! Cyclone that receives them, which saves a thread switch.
//!
//! Cyclone holds locks while it delivers, and processes no acknowledgements meanwhile. So its
//! threads dispatch only messages that go to callbacks, and only while the callbacks are fast. What
//! the node calls during such a callback neither waits for peers nor creates or deletes entities,
//! but leaves that to other threads.

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
    service::RequestIdCodec,
};

thread_local! {
    /// Whether this is a thread of Cyclone that is dispatching a message.
    static DELIVERS: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread is writing. Readers of this process then receive in this thread.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// Checks whether this is a thread of Cyclone that is dispatching a message.
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
    dispatch: Mutex<Dispatch>,
    is_delivering: AtomicBool,
    is_closed: AtomicBool,
}

/// What is needed to dispatch messages to the node, by one thread at a time.
pub(super) struct Dispatch {
    decoders: Decoders,
    /// The routes of samples, by writer.
    routes: BTreeMap<Guid, SampleRoute>,
    inline: Inline,
}

/// The decoders of each participant's control messages and octets.
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
pub(super) struct SampleRoute {
    pub(super) link: Arc<Link>,
    pub(super) channel: ChannelId,
    pub(super) announcement: Arc<Announcement>,
    pub(super) form: Form,
    /// `Some` if the samples belong to a service of ROS 2 or DDS-RPC.
    pub(super) id_codec: Option<RequestIdCodec>,
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

impl SampleRoute {
    /// Checks whether a reader's samples are passed on.
    pub(super) fn is_from(&self, end: EndId) -> bool {
        self.end.is_none_or(|own| own == end)
    }
}

impl Inlet {
    pub(super) fn new(inbox: Arc<Inbox>, limits: Limits) -> Arc<Inlet> {
        let decoders = Decoders { known: BTreeMap::new(), limits };
        let dispatch = Mutex::new(Dispatch { decoders, routes: BTreeMap::new(), inline: Inline::default() });
        let (is_delivering, is_closed) = Default::default();
        Arc::new(Inlet { inbox, dispatch, is_delivering, is_closed })
    }

    /// Waits for the turn to dispatch. For the port's thread, which takes items out of the inbox
    /// only during its turn, so that the order is kept.
    pub(super) fn dispatch(&self) -> MutexGuard<'_, Dispatch> {
        self.dispatch.lock()
    }

    /// Checks whether a thread of Cyclone runs a callback, or waits for room in the inbox: then it
    /// processes no acknowledgements.
    pub(super) fn is_held_up(&self) -> bool {
        self.is_delivering.load(Ordering::Relaxed) || self.inbox.is_full()
    }

    /// Stops Cyclone's threads from dispatching samples. Waits for a thread that is doing so,
    /// unless the calling thread has the turn.
    pub(super) fn close(&self, has_turn: bool) {
        self.is_closed.store(true, Ordering::Relaxed);
        if !has_turn {
            let routes = std::mem::take(&mut self.dispatch().routes);
            drop(routes);
        }
    }

    /// Takes the turn to dispatch, for a thread of Cyclone. `None` if the inbox has items, or if
    /// the turn does not become free soon.
    fn turn(&self) -> Option<MutexGuard<'_, Dispatch>> {
        let turn = inline::shortly(|| match self.dispatch.try_lock() {
            Some(dispatch) => Poll::Ready(Some(dispatch)),
            None if self.inbox.is_empty() => Poll::Pending,
            None => Poll::Ready(None),
        });
        turn.flatten().filter(|_| self.inbox.is_empty())
    }

    /// Dispatches a sample in this thread, if that is possible now. Returns false otherwise.
    fn dispatch_here(&self, end: EndId, writer: Guid, sample: &Sample) -> bool {
        if WRITES.get() || DELIVERS.get() {
            return false;
        }
        let Some(mut dispatch) = self.turn() else { return false };
        let began = inline::now();
        if self.is_closed.load(Ordering::Relaxed) || !dispatch.inline.is_fast(began) {
            return false;
        }
        // `with` avoids the extra function call of `set`.
        DELIVERS.with(|delivers| delivers.set(true));
        self.is_delivering.store(true, Ordering::Relaxed);
        // A panic, which was printed, must not reach Cyclone.
        let is_taken = catch_unwind(AssertUnwindSafe(|| dispatch.pass_inline(end, writer, sample))).unwrap_or(true);
        self.is_delivering.store(false, Ordering::Relaxed);
        DELIVERS.with(|delivers| delivers.set(false));
        if is_taken {
            dispatch.inline.called(began, inline::now());
        }
        is_taken
    }
}

impl Dispatch {
    /// Decodes a sample and passes its messages on, if a thread of Cyclone may do so because they
    /// go only to callbacks. Otherwise returns false, and nothing has happened.
    fn pass_inline(&mut self, end: EndId, writer: Guid, sample: &Sample) -> bool {
        let fits = |route: &&SampleRoute| route.id_codec.is_none() && !route.ends && route.is_from(end);
        let Some(before) = self.routes.get(&writer).filter(fits).map(|route| route.place) else { return false };
        let mut is_taken = None;
        self.pass(writer, sample, &mut |route, envelope, payload| match is_taken {
            None => is_taken = Some(route.link.sink.message_inline(envelope, payload)),
            // The sample's first message was taken, so the other messages follow it.
            Some(true) => route.link.sink.message(envelope, payload),
            Some(false) => {}
        });
        let is_taken = is_taken.unwrap_or(true);
        if let (false, Some(route)) = (is_taken, self.routes.get_mut(&writer)) {
            route.place = before;
        }
        is_taken
    }

    pub(super) fn decoder(&mut self, participant: Guid) -> &mut DatagramDecoder {
        self.decoders.of(participant)
    }

    pub(super) fn route(&self, writer: Guid) -> Option<&SampleRoute> {
        self.routes.get(&writer)
    }

    pub(super) fn open(&mut self, writer: Guid, route: SampleRoute) {
        self.routes.insert(writer, route);
    }

    pub(super) fn shut(&mut self, writer: Guid) {
        self.routes.remove(&writer);
    }

    /// Notes that the channel of a writer will end. Returns the number of its last message so far.
    pub(super) fn end(&mut self, writer: Guid) -> Option<u64> {
        let route = self.routes.get_mut(&writer)?;
        route.ends = true;
        Some(route.place.last)
    }

    pub(super) fn forget(&mut self, participant: Guid) {
        self.decoders.known.remove(&participant);
        self.routes.retain(|writer, _| writer.participant() != participant);
    }

    /// Decodes a sample and passes its messages on.
    pub(super) fn pass(
        &mut self,
        writer: Guid,
        sample: &Sample,
        deliver: &mut dyn FnMut(&SampleRoute, &Envelope<'_>, &[u8]),
    ) {
        let Dispatch { decoders, routes, .. } = self;
        let Some(route) = routes.get_mut(&writer) else { return };
        let (channel, mut place) = (route.channel, route.place);
        let blank = Envelope::data(channel, 0, 0);
        if route.is_node {
            let of = writer.participant();
            form::open(route.form, &mut place, sample, blank, move || decoders.of(of), &mut |envelope, payload| {
                deliver(route, &Envelope { channel, ..*envelope }, payload);
            });
        } else {
            let sequence = sample.sequence.unwrap_or(place.last.saturating_add(1));
            // The sample arrived before, at another reader.
            if sequence <= place.last {
                return;
            }
            place = Place { last: sequence, begins_after_ns: None };
            let envelope = Envelope { sequence: place.last, ..of_sample(sample, blank) };
            deliver(route, &envelope, Aligned::default().place(&payload(route.keys.as_ref(), sample)));
        }
        route.place = place;
    }
}

/// Takes the samples that one reader receives.
pub(super) struct ReaderCallback {
    pub(super) inlet: Arc<Inlet>,
    pub(super) end: EndId,
}

impl Receive for ReaderCallback {
    fn receive(&self, writer: Guid, sample: Sample) -> bool {
        let ReaderCallback { inlet, end } = self;
        inlet.dispatch_here(*end, writer, &sample) || inlet.inbox.push(Item::Arrived(*end, writer, sample))
    }
}
