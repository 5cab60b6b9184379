//! Local delivery: a port that also reaches the subscribers of its own node.
//!
//! Engines deliver to other nodes. [`open`] opens an engine's port for a node and adds a link that
//! leads back to the node itself. The node sees one port whose peers include itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use polywire_core::{
    directory::NodeData,
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Start},
};

use super::{
    Batch, Engine, EngineError, LinkId, LinkInfo, LinkSink, LinkStats, Loan, Local, Port, Sent, Sink,
    pipe::{Message, Pipe},
};

/// Opens a port that also delivers to its own node, which knows itself as the link `own`.
/// [`Port::links`] leaves that link out.
pub(crate) fn open(
    engine: &dyn Engine,
    address: &str,
    local: &Local,
    sink: Arc<dyn Sink>,
    own: &LinkInfo,
) -> Result<Arc<dyn Port>, EngineError> {
    let (pipe, receiver) = (Pipe::new(local, &sink, own), sink.link(own));
    pipe.connect(receiver.clone(), None);
    let port = engine.open(address, local, sink)?;
    Ok(Arc::new(Loopback { port, pipe, receiver, is_wanted: AtomicBool::new(false) }))
}

struct Loopback {
    port: Arc<dyn Port>,
    /// From the node's publishers to its subscribers.
    pipe: Arc<Pipe>,
    receiver: Arc<dyn LinkSink>,
    /// Whether the node's own subscribers may want any channel. If not, publishing takes no lock
    /// here.
    is_wanted: AtomicBool,
}

impl Loopback {
    fn is_own(&self, link: LinkId) -> bool {
        self.pipe.info().id == link
    }

    /// Delivers what waits in the pipe after announcements and answers, which change which channels
    /// are wanted.
    fn deliver(&self) {
        self.note_interest();
        self.pipe.deliver();
    }

    fn note_interest(&self) {
        self.pipe.interest(|any| self.is_wanted.store(any, Ordering::Release));
    }

    #[inline]
    fn wants(&self, channel: ChannelId) -> bool {
        self.is_wanted.load(Ordering::Acquire) && self.pipe.wants(channel)
    }

    #[inline(never)]
    fn send_all_here(&self, batch: &Batch<'_>, sent: &mut Sent) -> Result<(), (usize, EngineError)> {
        for (index, (envelope, payload)) in batch.iter().enumerate() {
            *sent += self.send(&envelope, payload).map_err(|error| (index, error))?;
        }
        Ok(())
    }
}

impl Port for Loopback {
    fn endpoint(&self) -> String {
        self.port.endpoint()
    }

    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        let channel = self.port.announce(announcement, start)?;
        self.pipe.announce(channel, start, announcement);
        self.deliver();
        Ok(channel)
    }

    #[inline]
    fn reserve(&self, size: usize) -> Loan {
        self.port.reserve(size)
    }

    #[inline]
    fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        if !self.wants(envelope.channel) {
            return self.port.commit(envelope, loan);
        }
        let here = copied(envelope, loan.payload());
        // The engine comes first: the node's own subscribers do not get a message that it refuses.
        let mut sent = self.port.commit(envelope, loan)?;
        self.pipe.send(&here).count(&mut sent);
        Ok(sent)
    }

    fn send(&self, envelope: &Envelope<'_>, payload: &[u8]) -> Result<Sent, EngineError> {
        let mut sent = self.port.send(envelope, payload)?;
        if self.wants(envelope.channel) {
            self.pipe.send(&copied(envelope, payload)).count(&mut sent);
        }
        Ok(sent)
    }

    fn send_all(&self, batch: &Batch<'_>, sent: &mut Sent) -> Result<(), (usize, EngineError)> {
        match self.wants(batch.first().channel) {
            true => self.send_all_here(batch, sent),
            false => self.port.send_all(batch, sent),
        }
    }

    fn gather(&self, begins: bool) {
        self.port.gather(begins);
    }

    fn gathering(&self) -> Option<Arc<AtomicU64>> {
        self.port.gathering()
    }

    #[inline]
    fn settle(&self) {
        self.port.settle();
        if self.is_wanted.load(Ordering::Acquire) {
            self.pipe.deliver();
        }
    }

    #[inline]
    fn settles(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire) || self.port.settles()
    }

    fn assure(&self, channel: ChannelId) {
        self.port.assure(channel);
    }

    fn retire(&self, channel: ChannelId) {
        self.port.retire(channel);
        self.pipe.retire(channel);
        self.deliver();
    }

    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        if !self.is_own(link) {
            return self.port.answer(link, channel, answer);
        }
        self.pipe.answered(channel, &answer);
        self.note_interest();
        self.receiver.answered(channel, &answer);
        self.pipe.deliver();
    }

    fn want(&self, link: LinkId, document: Id128) {
        // The node has the documents of its own publishers.
        if !self.is_own(link) {
            self.port.want(link, document);
        }
    }

    fn learn(&self, link: LinkId, channel: ChannelId) -> bool {
        !self.is_own(link) && self.port.learn(link, channel)
    }

    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>) {
        self.port.supply(link, document, bytes);
    }

    fn subscribe(&self, topic: &str) {
        self.port.subscribe(topic);
    }

    fn unsubscribe(&self, topic: &str) {
        self.port.unsubscribe(topic);
    }

    fn relays(&self) -> bool {
        self.port.relays()
    }

    fn flush(&self, deadline: Instant) -> bool {
        let here = self.pipe.flush(deadline);
        self.port.flush(deadline) && here
    }

    fn links(&self) -> Vec<LinkStats> {
        self.port.links()
    }

    fn foreign_readers(&self) -> Vec<NodeData> {
        self.port.foreign_readers()
    }

    fn disconnect(&self, links: &[LinkId]) {
        self.port.disconnect(links);
    }

    fn retransmitted(&self) -> u64 {
        self.port.retransmitted()
    }

    fn close(&self) {
        self.port.close();
    }
}

/// Copies a message for the node's own subscribers, because the engine may take the payload over.
fn copied(envelope: &Envelope<'_>, payload: &[u8]) -> Arc<Message> {
    let mut loan = Loan::new(Vec::with_capacity(payload.len()), 0);
    loan.buffer().extend_from_slice(payload);
    Message::new(envelope, loan)
}

#[cfg(test)]
mod tests {
    use polywire_core::frame::{Hello, Limits};

    use super::{
        super::{EngineOptions, Principal, recorder::Recorder, udp::UdpReliable},
        *,
    };

    #[test]
    fn a_message_that_the_engine_refuses_does_not_reach_the_node_itself() {
        let limits = Limits { frame_bytes: 2000, ..Limits::default() };
        let options = EngineOptions { limits, ..EngineOptions::default() };
        let local = Local { hello: Hello::default(), name: String::new(), options };
        let (id, principal, recorder) = (LinkId::next(), Principal::Process, Recorder::default());
        let own = LinkInfo { id, peer: local.hello, address: String::new(), principal };
        let sink = Arc::new(recorder.clone());
        let port = open(&UdpReliable, "127.0.0.1:0", &local, sink, &own).expect("a port");
        let channel = port.announce(&Announcement::default(), Start::default()).expect("a channel");
        port.answer(id, channel, Answer::Accept(1));
        let (envelope, payload) = (Envelope::data(channel, 1, 0), [0; 5000]);
        let mut loan = port.reserve(payload.len());
        loan.buffer().extend_from_slice(&payload);
        assert!(port.commit(&envelope, loan).is_err() && port.send(&envelope, &payload).is_err());
        port.settle();
        assert!(recorder.record().sequences.is_empty());
        // The next message has the same number.
        assert_eq!(port.send(&envelope, b"fits").expect("sent").subscribers, 1);
        port.settle();
        assert_eq!(recorder.record().sequences, [1]);
        port.close();
    }
}
