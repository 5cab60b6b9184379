//! The state that everything on a node shares: its identity, configuration, tables, limits,
//! documents, decoders, events and timer. It holds no ports, and knows publishers and subscribers
//! only as [`Reload`].

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use parking_lot::{Mutex, RwLock};
use polywire_core::{
    codec::{Codec, LowerError, Options},
    compress::Compressor,
    envelope::Id128,
    frame::Hello,
    session,
};

use super::{
    answered::Answered, decoders::Decoders, documents::Documents, limits::NodeLimits, reload::Reload, signal::Signal,
    timer::Timer,
};
use crate::{
    access::Gate,
    chosen::Chosen,
    config::Config,
    engine::{Engine, EngineOptions},
    error::NodeError,
    events::{Hub, NodeEvent},
    packing::{self, Unpacking},
    stats::Totals,
    suggest::hint,
    wire::WireError,
};

/// The shared state of a node. Ports hold weak references to it, so it is dropped with the node's
/// last clone.
pub(crate) struct Inner {
    pub(crate) hello: Hello,
    /// The configuration. A reload replaces it as a whole.
    pub(super) config: RwLock<Arc<Config>>,
    /// The settings of ports, which a reload does not change.
    pub(super) engine: EngineOptions,
    pub(super) codecs: Vec<&'static dyn Codec>,
    pub(super) compressors: Vec<&'static dyn Compressor>,
    pub(super) engines: Vec<&'static dyn Engine>,
    pub(crate) documents: Arc<Documents>,
    pub(crate) decoders: Decoders,
    pub(crate) events: Hub,
    pub(crate) timer: Timer,
    pub(crate) answered: Arc<Answered>,
    /// The publishers and subscribers that a reload of the configuration moves.
    pub(super) users: Mutex<Vec<Weak<dyn Reload>>>,
    pub(super) session: SessionSettings,
    /// The access rules.
    pub(super) gate: Gate,
    /// The name that tools show for the node.
    pub(super) name: String,
    pub(super) started: Instant,
    /// Wakes the thread that publishes the built-in topics.
    pub(super) signal: Arc<Signal>,
    /// The counts of publishers, and of subscribers and channels that have ended.
    pub(crate) totals: Totals,
}

/// The settings that the sessions with all peers have in common.
#[derive(Clone)]
pub(super) struct SessionSettings {
    pub(super) limits: session::Limits,
    /// The budget of [`NodeLimits::announced_bytes`].
    pub(super) budget: session::Budget,
}

/// The settings for links that open while the node closes: their peers may announce nothing.
impl Default for SessionSettings {
    fn default() -> Self {
        SessionSettings { limits: session::Limits::default(), budget: session::Budget::new(0) }
    }
}

impl SessionSettings {
    pub(super) fn new(limits: session::Limits, node: &NodeLimits) -> SessionSettings {
        SessionSettings { limits, budget: session::Budget::new(node.announced_bytes) }
    }
}

impl Inner {
    /// The present configuration.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.config.read().clone()
    }

    /// Adds a publisher or subscriber that a reload of the configuration moves.
    pub(crate) fn add_user(&self, user: Weak<dyn Reload>) {
        let mut users = self.users.lock();
        if users.len().is_power_of_two() {
            users.retain(|user| user.strong_count() > 0);
        }
        users.push(user);
    }

    pub(super) fn users(&self) -> Vec<Arc<dyn Reload>> {
        self.users.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// The access rules.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Returns the codec that a wire names.
    pub(crate) fn codec(&self, name: &str, options: &str) -> Result<Chosen, NodeError> {
        let (codec, options) = self.listed_codec(name, options)?;
        Chosen::of_wire(codec, options)
    }

    /// Returns the codec that a writer has announced. `document` configures the codec, and must
    /// have been fetched before.
    pub(crate) fn announced_codec(
        &self,
        name: &str,
        options: &str,
        document: Option<Id128>,
    ) -> Result<Chosen, NodeError> {
        let (codec, options) = self.listed_codec(name, options)?;
        let unknown = |id| LowerError::Option(format!("the document {id} that configures it is unknown"));
        let configured = |id| self.documents.configured(codec, id).unwrap_or_else(|| Err(unknown(id)));
        let configured = document.map(configured).transpose();
        let configured = configured.map_err(|e| NodeError::Codec { codec: name.into(), cause: e.into() })?;
        Ok(Chosen::announced(codec, options, configured))
    }

    fn listed_codec(&self, name: &str, options: &str) -> Result<(&'static dyn Codec, Options), NodeError> {
        let found = match name {
            crate::wire::AUTO => self.codecs.first(),
            name => self.codecs.iter().find(|codec| codec.name() == name),
        };
        let codec = *found.ok_or_else(|| {
            let hint = hint(name, self.codecs.iter().map(|codec| codec.name()));
            NodeError::Wire(WireError::Unknown { what: "codec", name: name.into(), hint })
        })?;
        let failed = |cause: LowerError| NodeError::Codec { codec: name.into(), cause: cause.into() };
        let parsed: Options = options.parse().map_err(failed)?;
        parsed.check(codec).map_err(failed)?;
        Ok((codec, parsed))
    }

    /// The compressor with this name.
    pub(crate) fn compressor(&self, name: &str) -> Result<&'static dyn Compressor, NodeError> {
        let found = self.compressors.iter().find(|compressor| compressor.name() == name).copied();
        found.ok_or_else(|| {
            let hint = hint(name, self.compressors.iter().map(|compressor| compressor.name()));
            NodeError::Wire(WireError::Unknown { what: "compressor", name: name.into(), hint })
        })
    }

    /// Prepares the decompression of the payloads of a writer. `None` if the writer announced no
    /// compressor. Fails if the compressor or its dictionary is unknown here.
    pub(super) fn unpacking(&self, announced: &str) -> Result<Option<Unpacking>, String> {
        let Some(name) = packing::compressor_name(announced) else { return Ok(None) };
        let compressor = self.compressor(name).map_err(|error| error.to_string())?;
        let document = |id| self.documents.bytes(id);
        Unpacking::of(compressor, announced, document, self.engine.limits.frame_bytes).map(Some)
    }

    /// Reports an event to its listeners and to the log.
    pub(crate) fn tell(&self, event: &NodeEvent) {
        self.events.tell(event);
    }
}
