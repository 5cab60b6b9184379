//! Bare sockets: a blocking thread a connection, `TCP_NODELAY`, one write a message. In front of each payload are its length (streams alone), its sequence
//! number, and what it refers to.

use std::{
    env,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::net::{UnixListener, UnixStream},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use polywire::{Record, Shape};

use super::{
    Carrier, PATIENCE, Setup,
    peer::{Arrivals, Ended, Peer, Receivers, Traffic, note, shapes},
};
use crate::{
    coding::{Coding, Reading, Writing},
    scenario::Place,
    subject::Subject,
};

/// Length, sequence number, anchor.
pub const HEAD: usize = 4 + 8 + 8;

/// Bytes of the largest payload that is taken.
const LARGEST: usize = 64 << 20;

/// An echo of a datagram that has not come by then is lost.
const LOST: Duration = Duration::from_millis(200);

/// Bytes that a datagram may have.
const DATAGRAM: usize = 65_507;

/// Listens here, starts the other end and waits for it.
pub fn connect(mut setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    let text = |error: io::Error| error.to_string();
    let listener = Listener::bind(&setup.engine).map_err(text)?;
    setup.address = listener.address().map_err(text)?;
    let coder = Coder::new(&setup, &subject.shape, &subject.reader)?;
    // In this process the other end connects while we accept.
    let (peer, links) = thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept(setup.subscribers));
        let peer = Peer::start(&setup, place);
        (peer, accepting.join())
    });
    let links = links.map_err(|_| "accepting panicked".to_owned())?.map_err(text)?;
    Ok((Box::new(Raw { links, coder }), peer?))
}

/// Messages, and their bytes with what stands in front.
pub struct Coder {
    coding: Coding,
    writing: Writing,
    reading: Reading,
    message: Vec<u8>,
    frame: Vec<u8>,
    back: Record,
}

impl Coder {
    pub fn new(setup: &Setup, writer: &Arc<Shape>, reader: &Arc<Shape>) -> Result<Coder, String> {
        let folder = env::current_dir().unwrap_or_default();
        let coding =
            Coding::new(&setup.codec, &setup.compressor, writer, reader, &folder).map_err(|error| error.to_string())?;
        let (writing, reading) = (coding.writing(), coding.reading());
        let back = Record::new(reader);
        Ok(Coder { coding, writing, reading, message: Vec::new(), frame: Vec::new(), back })
    }

    /// Puts a message into [`Coder::frame`].
    pub fn write(&mut self, record: &Record) -> Result<(), String> {
        self.message.clear();
        let anchor = self.coding.encode(&mut self.writing, record, &mut self.message).map_err(|e| e.to_string())?;
        self.frame.clear();
        self.frame.resize(HEAD, 0);
        self.coding.pack(&self.message, &mut self.frame);
        let length = u32::try_from(self.frame.len() - HEAD).map_err(|_| "the message is too large".to_owned())?;
        self.frame[..4].copy_from_slice(&length.to_le_bytes());
        self.frame[4..12].copy_from_slice(&self.writing.sequence().to_le_bytes());
        self.frame[12..20].copy_from_slice(&anchor.unwrap_or(0).to_le_bytes());
        Ok(())
    }

    /// What is to be sent.
    #[cfg(feature = "peers")]
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// What was read last.
    #[cfg(feature = "peers")]
    pub fn back(&self) -> &Record {
        &self.back
    }

    /// Reads the message of a frame, and gives its number.
    pub fn read(&mut self, frame: &[u8]) -> Result<u64, String> {
        let (head, payload) = frame.split_at_checked(HEAD).ok_or("a frame is too short")?;
        let number = |at: usize| head.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let (sequence, anchor) = (number(4), number(12));
        let bytes = self.coding.unpack(payload).map_err(|error| error.to_string())?;
        self.message.clear();
        self.message.extend_from_slice(bytes);
        let anchor = (anchor != 0).then_some(anchor);
        self.coding
            .decode(&mut self.reading, sequence, anchor, &self.message, &mut self.back)
            .map_err(|error| error.to_string())?;
        Ok(sequence)
    }
}

/// What accepts.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, std::path::PathBuf),
    Udp(UdpSocket),
}

impl Listener {
    fn bind(engine: &str) -> io::Result<Listener> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Ok(match engine {
            "raw-tcp" => Listener::Tcp(TcpListener::bind("127.0.0.1:0")?),
            "raw-unix" => {
                let name = format!("polywire-raw-{}-{}.sock", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
                let path = env::temp_dir().join(name);
                Listener::Unix(UnixListener::bind(&path)?, path)
            }
            _ => Listener::Udp(UdpSocket::bind("127.0.0.1:0")?),
        })
    }

    fn address(&self) -> io::Result<String> {
        Ok(match self {
            Listener::Tcp(listener) => listener.local_addr()?.to_string(),
            Listener::Unix(_, path) => path.display().to_string(),
            Listener::Udp(socket) => socket.local_addr()?.to_string(),
        })
    }

    fn accept(&self, count: usize) -> io::Result<Links> {
        let streams = |accept: &dyn Fn() -> io::Result<Box<dyn Link>>| {
            let until = Instant::now() + PATIENCE;
            let mut links: Vec<Box<dyn Link>> = Vec::new();
            while links.len() < count {
                match accept() {
                    Ok(link) => links.push(link),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                        thread::sleep(Duration::from_millis(1));
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(Links::Streams(links))
        };
        match self {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                streams(&|| Ok(Box::new(tuned(listener.accept()?.0)?)))
            }
            Listener::Unix(listener, _) => {
                listener.set_nonblocking(true)?;
                streams(&|| {
                    let stream = listener.accept()?.0;
                    stream.set_nonblocking(false)?;
                    Ok(Box::new(stream))
                })
            }
            Listener::Udp(socket) => greeted(socket, count),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Where it has gone already there is nothing to do.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Receivers of datagrams say where they are.
fn greeted(socket: &UdpSocket, count: usize) -> io::Result<Links> {
    let socket = socket.try_clone()?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut peers: Vec<SocketAddr> = Vec::new();
    while peers.len() < count {
        let (_, from) = socket.recv_from(&mut [0; 8])?;
        if !peers.contains(&from) {
            peers.push(from);
        }
    }
    socket.set_read_timeout(Some(LOST))?;
    Ok(Links::Datagrams(socket, peers))
}

fn tuned(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

trait Link: Read + Write + Send {}
impl<T: Read + Write + Send> Link for T {}

enum Links {
    Streams(Vec<Box<dyn Link>>),
    Datagrams(UdpSocket, Vec<SocketAddr>),
}

struct Raw {
    links: Links,
    coder: Coder,
}

impl Raw {
    /// Echoes of the last message that came.
    fn echoes(&mut self, sequence: u64) -> Result<usize, String> {
        let mut came = 0;
        let mut frame = Vec::new();
        match &mut self.links {
            Links::Streams(links) => {
                for link in links {
                    read_frame(link, &mut frame).map_err(|error| error.to_string())?;
                    came += usize::from(self.coder.read(&frame)? == sequence);
                }
            }
            Links::Datagrams(socket, peers) => {
                frame.resize(DATAGRAM, 0);
                while came < peers.len() {
                    // Silence means that the rest is lost.
                    let Ok(len) = socket.recv(&mut frame) else { break };
                    came += usize::from(self.coder.read(&frame[..len])? == sequence);
                }
            }
        }
        Ok(came)
    }
}

impl Carrier for Raw {
    fn send(&mut self, record: &Record) -> Result<(), String> {
        self.coder.write(record)?;
        let frame = &self.coder.frame;
        let sent = match &mut self.links {
            Links::Streams(links) => links.iter_mut().try_for_each(|link| link.write_all(frame)),
            Links::Datagrams(..) if frame.len() > DATAGRAM => return Err("it is longer than a datagram".into()),
            Links::Datagrams(socket, peers) => peers.iter().try_for_each(|peer| socket.send_to(frame, peer).map(drop)),
        };
        sent.map_err(|error| error.to_string())
    }

    fn rounds(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, usize), String> {
        let (mut times, mut lost) = (Vec::with_capacity(count), 0);
        let expected = match &self.links {
            Links::Streams(links) => links.len(),
            Links::Datagrams(_, peers) => peers.len(),
        };
        for record in records.iter().cycle().take(count) {
            let start = Instant::now();
            self.send(record)?;
            let came = self.echoes(self.coder.writing.sequence())?;
            match came == expected {
                true => times.push(start.elapsed()),
                false => lost += expected - came,
            }
        }
        Ok((times, lost))
    }
}

/// Connects all subscribers.
pub fn receive(setup: &Setup) -> Result<Receivers, String> {
    let (writer, reader) = shapes(setup)?;
    let mut arrivals = Vec::new();
    let ended = Ended::default();
    let traffic = Arc::<Traffic>::default();
    for _ in 0..setup.subscribers {
        let list = Arrivals::default();
        let receiver = Receiver {
            coder: Coder::new(setup, &writer, &reader)?,
            // Echoes are written as the reader has them.
            back: Coder::new(setup, &reader, &reader)?,
            echo: setup.echo,
            list: list.clone(),
            traffic: traffic.clone(),
            ended: ended.flag(),
        };
        receiver.start(&setup.engine, &setup.address).map_err(|error| error.to_string())?;
        arrivals.push(list);
    }
    Ok(Receivers { arrivals, traffic, _held: vec![Box::new(ended)] })
}

struct Receiver {
    coder: Coder,
    back: Coder,
    echo: bool,
    list: Arrivals,
    traffic: Arc<Traffic>,
    ended: Arc<AtomicBool>,
}

impl Receiver {
    fn start(self, engine: &str, address: &str) -> io::Result<()> {
        match engine {
            "raw-tcp" => {
                let stream = tuned(TcpStream::connect(address)?)?;
                thread::spawn(move || self.read_all(stream));
            }
            "raw-unix" => {
                let stream = UnixStream::connect(address)?;
                thread::spawn(move || self.read_all(stream));
            }
            _ => {
                let socket = UdpSocket::bind("127.0.0.1:0")?;
                socket.connect(address)?;
                socket.set_read_timeout(Some(LOST))?;
                socket.send(b"hello")?;
                thread::spawn(move || self.receive_all(&socket));
            }
        }
        Ok(())
    }

    /// Until the sender goes.
    fn read_all(mut self, mut stream: impl Link) {
        let mut frame = Vec::new();
        while read_frame(&mut stream, &mut frame).is_ok() {
            let answer = self.take(&frame);
            if let Some(answer) = answer
                && stream.write_all(answer).is_err()
            {
                return;
            }
        }
    }

    fn receive_all(mut self, socket: &UdpSocket) {
        let mut frame = vec![0; DATAGRAM];
        while !self.ended.load(Ordering::Relaxed) {
            let Ok(len) = socket.recv(&mut frame) else { continue };
            if let Some(answer) = self.take(&frame[..len]) {
                // What cannot be sent is an echo that is lost.
                let _ = socket.send(answer);
            }
        }
    }

    /// The echo, where one is wanted. What cannot be read counts as not having come.
    fn take(&mut self, frame: &[u8]) -> Option<&[u8]> {
        let sequence = self.coder.read(frame).ok()?;
        self.traffic.add(frame.len() - HEAD);
        if !self.echo {
            note(&self.list, sequence);
            return None;
        }
        self.back.write(&self.coder.back).ok()?;
        self.back.frame[4..12].copy_from_slice(&sequence.to_le_bytes());
        Some(&self.back.frame)
    }
}

fn read_frame(stream: &mut impl Read, frame: &mut Vec<u8>) -> io::Result<()> {
    let mut head = [0; HEAD];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if length > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the payload is too large"));
    }
    frame.clear();
    frame.extend_from_slice(&head);
    frame.resize(HEAD + length, 0);
    stream.read_exact(&mut frame[HEAD..])
}
