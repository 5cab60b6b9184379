//! Waiting for what other threads and processes do, and processes that end with their test.

use std::{
    env,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

/// Longer than anything takes that a test waits for, on a slow and busy machine.
pub const SOON: Duration = Duration::from_secs(120);

/// Waits until `done`, and fails with `what` if that does not come.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Threads and descriptors of this process.
#[cfg(target_os = "linux")]
pub fn held() -> [usize; 2] {
    ["task", "fd"].map(|what| std::fs::read_dir(format!("/proc/self/{what}")).expect("proc").count())
}

/// A process that is killed when this is dropped.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// Runs one test of this program, which is ignored otherwise, as a process of its own.
pub fn process_of(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command
}
