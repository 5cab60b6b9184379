//! Carries frames over another library's publish/subscribe, with one channel in each direction. The
//! file of a library without callbacks (`zeromq`, `iceoryx2`) implements [`Ends`] and calls
//! [`connect`]; `callbacks` is for the others. The frames are those of bare sockets.

use std::{
    thread,
    time::{Duration, Instant},
};

use polywire::Record;

use super::{
    carrier::Carrier,
    clock::PATIENCE,
    frame::{Receiver, Sender},
    peer::{Peer, Receive},
    receivers::Receivers,
    setup::Setup,
};
use crate::{scenario::Place, subject::Subject};

/// The sender's greeting, which it repeats until every subscriber has answered: a publisher does
/// not know its subscribers.
const HELLO: &[u8] = b"hello";

/// The sender's message at the end of a turn.
const REST: &[u8] = b"rest";

/// One end of the two channels.
pub trait Ends {
    /// The end polls for messages and keeps a core busy.
    const POLLS: bool = false;

    /// Sends a frame on the outgoing channel.
    fn send(&mut self, frame: &[u8]) -> Result<(), String>;

    /// Passes the next incoming frame to `take`; false if none arrives within `patience`.
    fn receive(&mut self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> Result<bool, String>;
}

/// Starts the other end and waits until every subscriber receives. `ends` are the sender's and
/// already open; `setup` has their address.
pub fn connect(
    setup: Setup,
    ends: impl Ends + 'static,
    subject: &Subject,
    place: Place,
    receive: Receive,
) -> Result<(Box<dyn Carrier>, Peer), String> {
    let peer = Peer::start(&setup, place, receive)?;
    let sender = Sender::new(&setup, subject)?;
    let mut bus = Bus { ends, sender, subscribers: setup.subscribers };
    greet(&mut bus.ends, bus.subscribers)?;
    Ok((Box::new(bus), peer))
}

/// Sends greetings until each subscriber has answered with its number.
pub fn greet(ends: &mut impl Ends, subscribers: usize) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    let mut heard = vec![false; subscribers];
    while heard.contains(&false) {
        if Instant::now() > until {
            return Err("not every subscriber answers".into());
        }
        ends.send(HELLO)?;
        let mut answer = |frame: &[u8]| {
            let number = <[u8; 4]>::try_from(frame).ok().map(u32::from_le_bytes);
            if let Some(heard) = number.and_then(|number| heard.get_mut(number as usize)) {
                *heard = true;
            }
        };
        while ends.receive(Duration::from_millis(20), &mut answer)? {}
    }
    // Answers to further greetings may still arrive.
    thread::sleep(Duration::from_millis(50));
    while ends.receive(Duration::from_millis(20), &mut |_| ())? {}
    Ok(())
}

struct Bus<E> {
    ends: E,
    sender: Sender,
    subscribers: usize,
}

impl<E: Ends> Carrier for Bus<E> {
    fn send(&mut self, record: &Record) -> Result<(), String> {
        self.ends.send(self.sender.write(record)?)
    }

    fn rounds(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, usize), String> {
        let mut times = Vec::with_capacity(count);
        for record in records.iter().cycle().take(count) {
            let start = Instant::now();
            self.send(record)?;
            let mut came = 0;
            while came < self.subscribers {
                let (mut is_echo, sender) = (Ok(false), &mut self.sender);
                if !self.ends.receive(PATIENCE, &mut |frame| is_echo = sender.is_echo(frame))? {
                    return Err("an echo did not arrive".into());
                }
                came += usize::from(is_echo?);
            }
            times.push(start.elapsed());
        }
        Ok((times, 0))
    }

    fn wake(&mut self) -> Result<(), String> {
        if E::POLLS { greet(&mut self.ends, self.subscribers) } else { Ok(()) }
    }

    fn rest(&mut self) -> Result<(), String> {
        if E::POLLS { self.ends.send(REST) } else { Ok(()) }
    }
}

/// A receiver that also answers greetings.
pub struct Subscriber {
    receiver: Receiver,
    number: [u8; 4],
    rests: bool,
}

impl Subscriber {
    /// The subscribers of a setup, and their shared results.
    pub fn all(setup: &Setup) -> Result<(Vec<Subscriber>, Receivers), String> {
        let (all, receivers) = Receiver::all(setup)?;
        let subscriber =
            |(receiver, number): (Receiver, u32)| Subscriber { receiver, number: number.to_le_bytes(), rests: true };
        Ok((all.into_iter().zip(0..).map(subscriber).collect(), receivers))
    }

    /// True when the case is over.
    #[allow(dead_code, reason = "engines with callbacks do not call it")]
    pub fn is_over(&self) -> bool {
        self.receiver.is_over()
    }

    /// True while another case is being measured, so that this subscriber is idle.
    #[allow(dead_code, reason = "engines with callbacks do not call it")]
    pub fn rests(&self) -> bool {
        self.rests
    }

    /// The frame to send back, if any.
    pub fn take(&mut self, frame: &[u8]) -> Option<&[u8]> {
        self.rests = frame == REST;
        match frame {
            HELLO => Some(&self.number),
            REST => None,
            frame => self.receiver.take(frame),
        }
    }
}
