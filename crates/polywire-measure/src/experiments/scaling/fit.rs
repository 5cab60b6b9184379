//! The cost model of the scaling page: the CPU time of a message is a sum of parts, whose costs are
//! fitted to measurements. Only arithmetic.

/// The quantities that determine the cost of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Subscribers that receive the message.
    pub subscribers: f64,
    /// Topics to which the sender publishes in turn.
    pub topics: f64,
    /// Fields of the message.
    pub fields: f64,
    /// Bytes of the message.
    pub bytes: f64,
}

/// A part of a cost. `times` returns how often a message of the given load incurs it.
#[derive(Clone, Copy)]
pub struct Part {
    pub name: &'static str,
    pub times: fn(&Load) -> f64,
}

/// The part for subscribers that compete for the processors and caches of one machine. A system
/// whose subscribers have hosts of their own does not have it.
pub const SHARED: &str = "competition on one machine (square of the subscribers beyond four)";

fn shared(load: &Load) -> f64 {
    (load.subscribers - 4.0).max(0.0).powi(2)
}

/// The parts of the sender's cost. The sender encodes a value once and sends it to each subscriber.
pub const SEND: &[Part] = &[
    Part { name: "a message", times: |_| 1.0 },
    Part { name: "a subscriber", times: |load| load.subscribers },
    Part { name: "a KB", times: |load| load.bytes / 1024.0 },
    Part { name: "a KB and subscriber", times: |load| load.bytes / 1024.0 * load.subscribers },
    Part { name: "a field", times: |load| load.fields },
    Part { name: "each further topic", times: |load| load.topics - 1.0 },
    Part { name: SHARED, times: shared },
];

/// The parts of the cost of all receivers together. Each of them decodes the message.
pub const RECEIVE: &[Part] = &[
    Part { name: "a message and subscriber", times: |load| load.subscribers },
    Part { name: "a KB and subscriber", times: |load| load.bytes / 1024.0 * load.subscribers },
    Part { name: "a field and subscriber", times: |load| load.fields * load.subscribers },
    Part { name: "each further topic, and subscriber", times: |load| (load.topics - 1.0) * load.subscribers },
    Part { name: SHARED, times: shared },
];

/// The fitted costs of some parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Nanoseconds of each part, in the order of the parts.
    pub costs: Vec<f64>,
}

impl Fit {
    /// Fits non-negative costs by least squares of the relative errors. `None` if the points do not
    /// determine them.
    pub fn of(parts: &[Part], points: &[(Load, f64)]) -> Option<Fit> {
        let points: Vec<&(Load, f64)> = points.iter().filter(|(_, cost)| *cost > 0.0).collect();
        // A part that no point has cannot be fitted. Its cost stays 0.
        let varies = |part: &usize| points.iter().any(|(load, _)| (parts[*part].times)(load) != 0.0);
        let mut used: Vec<usize> = (0..parts.len()).filter(varies).collect();
        loop {
            let row = |(load, cost): &&(Load, f64)| used.iter().map(|part| (parts[*part].times)(load) / cost).collect();
            let rows: Vec<Vec<f64>> = points.iter().map(row).collect();
            let solved = least_squares(&rows, used.len())?;
            let worst = (0..used.len()).filter(|i| solved[*i] < 0.0).min_by(|a, b| solved[*a].total_cmp(&solved[*b]));
            match worst {
                // Omit the part with the most negative cost and fit the others again.
                Some(worst) => drop(used.remove(worst)),
                None => {
                    let mut costs = vec![0.0; parts.len()];
                    used.iter().zip(solved).for_each(|(part, cost)| costs[*part] = cost);
                    return Some(Fit { costs });
                }
            }
        }
    }

    /// The cost of a message with this load, in nanoseconds.
    pub fn cost(&self, parts: &[Part], load: &Load) -> f64 {
        parts.iter().zip(&self.costs).map(|(part, cost)| cost * (part.times)(load)).sum()
    }

    /// The same costs, except that this part costs nothing.
    pub fn without(&self, parts: &[Part], name: &str) -> Fit {
        let kept = |(part, cost): (&Part, &f64)| if part.name == name { 0.0 } else { *cost };
        Fit { costs: parts.iter().zip(&self.costs).map(kept).collect() }
    }

    /// Relative errors of the model: median and maximum. `None` if there are no points.
    pub fn errors(&self, parts: &[Part], points: &[(Load, f64)]) -> Option<(f64, f64)> {
        let mut errors: Vec<f64> =
            points.iter().map(|(load, cost)| (self.cost(parts, load) - cost).abs() / cost).collect();
        errors.sort_by(f64::total_cmp);
        Some((*errors.get(errors.len() / 2)?, *errors.last()?))
    }
}

/// The weights for which the weighted sums of the rows are closest to 1. `None` if the rows do not
/// determine them.
fn least_squares(rows: &[Vec<f64>], count: usize) -> Option<Vec<f64>> {
    if rows.len() < count || count == 0 {
        return None;
    }
    let sum = |i: usize, j: usize| rows.iter().map(|row| row[i] * row[j]).sum::<f64>();
    let mut matrix: Vec<Vec<f64>> = (0..count)
        .map(|i| (0..count).map(|j| sum(i, j)).chain([rows.iter().map(|row| row[i]).sum()]).collect())
        .collect();
    for at in 0..count {
        let pivot = (at..count).max_by(|a, b| matrix[*a][at].abs().total_cmp(&matrix[*b][at].abs()))?;
        matrix.swap(at, pivot);
        let own = matrix[at].clone();
        if own[at].abs() < f64::MIN_POSITIVE {
            return None;
        }
        for (i, row) in matrix.iter_mut().enumerate().filter(|(i, _)| *i != at) {
            debug_assert!(i != at);
            let times = row[at] / own[at];
            row.iter_mut().zip(&own).for_each(|(value, own)| *value -= times * own);
        }
    }
    Some((0..count).map(|i| matrix[i][count] / matrix[i][i]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads() -> Vec<Load> {
        let mut loads = Vec::new();
        for subscribers in [1.0, 3.0, 9.0] {
            for bytes in [10.0, 1000.0, 9000.0] {
                for (topics, fields) in [(1.0, 1.0), (8.0, 100.0), (64.0, 7.0)] {
                    loads.push(Load { subscribers, topics, fields, bytes });
                }
            }
        }
        loads
    }

    #[test]
    fn a_cost_that_is_such_a_sum_is_found_again() {
        let truth = Fit { costs: vec![300.0, 40.0, 90.0, 55.0, 2.0, 10.0, 5.0] };
        let points: Vec<(Load, f64)> = loads().iter().map(|load| (*load, truth.cost(SEND, load))).collect();
        let fit = Fit::of(SEND, &points).expect("enough points");
        for (own, true_cost) in fit.costs.iter().zip(&truth.costs) {
            assert!((own - true_cost).abs() < 1e-6 * true_cost, "{fit:?}");
        }
        let (middle, most) = fit.errors(SEND, &points).expect("points");
        assert!(middle < 1e-9 && most < 1e-9);
        let apart = fit.without(SEND, SHARED);
        assert!((fit.cost(SEND, &points[26].0) - apart.cost(SEND, &points[26].0) - 25.0 * 5.0).abs() < 1e-3);
    }

    #[test]
    fn parts_that_are_not_there_cost_nothing_and_too_little_gives_nothing() {
        let points: Vec<(Load, f64)> = loads().iter().map(|load| (*load, 500.0 - load.topics)).collect();
        let fit = Fit::of(SEND, &points).expect("enough points");
        assert!(fit.costs.iter().all(|cost| *cost >= 0.0) && fit.costs[5] == 0.0, "{fit:?}");
        assert!(fit.errors(SEND, &points).expect("points").1 > 0.01, "what the model lacks shows as an error");
        assert_eq!(Fit::of(SEND, &points[..3]), None);
        assert_eq!(fit.errors(SEND, &[]), None);
    }
}
