//! Configuration of a node: wires and queue policies per topic, from one TOML file.
//!
//! ```toml
//! [node]
//! wire = "cdr@tcp/127.0.0.1:7460"   # for all topics; completes the wires of topics below
//! name = "hall-3"                   # what tools call the node; else the program's name and number
//! metrics = "127.0.0.1:9464"        # serves counts to Prometheus, at an address of this machine
//! follow = ["tls/plant-*:7448"]     # endpoints that strangers' topics may move to; see `follow`
//!
//! [engine]
//! queue_bytes = 4194304             # each key is a field of `EngineOptions`
//! overflow = "block"                # or "drop-oldest", "drop-newest"
//! patience_ms = 5000
//!
//! [identity]                        # who the node is over TLS; each key is a field of `Identity`
//! certificate = "/etc/polywire/certificate.pem"
//! key = "/etc/polywire/key.pem"
//! authority = "/etc/polywire/authority.pem"
//!
//! [access]                          # who may do what; see `access`
//!
//! [topics."plant/*/pump"]           # all topics that fit; `*` is one level, `**` any number
//! wire = ["cdr@local", "fast@udp/239.1.2.3:7400"]   # at several endpoints at once
//!
//! [topics."market/quotes"]          # what is here counts more than what is under a pattern
//! wire = "json+zstd:3"
//! queue = 256                       # messages that wait for a subscriber
//! queue_bytes = 16777216            # bytes of memory that they may take
//!
//! [topics."market/quotes".qos]      # quality of service of publishers and subscribers
//! profile = "sensor-data"           # optional; the other keys change it
//! deadline = "100ms"
//! partition = ["line/1", "line/2"]
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use polywire_core::topic::{Pattern, TopicError};
use serde::Deserialize;

use crate::{
    access::{Access, Rule, Who},
    engine::{EngineOptions, Identity, Overflow},
    qos::{Qos, QosError},
    suggest::{hint, unknown_name},
    wire::{self, Wire, WireError},
};

/// The most bytes of a node's name.
pub(crate) const NODE_NAME: usize = 255;

/// Settings that cannot change while a node runs.
const FIXED: &[&str] = &["node.name", "node.metrics", "engine", "identity"];

/// A node's configuration. The default has no topics and leaves every choice to the code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Wires that complete the wires of all topics. Several wires are several endpoints at once.
    pub wires: Vec<Wire>,
    /// Patterns of endpoints, in which `*` stands for any characters. The node follows a topic
    /// there if a stranger announces the move, and moves a topic there if a command asks for it. It
    /// follows another process of the same user to any endpoint.
    pub follow: Vec<String>,
    /// The name that tools show: [`NodeBuilder::name`](crate::NodeBuilder::name).
    pub name: Option<String>,
    /// Where the node serves its counts over HTTP: see
    /// [`Node::serve_metrics`](crate::Node::serve_metrics).
    pub metrics: Option<SocketAddr>,
    /// Settings of all ports.
    pub engine: EngineOptions,
    /// Who may do what. `None`, without a section `[access]`: everybody may do everything.
    pub access: Option<Access>,
    /// Settings by topic, or by pattern of topics: see [`Config::topic`].
    pub topics: BTreeMap<Pattern, TopicConfig>,
}

/// Settings of one topic.
///
/// ```
/// use polywire::{config::TopicConfig, engine::Overflow, Config};
/// let config = Config::parse("[topics.quotes]\nwire = 'bson'\nqueue = 64\nqueue_bytes = 9000\noverflow = 'drop-oldest'")?;
/// let quotes: &TopicConfig = &config.topics["quotes"];
/// assert_eq!((quotes.queue, quotes.queue_bytes), (Some(64), Some(9000)));
/// assert_eq!(quotes.overflow, Some(Overflow::DropOldest));
/// # Ok::<(), polywire::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicConfig {
    /// How messages travel. Several wires are several endpoints at once. Empty if left open.
    pub wires: Vec<Wire>,
    /// The most messages that may wait for a subscriber.
    pub queue: Option<usize>,
    /// The most bytes of memory that these messages may take:
    /// [`Subscribe::queue_bytes`](crate::Subscribe::queue_bytes).
    pub queue_bytes: Option<usize>,
    /// What happens when a subscriber's queue is full.
    pub overflow: Option<Overflow>,
    /// Quality of service of publishers and subscribers. A policy that concerns only one side is
    /// ignored for the other.
    pub qos: Option<Qos>,
}

/// Why a configuration is not valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {cause}")]
    Read {
        /// Path of the file.
        path: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The text is not TOML, or has an unknown key or a value of the wrong type.
    #[error("{message}{hint}")]
    Syntax {
        /// Line and column, the line itself, and what is wrong.
        message: String,
        /// Text to append to the message: the nearest known key, if one is near.
        hint: String,
    },
    /// A section has an invalid topic name.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// A wire is not valid.
    #[error("{key}: {cause}")]
    Wire {
        /// The key, with its section.
        key: String,
        /// What is wrong with the wire.
        cause: WireError,
    },
    /// A value is out of range, or excludes another one.
    #[error("{key}: {reason}")]
    Value {
        /// The key, with its section.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

impl Config {
    /// Reads a configuration file.
    ///
    /// ```
    /// use polywire::config::{Config, ConfigError};
    /// let path = std::env::temp_dir().join(format!("polywire-doc-{}.toml", std::process::id()));
    /// std::fs::write(&path, "[node]\nwire = 'cdr@tcp/127.0.0.1:7460'")?;
    /// assert_eq!(Config::read(&path)?.wires_of("any")[0].to_string(), "cdr@tcp/127.0.0.1:7460");
    /// std::fs::remove_file(&path)?;
    /// assert!(matches!(Config::read(&path), Err(ConfigError::Read { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(path: impl AsRef<Path>) -> Result<Config, ConfigError> {
        let path = path.as_ref();
        let text =
            fs::read_to_string(path).map_err(|cause| ConfigError::Read { path: path.display().to_string(), cause })?;
        Config::parse(&text)
    }

    /// Parses the text of a configuration file.
    ///
    /// ```
    /// use polywire::config::Config;
    /// let config = Config::parse("[topics.quotes]\nwire = 'json'")?;
    /// assert_eq!(config.wires_of("quotes")[0].to_string(), "json");
    /// let error = Config::parse("[topics.quotes]\nwrie = 'json'").unwrap_err();
    /// assert!(error.to_string().ends_with("did you mean 'wire'?"));
    /// # Ok::<(), polywire::config::ConfigError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let hint = unknown_name(error.message());
            ConfigError::Syntax { message: error.to_string().trim_end().to_owned(), hint }
        })?;
        let mut topics = BTreeMap::new();
        for (name, topic) in file.topics {
            let key = format!("topics.\"{name}\"");
            topics.insert(name.parse()?, topic.check(&key)?);
        }
        let mut engine = file.engine.check()?;
        engine.identity = file.identity.into();
        let access = file.access.map(AccessTable::check).transpose()?;
        let NodeTable { wire: default, follow, name, metrics } = file.node;
        let name = name.map(node_name).transpose()?;
        let metrics = metrics.map(|text| loopback("node.metrics", &text)).transpose()?;
        Ok(Config { wires: wires("node.wire", default)?, follow, name, metrics, engine, access, topics })
    }

    /// Returns the settings of a topic. Each setting is taken from the narrowest section that fits
    /// the topic and has it: the topic's own, then those of patterns
    /// ([`Pattern::is_narrower_than`]).
    ///
    /// ```
    /// use polywire::Config;
    /// let config = Config::parse("[topics.'plant/**']\nwire = 'json'\nqueue = 9\n[topics.'plant/*/pump']\nqueue = 7")?;
    /// let pump = config.topic("plant/3/pump");
    /// assert_eq!((pump.wires[0].to_string().as_str(), pump.queue), ("json", Some(7)));
    /// assert_eq!(config.topic("plant/3").queue, Some(9));
    /// # Ok::<(), polywire::config::ConfigError>(())
    /// ```
    pub fn topic(&self, topic: &str) -> TopicConfig {
        let mut fitting: Vec<_> = self.topics.iter().filter(|(pattern, _)| pattern.fits(topic)).collect();
        fitting.sort_by(|(a, _), (b, _)| b.is_narrower_than(a).cmp(&a.is_narrower_than(b)));
        let own = fitting.iter().position(|(pattern, _)| pattern.as_str() == topic);
        let own = own.map(|at| fitting.remove(at)).into_iter();
        own.chain(fitting).fold(TopicConfig::default(), |narrow, (_, wide)| narrow.or(wide))
    }

    /// Returns the wires of a topic: its own, completed with the node's by [`wire::complete`].
    /// Empty if neither is configured.
    pub fn wires_of(&self, topic: &str) -> Vec<Wire> {
        wire::complete(&self.topic(topic).wires, &self.wires)
    }

    /// Returns the wires that a topic gets if code or a command line gives `wires`: these,
    /// completed with the topic's, and then with [`Wire::default`]. Empty if no wire is given or
    /// configured.
    ///
    /// ```
    /// use polywire::Config;
    /// let config = Config::parse("[node]\nwire = 'bson@unix/a'\n[topics.quotes]\nwire = 'json'")?;
    /// let used = |topic, wire: &str| config.wires_for(topic, &[wire.parse().unwrap()])[0].to_string();
    /// assert_eq!(used("quotes", "tcp/127.0.0.1:7502"), "json@tcp/127.0.0.1:7502");
    /// assert_eq!(used("quotes", "cdr"), "cdr@unix/a");
    /// let none = Config::default();
    /// assert_eq!(none.wires_for("quotes", &["cdr".parse()?])[0].to_string(), "cdr@local");
    /// assert!(none.wires_for("quotes", &[]).is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wires_for(&self, topic: &str, wires: &[Wire]) -> Vec<Wire> {
        match wire::complete(wires, &self.wires_of(topic)) {
            none if none.is_empty() => none,
            some => wire::complete(&some, &[Wire::default()]),
        }
    }
}

impl Config {
    /// Names the keys and sections in which another configuration differs: `node.wire`, `engine`,
    /// `topics."plant/**"`.
    ///
    /// ```
    /// use polywire::Config;
    /// let config = Config::parse("[node]\nwire = 'json'\n[topics.quotes]\nqueue = 64")?;
    /// let other = Config::parse("[topics.quotes]\nqueue = 9\n[engine]\nburst = 2")?;
    /// assert_eq!(config.differences(&other), ["node.wire", "engine", "topics.\"quotes\""]);
    /// # Ok::<(), polywire::config::ConfigError>(())
    /// ```
    pub fn differences(&self, other: &Config) -> Vec<String> {
        let engine = |config: &Config| EngineOptions { identity: Identity::default(), ..config.engine.clone() };
        let keys = [
            ("node.wire", self.wires != other.wires),
            ("node.follow", self.follow != other.follow),
            ("node.name", self.name != other.name),
            ("node.metrics", self.metrics != other.metrics),
            ("engine", engine(self) != engine(other)),
            ("identity", self.engine.identity != other.engine.identity),
            ("access", self.access != other.access),
        ];
        let keys = keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| String::from(key));
        let topics: BTreeSet<&Pattern> = self.topics.keys().chain(other.topics.keys()).collect();
        let topics = topics.into_iter().filter(|topic| self.topics.get(*topic) != other.topics.get(*topic));
        keys.chain(topics.map(|topic| format!("topics.\"{topic}\""))).collect()
    }

    /// Returns those of the differences that a running node cannot apply.
    pub(crate) fn fixed(differences: &[String]) -> Vec<String> {
        differences.iter().filter(|key| FIXED.contains(&key.as_str())).cloned().collect()
    }
}

impl TopicConfig {
    /// Fills in the settings that are left open from a wider section.
    fn or(self, wide: &TopicConfig) -> TopicConfig {
        TopicConfig {
            wires: if self.wires.is_empty() { wide.wires.clone() } else { self.wires },
            queue: self.queue.or(wide.queue),
            queue_bytes: self.queue_bytes.or(wide.queue_bytes),
            overflow: self.overflow.or(wide.overflow),
            qos: self.qos.or_else(|| wide.qos.clone()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    node: NodeTable,
    #[serde(default)]
    engine: EngineTable,
    #[serde(default)]
    identity: IdentityTable,
    access: Option<AccessTable>,
    #[serde(default)]
    topics: BTreeMap<String, TopicTable>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    wire: Option<OneOrMore>,
    #[serde(default)]
    follow: Vec<String>,
    name: Option<String>,
    metrics: Option<String>,
}

/// A text, or a list of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineTable {
    queue_bytes: Option<usize>,
    overflow: Option<String>,
    patience_ms: Option<u64>,
    no_delay: Option<bool>,
    thin: Option<bool>,
    send_buffer: Option<usize>,
    receive_buffer: Option<usize>,
    burst: Option<u32>,
    gather_us: Option<u64>,
    write_bytes: Option<usize>,
    reconnect_min_ms: Option<u64>,
    reconnect_max_ms: Option<u64>,
    connect_timeout_ms: Option<u64>,
    hello_timeout_ms: Option<u64>,
    keepalive_s: Option<u64>,
    lease_ms: Option<u64>,
    linger_ms: Option<u64>,
    peers: Option<usize>,
    unix_mode: Option<u32>,
    frame_bytes: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityTable {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    authority: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicTable {
    wire: Option<OneOrMore>,
    queue: Option<usize>,
    queue_bytes: Option<usize>,
    overflow: Option<String>,
    patience_ms: Option<u64>,
    qos: Option<BTreeMap<String, Policy>>,
}

/// The value of a policy.
#[derive(Deserialize)]
#[serde(untagged)]
enum Policy {
    Text(String),
    Number(i64),
    Texts(Vec<String>),
}

impl EngineTable {
    fn check(self) -> Result<EngineOptions, ConfigError> {
        let mut options = EngineOptions::default();
        let set = |to: &mut Duration, value: Option<Duration>| *to = value.unwrap_or(*to);
        let millis = |value: Option<u64>| value.map(Duration::from_millis);
        if let Some(overflow) = overflow("engine", self.overflow.as_deref(), self.patience_ms)? {
            options.overflow = overflow;
        }
        options.queue_bytes = positive("engine.queue_bytes", self.queue_bytes)?.unwrap_or(options.queue_bytes);
        options.send_buffer = positive("engine.send_buffer", self.send_buffer)?;
        options.receive_buffer = positive("engine.receive_buffer", self.receive_buffer)?;
        options.write_bytes = positive("engine.write_bytes", self.write_bytes)?.unwrap_or(options.write_bytes);
        options.peers = positive("engine.peers", self.peers)?.unwrap_or(options.peers);
        options.unix_mode = unix_mode(self.unix_mode)?.unwrap_or(options.unix_mode);
        options.no_delay = self.no_delay.unwrap_or(options.no_delay);
        options.thin = self.thin.unwrap_or(options.thin);
        options.burst = self.burst.unwrap_or(options.burst);
        let frame_bytes = positive("engine.frame_bytes", self.frame_bytes)?;
        options.limits.frame_bytes = frame_bytes.unwrap_or(options.limits.frame_bytes);
        set(&mut options.gather, self.gather_us.map(Duration::from_micros));
        set(&mut options.reconnect_min, millis(self.reconnect_min_ms));
        set(&mut options.reconnect_max, millis(self.reconnect_max_ms));
        set(&mut options.connect_timeout, millis(self.connect_timeout_ms));
        set(&mut options.hello_timeout, millis(self.hello_timeout_ms));
        set(&mut options.keepalive, self.keepalive_s.map(Duration::from_secs));
        set(&mut options.lease, millis(self.lease_ms));
        set(&mut options.linger, millis(self.linger_ms));
        if options.reconnect_min > options.reconnect_max {
            let reason = "is larger than engine.reconnect_max_ms".into();
            return Err(ConfigError::Value { key: "engine.reconnect_min_ms".into(), reason });
        }
        Ok(options)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessTable {
    #[serde(default)]
    allow: Vec<RuleTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleTable {
    #[serde(default)]
    certificates: Vec<String>,
    #[serde(default)]
    users: Vec<UserTable>,
    #[serde(default)]
    anyone: bool,
    #[serde(default)]
    publish: Vec<String>,
    #[serde(default)]
    subscribe: Vec<String>,
    #[serde(default)]
    request: Vec<String>,
    #[serde(default)]
    serve: Vec<String>,
    bytes_per_second: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum UserTable {
    Number(u32),
    Name(String),
}

impl AccessTable {
    fn check(self) -> Result<Access, ConfigError> {
        let mut access = Access::default();
        for (number, rule) in self.allow.into_iter().enumerate() {
            access.allow.push(rule.check(&format!("access.allow[{number}]"))?);
        }
        Ok(access)
    }
}

impl RuleTable {
    fn check(self, key: &str) -> Result<Rule, ConfigError> {
        let wrong = |key: String, reason: &str| Err(ConfigError::Value { key, reason: reason.into() });
        let certificates = self.certificates.into_iter().map(|name| Who::Certificate(name.to_ascii_lowercase()));
        let users = self.users.into_iter().map(|user| match user {
            UserTable::Number(id) => Who::User(id),
            UserTable::Name(name) => Who::UserName(name),
        });
        let patterns = |texts: Vec<String>| texts.iter().map(|text| text.parse()).collect::<Result<Vec<Pattern>, _>>();
        let rule = Rule {
            who: certificates.chain(users).chain(self.anyone.then_some(Who::Anyone)).collect(),
            publish: patterns(self.publish).map_err(|error| refused(key, &error))?,
            subscribe: patterns(self.subscribe).map_err(|error| refused(key, &error))?,
            request: patterns(self.request).map_err(|error| refused(key, &error))?,
            serve: patterns(self.serve).map_err(|error| refused(key, &error))?,
            bytes_per_second: self.bytes_per_second,
        };
        if rule.who.is_empty() {
            return wrong(key.into(), "is for nobody: write certificates, users, or anyone = true");
        }
        if rule.bytes_per_second == Some(0) {
            return wrong(format!("{key}.bytes_per_second"), "must be larger than 0");
        }
        Ok(rule)
    }
}

/// Makes the error for a text in a rule that is not a valid pattern of topics.
fn refused(key: &str, error: &TopicError) -> ConfigError {
    let wildcards = "; '*' and '**' stand for whole levels of a topic, as in 'plant/*/pump'";
    ConfigError::Value { key: key.into(), reason: format!("{error}{wildcards}") }
}

impl From<IdentityTable> for Identity {
    fn from(table: IdentityTable) -> Identity {
        let IdentityTable { certificate, key, authority } = table;
        let mut identity = Identity::default();
        (identity.certificate, identity.key, identity.authority) = (certificate, key, authority);
        identity
    }
}

impl TopicTable {
    fn check(self, key: &str) -> Result<TopicConfig, ConfigError> {
        Ok(TopicConfig {
            wires: wires(&format!("{key}.wire"), self.wire)?,
            queue: positive(&format!("{key}.queue"), self.queue)?,
            queue_bytes: positive(&format!("{key}.queue_bytes"), self.queue_bytes)?,
            overflow: overflow(key, self.overflow.as_deref(), self.patience_ms)?,
            qos: self.qos.map(|table| qos(&format!("{key}.qos"), table)).transpose()?,
        })
    }
}

fn qos(key: &str, mut table: BTreeMap<String, Policy>) -> Result<Qos, ConfigError> {
    let wrong = |cause: QosError| ConfigError::Value { key: key.into(), reason: cause.to_string() };
    let mut qos = match table.remove("profile") {
        None => Qos::default(),
        Some(Policy::Text(profile)) => profile.parse().map_err(wrong)?,
        Some(_) => return Err(wrong(QosError::Profile { name: "profile".into() })),
    };
    for (name, value) in table {
        match value {
            Policy::Text(text) => qos.set(&name, &text).map_err(wrong)?,
            Policy::Number(number) => qos.set(&name, &number.to_string()).map_err(wrong)?,
            Policy::Texts(texts) => texts.iter().try_for_each(|text| qos.set(&name, text)).map_err(wrong)?,
        }
    }
    qos.check().map_err(wrong)?;
    Ok(qos)
}

fn wires(key: &str, given: Option<OneOrMore>) -> Result<Vec<Wire>, ConfigError> {
    let texts = match given {
        None => Vec::new(),
        Some(OneOrMore::One(text)) => vec![text],
        Some(OneOrMore::More(texts)) if texts.is_empty() => {
            return Err(ConfigError::Value { key: key.into(), reason: "the list is empty".into() });
        }
        Some(OneOrMore::More(texts)) => texts,
    };
    let parsed = texts.iter().map(|text| text.parse()).collect::<Result<_, _>>();
    parsed.map_err(|cause| ConfigError::Wire { key: key.into(), cause })
}

fn node_name(name: String) -> Result<String, ConfigError> {
    if name.is_empty() || name.len() > NODE_NAME || name.contains(char::is_control) {
        let reason = format!("a name has 1 to {NODE_NAME} bytes and no control characters");
        return Err(ConfigError::Value { key: "node.name".into(), reason });
    }
    Ok(name)
}

/// Parses an address that other machines cannot reach.
fn loopback(key: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    let address = text.parse::<SocketAddr>().ok().filter(|address| address.ip().is_loopback());
    address.ok_or_else(|| {
        let reason = format!("'{text}': an address of this machine alone is expected, such as '127.0.0.1:9464'");
        ConfigError::Value { key: key.into(), reason }
    })
}

fn positive(key: &str, value: Option<usize>) -> Result<Option<usize>, ConfigError> {
    match value {
        Some(0) => Err(ConfigError::Value { key: key.into(), reason: "must be larger than 0".into() }),
        value => Ok(value),
    }
}

fn unix_mode(mode: Option<u32>) -> Result<Option<u32>, ConfigError> {
    match mode {
        // Probably a decimal number was meant as octal: 660 is 0o1224.
        Some(mode) if mode > 0o777 || mode & 0o600 != 0o600 => {
            let reason = format!(
                "0o{mode:o} is not allowed: use 0o600 to 0o777 with read and write for the owner, such as 0o660"
            );
            Err(ConfigError::Value { key: "engine.unix_mode".into(), reason })
        }
        mode => Ok(mode),
    }
}

fn overflow(key: &str, name: Option<&str>, patience_ms: Option<u64>) -> Result<Option<Overflow>, ConfigError> {
    let names = ["block", "drop-oldest", "drop-newest"];
    let patience = patience_ms.map(Duration::from_millis);
    let error = |key: &str, reason: String| Err(ConfigError::Value { key: key.into(), reason });
    match (name, patience) {
        (None, None) => Ok(None),
        (None | Some("block"), Some(patience)) => Ok(Some(Overflow::Block { patience })),
        (Some("block"), None) => Ok(Some(Overflow::default())),
        (Some("drop-oldest"), None) => Ok(Some(Overflow::DropOldest)),
        (Some("drop-newest"), None) => Ok(Some(Overflow::DropNewest)),
        (Some(name), Some(_)) if names.contains(&name) => {
            error(&format!("{key}.patience_ms"), format!("has no meaning with overflow = \"{name}\""))
        }
        (Some(name), _) => error(&format!("{key}.overflow"), format!("unknown policy '{name}'{}", hint(name, names))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_topics_that_cannot_be_are_refused() {
        for name in ["", "market/p*", "market/#", "q?", "a\\tb", "/a", "a//b"] {
            let error = Config::parse(&format!("[topics.\"{name}\"]\nwire = 'json'")).expect_err(name);
            assert!(matches!(error, ConfigError::Topic(_)), "{name}: {error}");
        }
    }

    #[test]
    fn a_whole_file() {
        let config = Config::parse(
            r#"
            [node]
            wire = "cdr@tcp/127.0.0.1:7460"
            [engine]
            lease_ms = 250
            thin = true
            queue_bytes = 1000
            overflow = "drop-oldest"
            gather_us = 10
            write_bytes = 512
            unix_mode = 0o660
            [topics."a/b"]
            wire = "json"
            queue = 3
            patience_ms = 7
            [topics."a/b".qos]
            profile = "sensor_data"
            transport_priority = 3
            deadline = "1.5s"
            partition = ["line/1", "line/2"]
            "#,
        )
        .expect("valid");
        assert_eq!(config.engine.overflow, Overflow::DropOldest);
        assert_eq!(config.engine.gather, Duration::from_micros(10));
        assert_eq!((config.engine.lease, config.engine.thin), (Duration::from_millis(250), true));
        assert_eq!((config.engine.write_bytes, config.engine.unix_mode), (512, 0o660));
        assert_eq!(config.wires_of("a/b")[0].to_string(), "json@tcp/127.0.0.1:7460");
        assert_eq!(config.wires_of("other")[0].to_string(), "cdr@tcp/127.0.0.1:7460");
        let qos = config.topics["a/b"].qos.as_ref().expect("it is there").to_string();
        let expected = "reliability=best-effort,history=keep-last:5,deadline=1500ms,transport-priority=3";
        assert_eq!(qos, format!("{expected},partition=line/1,partition=line/2"));
        let overflow = config.topics["a/b"].overflow;
        assert_eq!(overflow, Some(Overflow::Block { patience: Duration::from_millis(7) }));
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("[engin]", "did you mean 'engine'?"),
            ("[topics.x]\nwrie = 'cdr'", "did you mean 'wire'?"),
            ("[topics.x]\nwire = 'cdr@'", "an engine is expected"),
            ("[topics.x]\nwire = ['cdr', 'cdr@']", "an engine is expected"),
            ("[node]\nwire = []", "the list is empty"),
            ("[engine]\noverflow = 'drop-odlest'", "did you mean 'drop-oldest'?"),
            ("[engine]\noverflow = 'drop-newest'\npatience_ms = 1", "has no meaning"),
            ("[engine]\nqueue_bytes = 0", "larger than 0"),
            ("[topics.x]\nqueue_bytes = 0", "larger than 0"),
            ("[topics.x.qos]\nhistory = 'keep-some'", "topics.\"x\".qos: history: 'keep-some' is not 'keep-all'"),
            ("[topics.x.qos]\ndurabilty = 'volatile'", "no policy 'durabilty'"),
            ("[topics.x.qos]\nprofile = 'sensors'", "no profile 'sensors'"),
            ("[topics.x.qos]\ndeadline = '1s'\ntime_based_filter = '2s'", "contradict"),
            ("[engine]\nwrite_bytes = 0", "larger than 0"),
            ("[node]\nname = ''", "1 to 255 bytes"),
            ("[node]\nname = \"a\\u001b[2J\"", "no control characters"),
            ("[node]\nmetrics = '0.0.0.0:9464'", "an address of this machine alone"),
            ("[node]\nmetrics = '9464'", "such as '127.0.0.1:9464'"),
            ("[engine]\nunix_mode = 660", "0o1224 is not allowed"),
            ("[engine]\nunix_mode = 0o444", "read and write for the owner"),
            ("[engine]\nqueue_bytes = -1", "invalid value"),
            ("[engine]\nqueue_bytes = 99999999999999999999", "line 2"),
            ("[engine]\nreconnect_min_ms = 9000", "larger than engine.reconnect_max_ms"),
            ("[[access.allow]]\npublish = ['a']", "is for nobody"),
            ("[[access.allow]]\nanyone = true\npublish = ['a*']", "whole levels"),
            ("[[access.allow]]\nanyone = true\nbytes_per_second = 0", "larger than 0"),
            ("[[access.alow]]", "did you mean 'allow'?"),
            ("[topics", "line 1"),
            ("a = [[[[", "line 1"),
        ];
        for (text, expected) in cases {
            let error = Config::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let deep = format!("a = {}", "[".repeat(100_000));
        assert!(Config::parse(&deep).is_err());
    }
}
