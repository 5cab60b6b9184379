//! Parses times in seconds and rates in hertz from the command line.

use std::{fmt, str::FromStr, time::Duration};

/// Longest time that is accepted, in seconds: about 30 years.
const MAX_SECONDS: f64 = 1e9;

/// A time that is given in seconds, such as `2` or `0.25`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seconds, String> {
        let seconds: f64 = text.parse().map_err(|_| "a number of seconds is expected, such as 2 or 0.5".to_owned())?;
        match (0.0..=MAX_SECONDS).contains(&seconds) {
            true => Ok(Seconds(Duration::from_secs_f64(seconds))),
            false => Err("a time from 0 to 1e9 seconds is expected".into()),
        }
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_secs_f64())
    }
}

/// Parses a rate in hertz.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "a number of messages per second is expected".to_owned())?;
    match rate > 1e-6 && rate <= 1e9 {
        true => Ok(rate),
        false => Err("a number of messages per second larger than 0 is expected".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_are_taken() {
        assert_eq!("0.25".parse(), Ok(Seconds(Duration::from_millis(250))));
        for text in ["-1", "nan", "inf", "1e300", "", "2s"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
        assert!(rate("0").is_err() && rate("nan").is_err() && rate("100").is_ok());
    }
}
