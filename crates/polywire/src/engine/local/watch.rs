//! Waits until something changes in a folder: by inotify on Linux, by polling elsewhere.

use std::{io, path::Path, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
};

use crate::system::Wake;

/// Time between two checks where the system does not report changes.
const LOOK: Duration = Duration::from_millis(500);

/// The folder's changes, and a way to end a wait.
pub(super) struct Watch {
    /// The inotify descriptor. `None` where the system has no inotify, or the user has too many.
    changes: Option<OwnedFd>,
    wake: Wake,
}

impl Watch {
    pub(super) fn new() -> io::Result<Watch> {
        Ok(Watch { changes: system::changes(), wake: Wake::new()? })
    }

    /// Watches a folder. Call this again whenever the folder was made again.
    pub(super) fn follow(&self, folder: &Path) {
        if let Some(changes) = &self.changes {
            // If this fails, the mesh notices changes at its next periodic check.
            let _ = system::follow(changes, folder);
        }
    }

    /// Waits until something has changed, [`Watch::wake`] was called, or `timeout`.
    pub(super) fn wait(&self, timeout: Duration) {
        let timeout = if self.changes.is_some() { timeout } else { timeout.min(LOOK) };
        let Ok(timeout) = Timespec::try_from(timeout) else { return };
        let mut waited = vec![PollFd::new(&self.wake, PollFlags::IN)];
        waited.extend(self.changes.as_ref().map(|changes| PollFd::new(changes, PollFlags::IN)));
        let _ = poll(&mut waited, Some(&timeout));
        // What has changed does not matter: the folder is read as a whole.
        self.wake.clear();
        let mut read = [0; 4096];
        if let Some(changes) = &self.changes {
            while rustix::io::read(changes, &mut read).is_ok_and(|count| count > 0) {}
        }
    }

    /// Ends a running wait, or the next one if none is running.
    pub(super) fn wake(&self) {
        self.wake.wake();
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::path::Path;

    use rustix::{
        fd::OwnedFd,
        fs::inotify::{self, CreateFlags, WatchFlags},
    };

    pub(super) fn changes() -> Option<OwnedFd> {
        inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()
    }

    pub(super) fn follow(changes: &OwnedFd, folder: &Path) -> rustix::io::Result<()> {
        // Sockets are renamed to their place when they are ready.
        let wanted = WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(changes, folder, wanted | WatchFlags::ONLYDIR).map(drop)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::path::Path;

    use rustix::fd::OwnedFd;

    pub(super) fn changes() -> Option<OwnedFd> {
        None
    }

    pub(super) fn follow(_: &OwnedFd, _: &Path) -> rustix::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread, time::Instant};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn a_wait_ends_when_something_comes_goes_or_wakes_it() {
        let folder = std::env::temp_dir().join(format!("polywire-watch-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let watch = Watch::new().expect("a watch");
        watch.follow(&folder);
        let ends_by = |what: &str, change: &(dyn Fn() + Sync)| {
            let began = Instant::now();
            thread::scope(|scope| {
                scope.spawn(|| watch.wait(2 * SOON));
                thread::sleep(Duration::from_millis(20));
                change();
            });
            assert!(began.elapsed() < SOON, "{what}");
        };
        let (new, there) = (folder.join("new"), folder.join("there"));
        ends_by("a socket comes", &|| {
            fs::write(&new, "").expect("a file");
            fs::rename(&new, &there).expect("renamed");
        });
        ends_by("a socket goes", &|| fs::remove_file(&there).expect("removed"));
        ends_by("it is woken", &|| watch.wake());
        // Also if it was woken before it began.
        watch.wake();
        ends_by("it was woken", &|| {});
        fs::remove_dir(&folder).expect("removed");
    }
}
