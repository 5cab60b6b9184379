//! Measures candidates in turns: those on this thread by its CPU time, while others measure
//! themselves. Most tables of the bench call [`compare`] or [`compare_turns`]. The module opens no
//! files or sockets and starts no threads.
//!
//! A *round* processes all messages of a workload once. A *turn* is a number of rounds that takes
//! about [`Effort::turn`]. The candidates take turns one after the other.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// A named piece of work that is measured.
pub struct Candidate<'a> {
    name: &'static str,
    bar: Option<Bar>,
    work: Work<'a>,
}

enum Work<'a> {
    /// One call is one round.
    Round(Box<dyn FnMut() + 'a>),
    /// One call is a turn of about the given length. It returns nanoseconds per message.
    Elsewhere(Box<dyn FnMut(Duration) -> f64 + 'a>),
}

impl<'a> Candidate<'a> {
    /// A candidate on this thread. Each call of `round` processes all messages once.
    pub fn new(name: &'static str, round: impl FnMut() + 'a) -> Candidate<'a> {
        Candidate { name, bar: None, work: Work::Round(Box::new(round)) }
    }

    /// A candidate that measures its own turns, for example in another process. `turn` gets the
    /// wanted length of a turn and returns nanoseconds per message.
    pub fn elsewhere(name: &'static str, turn: impl FnMut(Duration) -> f64 + 'a) -> Candidate<'a> {
        Candidate { name, bar: None, work: Work::Elsewhere(Box::new(turn)) }
    }

    /// Sets the limit on this candidate's figure.
    pub fn with_bar(mut self, bar: Bar) -> Candidate<'a> {
        self.bar = Some(bar);
        self
    }

    /// Removes the limit.
    pub fn without_bar(mut self) -> Candidate<'a> {
        self.bar = None;
        self
    }

    fn turn(&mut self, rounds: usize, messages: usize, least: Duration) -> f64 {
        match &mut self.work {
            Work::Round(round) => time(rounds, round).as_nanos() as f64 / (rounds * messages) as f64,
            Work::Elsewhere(turn) => turn(least),
        }
    }

    /// The number of rounds in a turn, found by doubling. Reading a thread's clock is a system
    /// call, so a turn reads it only at its start and end.
    fn rounds(&mut self, least: Duration) -> usize {
        let Work::Round(round) = &mut self.work else { return 1 };
        let mut rounds = 1;
        loop {
            let took = time(rounds, round);
            if took >= least / 2 || rounds >= 1 << 24 {
                return (rounds as f64 * (least.as_secs_f64() / took.as_secs_f64().max(1e-9))).ceil() as usize;
            }
            rounds *= 2;
        }
    }
}

/// CPU time of this thread during `rounds` rounds. Unlike elapsed time, it excludes the time in
/// which other threads had the core.
fn time(rounds: usize, round: &mut dyn FnMut()) -> Duration {
    let start = thread_time();
    for _ in 0..rounds {
        round();
    }
    thread_time() - start
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A limit on a candidate's time in comparison with the first candidate's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// The ratio is at most this.
    AtMost(f64),
    /// The ratio is at least this.
    AtLeast(f64),
    /// The difference is at most this many nanoseconds per message.
    PlusNs(f64),
}

/// A candidate's result.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The candidate's name.
    pub name: &'static str,
    /// Nanoseconds per message, median of the turns.
    pub ns: f64,
    /// Time as a multiple of the first candidate's: the median of the ratios of corresponding
    /// turns. NaN if there is nothing to compare with.
    #[serde(skip_serializing_if = "is_nan")]
    pub ratio: f64,
    /// Nanoseconds per message in excess of the first candidate's: the median of the differences of
    /// corresponding turns. NaN if there is nothing to compare with.
    #[serde(skip_serializing_if = "is_nan")]
    pub more_ns: f64,
    /// The limit on this figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar: Option<Bar>,
}

fn is_nan(value: &f64) -> bool {
    value.is_nan()
}

impl Figure {
    /// Whether the figure keeps its bar. True if it has none.
    pub fn holds(&self) -> bool {
        match self.bar {
            None => true,
            Some(Bar::AtMost(most)) => self.ratio <= most,
            Some(Bar::AtLeast(least)) => self.ratio >= least,
            Some(Bar::PlusNs(most)) => self.more_ns <= most,
        }
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of turns per candidate.
    pub turns: usize,
    /// Approximate length of a turn. It is shorter than a scheduler's time slice, so that adjacent
    /// turns run under the same conditions.
    pub turn: Duration,
}

impl Effort {
    /// For figures that are published.
    pub const FULL: Effort = Effort { turns: 41, turn: Duration::from_millis(4) };
    /// For a test that the benchmark runs. The figures mean nothing.
    pub const QUICK: Effort = Effort { turns: 3, turn: Duration::from_micros(500) };

    /// The same effort with at most `turns` turns, for candidates whose turns are long.
    pub fn at_most(self, turns: usize) -> Effort {
        Effort { turns: self.turns.min(turns), ..self }
    }
}

/// Measures the candidates in turns. Each round processes `messages` messages. Ratios and
/// differences refer to the first candidate.
pub fn compare(messages: usize, candidates: Vec<Candidate<'_>>, effort: Effort) -> Vec<Figure> {
    take_turns(messages, candidates, effort)
}

/// Like [`compare`], for candidates that all measure their own turns.
pub fn compare_turns(candidates: Vec<Candidate<'_>>, effort: Effort) -> Vec<Figure> {
    take_turns(1, candidates, effort)
}

fn take_turns(messages: usize, mut candidates: Vec<Candidate<'_>>, effort: Effort) -> Vec<Figure> {
    let rounds: Vec<usize> = candidates.iter_mut().map(|candidate| candidate.rounds(effort.turn)).collect();
    let mut turns = vec![Vec::with_capacity(effort.turns); candidates.len()];
    for _ in 0..effort.turns {
        for ((candidate, rounds), turns) in candidates.iter_mut().zip(&rounds).zip(&mut turns) {
            turns.push(candidate.turn(*rounds, messages, effort.turn));
        }
    }
    let figure = |(candidate, own): (&Candidate<'_>, &Vec<f64>)| {
        let paired = || own.iter().zip(&turns[0]);
        Figure {
            name: candidate.name,
            ns: median(own.iter().copied()),
            ratio: median(paired().map(|(own, first)| own / first)),
            more_ns: median(paired().map(|(own, first)| own - first)),
            bar: candidate.bar,
        }
    };
    candidates.iter().zip(&turns).map(figure).collect()
}

/// The median, the upper one of the two middle values if their number is even; NaN if there is
/// none.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Restricts this thread, and threads and processes that it starts from now on, to one core.
pub fn pin(core: usize) {
    keep_on([core]);
}

/// Lets this thread, and threads and processes that it starts from now on, run on all cores.
pub fn unpin() {
    keep_on(0..rustix::thread::CpuSet::MAX_CPU);
}

fn keep_on(cores: impl IntoIterator<Item = usize>) {
    let mut set = rustix::thread::CpuSet::new();
    cores.into_iter().for_each(|core| set.set(core));
    // If the system forbids it, the figures are noisier but still valid.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
