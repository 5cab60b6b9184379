//! The plan of a probe that a node runs: its type with all settings.

use std::{sync::Arc, time::Duration};

use polywire::{Schema, Wire};

use crate::{
    MeasureError, ProbeType, Settings, Thinning, Uuid,
    schedule::{LONGEST, SHORTEST},
    socket::DeclaredProbe,
    uplink::{MAX_PRIORITY, Rule, RuleError},
};

/// The settings that probes of all types have.
const COMMON: [&str; 7] = ["every", "enabled", "thin", "wire", "keep", "batch", "priority"];

/// The plan of a probe that a node runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The name of the probe on the node.
    pub instance: String,
    /// The type of the probe.
    pub probe: &'static ProbeType,
    /// The time between two samples, from a millisecond to a day.
    pub every: Duration,
    /// The wire of the topic; `None` for the node's wire.
    pub wire: Option<String>,
    /// The parameters of the probe.
    pub settings: Settings,
    /// Which samples are sent.
    pub thin: Thinning,
    /// How samples are kept for a collector, if the node has one.
    pub rule: Rule,
    /// Whether the probe is sampled when it is due and has a subscriber or a collector.
    pub enabled: bool,
    /// The declaration of a probe whose samples a program sends to the node's socket.
    pub declared: Option<Arc<DeclaredProbe>>,
}

impl Plan {
    /// Makes the plan of a probe with the name and the defaults of its type.
    pub fn of(probe: &'static ProbeType) -> Plan {
        let settings = Settings::default();
        let (instance, every) = (probe.name.to_owned(), probe.every);
        let (thin, rule) = (Thinning::default(), Rule::default());
        Plan { instance, probe, every, wire: None, settings, thin, rule, enabled: true, declared: None }
    }

    /// Returns the UUID of the type.
    pub fn uuid(&self) -> Uuid {
        self.declared.as_ref().map_or(self.probe.uuid, |declared| declared.uuid)
    }

    /// Returns the version of the type.
    pub fn version(&self) -> &str {
        self.declared.as_ref().map_or(self.probe.version, |declared| &declared.version)
    }

    /// Returns the text that defines the type, in PDL.
    pub fn pdl(&self) -> &str {
        self.declared.as_ref().map_or_else(|| self.probe.pdl.text(), |declared| &declared.pdl)
    }

    /// Returns the type of the samples.
    pub fn schema(&self) -> &Schema {
        self.declared.as_ref().map_or_else(|| (self.probe.shape)().schema(), |declared| declared.shape().schema())
    }

    /// Returns whether the schedule decides when the probe is sampled.
    pub(crate) fn is_due_by_time(&self) -> bool {
        self.enabled && self.declared.is_none()
    }

    /// Changes a setting: `every` in seconds, `enabled`, `wire`, `thin` ([`Thinning`]), `keep`,
    /// `batch` and `priority` ([`Rule`]), or a parameter.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), MeasureError> {
        let wrong = |expected: &str| MeasureError::Value {
            parameter: name.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        };
        match name {
            "every" if self.declared.is_some() => {
                return Err(wrong("nothing (a program sends the samples, and each is taken as it comes)"));
            }
            "every" => {
                let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                let every = seconds.filter(|every| (SHORTEST..=LONGEST).contains(every));
                self.every = every.ok_or_else(|| wrong("a number of seconds from 0.001 to 86400"))?;
            }
            "enabled" => self.enabled = value.parse().map_err(|_| wrong("true or false"))?,
            "thin" => self.thin = value.parse()?,
            "keep" => self.rule.keep = value.parse().map_err(|RuleError(expected)| wrong(expected))?,
            "batch" => self.rule.batch = value.parse().map_err(|RuleError(expected)| wrong(expected))?,
            "priority" => {
                let priority = value.parse().ok().filter(|priority| *priority <= MAX_PRIORITY);
                self.rule.priority = priority.ok_or_else(|| wrong("a number from 0 to 9"))?;
            }
            "wire" => {
                value.parse::<Wire>().map_err(|error| wrong(&format!("a wire ({error})")))?;
                self.wire = Some(value.to_owned());
            }
            parameter => {
                let known = self.probe.parameters;
                if !known.iter().any(|known| known.name == parameter) {
                    let names = known.iter().map(|known| known.name).chain(COMMON);
                    return Err(MeasureError::unknown("setting", parameter, names));
                }
                self.settings.set(known, parameter, value)?;
            }
        }
        Ok(())
    }
}
