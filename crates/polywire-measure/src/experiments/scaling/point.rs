//! The measured cases as input of the cost model, and which of them are held out to check it.

use super::fit::Load;
use crate::{Case, CaseResult, Results};

/// The model is not fitted to cases with one of these numbers of subscribers, fields or topics.
const HELD_OUT: (&[usize], &[usize], &[usize]) = (&[2, 6, 12, 24], &[25, 50, 175, 400], &[3, 30, 300]);

/// Numbers of subscribers that are modelled.
pub const SUBSCRIBERS: [usize; 6] = [1, 10, 100, 1000, 3000, 10_000];

/// Sizes of the modelled messages, in bytes.
pub const SIZES: [f64; 2] = [250.0, 16_000.0];

/// A measured case: its load, and the CPU time per message of the sender and of all receivers.
pub struct Point {
    pub case: Case,
    pub load: Load,
    pub send_ns: f64,
    pub receive_ns: f64,
}

/// The measured cases of an engine that have all figures of a [`Point`].
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

/// True if the case serves to check the model, not to fit it.
pub fn is_held_out(case: &Case) -> bool {
    let (subscribers, fields, topics) = HELD_OUT;
    subscribers.contains(&case.subscribers) || fields.contains(&case.fields) || topics.contains(&case.topics)
}
