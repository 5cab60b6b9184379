//! An engine over links that lose, repeat, overtake and damage what they carry: `lossy/NAME MODEL`, in virtual time.
//!
//! Messages go as datagrams over [`netsim`](polywire_core::netsim) links, one each way between any two ports of the same address. Each message takes ten
//! milliseconds of virtual time. Announcements and documents are taken to be repeated until they arrive; of requests for key frames every other one gets lost.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use polywire::engine::{
    Engine, EngineError, LinkId, LinkInfo, LinkSink, LinkStats, Loan, Local, Port, Properties, Sent, Sink,
};
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, DatagramDecoder, DatagramEncoder, Frame, Limits, Start},
    netsim::{Link, Model, Stats},
};

const TICK: u64 = 10_000_000;

pub struct Lossy;

/// Every port that is open, by address.
static PORTS: Mutex<Option<HashMap<String, Vec<Weak<Inner>>>>> = Mutex::new(None);

impl Engine for Lossy {
    fn name(&self) -> &'static str {
        "lossy"
    }

    fn summary(&self) -> &'static str {
        "An emulated bad link"
    }

    fn example(&self) -> &'static str {
        "test loss=30%"
    }

    fn properties(&self) -> Properties {
        Properties { reliable: false, ordered: false, multicast: false, largest_payload: None }
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        let model: Model = address.split_once(' ').expect("a name and a model").1.parse().expect("a model");
        let inner = Arc::new(Inner {
            address: address.into(),
            local: local.clone(),
            sink,
            ends: Mutex::default(),
            channels: Mutex::default(),
            now: AtomicU64::new(0),
        });
        let others = {
            let mut ports = lock(&PORTS);
            let ports = ports.get_or_insert_default().entry(address.into()).or_default();
            let others: Vec<_> = ports.iter().filter_map(Weak::upgrade).collect();
            ports.push(Arc::downgrade(&inner));
            others
        };
        for (seed, other) in others.iter().enumerate() {
            join(&inner, other, &model, seed as u64 + 1);
        }
        Ok(Arc::new(LossyPort(inner)))
    }
}

struct LossyPort(Arc<Inner>);

struct Inner {
    address: String,
    local: Local,
    sink: Arc<dyn Sink>,
    ends: Mutex<Vec<Arc<End>>>,
    channels: Mutex<BTreeMap<ChannelId, (Start, Announcement)>>,
    now: AtomicU64,
}

/// A link to another port.
struct End {
    info: LinkInfo,
    /// For what comes from the other port.
    sink: OnceLock<Arc<dyn LinkSink>>,
    /// The other port, and its end.
    other: OnceLock<(Weak<Inner>, Weak<End>)>,
    there: Mutex<Wire>,
    /// What the other port said to our channels.
    wanted: Mutex<BTreeMap<ChannelId, bool>>,
    requests: AtomicU64,
}

struct Wire {
    link: Link,
    encoder: DatagramEncoder,
    decoder: DatagramDecoder,
}

fn join(a: &Arc<Inner>, b: &Arc<Inner>, model: &Model, seed: u64) {
    let (at_a, at_b) = (End::new(a, b, model, seed), End::new(b, a, model, !seed));
    let _ = at_a.other.set((Arc::downgrade(b), Arc::downgrade(&at_b)));
    let _ = at_b.other.set((Arc::downgrade(a), Arc::downgrade(&at_a)));
    let _ = at_a.sink.set(a.sink.link(&at_a.info));
    let _ = at_b.sink.set(b.sink.link(&at_b.info));
    for (port, end) in [(a, at_a), (b, at_b)] {
        lock(&port.ends).push(end.clone());
        let channels = lock(&port.channels).clone();
        channels.iter().for_each(|(channel, (start, announcement))| end.announce(*channel, *start, announcement));
    }
}

impl End {
    fn new(here: &Inner, there: &Inner, model: &Model, seed: u64) -> Arc<End> {
        let hello = here.local.hello;
        let wire = Wire {
            link: Link::new(model, seed),
            encoder: DatagramEncoder::new(hello.node, hello.incarnation, Limits::default()),
            decoder: DatagramDecoder::default(),
        };
        Arc::new(End {
            info: LinkInfo { id: LinkId::next(), peer: there.local.hello, address: there.address.clone() },
            sink: OnceLock::new(),
            other: OnceLock::new(),
            there: Mutex::new(wire),
            wanted: Mutex::default(),
            requests: AtomicU64::new(0),
        })
    }

    fn other(&self) -> Option<Arc<End>> {
        self.other.get().and_then(|(_, end)| end.upgrade())
    }

    /// Calls the other port's sink.
    fn tell(&self, call: impl FnOnce(&dyn LinkSink)) {
        if let Some(sink) = self.other().as_ref().and_then(|end| end.sink.get()) {
            call(&**sink);
        }
    }

    fn announce(&self, channel: ChannelId, start: Start, announcement: &Announcement) {
        self.tell(|sink| sink.announced(channel, start, announcement));
    }

    fn send(&self, now: u64, envelope: &Envelope<'_>, payload: &[u8]) {
        let mut wire = lock(&self.there);
        let Wire { link, encoder, .. } = &mut *wire;
        let mut datagram = Vec::new();
        encoder.begin(&mut datagram);
        encoder.data(envelope, payload, &mut datagram).expect("it fits");
        encoder.finish(&mut datagram);
        link.push(now, datagram);
    }

    /// Hands over what has arrived by now.
    fn deliver(&self, now: u64) {
        while let Some(arrival) = self.pop(now) {
            let datagram = {
                let mut wire = lock(&self.there);
                match wire.decoder.open(&arrival) {
                    Ok(datagram) => datagram.filter_map(Result::ok).collect::<Vec<_>>(),
                    // What was damaged is thrown away.
                    Err(_) => continue,
                }
            };
            for frame in datagram {
                let Frame::Data(envelope, payload) = frame else { panic!("only data was sent") };
                self.tell(|sink| {
                    sink.message(&envelope, payload);
                    sink.drained();
                });
            }
        }
    }

    fn pop(&self, now: u64) -> Option<Vec<u8>> {
        lock(&self.there).link.pop(now).map(|arrival| arrival.packet)
    }
}

impl Inner {
    fn end(&self, link: LinkId) -> Option<Arc<End>> {
        lock(&self.ends).iter().find(|end| end.info.id == link).cloned()
    }

    fn ends(&self) -> Vec<Arc<End>> {
        lock(&self.ends).clone()
    }
}

impl Port for LossyPort {
    fn endpoint(&self) -> String {
        format!("lossy/{}", self.0.address)
    }

    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        static CHANNELS: AtomicU64 = AtomicU64::new(1);
        let channel = ChannelId(CHANNELS.fetch_add(1, Ordering::Relaxed) as u32);
        lock(&self.0.channels).insert(channel, (start, announcement.clone()));
        self.0.ends().iter().for_each(|end| end.announce(channel, start, announcement));
        Ok(channel)
    }

    fn reserve(&self, size: usize) -> Loan {
        Loan::new(Vec::with_capacity(size), 0)
    }

    fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        let now = self.0.now.fetch_add(TICK, Ordering::Relaxed);
        let mut sent = Sent::default();
        for end in self.0.ends() {
            if lock(&end.wanted).get(&envelope.channel) == Some(&true) {
                end.send(now, envelope, loan.payload());
                sent.peers += 1;
            }
        }
        Ok(sent)
    }

    fn settle(&self) {
        let now = self.0.now.load(Ordering::Relaxed);
        self.0.ends().iter().for_each(|end| end.deliver(now));
    }

    fn retire(&self, channel: ChannelId) {
        lock(&self.0.channels).remove(&channel);
        self.0.ends().iter().for_each(|end| end.tell(|sink| sink.retired(channel)));
    }

    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        let Some(end) = self.0.end(link) else { return };
        let Some(other) = end.other() else { return };
        let known = lock(&other.wanted).insert(channel, answer.accepts());
        let lost = known == Some(true)
            && answer == Answer::Renew
            && end.requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if !lost {
            end.tell(|sink| sink.answered(channel, &answer));
        }
    }

    fn want(&self, link: LinkId, document: Id128) {
        if let Some(end) = self.0.end(link) {
            end.tell(|sink| sink.wanted(document));
        }
    }

    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>) {
        if let Some(end) = self.0.end(link) {
            end.tell(|sink| sink.supplied(document, bytes));
        }
    }

    fn flush(&self, _: Instant) -> bool {
        // Whatever is under way arrives within an hour of virtual time.
        let now = self.0.now.fetch_add(3_600_000_000_000, Ordering::Relaxed) + 3_600_000_000_000;
        self.0.ends().iter().for_each(|end| end.deliver(now));
        true
    }

    fn links(&self) -> Vec<LinkStats> {
        let stats = |end: &Arc<End>| {
            let Stats { sent, dropped, .. } = lock(&end.there).link.stats();
            LinkStats { link: end.info.clone(), sent, dropped, queued_bytes: 0 }
        };
        self.0.ends().iter().map(stats).collect()
    }

    fn close(&self) {
        let ends = std::mem::take(&mut *lock(&self.0.ends));
        if let Some(ports) = lock(&PORTS).as_mut().and_then(|ports| ports.get_mut(&self.0.address)) {
            ports.retain(|port| port.as_ptr() != Arc::as_ptr(&self.0));
        }
        for end in ends {
            if let Some((port, other)) = end.other.get().and_then(|(p, e)| Some((p.upgrade()?, e.upgrade()?))) {
                lock(&port.ends).retain(|known| !Arc::ptr_eq(known, &other));
                end.tell(|sink| sink.down());
            }
        }
    }
}

impl Drop for LossyPort {
    fn drop(&mut self) {
        self.close();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
