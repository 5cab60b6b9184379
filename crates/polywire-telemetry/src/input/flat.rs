//! Flattens JSON values into named numbers and texts.

use serde_json::Value;

use super::{Label, MAX_METRICS, Metric, Metrics, registry::MAX_NAME_BYTES};

/// Adds the numbers and texts of a JSON value. A name is the path of members, joined by points.
pub(super) fn flatten(path: &mut String, value: &Value, sample: &mut Metrics) {
    let mut below = |name: &str, value: &Value, sample: &mut Metrics| {
        let len = path.len();
        path.push_str(if len == 0 { "" } else { "." });
        path.push_str(name);
        flatten(path, value, sample);
        path.truncate(len);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| below(name, value, sample)),
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(i, value)| below(&i.to_string(), value, sample));
        }
        Value::Number(number) => add(sample, path, number.as_f64(), ""),
        Value::Bool(truth) => add(sample, path, Some(f64::from(u8::from(*truth))), ""),
        Value::String(text) => add(sample, path, None, text),
        Value::Null => {}
    }
}

/// Adds a number, or the text if there is no number.
pub(super) fn add(sample: &mut Metrics, name: &str, number: Option<f64>, text: &str) {
    let is_long = name.len() + text.len() > MAX_NAME_BYTES;
    if is_long || sample.metrics.len() + sample.texts.len() >= MAX_METRICS {
        sample.refused += 1;
        return;
    }
    match number {
        Some(value) => sample.metrics.push(Metric { name: name.to_owned(), value, ..Metric::default() }),
        None => sample.texts.push(Label { name: name.to_owned(), value: text.to_owned() }),
    }
}
