//! Systems with the interfaces of POSIX.

use std::{
    env,
    fs::{DirBuilder, File, Metadata, OpenOptions, Permissions},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use nix::{
    ifaddrs::getifaddrs,
    net::if_::InterfaceFlags,
    sys::resource::{UsageWho, getrusage},
    unistd::{Uid, User, geteuid},
};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    net::{SendFlags, send},
};
use socket2::Socket;

use super::{Interface, Process};

/// The permissions of files that only this user can use.
const PRIVATE: u32 = 0o600;

/// CPU time of the process.
pub(super) fn cpu_ns() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let (user, system) = (usage.user_time(), usage.system_time());
    let seconds = user.tv_sec() + system.tv_sec();
    // These numbers have 32 bits on some systems.
    #[allow(clippy::useless_conversion)]
    let micros = i64::from(user.tv_usec()) + i64::from(system.tv_usec());
    u64::try_from(seconds * 1_000_000_000 + micros * 1000).ok()
}

/// Memory of the process. The second number of `statm` counts pages in RAM.
#[cfg(target_os = "linux")]
pub(super) fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn memory_bytes() -> Option<u64> {
    None
}

/// Name of the host.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Name of the user that the process runs as, or the user's number.
pub(crate) fn user() -> String {
    let id = Uid::effective();
    User::from_uid(id).ok().flatten().map_or_else(|| id.to_string(), |user| user.name)
}

/// Returns the interfaces of this machine. Empty if the system does not report them.
pub(crate) fn interfaces() -> impl Iterator<Item = Interface> {
    getifaddrs().into_iter().flatten().map(|found| Interface {
        is_loopback: found.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        #[cfg(any(feature = "dds", feature = "zenoh"))]
        index: nix::net::if_::if_nametoindex(found.interface_name.as_str()).unwrap_or(0),
        #[cfg(any(feature = "dds", feature = "zenoh"))]
        is_up: found.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_MULTICAST),
        #[cfg(any(feature = "lan", feature = "dds", feature = "zenoh", target_os = "linux"))]
        address: found.address.as_ref().and_then(ip),
        name: found.interface_name,
    })
}

#[cfg(any(feature = "lan", feature = "dds", feature = "zenoh", target_os = "linux"))]
fn ip(storage: &nix::sys::socket::SockaddrStorage) -> Option<std::net::IpAddr> {
    let v4 = storage.as_sockaddr_in().map(|v4| v4.ip().into());
    v4.or_else(|| storage.as_sockaddr_in6().map(|v6| v6.ip().into()))
}

/// The number of the user that the process runs as.
pub(crate) fn user_id() -> Option<u32> {
    Some(geteuid().as_raw())
}

/// Returns the number of the user of this machine with this name.
pub(crate) fn user_named(name: &str) -> Option<u32> {
    Some(User::from_name(name).ok()??.uid.as_raw())
}

/// Identifies a file, to distinguish it from a later file of the same name.
pub(crate) fn file_id(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Returns the folder of the user's domains: in the first runtime folder that belongs to the user,
/// or else in `/tmp`.
pub(crate) fn domains() -> io::Result<PathBuf> {
    let uid = geteuid().as_raw();
    let given = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let system = PathBuf::from(format!("/run/user/{uid}"));
    Ok(home([given, Some(system)], uid, format!("/tmp/polywire-{uid}").into()))
}

fn home(runtime: [Option<PathBuf>; 2], uid: u32, fallback: PathBuf) -> PathBuf {
    let is_own = |path: &PathBuf| path.is_absolute() && path.metadata().is_ok_and(|m| m.is_dir() && m.uid() == uid);
    runtime.into_iter().flatten().find(is_own).map_or(fallback, |runtime| runtime.join("polywire"))
}

/// Makes a folder that only this user can use.
pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Returns why others can use a folder. `None` if they cannot.
pub(crate) fn who_can_use(found: &Metadata) -> Option<String> {
    if found.uid() != geteuid().as_raw() {
        return Some(format!("it belongs to the user {}, and must belong to this one", found.uid()));
    }
    let mode = found.mode() & 0o777;
    (mode & 0o077 != 0).then(|| format!("other users can use it (mode {mode:o}): make it private with chmod 700"))
}

/// Returns the permissions of a file, if others than its owner can use it.
#[cfg(feature = "tls")]
pub(crate) fn mode_for_others(found: &Metadata) -> Option<u32> {
    let mode = found.mode() & 0o7777;
    (mode & 0o077 != 0).then_some(mode)
}

/// Opens a file that only this user can use. Creates it if it does not exist.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(PRIVATE).open(path)
}

/// The process at the other end of a Unix-domain socket.
#[cfg(target_os = "linux")]
pub(crate) fn peer_of(socket: &Socket) -> Option<Process> {
    // `rustix` has no process id 0, which a peer in another container has, so this uses `nix`.
    let peer = nix::sys::socket::getsockopt(socket, nix::sys::socket::sockopt::PeerCredentials).ok()?;
    Some(Process { user: peer.uid(), process: Some(peer.pid()).filter(|id| *id != 0) })
}

/// Returns `None`: only Linux is asked.
#[cfg(not(target_os = "linux"))]
pub(crate) fn peer_of(_: &Socket) -> Option<Process> {
    None
}

/// Sets the permissions that a socket's file gets when the socket is bound. Linux supports that.
pub(crate) fn permit_socket(socket: &Socket, mode: u32) -> io::Result<()> {
    File::from(OwnedFd::from(socket.try_clone()?)).set_permissions(Permissions::from_mode(mode))
}

/// Sets the permissions of the file of a socket, if they differ.
pub(crate) fn permit_file(path: &Path, found: &Metadata, mode: u32) -> io::Result<()> {
    match found.permissions().mode() & 0o777 == mode {
        true => Ok(()),
        false => std::fs::set_permissions(path, Permissions::from_mode(mode)),
    }
}

/// Flags for a write that neither blocks nor raises SIGPIPE. On Apple's systems, no flag prevents
/// SIGPIPE, but an option of the socket does.
const SENDING: SendFlags = {
    #[cfg(not(target_vendor = "apple"))]
    let flags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
    #[cfg(target_vendor = "apple")]
    let flags = SendFlags::DONTWAIT;
    flags
};

/// Prepares a socket for [`send_now`].
pub(crate) fn prepare_sending(_socket: &Socket) {
    // Rust programs ignore SIGPIPE, other programs may not. Fails only on a socket that is gone.
    #[cfg(target_vendor = "apple")]
    let _ = _socket.set_nosigpipe(true);
}

/// Sends the bytes that the system accepts without blocking.
#[inline]
pub(crate) fn send_now(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match send(socket, bytes, SENDING) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// A descriptor that becomes readable when [`Wake::wake`] is called.
pub(crate) struct Wake {
    woken: io::PipeReader,
    waker: io::PipeWriter,
}

impl Wake {
    pub(crate) fn new() -> io::Result<Wake> {
        let (woken, waker) = io::pipe()?;
        for end in [woken.as_fd(), waker.as_fd()] {
            fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
        }
        Ok(Wake { woken, waker })
    }

    /// Ends the running wait, or else the next one.
    pub(crate) fn wake(&self) {
        // If the pipe is full, the next wait returns anyway.
        let _ = rustix::io::write(&self.waker, &[1]);
    }

    /// Makes the descriptor unreadable until it is woken again.
    pub(crate) fn clear(&self) {
        let mut read = [0; 256];
        while rustix::io::read(&self.woken, &mut read).is_ok_and(|count| count == read.len()) {}
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_runtime_folder_is_used_if_it_is_the_users() {
        let (uid, fallback) = (geteuid().as_raw(), PathBuf::from("/tmp/polywire-x"));
        let there = env::temp_dir().join(format!("polywire-runtime-{}", std::process::id()));
        fs::create_dir_all(&there).expect("a folder");
        let chosen = |first: Option<&str>| home([first.map(PathBuf::from), None], uid, fallback.clone());
        assert_eq!(chosen(there.to_str()), there.join("polywire"));
        for unusable in [None, Some(""), Some("relative"), Some("/nowhere/at/all"), Some("/dev/null")] {
            assert_eq!(chosen(unusable), fallback, "{unusable:?}");
        }
        // Another user's, as after `su`.
        assert_eq!(home([Some(there.clone()), None], uid + 1, fallback.clone()), fallback);
        assert_eq!(home([None, Some(there.clone())], uid, fallback), there.join("polywire"));
        fs::remove_dir(&there).expect("removed");
    }
}
