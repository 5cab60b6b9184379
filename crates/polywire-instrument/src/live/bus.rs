//! Peers that carry frames by publish and subscribe of their own: one way there, one way back, and the same coder in front as the bare sockets have.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use polywire::Record;

use super::{
    Carrier, PATIENCE, Setup,
    peer::{Arrivals, Ended, Peer, Receivers, Traffic, note, shapes},
    raw::{Coder, HEAD},
};
use crate::{scenario::Place, subject::Subject};

/// A receiver looks so often whether the case is over.
const LOOKS: Duration = Duration::from_millis(200);

/// What the sender says until everybody has answered: a publisher does not know its subscribers.
const HELLO: &[u8] = b"hello";

/// One end of both ways.
pub trait Ends {
    /// Sends a frame on the way out.
    fn send(&mut self, frame: &[u8]) -> Result<(), String>;

    /// Hands over the next frame of the way in; false if none comes in that time.
    fn receive(&mut self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> Result<bool, String>;
}

/// Starts the other end and waits until every subscriber hears. `ends` are the sender's, already there, and `setup` says where.
pub fn connect(
    setup: Setup,
    ends: impl Ends + 'static,
    subject: &Subject,
    place: Place,
) -> Result<(Box<dyn Carrier>, Peer), String> {
    let peer = Peer::start(&setup, place)?;
    let coder = Coder::new(&setup, &subject.shape, &subject.reader)?;
    let mut bus = Bus { ends, coder, subscribers: setup.subscribers };
    bus.greet()?;
    Ok((Box::new(bus), peer))
}

struct Bus<E> {
    ends: E,
    coder: Coder,
    subscribers: usize,
}

impl<E: Ends> Bus<E> {
    /// Each subscriber answers with its number once it hears.
    fn greet(&mut self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        let mut heard = vec![false; self.subscribers];
        while heard.contains(&false) {
            if Instant::now() > until {
                return Err("not every subscriber hears".into());
            }
            self.ends.send(HELLO)?;
            let mut answer = |frame: &[u8]| {
                if let Some(heard) = frame.first().and_then(|number| heard.get_mut(usize::from(*number))) {
                    *heard = true;
                }
            };
            while self.ends.receive(Duration::from_millis(20), &mut answer)? {}
        }
        // Answers to further hellos are on their way.
        thread::sleep(Duration::from_millis(50));
        while self.ends.receive(Duration::from_millis(20), &mut |_| ())? {}
        Ok(())
    }
}

impl<E: Ends> Carrier for Bus<E> {
    fn send(&mut self, record: &Record) -> Result<(), String> {
        self.coder.write(record)?;
        self.ends.send(self.coder.frame())
    }

    fn rounds(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, usize), String> {
        let mut times = Vec::with_capacity(count);
        for record in records.iter().cycle().take(count) {
            let start = Instant::now();
            self.send(record)?;
            for _ in 0..self.subscribers {
                let mut read = Ok(0);
                let coder = &mut self.coder;
                if !self.ends.receive(PATIENCE, &mut |frame| read = coder.read(frame))? {
                    return Err("an echo does not come".into());
                }
                read?;
            }
            times.push(start.elapsed());
        }
        Ok((times, 0))
    }
}

/// Connects all subscribers, a thread each; `ends` makes a subscriber's, by its number, in its thread.
pub fn receive<E: Ends>(
    setup: &Setup,
    ends: impl Fn(&Setup, usize) -> Result<E, String> + Clone + Send + 'static,
) -> Result<Receivers, String> {
    let (writer, reader) = shapes(setup)?;
    let ended = Ended::default();
    let traffic = Arc::<Traffic>::default();
    let mut arrivals = Vec::new();
    for number in 0..setup.subscribers {
        let list = Arrivals::default();
        let receiver = Receiver {
            number: number as u8,
            coder: Coder::new(setup, &writer, &reader)?,
            // Echoes are written as the reader has them.
            back: Coder::new(setup, &reader, &reader)?,
            echo: setup.echo,
            list: list.clone(),
            traffic: traffic.clone(),
            ended: ended.flag(),
        };
        let (setup, ends) = (setup.clone(), ends.clone());
        // One that cannot be opened is one that does not answer, which the sender tells.
        thread::spawn(move || ends(&setup, number).map(|ends| receiver.run(ends)));
        arrivals.push(list);
    }
    Ok(Receivers { arrivals, traffic, _held: vec![Box::new(ended)] })
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
    fn run(mut self, mut ends: impl Ends) {
        let mut answer = Vec::new();
        while !self.ended.load(Ordering::Relaxed) {
            answer.clear();
            let came = ends.receive(LOOKS, &mut |frame| self.take(frame, &mut answer));
            // What cannot be sent or read shows as a message that has not come.
            if came.is_ok() && !answer.is_empty() {
                let _ = ends.send(&answer);
            }
        }
    }

    fn take(&mut self, frame: &[u8], answer: &mut Vec<u8>) {
        if frame == HELLO {
            return answer.push(self.number);
        }
        let Ok(sequence) = self.coder.read(frame) else { return };
        self.traffic.add(frame.len() - HEAD);
        match self.echo {
            false => note(&self.list, sequence),
            true if self.back.write(self.coder.back()).is_ok() => answer.extend_from_slice(self.back.frame()),
            true => {}
        }
    }
}
