//! The table of measured engines other than Polywire's own, with their settings, and the functions
//! that open the sender and the receivers of any engine.

use super::{
    carrier::Carrier,
    ddsperf, ours,
    peer::{Peer, Receive},
    raw,
    receivers::Receivers,
    setup::Setup,
};
use crate::{scenario::Place, subject::Subject};

type Connect = fn(Setup, &Subject, Place) -> Result<(Box<dyn Carrier>, Peer), String>;

/// An engine that can be measured.
pub struct Engine {
    /// Name in scenarios.
    pub name: &'static str,
    /// What the engine is, and its settings.
    pub settings: &'static str,
    pub(super) by: By,
}

/// How messages are carried.
pub(super) enum By {
    /// A sender and receivers of this crate carry them.
    Ends(Connect, Receive),
    /// An installed program measures the engine, with its own messages.
    Program,
    /// The engine is missing: this program was built without the feature.
    #[allow(dead_code, reason = "with all features no engine is missing")]
    Feature(&'static str),
}

const SOCKETS: By = By::Ends(raw::connect, raw::receive);

#[cfg(feature = "peers")]
const ZEROMQ: (&str, By) = (super::zeromq::SETTINGS, By::Ends(super::zeromq::connect, super::zeromq::receive));
#[cfg(not(feature = "peers"))]
const ZEROMQ: (&str, By) = ("libzmq", By::Feature("peers"));

#[cfg(feature = "peers-zenoh")]
const ZENOH: (&str, By) = (super::zenoh::SETTINGS, By::Ends(super::zenoh::connect, super::zenoh::receive));
#[cfg(feature = "peers-zenoh")]
const ATTACHED: (&str, By) = (super::zenoh::ATTACHED_SETTINGS, ZENOH.1);
#[cfg(not(feature = "peers-zenoh"))]
const ZENOH: (&str, By) = ("Zenoh", By::Feature("peers-zenoh"));
#[cfg(not(feature = "peers-zenoh"))]
const ATTACHED: (&str, By) = ZENOH;

#[cfg(feature = "peers-dds")]
const CYCLONE: (&str, By) = (super::cyclone::SETTINGS, By::Ends(super::cyclone::connect, super::cyclone::receive));
#[cfg(not(feature = "peers-dds"))]
const CYCLONE: (&str, By) = ("Cyclone DDS", By::Feature("peers-dds"));

#[cfg(feature = "peers-iceoryx2")]
const ICEORYX2: (&str, By) = (super::iceoryx2::SETTINGS, By::Ends(super::iceoryx2::connect, super::iceoryx2::receive));
#[cfg(not(feature = "peers-iceoryx2"))]
const ICEORYX2: (&str, By) = ("iceoryx2", By::Feature("peers-iceoryx2"));

#[cfg(all(feature = "shm", target_os = "linux"))]
const SPINNING: By = By::Ends(ours::connect, ours::receive);
#[cfg(not(all(feature = "shm", target_os = "linux")))]
const SPINNING: By = By::Feature("shm");

/// The engines besides [`polywire::engine::ENGINES`].
///
/// ```
/// use polywire_measure::engines::ENGINES;
///
/// assert!(ENGINES.iter().any(|engine| engine.name == "raw-tcp" && engine.is_there()));
/// ```
pub static ENGINES: &[Engine] = &[
    Engine {
        name: "raw-tcp",
        settings: "bare TCP: one blocking thread per connection, `TCP_NODELAY`, one write per message",
        by: SOCKETS,
    },
    Engine {
        name: "raw-unix",
        settings: "bare Unix stream sockets: one blocking thread per connection, one write per message",
        by: SOCKETS,
    },
    Engine {
        name: "raw-udp",
        settings: "bare UDP: one blocking thread per socket, one datagram per message and receiver",
        by: SOCKETS,
    },
    Engine { name: "raw-zeromq", settings: ZEROMQ.0, by: ZEROMQ.1 },
    Engine { name: "raw-zenoh", settings: ZENOH.0, by: ZENOH.1 },
    Engine { name: "raw-zenoh-attached", settings: ATTACHED.0, by: ATTACHED.1 },
    Engine { name: "raw-cyclone", settings: CYCLONE.0, by: CYCLONE.1 },
    Engine { name: "iceoryx2", settings: ICEORYX2.0, by: ICEORYX2.1 },
    // With their features, these are engines of Polywire.
    #[cfg(not(feature = "dds"))]
    Engine { name: "dds", settings: "Polywire's engine `dds`", by: By::Feature("dds") },
    #[cfg(not(all(feature = "shm", target_os = "linux")))]
    Engine { name: "shm", settings: "Polywire's engine `shm`", by: SPINNING },
    #[cfg(not(feature = "zenoh"))]
    Engine { name: "zenoh", settings: "Polywire's engine `zenoh`", by: By::Feature("zenoh") },
    #[cfg(not(feature = "zeromq"))]
    Engine { name: "zeromq", settings: "Polywire's engine `zeromq`", by: By::Feature("zeromq") },
    Engine {
        name: ours::SPINNING,
        settings: "Polywire's engine `shm` with `wait=spin`: readers look for messages all the time",
        by: SPINNING,
    },
    Engine {
        name: ours::THIN,
        settings: "Polywire's engine `tcp` with the option `thin`",
        by: By::Ends(ours::connect, ours::receive),
    },
    Engine { name: "cyclonedds", settings: ddsperf::SETTINGS, by: By::Program },
];

/// Settings of Polywire's own engines.
const OURS: &str = "one node for each end, with default settings";

impl Engine {
    /// True if the engine can be measured: built in, or installed.
    pub fn is_there(&self) -> bool {
        match self.by {
            By::Ends(..) => true,
            By::Program => ddsperf::is_installed(),
            By::Feature(_) => false,
        }
    }
}

/// The engine with this name.
pub fn find(name: &str) -> Option<&'static Engine> {
    ENGINES.iter().find(|engine| engine.name == name)
}

/// True if the engine is a program with messages of its own.
pub(crate) fn is_program(name: &str) -> bool {
    find(name).is_some_and(|engine| matches!(engine.by, By::Program))
}

/// Settings of an engine, Polywire's or another.
pub fn settings(name: &str) -> Option<&'static str> {
    let ours = || polywire::engine::find(name).map(|_| OURS);
    find(name).map(|engine| engine.settings).or_else(ours)
}

/// Opens the sender of a case and starts the other end.
pub(super) fn connect(setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    let other = find(&setup.engine);
    if other.is_some() && (setup.topics > 1 || setup.buffers != "default") {
        return Err("only Polywire's own engines support several topics and sizes of buffers".into());
    }
    match other.map(|engine| &engine.by) {
        Some(By::Ends(connect, _)) => connect(setup, subject, place),
        Some(By::Feature(name)) => Err(format!("this program was built without the feature `{name}`")),
        Some(By::Program) => Err("a program cannot be connected to".into()),
        None => ours::connect(setup, subject, place),
    }
}

/// Opens the receivers of a case.
pub(super) fn receive(setup: &Setup) -> Result<Receivers, String> {
    match find(&setup.engine).map(|engine| &engine.by) {
        Some(By::Ends(_, receive)) => receive(setup),
        Some(_) => Err(format!("there are no receivers for '{}'", setup.engine)),
        None => ours::receive(setup),
    }
}
