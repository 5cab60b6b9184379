//! The configuration of a node and its probes.

use std::{path::PathBuf, time::Duration};

use polywire::{Wire, suggest};

use crate::{Identity, IdentityError, MeasureError, Plan, packet::MAX_PAYLOAD_BYTES, system, uplink::UplinkOptions};

/// The keys of `[agent]`.
const KEYS: [&str; 10] =
    ["name", "state", "socket", "collector", "spool", "spool_bytes", "sync", "packet_bytes", "window", "budget"];

/// The maximum number of packets under way at a time.
const MAX_WINDOW: i64 = 256;

/// The name and the probes of a node, read from TOML.
///
/// `[agent]` may have `name`, `state` (the file that keeps the UUID), `socket` (the path of the
/// node's local socket, [`crate::socket`]), `collector` (the wire of the collector), `spool` (a
/// folder), `spool_bytes`, `sync` (seconds), `packet_bytes`, `window` (packets) and `budget` (bytes
/// a second), which [`UplinkOptions`] explains. Each table `[probes.INSTANCE]` is a probe: `probe`
/// names its type, by default `INSTANCE`; `every` is in seconds; `enabled`, `wire`, `thin`, `keep`,
/// `batch`, `priority` and the parameters of the type may follow. If there is no such table, all
/// system probes run that this system supports.
///
/// ```
/// use polywire_telemetry::AgentConfig;
///
/// let config = AgentConfig::parse("
///     [agent]
///     name = 'pump-house'
///
///     [probes.processor]
///     every = 0.1
///
///     [probes.database]
///     probe = 'processes'
///     pattern = 'postgres*'
/// ")?;
/// assert_eq!(config.name.as_deref(), Some("pump-house"));
/// let plans = config.probes.unwrap();
/// assert_eq!((plans[0].instance.as_str(), plans[0].probe.name), ("database", "processes"));
/// let error = AgentConfig::parse("[probes.processor]\nevry = 1").unwrap_err();
/// assert_eq!(error.to_string(), "[probes.processor]: unknown setting 'evry', did you mean 'every'?");
/// # Ok::<(), polywire_telemetry::AgentConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AgentConfig {
    /// The name of the node.
    pub name: Option<String>,
    /// The file that keeps the identity of the node.
    pub state: Option<PathBuf>,
    /// The path of the socket to which programs send samples; `None` if there is none.
    pub socket: Option<PathBuf>,
    /// The wire of the collector that gets all samples; `None` if there is none.
    pub collector: Option<Wire>,
    /// The folder for samples that the collector has not acknowledged yet.
    pub spool: Option<PathBuf>,
    /// Limits of the uplink to the collector.
    pub uplink: UplinkOptions,
    /// The probes, by instance; `None` if the file names none.
    pub probes: Option<Vec<Plan>>,
}

/// Why a configuration is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentConfigError {
    /// The text is no TOML.
    #[error("{0}")]
    Syntax(String),
    /// A key is unknown, or its value has another type.
    #[error("{0}")]
    Key(String),
    /// The name of the node or of an instance is wrong.
    #[error(transparent)]
    Name(#[from] IdentityError),
    /// A probe does not exist, or cannot be set like this.
    #[error("[probes.{instance}]: {cause}")]
    Probe {
        /// The table.
        instance: String,
        /// What is wrong in it.
        cause: MeasureError,
    },
}

/// The sections of [`polywire::Config`], which belong in another file.
const OF_THE_NODE: &[&str] = &["node", "topics", "engine", "identity", "access"];

impl AgentConfig {
    /// Parses a configuration. Unknown keys are errors.
    pub fn parse(text: &str) -> Result<AgentConfig, AgentConfigError> {
        let table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| AgentConfigError::Syntax(error.to_string().trim_end().to_owned()))?;
        let mut config = AgentConfig::default();
        for (key, value) in &table {
            match (key.as_str(), value) {
                ("agent", toml::Value::Table(agent)) => config.agent(agent)?,
                ("probes", toml::Value::Table(probes)) => config.probes = Some(plans(probes)?),
                ("agent" | "probes", _) => return Err(AgentConfigError::Key(format!("'{key}' must be a table"))),
                (section, _) if OF_THE_NODE.contains(&section) => {
                    return Err(AgentConfigError::Key(format!(
                        "[{section}] is not for this file: it belongs in the configuration that --config or \
                         POLYWIRE_CONFIG names"
                    )));
                }
                _ => return Err(unknown(key, "", ["agent", "probes"])),
            }
        }
        Ok(config)
    }

    fn agent(&mut self, table: &toml::Table) -> Result<(), AgentConfigError> {
        for (key, value) in table {
            let text =
                || value.as_str().ok_or_else(|| AgentConfigError::Key(format!("[agent]: '{key}' must be a text")));
            let uplink = &mut self.uplink;
            match key.as_str() {
                "name" => self.name = Some(Identity::new(text()?)?.name),
                "state" => self.state = Some(text()?.into()),
                "socket" => self.socket = Some(text()?.into()),
                "collector" => {
                    let wrong = |error| AgentConfigError::Key(format!("[agent]: 'collector': {error}"));
                    self.collector = Some(text()?.parse().map_err(wrong)?);
                }
                "spool" => self.spool = Some(text()?.into()),
                "spool_bytes" => uplink.spool_bytes = integer(key, value, 1 << 16, i64::MAX)?,
                "sync" => uplink.sync = seconds(key, value)?,
                "packet_bytes" => uplink.packet_bytes = integer(key, value, 1024, MAX_PAYLOAD_BYTES as i64)? as usize,
                "window" => uplink.window = integer(key, value, 1, MAX_WINDOW)? as usize,
                "budget" => uplink.budget_bytes_per_s = Some(integer(key, value, 1, i64::MAX)?),
                _ => return Err(unknown(key, "[agent]: ", KEYS)),
            }
        }
        Ok(())
    }
}

fn integer(key: &str, value: &toml::Value, least: i64, most: i64) -> Result<u64, AgentConfigError> {
    let number = value.as_integer().filter(|number| (least..=most).contains(number));
    let range = if most == i64::MAX { format!("from {least} up") } else { format!("from {least} to {most}") };
    let wrong = || AgentConfigError::Key(format!("[agent]: '{key}' must be a whole number {range}"));
    number.map(i64::unsigned_abs).ok_or_else(wrong)
}

/// Parses a time from 0 to 3600 seconds.
fn seconds(key: &str, value: &toml::Value) -> Result<Duration, AgentConfigError> {
    let number = value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
    let number = number.filter(|seconds| (0.0..=3600.0).contains(seconds));
    let wrong = || AgentConfigError::Key(format!("[agent]: '{key}' must be a number of seconds from 0 to 3600"));
    number.map(Duration::from_secs_f64).ok_or_else(wrong)
}

fn unknown<const N: usize>(key: &str, place: &str, known: [&str; N]) -> AgentConfigError {
    AgentConfigError::Key(format!("{place}unknown key '{key}'{}", suggest::hint(key, known)))
}

fn plans(tables: &toml::Table) -> Result<Vec<Plan>, AgentConfigError> {
    tables.iter().map(|(instance, value)| plan(instance, value)).collect()
}

fn plan(instance: &str, value: &toml::Value) -> Result<Plan, AgentConfigError> {
    let wrong = |cause| AgentConfigError::Probe { instance: instance.to_owned(), cause };
    // Like the name of a node, an instance is part of a topic.
    Identity::new(instance)?;
    let Some(table) = value.as_table() else {
        return Err(AgentConfigError::Key(format!("'probes.{instance}' must be a table")));
    };
    let probe = table.get("probe").map_or(instance, |probe| probe.as_str().unwrap_or_default());
    let mut plan = Plan { instance: instance.to_owned(), ..Plan::of(system::find(probe).map_err(wrong)?) };
    for (key, value) in table.iter().filter(|(key, _)| *key != "probe") {
        let text = match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(truth) => truth.to_string(),
            _ => return Err(AgentConfigError::Key(format!("[probes.{instance}]: '{key}' must be a text or a number"))),
        };
        plan.set(key, &text).map_err(wrong)?;
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_told() {
        let error = |text: &str| AgentConfig::parse(text).expect_err("wrong").to_string();
        assert_eq!(error("[probe]"), "unknown key 'probe', did you mean 'probes'?");
        assert_eq!(error("[agent]\nnaem = 'a'"), "[agent]: unknown key 'naem', did you mean 'name'?");
        assert!(error("[node]\nfollow = []").starts_with("[node] is not for this file: "));
        assert_eq!(error("agent = 1"), "'agent' must be a table");
        assert_eq!(error("[agent]\nname = 1"), "[agent]: 'name' must be a text");
        assert_eq!(error("[agent]\nspool_bytes = 1"), "[agent]: 'spool_bytes' must be a whole number from 65536 up");
        assert!(error("[agent]\npacket_bytes = 1e3").ends_with("must be a whole number from 1024 to 1048576"));
        assert!(error("[agent]\nsync = -1").ends_with("must be a number of seconds from 0 to 3600"));
        assert!(error("[agent]\ncollector = 'tcp/'").starts_with("[agent]: 'collector': "));
        assert!(error("[probes.load]\nkeep = 0").ends_with("'all', 'none' or a number from 1 to 100000 is expected"));
        assert!(error("[probes.load]\nbatch = '5h'").contains("a time such as 5s"));
        assert!(error("[probes.load]\npriority = 10").ends_with("a number from 0 to 9 is expected"));
        assert!(error("[agent]\nname = 'a/b'").starts_with("'a/b' cannot be the name of a node"));
        assert!(error("[probes.\"a b\"]").starts_with("'a b' cannot be the name of a node"));
        assert_eq!(error("[probes.memry]"), "[probes.memry]: unknown probe 'memry', did you mean 'memory'?");
        assert_eq!(error("[probes.load]\nevery = []"), "[probes.load]: 'every' must be a text or a number");
        assert!(error("[probes.load]\nevery = 0").ends_with("a number of seconds from 0.001 to 86400 is expected"));
        assert!(error("[probes.load]\nwire = 'cdr@'").contains("a wire ("));
        assert!(error("[probes.load]\nenabled = 'no'").ends_with("true or false is expected"));
        assert!(error("[probes").contains("line 1"));
    }

    #[test]
    fn without_tables_nothing_is_said_about_probes() {
        let config = AgentConfig::parse("[agent]\nstate = '/var/lib/a'").expect("valid");
        assert_eq!((config.probes.is_none(), config.state), (true, Some("/var/lib/a".into())));
        let plans =
            AgentConfig::parse("[probes.load]\nevery = 2\nenabled = false\nwire = 'json'").expect("valid").probes;
        let plan = plans.expect("named").remove(0);
        assert_eq!((plan.every.as_secs(), plan.enabled, plan.wire.as_deref()), (2, false, Some("json")));
    }
}
