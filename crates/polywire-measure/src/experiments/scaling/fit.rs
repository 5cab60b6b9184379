//! Models costs as sums of parts, fitted to measurements.

/// What a cost hangs on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Receivers of the message.
    pub subscribers: f64,
    /// Topics of the sender that take turns.
    pub topics: f64,
    /// Fields of the message.
    pub fields: f64,
    /// Its bytes.
    pub bytes: f64,
}

/// A part of a cost: its name, and how often a load has it.
#[derive(Clone, Copy)]
pub struct Part {
    pub name: &'static str,
    pub times: fn(&Load) -> f64,
}

/// What subscribers cost each other on one machine, whose processors and caches they share: it is
/// no part of systems whose subscribers have hosts of their own.
pub const SHARED: &str = "competition on one machine, by the square of the subscribers beyond four";

fn shared(load: &Load) -> f64 {
    (load.subscribers - 4.0).max(0.0).powi(2)
}

/// Of the sender: the value is written once, and sent to each subscriber.
pub const SEND: &[Part] = &[
    Part { name: "a message", times: |_| 1.0 },
    Part { name: "a subscriber", times: |load| load.subscribers },
    Part { name: "a KB", times: |load| load.bytes / 1024.0 },
    Part { name: "a KB and subscriber", times: |load| load.bytes / 1024.0 * load.subscribers },
    Part { name: "a field", times: |load| load.fields },
    Part { name: "each further topic", times: |load| load.topics - 1.0 },
    Part { name: SHARED, times: shared },
];

/// Of all receivers together: each reads it.
pub const RECEIVE: &[Part] = &[
    Part { name: "a message and subscriber", times: |load| load.subscribers },
    Part { name: "a KB and subscriber", times: |load| load.bytes / 1024.0 * load.subscribers },
    Part { name: "a field and subscriber", times: |load| load.fields * load.subscribers },
    Part { name: "each further topic, and subscriber", times: |load| (load.topics - 1.0) * load.subscribers },
    Part { name: SHARED, times: shared },
];

/// Parts with what each costs, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    pub costs: Vec<f64>,
}

impl Fit {
    /// Least squares of the relative errors, none of the costs below 0; none where there is too
    /// little to fit.
    pub fn of(parts: &[Part], points: &[(Load, f64)]) -> Option<Fit> {
        let points: Vec<&(Load, f64)> = points.iter().filter(|(_, cost)| *cost > 0.0).collect();
        // What no point has cannot be told from nothing.
        let varies = |part: &usize| points.iter().any(|(load, _)| (parts[*part].times)(load) != 0.0);
        let mut used: Vec<usize> = (0..parts.len()).filter(varies).collect();
        loop {
            let row = |(load, cost): &&(Load, f64)| used.iter().map(|part| (parts[*part].times)(load) / cost).collect();
            let rows: Vec<Vec<f64>> = points.iter().map(row).collect();
            let solved = least_squares(&rows, used.len())?;
            let worst = (0..used.len()).filter(|i| solved[*i] < 0.0).min_by(|a, b| solved[*a].total_cmp(&solved[*b]));
            match worst {
                // A part that would have to give time back is not there.
                Some(worst) => drop(used.remove(worst)),
                None => {
                    let mut costs = vec![0.0; parts.len()];
                    used.iter().zip(solved).for_each(|(part, cost)| costs[*part] = cost);
                    return Some(Fit { costs });
                }
            }
        }
    }

    /// Nanoseconds that a message costs.
    pub fn cost(&self, parts: &[Part], load: &Load) -> f64 {
        parts.iter().zip(&self.costs).map(|(part, cost)| cost * (part.times)(load)).sum()
    }

    /// The same costs without this part.
    pub fn without(&self, parts: &[Part], name: &str) -> Fit {
        let kept = |(part, cost): (&Part, &f64)| if part.name == name { 0.0 } else { *cost };
        Fit { costs: parts.iter().zip(&self.costs).map(kept).collect() }
    }

    /// How far off the model is, as parts of what was measured: in the middle, and at worst.
    pub fn errors(&self, parts: &[Part], points: &[(Load, f64)]) -> Option<(f64, f64)> {
        let mut errors: Vec<f64> =
            points.iter().map(|(load, cost)| (self.cost(parts, load) - cost).abs() / cost).collect();
        errors.sort_by(f64::total_cmp);
        Some((*errors.get(errors.len() / 2)?, *errors.last()?))
    }
}

/// Weights with which the rows come closest to 1.
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
        assert!(fit.errors(SEND, &points).expect("points").1 > 0.01, "what the model cannot say shows as an error");
        assert_eq!(Fit::of(SEND, &points[..3]), None);
        assert_eq!(fit.errors(SEND, &[]), None);
    }
}
