//! The node's local socket: programs in any language declare typed probes and send samples.
//!
//! A program connects to a Unix socket of the node and writes lines of JSON: one that declares a
//! probe, by PDL, by an example or by a schema, and one for each sample. Samples may also be
//! messages in any format. `spec/telemetry.md` specifies all lines. The node reports errors to the
//! program, with the number of the line. `docs/telemetry.md` has an example in Python.
//!
//! Operations of a probe in PDL are commands of the node: the node writes each request to the
//! program as a line, and the program writes a reply. `docs/commands.md` has an example.
//!
//! ```
//! use polywire::{Node, coding::Discovered};
//! use polywire_telemetry::{Agent, Identity, Moment, Runner, socket::Socket, system::Host};
//! use std::{io::{BufRead as _, BufReader, Write as _}, os::unix::net::UnixStream, time::Duration};
//!
//! # let folder = std::env::temp_dir().join(format!("polywire-socket-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("plant.sock");
//! let wire = "json@inproc/socket-doc";
//! let mut agent = Agent::new(Node::new(), Identity::new("plant")?, Host::this(), wire, Moment::default())?;
//! let socket = Socket::open(&path)?;
//! agent.serve(&socket);
//! let runner = Runner::start(agent)?;
//!
//! // Another program.
//! let mut stream = UnixStream::connect(&path)?;
//! writeln!(stream, r#"{{"probe":"pump","example":{{"pressure":2.5}},"units":{{"pressure":"bar"}}}}"#)?;
//! let mut answer = String::new();
//! BufReader::new(stream.try_clone()?).read_line(&mut answer)?;
//! assert!(answer.contains(r#""type":"probes::pump""#), "{answer}");
//!
//! let samples = Node::new().subscribe_of("probes/plant/pump", Some(wire), Discovered::new()?)?.open();
//! let sample = loop {
//!     writeln!(stream, r#"{{"probe":"pump","value":{{"pressure":2.5}}}}"#)?;
//!     if let Some(sample) = samples.recv_timeout(Duration::from_millis(50)) {
//!         break sample;
//!     }
//! };
//! assert_eq!(sample.value.f64("pressure")?, 2.5);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod calls;
mod declared;
mod example;
mod line;
mod operation;
mod session;

use std::{
    fs, io,
    io::{Read as _, Write as _},
    net::Shutdown,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender, SyncSender, TrySendError},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use polywire::engine::unix::connect_now;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

pub(crate) use self::{
    calls::{Answer, Calls, Programs},
    operation::Operation,
};
pub use self::{
    calls::{MAX_CALLS, Wake},
    declared::{DeclaredProbe, MAX_WAITING},
    line::MAX_LINE_BYTES,
    session::{Declare, Session},
};

/// The maximum number of connections at a time. Further ones are closed.
const MAX_CONNECTIONS: usize = 64;

/// The longest time after which a connection's thread notices that the socket has ended.
const TICK: Duration = Duration::from_millis(100);

/// How long a program may take to reply to a call.
pub const LONGEST_CALL: Duration = Duration::from_secs(60);

/// How long the node may take to admit a probe.
const PATIENCE: Duration = Duration::from_secs(10);

/// The maximum number of probes that wait for the node to admit them.
const MAX_ADMISSION_REQUESTS: usize = 64;

/// A probe that a program has declared and that waits to be admitted by the node.
pub(crate) struct AdmissionRequest {
    pub instance: String,
    pub declared: DeclaredProbe,
    pub answer: Sender<Result<Arc<DeclaredProbe>, String>>,
}

/// A socket that programs connect to. Dropping it removes the socket and closes the connections.
pub struct Socket {
    path: PathBuf,
    shared: Arc<Shared>,
    admissions: Arc<Mutex<Receiver<AdmissionRequest>>>,
}

/// What the threads of connections share.
struct Shared {
    requests: SyncSender<AdmissionRequest>,
    connections: AtomicUsize,
    ends: AtomicBool,
}

/// The node's side of a socket.
pub(crate) struct AdmissionQueue(Arc<Mutex<Receiver<AdmissionRequest>>>);

impl AdmissionQueue {
    /// Returns the next probe that waits to be admitted.
    pub fn next(&self) -> Option<AdmissionRequest> {
        self.0.lock().try_recv().ok()
    }
}

impl Socket {
    /// Creates a socket that only this user's processes can use, and starts its thread. A stale
    /// socket of an ended process is replaced. Fails if another process listens there.
    pub fn open(path: &Path) -> io::Result<Socket> {
        let listener = bind(path)?;
        let (requests, admissions) = mpsc::sync_channel(MAX_ADMISSION_REQUESTS);
        let shared = Arc::new(Shared { requests, connections: AtomicUsize::new(0), ends: AtomicBool::new(false) });
        let socket =
            Socket { path: path.to_owned(), shared: shared.clone(), admissions: Arc::new(Mutex::new(admissions)) };
        thread::Builder::new().name("socket".into()).spawn(move || shared.listen(&listener))?;
        Ok(socket)
    }

    pub(crate) fn admission_queue(&self) -> AdmissionQueue {
        AdmissionQueue(self.admissions.clone())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        // Wakes the thread that accepts connections. If too many connections wait for it, it is
        // awake.
        let _ = connect_now(&self.path);
        // Another process may have removed the socket.
        let _ = fs::remove_file(&self.path);
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        match connect_now(path).map_err(|error| error.kind()) {
            Err(io::ErrorKind::ConnectionRefused) => fs::remove_file(path)?,
            // Another process has removed it meanwhile.
            Err(io::ErrorKind::NotFound) => {}
            // Many connections may wait there, or another user's process may listen.
            _ => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process has this socket")),
        }
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

impl Shared {
    fn listen(self: Arc<Shared>, listener: &UnixListener) {
        for stream in listener.incoming() {
            if self.ends() {
                return;
            }
            let Ok(stream) = stream else {
                // An error may be permanent: the thread must not use all processor time.
                thread::sleep(TICK);
                continue;
            };
            if self.connections.fetch_add(1, Ordering::AcqRel) >= MAX_CONNECTIONS {
                self.connections.fetch_sub(1, Ordering::AcqRel);
                log::warn!("the socket has {MAX_CONNECTIONS} connections; another one is turned away");
                let _ = stream.shutdown(Shutdown::Both);
                continue;
            }
            let shared = self.clone();
            let run = move || {
                if let Err(error) = shared.serve(stream) {
                    log::debug!("a connection to the socket has ended: {error}");
                }
                shared.connections.fetch_sub(1, Ordering::AcqRel);
            };
            if let Err(error) = thread::Builder::new().name("socket program".into()).spawn(run) {
                log::error!("a connection to the socket has no thread: {error}");
                self.connections.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    fn serve(self: &Arc<Shared>, mut stream: UnixStream) -> io::Result<()> {
        // A program that does not read must not delay its own samples.
        stream.set_nonblocking(true)?;
        let (mut bell, ring) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ring.set_nonblocking(true)?;
        // If the buffer is full, the bell has been rung already.
        let wake = move || drop((&ring).write(&[0]));
        let shared = self.clone();
        let declare = move |instance: &str, declared| shared.declare(instance, declared);
        let mut session = Session::new(Box::new(declare), Box::new(wake));
        let mut bytes = vec![0; 64 << 10];
        while !self.ends() {
            let is_written = write_outgoing(&mut stream, &mut session)?;
            if wait(&stream, &bell, !is_written)? {
                // Calls that are begun from now on ring the bell again.
                let _ = bell.read(&mut bytes);
            }
            match stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(len) => session.take(bytes.get(..len).unwrap_or_default()),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Asks the node to admit a probe.
    fn declare(&self, instance: &str, declared: DeclaredProbe) -> Result<Arc<DeclaredProbe>, String> {
        let (answer, answered) = mpsc::channel();
        let request = AdmissionRequest { instance: instance.to_owned(), declared, answer };
        self.requests.try_send(request).map_err(|error| match error {
            TrySendError::Full(_) => format!("{MAX_ADMISSION_REQUESTS} probes wait to be admitted; try again later"),
            TrySendError::Disconnected(_) => "the node has ended".to_owned(),
        })?;
        answered.recv_timeout(PATIENCE).unwrap_or_else(|_| Err("the node does not answer".to_owned()))
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }
}

/// Writes the lines for the program as far as the program reads. Returns whether all were written.
fn write_outgoing(stream: &mut UnixStream, session: &mut Session) -> io::Result<bool> {
    loop {
        let outgoing = session.outgoing();
        if outgoing.is_empty() {
            return Ok(true);
        }
        match stream.write(outgoing.as_slices().0) {
            Ok(len) => drop(outgoing.drain(..len)),
            Err(error) if is_timeout(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

/// Waits until the program has written, until it reads again if `has_more` asks for that, or until
/// the bell rings. Returns whether the bell rings.
fn wait(stream: &UnixStream, bell: &UnixStream, has_more: bool) -> io::Result<bool> {
    let flags = if has_more { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut watched = [PollFd::new(stream, flags), PollFd::new(bell, PollFlags::IN)];
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
    match poll(&mut watched, Some(&tick)) {
        Ok(_) => Ok(watched.iter().skip(1).any(|bell| !bell.revents().is_empty())),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use polywire_testing::{Folder, waiting::SOON};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

    use super::*;

    /// On other systems, a full backlog refuses callers.
    #[test]
    fn a_path_whose_listener_has_a_full_backlog_is_taken_and_holds_up_nobody() {
        let folder = Folder::new("socket-full");
        let path = folder.path().join("s");
        let busy = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
        bind(&busy, &SocketAddrUnix::new(&path).expect("a short path")).expect("it is bound");
        listen(&busy, 0).expect("it listens");
        let waiting: Vec<UnixStream> = std::iter::from_fn(|| connect_now(&path).ok()).take(100).collect();
        assert!((1..100).contains(&waiting.len()), "{} wait", waiting.len());
        let (tell, told) = mpsc::channel();
        let taken = path.clone();
        thread::spawn(move || tell.send(Socket::open(&taken).map(drop).map_err(|error| error.kind())));
        assert_eq!(told.recv_timeout(SOON), Ok(Err(io::ErrorKind::AddrInUse)));
        assert!(path.exists(), "it is not removed");
    }
}
