//! The engine `inproc`: ports of one process that are opened with the same name exchange messages.
//!
//! The engine has no thread. A sent message waits in a pipe until [`Port::settle`], which delivers
//! it on the calling thread. If another thread is delivering through the same pipe, that thread
//! delivers this message too. Therefore order is kept, and a callback may publish, close or
//! subscribe without being called from within itself. Receivers share the payload.
//!
//! ```
//! use polywire::engine::{inproc::Inproc, Engine};
//! let properties = Inproc.properties();
//! assert!(Inproc.name() == "inproc" && properties.reliable && properties.ordered && properties.multicast);
//! ```

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Weak},
    time::Instant,
};

use parking_lot::Mutex;
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Start},
};

use super::{
    Disconnect, Engine, EngineError, Event, LinkId, LinkInfo, LinkSink, LinkStats, Loan, Local, Port, Principal,
    Properties, Sent, Sink,
    pipe::{Item, Message, Pipe},
};

/// `inproc/NAME`.
pub struct Inproc;

impl Engine for Inproc {
    fn name(&self) -> &'static str {
        "inproc"
    }

    fn summary(&self) -> &'static str {
        "Within the process, by name"
    }

    fn example(&self) -> &'static str {
        "main"
    }

    fn properties(&self) -> Properties {
        Properties { reliable: true, ordered: true, multicast: true, largest_payload: None, matches: false }
    }

    fn tells_peers_apart(&self) -> bool {
        true
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        let member = Arc::new(Member { name: address.into(), local: local.clone(), sink, state: Mutex::default() });
        let others = {
            let mut buses = BUSES.lock();
            let bus = buses.get_or_insert_default().entry(address.into()).or_default();
            bus.retain(|other| other.strong_count() > 0);
            let others: Vec<_> = bus.iter().filter_map(Weak::upgrade).collect();
            bus.push(Arc::downgrade(&member));
            others
        };
        for other in others {
            join(&member, &other);
        }
        Ok(Arc::new(InprocPort(member)))
    }
}

type Buses = HashMap<String, Vec<Weak<Member>>>;
static BUSES: Mutex<Option<Buses>> = Mutex::new(None);

struct InprocPort(Arc<Member>);

/// A port on a bus.
struct Member {
    name: String,
    local: Local,
    sink: Arc<dyn Sink>,
    state: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    channels: BTreeMap<ChannelId, (Start, Announcement)>,
    last: u32,
    peers: Arc<Vec<Peer>>,
    closed: bool,
}

/// Another port on the bus.
#[derive(Clone)]
struct Peer {
    info: LinkInfo,
    out: Arc<Pipe>,
}

impl Port for InprocPort {
    fn endpoint(&self) -> String {
        format!("inproc/{}", self.0.name)
    }

    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        let (channel, peers) = {
            let mut state = self.0.state.lock();
            if state.closed {
                return Err(EngineError::Closed);
            }
            state.last += 1;
            let channel = ChannelId(state.last);
            state.channels.insert(channel, (start, announcement.clone()));
            // Under the lock, so that the channel is announced once to a port that joins meanwhile.
            for peer in state.peers.iter() {
                peer.out.announce(channel, start, announcement);
            }
            (channel, state.peers.clone())
        };
        peers.iter().for_each(|peer| peer.out.deliver());
        Ok(channel)
    }

    fn reserve(&self, size: usize) -> Loan {
        Loan::new(Vec::with_capacity(size), 0)
    }

    fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        let peers = self.0.peers();
        let message = Message::new(envelope, loan);
        let mut sent = Sent::default();
        for peer in peers.iter() {
            peer.out.send(&message).count(&mut sent);
        }
        Ok(sent)
    }

    fn settle(&self) {
        self.0.peers().iter().for_each(|peer| peer.out.deliver());
    }

    fn settles(&self) -> bool {
        true
    }

    fn retire(&self, channel: ChannelId) {
        self.0.state.lock().channels.remove(&channel);
        for peer in self.0.peers().iter() {
            peer.out.retire(channel);
            peer.out.deliver();
        }
    }

    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        self.0.push(link, Item::Answer(channel, answer));
    }

    fn want(&self, link: LinkId, document: Id128) {
        self.0.push(link, Item::Want(document));
    }

    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>) {
        self.0.push(link, Item::Supply(document, bytes.map(<[u8]>::to_vec)));
    }

    fn flush(&self, deadline: Instant) -> bool {
        self.settle();
        let late = |peer: &&Peer| !peer.out.flush(deadline);
        self.0.peers().iter().filter(late).count() == 0
    }

    fn links(&self) -> Vec<LinkStats> {
        self.0.peers().iter().map(|peer| peer.out.stats()).collect()
    }

    fn close(&self) {
        self.flush(Instant::now() + self.0.local.options.linger);
        let peers = {
            let mut state = self.0.state.lock();
            state.closed = true;
            std::mem::take(&mut state.peers)
        };
        let me = Arc::as_ptr(&self.0);
        if let Some(bus) = BUSES.lock().as_mut().and_then(|buses| buses.get_mut(&self.0.name)) {
            bus.retain(|member| member.as_ptr() != me);
        }
        peers.iter().for_each(|peer| self.0.leave(peer));
    }
}

impl Drop for InprocPort {
    fn drop(&mut self) {
        self.close();
    }
}

impl Member {
    fn peers(&self) -> Arc<Vec<Peer>> {
        self.state.lock().peers.clone()
    }

    fn push(&self, link: LinkId, item: Item) {
        if let Some(peer) = self.peers().iter().find(|peer| peer.info.id == link) {
            peer.out.push(item);
            peer.out.deliver();
        }
    }

    /// Adds a peer. If the port has closed meanwhile, ends the link to the peer instead.
    fn add(&self, peer: Peer) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return self.leave(&peer);
        }
        for (channel, (start, announcement)) in &state.channels {
            peer.out.announce(*channel, *start, announcement);
        }
        Arc::make_mut(&mut state.peers).push(peer);
    }

    /// Ends the link to a peer, because this port closes.
    fn leave(&self, peer: &Peer) {
        peer.out.close();
        self.sink.event(Event::Disconnected { link: peer.info.clone(), reason: Disconnect::Closed });
        if let Some(back) = peer.out.back() {
            back.close();
        }
    }

    fn remove(&self, link: LinkId) -> Option<Peer> {
        let mut state = self.state.lock();
        let at = state.peers.iter().position(|peer| peer.info.id == link)?;
        Some(Arc::make_mut(&mut state.peers).remove(at))
    }

    fn seen_as(&self) -> LinkInfo {
        let address = format!("inproc/{}", self.name);
        LinkInfo { id: LinkId::next(), peer: self.local.hello, address, principal: Principal::Process }
    }
}

/// Connects the port `a`, which is being opened, with `b`, which may be closing. The link is added
/// to `a` first, so that `b` can end it.
fn join(a: &Arc<Member>, b: &Arc<Member>) {
    let (b_at_a, a_at_b) = (b.seen_as(), a.seen_as());
    let (to_b, to_a) = (Pipe::new(&a.local, &a.sink, &b_at_a), Pipe::new(&b.local, &b.sink, &a_at_b));
    connect(&to_b, &to_a, b, &a_at_b);
    connect(&to_a, &to_b, a, &b_at_a);
    a.add(Peer { info: b_at_a, out: to_b.clone() });
    b.add(Peer { info: a_at_b, out: to_a.clone() });
    to_b.deliver();
    to_a.deliver();
}

/// Connects `pipe` to the member `to`, which knows the link as `info`.
fn connect(pipe: &Pipe, back: &Arc<Pipe>, to: &Arc<Member>, info: &LinkInfo) {
    let receiver = to.sink.link(info);
    to.sink.event(Event::Connected(info.clone()));
    let ends = Ends { receiver, member: Arc::downgrade(to), link: info.id };
    pipe.connect(Arc::new(ends), Some(back));
}

/// A receiver that also removes the peer from its port when the link goes down.
struct Ends {
    receiver: Arc<dyn LinkSink>,
    member: Weak<Member>,
    link: LinkId,
}

impl LinkSink for Ends {
    fn announced(&self, channel: ChannelId, start: Start, announcement: &Announcement) {
        self.receiver.announced(channel, start, announcement);
    }

    fn message(&self, envelope: &Envelope<'_>, payload: &[u8]) {
        self.receiver.message(envelope, payload);
    }

    fn position(&self, channel: ChannelId, start: Start, lost: u64) {
        self.receiver.position(channel, start, lost);
    }

    fn retired(&self, channel: ChannelId) {
        self.receiver.retired(channel);
    }

    fn wanted(&self, document: Id128) {
        self.receiver.wanted(document);
    }

    fn supplied(&self, document: Id128, bytes: Option<&[u8]>) {
        self.receiver.supplied(document, bytes);
    }

    fn answered(&self, channel: ChannelId, answer: &Answer) {
        self.receiver.answered(channel, answer);
    }

    fn drained(&self) {
        self.receiver.drained();
    }

    fn down(&self) {
        self.receiver.down();
        let Some(member) = self.member.upgrade() else { return };
        if let Some(peer) = member.remove(self.link) {
            peer.out.close();
            member.sink.event(Event::Disconnected { link: peer.info, reason: Disconnect::Bye });
        }
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::frame::Hello;

    use super::{
        super::{EngineOptions, recorder::Recorder},
        *,
    };

    fn member(recorder: &Recorder) -> Arc<Member> {
        let local = Local { hello: Hello::default(), name: String::new(), options: EngineOptions::default() };
        let (name, sink) = ("a-port-that-closes".into(), Arc::new(recorder.clone()));
        Arc::new(Member { name, local, sink, state: Mutex::default() })
    }

    #[test]
    fn a_port_that_closes_while_another_opens_has_no_link_to_it() {
        let (opening, closing) = (Recorder::default(), Recorder::default());
        let (a, b) = (member(&opening), member(&closing));
        // `a` has found `b` on the bus before `b` has left it.
        InprocPort(b.clone()).close();
        join(&a, &b);
        assert!(a.peers().is_empty() && b.peers().is_empty());
        for (recorder, expected) in [(opening, Disconnect::Bye), (closing, Disconnect::Closed)] {
            let record = recorder.record();
            let [Event::Connected(_), Event::Disconnected { reason, .. }] = record.events.as_slice() else {
                panic!("{:?}", record.events)
            };
            assert_eq!((reason, record.downs), (&expected, 1));
        }
    }
}
