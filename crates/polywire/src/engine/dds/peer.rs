//! The peers of a port: other nodes, and participants that are not nodes.

use std::{
    collections::{BTreeMap, VecDeque},
    str::SplitAsciiWhitespace,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::{Answer, DatagramEncoder, Frame, Hello, Start},
    ros::{self, TypeHash},
};
use polywire_dds::{Guid, Kind, Participant, Qos, Reader, Sample, Writer};

use super::{
    super::{LinkInfo, LinkSink, LinkStats},
    dispatch,
    form::{Form, OCTETS, Place, octets},
    inbox::{Inbox, Item, Receiver},
    name::Naming,
};

/// The topic on which nodes send each other control messages: datagrams of `spec/frame.md` without
/// data. A control message is in the partition that is named after the receiver's participant.
pub(crate) const CONTROL_TOPIC: &str = "polywire_letters";

/// The word at the beginning of a node's user data. With `ros=true`, user data is a list of
/// properties, and this is the key of Polywire's property.
const WORD: &str = "polywire";

/// The property that every participant of ROS 2 has: its security enclave, here the default one.
const ENCLAVE: &str = "enclave=/;";

/// The maximum bytes of control messages that wait for a peer. If more wait, the peer's link ends.
const CONTROL_BYTES: usize = 64 << 20;

/// Returns the user data of a node's participant.
pub(super) fn introduction(hello: &Hello, naming: Naming) -> Vec<u8> {
    let words = format!("node={} incarnation={}", hello.node, hello.incarnation);
    match naming {
        Naming::Plain | Naming::Rpc => format!("{WORD} {words}"),
        Naming::Ros => format!("{ENCLAVE}{WORD}={words};"),
    }
    .into_bytes()
}

/// Returns the words of a node's user data. `None` for the user data of other programs.
fn words(user_data: &[u8]) -> Option<SplitAsciiWhitespace<'_>> {
    let plain = || std::str::from_utf8(user_data).ok()?.strip_prefix(WORD)?.strip_prefix(' ');
    Some(ros::property(user_data, WORD).or_else(plain)?.split_ascii_whitespace())
}

/// Returns the node that a participant's user data names. `None` for participants that are not
/// nodes.
pub(super) fn introduced(user_data: &[u8]) -> Option<Hello> {
    let mut words = words(user_data)?;
    let node = words.next()?.strip_prefix("node=")?;
    let incarnation = words.next()?.strip_prefix("incarnation=")?.parse().ok()?;
    let is_hex = node.len() == 32 && node.bytes().all(|byte| byte.is_ascii_hexdigit());
    let node = u128::from_str_radix(node, 16).ok().filter(|_| is_hex)?;
    Some(Hello { node: Id128(node.to_be_bytes()), incarnation })
}

/// Returns the user data of a channel's writer: its channel, the format for people, and the hash of
/// its type if it is a type of ROS 2.
pub(super) fn label(
    channel: ChannelId,
    announcement: &Announcement,
    naming: Naming,
    hash: Option<TypeHash>,
) -> Vec<u8> {
    let words = format!("channel={channel} format={}", announcement.codec);
    match naming {
        Naming::Plain | Naming::Rpc => format!("{WORD} {words}"),
        Naming::Ros => format!("{}{WORD}={words};", hash.map(TypeHash::to_user_data).unwrap_or_default()),
    }
    .into_bytes()
}

/// Returns the channel that a writer's user data names. `None` if the writer is not a node's.
pub(super) fn labelled(user_data: &[u8]) -> Option<ChannelId> {
    let mut words = words(user_data)?;
    words.next()?.strip_prefix("channel=")?.parse().ok().map(ChannelId)
}

/// A link, with the numbers of messages that were sent and dropped.
pub(super) struct Link {
    pub(super) info: LinkInfo,
    pub(super) sink: Arc<dyn LinkSink>,
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl Link {
    pub(super) fn new(info: LinkInfo, sink: Arc<dyn LinkSink>) -> Arc<Link> {
        Arc::new(Link { info, sink, sent: AtomicU64::new(0), dropped: AtomicU64::new(0) })
    }

    pub(super) fn count_sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_drop(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn stats(&self) -> LinkStats {
        LinkStats {
            link: self.info.clone(),
            sent: self.sent.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            queued_bytes: 0,
            silences: 0,
        }
    }
}

/// Another participant in the domain.
pub(super) struct Peer {
    /// `None` for participants that are not nodes.
    pub(super) node: Option<RemoteNode>,
    /// `None` until a node's first control message arrives, or until another program's first writer
    /// or reader needs a link.
    pub(super) link: Option<Arc<Link>>,
    /// The names of the participant's ROS 2 nodes, separated by blanks.
    pub(super) names: String,
    pub(super) incoming: BTreeMap<ChannelId, Incoming>,
    pub(super) by_writer: BTreeMap<Guid, ChannelId>,
    /// The number of the last channel of a participant that is not a node.
    pub(super) last: u32,
}

/// Returns the address of a participant's link: the endpoint, the names of its ROS 2 nodes, if it
/// has any, and its GUID.
pub(super) fn address(endpoint: &str, names: &str, guid: Guid) -> String {
    let blank = if names.is_empty() { "" } else { " " };
    format!("{endpoint} {names}{blank}{guid}")
}

impl Peer {
    pub(super) fn new(node: Option<RemoteNode>) -> Peer {
        let (names, incoming, by_writer) = Default::default();
        Peer { node, link: None, names, incoming, by_writer, last: 0 }
    }

    /// Adds a channel of a participant that is not a node.
    pub(super) fn add(&mut self, incoming: Incoming) -> ChannelId {
        self.last += 1;
        self.incoming.insert(ChannelId(self.last), incoming);
        ChannelId(self.last)
    }

    /// Adds the channel of such a participant's writer, and the writer's history channel if it has
    /// one. Returns both.
    pub(super) fn add_writer(
        &mut self,
        writer: Guid,
        mut incoming: Incoming,
        history: Option<&Announcement>,
    ) -> (ChannelId, Option<ChannelId>) {
        let of = |history: &Announcement| Incoming { history_of: Some(writer), ..Incoming::new(history) };
        let history = history.map(|history| self.add(of(history)));
        incoming.history = history;
        let channel = self.add(incoming);
        self.by_writer.insert(writer, channel);
        (channel, history)
    }
}

/// Another node, with the writer of the control messages to it.
pub(super) struct RemoteNode {
    pub(super) hello: Hello,
    control_writer: Arc<ControlWriterInner>,
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// The node has confirmed that control messages reach it.
    pub(super) is_confirmed: bool,
    /// When the node was discovered. `None` once its silence was reported.
    since: Option<Instant>,
}

impl RemoteNode {
    pub(super) fn new(
        us: &Participant,
        guid: Guid,
        hello: Hello,
        inbox: &Arc<Inbox>,
    ) -> Result<Self, polywire_dds::Error> {
        let qos = Qos { partitions: vec![guid.to_string()], ..control_qos() };
        let inbox = inbox.clone();
        let writer = us.topic(CONTROL_TOPIC, OCTETS, false)?.writer(&qos, move |_| inbox.tell(Item::Wake))?;
        let control_writer = Arc::new(ControlWriterInner { writer, to: guid, failing: Failing::default() });
        let (waiting, since) = (VecDeque::new(), Some(Instant::now()));
        Ok(RemoteNode { hello, control_writer, waiting, waiting_bytes: 0, is_confirmed: false, since })
    }

    /// Queues a control message. False if too many wait.
    pub(super) fn post(&mut self, message: Vec<u8>) -> bool {
        self.waiting_bytes += message.len();
        self.waiting.push_back(message);
        self.waiting_bytes <= CONTROL_BYTES
    }

    /// Takes the next control message to send.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        if !self.is_confirmed {
            return None;
        }
        let message = self.waiting.pop_front()?;
        self.waiting_bytes -= message.len();
        Some(message)
    }

    /// Checks whether control messages reach the node, and none wait.
    pub(super) fn is_done(&self) -> bool {
        self.is_confirmed && self.waiting.is_empty()
    }

    /// Checks whether the node has not confirmed a control message within the allowed time. Returns
    /// true once.
    pub(super) fn is_late(&mut self, allowed: Duration) -> bool {
        let is_late = !self.is_confirmed && self.since.is_some_and(|since| since.elapsed() >= allowed);
        self.since = self.since.filter(|_| !is_late);
        is_late
    }

    /// Puts back a control message for which there was no room.
    pub(super) fn put_back(&mut self, message: Vec<u8>) {
        self.waiting_bytes += message.len();
        self.waiting.push_front(message);
    }

    /// Sends the waiting control messages, as far as there is room. Returns false if some still
    /// wait.
    pub(super) fn flush(&mut self) -> bool {
        let control_writer = self.control_writer();
        while let Some(message) = self.next() {
            if !control_writer.send(&message) {
                self.put_back(message);
                return false;
            }
        }
        true
    }

    /// Returns a handle that sends control messages to the node.
    pub(super) fn control_writer(&self) -> ControlWriter {
        ControlWriter(self.control_writer.clone())
    }
}

/// Sends control messages to a node. Must not be used while the state is locked: sending may wait
/// for room.
pub(super) struct ControlWriter(Arc<ControlWriterInner>);

/// The writer of the control messages to a node.
struct ControlWriterInner {
    writer: Writer,
    to: Guid,
    failing: Failing,
}

impl ControlWriter {
    /// Sends a control message. Returns false if there is no room, or if DDS fails: then the
    /// message must be sent again.
    pub(super) fn send(&self, message: &[u8]) -> bool {
        let Ok(bytes) = octets(message) else { return true };
        let sample = Sample { kind: Kind::Data, is_key: false, bytes, key_hash: None, timestamp_ns: 0, sequence: None };
        let ControlWriterInner { writer, to, failing } = &*self.0;
        let written = dispatch::writing(|| writer.write(&sample));
        if let Some(error) = failing.note(&written) {
            log::warn!("control messages to {to} wait: {error}");
        }
        written.is_ok()
    }

    /// Waits until the node has acknowledged all control messages.
    pub(super) fn wait(&self, at_most: Duration) -> bool {
        self.0.writer.wait_for_acknowledgments(at_most)
    }
}

/// Whether writing fails, for another reason than a lack of room.
#[derive(Default)]
struct Failing(AtomicBool);

impl Failing {
    /// Notes the result of an attempt to write. Returns the error if it is to be reported: until
    /// an attempt succeeds, only the first error is.
    fn note<'a>(&self, written: &'a Result<(), polywire_dds::Error>) -> Option<&'a polywire_dds::Error> {
        match written {
            Ok(()) => {
                self.0.store(false, Ordering::Relaxed);
                None
            }
            Err(error) => (!error.is_timeout() && !self.0.swap(true, Ordering::Relaxed)).then_some(error),
        }
    }
}

fn control_qos() -> Qos {
    Qos { reliable: Some(Duration::from_millis(10)), ..Qos::default() }
}

/// Makes the reader of the control messages to this participant.
pub(super) fn control_reader(us: &Participant, inbox: &Arc<Inbox>) -> Result<Reader, polywire_dds::Error> {
    let qos = Qos { partitions: vec![us.guid().to_string()], ..control_qos() };
    let receiver = Receiver { inbox: inbox.clone(), item: Item::ControlMessage };
    us.topic(CONTROL_TOPIC, OCTETS, false)?.reader(&qos, Arc::new(receiver), |_| {})
}

/// Encodes the control messages of this node.
pub(super) struct ControlEncoder(pub(super) DatagramEncoder);

impl ControlEncoder {
    pub(super) fn encode(&self, frames: &[Frame<'_>]) -> Vec<u8> {
        let mut message = Vec::new();
        self.0.begin(&mut message);
        frames.iter().for_each(|frame| self.0.control(frame, &mut message));
        self.0.finish(&mut message);
        message
    }
}

/// A channel of a peer.
pub(super) struct Incoming {
    pub(super) announcement: Arc<Announcement>,
    /// The schema that the announcement names, if the writer is not a node's, so that no peer can
    /// be asked for it.
    pub(super) document: Option<Arc<[u8]>>,
    /// The form of its messages, once its writer is known.
    pub(super) form: Option<Form>,
    pub(super) writer: Option<Guid>,
    /// `Some` while this node wants the channel's messages.
    pub(super) reading: Option<Reading>,
    /// The last position that the peer has sent. On a history channel, the number of the last
    /// message.
    pub(super) position: u64,
    /// The channel has retired. It ends with the message of this number.
    pub(super) ends_at: Option<u64>,
    /// The writer's history channel. Only for writers of programs that are not nodes.
    pub(super) history: Option<ChannelId>,
    /// `Some` if the channel is the history channel of this writer.
    pub(super) history_of: Option<Guid>,
    /// This node has answered the channel.
    pub(super) is_answered: bool,
    /// Messages arrived while this node did not want them.
    pub(super) has_missed: bool,
}

/// The state of reading a channel.
pub(super) struct Reading {
    /// `None` until the writer is known.
    pub(super) reader: Option<Arc<ReadEnd>>,
    /// The answer that is sent to the peer once the reader matches the writer.
    pub(super) answer: Option<Answer>,
    pub(super) gate: Gate,
}

/// Whether a channel's messages are passed on.
pub(super) enum Gate {
    /// Not yet: samples wait here until the peer reports where the messages begin.
    Shut(Vec<Sample>),
    /// Messages after this place are. Once the first has arrived, `dispatch` has the place.
    Open(Place),
}

/// Identifies a reader of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndId(u64);

impl EndId {
    /// Returns an id that no other reader has.
    pub(super) fn next() -> EndId {
        static LAST: AtomicU64 = AtomicU64::new(0);
        EndId(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// A reader, which several channels may share.
pub(super) struct ReadEnd {
    pub(super) id: EndId,
    pub(super) topic: String,
    pub(super) type_name: String,
    pub(super) is_keyed: bool,
    pub(super) qos: Qos,
    pub(super) reader: Reader,
    pub(super) silent: Silent,
}

/// The writers of a reader that have missed their leases, by their instance handles.
#[derive(Default)]
pub(super) struct Silent(Mutex<BTreeMap<u64, Guid>>);

impl Silent {
    /// Notes whether a writer is alive; `None` if it has left. Returns the writer's GUID if it
    /// still matches the reader.
    pub(super) fn note(&self, reader: &Reader, writer: u64, is_alive: Option<bool>) -> Option<Guid> {
        let guid = is_alive.and_then(|_| reader.guid_of(writer));
        let mut silent = self.0.lock();
        match guid.filter(|_| is_alive == Some(false)) {
            Some(guid) => silent.insert(writer, guid),
            None => silent.remove(&writer),
        };
        guid
    }

    pub(super) fn has(&self, writer: Guid) -> bool {
        self.0.lock().values().any(|silent| *silent == writer)
    }
}

/// What a peer has answered to a channel of this node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Interest {
    /// No answer yet. The channel was announced to the peer at this place.
    Asked(Start),
    /// The peer wants the messages after this place, but its reader does not match yet.
    Coming(Start, Answer),
    /// The peer gets the messages, for this many subscribers.
    Wanted(u32),
    Unwanted,
}

impl Interest {
    /// Returns the interest after another answer. `last` is the place of the channel's last
    /// message.
    pub(super) fn after(&self, answer: &Answer, last: Start) -> Interest {
        match self {
            _ if !answer.accepts() => Interest::Unwanted,
            Interest::Asked(start) => Interest::Coming(*start, answer.clone()),
            Interest::Coming(start, before) => Interest::Coming(*start, answer.lasting(Some(before))),
            Interest::Wanted(_) => Interest::Wanted(answer.subscribers().max(1)),
            Interest::Unwanted => Interest::Coming(last, answer.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use polywire_dds::Error;

    use super::*;

    #[test]
    fn an_error_that_lasts_is_reported_once_and_a_lack_of_room_is_not() {
        let full = Error::Call { action: "write a sample", reason: "timed out", code: -10 };
        assert!(full.is_timeout());
        let failing = Failing::default();
        let told = |written: Result<(), Error>| failing.note(&written).cloned();
        assert_eq!((told(Err(full.clone())), told(Ok(()))), (None, None));
        assert_eq!((told(Err(Error::Expired)), told(Err(Error::Expired))), (Some(Error::Expired), None));
        assert_eq!((told(Err(full)), told(Err(Error::Expired))), (None, None));
        assert_eq!((told(Ok(())), told(Err(Error::Expired))), (None, Some(Error::Expired)));
    }

    #[test]
    fn a_request_for_a_key_frame_keeps_the_reason_while_the_reader_does_not_match() {
        let partial = |count| Answer::Partial(count, "no member 'id'".into());
        let [asked, last] = [3, 5].map(|sequence| Start { sequence, timestamp_ns: 0 });
        let coming = Interest::Asked(asked).after(&partial(1), last);
        assert_eq!(coming, Interest::Coming(asked, partial(1)));
        assert_eq!(coming.after(&Answer::Renew(2), last), Interest::Coming(asked, partial(2)));
        assert_eq!(coming.after(&Answer::Accept(2), last), Interest::Coming(asked, Answer::Accept(2)));
        let declined = coming.after(&Answer::Decline, last);
        assert_eq!(declined, Interest::Unwanted);
        assert_eq!(declined.after(&Answer::Accept(1), last), Interest::Coming(last, Answer::Accept(1)));
        assert_eq!(Interest::Wanted(1).after(&Answer::Renew(2), last), Interest::Wanted(2));
    }

    #[test]
    fn nodes_and_channels_come_back_from_user_data() {
        let hello = Hello { node: Id128([0xab; 16]), incarnation: 77 };
        let announcement = Announcement { codec: "json".into(), ..Announcement::default() };
        let hash = Some(TypeHash::from_bytes([1; 32]));
        for (naming, hash) in [(Naming::Plain, None), (Naming::Ros, None), (Naming::Ros, hash)] {
            let (introduction, label) =
                (introduction(&hello, naming), label(ChannelId(9), &announcement, naming, hash));
            assert_eq!((introduced(&introduction), labelled(&label)), (Some(hello), Some(ChannelId(9))));
            assert_eq!(TypeHash::of_user_data(&label), hash);
        }
        assert_eq!(label(ChannelId(9), &announcement, Naming::Plain, None), b"polywire channel=9 format=json");
        assert_eq!(label(ChannelId(9), &announcement, Naming::Ros, None), b"polywire=channel=9 format=json;");
        let introduction = introduction(&Hello { incarnation: 5, ..hello }, Naming::Ros);
        assert!(
            introduction.starts_with(b"enclave=/;polywire=node=abab") && introduction.ends_with(b" incarnation=5;")
        );
        for strange in [&b""[..], b"polywire", b"polywire node=1 incarnation=1", b"\xff", b"enclave=/;", b"polywirex=1"]
        {
            assert_eq!((introduced(strange), labelled(strange)), (None, None));
        }
    }
}
