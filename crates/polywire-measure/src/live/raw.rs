//! Live measurements of bare sockets (TCP, Unix, UDP). Each receiver has a blocking thread; a
//! message is one write to each receiver. TCP has `TCP_NODELAY`.

use std::{
    env,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::net::{UnixListener, UnixStream},
    process,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use polywire::Record;

use super::{
    carrier::Carrier,
    clock::PATIENCE,
    frame::{HEAD, Receiver, Sender, payload_length},
    peer::Peer,
    receivers::Receivers,
    setup::Setup,
};
use crate::{scenario::Place, subject::Subject};

/// An echo of a datagram that has not arrived after this time is lost.
const LOST: Duration = Duration::from_secs(1);

/// How often a receiver of datagrams checks whether the case is over.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Maximum bytes of a datagram.
const DATAGRAM: usize = 65_507;

/// Listens here, starts the other end and waits for it.
pub fn connect(mut setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    let text = |error: io::Error| error.to_string();
    let listener = Listener::bind(&setup.engine).map_err(text)?;
    setup.address = listener.address().map_err(text)?;
    let sender = Sender::new(&setup, subject)?;
    // The other end may run in this process: it connects while another thread accepts.
    let (peer, links) = thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept(setup.subscribers));
        let peer = Peer::start(&setup, place, receive);
        (peer, accepting.join())
    });
    let links = links.map_err(|_| "accepting panicked".to_owned())?.map_err(text)?;
    Ok((Box::new(Raw { links, sender }), peer?))
}

/// The sender's socket, to which receivers connect.
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
            // An error means that the file is already gone.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Waits until this many receivers of datagrams have announced their addresses.
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
    sender: Sender,
}

impl Raw {
    /// Waits for the echoes of the last message. Returns how many arrived.
    fn echoes(&mut self) -> Result<usize, String> {
        let mut came = 0;
        let mut frame = Vec::new();
        match &mut self.links {
            Links::Streams(links) => {
                for link in links {
                    read_frame(link, &mut frame).map_err(|error| error.to_string())?;
                    came += usize::from(self.sender.is_echo(&frame)?);
                }
            }
            Links::Datagrams(socket, peers) => {
                frame.resize(DATAGRAM, 0);
                while came < peers.len() {
                    // After a silence the rest counts as lost.
                    let Ok(len) = socket.recv(&mut frame) else { break };
                    came += usize::from(self.sender.is_echo(&frame[..len]).unwrap_or(false));
                }
            }
        }
        Ok(came)
    }
}

impl Carrier for Raw {
    fn send(&mut self, record: &Record) -> Result<(), String> {
        let frame = self.sender.write(record)?;
        let sent = match &mut self.links {
            Links::Streams(links) => links.iter_mut().try_for_each(|link| link.write_all(frame)),
            Links::Datagrams(..) if frame.len() > DATAGRAM => return Err("the frame exceeds a datagram".into()),
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
            let came = self.echoes()?;
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
    let (all, receivers) = Receiver::all(setup)?;
    for receiver in all {
        start(receiver, &setup.engine, &setup.address).map_err(|error| error.to_string())?;
    }
    Ok(receivers)
}

fn start(receiver: Receiver, engine: &str, address: &str) -> io::Result<()> {
    match engine {
        "raw-tcp" => {
            let stream = tuned(TcpStream::connect(address)?)?;
            thread::spawn(move || read_all(receiver, stream));
        }
        "raw-unix" => {
            let stream = UnixStream::connect(address)?;
            thread::spawn(move || read_all(receiver, stream));
        }
        _ => {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.connect(address)?;
            socket.set_read_timeout(Some(LOOK_EVERY))?;
            socket.send(b"hello")?;
            thread::spawn(move || receive_all(receiver, &socket));
        }
    }
    Ok(())
}

/// Runs until the sender closes.
fn read_all(mut receiver: Receiver, mut stream: impl Link) {
    let mut frame = Vec::new();
    while read_frame(&mut stream, &mut frame).is_ok() {
        if let Some(echo) = receiver.take(&frame)
            && stream.write_all(echo).is_err()
        {
            return;
        }
    }
}

fn receive_all(mut receiver: Receiver, socket: &UdpSocket) {
    let mut frame = vec![0; DATAGRAM];
    while !receiver.is_over() {
        let Ok(len) = socket.recv(&mut frame) else { continue };
        if let Some(echo) = receiver.take(&frame[..len]) {
            // A failure to send shows as a lost echo.
            let _ = socket.send(echo);
        }
    }
}

fn read_frame(stream: &mut impl Read, frame: &mut Vec<u8>) -> io::Result<()> {
    let mut head = [0; HEAD];
    stream.read_exact(&mut head)?;
    let too_large = || io::Error::new(io::ErrorKind::InvalidData, "the payload is too large");
    let length = payload_length(&head).ok_or_else(too_large)?;
    frame.clear();
    frame.extend_from_slice(&head);
    frame.resize(HEAD + length, 0);
    stream.read_exact(&mut frame[HEAD..])
}
