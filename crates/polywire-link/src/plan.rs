//! The plan of a link, which the caller passes when it starts one: models, seed, changes of the
//! models, and where to write a capture.

use std::{io::Write, str::FromStr, time::Duration};

use polywire_core::netsim::Model;

/// The treatment of a link's packets.
#[derive(Default)]
pub struct Plan {
    /// The model of the way to the target.
    pub there: Model,
    /// The model of the way back.
    pub back: Model,
    /// Seed of all random choices.
    pub seed: u64,
    /// Changes of the models, in any order.
    pub changes: Vec<Change>,
    /// Receives a capture of both ends as pcapng; `None` captures nothing. Dropped at the first
    /// write error, which ends the capture but not the link.
    pub capture: Option<Box<dyn Write + Send>>,
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the target.
    There,
    /// From the target.
    Back,
    /// Both directions.
    Both,
}

/// A model that applies from a given time on.
///
/// ```
/// use std::time::Duration;
/// use polywire_link::{Change, Way};
///
/// let change: Change = "2.5 back wan-high,rate=2mbit".parse().unwrap();
/// assert_eq!((change.at, change.way), (Duration::from_millis(2500), Way::Back));
/// assert!("soon both lan".parse::<Change>().is_err() && "1 both slow".parse::<Change>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Time since the link began.
    pub at: Duration,
    /// The direction that changes.
    pub way: Way,
    /// The model from then on.
    pub model: Model,
}

impl FromStr for Change {
    type Err = String;

    /// Reads `SECONDS there|back|both MODEL`.
    fn from_str(text: &str) -> Result<Change, String> {
        let (at, rest) = text.trim().split_once(' ').ok_or("SECONDS there|back|both MODEL is expected")?;
        let at = at.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let (way, model) = change(rest)?;
        Ok(Change { at: at.ok_or("a number of seconds is expected first")?, way, model })
    }
}

/// Reads `there|back|both MODEL`.
///
/// # Errors
/// A text that describes the mistake.
pub fn change(text: &str) -> Result<(Way, Model), String> {
    let (way, model) = text.trim().split_once(' ').ok_or("there|back|both MODEL is expected")?;
    let way = match way {
        "there" => Way::There,
        "back" => Way::Back,
        "both" => Way::Both,
        _ => return Err(format!("'{way}' is none of there, back and both")),
    };
    Ok((way, model.trim().parse::<Model>().map_err(|error| error.to_string())?))
}
