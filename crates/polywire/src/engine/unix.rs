//! Unix-domain stream sockets.
//!
//! ```
//! use polywire::{engine::{unix::{Unix, UnixConnect, UnixListen}, Engine}, Node};
//! assert_eq!([Unix.name(), UnixListen.name(), UnixConnect.name()], ["unix", "unix-listen", "unix-connect"]);
//!
//! let path = std::env::temp_dir().join(format!("polywire-doc-{}.sock", std::process::id()));
//! let node = Node::new();
//! node.open(&format!("unix/{}", path.display()))?;
//! assert!(path.exists());
//! node.close();
//! assert!(!path.exists());
//! # Ok::<(), polywire::NodeError>(())
//! ```

use std::{
    fs::{File, TryLockError},
    io,
    os::{
        fd::OwnedFd,
        unix::{fs::FileTypeExt as _, net::UnixStream},
    },
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, SockAddr, Socket, Type};

use super::{
    Engine, EngineError, EngineOptions, Local, Port, Principal, Properties, Sink,
    sockets::{self, Family, engine, set_buffers},
    stream::{PROPERTIES, Role},
};
use crate::system;

/// `unix/PATH`: listens if no port listens there, and connects otherwise. The port that listens
/// relays messages between the ports that connect.
pub struct Unix;
/// `unix-listen/PATH`: listens; opening fails if it cannot. Does not relay.
pub struct UnixListen;
/// `unix-connect/PATH`: connects, and keeps trying.
pub struct UnixConnect;

pub(super) static FAMILY: Files = Files;

engine!(
    Unix,
    "unix",
    Role::Either,
    "/tmp/polywire.sock",
    "Unix-domain socket: listens if the path is free, else connects"
);
engine!(UnixListen, "unix-listen", Role::Listen, "/tmp/polywire.sock", "Unix-domain socket, listening");
engine!(UnixConnect, "unix-connect", Role::Connect, "/tmp/polywire.sock", "Unix-domain socket, connecting");

/// Connects to a socket of any program without waiting, and returns a stream whose calls do not
/// block. A call of [`UnixStream::connect`] waits without a limit while too many connections wait
/// at the other end.
///
/// # Errors
/// [`ConnectionRefused`](io::ErrorKind::ConnectionRefused) if the path is a socket to which nobody
/// listens, and [`WouldBlock`](io::ErrorKind::WouldBlock) if too many connections wait there (on
/// Linux; other systems refuse then). Else the system's error, such as one for a missing file.
///
/// ```
/// use polywire::engine::unix::connect_now;
/// use std::{io::ErrorKind, os::unix::net::UnixListener};
///
/// let path = std::env::temp_dir().join(format!("polywire-connect-{}.sock", std::process::id()));
/// let listener = UnixListener::bind(&path)?;
/// connect_now(&path)?;
/// drop(listener);
/// assert_eq!(connect_now(&path).unwrap_err().kind(), ErrorKind::ConnectionRefused);
/// std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn connect_now(path: &Path) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    call(&socket, &SockAddr::unix(path)?)?;
    Ok(OwnedFd::from(socket).into())
}

/// Connects a socket without waiting, and leaves it non-blocking. If the listener's backlog is
/// full, a blocking socket would wait for it without a limit.
fn call(socket: &Socket, address: &SockAddr) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    match socket.connect(address) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::new(e.kind(), "too many connections wait there"))
        }
        connected => connected,
    }
}

pub(super) struct Files;

impl Family for Files {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn check(&self, address: &str) -> Result<(), String> {
        match address {
            "" => Err("the path is missing".into()),
            path => SockAddr::unix(path).map(drop).map_err(|e| e.to_string()),
        }
    }

    fn resolve(&self, address: &str, _: Duration) -> io::Result<Vec<SockAddr>> {
        Ok(vec![SockAddr::unix(address)?])
    }

    fn listen(&self, address: &SockAddr, options: &EngineOptions) -> io::Result<Socket> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        set_buffers(&socket, options)?;
        // Between bind and listen the file looks abandoned to other nodes, so the lock keeps them
        // out.
        let _alone = alone_in_folder(address);
        // Linux creates the file with the socket's permissions, less the process's umask.
        let _ = system::permit_socket(&socket, options.unix_mode);
        if let Err(e) = socket.bind(address) {
            let found = address.as_pathname().and_then(|path| path.metadata().ok());
            if found.is_some_and(|found| !found.file_type().is_socket()) {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "there is a folder or a file that is no socket",
                ));
            }
            if e.kind() != io::ErrorKind::AddrInUse || !is_abandoned(address) {
                return Err(e);
            }
            remove(address);
            socket.bind(address)?;
        }
        // No peer can connect before the socket listens, so a lax umask never lets a peer in.
        if let Err(e) = permit_file(address, options.unix_mode) {
            remove(address);
            return Err(e);
        }
        socket.listen(1024)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    fn connect(&self, address: &SockAddr, options: &EngineOptions) -> io::Result<Socket> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        set_buffers(&socket, options)?;
        call(&socket, address).map(|()| socket)
    }

    fn tune(&self, socket: &Socket, _: &EngineOptions) -> io::Result<()> {
        socket.set_nonblocking(false)
    }

    fn describe(&self, address: &SockAddr) -> String {
        address.as_pathname().map_or_else(|| "a client".into(), |path| path.display().to_string())
    }

    fn principal(&self, socket: &Socket) -> Principal {
        Principal::of_user(system::peer_of(socket))
    }

    /// Removes the file, unless another node has taken the path since and listens there.
    fn unbound(&self, address: &SockAddr) {
        let _alone = alone_in_folder(address);
        if is_abandoned(address) {
            remove(address);
        }
    }
}

/// Longest wait for nodes that are binding in the same folder. After that, or if the folder cannot
/// be locked, binding continues without the lock.
const ALONE: Duration = Duration::from_secs(1);

/// Locks the folder of a path against other nodes that bind there, until the result is dropped.
fn alone_in_folder(address: &SockAddr) -> Option<File> {
    let folder = address.as_pathname()?.parent()?;
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = File::open(folder).ok()?;
    let until = Instant::now() + ALONE;
    loop {
        match folder.try_lock() {
            Ok(()) => return Some(folder),
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
            Err(_) => return None,
        }
    }
}

/// Sets the permissions of the file that was just bound, if they differ. Fails if another file has
/// taken the socket's place, and leaves that file alone.
fn permit_file(address: &SockAddr, mode: u32) -> io::Result<()> {
    let Some(path) = address.as_pathname() else { return Ok(()) };
    let found = path.symlink_metadata()?;
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another file has taken the socket's place"));
    }
    system::permit_file(path, &found, mode)
}

/// Returns whether a killed node left the socket file behind: the file exists, but no process
/// listens.
fn is_abandoned(address: &SockAddr) -> bool {
    let is_socket = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    let is_refused = |path: &Path| connect_now(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
    address.as_pathname().is_some_and(|path| is_socket(path) && is_refused(path))
}

fn remove(address: &SockAddr) {
    if let Some(path) = address.as_pathname() {
        // The file may be gone already.
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, sync::Barrier};

    use super::*;

    #[test]
    fn the_socket_is_open_to_whom_the_options_say_whatever_the_mask() {
        let folder = std::env::temp_dir().join(format!("polywire-unix-mode-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let mode = |path: &Path| path.metadata().expect("a file").permissions().mode() & 0o777;
        for (name, wanted) in [("own", None), ("group", Some(0o660)), ("all", Some(0o666))] {
            let (path, mut options) = (folder.join(name), EngineOptions::default());
            options.unix_mode = wanted.unwrap_or(options.unix_mode);
            let address = SockAddr::unix(&path).expect("a short path");
            let _listening = Files.listen(&address, &options).expect("it listens");
            assert_eq!(mode(&path), wanted.unwrap_or(0o600), "{name}");
        }
        // The file as the system creates it, before its permissions are set by name.
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        if cfg!(target_os = "linux") {
            system::permit_socket(&socket, 0o600).expect("the system takes it");
            socket.bind(&SockAddr::unix(folder.join("new")).expect("a short path")).expect("it is bound");
            assert_eq!(mode(&folder.join("new")), 0o600);
        }
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn what_is_no_socket_is_left_alone_and_told() {
        let folder = std::env::temp_dir().join(format!("polywire-unix-other-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("file"), "text").expect("a file");
        for path in [folder.clone(), folder.join("file")] {
            let address = SockAddr::unix(&path).expect("a short path");
            let error = Files.listen(&address, &EngineOptions::default()).expect_err("it is taken");
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(std::fs::read(folder.join("file")).expect("it is there"), b"text");
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn who_leaves_does_not_take_the_file_of_who_came() {
        let folder = std::env::temp_dir().join(format!("polywire-unix-leave-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let address = SockAddr::unix(folder.join("s")).expect("a short path");
        let leaving = Files.listen(&address, &EngineOptions::default()).expect("it listens");
        leaving.shutdown(std::net::Shutdown::Both).expect("it is shut");
        let _came = Files.listen(&address, &EngineOptions::default()).expect("the path is abandoned");
        Files.unbound(&address);
        Files.connect(&address, &EngineOptions::default()).expect("the newcomer still listens");
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    /// On other systems, a full backlog refuses callers.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_listener_with_a_full_backlog_holds_up_nobody_and_keeps_its_file() {
        let folder = std::env::temp_dir().join(format!("polywire-unix-full-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (address, options) = (SockAddr::unix(folder.join("s")).expect("a short path"), EngineOptions::default());
        let busy = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        busy.bind(&address).expect("it is bound");
        busy.listen(0).expect("it listens");
        let waiting: Vec<Socket> = std::iter::from_fn(|| Files.connect(&address, &options).ok()).take(100).collect();
        assert!((1..100).contains(&waiting.len()), "{} wait", waiting.len());
        let refused = Files.connect(&address, &options).expect_err("too many wait");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let refused = Files.listen(&address, &options).expect_err("another one listens");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        Files.unbound(&address);
        assert!(folder.join("s").exists());
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn of_many_who_come_at_once_one_listens() {
        const CALLERS: usize = 4;
        let folder = std::env::temp_dir().join(format!("polywire-unix-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for round in 0..200 {
            let address = SockAddr::unix(folder.join(format!("{round}"))).expect("a short path");
            let together = Barrier::new(CALLERS);
            let call = || {
                together.wait();
                Files.listen(&address, &EngineOptions::default())
            };
            let sockets: Vec<io::Result<Socket>> = thread::scope(|scope| {
                let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
                callers.into_iter().map(|caller| caller.join().expect("no panic")).collect()
            });
            assert_eq!(sockets.iter().filter(|socket| socket.is_ok()).count(), 1, "round {round}");
            Files.connect(&address, &EngineOptions::default()).expect("it listens");
        }
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
