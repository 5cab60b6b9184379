//! Windows. The access lists of a user's folders keep the user's files private, so this module does
//! not set permissions. Users have no numbers.

use std::{
    env,
    fs::{self, File, Metadata, OpenOptions},
    io,
    net::{Ipv4Addr, UdpSocket},
    os::windows::{
        fs::MetadataExt as _,
        io::{AsSocket, BorrowedSocket},
    },
    path::{Path, PathBuf},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SendFlags, send},
};
use socket2::Socket;

use super::{Interface, Process};

/// The bytes that a blocking socket with some room accepts without waiting.
const AT_ONCE: usize = 64 << 10;

/// Returns `None`: the system is not asked.
pub(super) fn cpu_ns() -> Option<u64> {
    None
}

/// Returns `None`: the system is not asked.
pub(super) fn memory_bytes() -> Option<u64> {
    None
}

/// Name of the host.
pub(crate) fn host() -> String {
    env::var("COMPUTERNAME").unwrap_or_else(|_| "host".into())
}

/// Name of the user that the process runs as.
pub(crate) fn user() -> String {
    env::var("USERNAME").unwrap_or_else(|_| "user".into())
}

/// Returns the interfaces of this machine. Empty if the system does not report them.
pub(crate) fn interfaces() -> impl Iterator<Item = Interface> {
    if_addrs::get_if_addrs().into_iter().flatten().map(|found| Interface {
        is_loopback: found.is_loopback(),
        #[cfg(any(feature = "dds", feature = "zenoh"))]
        index: found.index.unwrap_or(0),
        #[cfg(any(feature = "dds", feature = "zenoh"))]
        is_up: found.is_oper_up(),
        #[cfg(any(feature = "lan", feature = "dds", feature = "zenoh"))]
        address: Some(found.ip()),
        name: found.name,
    })
}

/// Returns `None`: users have no numbers.
pub(crate) fn user_id() -> Option<u32> {
    None
}

/// Returns `None`: users have no numbers.
pub(crate) fn user_named(_: &str) -> Option<u32> {
    None
}

/// Identifies a file, to distinguish it from a later file of the same name.
pub(crate) fn file_id(found: &Metadata) -> (u64, u64) {
    (found.creation_time(), 0)
}

/// Returns the folder of the user's domains.
pub(crate) fn domains() -> io::Result<PathBuf> {
    let local = env::var_os("LOCALAPPDATA").map(PathBuf::from).filter(|path| path.is_absolute());
    let missing = || io::Error::new(io::ErrorKind::NotFound, "LOCALAPPDATA does not name a folder");
    Ok(local.ok_or_else(missing)?.join("polywire"))
}

/// Makes a folder, to which the access list of its parent applies.
pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

/// Returns `None`: the access lists of the user's folders are not checked.
pub(crate) fn who_can_use(_: &Metadata) -> Option<String> {
    None
}

/// Returns `None`: files have no permissions of this kind.
#[cfg(feature = "tls")]
pub(crate) fn mode_for_others(_: &Metadata) -> Option<u32> {
    None
}

/// Opens a file, and creates it if it does not exist.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Returns `None`: the system is not asked.
pub(crate) fn peer_of(_: &Socket) -> Option<Process> {
    None
}

/// Does nothing.
pub(crate) fn permit_socket(_: &Socket, _: u32) -> io::Result<()> {
    Ok(())
}

/// Does nothing.
pub(crate) fn permit_file(_: &Path, _: &Metadata, _: u32) -> io::Result<()> {
    Ok(())
}

/// Does nothing.
pub(crate) fn prepare_sending(_: &Socket) {}

/// Sends the bytes that the system accepts without blocking. Windows has no flag for that, so the
/// function first polls the socket.
pub(crate) fn send_now(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    let mut writable = [PollFd::new(socket, PollFlags::OUT)];
    if poll(&mut writable, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let some = bytes.get(..AT_ONCE).unwrap_or(bytes);
    Ok(send(socket, some, SendFlags::empty())?)
}

/// A socket that becomes readable when [`Wake::wake`] is called. It is connected to itself. On
/// Windows, only sockets can be waited for together with sockets.
pub(crate) struct Wake(UdpSocket);

impl Wake {
    pub(crate) fn new() -> io::Result<Wake> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(socket.local_addr()?)?;
        socket.set_nonblocking(true)?;
        Ok(Wake(socket))
    }

    /// Ends the running wait, or else the next one.
    pub(crate) fn wake(&self) {
        // If the socket is full, the next wait returns anyway.
        let _ = self.0.send(&[1]);
    }

    /// Makes the socket unreadable until it is woken again.
    pub(crate) fn clear(&self) {
        while self.0.recv(&mut [0; 8]).is_ok() {}
    }
}

impl AsSocket for Wake {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        self.0.as_socket()
    }
}
