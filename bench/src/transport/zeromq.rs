//! Throughput of libzmq with PUSH and PULL sockets, for comparison. A full queue blocks the sender,
//! so no message is lost.

use std::{
    thread,
    time::{Duration, Instant},
};

use polywire_zeromq::{Context, Kind, Message, Socket, Wait};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Listens, and starts a thread that counts messages and sends an answer after each `turn`
/// messages. Returns the addresses of the flood and of the answers.
pub(super) fn count(turn: u64) -> [String; 2] {
    let context = Context::new().expect("a context");
    let (flood, answers) = (bound(&context, Kind::Pull), bound(&context, Kind::Push));
    let addresses = [&flood, &answers].map(|socket| socket.last_endpoint().expect("the socket is bound"));
    thread::spawn(move || {
        let (mut message, mut received) = (Message::new(), 0u64);
        while flood.receive(&mut message, Wait::Forever).is_ok() {
            received += 1;
            let number = message.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
            assert_eq!(number, Some(received), "a message is lost or out of order");
            if received.is_multiple_of(turn) {
                answers.send(&[&received.to_le_bytes()], Wait::Forever).expect("sent");
            }
        }
    });
    addresses
}

fn bound(context: &Context, kind: Kind) -> Socket {
    let socket = context.socket(kind).expect("a socket");
    socket.bind("tcp://127.0.0.1:*").expect("a free port");
    socket
}

/// The parent's end of [`count`].
pub(super) struct Flood {
    flood: Socket,
    answers: Socket,
    message: Vec<u8>,
    number: u64,
}

impl Flood {
    pub(super) fn connect(flood: &str, answers: &str, size: usize) -> Flood {
        let context = Context::new().expect("a context");
        let connect = |kind, address: &str| {
            let socket = context.socket(kind).expect("a socket");
            socket.connect(address).expect("the other end listens");
            socket
        };
        Flood {
            flood: connect(Kind::Push, flood),
            answers: connect(Kind::Pull, answers),
            message: vec![7; size],
            number: 0,
        }
    }

    /// Sends `messages` messages, and returns the time until the answer to the last one.
    pub(super) fn turn(&mut self, messages: u64) -> Duration {
        let start = Instant::now();
        for _ in 0..messages {
            self.number += 1;
            self.message[..8].copy_from_slice(&self.number.to_le_bytes());
            self.flood.send(&[&self.message], Wait::Forever).expect("sent");
        }
        assert_eq!(received(&self.answers, PATIENCE), Some(self.number), "no message is lost");
        start.elapsed()
    }
}

/// The parent's end of [`subscribe`]: PUB for the messages, PULL for the answers.
pub(super) struct Fan {
    out: Socket,
    answers: Socket,
    receivers: usize,
    message: Vec<u8>,
    number: u64,
}

impl Fan {
    pub(super) fn listen(size: usize) -> Fan {
        let context = Context::new().expect("a context");
        let socket = |kind| {
            let socket = unbounded(&context, kind);
            socket.bind("tcp://127.0.0.1:*").expect("a free port");
            socket
        };
        Fan { out: socket(Kind::Pub), answers: socket(Kind::Pull), receivers: 0, message: vec![7; size], number: 0 }
    }

    pub(super) fn addresses(&self) -> [String; 2] {
        [&self.out, &self.answers].map(|socket| socket.last_endpoint().expect("the socket is bound"))
    }

    /// Sends the number 0 until so many receivers have answered it at once.
    pub(super) fn meet(&mut self, receivers: usize) {
        self.receivers = receivers;
        const TURN: Duration = Duration::from_millis(500);
        let answered = |_| {
            self.message[..8].copy_from_slice(&[0; 8]);
            self.out.send(&[&self.message], Wait::Forever).expect("sent");
            (0..receivers).map_while(|_| received(&self.answers, TURN)).count() == receivers
        };
        assert!((0..60).any(answered), "not every receiver answers");
        while received(&self.answers, TURN).is_some() {}
    }

    /// Sends `messages` messages, and returns the time until the last receiver's answer.
    pub(super) fn turn(&mut self, messages: u64) -> Duration {
        let start = Instant::now();
        for _ in 0..messages {
            self.number += 1;
            self.message[..8].copy_from_slice(&self.number.to_le_bytes());
            self.out.send(&[&self.message], Wait::Forever).expect("sent");
        }
        for _ in 0..self.receivers {
            assert_eq!(received(&self.answers, PATIENCE), Some(self.number), "no message is lost");
        }
        start.elapsed()
    }
}

/// Starts receivers at the two addresses of a [`Fan`], each with a connection and a thread of its
/// own, which counts messages and answers after each `turn` messages.
pub(super) fn subscribe(addresses: &[&str], turn: u64, receivers: usize) {
    let [out, answers] = addresses else { panic!("the parent gives two addresses") };
    for _ in 0..receivers {
        let context = Context::new().expect("a context");
        let (from, to) = (unbounded(&context, Kind::Sub), unbounded(&context, Kind::Push));
        from.subscribe(b"").expect("the option is valid");
        from.connect(out).expect("the parent listens");
        to.connect(answers).expect("the parent listens");
        thread::spawn(move || {
            let (mut message, mut received) = (Message::new(), 0u64);
            while from.receive(&mut message, Wait::Forever).is_ok() {
                let number = message.get(..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
                assert!(number == 0 || number == received + 1, "a message is lost or out of order");
                received = number;
                if received.is_multiple_of(turn) {
                    to.send(&[&received.to_le_bytes()], Wait::Forever).expect("sent");
                }
            }
        });
    }
}

/// A socket whose queues have no bound, so that PUB drops nothing.
fn unbounded(context: &Context, kind: Kind) -> Socket {
    let socket = context.socket(kind).expect("a socket");
    socket.set_high_water_mark(0).expect("the option is valid");
    socket
}

/// The number in the next message, if one comes in time.
fn received(socket: &Socket, wait: Duration) -> Option<u64> {
    let mut message = Message::new();
    let has_come = socket.receive(&mut message, Wait::Most(wait)).expect("the socket is connected");
    has_come.then(|| u64::from_le_bytes(message[..].try_into().expect("a number")))
}
