//! Functions that depend on the operating system, where no library abstracts from it: one file for
//! each system, with the same functions. `access`, `engine`, `node` and `stats` use them.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::path::Path;

#[cfg(unix)]
pub(crate) use self::unix::*;
#[cfg(windows)]
pub(crate) use self::windows::*;

/// An address of a network interface of this machine, or an interface that has no address.
pub(crate) struct Interface {
    pub(crate) name: String,
    #[cfg(any(feature = "lan", feature = "dds", feature = "zenoh", target_os = "linux"))]
    pub(crate) address: Option<std::net::IpAddr>,
    /// Whether the interface reaches only this machine.
    pub(crate) is_loopback: bool,
    /// The number of the interface, which no later interface of the same name has; 0 if it is not
    /// known.
    #[cfg(any(feature = "dds", feature = "zenoh"))]
    pub(crate) index: u32,
    /// Whether the interface is in operation and takes multicast.
    #[cfg(any(feature = "dds", feature = "zenoh"))]
    pub(crate) is_up: bool,
}

/// A process on this machine.
pub(crate) struct Process {
    pub(crate) user: u32,
    /// `None` if the process has no number here, for example because it is in another container.
    pub(crate) process: Option<i32>,
}

/// The resources that this process uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu_ns: u64,
    pub(crate) memory_bytes: u64,
}

impl Usage {
    /// Asks the system. A value that the system does not report is 0.
    pub(crate) fn now() -> Usage {
        Usage { cpu_ns: cpu_ns().unwrap_or(0), memory_bytes: memory_bytes().unwrap_or(0) }
    }
}

/// Name of the program, without its folder.
pub(crate) fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_uses_something() {
        let mut sum = 0u64;
        while cfg!(unix) && Usage::now().cpu_ns == 0 {
            sum = sum.wrapping_add(1);
        }
        assert!(cfg!(not(target_os = "linux")) || Usage::now().memory_bytes > 100_000);
        assert!(!user().is_empty() && !program().is_empty() && !host().is_empty());
    }

    #[test]
    fn a_wake_is_seen_once() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let wake = Wake::new().expect("a wake");
        let is_woken = || {
            let mut waited = [PollFd::new(&wake, PollFlags::IN)];
            matches!(poll(&mut waited, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
        };
        assert!(!is_woken());
        // More often than a pipe or a socket holds.
        (0..100_000).for_each(|_| wake.wake());
        assert!(is_woken());
        wake.clear();
        assert!(!is_woken());
        wake.wake();
        assert!(is_woken());
    }

    #[test]
    fn files_that_took_the_name_of_others_are_told_from_them() {
        let path = std::env::temp_dir().join(format!("polywire-system-{}", std::process::id()));
        let id = || file_id(&path.symlink_metadata().expect("it is there"));
        std::fs::write(&path, "a").expect("written");
        let first = id();
        std::fs::write(&path, "b").expect("written");
        assert_eq!(id(), first);
        let other = path.with_extension("other");
        std::fs::write(&other, "c").expect("written");
        std::fs::rename(&other, &path).expect("renamed");
        assert_ne!(id(), first);
        std::fs::remove_file(&path).expect("removed");
    }
}
