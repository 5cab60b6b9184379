//! The kind `otlp`: numbers as gauges, for an OpenTelemetry collector, by OTLP over HTTP with JSON.

use std::time::Duration;

use polywire::Kind as Message;
use polywire_telemetry::http::Url;
use serde_json::{Value, json};

use super::{Handler, Kind};
use crate::{
    Entry, Expects, HandlerError, Setting,
    numbers::{Number, instance, numbers},
};

/// The maximum number of numbers in a request.
const MAX_NUMBERS: usize = 10_000;

/// The port of OTLP over HTTP.
const PORT: u16 = 4318;

/// The maximum size of a reply in bytes.
const MAX_REPLY: usize = 1 << 20;

/// The time limit for a request.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) static KIND: Kind = Kind {
    name: "otlp",
    summary: "Numbers as metrics of OpenTelemetry, over HTTP",
    settings: &[Setting {
        name: "to",
        expects: Expects::Required,
        summary: "address of the server, such as http://127.0.0.1:4318; the path is /v1/metrics unless it has one",
    }],
    open: |settings, context| {
        let to = settings.text("to").unwrap_or_default();
        let expected = || format!("'to': an address such as http://127.0.0.1:4318 is expected, not '{to}'");
        let url = Url::parse(to, PORT).ok_or_else(|| HandlerError::Setting(expected()))?.or_path("/v1/metrics");
        Ok(Box::new(Export { url, service: context.node().name().to_owned(), metrics: Vec::new() }))
    },
};

struct Export {
    url: Url,
    /// The name of the collector's node.
    service: String,
    /// The metrics that were not sent to the server yet.
    metrics: Vec<Value>,
}

impl Handler for Export {
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        if entry.kind != Message::Data {
            return Err(HandlerError::Refused("metrics have no ends of instances".into()));
        }
        let before = self.metrics.len();
        let instance = instance(entry)?;
        let all = numbers(entry.value.view(), MAX_NUMBERS, &mut |path, index, number| {
            self.metrics.push(gauge(entry, &instance, path, index, number));
        });
        if all.is_err() {
            self.metrics.truncate(before);
            return all;
        }
        match self.metrics.len() > MAX_NUMBERS {
            true => self.send(),
            false => Ok(()),
        }
    }

    /// Waits until the server has accepted all metrics.
    fn sync(&mut self) -> Result<(), HandlerError> {
        if self.metrics.is_empty() { Ok(()) } else { self.send() }
    }
}

impl Export {
    fn send(&mut self) -> Result<(), HandlerError> {
        let metrics = std::mem::take(&mut self.metrics);
        let scope = json!({ "name": "polywire", "version": env!("CARGO_PKG_VERSION") });
        let body = json!({ "resourceMetrics": [{
            "resource": { "attributes": [attribute("service.name", &self.service)] },
            "scopeMetrics": [{ "scope": scope, "metrics": metrics }],
        }] });
        let failed = |reason: String| HandlerError::Failed(format!("{}: {reason}", self.url));
        let body = body.to_string();
        let reply = self.url.post("application/json", body.as_bytes(), PATIENCE, MAX_REPLY).map_err(failed)?;
        warn_of_rejected(&reply);
        Ok(())
    }
}

/// Logs numbers that the server has rejected, although it accepted the request. That is final.
fn warn_of_rejected(reply: &[u8]) {
    let reply: Value = serde_json::from_slice(reply).unwrap_or_default();
    let partial = &reply["partialSuccess"];
    // In Protobuf's JSON, 64-bit numbers are strings.
    let rejected = partial["rejectedDataPoints"].as_str().map_or(0, |number| number.parse().unwrap_or(0));
    if rejected.max(partial["rejectedDataPoints"].as_u64().unwrap_or(0)) > 0 {
        log::warn!("otlp: the server rejects numbers: {partial}");
    }
}

fn gauge(entry: &Entry, instance: &str, path: &str, index: &str, number: Number) -> Value {
    let mut attributes = vec![attribute("topic", entry.topic())];
    for (name, text) in [("key", instance), ("index", index)] {
        if !text.is_empty() {
            attributes.push(attribute(name, text));
        }
    }
    let time = entry.timestamp_ns.max(0).to_string();
    let mut point = json!({ "timeUnixNano": time, "attributes": attributes });
    match number {
        Number::Int(number) => point["asInt"] = number.to_string().into(),
        Number::Float(number) => point["asDouble"] = double(number),
    }
    let of = entry.type_name().replace("::", ".");
    let name = if path.is_empty() { of } else { format!("{of}.{path}") };
    json!({ "name": name, "gauge": { "dataPoints": [point] } })
}

fn attribute(key: &str, text: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": text } })
}

/// Returns a `double` in Protobuf's JSON.
fn double(number: f64) -> Value {
    match number {
        _ if number.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        _ => number.into(),
    }
}

#[cfg(test)]
mod tests {
    use polywire::{Message as _, Record, Shape};

    use super::*;

    #[derive(Default, polywire::Message)]
    #[polywire(name = "plant::Pump")]
    struct Pump {
        #[polywire(key)]
        id: u32,
        levels: Vec<f64>,
        total: u64,
    }

    #[test]
    fn numbers_are_gauges_with_attributes() {
        let mut record = Record::new(&Shape::of(Pump::shape().schema()).expect("a shape"));
        record.set("id", 7).expect("set");
        record.resize("levels", 2).expect("set");
        record.set("levels[1]", f64::NAN).expect("set");
        record.set("total", u64::MAX).expect("set");
        let entry = Entry::new(Default::default(), 1, -5, record);
        let mut found = Vec::new();
        let all = numbers(entry.value.view(), MAX_NUMBERS, &mut |path, index, number| {
            found.push(gauge(&entry, "id=7", path, index, number));
        });
        all.expect("few");
        let [id, first, second, total] = &found[..] else { panic!("{found:?}") };
        let point = |metric: &Value| metric["gauge"]["dataPoints"][0].clone();
        assert_eq!((&id["name"], &point(id)["asInt"]), (&json!("plant.Pump.id"), &json!("7")));
        assert_eq!((&first["name"], &point(first)["asDouble"]), (&json!("plant.Pump.levels"), &json!(0.0)));
        assert_eq!(point(second)["asDouble"], "NaN");
        assert_eq!(point(second)["attributes"][2], attribute("index", "1"));
        assert_eq!(point(total)["asDouble"], json!(u64::MAX as f64), "the protocol has integers with a sign");
        assert_eq!(point(total)["timeUnixNano"], "0");
    }
}
