//! Scenarios: the input of a measurement, as data. [`run()`](crate::run()) executes them.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use polywire::suggest;
use serde::{Deserialize, Serialize};

use crate::{Error, buffers::Buffers, check};

/// Maximum number of cases of a scenario, so that a mistake in a list does not start a run of days.
const MAX_CASES: usize = 5000;

/// An experiment: a cross product of axes, and the effort for each case.
///
/// ```
/// use polywire_measure::Scenario;
///
/// let scenario = Scenario::from_toml(
///     r#"
///     name = "Two formats"
///     [[type]]
///     codecs_test = [10, 50]
///     [axes]
///     codec = ["cdr", "json"]
///     compressor = ["none", "zlib"]
///     "#,
/// )?;
/// assert_eq!(scenario.cases()?.len(), 2 * 2 * 2);
/// assert!(Scenario::from_toml("name = 'no type'").is_err());
/// # Ok::<(), polywire_measure::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Heading of tables and pages.
    pub name: String,
    /// Purpose of the experiment, in one sentence.
    #[serde(default)]
    pub summary: String,
    /// How each case is measured.
    #[serde(default)]
    pub mode: Mode,
    /// Seed of values, networks and the order of turns.
    #[serde(default = "one")]
    pub seed: u64,
    /// How much is measured.
    #[serde(default)]
    pub effort: Effort,
    /// The types of the messages.
    #[serde(rename = "type")]
    pub types: Vec<TypeSpec>,
    /// The other axes.
    #[serde(default)]
    pub axes: Axes,
    /// Limits that figures must meet.
    #[serde(default)]
    pub criteria: Vec<Criterion>,
    /// Folder of the files that the scenario names.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// How each case is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Times each stage separately. Delivery is over an emulated network in virtual time, if the
    /// case names one.
    #[default]
    Stages,
    /// Sends a message when every subscriber has returned the previous one.
    Closed,
    /// Sends at a fixed rate, independent of replies. Latency counts from when a message was due.
    Open,
    /// Sends as fast as the engine accepts messages; each is sent back. Measures round trips under
    /// load and messages per second.
    Loaded,
    /// Searches for the highest rate at which no message is lost and no backlog grows.
    Throughput,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 5] = [Mode::Stages, Mode::Closed, Mode::Open, Mode::Loaded, Mode::Throughput];

    /// The name in scenarios.
    ///
    /// ```
    /// use polywire_measure::scenario::Mode;
    /// assert_eq!(Mode::ALL.map(Mode::name), ["stages", "closed", "open", "loaded", "throughput"]);
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Mode::Stages => "stages",
            Mode::Closed => "closed",
            Mode::Open => "open",
            Mode::Loaded => "loaded",
            Mode::Throughput => "throughput",
        }
    }
}

/// How much is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Effort {
    /// Turns of each case; the cases take turns.
    pub repeats: usize,
    /// Messages per turn.
    pub messages: usize,
    /// Messages before the first turn, which are not measured.
    pub warm_up: usize,
    /// Minimum time of a turn of a stage, in milliseconds. The stage repeats its messages until
    /// then.
    pub turn_ms: f64,
    /// Messages per turn through an emulated network.
    pub emulated: usize,
    /// Maximum megabytes of messages that a case holds. If messages are large, fewer are made.
    pub megabytes: usize,
    /// Where the other end of a real engine runs.
    pub peer: Place,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort {
            repeats: 9,
            messages: 200,
            warm_up: 50,
            turn_ms: 1.0,
            emulated: 1000,
            megabytes: 4,
            peer: Place::Process,
        }
    }
}

/// Where the other end of a real engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In a process of its own.
    Process,
    /// In this process. The engine `inproc` always does so.
    Thread,
}

/// A type, or a family of types of several sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TypeSpec {
    /// IDL, PDL or a saved schema, relative to the scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idl: Option<PathBuf>,
    /// IDL text, instead of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Name of the type; required if the file has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The readers' version of the type, from the same file or text or another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reader: Option<Box<TypeSpec>>,
    /// Field counts of the thesis's test type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub codecs_test: Vec<usize>,
    /// Number of elements of sequences and maps, by member name. The default is four, if the bound
    /// allows it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lengths: BTreeMap<String, usize>,
    /// Constant texts by member name. A `*` at the end matches any suffix.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub texts: BTreeMap<String, String>,
    /// Label in tables, if the type's name is ambiguous.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// The axes that are crossed with the types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Axes {
    /// `constant`, `random`, `walking`, or `replay:FILE`, where the file has JSON lines.
    pub values: Vec<String>,
    /// `NAME[:OPTIONS]`. For a stateful codec, `@alone`, `@chained` or `@anchored` may follow.
    /// Templates are those of the type, or `template=FILE`, or `template=learned` from other values
    /// of the same model. For [`TypeSpec::codecs_test`], a template file describes ten fields and
    /// is repeated for more.
    pub codec: Vec<String>,
    /// `none`, or `NAME[:SETTINGS]`.
    pub compressor: Vec<String>,
    /// One of Polywire's engines `inproc`, `local`, `tcp`, `unix`, `udp` and `udp-reliable`, or one
    /// of [`crate::engines::ENGINES`]: bare sockets (`raw-tcp`, `raw-unix`, `raw-udp`) and peers.
    pub engine: Vec<String>,
    /// `none`, or a model of the emulated link: a profile's name, or `key=value,..`.
    pub network: Vec<String>,
    /// Messages per second, in open loops and on emulated networks.
    pub rate_hz: Vec<f64>,
    /// Receivers of each message.
    pub subscribers: Vec<usize>,
    /// Number of topics, which take turns. Every subscriber receives every message of each topic.
    /// Only Polywire's own engines support this axis.
    pub topics: Vec<usize>,
    /// `default`, or `PROCESS/SEND/RECEIVE` for both ends or for each end, in bytes: the bytes that
    /// wait in the process, the socket's send buffer, and its receive buffer.
    pub buffers: Vec<String>,
}

impl Default for Axes {
    fn default() -> Axes {
        let one = |text: &str| vec![text.to_owned()];
        Axes {
            values: one("walking"),
            codec: one("cdr"),
            compressor: one("none"),
            engine: one("inproc"),
            network: one("none"),
            rate_hz: vec![100.0],
            subscribers: vec![1],
            topics: vec![1],
            buffers: one("default"),
        }
    }
}

/// A limit for every case that it selects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Criterion {
    /// Name of the metric.
    pub metric: String,
    /// Axes and the values that a case must have on them: `codec = "cdr"`.
    #[serde(rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, String>,
    /// Selects the case that differs in these axes only; the limits are multiples of its figure.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub relative_to: BTreeMap<String, String>,
    /// Upper limit of the figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// Lower limit of the figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
}

/// One point of the cross product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Label of the type.
    #[serde(rename = "type")]
    pub ty: String,
    /// Index of the type in the scenario.
    pub type_index: usize,
    /// Number of fields, for a type of a family; otherwise 0.
    pub fields: usize,
    /// Value model.
    pub values: String,
    /// Codec with options.
    pub codec: String,
    /// Compressor with settings.
    pub compressor: String,
    /// Engine.
    pub engine: String,
    /// Emulated network.
    pub network: String,
    /// Messages per second.
    pub rate_hz: f64,
    /// Receivers.
    pub subscribers: usize,
    /// Topics.
    #[serde(default = "single")]
    pub topics: usize,
    /// Buffers of both ends.
    #[serde(default = "usual")]
    pub buffers: String,
}

/// Names of the axes, in the order of tables.
pub const AXES: &[&str] =
    &["type", "values", "codec", "compressor", "engine", "network", "rate_hz", "subscribers", "topics", "buffers"];

impl Case {
    /// The value on an axis, as text.
    pub fn at(&self, axis: &str) -> Option<String> {
        Some(match axis {
            "type" => self.ty.clone(),
            "fields" => self.fields.to_string(),
            "values" => self.values.clone(),
            "codec" => self.codec.clone(),
            "compressor" => self.compressor.clone(),
            "engine" => self.engine.clone(),
            "network" => self.network.clone(),
            "rate_hz" => self.rate_hz.to_string(),
            "subscribers" => self.subscribers.to_string(),
            "topics" => self.topics.to_string(),
            "buffers" => self.buffers.clone(),
            _ => return None,
        })
    }

    /// True if the case has these values on these axes.
    pub fn matches(&self, wanted: &BTreeMap<String, String>) -> bool {
        wanted.iter().all(|(axis, value)| self.at(axis).as_ref() == Some(value))
    }

    /// Codec and compressor, in the notation of wires.
    pub fn wire(&self) -> String {
        match self.compressor.as_str() {
            "none" => self.codec.clone(),
            compressor => format!("{}+{compressor}", self.codec),
        }
    }
}

/// The values on all axes. They identify the same case in two results.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = AXES.iter().filter_map(|axis| Some(format!("{axis}={}", self.at(axis)?)));
        f.write_str(&parts.collect::<Vec<_>>().join(" "))
    }
}

fn one() -> u64 {
    1
}

fn single() -> usize {
    1
}

fn usual() -> String {
    "default".into()
}

impl Scenario {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Scenario`] if the file cannot be read or is not a scenario.
    pub fn open(path: &Path) -> Result<Scenario, Error> {
        let wrong = |problem: String| Error::Scenario(format!("{}: {problem}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let mut scenario = Scenario::from_toml(&text).map_err(|error| wrong(error.to_string()))?;
        scenario.folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Ok(scenario)
    }

    /// Reads a text. Files that it names are relative to the working directory.
    ///
    /// # Errors
    /// [`Error::Scenario`] if the text is not a scenario.
    pub fn from_toml(text: &str) -> Result<Scenario, Error> {
        let wrong = |error: toml::de::Error| {
            let hint = suggest::unknown_name(error.message());
            Error::Scenario(format!("{}{hint}", error.to_string().trim_end()))
        };
        let scenario: Scenario = toml::from_str(text).map_err(wrong)?;
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), Error> {
        let wrong = |problem: String| Err(Error::Scenario(problem));
        let Effort { repeats, messages, .. } = self.effort;
        if self.types.is_empty() || repeats == 0 || messages == 0 || self.effort.megabytes == 0 {
            return wrong("there must be a type, and at least one repeat, message and megabyte".into());
        }
        let axes = &self.axes;
        let lists = [&axes.values, &axes.codec, &axes.compressor, &axes.engine, &axes.network, &axes.buffers];
        let counts = [&axes.subscribers, &axes.topics];
        if lists.iter().any(|list| list.is_empty())
            || counts.iter().any(|list| list.is_empty())
            || axes.rate_hz.is_empty()
        {
            return wrong("an axis has no value; omit it for the default".into());
        }
        if axes.rate_hz.iter().any(|rate| !(*rate > 1e-3 && *rate <= 1e9)) {
            return wrong("a rate must be above 0.001 and at most 1e9 messages per second".into());
        }
        if counts.iter().any(|list| list.iter().any(|count| !(1..=1000).contains(count))) {
            return wrong("the numbers of subscribers and topics must be 1 to 1000".into());
        }
        for text in &axes.buffers {
            text.parse::<Buffers>().map_err(Error::Scenario)?;
        }
        let is_usual = axes.topics == [1] && axes.buffers == ["default"];
        if self.mode == Mode::Stages && !is_usual {
            return wrong("the mode `stages` supports neither topics nor buffers".into());
        }
        if self.mode != Mode::Stages && axes.network.iter().any(|network| network != "none") {
            return wrong(
                "only the mode `stages` supports emulated networks; between real processes use `polywire link`".into(),
            );
        }
        check::names(self)?;
        self.criteria.iter().try_for_each(|criterion| check::criterion(self, criterion))
    }

    /// The values of an axis, as text; `None` if there is no such axis.
    pub(crate) fn places(&self, axis: &str) -> Option<Vec<String>> {
        let texts = |numbers: &[usize]| numbers.iter().map(ToString::to_string).collect();
        let axes = &self.axes;
        Some(match axis {
            "type" => self.subjects().into_iter().map(|(_, label, _)| label).collect(),
            "fields" => self.subjects().into_iter().map(|(.., fields)| fields.to_string()).collect(),
            "values" => axes.values.clone(),
            "codec" => axes.codec.clone(),
            "compressor" => axes.compressor.clone(),
            "engine" => axes.engine.clone(),
            "network" => axes.network.clone(),
            "rate_hz" => axes.rate_hz.iter().map(ToString::to_string).collect(),
            "subscribers" => texts(&axes.subscribers),
            "topics" => texts(&axes.topics),
            "buffers" => axes.buffers.clone(),
            _ => return None,
        })
    }

    /// All cases, in the order of the axes.
    ///
    /// # Errors
    /// [`Error::Scenario`] if there are too many, or a type has no cases.
    pub fn cases(&self) -> Result<Vec<Case>, Error> {
        let mut cases = vec![];
        for (type_index, ty, fields) in self.subjects() {
            cases.push(Case {
                ty,
                type_index,
                fields,
                values: String::new(),
                codec: String::new(),
                compressor: String::new(),
                engine: String::new(),
                network: String::new(),
                rate_hz: 0.0,
                subscribers: 0,
                topics: 0,
                buffers: String::new(),
            });
        }
        let axes = &self.axes;
        cases = cross(cases, &axes.values, |case, value| case.values.clone_from(value))?;
        cases = cross(cases, &axes.codec, |case, value| case.codec.clone_from(value))?;
        cases = cross(cases, &axes.compressor, |case, value| case.compressor.clone_from(value))?;
        cases = cross(cases, &axes.engine, |case, value| case.engine.clone_from(value))?;
        cases = cross(cases, &axes.network, |case, value| case.network.clone_from(value))?;
        cases = cross(cases, &axes.rate_hz, |case, value| case.rate_hz = *value)?;
        cases = cross(cases, &axes.subscribers, |case, value| case.subscribers = *value)?;
        cases = cross(cases, &axes.topics, |case, value| case.topics = *value)?;
        cross(cases, &axes.buffers, |case, value| case.buffers.clone_from(value))
    }

    /// Index, label and requested number of fields of each type. The number is 0 if the type itself
    /// determines it.
    fn subjects(&self) -> Vec<(usize, String, usize)> {
        let subjects = |(index, spec): (usize, &TypeSpec)| -> Vec<(usize, String, usize)> {
            let label = |fields: Option<usize>| match (&spec.label, fields) {
                (Some(label), None) => label.clone(),
                (Some(label), Some(fields)) => format!("{label}_{fields}"),
                (None, Some(fields)) => format!("CodecsTest_{fields}"),
                (None, None) => spec.name.clone().unwrap_or_else(|| format!("type {}", index + 1)),
            };
            match spec.codecs_test.is_empty() {
                true => vec![(index, label(None), 0)],
                false => spec.codecs_test.iter().map(|fields| (index, label(Some(*fields)), *fields)).collect(),
            }
        };
        self.types.iter().enumerate().flat_map(subjects).collect()
    }
}

fn cross<T>(cases: Vec<Case>, values: &[T], set: impl Fn(&mut Case, &T)) -> Result<Vec<Case>, Error> {
    if cases.len().saturating_mul(values.len()) > MAX_CASES {
        return Err(Error::Scenario(format!("there are more than {MAX_CASES} cases")));
    }
    let with = |case: &Case, value: &T| {
        let mut case = case.clone();
        set(&mut case, value);
        case
    };
    Ok(cases.iter().flat_map(|case| values.iter().map(|value| with(case, value))).collect())
}
