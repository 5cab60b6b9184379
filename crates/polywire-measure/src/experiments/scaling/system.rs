//! Simulates a system of many publishers and subscribers in virtual time, from the CPU time of a
//! message at each end and a model of the lines.
//!
//! All publishers are alike, and so are all subscribers. The simulation has one publisher with all
//! messages that it sends, and one subscriber with all messages that it receives. A host's
//! processor handles one message at a time. Each host has a line with a [`Link`] per direction.

use polywire::schema::arbitrary::Random;
use polywire_core::netsim::{Fate, Link, Model};

/// Number of copies that a simulated publisher sends, if [`MESSAGES`] permits it.
const COPIES: usize = 50_000;

/// Minimum and maximum number of messages that a simulated publisher sends.
const MESSAGES: (usize, usize) = (8, 60);

/// Number of arrivals at a simulated subscriber, unless there are more publishers than that.
const ARRIVALS: usize = 20_000;

/// Bytes of a message that the network adds: headers of the frame, of TCP or UDP, of IP and of
/// Ethernet.
const HEADERS: usize = 80;

/// The system to simulate.
#[derive(Clone, Copy, Debug)]
pub struct System {
    pub publishers: usize,
    pub subscribers: usize,
    /// Messages per second of each publisher.
    pub rate_hz: f64,
    /// Bytes of a message.
    pub bytes: f64,
    /// Publisher's cost of a message before the first copy leaves, and for each copy.
    pub send_ns: (f64, f64),
    /// Cost of a message for each subscriber.
    pub receive_ns: f64,
    /// One copy reaches all subscribers.
    pub multicast: bool,
}

/// The result of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// 99th percentile of the time from when a message was due until a subscriber had read it.
    pub p99_ns: f64,
    /// The most used resource, and the share of its time that is used.
    pub busiest: (&'static str, f64),
}

impl System {
    /// Simulates the system for a while.
    pub fn run(&self, model: &Model, seed: u64) -> Outcome {
        let mut random = Random::new(seed);
        let delays = self.sender(model, seed);
        let mut latencies = self.receiver(model, &delays, &mut random);
        latencies.sort_by(f64::total_cmp);
        let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or(0.0);
        Outcome { p99_ns: p99, busiest: self.busiest(model) }
    }

    /// True if no resource is used up and the 99th percentile of the latency is at most three times
    /// that of an idle system.
    pub fn keeps_up(&self, model: &Model, seed: u64) -> bool {
        self.busiest(model).1 < 1.0 && self.run(model, seed).p99_ns <= self.limit(model, seed)
    }

    /// Three times the 99th percentile of an idle system.
    fn limit(&self, model: &Model, seed: u64) -> f64 {
        3.0 * System { publishers: 1, rate_hz: 0.01, ..*self }.run(model, seed).p99_ns
    }

    /// The highest rate at which the system [keeps up](System::keeps_up), and the busiest resource
    /// there.
    pub fn highest_rate(&self, model: &Model, seed: u64) -> (f64, &'static str) {
        let at = |rate_hz: f64| System { rate_hz, ..*self };
        let limit = self.limit(model, seed);
        // At a rate above `high`, some resource is overloaded.
        let (mut low, mut high) = (0.0, 1.0 / at(1.0).busiest(model).1);
        for _ in 0..10 {
            let rate = (low + high) / 2.0;
            if at(rate).run(model, seed).p99_ns <= limit { low = rate } else { high = rate }
        }
        (low, at(low.max(1e-6)).busiest(model).0)
    }

    fn copies(&self) -> usize {
        if self.multicast { 1 } else { self.subscribers }
    }

    fn messages(&self) -> usize {
        (COPIES / self.copies()).clamp(MESSAGES.0, MESSAGES.1)
    }

    fn wire_bytes(&self) -> usize {
        self.bytes as usize + HEADERS
    }

    /// The busiest resource, and the share of time for which it is used; above 1 it is overloaded.
    pub fn busiest(&self, model: &Model) -> (&'static str, f64) {
        let (first, each) = self.send_ns;
        let copies = self.copies() as f64;
        let line = model.rate.map_or(0.0, |rate| self.wire_bytes() as f64 * 8.0 / rate.get() as f64);
        let arriving = self.rate_hz * self.publishers as f64;
        let used = [
            ("publisher's processor", self.rate_hz * (first + each * copies) / 1e9),
            ("publisher's line", self.rate_hz * line * copies),
            ("subscriber's processor", arriving * self.receive_ns / 1e9),
            ("subscriber's line", arriving * line),
        ];
        used.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
    }

    /// For each copy that a publisher sends: the time from when its message was due until the copy
    /// reached the subscriber's line.
    fn sender(&self, model: &Model, seed: u64) -> Vec<f64> {
        let mut line = Link::new(model, seed);
        let (first, each) = self.send_ns;
        let mut free = 0.0f64;
        let mut delays = Vec::new();
        for number in 0..self.messages() {
            let due = number as f64 * 1e9 / self.rate_hz;
            free = free.max(due) + first;
            for _ in 0..self.copies() {
                free += each;
                if let Fate::Arrives(at) = line.admit(free as u64, self.wire_bytes()) {
                    delays.push(at as f64 - due);
                }
            }
        }
        delays
    }

    /// Latencies of the messages that one subscriber receives. All publishers send at the same
    /// rate, each with a random phase.
    fn receiver(&self, model: &Model, delays: &[f64], random: &mut Random) -> Vec<f64> {
        let draw = |random: &mut Random, bound: usize| random.below(bound.max(1));
        let period = 1e9 / self.rate_hz;
        let rounds = (ARRIVALS / self.publishers.max(1)).clamp(1, MESSAGES.1);
        let mut arrivals: Vec<(f64, f64)> = Vec::with_capacity(self.publishers * rounds);
        for _ in 0..self.publishers {
            let phase = draw(random, 1 << 20) as f64 / f64::from(1 << 20) * period;
            for round in 0..rounds {
                let due = phase + round as f64 * period;
                let delay = delays.get(draw(random, delays.len())).copied().unwrap_or(0.0);
                arrivals.push((due + delay, due));
            }
        }
        arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
        // `delays` contains the propagation delay; only the time on the subscriber's line is
        // missing.
        let mut own = model.clone();
        own.delay = Default::default();
        let mut line = Link::new(&own, 1);
        let mut free = 0.0f64;
        let mut latencies = Vec::with_capacity(arrivals.len());
        for (at, due) in arrivals {
            if let Fate::Arrives(there) = line.admit(at as u64, self.wire_bytes()) {
                free = free.max(there as f64) + self.receive_ns;
                latencies.push(free - due);
            }
        }
        latencies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: System = System {
        publishers: 1,
        subscribers: 1,
        rate_hz: 1.0,
        bytes: 920.0,
        send_ns: (1000.0, 500.0),
        receive_ns: 2000.0,
        multicast: false,
    };

    fn line() -> Model {
        "rate=1gbit,delay=100us,queue=1000MB".parse().expect("a model")
    }

    #[test]
    fn an_idle_system_takes_what_its_parts_take() {
        // 1.5 us to send, 8 us for 1000 bytes on each of two lines, 100 us on the way, 2 us to
        // read.
        let outcome = CHEAP.run(&line(), 1);
        assert!((outcome.p99_ns - 119_500.0).abs() < 2.0, "{outcome:?}");
    }

    #[test]
    fn the_highest_rate_is_where_a_resource_is_used_up() {
        let (rate, what) = CHEAP.highest_rate(&line(), 1);
        // A line of 1 Gbit/s carries 125,000 packets of 1000 bytes.
        assert!((110_000.0..=125_001.0).contains(&rate) && what.ends_with("line"), "{rate} {what}");
        let many = System { subscribers: 1000, send_ns: (1000.0, 50_000.0), ..CHEAP };
        let (rate, what) = many.highest_rate(&line(), 1);
        assert!((18.0..=20.01).contains(&rate) && what == "publisher's processor", "{rate} {what}");
        let (rate, what) = System { multicast: true, ..many }.highest_rate(&line(), 1);
        assert!(rate > 10_000.0, "one copy for all: {rate} {what}");
        let (rate, what) = System { publishers: 1000, receive_ns: 50_000.0, ..CHEAP }.highest_rate(&line(), 1);
        assert!((10.0..=20.01).contains(&rate) && what == "subscriber's processor", "{rate} {what}");
    }
}
