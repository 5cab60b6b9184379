//! Reads the clocks of live measurements, waits until a point in time, and sets the longest wait.

use std::{thread, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// The longest wait for another process or thread of this machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Nanoseconds of a clock that all processes of this machine share.
pub fn now_ns() -> u64 {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default().as_nanos() as u64
}

/// Nanoseconds of CPU time that all threads of this process have used.
pub fn process_time() -> u64 {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default().as_nanos() as u64
}

/// Nanoseconds by which a sleeping thread usually wakes too late.
const WAKES_LATE: u64 = 80_000;

/// Returns at this time of [`now_ns`]: sleeps first, then yields.
pub fn wait_until(at: u64) {
    loop {
        match at.saturating_sub(now_ns()) {
            0 => return,
            left if left > WAKES_LATE => thread::sleep(Duration::from_nanos(left - WAKES_LATE)),
            _ => thread::yield_now(),
        }
    }
}
