use std::sync::Weak;

use polywire_core::frame::FrameError;

use super::{
    super::recorder::{Record, Recorder},
    *,
};

const SOON: Duration = Duration::from_secs(60);

/// What a test says about ports, and what they were asked to do.
#[derive(Default)]
struct Medium {
    choice: Mutex<Vec<Place>>,
    /// Why no port can be opened.
    fails: Mutex<Option<&'static str>>,
    told: Mutex<Vec<String>>,
    /// Run by another thread, for which a port that closes waits.
    on_close: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Medium {
    fn tell(&self, what: String) {
        self.told.lock().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock())
    }
}

struct TestOpener(Arc<Medium>);

impl Opener for TestOpener {
    fn open(&self, _: &Arc<dyn Sink>, addresses: Option<&[Place]>) -> Result<Arc<dyn Renewable>, EngineError> {
        if let Some(reason) = *self.0.fails.lock() {
            let frame = FrameError::TooLong { what: reason, got: 2, limit: 1 };
            return Err(frame.into());
        }
        let at = addresses.map(|places| places.iter().map(|place| place.address.to_string()).collect::<Vec<_>>());
        self.0.tell(format!("open {at:?}"));
        Ok(Arc::new(TestPort(self.0.clone())))
    }

    fn chosen(&self, _: Vec<Place>) -> Vec<Place> {
        self.0.choice.lock().clone()
    }
}

struct TestPort(Arc<Medium>);

impl Port for TestPort {
    fn endpoint(&self) -> String {
        "test/0".into()
    }

    fn announce(&self, _: &Announcement, _: Start) -> Result<ChannelId, EngineError> {
        Err(EngineError::Closed)
    }

    fn reserve(&self, size: usize) -> Loan {
        Loan::new(Vec::with_capacity(size), 0)
    }

    fn commit(&self, envelope: &Envelope<'_>, _: Loan) -> Result<Sent, EngineError> {
        self.0.tell(format!("message {} of {}", envelope.sequence, envelope.channel));
        Ok(Sent { peers: 1, ..Sent::default() })
    }

    fn subscribe(&self, topic: &str) {
        self.0.tell(format!("subscribe {topic}"));
    }

    fn unsubscribe(&self, topic: &str) {
        self.0.tell(format!("unsubscribe {topic}"));
    }

    fn retire(&self, channel: ChannelId) {
        self.0.tell(format!("retire {channel}"));
    }

    fn answer(&self, _: LinkId, _: ChannelId, _: Answer) {}
    fn want(&self, _: LinkId, _: Id128) {}
    fn supply(&self, _: LinkId, _: Id128, _: Option<&[u8]>) {}

    fn flush(&self, _: Instant) -> bool {
        true
    }

    fn links(&self) -> Vec<LinkStats> {
        Vec::new()
    }

    fn close(&self) {
        if let Some(run) = self.0.on_close.lock().take() {
            let _ = thread::spawn(run).join();
        }
        self.0.tell("close".into());
    }
}

impl Renewable for TestPort {
    fn announce_as(&self, channel: ChannelId, announcement: &Announcement, start: Start) -> Result<(), EngineError> {
        self.0.tell(format!("announce {} as {channel} after {}", announcement.topic, start.sequence));
        Ok(())
    }
}

fn place(last: u8) -> Place {
    Place::new("eth0", [192, 0, 2, last].into())
}

/// Opens a port that uses the first place.
fn opened() -> (Arc<Medium>, Recorder, Arc<dyn Port>) {
    let (medium, recorder) = (Arc::new(Medium::default()), Recorder::default());
    *medium.choice.lock() = vec![place(1)];
    let port = open("test/0", Duration::ZERO, Arc::new(recorder.clone()), TestOpener(medium.clone())).expect("a port");
    assert_eq!(medium.take(), ["open None"]);
    (medium, recorder, port)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn renewals(record: &Record) -> usize {
    record.events.iter().filter(|event| matches!(event, Event::Renewed { .. })).count()
}

fn announce(port: &Arc<dyn Port>, topic: &str) -> ChannelId {
    let announcement = Announcement { topic: topic.into(), ..Announcement::default() };
    port.announce(&announcement, Start::default()).expect("a channel")
}

fn send(port: &Arc<dyn Port>, channel: ChannelId, sequence: u64) -> Sent {
    port.send(&Envelope::data(channel, sequence, 0), b"x").expect("sent")
}

#[test]
fn channels_and_subscriptions_are_those_of_the_port_before() {
    let (medium, recorder, port) = opened();
    let [a, b, c] = ["a", "b", "c"].map(|topic| announce(&port, topic));
    assert_eq!(send(&port, a, 5).peers, 1);
    port.retire(b);
    ["x", "x", "y", "z"].iter().for_each(|topic| port.subscribe(topic));
    ["x", "z"].iter().for_each(|topic| port.unsubscribe(topic));
    medium.take();
    *medium.choice.lock() = vec![place(2)];
    until("it is opened anew", || renewals(&recorder.record()) == 1);
    let anew = [
        "close".to_owned(),
        "open Some([\"192.0.2.2\"])".into(),
        format!("announce a as {a} after 5"),
        format!("announce c as {c} after 0"),
        "subscribe x".into(),
        "subscribe y".into(),
    ];
    assert_eq!(medium.take(), anew);
    let addresses = vec!["192.0.2.2".parse().expect("an address")];
    assert_eq!(recorder.record().events, [Event::Renewed { endpoint: "test/0".into(), addresses }]);
    assert_eq!((send(&port, a, 6).peers, medium.take()), (1, vec![format!("message 6 of {a}")]));
    assert!(announce(&port, "d") > c);
    port.close();
    assert!(medium.take().contains(&"close".to_owned()));
    let refused = port.send(&Envelope::data(a, 7, 0), b"x");
    assert!(matches!(refused, Err(EngineError::Closed)), "{refused:?}");
    let refused = port.announce(&Announcement::default(), Start::default());
    assert!(matches!(refused, Err(EngineError::Closed)), "{refused:?}");
}

#[test]
fn what_is_published_between_two_ports_reaches_nobody_and_is_counted_on() {
    let (medium, recorder, port) = opened();
    let a = announce(&port, "a");
    send(&port, a, 5);
    *medium.fails.lock() = Some("first reason");
    *medium.choice.lock() = vec![place(2)];
    let failures = |record: &Record| {
        let reason = |event: &Event| match event {
            Event::Unreachable { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        record.events.iter().filter_map(reason).collect::<Vec<_>>()
    };
    until("it cannot be opened", || failures(&recorder.record()).len() == 1);
    medium.take();
    assert_eq!(send(&port, a, 6), Sent::default());
    let b = announce(&port, "b");
    port.subscribe("x");
    assert!(port.flush(Instant::now()) && port.links().is_empty() && medium.take().is_empty());
    *medium.fails.lock() = Some("second reason");
    until("it still cannot be opened", || failures(&recorder.record()).len() == 2);
    *medium.fails.lock() = None;
    until("it is opened anew", || renewals(&recorder.record()) == 1);
    let anew = [
        "open Some([\"192.0.2.2\"])".to_owned(),
        format!("announce a as {a} after 6"),
        format!("announce b as {b} after 0"),
        "subscribe x".into(),
    ];
    assert_eq!(medium.take(), anew);
    let reasons = failures(&recorder.record());
    assert!(reasons[0].contains("first reason") && reasons[1].contains("second reason"), "{reasons:?}");
}

#[test]
fn a_callback_may_close_a_port_that_is_being_opened_anew() {
    let (medium, recorder, port) = opened();
    let closing: Weak<dyn Port> = Arc::downgrade(&port);
    *medium.on_close.lock() = Some(Box::new(move || closing.upgrade().expect("it is there").close()));
    *medium.choice.lock() = vec![place(2)];
    until("the former port is closed", || medium.told.lock().contains(&"close".to_owned()));
    drop(port);
    assert_eq!((medium.take(), renewals(&recorder.record())), (vec!["close".to_owned()], 0));
}

#[test]
fn a_port_whose_addresses_do_not_matter_is_not_watched() {
    let (medium, recorder) = (Arc::new(Medium::default()), Recorder::default());
    let port = open("test/0", Duration::ZERO, Arc::new(recorder), TestOpener(medium.clone())).expect("a port");
    // It is the engine's port.
    assert!(port.announce(&Announcement::default(), Start::default()).is_err());
    assert_eq!(medium.take(), ["open None"]);
}
