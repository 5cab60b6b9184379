//! Deterministic random numbers: the same for the same seed on every machine.

use crate::schema::arbitrary::Random;

/// A sequence of random numbers for one purpose.
#[derive(Clone, Debug)]
pub struct Stream(Random);

impl Stream {
    /// The sequence of a seed for a purpose. Sequences of different purposes are independent.
    pub fn new(seed: u64, purpose: u64) -> Stream {
        let mut stream = Stream(Random::new(seed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93)));
        stream.bits();
        stream
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// At least 0, less than 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Less than `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// True with this probability. Draws no number if the probability is 0.
    pub fn chance(&mut self, rate: f64) -> bool {
        rate > 0.0 && self.unit() < rate
    }

    /// A number of the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (a, b) = (1.0 - self.unit(), self.unit());
        (-2.0 * a.ln()).sqrt() * (2.0 * std::f64::consts::PI * b).cos()
    }

    /// A number of the Pareto distribution that begins at 0 and has mean 1, with this shape, which
    /// is above 1.
    pub fn pareto(&mut self, shape: f64) -> f64 {
        let u = 1.0 - self.unit();
        (u.powf(-1.0 / shape) - 1.0) * (shape - 1.0)
    }
}
