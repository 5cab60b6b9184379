//! Cases of the scaling scenarios that were measured, and those that the model must predict.

use super::fit::Load;
use crate::{Case, CaseResult, Results};

/// Cases that the model has not seen.
const HELD_OUT: (&[usize], &[usize], &[usize]) = (&[2, 6, 12, 24], &[25, 50, 175, 400], &[3, 30, 300]);

pub const SUBSCRIBERS: [usize; 6] = [1, 10, 100, 1000, 3000, 10_000];

/// Bytes of the messages that are modelled.
pub const SIZES: [f64; 2] = [250.0, 16_000.0];

/// A measured case.
pub struct Point {
    pub case: Case,
    pub load: Load,
    pub send_ns: f64,
    pub receive_ns: f64,
}

pub fn points(results: &Results, engine: &str) -> Vec<Point> {
    let point = |result: &CaseResult| {
        let figure = |metric: &str| Some(result.metrics.get(metric)?.value);
        let case = &result.case;
        let load = Load {
            subscribers: case.subscribers as f64,
            topics: case.topics as f64,
            fields: case.fields.max(1) as f64,
            bytes: figure("bytes")?,
        };
        let (send_ns, receive_ns) = (figure("send_cpu_ns")?, figure("receive_cpu_ns")?);
        Some(Point { case: case.clone(), load, send_ns, receive_ns })
    };
    results.cases.iter().filter(|result| result.case.engine == engine).filter_map(point).collect()
}

pub fn is_held_out(case: &Case) -> bool {
    let (subscribers, fields, topics) = HELD_OUT;
    subscribers.contains(&case.subscribers) || fields.contains(&case.fields) || topics.contains(&case.topics)
}
