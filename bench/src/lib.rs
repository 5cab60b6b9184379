//! Measuring side by side: the candidates take turns, so that what else the machine does hits all of them alike.

use std::time::{Duration, Instant};

/// Something to be measured: one call goes once through all of its messages.
pub struct Candidate<'a> {
    /// Name in the table.
    pub name: String,
    /// Goes through all messages.
    pub round: Box<dyn FnMut() + 'a>,
}

impl<'a> Candidate<'a> {
    /// A candidate.
    pub fn new(name: impl Into<String>, round: impl FnMut() + 'a) -> Candidate<'a> {
        Candidate { name: name.into(), round: Box::new(round) }
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Turns that each candidate gets.
    pub turns: usize,
    /// How long a turn lasts at least.
    pub turn: Duration,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { turns: 31, turn: Duration::from_millis(8) }
    }
}

/// Median nanoseconds a message of each candidate, in their order.
pub fn medians(messages: usize, candidates: &mut [Candidate<'_>], effort: Effort) -> Vec<f64> {
    let mut turns = vec![Vec::with_capacity(effort.turns); candidates.len()];
    for _ in 0..effort.turns {
        for (candidate, turns) in candidates.iter_mut().zip(&mut turns) {
            let (start, mut rounds) = (Instant::now(), 0);
            while start.elapsed() < effort.turn {
                (candidate.round)();
                rounds += 1;
            }
            turns.push(start.elapsed().as_nanos() as f64 / (rounds * messages) as f64);
        }
    }
    turns.iter_mut().map(|turns| median(turns)).collect()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
