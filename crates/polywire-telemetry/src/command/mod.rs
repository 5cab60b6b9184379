//! Commands to nodes. The services and types are those of `spec/telemetry.md`.
//!
//! Each node serves three kinds of commands: those that describe and change the node ([`Command`]),
//! those that its application has declared ([`crate::Agent::add_command`]), and those that programs
//! have declared at its socket as operations of their probes ([`crate::socket`]). All of them leave
//! an [`AuditRecord`].
//!
//! ```
//! use polywire::{Message, Node, Subscriber, service::Client};
//! use polywire_telemetry::{
//!     Agent, CommandDescription, Identity, Moment, Plan, Runner, Setting,
//!     command::{AUDIT, Action, AuditFile, AuditRecord, Command, CommandReply, Reason, Refusal, audit_qos, service_of},
//!     system::{self, Host},
//! };
//! use std::time::Duration;
//!
//! /// How far to open the valve.
//! #[derive(Default, Message)]
//! #[polywire(name = "plant::Open")]
//! struct Open { percent: f64 }
//! /// Where the valve is.
//! #[derive(Debug, Default, PartialEq, Message)]
//! #[polywire(name = "plant::Opened")]
//! struct Opened { percent: f64, turns: u32 }
//!
//! let (wire, soon) = (Some("cdr@inproc/command-doc"), Duration::from_secs(60));
//! let identity = Identity::new("house")?;
//! let mut agent = Agent::new(Node::new(), identity, Host::this(), wire.unwrap(), Moment::default())?;
//! agent.add(Plan::of(system::find("clock")?))?;
//! agent.add_command("open", "Opens the valve", |open: &Open| match open.percent {
//!     percent @ 0.0..=100.0 => Ok(Opened { percent, turns: 3 }),
//!     _ => Err("the valve opens from 0 to 100 %"),
//! })?;
//! let described: CommandDescription = agent.description().commands.remove(0);
//! assert_eq!((described.name.as_str(), described.service.as_str()), ("open", "telemetry/house/command/open"));
//! let file = std::env::temp_dir().join(format!("polywire-command-doc-{}", std::process::id()));
//! agent.audit_to(AuditFile::open(&file)?);
//! let uuid = agent.description().uuid;
//! let runner = Runner::start(agent)?;
//!
//! // Another process changes a probe, and the reply says which settings are wrong.
//! let node = Node::new();
//! let audit: Subscriber<AuditRecord> = node.subscribe(AUDIT, wire)?.qos(audit_qos())?.open();
//! let client: Client<Command, CommandReply> = node.client(&service_of("house"), wire)?.open()?;
//! let every = |value: &str| vec![Setting { name: "every".into(), value: value.into() }];
//! let set = Command { action: Action::Set, instance: "clock".into(), settings: every("0.5"), ..Command::to(&uuid) };
//! assert!(client.call(&set, soon)?.is_done());
//! let refused: Vec<Refusal> = client.call(&Command { settings: every("never"), ..set }, soon)?.refused;
//! assert_eq!((refused[0].setting.as_str(), refused[0].reason), ("every", Reason::BadValue));
//! let described = client.call(&Command::to(&uuid), soon)?.description.expect("asked for");
//! assert_eq!(described.probes[0].every_s, 0.5);
//!
//! // The process calls the command that the application has declared.
//! let open = node.client::<Open, Opened>("telemetry/house/command/open", wire)?.open()?;
//! assert_eq!(open.call(&Open { percent: 50.0 }, soon)?, Opened { percent: 50.0, turns: 3 });
//! assert!(open.call(&Open { percent: 101.0 }, soon).is_err());
//!
//! // Every authorized subscriber receives the records of commands, including the latest past ones.
//! let records: Vec<AuditRecord> = (0..5).map(|_| audit.recv_timeout(soon).unwrap().value).collect();
//! assert_eq!(records[3].request, r#"{"percent":50.0}"#);
//! assert_eq!((records[4].number, records[4].problem.as_str()), (5, "the valve opens from 0 to 100 %"));
//! assert_eq!(std::fs::read_to_string(&file)?.lines().count(), 5);
//! # std::fs::remove_file(&file)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod audit;
mod declared;
mod forwarded;
mod kept;

use std::fmt;

use polywire::Message;

pub use audit::{AUDIT, AuditFile, AuditRecord, MAX_AUDIT_BYTES, audit_qos};
pub use kept::KeptError;
pub(crate) use {
    audit::Audit,
    declared::{Declared, declare, encoder},
    forwarded::{forward, forwarded_name},
    kept::Kept,
};

use crate::{MeasureError, NodeDescription, Setting};

/// The maximum number of settings of a command.
pub const MAX_SETTINGS: usize = 256;

/// Returns the service at which the node of this name receives a [`Command`]. The names of declared
/// commands' services begin with this name.
///
/// ```
/// assert_eq!(polywire_telemetry::command::service_of("pump-house"), "telemetry/pump-house/command");
/// ```
pub fn service_of(node: &str) -> String {
    format!("telemetry/{node}/command")
}

/// The action of a [`Command`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Message)]
#[polywire(name = "telemetry::Action", nested)]
pub enum Action {
    /// The node describes itself in the reply.
    #[default]
    Describe,
    /// Changes the settings of a probe, or of the node.
    Set,
    /// Changes the settings of a probe and enables it.
    Start,
    /// Changes the settings of a probe and disables it.
    Stop,
}

/// A command to a node.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::Command")]
pub struct Command {
    /// The UUID of the node. Another node of the same name refuses the command.
    pub node: String,
    /// What the node does.
    pub action: Action,
    /// The probe; empty for the node itself.
    pub instance: String,
    /// The settings to change, at most [`MAX_SETTINGS`]: for a probe `every` (seconds), `enabled`,
    /// `thin`, `wire`, `keep`, `batch`, `priority` and its parameters; for a node with a collector
    /// `budget` (bytes a second, or `off`). Either all of them are changed, or none.
    pub settings: Vec<Setting>,
    /// Whether the settings outlive a restart of the node.
    pub keep: bool,
}

impl Command {
    /// Makes a command that asks the node with this UUID to describe itself.
    pub fn to(node: &str) -> Command {
        Command { node: node.to_owned(), ..Command::default() }
    }
}

/// The result of a [`Command`].
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::CommandReply")]
pub struct CommandReply {
    /// Why nothing was done, or why the settings do not outlive a restart; empty if the command
    /// succeeded completely.
    pub refused: Vec<Refusal>,
    /// The description of the node, if the command asked for it.
    pub description: Option<NodeDescription>,
}

impl CommandReply {
    /// Returns whether the command succeeded completely.
    pub fn is_done(&self) -> bool {
        self.refused.is_empty()
    }

    /// Returns the reasons of all refusals in one line; empty if there are none.
    pub fn problem(&self) -> String {
        in_one_line(&self.refused)
    }
}

/// Why a command, or one of its settings, is not possible.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::Refusal", nested)]
pub struct Refusal {
    /// The setting; empty if the refusal is about the whole command.
    pub setting: String,
    /// The reason in machine-readable form.
    pub reason: Reason,
    /// The reason in human-readable form.
    pub text: String,
}

/// The reasons of a [`Refusal`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Message)]
#[polywire(name = "telemetry::Reason", nested)]
pub enum Reason {
    /// The command cannot be executed now, or not at all: the text says why.
    #[default]
    Impossible,
    /// The command is for another node of this name.
    WrongNode,
    /// The node has no such probe.
    UnknownProbe,
    /// The probe, or the node, has no such setting.
    UnknownSetting,
    /// The setting cannot have this value.
    BadValue,
    /// The command was executed, but its settings do not outlive a restart.
    NotKept,
}

/// Why a node does not execute a command: at least one [`Refusal`].
///
/// ```
/// use polywire::Node;
/// use polywire_telemetry::{Agent, Identity, Moment, command::{Reason, Refused}, system::Host};
///
/// let wire = "cdr@inproc/refused-doc";
/// let mut agent = Agent::new(Node::new(), Identity::new("house")?, Host::this(), wire, Moment::default())?;
/// let Err(refused) = agent.set("clok", &[]) else { panic!("there is no such probe") };
/// let Refused(reasons) = &refused;
/// assert_eq!((reasons[0].reason, refused.to_string()), (Reason::UnknownProbe, "unknown probe 'clok'".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Refused(pub Vec<Refusal>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_one_line(&self.0))
    }
}

impl std::error::Error for Refused {}

fn in_one_line(refused: &[Refusal]) -> String {
    let texts: Vec<&str> = refused.iter().map(|refusal| refusal.text.as_str()).collect();
    texts.join("; ")
}

impl Refused {
    /// Makes a refusal of the whole command.
    pub(crate) fn whole(reason: Reason, text: impl fmt::Display) -> Refused {
        Refused(vec![Refusal { setting: String::new(), reason, text: text.to_string() }])
    }
}

impl Refusal {
    /// Makes the refusal of a setting that is wrong.
    pub(crate) fn of(setting: &Setting, error: &MeasureError) -> Refusal {
        let reason = match error {
            MeasureError::Unknown(_) => Reason::UnknownSetting,
            MeasureError::Value { .. } => Reason::BadValue,
            _ => Reason::Impossible,
        };
        Refusal { setting: setting.name.clone(), reason, text: error.to_string() }
    }
}
