//! Throughput of libzmq with PUSH and PULL sockets, for comparison. A full queue blocks the sender,
//! so no message is lost.

use std::{
    thread,
    time::{Duration, Instant},
};

use zmq::{Context, PUB, PULL, PUSH, SUB, Socket, SocketType};

/// Listens, and starts a thread that counts messages and sends an answer after each `turn`
/// messages. Returns the addresses of the flood and of the answers.
pub(super) fn count(turn: u64) -> [String; 2] {
    let context = Context::new();
    let (flood, answers) = (bound(&context, PULL), bound(&context, PUSH));
    let addresses = [&flood, &answers]
        .map(|socket| socket.get_last_endpoint().expect("the socket is bound").expect("the address is UTF-8"));
    thread::spawn(move || {
        let (mut message, mut received) = (zmq::Message::new(), 0u64);
        while flood.recv(&mut message, 0).is_ok() {
            received += 1;
            let number = message.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
            assert_eq!(number, Some(received), "a message is lost or out of order");
            if received.is_multiple_of(turn) {
                answers.send(&received.to_le_bytes()[..], 0).expect("sent");
            }
        }
    });
    addresses
}

fn bound(context: &Context, kind: SocketType) -> Socket {
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
        let context = Context::new();
        let connect = |kind, address: &str| {
            let socket = context.socket(kind).expect("a socket");
            socket.set_rcvtimeo(30_000).expect("the option is valid");
            socket.connect(address).expect("the other end listens");
            socket
        };
        Flood { flood: connect(PUSH, flood), answers: connect(PULL, answers), message: vec![7; size], number: 0 }
    }

    /// Sends `messages` messages, and returns the time until the answer to the last one.
    pub(super) fn turn(&mut self, messages: u64) -> Duration {
        let start = Instant::now();
        for _ in 0..messages {
            self.number += 1;
            self.message[..8].copy_from_slice(&self.number.to_le_bytes());
            self.flood.send(&self.message[..], 0).expect("sent");
        }
        let answer = self.answers.recv_bytes(0).expect("no message is lost");
        assert_eq!(answer, self.number.to_le_bytes());
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
        let context = Context::new();
        let socket = |kind| {
            let socket = unbounded(&context, kind);
            socket.bind("tcp://127.0.0.1:*").expect("a free port");
            socket
        };
        Fan { out: socket(PUB), answers: socket(PULL), receivers: 0, message: vec![7; size], number: 0 }
    }

    pub(super) fn addresses(&self) -> [String; 2] {
        [&self.out, &self.answers]
            .map(|socket| socket.get_last_endpoint().expect("the socket is bound").expect("the address is UTF-8"))
    }

    /// Sends the number 0 until so many receivers have answered it at once.
    pub(super) fn meet(&mut self, receivers: usize) {
        self.receivers = receivers;
        self.answers.set_rcvtimeo(500).expect("the option is valid");
        let answered = |_| {
            self.message[..8].copy_from_slice(&[0; 8]);
            self.out.send(&self.message[..], 0).expect("sent");
            (0..receivers).map_while(|_| self.answers.recv_bytes(0).ok()).count() == receivers
        };
        assert!((0..60).any(answered), "not every receiver answers");
        while self.answers.recv_bytes(0).is_ok() {}
        self.answers.set_rcvtimeo(30_000).expect("the option is valid");
    }

    /// Sends `messages` messages, and returns the time until the last receiver's answer.
    pub(super) fn turn(&mut self, messages: u64) -> Duration {
        let start = Instant::now();
        for _ in 0..messages {
            self.number += 1;
            self.message[..8].copy_from_slice(&self.number.to_le_bytes());
            self.out.send(&self.message[..], 0).expect("sent");
        }
        for _ in 0..self.receivers {
            let answer = self.answers.recv_bytes(0).expect("no message is lost");
            assert_eq!(answer, self.number.to_le_bytes());
        }
        start.elapsed()
    }
}

/// Starts receivers at the two addresses of a [`Fan`], each with a connection and a thread of its
/// own, which counts messages and answers after each `turn` messages.
pub(super) fn subscribe(addresses: &[&str], turn: u64, receivers: usize) {
    let [out, answers] = addresses else { panic!("the parent gives two addresses") };
    for _ in 0..receivers {
        let context = Context::new();
        let (from, to) = (unbounded(&context, SUB), unbounded(&context, PUSH));
        from.set_subscribe(b"").expect("the option is valid");
        from.connect(out).expect("the parent listens");
        to.connect(answers).expect("the parent listens");
        thread::spawn(move || {
            let (mut message, mut received) = (zmq::Message::new(), 0u64);
            while from.recv(&mut message, 0).is_ok() {
                let number = message.get(..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
                assert!(number == 0 || number == received + 1, "a message is lost or out of order");
                received = number;
                if received.is_multiple_of(turn) {
                    to.send(&received.to_le_bytes()[..], 0).expect("sent");
                }
            }
        });
    }
}

/// A socket whose queues have no bound, so that PUB drops nothing.
fn unbounded(context: &Context, kind: SocketType) -> Socket {
    let socket = context.socket(kind).expect("a socket");
    socket.set_sndhwm(0).expect("the option is valid");
    socket.set_rcvhwm(0).expect("the option is valid");
    socket
}
