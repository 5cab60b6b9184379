//! A node's files in the folder of a domain: `NAME.sock`, at which it listens, and `NAME.lock`,
//! which it keeps locked as long as it lives.
//!
//! The lock, and nothing else, says whether a node lives: the system releases it however a process
//! ends. A node that finds a socket at which nobody listens tries to take its lock. If it gets the
//! lock, it removes both files.

use std::{
    ffi::OsStr,
    fs::{self, File, TryLockError},
    io,
    net::Shutdown,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{envelope::Id128, frame::Hello};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{
    Medium,
    folder::{Place, about},
    watch::Watch,
};
use crate::{
    engine::{
        EngineOptions, Local, Principal,
        sockets::{accept, set_buffers},
        stream::{Connection, Listener, Peer},
    },
    system,
};

/// The permissions of a node's socket.
const PRIVATE: u32 = 0o600;
/// How long a node waits for a lock: longer than sweeping the files of one node takes.
const SWEEPING: Duration = Duration::from_secs(5);

/// This node in the folder of a domain.
pub(super) struct Member {
    place: Place,
    medium: Medium,
    endpoint: String,
    name: String,
    hello: Hello,
    options: EngineOptions,
    watch: Watch,
    present: Mutex<Present>,
}

#[derive(Default)]
struct Present {
    files: Option<Files>,
    /// The listener is closed and must not appear again.
    closed: bool,
}

/// The files of a node that listens. They are removed when this is dropped.
struct Files {
    folder: PathBuf,
    name: String,
    socket: Arc<Socket>,
    /// Holds the lock.
    lock: File,
    /// The id of the socket's file.
    bound: (u64, u64),
}

impl Member {
    /// Fails if the folder cannot be used.
    pub(super) fn new(endpoint: &str, place: Place, medium: Medium, local: &Local) -> io::Result<Member> {
        place.folder(medium.below)?;
        Ok(Member {
            place,
            medium,
            endpoint: endpoint.into(),
            name: name_of(&local.hello),
            hello: local.hello,
            options: local.options.clone(),
            watch: Watch::new()?,
            present: Mutex::default(),
        })
    }

    pub(super) fn engine(&self) -> &'static str {
        self.medium.engine
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Makes the node's files and listens, unless it does so already. Makes the folder again if
    /// somebody has removed it. Returns the folder.
    pub(super) fn appear(&self) -> io::Result<PathBuf> {
        let mut present = self.lock();
        if let Some(files) = &present.files
            && files.are_there()
        {
            return Ok(files.folder.clone());
        }
        if present.closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let folder = self.folder()?;
        self.watch.follow(&folder);
        sweep_unfinished(&folder);
        // Replaces files of which some are missing; dropping them removes the rest.
        present.files = None;
        present.files = Some(Files::make(&folder, &self.name, self.medium.socket, &self.options)?);
        Ok(folder)
    }

    /// Returns the other nodes of the folder.
    pub(super) fn peers(&self) -> io::Result<Vec<Peer>> {
        let folder = self.appear()?;
        let entries = fs::read_dir(&folder).map_err(|error| about(&folder, &error))?;
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        let sockets = names.filter_map(|name| name.to_str()?.strip_suffix(".sock").map(str::to_owned));
        let peers = sockets.map(|address| Peer { hello: hello_of(&address), address });
        Ok(peers.filter(|peer| peer.hello != Some(self.hello)).collect())
    }

    /// Connects to a node by its name. If nobody listens there and the node is dead, removes its
    /// files.
    pub(super) fn connect(&self, name: &str) -> io::Result<Connection> {
        let folder = self.folder()?;
        let socket = Socket::new(Domain::UNIX, self.medium.socket, None)?;
        set_buffers(&socket, &self.options)?;
        // A suspended node accepts nobody. If its backlog is full, connecting would wait for it.
        socket.set_nonblocking(true)?;
        let path = folder.join(format!("{name}.sock"));
        match socket.connect(&address_of(&path)?) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                sweep(&folder, name);
                return Err(error);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::new(error.kind(), "too many connections wait there"));
            }
            connected => connected?,
        }
        self.connection(socket, || name.into())
    }

    fn folder(&self) -> io::Result<PathBuf> {
        self.place.folder(self.medium.below)
    }

    /// Makes the socket to another node blocking, and wraps it in a connection. `otherwise` returns
    /// the address to display if the peer's process is unknown.
    fn connection(&self, socket: Socket, otherwise: impl FnOnce() -> String) -> io::Result<Connection> {
        socket.set_nonblocking(false)?;
        let peer = system::peer_of(&socket);
        // For display. A process of another container has no number here.
        let process = peer.as_ref().and_then(|peer| peer.process);
        let address = process.map_or_else(otherwise, |process| format!("process {process}"));
        let principal = Principal::of_user(peer);
        Ok(Connection { stream: (self.medium.stream)(socket, principal), address, host: None })
    }

    fn lock(&self) -> MutexGuard<'_, Present> {
        self.present.lock()
    }

    fn socket(&self) -> Option<Arc<Socket>> {
        self.lock().files.as_ref().map(|files| files.socket.clone())
    }
}

impl Listener for Member {
    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    fn accept(&self) -> io::Result<Option<Connection>> {
        let socket = self.socket().ok_or(io::ErrorKind::NotConnected)?;
        let Some((socket, _)) = accept(&socket)? else { return Ok(None) };
        self.connection(socket, || "a node that connected here".into()).map(Some)
    }

    fn wake(&self) {
        if let Some(socket) = self.socket() {
            // Ends the wait on Linux. Elsewhere its time-out does.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn close(&self) {
        let mut present = self.lock();
        present.closed = true;
        present.files = None;
    }
}

impl Files {
    /// Listens in the folder. Other nodes see the socket only when it listens.
    fn make(folder: &Path, name: &str, kind: Type, options: &EngineOptions) -> io::Result<Files> {
        let path = |ending: &str| folder.join(format!("{name}.{ending}"));
        let (new, final_path) = (path("new"), path("sock"));
        // Both names must be short enough, so that others can connect.
        address_of(&final_path)?;
        let lock = lock_anew(&path("lock")).map_err(|error| about(&path("lock"), &error))?;
        let failed = |error: io::Error| about(&new, &error);
        let socket = Socket::new(Domain::UNIX, kind, None)?;
        set_buffers(&socket, options)?;
        let _ = system::permit_socket(&socket, PRIVATE);
        let listen = || {
            socket.bind(&address_of(&new)?)?;
            let found = new.symlink_metadata()?;
            system::permit_file(&new, &found, PRIVATE)?;
            socket.listen(1024)?;
            socket.set_nonblocking(true)?;
            let bound = system::file_id(&found);
            fs::rename(&new, &final_path)?;
            Ok(bound)
        };
        let listening = listen().map_err(|error: io::Error| match error.kind() {
            // The message has the path already.
            io::ErrorKind::InvalidInput => error,
            _ => failed(error),
        });
        match listening {
            Ok(bound) => Ok(Files { folder: folder.into(), name: name.into(), socket: Arc::new(socket), lock, bound }),
            Err(error) => {
                remove(&new);
                remove(&path("lock"));
                Err(error)
            }
        }
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.name))
    }

    /// Returns whether nobody has removed or replaced the files.
    fn are_there(&self) -> bool {
        let is = |path: PathBuf, id| path.symlink_metadata().is_ok_and(|found| system::file_id(&found) == id);
        is(self.path("sock"), self.bound) && self.has_lock()
    }

    fn has_lock(&self) -> bool {
        is_same(&self.lock, &self.path("lock"))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Without the lock, the files belong to another process by now.
        if self.has_lock() {
            remove(&self.path("sock"));
            remove(&self.path("lock"));
        }
    }
}

/// Returns `NODE-INCARNATION`, in hexadecimal.
pub(in crate::engine) fn name_of(hello: &Hello) -> String {
    format!("{}-{:x}", hello.node, hello.incarnation)
}

/// Returns the node that a name stands for. `None` if it is not the name of a node.
pub(in crate::engine) fn hello_of(name: &str) -> Option<Hello> {
    let (node, incarnation) = name.split_once('-')?;
    let node = Id128(u128::from_str_radix(node, 16).ok()?.to_be_bytes());
    let hello = Hello { node, incarnation: u64::from_str_radix(incarnation, 16).ok()? };
    // The same numbers can be written in several ways, but only one of them is a name.
    (name_of(&hello) == name).then_some(hello)
}

/// Returns the address of a socket, whose path the system limits.
fn address_of(path: &Path) -> io::Result<SockAddr> {
    SockAddr::unix(path).map_err(|_| {
        let reason = format!(
            "{}: the path has {} bytes, and the system allows about 100 for a socket: \
             choose a shorter folder, by XDG_RUNTIME_DIR or in the address",
            path.display(),
            path.as_os_str().len()
        );
        io::Error::new(io::ErrorKind::InvalidInput, reason)
    })
}

/// Makes a file and locks it. Makes it again if another node has swept it meanwhile. Fails if
/// somebody keeps it locked.
pub(in crate::engine) fn lock_anew(path: &Path) -> io::Result<File> {
    let until = Instant::now() + SWEEPING;
    loop {
        let file = system::open_private(path)?;
        match file.try_lock() {
            Ok(()) if is_same(&file, path) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() > until => {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "this node has a port there already"));
            }
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Takes the lock of a node, if the node is dead. Returns `None` if it lives, or if another process
/// has the lock to sweep.
pub(in crate::engine) fn lock_of_dead(path: &Path) -> Option<File> {
    let lock = system::open_private(path).ok()?;
    (lock.try_lock().is_ok() && is_same(&lock, path)).then_some(lock)
}

/// Removes the files of a node, if it is dead.
fn sweep(folder: &Path, name: &str) {
    let path = |ending: &str| folder.join(format!("{name}.{ending}"));
    let Some(_lock) = lock_of_dead(&path("lock")) else { return };
    // The lock is removed last: until then, no node can take the name.
    ["sock", "new", "lock"].iter().for_each(|ending| remove(&path(ending)));
}

/// Removes the files of nodes that died before they listened. The files of nodes that listened are
/// swept by the nodes that call them.
fn sweep_unfinished(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let left = names.iter().filter(|path| path.extension() == Some(OsStr::new("lock")));
    for path in left.filter(|path| !path.with_extension("sock").exists()) {
        if let Some(name) = path.file_stem().and_then(OsStr::to_str) {
            sweep(folder, name);
        }
    }
}

/// Returns whether the path still leads to the open file.
fn is_same(file: &File, path: &Path) -> bool {
    let found = (file.metadata(), path.symlink_metadata());
    matches!(found, (Ok(file), Ok(path)) if system::file_id(&file) == system::file_id(&path))
}

fn remove(path: &Path) {
    // The file may be gone already.
    let _ = fs::remove_file(path);
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _, sync::Barrier, thread};

    use super::*;
    use crate::engine::{sockets::SocketStream, stream::ByteStream};

    fn temporary(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("pw-member-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn hello(node: u8) -> Hello {
        Hello { node: Id128([node; 16]), incarnation: 7 }
    }

    fn member(folder: &Path, node: u8) -> io::Result<Member> {
        let local = Local { hello: hello(node), name: "test".into(), options: EngineOptions::default() };
        let stream = |socket, principal| Arc::new(SocketStream::new(socket, principal)) as Arc<dyn ByteStream>;
        let medium = Medium { engine: "test", below: None, socket: Type::STREAM, stream: Box::new(stream) };
        let member = Member::new("test/a", Place::Folder(folder.into()), medium, &local)?;
        member.appear()?;
        Ok(member)
    }

    fn files(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn names_say_who_is_there() {
        let hello = Hello { node: Id128([0xAB; 16]), incarnation: 0x1F };
        assert_eq!(name_of(&hello), format!("{}-1f", "ab".repeat(16)));
        assert_eq!(hello_of(&name_of(&hello)), Some(hello));
        for foreign in ["", "a-b", "notes", &name_of(&hello).to_uppercase(), &format!("+{}-1", "1".repeat(31))] {
            assert_eq!(hello_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn nodes_see_each_other_and_leave_nothing_behind() {
        let folder = temporary("see");
        let (a, b) = (member(&folder, 1).expect("a"), member(&folder, 2).expect("b"));
        let peers = a.peers().expect("peers");
        assert_eq!(peers, [Peer { address: name_of(&hello(2)), hello: Some(hello(2)) }]);
        let called = a.connect(&peers[0].address).expect("it listens");
        let accepted = b.accept().expect("no error").expect("a caller");
        if cfg!(target_os = "linux") {
            let own = format!("process {}", std::process::id());
            assert_eq!((&called.address, &accepted.address), (&own, &own));
        }
        b.close();
        assert!(a.peers().expect("peers").is_empty());
        assert!(b.appear().is_err(), "it is closed");
        a.close();
        assert!(files(&folder).is_empty());
        fs::remove_dir(&folder).expect("removed");
    }

    #[test]
    fn the_files_of_a_dead_node_are_swept_and_those_of_a_living_one_never() {
        let folder = temporary("sweep");
        let (a, b) = (member(&folder, 1).expect("a"), member(&folder, 2).expect("b"));
        // What a killed node leaves: both files, and a lock that nobody holds.
        let dead = name_of(&hello(3));
        let left = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        left.bind(&address_of(&folder.join(format!("{dead}.sock"))).expect("short")).expect("bound");
        drop(left);
        fs::write(folder.join(format!("{dead}.lock")), "").expect("written");
        assert_eq!(a.peers().expect("peers").len(), 2);
        let refused = a.connect(&dead).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(a.peers().expect("peers").len(), 1);
        // A node that lives, but does not listen for now.
        b.socket().expect("it listens").shutdown(Shutdown::Both).expect("shut");
        assert!(a.connect(&name_of(&hello(2))).is_err());
        assert_eq!(a.peers().expect("peers").len(), 1);
        // The lock of a node that died before it listened, and a file of no node.
        fs::write(folder.join("x.lock"), "").expect("written");
        fs::write(folder.join("notes"), "").expect("written");
        let c = member(&folder, 4).expect("c");
        assert_eq!(files(&folder).len(), 7, "{:?}", files(&folder));
        [a, b, c].iter().for_each(Member::close);
        assert_eq!(files(&folder), ["notes"]);
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn many_that_come_go_and_sweep_at_once_keep_their_files() {
        let folder = temporary("many");
        fs::create_dir(&folder).expect("a folder");
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("private");
        let together = Barrier::new(4);
        thread::scope(|scope| {
            for node in 1..=4 {
                let (folder, together) = (&folder, &together);
                scope.spawn(move || {
                    for _ in 0..50 {
                        together.wait();
                        let member = member(folder, node).expect("it listens");
                        (1..=4).for_each(|other| sweep(folder, &name_of(&hello(other))));
                        assert!(member.lock().files.as_ref().is_some_and(Files::are_there));
                        member.connect(&name_of(&hello(node))).expect("it listens");
                        together.wait();
                        member.close();
                    }
                });
            }
        });
        assert!(files(&folder).is_empty(), "{:?}", files(&folder));
        fs::remove_dir(&folder).expect("removed");
    }

    #[test]
    fn a_node_whose_folder_was_removed_appears_again() {
        let folder = temporary("again");
        let (a, b) = (member(&folder, 1).expect("a"), member(&folder, 2).expect("b"));
        fs::remove_dir_all(&folder).expect("removed");
        assert!(a.peers().expect("peers").is_empty());
        assert_eq!(b.peers().expect("peers").len(), 1);
        assert_eq!(a.peers().expect("peers").len(), 1);
        a.connect(&name_of(&hello(2))).expect("it listens again");
        // Only the lock file of `b` is missing.
        fs::remove_file(folder.join(format!("{}.lock", name_of(&hello(2))))).expect("removed");
        b.peers().expect("peers");
        a.connect(&name_of(&hello(2))).expect("it listens again");
        [a, b].iter().for_each(Member::close);
        // A file has taken the folder's place.
        let _ = fs::remove_dir_all(&folder);
        fs::write(&folder, "").expect("written");
        let refused = member(&folder, 3).err().expect("refused").to_string();
        assert!(refused.contains("it is a file"), "{refused}");
        fs::remove_file(&folder).expect("removed");
    }

    #[test]
    fn a_path_that_is_too_long_is_told() {
        let folder = temporary(&"long".repeat(20));
        let refused = member(&folder, 1).err().expect("too long").to_string();
        assert!(refused.contains("shorter folder") && refused.contains("longlong"), "{refused}");
        assert!(files(&folder).is_empty());
        fs::remove_dir(&folder).expect("removed");
    }
}
