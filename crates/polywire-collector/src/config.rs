//! The configuration of a collector, read from TOML.

use std::{ops::Range, path::PathBuf, time::Duration};

use polywire::{Overflow, Pattern, Wire, suggest};
use polywire_telemetry::Identity;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    AlertPlan, MAX_ALERTS, Severity,
    alerts::SEVERITIES,
    handler::{self, Kind},
    settings::{COMMON, SettingValue, Settings},
};

/// The default number of entries that may wait for a handler.
const QUEUE: usize = 8192;

/// The default memory of the entries that may wait for a handler, in bytes.
const QUEUE_BYTES: usize = 64 << 20;

/// The default time between two times at which a handler stores its entries.
const SYNC: Duration = Duration::from_secs(1);

/// The settings of the collector itself.
const COLLECTOR: [&str; 6] = ["name", "state", "topics", "endpoints", "nodes", "serve"];

/// The settings of an alert.
const ALERT: [&str; 4] = ["when", "prefix", "severity", "summary"];

/// The default prefix of the topics of alerts: that of a node's probes.
const PREFIX: &str = "probes/*";

/// The maximum number of handlers of a collector.
pub const MAX_HANDLERS: usize = 256;

/// The configuration of a collector: what it collects, and what it does with it.
///
/// ```
/// use polywire_collector::CollectorConfig;
///
/// let config = CollectorConfig::parse("
///     [collector]
///     topics = ['plant/**', 'probes/**']
///     endpoints = ['local', 'tcp/127.0.0.1:7461']
///
///     [handlers.files]
///     kind = 'jsonl'
///     path = 'samples.jsonl'
///     overflow = 'block'
/// ")?;
/// assert_eq!((config.topics.len(), config.handlers[0].kind.name), (2, "jsonl"));
/// let error = CollectorConfig::parse("[handlers.files]\nkind = 'jsonl'\npaht = 'a'").unwrap_err();
/// assert_eq!(error.to_string(), "line 3: [handlers.files]: unknown setting 'paht', did you mean 'path'?");
/// # Ok::<(), polywire_collector::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CollectorConfig {
    /// The name of the collector's own node, for its probe; `collector` by default.
    pub name: String,
    /// The file that keeps the node's UUID; without one, the node has a new UUID after each start.
    pub state: Option<PathBuf>,
    /// Patterns of the topics to subscribe to; by default `probes/**`, or none if there is `nodes`.
    pub topics: Vec<Pattern>,
    /// The endpoints at which to subscribe; `local` if there is none.
    pub endpoints: Vec<Wire>,
    /// The file that keeps which samples of nodes are stored. If it is set, the collector also
    /// serves, at the endpoints, nodes that keep their samples until they are stored.
    pub nodes: Option<PathBuf>,
    /// Wires at which the topics are republished, in the format of the wire if it names one.
    pub serve: Vec<Wire>,
    /// The handlers, in the order of their names.
    pub handlers: Vec<HandlerPlan>,
    /// The alerts, in the order of their names.
    pub alerts: Vec<AlertPlan>,
}

/// A handler in the configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandlerPlan {
    /// The unique name of the handler.
    pub name: String,
    /// The kind of the handler.
    pub kind: &'static Kind,
    /// The topics whose entries the handler receives; all topics of the collector if there is none.
    pub topics: Vec<Pattern>,
    /// The maximum number of entries that may wait for the handler.
    pub queue: usize,
    /// The maximum memory of these entries in bytes.
    pub queue_bytes: usize,
    /// What happens when the queue is full. Blocking delays the source, and with it other handlers.
    pub overflow: Overflow,
    /// The longest time until a received entry is stored.
    pub sync: Duration,
    /// The settings of the handler's kind.
    pub settings: Settings,
    /// The line of the handler's table in the file, from 1.
    pub line: usize,
}

/// Why a configuration is wrong: the line, from 1, and what is expected there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
#[non_exhaustive]
pub struct ConfigError {
    /// The line.
    pub line: usize,
    /// What is wrong, and what is expected.
    pub reason: String,
}

impl PartialEq for HandlerPlan {
    /// Compares the settings, but not the position in the file.
    fn eq(&self, other: &HandlerPlan) -> bool {
        self.name == other.name
            && self.kind.name == other.kind.name
            && self.topics == other.topics
            && (self.queue, self.queue_bytes, self.sync) == (other.queue, other.queue_bytes, other.sync)
            && self.overflow == other.overflow
            && self.settings == other.settings
    }
}

impl Default for CollectorConfig {
    fn default() -> CollectorConfig {
        CollectorConfig {
            name: "collector".to_owned(),
            state: None,
            topics: "probes/**".parse().into_iter().collect(),
            endpoints: Vec::new(),
            nodes: None,
            serve: Vec::new(),
            handlers: Vec::new(),
            alerts: Vec::new(),
        }
    }
}

impl CollectorConfig {
    /// Parses a configuration that uses the handlers of this crate. Unknown keys are errors.
    pub fn parse(text: &str) -> Result<CollectorConfig, ConfigError> {
        CollectorConfig::parse_with(text, &[])
    }

    /// Parses a configuration that may also use a program's own kinds of handlers.
    pub fn parse_with(text: &str, own: &[&'static Kind]) -> Result<CollectorConfig, ConfigError> {
        let reader = Reader { text, own };
        let document = DeTable::parse(text).map_err(|error| {
            let reason = error.message().to_owned();
            ConfigError { line: reader.line(error.span().unwrap_or_default()), reason }
        })?;
        let mut config = CollectorConfig::default();
        for (key, value) in document.get_ref() {
            match key.get_ref().as_ref() {
                "collector" => reader.collector(&mut config, value)?,
                "handlers" => config.handlers = reader.handlers(value)?,
                "alerts" => config.alerts = reader.alerts(value)?,
                other => return Err(reader.unknown(key, "key", other, ["collector", "handlers", "alerts"])),
            }
        }
        config.handlers.sort_by(|a, b| a.name.cmp(&b.name));
        config.alerts.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(config)
    }
}

type Value<'a> = Spanned<DeValue<'a>>;

struct Reader<'a> {
    text: &'a str,
    own: &'a [&'static Kind],
}

impl Reader<'_> {
    fn line(&self, span: Range<usize>) -> usize {
        1 + self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count()
    }

    fn error<T>(&self, at: &Spanned<T>, reason: impl Into<String>) -> ConfigError {
        ConfigError { line: self.line(at.span()), reason: reason.into() }
    }

    fn unknown<'k, T>(
        &self,
        at: &Spanned<T>,
        what: &str,
        word: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> ConfigError {
        self.error(at, format!("unknown {what} '{word}'{}", suggest::hint(word, known)))
    }

    fn table<'v>(&self, place: &str, value: &'v Value<'_>) -> Result<&'v DeTable<'v>, ConfigError> {
        value.get_ref().as_table().ok_or_else(|| self.error(value, format!("{place}: a table is expected")))
    }

    fn collector(&self, config: &mut CollectorConfig, value: &Value<'_>) -> Result<(), ConfigError> {
        let table = self.table("'collector'", value)?;
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "name" => config.name = self.name(value)?,
                "state" => config.state = Some(self.text("[collector]: 'state'", value)?.into()),
                "topics" => config.topics = self.list("[collector]: 'topics'", value, "a pattern of topics")?,
                "endpoints" => config.endpoints = self.list("[collector]: 'endpoints'", value, "an endpoint")?,
                "nodes" => config.nodes = Some(self.text("[collector]: 'nodes'", value)?.into()),
                "serve" => config.serve = self.list("[collector]: 'serve'", value, "a wire")?,
                other => return Err(self.unknown(key, "setting", other, COLLECTOR)),
            }
        }
        if config.nodes.is_some() && !table.iter().any(|(key, _)| key.get_ref() == "topics") {
            config.topics.clear();
        }
        let expected = match config.endpoints.iter().all(|wire| wire.endpoint.is_some()) {
            _ if config.topics.is_empty() && config.nodes.is_none() => "'topics': a pattern of topics is expected",
            true => return Ok(()),
            false => "'endpoints': an endpoint is expected, such as 'tcp/127.0.0.1:7461'",
        };
        Err(self.error(value, format!("[collector]: {expected}")))
    }

    fn name(&self, value: &Value<'_>) -> Result<String, ConfigError> {
        let name = self.text("[collector]: 'name'", value)?;
        let identity =
            Identity::new(name).map_err(|error| self.error(value, format!("[collector]: 'name': {error}")))?;
        Ok(identity.name)
    }

    fn text<'v>(&self, place: &str, value: &'v Value<'_>) -> Result<&'v str, ConfigError> {
        value.get_ref().as_str().ok_or_else(|| self.error(value, format!("{place}: a text is expected")))
    }

    /// Parses a list of texts.
    fn list<T>(&self, place: &str, value: &Value<'_>, expected: &str) -> Result<Vec<T>, ConfigError>
    where
        T: std::str::FromStr<Err: std::fmt::Display>,
    {
        let Some(array) = value.get_ref().as_array() else {
            return Err(self.error(value, format!("{place}: a list is expected, such as [\"..\"]")));
        };
        let one = |value: &Value<'_>| match value.get_ref().as_str() {
            Some(text) => text.parse().map_err(|error| self.error(value, format!("{place}: {error}"))),
            None => Err(self.error(value, format!("{place}: {expected} is expected, as a text"))),
        };
        array.iter().map(one).collect()
    }

    fn handlers(&self, value: &Value<'_>) -> Result<Vec<HandlerPlan>, ConfigError> {
        let tables = self.table("'handlers'", value)?;
        if tables.len() > MAX_HANDLERS {
            return Err(self.error(value, format!("a collector has at most {MAX_HANDLERS} handlers")));
        }
        tables.iter().map(|(name, value)| self.handler(name, value)).collect()
    }

    fn handler(&self, name: &Spanned<impl AsRef<str>>, value: &Value<'_>) -> Result<HandlerPlan, ConfigError> {
        let (at, name) = (name, name.get_ref().as_ref());
        let place = format!("[handlers.{name}]");
        let table = self.table(&place, value)?;
        let kind = self.kind(at, &place, table)?;
        let mut plan = HandlerPlan {
            name: name.to_owned(),
            kind,
            topics: Vec::new(),
            queue: QUEUE,
            queue_bytes: QUEUE_BYTES,
            overflow: Overflow::DropOldest,
            sync: SYNC,
            settings: Settings::default(),
            line: self.line(at.span()),
        };
        for (key, value) in table {
            self.setting(&mut plan, &place, key, value)?;
        }
        match plan.settings.missing(kind.settings) {
            Some(missing) => Err(self.error(at, format!("{place}: '{missing}' is missing"))),
            None => Ok(plan),
        }
    }

    fn kind<T>(&self, at: &Spanned<T>, place: &str, table: &DeTable<'_>) -> Result<&'static Kind, ConfigError> {
        let names = || handler::names(self.own);
        let Some((_, value)) = table.iter().find(|(key, _)| key.get_ref() == "kind") else {
            let names: Vec<&str> = names().collect();
            return Err(self.error(at, format!("{place}: 'kind' is missing; it is one of {}", names.join(", "))));
        };
        let name = self.text(&format!("{place}: 'kind'"), value)?;
        if let Some(kind) = handler::find(name, self.own) {
            return Ok(kind);
        }
        let reason = match handler::FEATURES.iter().find(|(kind, _)| *kind == name) {
            Some((_, feature)) => format!("kind '{name}' is not in this build: it needs the feature '{feature}'"),
            None => format!("unknown kind '{name}'{}", suggest::hint(name, names())),
        };
        Err(self.error(value, format!("{place}: {reason}")))
    }

    fn setting(
        &self,
        plan: &mut HandlerPlan,
        place: &str,
        key: &Spanned<impl AsRef<str>>,
        value: &Value<'_>,
    ) -> Result<(), ConfigError> {
        let name = key.get_ref().as_ref();
        let given = setting_value(value.get_ref());
        let wrong = |expected: &str| self.error(value, format!("{place}: '{name}': {expected} is expected"));
        let count = || match given {
            SettingValue::Whole(number @ 1..) => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
            _ => Err(wrong("a whole number from 1")),
        };
        match name {
            "kind" => {}
            "topics" => plan.topics = self.list(&format!("{place}: 'topics'"), value, "a pattern of topics")?,
            "queue" => plan.queue = count()?,
            "queue_bytes" => plan.queue_bytes = count()?,
            "sync" => plan.sync = given.seconds().ok_or_else(|| wrong("a number of seconds from 0 to 1e9"))?,
            "overflow" => {
                let overflow = value.get_ref().as_str().and_then(overflow);
                plan.overflow = overflow.ok_or_else(|| wrong("'drop-oldest', 'drop-newest' or 'block'"))?;
            }
            name => {
                let set = plan.settings.set(plan.kind.settings, name, given);
                set.map_err(|reason| self.error(key, format!("{place}: {reason}")))?;
            }
        }
        debug_assert!(COMMON.contains(&name) || plan.kind.settings.iter().any(|setting| setting.name == name));
        Ok(())
    }

    fn alerts(&self, value: &Value<'_>) -> Result<Vec<AlertPlan>, ConfigError> {
        let tables = self.table("'alerts'", value)?;
        if tables.len() > MAX_ALERTS {
            return Err(self.error(value, format!("a collector has at most {MAX_ALERTS} alerts")));
        }
        tables.iter().map(|(name, value)| self.alert(name, value)).collect()
    }

    fn alert(&self, name: &Spanned<impl AsRef<str>>, value: &Value<'_>) -> Result<AlertPlan, ConfigError> {
        let (at, name) = (name, name.get_ref().as_ref());
        let place = format!("[alerts.{name}]");
        let table = self.table(&place, value)?;
        let (mut condition, mut prefix) = (None, PREFIX);
        let (mut severity, mut summary) = (Severity::default(), String::new());
        for (key, value) in table {
            let key_name = key.get_ref().as_ref();
            let place = format!("{place}: '{key_name}'");
            match key_name {
                "when" => condition = Some(self.parsed(&place, value)?),
                "prefix" => prefix = self.text(&place, value)?,
                "severity" => severity = self.severity(&place, value)?,
                "summary" => summary = self.text(&place, value)?.to_owned(),
                other => {
                    return Err(self.error(
                        key,
                        format!("[alerts.{name}]: unknown setting '{other}'{}", suggest::hint(other, ALERT)),
                    ));
                }
            }
        }
        let prefix = self.prefix(at, &place, prefix)?;
        let condition = condition.ok_or_else(|| self.error(at, format!("{place}: 'when' is missing, a condition")))?;
        Ok(AlertPlan { name: name.to_owned(), prefix, condition, severity, summary, line: self.line(at.span()) })
    }

    fn severity(&self, place: &str, value: &Value<'_>) -> Result<Severity, ConfigError> {
        let word = self.text(place, value)?;
        let known = SEVERITIES.iter().find(|(name, _)| *name == word);
        known.map(|(_, severity)| *severity).ok_or_else(|| {
            let names = SEVERITIES.map(|(name, _)| name).join("', '");
            self.error(value, format!("{place}: one of '{names}' is expected, not '{word}'"))
        })
    }

    /// Parses the prefix of an alert, whose number of levels must be fixed.
    fn prefix<T>(&self, at: &Spanned<T>, place: &str, text: &str) -> Result<Option<Pattern>, ConfigError> {
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = |reason: String| self.error(at, format!("{place}: 'prefix': {reason}"));
        let pattern: Pattern = text.parse().map_err(|error| wrong(format!("{error}")))?;
        match text.split('/').any(|level| level == "**") {
            true => Err(wrong("'*' is expected for each level, not '**'".to_owned())),
            false => Ok(Some(pattern)),
        }
    }

    /// Parses a text.
    fn parsed<T>(&self, place: &str, value: &Value<'_>) -> Result<T, ConfigError>
    where
        T: std::str::FromStr<Err: std::fmt::Display>,
    {
        self.text(place, value)?.parse().map_err(|error| self.error(value, format!("{place}: {error}")))
    }
}

fn overflow(word: &str) -> Option<Overflow> {
    match word {
        "drop-oldest" => Some(Overflow::DropOldest),
        "drop-newest" => Some(Overflow::DropNewest),
        // A delayed source waits without a time limit.
        "block" => Some(Overflow::Block { patience: Duration::MAX }),
        _ => None,
    }
}

fn setting_value(value: &DeValue<'_>) -> SettingValue {
    match value {
        DeValue::String(text) => SettingValue::Text(text.to_string()),
        DeValue::Boolean(truth) => SettingValue::Truth(*truth),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(SettingValue::Other, SettingValue::Whole)
        }
        DeValue::Float(number) => number.as_str().parse().map_or(SettingValue::Other, SettingValue::Number),
        _ => SettingValue::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_with_their_line() {
        let cases = [
            ("[collecter]", "line 1: unknown key 'collecter', did you mean 'collector'?"),
            ("a = ", "line 1: "),
            ("collector = 1", "line 1: 'collector': a table is expected"),
            ("[collector]\ntopcs = []", "line 2: unknown setting 'topcs', did you mean 'topics'?"),
            ("[collector]\ntopics = 'a'", "line 2: [collector]: 'topics': a list is expected"),
            ("[collector]\ntopics = [1]", "line 2: [collector]: 'topics': a pattern of topics is expected, as a text"),
            ("[collector]\nname = 'a/b'", "line 2: [collector]: 'name': 'a/b' cannot be the name of a node"),
            ("[collector]\nendpoints = ['json']", "line 1: [collector]: 'endpoints': an endpoint is expected, such as"),
            ("[collector]\ntopics = []", "line 1: [collector]: 'topics': a pattern of topics is expected"),
            ("[collector]\ntopics = [\n'a',\n'a//b']", "line 4: [collector]: 'topics': "),
            ("[collector]\nendpoints = ['tcp/']", "line 2: [collector]: 'endpoints': "),
            ("\n[handlers.a]\nqueue = 1", "line 2: [handlers.a]: 'kind' is missing; it is one of null, jsonl"),
            ("[handlers.a]\nkind = 'jsnl'", "line 2: [handlers.a]: unknown kind 'jsnl', did you mean 'jsonl'?"),
            ("[handlers.a]\nkind = 1", "line 2: [handlers.a]: 'kind': a text is expected"),
            ("[handlers.a]\nkind = 'jsonl'", "line 1: [handlers.a]: 'path' is missing"),
            ("[handlers.a]\nkind = 'jsonl'\npath = ''", "line 3: [handlers.a]: 'path': a text, not empty, is expected"),
            ("[handlers.a]\nkind = 'null'\nqueue = 0", "line 3: [handlers.a]: 'queue': a whole number from 1 is"),
            ("[handlers.a]\nkind = 'null'\nsync = -1", "line 3: [handlers.a]: 'sync': a number of seconds from 0"),
            ("[handlers.a]\nkind = 'null'\noverflow = 'wait'", "'drop-oldest', 'drop-newest' or 'block' is expected"),
            ("[handlers.a]\nkind = 'null'\nqueu = 1", "unknown setting 'queu', did you mean 'queue'?"),
            ("[handlers.a]\nkind = 'jsonl'\npath = 'a'\nrotate_bytes = 1.5", "line 4: [handlers.a]: 'rotate_bytes'"),
            ("[alerts.a]", "line 1: [alerts.a]: 'when' is missing, a condition"),
            ("[alerts.a]\nwhen = 1", "line 2: [alerts.a]: 'when': a text is expected"),
            ("[alerts.a]\nwhen = 'a/b >'", "line 2: [alerts.a]: 'when': column 6: a number, a text in quotes"),
            ("[alerts.a]\nwhn = ''", "line 2: [alerts.a]: unknown setting 'whn', did you mean 'when'?"),
            ("[alerts.a]\nwhen = 'a/b > 1'\nprefix = 'a/**'", "line 1: [alerts.a]: 'prefix': '*' is expected"),
            ("[alerts.a]\nwhen = 'a/b > 1'\nprefix = 'a/'", "line 1: [alerts.a]: 'prefix': topic \"a/\""),
            ("[alerts.a]\nseverity = 'bad'", "line 2: [alerts.a]: 'severity': one of 'info', 'warning', 'critical' is"),
            ("handlers = { a = 1 }", "line 1: [handlers.a]: a table is expected"),
        ];
        for (text, expected) in cases {
            let error = CollectorConfig::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_not_set_has_its_default() {
        let config = CollectorConfig::parse("[handlers.b]\nkind = 'null'\n[handlers.a]\nkind = 'null'").expect("valid");
        let names: Vec<&str> = config.handlers.iter().map(|plan| plan.name.as_str()).collect();
        assert_eq!((names, config.topics[0].as_str()), (vec!["a", "b"], "probes/**"));
        let plan = &config.handlers[0];
        assert_eq!((plan.queue, plan.overflow, plan.sync, plan.line), (QUEUE, Overflow::DropOldest, SYNC, 3));
        let moved = CollectorConfig::parse("\n\n[handlers.a]\nkind = 'null'").expect("valid");
        assert_eq!(&moved.handlers[0], plan, "only the line differs");
    }
}
