//! The lower bounds: blocking sockets that carry fixed bytes, without Polywire.

use std::{
    env, fs, io,
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::net::{UnixListener, UnixStream},
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use super::{Family, child::Identity};

/// A connected socket.
pub(super) trait Wire: Send {
    /// Sends all bytes.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Fills the buffer.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()>;
    /// Receives what is there, at least a byte.
    fn receive_some(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
}

impl<T: Read + Write + Send> Wire for T {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)?;
        self.flush()
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact(buffer)
    }

    fn receive_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer)
    }
}

/// A socket of datagrams; one carries all bytes of a call.
struct Datagrams(UdpSocket);

impl Wire for Datagrams {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.send(bytes).map(drop)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.receive_some(buffer).map(drop)
    }

    fn receive_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buffer)
    }
}

/// A listening socket and its address.
pub(super) struct Listening {
    family: Family,
    socket: Socket,
    pub address: String,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
    Udp(UdpSocket),
}

impl Listening {
    pub(super) fn open(family: Family) -> Listening {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (socket, address) = match family {
            Family::Tcp | Family::Tls => {
                let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
                let address = listener.local_addr().expect("the socket is bound").to_string();
                (Socket::Tcp(listener), address)
            }
            Family::Unix | Family::Local => {
                let number = COUNT.fetch_add(1, Ordering::Relaxed);
                let path = env::temp_dir().join(format!("polywire-bench-{}-raw{number}.sock", process::id()));
                (Socket::Unix(UnixListener::bind(&path).expect("a free path")), path.display().to_string())
            }
            Family::Udp | Family::UdpReliable => {
                let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
                let address = socket.local_addr().expect("the socket is bound").to_string();
                (Socket::Udp(socket), address)
            }
        };
        Listening { family, socket, address }
    }

    /// Waits for the next caller.
    pub(super) fn accept(&self) -> Box<dyn Wire> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().expect("the parent connects");
                stream.set_nodelay(true).expect("a TCP socket");
                match self.family {
                    Family::Tls => Box::new(StreamOwned::new(server(&Identity::given()), stream)),
                    _ => Box::new(stream),
                }
            }
            Socket::Unix(listener) => Box::new(listener.accept().expect("the parent connects").0),
            Socket::Udp(socket) => {
                let (_, from) = socket.recv_from(&mut []).expect("the parent says hello");
                socket.connect(from).expect("the parent's address");
                Box::new(Datagrams(socket.try_clone().expect("a socket")))
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Socket::Unix(_) = &self.socket {
            // An error means that the file is gone already.
            let _ = fs::remove_file(&self.address);
        }
    }
}

/// Connects to a [`Listening`] socket.
pub(super) fn connect(family: Family, address: &str, identity: &Identity) -> Box<dyn Wire> {
    match family {
        Family::Tcp | Family::Tls => {
            let stream = TcpStream::connect(address).expect("the other end listens");
            stream.set_nodelay(true).expect("a TCP socket");
            match family {
                Family::Tls => Box::new(StreamOwned::new(client(identity), stream)),
                _ => Box::new(stream),
            }
        }
        Family::Unix | Family::Local => Box::new(UnixStream::connect(address).expect("the other end listens")),
        Family::Udp | Family::UdpReliable => {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
            socket.connect(address).expect("the other end's address");
            socket.send(&[]).expect("sent");
            Box::new(Datagrams(socket))
        }
    }
}

/// Both sides prove who they are, as with Polywire.
fn client(identity: &Identity) -> ClientConnection {
    let builder = ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
    let config = builder.with_root_certificates(authority(identity));
    let config = config.with_client_auth_cert(certificate(identity), key(identity)).expect("an identity");
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    ClientConnection::new(Arc::new(config), name).expect("a client")
}

fn server(identity: &Identity) -> ServerConnection {
    let verifier = WebPkiClientVerifier::builder(Arc::new(authority(identity))).build().expect("an authority");
    let builder = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
    let config = builder.with_client_cert_verifier(verifier);
    let config = config.with_single_cert(certificate(identity), key(identity)).expect("an identity");
    ServerConnection::new(Arc::new(config)).expect("a server")
}

fn authority(identity: &Identity) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(&identity.authority).expect("a file");
    certificates.for_each(|found| roots.add(found.expect("a certificate")).expect("an authority"));
    roots
}

fn certificate(identity: &Identity) -> Vec<CertificateDer<'static>> {
    let certificates = CertificateDer::pem_file_iter(&identity.certificate).expect("a file");
    certificates.map(|found| found.expect("a certificate")).collect()
}

fn key(identity: &Identity) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(&identity.key).expect("a key")
}

/// Listens, and starts a thread that accepts one connection and returns its bytes in pieces of
/// `size`. Returns the address.
pub(super) fn echo(family: Family, size: usize) -> String {
    let listening = Listening::open(family);
    let address = listening.address.clone();
    thread::spawn(move || {
        let (mut wire, mut buffer) = (listening.accept(), vec![0; size]);
        while wire.receive(&mut buffer).is_ok() && wire.send(&buffer).is_ok() {}
    });
    address
}

/// The parent's end of [`echo`].
pub(super) struct Ping {
    wire: Box<dyn Wire>,
    message: Vec<u8>,
    back: Vec<u8>,
}

impl Ping {
    pub(super) fn connect(family: Family, address: &str, identity: &Identity, message: Vec<u8>) -> Ping {
        let back = vec![0; message.len()];
        Ping { wire: connect(family, address, identity), message, back }
    }

    /// Makes `rounds` round trips one after the other, and returns their times.
    pub(super) fn turn(&mut self, rounds: usize) -> Vec<Duration> {
        let once = |_| {
            let start = Instant::now();
            self.wire.send(&self.message).expect("the other end reads");
            self.wire.receive(&mut self.back).expect("the other end answers");
            let took = start.elapsed();
            assert!(self.back == self.message, "the returned bytes differ from the sent ones");
            took
        };
        (0..rounds).map(once).collect()
    }
}

/// Bytes of a batch of [`Flood`].
const BATCH: usize = 64 << 10;

/// Listens, and starts a thread that counts `receivers` connections' bytes each on a thread of its
/// own and answers after each `turn` bytes. Returns the address.
pub(super) fn count(family: Family, turn: usize, receivers: usize) -> String {
    let listening = Listening::open(family);
    let address = listening.address.clone();
    thread::spawn(move || {
        for _ in 0..receivers {
            let wire = listening.accept();
            thread::spawn(move || count_bytes(wire, turn));
        }
    });
    address
}

fn count_bytes(mut wire: Box<dyn Wire>, turn: usize) {
    let (mut buffer, mut left) = (vec![0; 128 << 10], turn);
    while let Ok(came @ 1..) = wire.receive_some(&mut buffer) {
        left = left.checked_sub(came).expect("no turn begins before the answer");
        if left == 0 {
            left = turn;
            wire.send(&[1]).expect("the parent reads");
        }
    }
}

/// The parent's end of [`count`]: messages of one size, each copied to a batch for each receiver,
/// and each batch written at once. The batch of one message is the message alone.
pub(super) struct Flood {
    wires: Vec<Box<dyn Wire>>,
    message: Vec<u8>,
    batch: Vec<u8>,
}

impl Flood {
    pub(super) fn connect(family: Family, address: &str, identity: &Identity, size: usize, receivers: usize) -> Flood {
        let wires = (0..receivers).map(|_| connect(family, address, identity)).collect();
        Flood { wires, message: vec![7; size], batch: Vec::with_capacity(BATCH + size) }
    }

    /// Sends `messages` messages to each receiver, and returns the time until the last answer.
    pub(super) fn turn(&mut self, messages: u64) -> Duration {
        let start = Instant::now();
        for _ in 0..messages {
            self.batch.extend_from_slice(&self.message);
            if self.batch.len() >= BATCH {
                self.write();
            }
        }
        self.write();
        let mut answer = [0];
        self.wires.iter_mut().for_each(|wire| wire.receive(&mut answer).expect("the other end answers"));
        start.elapsed()
    }

    fn write(&mut self) {
        let Flood { wires, batch, .. } = self;
        wires.iter_mut().for_each(|wire| wire.send(batch).expect("the other end reads"));
        batch.clear();
    }
}
