//! `fifo/PATH`: an engine outside the library, over pairs of named pipes. It shows how much an
//! engine over byte streams has to implement: how callers and a listener find each other.
//! `engine::stream` does the rest.
//!
//! The node that listens creates the FIFO `PATH` and reads calls from it. A caller creates two
//! FIFOs beside it, `PATH.NAME.up` to the listener and `PATH.NAME.down` back, and writes `NAME` to
//! `PATH`. Both ends open both FIFOs; the caller removes them as soon as the listener has said
//! hello, so a killed process leaves at most the FIFO `PATH`, which the next listener takes over.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use polywire::engine::{
    Engine, EngineError, Local, Port, Properties, Sink,
    stream::{self, ByteStream, Connection, Descriptors, Listener, Role, Transport},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, Mode, OFlags, mkfifoat},
};

/// Register it with `Node::builder().engine(&Fifo)`.
pub struct Fifo;

impl Engine for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn summary(&self) -> &'static str {
        "Pairs of named pipes: listens if nobody does at the path, else connects"
    }

    fn example(&self) -> &'static str {
        "/tmp/polywire.fifo"
    }

    fn properties(&self) -> Properties {
        stream::PROPERTIES
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        if address.is_empty() {
            let (address, reason) = (address.into(), "there is no path".into());
            return Err(EngineError::Address { engine: "fifo", address, reason, example: self.example() });
        }
        let place = Place { path: address.into(), patience: local.options.connect_timeout };
        stream::open(place, Role::Either, local, sink)
    }
}

/// One address.
#[derive(Clone)]
struct Place {
    path: PathBuf,
    patience: Duration,
}

impl Transport for Place {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn endpoint(&self) -> String {
        format!("fifo/{}", self.path.display())
    }

    fn listen(&self) -> io::Result<Arc<dyn Listener>> {
        make(&self.path).or_else(|e| if e.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })?;
        // Open for writing as well: otherwise the FIFO would read as ended between two callers.
        let calls = open(&self.path, OpenOptions::new().read(true).write(true))?;
        // The lock belongs to the listener and ends with its process.
        calls.try_lock().map_err(|_| ErrorKind::AddrInUse)?;
        // A listener that closed between the open and the lock has removed this FIFO.
        let is_current = self.path.metadata()?.ino() == calls.metadata()?.ino();
        if is_current { Ok(Arc::new(Calls { place: self.clone(), calls })) } else { Err(ErrorKind::AddrInUse.into()) }
    }

    fn connect(&self) -> io::Result<Connection> {
        // Fails if nobody has the FIFO open for reading.
        let mut listener = open(&self.path, OpenOptions::new().write(true))?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let pair = Pair::make(&self.path, &name)?;
        let down = open(&pair.down, OpenOptions::new().read(true))?;
        // Opening for writing alone fails as long as the listener does not read.
        let _until_it_reads = open(&pair.up, OpenOptions::new().read(true).write(true))?;
        let up = open(&pair.up, OpenOptions::new().write(true))?;
        listener.write_all(&call(&name))?;
        // The hello of the listener, which has both FIFOs open then, or its end.
        let mut waited = [PollFd::new(&down, PollFlags::IN), PollFd::new(&listener, PollFlags::ERR)];
        poll(&mut waited, Timespec::try_from(self.patience).ok().as_ref())?;
        if !waited[0].revents().contains(PollFlags::IN) {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        self.connection(Descriptors::new(down, up)?)
    }
}

impl Place {
    fn connection(&self, stream: impl ByteStream + 'static) -> io::Result<Connection> {
        Ok(Connection { stream: Arc::new(stream), address: self.path.display().to_string(), host: None })
    }
}

/// The listening end: the FIFO to which callers write.
struct Calls {
    place: Place,
    calls: File,
}

/// Bytes of a call. Writes of this few bytes are atomic, so a read of as many returns one call.
const CALL: usize = 32;

fn call(name: &str) -> [u8; CALL] {
    let mut call = [b' '; CALL];
    call.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    call
}

impl Listener for Calls {
    fn endpoint(&self) -> String {
        self.place.endpoint()
    }

    fn accept(&self) -> io::Result<Option<Connection>> {
        let mut waited = [PollFd::new(&self.calls, PollFlags::IN)];
        if poll(&mut waited, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }))? == 0 {
            return Ok(None);
        }
        let mut call = [0; CALL];
        (&self.calls).read_exact(&mut call)?;
        let name = str::from_utf8(&call).map_err(|_| ErrorKind::InvalidData)?.trim_end();
        // A name must not lead to a file elsewhere, since others may write to the FIFO.
        if !name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
            return Err(ErrorKind::InvalidData.into());
        }
        if name.is_empty() {
            return Ok(None);
        }
        let pair = paths(&self.place.path, name);
        let up = open(&pair[0], OpenOptions::new().read(true))?;
        let down = open(&pair[1], OpenOptions::new().write(true))?;
        self.place.connection(Descriptors::new(up, down)?).map(Some)
    }

    fn wake(&self) {
        // Fails only if calls wait, which wake it as well.
        let _ = (&self.calls).write(&call(""));
    }

    fn close(&self) {
        // The lock is held, so this is not the FIFO of another listener.
        let _ = std::fs::remove_file(&self.place.path);
    }
}

/// The FIFOs of one connection, removed when it is dropped.
struct Pair {
    up: PathBuf,
    down: PathBuf,
}

impl Pair {
    fn make(beside: &Path, name: &str) -> io::Result<Pair> {
        let [up, down] = paths(beside, name);
        let pair = Pair { up, down };
        make(&pair.up)?;
        make(&pair.down)?;
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for path in [&self.up, &self.down] {
            // Fails if the FIFO was not made.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn paths(beside: &Path, name: &str) -> [PathBuf; 2] {
    ["up", "down"].map(|direction| PathBuf::from(format!("{}.{name}.{direction}", beside.display())))
}

/// Only this user may open it.
fn make(path: &Path) -> io::Result<()> {
    Ok(mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?)
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}
