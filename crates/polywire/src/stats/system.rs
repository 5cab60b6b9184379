//! What the system says about the process, its user and its host.

use nix::{
    sys::resource::{UsageWho, getrusage},
    unistd::{Uid, User},
};

/// What the process uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu_ns: u64,
    pub(crate) memory_bytes: u64,
}

impl Usage {
    /// Asks the system.
    pub(crate) fn now() -> Usage {
        let cpu_ns = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| {
            let (user, system) = (usage.user_time(), usage.system_time());
            let seconds = user.tv_sec() + system.tv_sec();
            // Of 32 bits on some systems.
            #[allow(clippy::useless_conversion)]
            let micros = i64::from(user.tv_usec()) + i64::from(system.tv_usec());
            u64::try_from(seconds * 1_000_000_000 + micros * 1000).unwrap_or(0)
        });
        Usage { cpu_ns, memory_bytes: memory_bytes().unwrap_or(0) }
    }
}

/// The second number of `statm` counts pages in RAM.
#[cfg(target_os = "linux")]
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(not(target_os = "linux"))]
fn memory_bytes() -> Option<u64> {
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

/// Name of the program, without its folder.
pub(crate) fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_uses_something() {
        let mut sum = 0u64;
        while Usage::now().cpu_ns == 0 {
            sum = sum.wrapping_add(1);
        }
        assert!(cfg!(not(target_os = "linux")) || Usage::now().memory_bytes > 100_000);
        assert!(!user().is_empty() && !program().is_empty() && !host().is_empty());
    }
}
