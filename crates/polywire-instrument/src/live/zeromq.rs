//! libzmq: PUB to SUB, echoes by PUSH to PULL; no limit on its queues, so that nothing is dropped.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use polywire::Record;
use zmq::{Context, PUB, PULL, PUSH, SUB, Socket, SocketType};

use super::{
    Carrier, PATIENCE, Setup,
    peer::{Arrivals, Peer, Receivers, Traffic, note, shapes},
    raw::{Coder, HEAD},
};
use crate::{scenario::Place, subject::Subject};

/// A receiver looks so often whether the case is over, in milliseconds.
const LOOKS: i32 = 200;

/// What the sender says until everybody has answered: a publisher does not know its subscribers.
const HELLO: &[u8] = b"hello";

/// Binds here, starts the other end and waits until every subscriber hears.
pub fn connect(mut setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    let context = Context::new();
    let (there, back) = (bound(&context, PUB)?, bound(&context, PULL)?);
    let address = |socket: &Socket| socket.get_last_endpoint().map_err(told)?.map_err(|_| "no text".to_owned());
    setup.address = format!("{} {}", address(&there)?, address(&back)?);
    let peer = Peer::start(&setup, place)?;
    let carrier = Zeromq {
        there,
        back,
        coder: Coder::new(&setup, &subject.shape, &subject.reader)?,
        subscribers: setup.subscribers,
    };
    carrier.greet()?;
    Ok((Box::new(carrier), peer))
}

fn told(error: zmq::Error) -> String {
    error.to_string()
}

fn socket(context: &Context, kind: SocketType) -> Result<Socket, String> {
    let socket = context.socket(kind).map_err(told)?;
    socket.set_linger(0).map_err(told)?;
    socket.set_sndhwm(0).map_err(told)?;
    socket.set_rcvhwm(0).map_err(told)?;
    Ok(socket)
}

fn bound(context: &Context, kind: SocketType) -> Result<Socket, String> {
    let socket = socket(context, kind)?;
    socket.bind("tcp://127.0.0.1:*").map_err(told)?;
    Ok(socket)
}

struct Zeromq {
    there: Socket,
    back: Socket,
    coder: Coder,
    subscribers: usize,
}

impl Zeromq {
    /// Each subscriber answers with its number once it hears.
    fn greet(&self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        let mut heard = vec![false; self.subscribers];
        self.back.set_rcvtimeo(20).map_err(told)?;
        while heard.contains(&false) {
            if Instant::now() > until {
                return Err("not every subscriber hears".into());
            }
            self.there.send(HELLO, 0).map_err(told)?;
            while let Ok(answer) = self.back.recv_bytes(0) {
                if let Some(heard) = answer.first().and_then(|number| heard.get_mut(usize::from(*number))) {
                    *heard = true;
                }
            }
        }
        // Answers to further hellos are on their way.
        thread::sleep(Duration::from_millis(50));
        while self.back.recv_bytes(0).is_ok() {}
        self.back.set_rcvtimeo(PATIENCE.as_millis() as i32).map_err(told)
    }
}

impl Carrier for Zeromq {
    fn send(&mut self, record: &Record) -> Result<(), String> {
        self.coder.write(record)?;
        self.there.send(self.coder.frame(), 0).map_err(told)
    }

    fn rounds(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, usize), String> {
        let mut times = Vec::with_capacity(count);
        let mut frame = zmq::Message::new();
        for record in records.iter().cycle().take(count) {
            let start = Instant::now();
            self.send(record)?;
            for _ in 0..self.subscribers {
                self.back.recv(&mut frame, 0).map_err(told)?;
                self.coder.read(&frame)?;
            }
            times.push(start.elapsed());
        }
        Ok((times, 0))
    }
}

/// Connects all subscribers, a thread each.
pub fn receive(setup: &Setup) -> Result<Receivers, String> {
    let (writer, reader) = shapes(setup)?;
    let (there, back) = setup.address.split_once(' ').ok_or("two addresses are expected")?;
    let ended = Arc::new(AtomicBool::new(false));
    let mut arrivals = Vec::new();
    let traffic = Arc::<Traffic>::default();
    for number in 0..setup.subscribers {
        let context = Context::new();
        let (incoming, outgoing) = (socket(&context, SUB)?, socket(&context, PUSH)?);
        incoming.set_rcvtimeo(LOOKS).map_err(told)?;
        incoming.set_subscribe(b"").map_err(told)?;
        incoming.connect(there).map_err(told)?;
        outgoing.connect(back).map_err(told)?;
        let list = Arrivals::default();
        let receiver = Receiver {
            number: number as u8,
            coder: Coder::new(setup, &writer, &reader)?,
            back: Coder::new(setup, &reader, &reader)?,
            echo: setup.echo,
            list: list.clone(),
            traffic: traffic.clone(),
            ended: ended.clone(),
        };
        thread::spawn(move || receiver.run(&incoming, &outgoing));
        arrivals.push(list);
    }
    Ok(Receivers { arrivals, traffic, _held: vec![Box::new(Ended(ended))] })
}

/// Tells the threads when the case is over.
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Receiver {
    number: u8,
    coder: Coder,
    back: Coder,
    echo: bool,
    list: Arrivals,
    traffic: Arc<Traffic>,
    ended: Arc<AtomicBool>,
}

impl Receiver {
    fn run(mut self, incoming: &Socket, outgoing: &Socket) {
        let mut frame = zmq::Message::new();
        while !self.ended.load(Ordering::Relaxed) {
            if incoming.recv(&mut frame, 0).is_err() {
                continue;
            }
            // What cannot be sent or read shows as a message that has not come.
            if &frame[..] == HELLO {
                let _ = outgoing.send(&[self.number][..], 0);
                continue;
            }
            let Ok(sequence) = self.coder.read(&frame) else { continue };
            self.traffic.add(frame.len() - HEAD);
            match self.echo {
                false => note(&self.list, sequence),
                true if self.back.write(self.coder.back()).is_ok() => _ = outgoing.send(self.back.frame(), 0),
                true => {}
            }
        }
    }
}
