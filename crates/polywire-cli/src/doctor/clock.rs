//! Checks of the clock: whether it is synchronized, whether it steps, and what a read costs.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::Finding;

/// How long the two clocks of the system are compared.
const COMPARED: Duration = Duration::from_millis(300);
/// A difference that slewing cannot cause in this time: it is at most 0.5 ms in a second.
const JUMP: Duration = Duration::from_millis(20);
/// The number of timed reads of the clock.
const READS: u32 = 1000;
/// The limit for a read of a fast clock. A clock in the processor takes 20 to 60 ns.
const SLOW: Duration = Duration::from_nanos(400);
/// Clocks that are read through the bus or an emulation.
const SLOW_SOURCES: [&str; 3] = ["acpi_pm", "hpet", "jiffies"];

pub fn check() -> Vec<Finding> {
    vec![synchronised(&timedatectl()), steps(compared()), source(&current_source(), cost())]
}

/// Returns what `timedatectl` reports about the kernel's clock; empty if it cannot be run.
fn timedatectl() -> String {
    let mut command = Command::new("timedatectl");
    command.args(["show", "--property=NTPSynchronized", "--value"]).stdin(Stdio::null()).stderr(Stdio::null());
    command.output().map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned()).unwrap_or_default()
}

fn synchronised(said: &str) -> Finding {
    match said {
        "yes" => Finding::ok("clock", "synchronised with NTP"),
        "no" => Finding::warning(
            "clock",
            "not synchronised: latencies and lifespans between machines are wrong by the difference",
            "timedatectl set-ntp true, or run chronyd",
        ),
        _ => Finding::warning(
            "clock",
            "nobody here says whether it is synchronised (timedatectl does not answer)",
            "check that chronyd or ntpd runs, also on the machine around a container",
        ),
    }
}

/// Returns the difference that arises between the wall clock and the steady clock while they are
/// compared.
fn compared() -> Duration {
    let now = || (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), Instant::now());
    let (wall, steady) = now();
    std::thread::sleep(COMPARED);
    let (later, after) = now();
    (later.abs_diff(wall)).abs_diff(after - steady)
}

fn steps(difference: Duration) -> Finding {
    match difference > JUMP {
        true => Finding::warning(
            "clock steps",
            format!("the clock jumped by {} ms while it was watched", difference.as_millis()),
            "let chronyd slew it: latencies, lifespans and the order by source follow the clock",
        ),
        false => Finding::ok("clock steps", "none while it was watched"),
    }
}

fn current_source() -> String {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    fs::read_to_string(path).map(|name| name.trim().to_owned()).unwrap_or_default()
}

fn cost() -> Duration {
    let began = Instant::now();
    for _ in 0..READS {
        std::hint::black_box(SystemTime::now());
    }
    began.elapsed() / READS
}

fn source(name: &str, cost: Duration) -> Finding {
    let shown = if name.is_empty() { "unknown" } else { name };
    let found = format!("{shown}, {} ns a read", cost.as_nanos());
    match SLOW_SOURCES.contains(&name) || cost > SLOW {
        true => Finding::warning(
            "clock source",
            format!("{found}: each message reads the clock"),
            "choose tsc or that of the hypervisor in /sys/devices/system/clocksource/clocksource0",
        ),
        false => Finding::ok("clock source", found),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    #[test]
    fn what_the_system_says_of_its_clock_is_judged() {
        assert_eq!(synchronised("yes").state, State::Ok);
        assert!(synchronised("no").advice.contains("set-ntp") && synchronised("").advice.contains("chronyd"));
        assert_eq!((steps(Duration::ZERO).state, steps(Duration::from_secs(1)).state), (State::Ok, State::Warning));
        assert!(steps(Duration::from_millis(40)).found.contains("40 ms"));
        let fast = Duration::from_nanos(25);
        assert_eq!(source("tsc", fast).found, "tsc, 25 ns a read");
        assert_eq!((source("hpet", fast).state, source("tsc", SLOW * 2).state), (State::Warning, State::Warning));
    }
}
