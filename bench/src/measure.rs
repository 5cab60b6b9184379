//! Candidates and their turns.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Something to be measured.
pub struct Candidate<'a> {
    name: &'static str,
    bar: Option<Bar>,
    work: Work<'a>,
}

enum Work<'a> {
    /// Goes once through all messages.
    Round(Box<dyn FnMut() + 'a>),
    /// Measures a turn itself and gives nanoseconds a message.
    Elsewhere(Box<dyn FnMut(Duration) -> f64 + 'a>),
}

impl<'a> Candidate<'a> {
    /// One whose call goes through all messages once.
    pub fn new(name: &'static str, round: impl FnMut() + 'a) -> Candidate<'a> {
        Candidate { name, bar: None, work: Work::Round(Box::new(round)) }
    }

    /// One in another process, which measures turns itself and gives nanoseconds a message.
    pub fn elsewhere(name: &'static str, turn: impl FnMut(Duration) -> f64 + 'a) -> Candidate<'a> {
        Candidate { name, bar: None, work: Work::Elsewhere(Box::new(turn)) }
    }

    /// The same candidate with what is asked of it.
    pub fn with_bar(mut self, bar: Bar) -> Candidate<'a> {
        self.bar = Some(bar);
        self
    }

    /// The same candidate, of which nothing is asked.
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

    /// How many rounds a turn takes. The clock of a thread is a system call, so it is read at a
    /// turn's ends only.
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

/// The time that this thread had a core: others on the machine count little.
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

/// What is asked of a candidate, against the first one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// At most this multiple.
    AtMost(f64),
    /// At least this multiple.
    AtLeast(f64),
    /// At most this many nanoseconds more.
    PlusNs(f64),
}

/// What came out for a candidate.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The candidate.
    pub name: &'static str,
    /// Median of its turns, a message.
    pub ns: f64,
    /// Median of its turns, each as a multiple of the first candidate's turn just before; not a
    /// number where there is nothing to compare.
    #[serde(skip_serializing_if = "is_nan")]
    pub ratio: f64,
    /// Median of what its turns took more than the first candidate's; likewise.
    #[serde(skip_serializing_if = "is_nan")]
    pub more_ns: f64,
    /// What is asked of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar: Option<Bar>,
}

fn is_nan(value: &f64) -> bool {
    value.is_nan()
}

impl Figure {
    /// False if a bar is missed.
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
    /// Turns that each candidate gets.
    pub turns: usize,
    /// How long a turn lasts about: shorter than what a scheduler gives at a time, so that turns
    /// next to each other see the same.
    pub turn: Duration,
}

impl Effort {
    /// Enough for figures.
    pub const FULL: Effort = Effort { turns: 41, turn: Duration::from_millis(4) };
    /// Enough to see that the bench works.
    pub const QUICK: Effort = Effort { turns: 3, turn: Duration::from_micros(500) };

    /// The same with at most so many turns, where these are long.
    pub fn at_most(self, turns: usize) -> Effort {
        Effort { turns: self.turns.min(turns), ..self }
    }
}

/// Lets the candidates take turns; each round goes through `messages` messages.
pub fn compare(messages: usize, candidates: Vec<Candidate<'_>>, effort: Effort) -> Vec<Figure> {
    take_turns(messages, candidates, effort)
}

/// Lets candidates that measure their turns themselves take turns.
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

/// The middle one.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Keeps this thread, and those it starts, on one core.
pub fn pin(core: usize) {
    keep_on([core]);
}

/// Lets this thread, and those it starts, run anywhere.
pub fn unpin() {
    keep_on(0..rustix::thread::CpuSet::MAX_CPU);
}

fn keep_on(cores: impl IntoIterator<Item = usize>) {
    let mut set = rustix::thread::CpuSet::new();
    cores.into_iter().for_each(|core| set.set(core));
    // Where it is not allowed the figures are noisier, but still right.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
