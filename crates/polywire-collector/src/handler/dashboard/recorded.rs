//! The contents of the archives of the collector's other handlers: requests of the page, and their
//! JSON responses.
//!
//! A request is the query of a URL: `archive` alone requests the topics, with `topic`, `from` and
//! `to` the newest messages, and with `member` its values over time, downsampled for a plot. Times
//! are milliseconds since 1970, because numbers in JavaScript cannot represent nanoseconds.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{Archive, ArchiveError, ArchiveValue, HandlerContext, archive::Message};

/// The maximum number of requests that read at the same time.
const MAX_READERS: usize = 4;

/// The time limit of a request.
const PATIENCE: Duration = Duration::from_secs(20);

/// The maximum number of topics in a response.
const MAX_TOPICS: usize = 10_000;

/// The maximum number of messages in a response.
const MAX_MESSAGES: usize = 100;

/// The maximum number of points in a response.
const MAX_POINTS: usize = 4000;

pub(super) struct Recorded {
    context: HandlerContext,
    readers: AtomicUsize,
}

/// A request of a page.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    archive: String,
    topic: String,
    member: String,
    from_ms: Option<f64>,
    to_ms: Option<f64>,
}

impl Recorded {
    pub fn new(context: HandlerContext) -> Recorded {
        Recorded { context, readers: AtomicUsize::new(0) }
    }

    /// Returns the JSON response to the query of a URL. The error is a text for the user.
    pub fn answer(&self, query: &str) -> Result<String, String> {
        let asked = Asked::parse(query)?;
        if self.readers.fetch_add(1, Ordering::AcqRel) >= MAX_READERS {
            self.readers.fetch_sub(1, Ordering::AcqRel);
            return Err(format!("{MAX_READERS} requests are reading archives; try again later"));
        }
        let answer = self.read(&asked);
        self.readers.fetch_sub(1, Ordering::AcqRel);
        answer.map(|answer| answer.to_string())
    }

    fn read(&self, asked: &Asked) -> Result<Value, String> {
        let archives = self.context.archives();
        let path = archives.into_iter().find(|(name, _)| *name == asked.archive).map(|(_, path)| path);
        let path = path.ok_or_else(|| format!("there is no archive '{}'", asked.archive))?;
        let text = |error: ArchiveError| error.to_string();
        let (archive, until) = (Archive::open(&path).map_err(text)?, Instant::now() + PATIENCE);
        let in_time = || Instant::now() < until;
        let Asked { topic, member, .. } = asked;
        if topic.is_empty() {
            let topics = archive.topics(MAX_TOPICS, in_time).map_err(text)?;
            return Ok(json!({ "topics": topics, "complete": in_time() }));
        }
        if member.is_empty() {
            let messages = archive.newest_messages(topic, asked.times(), MAX_MESSAGES, in_time).map_err(text)?;
            let messages: Vec<Value> = messages.iter().map(message).collect();
            return Ok(json!({ "messages": messages, "complete": in_time() }));
        }
        let series = archive.series_while(topic, member, asked.times(), MAX_POINTS, in_time).map_err(text)?;
        let finite = series.points.iter().filter(|(_, value)| value.is_finite());
        let points: Vec<Value> = finite.map(|(time, value)| json!([milliseconds(*time), value])).collect();
        Ok(json!({
            "points": points, "numbers": series.numbers, "without": series.without, "complete": in_time(),
        }))
    }
}

impl Asked {
    fn parse(query: &str) -> Result<Asked, String> {
        let mut asked = Asked::default();
        for (name, value) in query.split('&').filter_map(|part| part.split_once('=')) {
            let value = decoded(value).ok_or_else(|| format!("'{name}' is no UTF-8"))?;
            let time = || {
                let time = value.parse().ok().filter(|time: &f64| time.is_finite());
                time.ok_or_else(|| format!("'{name}': milliseconds since 1970 are expected"))
            };
            match name {
                "archive" => asked.archive = value,
                "topic" => asked.topic = value,
                "member" => asked.member = value,
                "from" => asked.from_ms = Some(time()?),
                "to" => asked.to_ms = Some(time()?),
                _ => return Err(format!("'{name}' is not known here")),
            }
        }
        Ok(asked)
    }

    fn times(&self) -> RangeInclusive<i64> {
        // The conversion saturates at the limits of `i64`.
        let nanoseconds = |ms: f64| (ms * 1e6) as i64;
        self.from_ms.map_or(i64::MIN, nanoseconds)..=self.to_ms.map_or(i64::MAX, nanoseconds)
    }
}

/// Decodes a value in a URL, in which a byte may be `%` and two hexadecimal digits.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        (bytes, rest) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
                (bytes, after)
            }
            (b'%', _) => return None,
            (byte, after) => {
                bytes.push(if *byte == b'+' { b' ' } else { *byte });
                (bytes, after)
            }
        };
    }
    String::from_utf8(bytes).ok()
}

fn milliseconds(ns: i64) -> f64 {
    ns as f64 / 1e6
}

fn message(message: &Message) -> Value {
    let members = message.members.iter().map(|(path, value)| json!([path, shown(value)]));
    json!({ "time": milliseconds(message.time_ns), "members": members.collect::<Vec<_>>() })
}

fn shown(value: &ArchiveValue) -> Value {
    match value {
        ArchiveValue::Null => Value::Null,
        // JavaScript represents integers exactly only up to 2^53.
        ArchiveValue::Integer(number) if number.unsigned_abs() > 1 << 53 => json!(number.to_string()),
        ArchiveValue::Integer(number) => json!(number),
        ArchiveValue::Real(number) if !number.is_finite() => json!(number.to_string()),
        ArchiveValue::Real(number) => json!(number),
        ArchiveValue::Text(text) => json!(text),
        ArchiveValue::Blob(bytes) => json!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_and_checked() {
        let asked = Asked::parse("archive=a%20b&topic=probes%2Fx%2F%C3%A4+1&member=m&from=-2&to=1.5").expect("right");
        let expected = Asked {
            archive: "a b".into(),
            topic: "probes/x/ä 1".into(),
            member: "m".into(),
            from_ms: Some(-2.0),
            to_ms: Some(1.5),
        };
        assert_eq!(asked, expected);
        assert_eq!(asked.times(), -2_000_000..=1_500_000);
        assert_eq!(Asked::parse("").expect("nothing").times(), i64::MIN..=i64::MAX);
        assert_eq!(Asked::parse("from=1e300").expect("a number").times(), i64::MAX..=i64::MAX);
        for wrong in ["from=x", "from=NaN", "to=inf", "topic=%ff", "topic=%2", "topic=%", "topic=%zz", "sql=DROP"] {
            assert!(Asked::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_archive_must_be_one_of_the_collector() {
        let recorded = Recorded::new(HandlerContext::new(polywire::Node::new()));
        for query in ["", "archive=x", "archive=/etc/passwd", "archive=../a.db&topic=t"] {
            assert!(recorded.answer(query).is_err_and(|why| why.contains("there is no archive")), "{query}");
        }
        assert_eq!(recorded.readers.load(Ordering::Acquire), 0);
    }
}
