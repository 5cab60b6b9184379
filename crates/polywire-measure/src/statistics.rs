//! Confidence intervals and ranks for a few samples, without assumptions about their distribution.
//! Only arithmetic.

use serde::{Deserialize, Serialize};

/// Wanted confidence of intervals.
const WANTED: f64 = 0.95;

/// A median and the interval it lies in.
///
/// Both ends of the interval are samples, so no assumption about the distribution is needed. With
/// fewer than six samples, the interval spans all of them and its confidence is below 95 %, as
/// `confidence` reports.
///
/// ```
/// use polywire_measure::statistics::Interval;
///
/// let nine = Interval::of(&[5.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0]);
/// assert_eq!((nine.value, nine.low, nine.high), (5.0, 2.0, 8.0));
/// assert!(nine.confidence > 0.96);
/// let three = Interval::of(&[1.0, 2.0, 4.0]);
/// assert_eq!((three.low, three.high, three.confidence), (1.0, 4.0, 0.75));
/// assert!(three.is_below(&Interval::of(&[5.0, 6.0, 7.0])) && !three.is_below(&nine));
/// assert!(!Interval::of(&[1.0]).is_below(&nine), "one sample says nothing");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Probability that the true median lies between the ends; 0 means that nothing is known.
    pub confidence: f64,
}

impl Interval {
    /// The interval of the samples. Without samples it is 0, with confidence 0.
    pub fn of(samples: &[f64]) -> Interval {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let Some(last) = n.checked_sub(1) else { return Interval { value: 0.0, low: 0.0, high: 0.0, confidence: 0.0 } };
        let value = (sorted[last / 2] + sorted[n / 2]) / 2.0;
        let mut outside = 0;
        while outside + 1 < n.div_ceil(2) && coverage(n, outside + 1) >= WANTED {
            outside += 1;
        }
        Interval { value, low: sorted[outside], high: sorted[last - outside], confidence: coverage(n, outside) }
    }

    /// The interval of a figure that is identical in every repeat.
    pub fn exact(value: f64) -> Interval {
        Interval { value, low: value, high: value, confidence: 1.0 }
    }

    /// True if the interval lies entirely below another, and both have a confidence above 0.
    pub fn is_below(&self, other: &Interval) -> bool {
        self.confidence > 0.0 && other.confidence > 0.0 && self.high < other.low
    }

    /// True if neither interval lies entirely below the other, so that the order is unknown.
    pub fn overlaps(&self, other: &Interval) -> bool {
        !self.is_below(other) && !other.is_below(self)
    }
}

/// Probability that the median lies between two samples, if `outside` samples lie beyond them on
/// each side.
fn coverage(n: usize, outside: usize) -> f64 {
    // The number of samples below the median is binomial with p = 1/2.
    let (mut term, mut below) = (0.5f64.powi(n as i32), 0.0);
    for k in 0..=outside {
        below += term;
        term *= (n - k) as f64 / (k + 1) as f64;
    }
    (1.0 - 2.0 * below).max(0.0)
}

/// Ranks of intervals, the lowest first. A rank is one more than the number of intervals that lie
/// entirely below. Overlapping intervals share a rank unless another interval separates them.
///
/// ```
/// use polywire_measure::statistics::{Interval, ranks};
///
/// let at = |low, high| Interval { value: (low + high) / 2.0, low, high, confidence: 0.95 };
/// assert_eq!(ranks(&[at(5.0, 6.0), at(1.0, 2.0), at(1.5, 3.0)]), [3, 1, 1]);
/// ```
pub fn ranks(intervals: &[Interval]) -> Vec<usize> {
    intervals.iter().map(|own| 1 + intervals.iter().filter(|other| other.is_below(own)).count()).collect()
}

#[cfg(test)]
mod tests {
    use polywire::schema::arbitrary::Random;

    use super::*;

    #[test]
    fn intervals_hold_the_median_as_often_as_they_say() {
        let mut random = Random::new(1);
        for n in [3, 5, 6, 9, 20, 41] {
            let mut held = 0;
            let mut said = 0.0;
            for _ in 0..4000 {
                // A skewed distribution, like that of times: the median of the squares of uniform
                // numbers is a quarter.
                let samples: Vec<f64> =
                    (0..n).map(|_| (random.below(1 << 20) as f64 / f64::from(1 << 20)).powi(2)).collect();
                let interval = Interval::of(&samples);
                said = interval.confidence;
                held += usize::from((interval.low..=interval.high).contains(&0.25));
            }
            assert!((held as f64 / 4000.0 - said).abs() < 0.02, "{n}: {held} of 4000, {said} said");
            assert!(n < 6 || said >= 0.95, "{n}");
        }
    }

    #[test]
    fn no_sample_and_one_say_nothing() {
        assert_eq!(Interval::of(&[]).confidence, 0.0);
        assert_eq!(Interval::of(&[3.0]), Interval { value: 3.0, low: 3.0, high: 3.0, confidence: 0.0 });
        assert!(Interval::of(&[3.0]).overlaps(&Interval::exact(9.0)));
    }
}
