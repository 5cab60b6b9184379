//! The input `statsd`: programs send figures as datagrams, `NAME:VALUE|TYPE`.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use polywire::Message as _;

use super::{
    Label, Metrics, problem,
    registry::{Key, Registry},
};
use crate::{Measure, MeasureError, Moment, Parameter, ProbeType, Settings, probe::boxed};

const ADDRESS: Parameter = Parameter {
    name: "address",
    summary: "UDP address of this machine at which datagrams are taken",
    default: "127.0.0.1:8125",
};

/// How often the thread checks whether the probe still exists.
const TICK: Duration = Duration::from_millis(100);

/// The maximum size of a UDP datagram in bytes.
const MAX_BYTES: usize = 1 << 16;

/// The maximum number of values that one value stands for, however small its `@RATE` is.
const MAX_TIMES: f64 = 1e6;

pub(super) const PROBE: ProbeType = ProbeType {
    name: "statsd",
    summary: "What programs send to a StatsD server",
    uuid: super::UUID,
    version: super::VERSION,
    pdl: super::PDL,
    every: Duration::from_secs(10),
    parameters: &[ADDRESS],
    shape: Metrics::shape,
    open: |_, settings| open(settings).map(boxed::<Metrics>),
};

/// The figures. A thread updates them until the server is dropped.
struct Server(Arc<Registry>);

fn open(settings: &Settings) -> Result<Server, MeasureError> {
    let text = settings.get(&ADDRESS);
    let address = text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback());
    let address = address.ok_or_else(|| MeasureError::Value {
        parameter: ADDRESS.name.to_owned(),
        value: text.to_owned(),
        expected: "an address that no other machine reaches, such as 127.0.0.1:8125,".to_owned(),
    })?;
    let what = format!("udp {address}");
    let failed = |error: io::Error| problem(&what, error);
    let socket = UdpSocket::bind(address).map_err(failed)?;
    socket.set_read_timeout(Some(TICK)).map_err(failed)?;
    let registry = Arc::new(Registry::default());
    let weak = Arc::downgrade(&registry);
    thread::Builder::new().name("statsd".into()).spawn(move || receive(&socket, &weak)).map_err(failed)?;
    Ok(Server(registry))
}

impl Measure<Metrics> for Server {
    fn measure(&mut self, _: Moment, sample: &mut Metrics) -> Result<(), MeasureError> {
        self.0.read(sample);
        Ok(())
    }
}

fn receive(socket: &UdpSocket, registry: &Weak<Registry>) {
    let mut bytes = vec![0; MAX_BYTES];
    while let Some(registry) = registry.upgrade() {
        match socket.recv(&mut bytes) {
            Ok(len) => take(&registry, bytes.get(..len).unwrap_or_default()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            // An error of the socket may be permanent: the thread must not use all processor time.
            Err(_) => thread::sleep(TICK),
        }
    }
}

/// Applies the lines of a datagram. Invalid lines are counted as refused.
fn take(registry: &Registry, datagram: &[u8]) {
    for line in datagram.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        let done = std::str::from_utf8(line).ok().and_then(|line| parse(line.trim()));
        match done {
            Some(line) => line.apply(registry),
            None => registry.refuse(),
        }
    }
}

struct Line<'a> {
    key: Key,
    value: &'a str,
    number: f64,
    kind: &'a str,
    /// The fraction of the events that the sender reports.
    rate: f64,
}

/// Parses `NAME:VALUE|TYPE`, then in any order `|@RATE` and `|#NAME:VALUE,..`.
fn parse(line: &str) -> Option<Line<'_>> {
    let (name, rest) = line.split_once(':').filter(|(name, _)| !name.is_empty())?;
    let mut parts = rest.split('|');
    let value = parts.next()?;
    let number = value.parse().ok().filter(|number: &f64| number.is_finite())?;
    let (kind, mut rate, mut labels) = (parts.next()?, 1.0, Vec::new());
    for part in parts {
        if let Some(text) = part.strip_prefix('@') {
            rate = text.parse().ok().filter(|rate| *rate > 0.0 && *rate <= 1.0)?;
        } else if let Some(tags) = part.strip_prefix('#') {
            labels.extend(tags.split(',').filter(|tag| !tag.is_empty()).map(label));
        } else {
            return None;
        }
    }
    Some(Line { key: Key::new(name, labels), value, number, kind, rate })
}

fn label(tag: &str) -> Label {
    let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
    Label { name: name.to_owned(), value: value.to_owned() }
}

impl Line<'_> {
    /// Updates the figure. The registry counts the figures that it refuses.
    fn apply(self, registry: &Registry) {
        let Line { key, value, number, kind, rate } = self;
        match kind {
            "c" => registry.counter(key).iter().for_each(|counter| counter.add(number / rate)),
            // A value with a sign is a change.
            "g" if value.starts_with(['+', '-']) => registry.gauge(key).iter().for_each(|gauge| gauge.add(number)),
            "g" => registry.gauge(key).iter().for_each(|gauge| gauge.set(number)),
            "ms" | "h" | "d" => {
                let times = (1.0 / rate).round().min(MAX_TIMES) as u64;
                registry.spread(key).iter().for_each(|spread| spread.observe(number, times));
            }
            _ => registry.refuse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::input::MetricKind;

    proptest! {
        /// Each line that a program sends updates a figure or is counted as refused.
        #[test]
        fn any_datagram_is_taken(lines in prop::collection::vec("[ab]{0,2}[:|@#,+-]{0,3}[0-9.]{0,3}[|@#cghmsd:]{0,6}", 0..20)) {
            let registry = Registry::default();
            take(&registry, lines.join("\n").as_bytes());
            let told = lines.iter().filter(|line| !line.is_empty()).count() as u64;
            let found = sample(&registry);
            let figures = found.metrics.len() + found.distributions.len();
            prop_assert!(found.refused <= told && (figures as u64) <= told - found.refused);
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            take(&Registry::default(), &bytes);
        }
    }

    fn sample(registry: &Registry) -> Metrics {
        let mut sample = Metrics::default();
        registry.read(&mut sample);
        sample
    }

    #[test]
    fn lines_change_figures() {
        let registry = Registry::default();
        take(
            &registry,
            b"hits:2|c\nhits:1|c|@0.5\nlevel:5|g\nlevel:-1.5|g\n\nlevel:+1|g\r\nt:250|ms|#site:a,debug|@0.25\n\
            u:9|h|@1e-300\n",
        );
        let found = sample(&registry);
        let metrics: Vec<(&str, MetricKind, f64)> =
            found.metrics.iter().map(|metric| (metric.name.as_str(), metric.kind, metric.value)).collect();
        assert_eq!(metrics, [("hits", MetricKind::Counter, 4.0), ("level", MetricKind::Gauge, 4.5)]);
        let time = &found.distributions[0];
        assert_eq!((time.name.as_str(), time.count, time.labels.len(), found.refused), ("t", 4, 2, 0));
        assert_eq!(found.distributions[1].count, MAX_TIMES as u64);
    }

    #[test]
    fn hostile_datagrams_are_counted() {
        let registry = Registry::default();
        let lines: [&[u8]; 11] = [
            b"",
            b"x",
            b"x:1",
            b"x:1|q",
            b":1|c",
            b"x:nan|c",
            b"x:1|c|@0",
            b"x:1|c|@nan",
            b"x:1|c|?",
            b"\xff:1|c",
            b"x:|c",
        ];
        lines.iter().for_each(|line| take(&registry, line));
        take(&registry, b"x:1|c\nx:1|g");
        let found = sample(&registry);
        assert_eq!((found.metrics.len(), found.refused), (1, 11));
    }

    #[test]
    fn datagrams_arrive_and_the_socket_ends_with_the_probe() {
        let mut settings = Settings::default();
        let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").to_string();
        settings.set(PROBE.parameters, "address", &free).expect("known");
        let mut server = open(&settings).expect("opened");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut found = Metrics::default();
        // A datagram may be lost.
        while found.metrics.is_empty() {
            sender.send_to(b"level:7|g", &free).expect("sent");
            thread::yield_now();
            server.measure(Moment::default(), &mut found).expect("a sample");
        }
        assert_eq!(found.metrics[0].value, 7.0);
        assert!(open(&settings).is_err_and(|error| error.to_string().contains("udp 127.0.0.1")));
        drop(server);
        while UdpSocket::bind(&free).is_err() {
            thread::yield_now();
        }
        settings.set(PROBE.parameters, "address", "0.0.0.0:8125").expect("known");
        assert!(open(&settings).is_err_and(|error| error.to_string().contains("that no other machine reaches")));
    }
}
