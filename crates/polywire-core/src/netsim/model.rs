//! Models of links, as data and as text.

use std::{fmt, num::NonZeroU64, num::NonZeroUsize, str::FromStr, sync::Arc};

use super::Stream;

/// What a link does to packets. The default model delivers all of them at once.
///
/// A model's text is a list of `key=value`, or a profile's name, optionally followed by changes to
/// it: `wan-high,rate=2mbit`.
///
/// | key | value | example |
/// |---|---|---|
/// | `rate` | bits a second | `8mbit` |
/// | `burst` | bytes that may be sent at once before the rate applies | `16kB` |
/// | `queue` | bytes that may wait for the line; packets that do not fit are dropped | `64kB` |
/// | `delay` | time that every packet travels | `20ms` |
/// | `jitter` | distribution of the random part of the delay: `uniform:W` (evenly up to W either way), `normal:S` (S is the standard deviation), `pareto:M` (M is the mean) | `normal:2ms` |
/// | `order` | `keep`: jitter lets no packet overtake another | `keep` |
/// | `loss` | `P` or `bernoulli:P`; `gilbert:PLR:ABL`; `elliott:ENTER:LEAVE:GOOD:BAD`; `pattern:0010`; `burst:EVERY:LENGTH` | `gilbert:5.05%:1.44` |
/// | `duplicate`, `corrupt`, `reorder` | part of the packets | `1%` |
/// | `mtu` | bytes of a fragment: a packet is lost with any one of its fragments | `1500` |
/// | `largest` | bytes of the longest packet; longer ones are refused | `1500` |
/// | `down` | a blackout from one time to another, may come again | `2s..4s` |
///
/// The same in code:
///
/// ```
/// use polywire_core::netsim::{Delay, Fragments, Jitter, Loss, Model, PROFILES, Profile};
///
/// let mut model = Model::default();
/// model.delay = Delay { fixed: 25_000_000, jitter: Jitter::Normal(1_000_000) };
/// model.loss = Loss::Gilbert { plr: 0.05, abl: 1.5 };
/// model.fragments = Some(Fragments::Split(1500.try_into()?));
/// assert_eq!("delay=25ms,jitter=normal:1ms,loss=gilbert:5%:1.5,mtu=1500".parse(), Ok(model));
///
/// let lan: &Profile = PROFILES.iter().find(|profile| profile.name == "lan").unwrap();
/// assert_eq!(lan.text.parse::<Model>().ok(), Model::profile("lan"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Model {
    /// Bits a second that the line carries. `None` for no limit.
    pub rate: Option<NonZeroU64>,
    /// Bytes that may be sent at once before the rate applies.
    pub burst_bytes: usize,
    /// Bytes that may wait for the line. Packets beyond are dropped.
    pub queue_bytes: usize,
    /// The time that a packet travels.
    pub delay: Delay,
    /// Whether jitter lets no packet overtake another.
    pub keep_order: bool,
    /// Which packets are lost.
    pub loss: Loss,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that a packet arrives with one bit flipped.
    pub corrupt: f64,
    /// Probability that a packet travels without delay, and so overtakes others.
    pub reorder: f64,
    /// What happens to long packets. `None` for nothing.
    pub fragments: Option<Fragments>,
    /// Blackouts, from and to in nanoseconds: packets sent in them are lost.
    pub down: Vec<(u64, u64)>,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            rate: None,
            burst_bytes: 0,
            queue_bytes: 1 << 20,
            delay: Delay::default(),
            keep_order: false,
            loss: Loss::None,
            duplicate: 0.0,
            corrupt: 0.0,
            reorder: 0.0,
            fragments: None,
            down: Vec::new(),
        }
    }
}

impl Model {
    /// The profile of [`PROFILES`] with this name.
    ///
    /// ```
    /// use polywire_core::netsim::Model;
    /// assert!(Model::profile("satellite").is_some() && Model::profile("carrier-pigeon").is_none());
    /// ```
    pub fn profile(name: &str) -> Option<Model> {
        let profile = PROFILES.iter().find(|profile| profile.name == name)?;
        Some(profile.text.parse().expect("the table's own text"))
    }

    pub(super) fn is_down(&self, now: u64) -> bool {
        self.down.iter().any(|(from, to)| (*from..*to).contains(&now))
    }
}

/// The time that packets travel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delay {
    /// Nanoseconds that every packet takes.
    pub fixed: u64,
    /// The part that varies.
    pub jitter: Jitter,
}

impl Delay {
    pub(super) fn draw(&self, stream: &mut Stream) -> u64 {
        let added = match self.jitter {
            Jitter::None => 0.0,
            Jitter::Uniform(width) => (stream.unit() * 2.0 - 1.0) * width as f64,
            Jitter::Normal(deviation) => stream.normal() * deviation as f64,
            Jitter::Pareto(mean) => stream.pareto(PARETO_SHAPE) * mean as f64,
        };
        (self.fixed as f64 + added).max(0.0).round() as u64
    }
}

/// The tail is heavy enough to be seen, and light enough to have a variance.
const PARETO_SHAPE: f64 = 2.5;

/// How delays vary. Times are nanoseconds. A delay is never less than 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Jitter {
    /// No variation.
    #[default]
    None,
    /// Uniformly distributed, up to this much less or more.
    Uniform(u64),
    /// Normally distributed with this standard deviation.
    Normal(u64),
    /// Longer by this on average, and rarely by much more (Pareto, shape 2.5).
    Pareto(u64),
}

/// Which packets, or fragments of packets, are lost.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// No packet is lost.
    #[default]
    None,
    /// Each packet is lost with this probability, independently of the others.
    Bernoulli(f64),
    /// A chain of two states, one that loses everything and one that loses nothing, given by two
    /// measured figures: the ratio of lost packets (PLR) and the mean length of a burst of losses
    /// (ABL). The chain leaves the losing state with probability Q = 1/ABL and enters it with
    /// P = PLR Q / (1 - PLR). No burst is shorter than one packet, so an ABL below 1 counts as 1.
    /// ("Flexible pub/sub", SEUS 2010, section 4.)
    Gilbert {
        /// Ratio of lost packets, below 1.
        plr: f64,
        /// Mean number of packets lost in a row.
        abl: f64,
    },
    /// The general chain of two states.
    GilbertElliott {
        /// Probability of going from the good state to the bad one, before each packet.
        enter: f64,
        /// Probability of going back, before each packet.
        leave: f64,
        /// Probability of loss in the good state.
        good: f64,
        /// Probability of loss in the bad state.
        bad: f64,
    },
    /// A repeated pattern, where true is a lost packet.
    Pattern(Arc<[bool]>),
    /// The last `length` of every `every` packets are lost.
    Burst {
        /// Packets from one burst to the next.
        every: u64,
        /// Packets lost in each burst.
        length: u64,
    },
}

impl Loss {
    /// The loss model as a two-state chain: probability of entering and of leaving the bad state,
    /// and of loss in the good and in the bad state. A model that is not a chain never enters the
    /// bad state.
    ///
    /// ```
    /// use polywire_core::netsim::Loss;
    /// let (enter, leave, good, bad) = Loss::Gilbert { plr: 0.2, abl: 4.0 }.chain();
    /// assert!((enter - 0.0625).abs() < 1e-12);
    /// assert_eq!((leave, good, bad), (0.25, 0.0, 1.0));
    /// ```
    pub fn chain(&self) -> (f64, f64, f64, f64) {
        match *self {
            Loss::Gilbert { plr, abl } => {
                let leave = 1.0 / abl.max(1.0);
                (plr * leave / (1.0 - plr), leave, 0.0, 1.0)
            }
            Loss::GilbertElliott { enter, leave, good, bad } => (enter, leave, good, bad),
            _ => (0.0, 1.0, 0.0, 1.0),
        }
    }
}

/// What happens to packets that are longer than the link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fragments {
    /// They are cut into fragments of this many bytes. A packet is lost if any of its fragments is.
    Split(NonZeroUsize),
    /// They are refused.
    Refuse(NonZeroUsize),
}

/// A model with a name.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The name, for [`Model::profile`] and in a model's text.
    pub name: &'static str,
    /// What the profile models.
    pub summary: &'static str,
    /// The model.
    pub text: &'static str,
}

/// The named models.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "lan",
        summary: "a switched local network",
        text: "rate=1gbit,delay=100us,jitter=uniform:20us,order=keep,mtu=1500",
    },
    Profile {
        name: "wan-low",
        summary: "a European path with little loss, as measured for the paper of 2010",
        text: "rate=100mbit,delay=25ms,jitter=normal:1ms,order=keep,loss=gilbert:1.35%:0.59,mtu=1500",
    },
    Profile {
        name: "wan-high",
        summary: "a European path with much loss, as measured for the paper of 2010",
        text: "rate=100mbit,delay=40ms,jitter=normal:4ms,order=keep,loss=gilbert:5.05%:1.44,mtu=1500",
    },
    Profile { name: "8mbit", summary: "the thesis's line of 8 Mbit/s", text: "rate=8mbit,delay=500us,mtu=1500" },
    Profile {
        name: "satellite",
        summary: "by a geostationary satellite",
        text: "rate=20mbit,delay=280ms,jitter=normal:2ms,order=keep,loss=gilbert:0.5%:4,mtu=1500",
    },
    Profile {
        name: "lte",
        summary: "a mobile network on the move",
        text: "rate=30mbit,queue=256kB,delay=25ms,jitter=pareto:8ms,order=keep,loss=elliott:0.5%:20%:0.05%:15%,mtu=1400",
    },
    Profile {
        name: "lossy-30",
        summary: "thirty per cent lost in bursts, some packets twice, some out of order",
        text: "rate=10mbit,delay=30ms,jitter=uniform:10ms,loss=gilbert:30%:3,duplicate=1%,reorder=2%,mtu=1500",
    },
];

/// Why a text is not a model. [`Model`] has the syntax.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("link model: '{part}': {problem}")]
#[non_exhaustive]
pub struct BadModel {
    /// The part that is wrong.
    pub part: String,
    /// What is wrong, and what it should be.
    pub problem: String,
}

impl FromStr for Model {
    type Err = BadModel;

    fn from_str(text: &str) -> Result<Model, BadModel> {
        let mut model = Model::default();
        for (i, part) in text.split(',').map(str::trim).enumerate() {
            let Some((key, value)) = part.split_once('=') else {
                if part.is_empty() && text.trim().is_empty() {
                    continue;
                }
                model = Model::profile(part).filter(|_| i == 0).ok_or_else(|| unknown_profile(part, i))?;
                continue;
            };
            set(&mut model, key.trim(), value.trim()).map_err(|problem| BadModel { part: part.into(), problem })?;
        }
        Ok(model)
    }
}

fn unknown_profile(part: &str, i: usize) -> BadModel {
    let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
    let problem = match i {
        0 => format!("it is neither key=value nor one of the profiles {}", names.join(", ")),
        _ => "a profile comes first, and changes to it after it".into(),
    };
    BadModel { part: part.into(), problem }
}

fn set(model: &mut Model, key: &str, value: &str) -> Result<(), String> {
    match key {
        "rate" => model.rate = NonZeroU64::new(rate(value)?),
        "burst" => model.burst_bytes = bytes(value)?,
        "queue" => model.queue_bytes = bytes(value)?,
        "delay" => model.delay.fixed = time(value)?,
        "jitter" => model.delay.jitter = jitter(value)?,
        "order" => match value {
            "keep" => model.keep_order = true,
            "free" => model.keep_order = false,
            _ => return Err("'keep' or 'free' is expected".into()),
        },
        "loss" => model.loss = loss(value)?,
        "duplicate" => model.duplicate = part(value)?,
        "corrupt" => model.corrupt = part(value)?,
        "reorder" => model.reorder = part(value)?,
        "mtu" => model.fragments = Some(Fragments::Split(size(value)?)),
        "largest" => model.fragments = Some(Fragments::Refuse(size(value)?)),
        "down" => {
            let (from, to) = value.split_once("..").ok_or("two times are expected: 2s..4s")?;
            let (from, to) = (time(from)?, time(to)?);
            if from >= to {
                return Err("it ends before it begins".into());
            }
            model.down.push((from, to));
        }
        _ => {
            let keys =
                "rate, burst, queue, delay, jitter, order, loss, duplicate, corrupt, reorder, mtu, largest, down";
            return Err(format!("there is no such key; there are {keys}"));
        }
    }
    Ok(())
}

fn jitter(value: &str) -> Result<Jitter, String> {
    match value.split_once(':') {
        Some(("uniform", width)) => Ok(Jitter::Uniform(time(width)?)),
        Some(("normal", deviation)) => Ok(Jitter::Normal(time(deviation)?)),
        Some(("pareto", mean)) => Ok(Jitter::Pareto(time(mean)?)),
        _ if value == "none" => Ok(Jitter::None),
        _ => Err("uniform:TIME, normal:TIME, pareto:TIME or none is expected".into()),
    }
}

fn loss(value: &str) -> Result<Loss, String> {
    let mut parts = value.split(':');
    let (kind, arguments): (_, Vec<&str>) = (parts.next().unwrap_or(""), parts.collect());
    match (kind, arguments.as_slice()) {
        ("none", []) => Ok(Loss::None),
        ("bernoulli", [rate]) => Ok(Loss::Bernoulli(part(rate)?)),
        ("gilbert", [plr, abl]) => {
            let (plr, abl) = (part(plr)?, number(abl)?);
            if plr >= 1.0 || abl <= 0.0 {
                return Err("less than all packets are lost, in bursts of some length".into());
            }
            Ok(Loss::Gilbert { plr, abl })
        }
        ("elliott", [enter, leave, good, bad]) => {
            Ok(Loss::GilbertElliott { enter: part(enter)?, leave: part(leave)?, good: part(good)?, bad: part(bad)? })
        }
        ("pattern", [pattern]) if !pattern.is_empty() && pattern.bytes().all(|b| b == b'0' || b == b'1') => {
            Ok(Loss::Pattern(pattern.bytes().map(|b| b == b'1').collect()))
        }
        ("burst", [every, length]) => {
            let whole = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is no whole number"));
            let (every, length) = (whole(every)?, whole(length)?);
            if every == 0 || length > every {
                return Err("a burst is no longer than the distance to the next".into());
            }
            Ok(Loss::Burst { every, length })
        }
        (rate, []) => Ok(Loss::Bernoulli(part(rate)?)),
        _ => {
            Err("P, gilbert:PLR:ABL, elliott:ENTER:LEAVE:GOOD:BAD, pattern:0010 or burst:EVERY:LENGTH is expected"
                .into())
        }
    }
}

/// `5%` or `0.05`.
fn part(value: &str) -> Result<f64, String> {
    let part = match value.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(value)?,
    };
    match (0.0..=1.0).contains(&part) {
        true => Ok(part),
        false => Err("a part of the whole is expected: 0% to 100%, or 0 to 1".into()),
    }
}

fn number(value: &str) -> Result<f64, String> {
    let number = value.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("'{value}' is no number"))
}

fn time(value: &str) -> Result<u64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    Ok(scaled(value, &units, 1e18)? as u64)
}

fn rate(value: &str) -> Result<u64, String> {
    let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)];
    let rate = scaled(value, &units, 1e15)? as u64;
    if rate == 0 { Err("a rate is at least one bit a second".into()) } else { Ok(rate) }
}

fn bytes(value: &str) -> Result<usize, String> {
    let units = [("kB", 1e3), ("MB", 1e6), ("B", 1.0), ("", 1.0)];
    Ok(scaled(value, &units, 1e12)? as usize)
}

fn size(value: &str) -> Result<NonZeroUsize, String> {
    NonZeroUsize::new(bytes(value)?).ok_or_else(|| "it is at least one byte".into())
}

/// A number with one of the units, the first that fits.
fn scaled(value: &str, units: &[(&str, f64)], largest: f64) -> Result<f64, String> {
    let value = value.trim();
    let found = units.iter().find_map(|(unit, factor)| {
        let digits = value.strip_suffix(unit)?;
        number(digits).ok().map(|number| number * factor)
    });
    let names: Vec<_> = units.iter().map(|(unit, _)| *unit).filter(|unit| !unit.is_empty()).collect();
    let found = found.ok_or_else(|| format!("a number with a unit is expected: {}", names.join(", ")))?;
    match (0.0..=largest).contains(&found) {
        true => Ok(found.round()),
        false => Err("it is out of range".into()),
    }
}

/// Writes the text from which the model parses.
impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let plain = Model::default();
        if let Some(rate) = self.rate {
            parts.push(format!("rate={rate}bit"));
        }
        if self.burst_bytes != plain.burst_bytes {
            parts.push(format!("burst={}B", self.burst_bytes));
        }
        if self.queue_bytes != plain.queue_bytes {
            parts.push(format!("queue={}B", self.queue_bytes));
        }
        if self.delay.fixed > 0 {
            parts.push(format!("delay={}ns", self.delay.fixed));
        }
        match self.delay.jitter {
            Jitter::None => {}
            Jitter::Uniform(width) => parts.push(format!("jitter=uniform:{width}ns")),
            Jitter::Normal(deviation) => parts.push(format!("jitter=normal:{deviation}ns")),
            Jitter::Pareto(mean) => parts.push(format!("jitter=pareto:{mean}ns")),
        }
        if self.keep_order {
            parts.push("order=keep".into());
        }
        match &self.loss {
            Loss::None => {}
            Loss::Bernoulli(rate) => parts.push(format!("loss=bernoulli:{rate}")),
            Loss::Gilbert { plr, abl } => parts.push(format!("loss=gilbert:{plr}:{abl}")),
            Loss::GilbertElliott { enter, leave, good, bad } => {
                parts.push(format!("loss=elliott:{enter}:{leave}:{good}:{bad}"));
            }
            Loss::Pattern(pattern) => {
                let pattern: String = pattern.iter().map(|lost| if *lost { '1' } else { '0' }).collect();
                parts.push(format!("loss=pattern:{pattern}"));
            }
            Loss::Burst { every, length } => parts.push(format!("loss=burst:{every}:{length}")),
        }
        for (key, part) in [("duplicate", self.duplicate), ("corrupt", self.corrupt), ("reorder", self.reorder)] {
            if part > 0.0 {
                parts.push(format!("{key}={part}"));
            }
        }
        match self.fragments {
            None => {}
            Some(Fragments::Split(size)) => parts.push(format!("mtu={size}")),
            Some(Fragments::Refuse(size)) => parts.push(format!("largest={size}")),
        }
        parts.extend(self.down.iter().map(|(from, to)| format!("down={from}ns..{to}ns")));
        f.write_str(&parts.join(","))
    }
}
