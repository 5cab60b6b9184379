//! The input `prometheus`: reads figures that a program serves over HTTP in the text format of
//! Prometheus exporters.

use std::{collections::BTreeMap, time::Duration};

use polywire::Message as _;

use super::{Label, MAX_METRICS, Metric, MetricKind, Metrics, fetch::Fetch, needed};
use crate::{MeasureError, Parameter, ProbeType, Settings, http::Url, probe::boxed};

const URL: Parameter =
    Parameter { name: "url", summary: "Where the figures are, such as http://127.0.0.1:9100/metrics", default: "" };

const TIMEOUT: Parameter = Parameter { name: "timeout", summary: "Seconds that the server may take", default: "10" };

/// The maximum value of the parameter `timeout`, in seconds.
const MAX_SECONDS: usize = 3600;

/// The maximum size of a reply in bytes.
const MAX_BYTES: usize = 16 << 20;

pub(super) const PROBE: ProbeType = ProbeType {
    name: "prometheus",
    summary: "What an exporter for Prometheus serves",
    uuid: super::UUID,
    version: super::VERSION,
    pdl: super::PDL,
    every: Duration::from_secs(10),
    parameters: &[URL, TIMEOUT],
    shape: Metrics::shape,
    open: |_, settings| open(settings).map(boxed::<Metrics>),
};

fn open(settings: &Settings) -> Result<Fetch, MeasureError> {
    let url = settings.get(&URL).to_owned();
    let place = Url::parse(&url, 80).ok_or_else(|| match url.as_str() {
        "" => needed(&URL, "a URL such as http://127.0.0.1:9100/metrics"),
        url => MeasureError::Value {
            parameter: URL.name.to_owned(),
            value: url.to_owned(),
            expected: "a URL such as http://127.0.0.1:9100/metrics".to_owned(),
        },
    })?;
    let timeout = Duration::from_secs(settings.number(&TIMEOUT, MAX_SECONDS)? as u64);
    Fetch::start(&url, move || {
        let reply = place.get("text/plain;version=0.0.4", timeout, MAX_BYTES)?;
        Ok(read(std::str::from_utf8(&reply).map_err(|_| "the reply is no UTF-8")?))
    })
}

/// Parses the text format. Invalid lines are counted as refused.
fn read(text: &str) -> Metrics {
    let (mut sample, mut kinds) = (Metrics::default(), BTreeMap::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(comment) = line.strip_prefix('#') {
            let mut words = comment.split_ascii_whitespace();
            if let (Some("TYPE"), Some(name), Some(kind)) = (words.next(), words.next(), words.next())
                && kinds.len() < MAX_METRICS
            {
                kinds.insert(name, kind);
            }
            continue;
        }
        match parse(line).filter(|_| sample.metrics.len() < MAX_METRICS) {
            Some((name, labels, value)) => {
                let (kind, name) = (kind_of(&kinds, name), name.to_owned());
                sample.metrics.push(Metric { name, labels, kind, value });
            }
            None => sample.refused += 1,
        }
    }
    sample
}

/// Returns the kind of a figure. The parts of a histogram or a summary are counters, except for
/// quantiles.
fn kind_of(kinds: &BTreeMap<&str, &str>, name: &str) -> MetricKind {
    let part = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    match (kinds.get(name), part.and_then(|whole| kinds.get(whole))) {
        (Some(&"counter"), _) | (None, Some(&"histogram" | &"summary")) => MetricKind::Counter,
        (Some(&"gauge" | &"summary"), _) => MetricKind::Gauge,
        _ => MetricKind::Untyped,
    }
}

/// Parses `NAME{LABEL="VALUE",..} VALUE [TIME]`.
fn parse(line: &str) -> Option<(&str, Vec<Label>, f64)> {
    let end = line.find(|c: char| c == '{' || c.is_ascii_whitespace())?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    let mut words = rest.split_ascii_whitespace();
    let value = words.next()?.parse().ok()?;
    let is_time = |word: &str| word.parse::<f64>().is_ok();
    let is_over = words.next().is_none_or(is_time) && words.next().is_none();
    (is_over && !name.is_empty()).then_some((name, labels, value))
}

/// Parses the labels up to the closing brace, and returns them and the rest of the text.
fn labels(mut text: &str) -> Option<(Vec<Label>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start();
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once('=')?;
        let (value, rest) = quoted(rest.trim_start().strip_prefix('"')?)?;
        labels.push(Label { name: name.trim().to_owned(), value });
        text = rest.trim_start();
        text = text.strip_prefix(',').or_else(|| text.starts_with('}').then_some(text))?;
    }
}

/// Parses a text up to the closing quote, and returns it and the rest of the text.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use proptest::prelude::*;

    use super::*;
    use crate::{Measure as _, Moment};

    proptest! {
        /// Each line that a server sends is a figure, a comment, or counted as refused.
        #[test]
        fn any_text_is_read(lines in prop::collection::vec("[a-z{}=\",\\\\ .0-9#é]{0,30}", 0..20)) {
            let sample = read(&lines.join("\n"));
            let told = lines.iter().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#')).count();
            prop_assert_eq!(sample.metrics.len() + sample.refused as usize, told);
        }

    }

    #[test]
    fn the_text_format_is_read() {
        let text = "# HELP a Help\n# TYPE a counter\na 1\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 7 1700000000000\n\
                    h_sum 2.5e1\n# TYPE g gauge\ng{ x = \"a\\\"b\\n\\\\\" , y=\"}\", } -Inf\nfree 3\n";
        let sample = read(text);
        let found: Vec<(&str, MetricKind, f64)> =
            sample.metrics.iter().map(|metric| (metric.name.as_str(), metric.kind, metric.value)).collect();
        assert_eq!(
            found,
            [
                ("a", MetricKind::Counter, 1.0),
                ("h_bucket", MetricKind::Counter, 7.0),
                ("h_sum", MetricKind::Counter, 25.0),
                ("g", MetricKind::Gauge, f64::NEG_INFINITY),
                ("free", MetricKind::Untyped, 3.0),
            ]
        );
        let labels: Vec<(&str, &str)> =
            sample.metrics[3].labels.iter().map(|label| (label.name.as_str(), label.value.as_str())).collect();
        assert_eq!((labels, sample.refused), (vec![("x", "a\"b\n\\"), ("y", "}")], 0));
    }

    #[test]
    fn wrong_lines_are_counted() {
        let lines =
            ["a", "a x", "a 1 2 3", "a 1 x", "{} 1", "a{x} 1", "a{x=\"} 1", "a{x=\"y\" 1", "a{x=\"y\"z=\"\"} 1"];
        let sample = read(&lines.join("\n"));
        assert_eq!((sample.metrics.len(), sample.refused), (0, lines.len() as u64), "{:?}", sample.metrics);
        let sample = read(&"a 1\n".repeat(MAX_METRICS + 3));
        assert_eq!((sample.metrics.len(), sample.refused), (MAX_METRICS, 3));
    }

    #[test]
    fn figures_come_over_http_and_failures_are_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let replies = ["HTTP/1.1 200 OK\r\nX: y\r\n\r\nup 1\n", "HTTP/1.1 404 Not Found\r\n\r\n", "nonsense"];
        let serving = thread::spawn(move || {
            for reply in replies {
                let (mut caller, _) = listener.accept().expect("a caller");
                let mut request = [0; 512];
                let len = caller.read(&mut request).expect("a request");
                assert!(request[..len].starts_with(b"GET /metrics HTTP/1.0\r\n"));
                caller.write_all(reply.as_bytes()).expect("a reply");
            }
        });
        let mut settings = Settings::default();
        settings.set(PROBE.parameters, "url", &format!("http://{address}/metrics")).expect("known");
        let mut fetch = open(&settings).expect("opened");
        let mut next = || loop {
            let mut sample = Metrics::default();
            match fetch.measure(Moment::default(), &mut sample) {
                Err(error) if error.to_string().ends_with("nothing has come yet") => thread::yield_now(),
                other => break other.map(|()| sample).map_err(|error| error.to_string()),
            }
        };
        assert_eq!(next().expect("figures").metrics[0].name, "up");
        assert!(next().is_err_and(|error| error.ends_with("the server says 'HTTP/1.1 404 Not Found'")));
        assert!(next().is_err_and(|error| error.ends_with("the reply is no HTTP")));
        serving.join().expect("served");
        assert!(next().is_err(), "nobody listens any more");
    }
}
