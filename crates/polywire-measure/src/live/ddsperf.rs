//! Live measurements of Cyclone DDS with its own program `ddsperf`. Each turn starts the program
//! once for each end, and reads figures from its output. The program sends its own messages.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Lines},
    process::{self, Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use super::setup::subject_of;
use crate::{
    Case, Error, Scenario,
    coding::{Coding, Wire},
    scenario::Mode,
    stages::Turn,
    templates,
};

/// How this crate configures the engine.
pub const SETTINGS: &str = "Cyclone DDS, measured with its own program `ddsperf`, which must be installed; one process for each end, reliable, UDP over loopback only, ping and pong in listeners, keep-all history in floods; a \
     sample has as many octets as a message of the case, and no type is encoded or decoded; the figures are those of the slowest subscriber";

const PROGRAM: &str = "ddsperf";

/// Uses the loopback interface only, without multicast, which loopback does not support.
const CONFIG: &str = "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name=\"lo\" multicast=\"false\"/></Interfaces><AllowMulticast>false</AllowMulticast></General>\
     <Discovery><Peers><Peer address=\"127.0.0.1\"/></Peers><ParticipantIndex>auto</ParticipantIndex></Discovery></Domain></CycloneDDS>";

/// The program ends by itself after this many seconds, even if this process is gone.
const LONGEST: &str = "20";

/// Shortest sample of the program, in bytes.
const SHORTEST: usize = 12;

/// Measured seconds of a flood. They follow the first second, which is discovery and warm-up.
const SECONDS: usize = 2;

/// Number of domains to choose from. The UDP ports of domain n begin at 7400 + 250 n; those of
/// domains 1 to 99 are below the ephemeral ports of Linux, which begin at 32768.
const DOMAINS: u32 = 99;

/// True if the program is in the search path.
pub fn is_installed() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(PROGRAM).is_file())
}

/// A case that the program measures.
pub struct Ddsperf {
    mode: Mode,
    subscribers: usize,
    /// Bytes of a sample.
    size: usize,
}

impl Ddsperf {
    /// Checks that the program can measure the case, and determines the size of a sample: the
    /// average size of the case's messages.
    pub fn new(scenario: &Scenario, case: &Case) -> Result<Ddsperf, Error> {
        let wrong = |problem: &str| Error::Engine { engine: case.engine.clone(), problem: problem.into() };
        if !is_installed() {
            return Err(wrong(
                "`ddsperf` is not installed; it comes with Cyclone DDS, on Debian in the package cyclonedds-tools",
            ));
        }
        if !matches!(scenario.mode, Mode::Closed | Mode::Throughput) {
            return Err(wrong("`ddsperf` supports only the modes `closed` and `throughput`"));
        }
        if case.topics > 1 || case.buffers != "default" {
            return Err(wrong("only Polywire's own engines support several topics and sizes of buffers"));
        }
        let (subject, records) = subject_of(scenario, case)?;
        let templates = templates::of(scenario, case, &subject)?;
        let wire = Wire::of(scenario, case, templates.as_deref());
        let mut coding = Coding::new(&wire, &subject.shape, &subject.reader)?;
        let (mut writing, mut message, mut packed) = (coding.writing(), Vec::new(), Vec::new());
        for record in &records {
            message.clear();
            coding.encode(&mut writing, record, &mut message)?;
            coding.pack(&message, &mut packed);
        }
        let size = (packed.len() / records.len().max(1)).max(SHORTEST);
        Ok(Ddsperf { mode: scenario.mode, subscribers: case.subscribers, size })
    }

    /// Measures one turn, which takes a few seconds.
    pub fn turn(&mut self) -> Result<Turn, Error> {
        let figures = match self.mode {
            Mode::Closed => self.closed(),
            _ => self.flood(),
        };
        let wrong = |problem| Error::Engine { engine: PROGRAM.into(), problem };
        let mut figures = figures.map_err(wrong)?;
        figures.insert("bytes", self.size as f64);
        Ok(Turn { figures, latency: Vec::new() })
    }

    fn closed(&self) -> Result<BTreeMap<&'static str, f64>, String> {
        let domain = domain();
        let pong = |_| Program::start(&domain, &["pong"]);
        let _pongs: Vec<Program> = (0..self.subscribers).map(pong).collect::<Result<_, _>>()?;
        let mut ping = Program::start(&domain, &["ping", "size", &self.size.to_string()])?;
        let mut pongs: BTreeMap<String, Pong> = BTreeMap::new();
        while pongs.len() < self.subscribers {
            let line = ping.line()?;
            if let Some(pong) = Pong::parse(&line) {
                pongs.insert(pong.participant.clone(), pong);
            }
        }
        let slowest = |figure: fn(&Pong) -> f64| pongs.values().map(figure).fold(0.0, f64::max) * 1e3;
        let count = pongs.values().map(|pong| pong.count).fold(f64::INFINITY, f64::min);
        Ok(BTreeMap::from([
            ("latency_p50_ns", slowest(|pong| pong.p50_us)),
            ("latency_p90_ns", slowest(|pong| pong.p90_us)),
            ("latency_p99_ns", slowest(|pong| pong.p99_us)),
            ("latency_max_ns", slowest(|pong| pong.max_us)),
            ("sent", count),
            ("lost", 0.0),
        ]))
    }

    fn flood(&self) -> Result<BTreeMap<&'static str, f64>, String> {
        let domain = domain();
        let sub = |_| Program::start(&domain, &["-k", "all", "sub"]);
        let mut subs: Vec<Program> = (0..self.subscribers).map(sub).collect::<Result<_, _>>()?;
        let _publisher = Program::start(&domain, &["-k", "all", "pub", "size", &self.size.to_string()])?;
        let (mut slowest, mut lost, mut came) = (f64::INFINITY, 0.0, 0.0);
        for sub in &mut subs {
            let seconds = sub.seconds()?;
            let own: f64 = seconds.iter().map(|second| second.rate_hz).sum();
            slowest = slowest.min(own / SECONDS as f64);
            lost += seconds.iter().map(|second| second.lost).sum::<f64>();
            came += seconds.iter().map(|second| second.came).sum::<f64>();
        }
        Ok(BTreeMap::from([
            ("throughput_hz", slowest),
            ("throughput_bytes", slowest * self.size as f64),
            ("lost_percent", 100.0 * lost / (lost + came).max(1.0)),
        ]))
    }
}

/// The number of a domain. Processes start at different numbers, so that runs at the same time
/// rarely share a domain.
fn domain() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = process::id().wrapping_mul(7).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
    (1 + number % DOMAINS).to_string()
}

/// A running program, which is stopped when this is dropped.
struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(domain: &str, words: &[&str]) -> Result<Program, String> {
        let mut command = Command::new(PROGRAM);
        command.args(["-i", domain, "-D", LONGEST]).args(words).env("CYCLONEDDS_URI", CONFIG);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("cannot start {PROGRAM}: {error}"))?;
        let out = child.stdout.take().expect("a pipe was asked for");
        Ok(Program { child, lines: BufReader::new(out).lines() })
    }

    fn line(&mut self) -> Result<String, String> {
        let line = self.lines.next().ok_or_else(|| format!("{PROGRAM} ended before it printed its figures"))?;
        line.map_err(|error| error.to_string())
    }

    /// The counts of [`SECONDS`] seconds, after the first second in which samples arrived.
    fn seconds(&mut self) -> Result<Vec<Second>, String> {
        let mut seconds = Vec::new();
        while seconds.len() <= SECONDS {
            let line = self.line()?;
            seconds.extend(Second::parse(&line));
        }
        Ok(seconds.split_off(1))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the word that follows `key`.
fn behind<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.get(words.iter().position(|word| *word == key)? + 1).copied()
}

/// What `ddsperf ping` prints about one participant that answers. Times are half of a round trip.
#[derive(Debug, PartialEq)]
struct Pong {
    participant: String,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    max_us: f64,
    count: f64,
}

impl Pong {
    fn parse(line: &str) -> Option<Pong> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let us = |key: &str| behind(&words, key)?.strip_suffix("us")?.parse().ok();
        let at = words.iter().position(|word| *word == "size")?;
        Some(Pong {
            participant: (*words.get(at.checked_sub(1)?)?).to_owned(),
            p50_us: us("50%")?,
            p90_us: us("90%")?,
            p99_us: us("99%")?,
            max_us: us("max")?,
            count: behind(&words, "cnt")?.parse().ok()?,
        })
    }
}

/// What `ddsperf sub` prints about every second: what it received since the last line.
#[derive(Debug, PartialEq)]
struct Second {
    came: f64,
    lost: f64,
    rate_hz: f64,
}

impl Second {
    fn parse(line: &str) -> Option<Second> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let own = &words[words.iter().position(|word| *word == "delta")?..];
        Some(Second {
            came: behind(own, "delta")?.parse().ok()?,
            lost: behind(own, "lost")?.parse().ok()?,
            rate_hz: behind(own, "rate")?.parse::<f64>().ok()? * 1e3,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ping_says_is_read() {
        let line = "[2683] 2.000  vm:2984 size 1000 mean 12.093us min 8.677us 50% 11.677us 90% 12.859us 99% 19.874us max 2750.239us cnt 41086";
        let pong = Pong::parse(line).expect("a line of figures");
        assert_eq!((pong.participant.as_str(), pong.p50_us, pong.count), ("vm:2984", 11.677, 41_086.0));
        assert_eq!((pong.p90_us, pong.p99_us, pong.max_us), (12.859, 19.874, 2750.239));
        for other in [
            "[2683] 2.000  rss:7.4MB vcsw:20506 ivcsw:20684 recvUC:15%+34%",
            "[2683] participant vm:2984: new",
            "size",
            "",
        ] {
            assert_eq!(Pong::parse(other), None, "{other}");
        }
    }

    #[test]
    fn what_a_subscriber_says_is_read() {
        let line = "[8926] 2.001  size 100 total 864853 lost 9 delta 452476 lost 3 rate 452.98 kS/s 362.38 Mb/s (86.58 kS/s 69.27 Mb/s)";
        assert_eq!(Second::parse(line), Some(Second { came: 452_476.0, lost: 3.0, rate_hz: 452_980.0 }));
        assert_eq!(Second::parse("[8926] participant vm:1: gone"), None);
    }
}
