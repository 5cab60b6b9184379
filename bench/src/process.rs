//! What the processes of a benchmark cost: processor time and memory, read from `/proc`.

use std::{fs, time::Duration};

/// Processor time that the threads of a process have used: those that run, to the nanosecond.
pub fn cpu_time(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let used = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.filter_map(used).sum())
}

/// The resident memory of a process, in bytes.
pub fn memory(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let resident = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    resident.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}
