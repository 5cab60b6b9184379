//! The environment in which a handler is opened.

#[cfg(all(feature = "foxglove", feature = "sqlite"))]
use std::path::PathBuf;
use std::sync::Weak;

use polywire::Node;

use crate::{
    HandlerStatus,
    collector::{HandlerWorkers, current},
};

/// The environment of a handler: the collector's node, and the other handlers.
///
/// ```
/// use polywire::Node;
/// use polywire_collector::HandlerContext;
///
/// // Without a collector, for tests of a handler.
/// let context = HandlerContext::new(Node::builder().name("archive").build());
/// assert_eq!((context.node().name(), context.handlers().len()), ("archive", 0));
/// ```
#[derive(Clone)]
pub struct HandlerContext {
    node: Node,
    workers: Weak<HandlerWorkers>,
}

impl HandlerContext {
    /// Makes a context without other handlers.
    pub fn new(node: Node) -> HandlerContext {
        HandlerContext { node, workers: Weak::new() }
    }

    pub(crate) fn of(node: Node, workers: Weak<HandlerWorkers>) -> HandlerContext {
        HandlerContext { node, workers }
    }

    /// Returns the node with which handlers publish and call services.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the states of all handlers of the collector, in the order of their names.
    pub fn handlers(&self) -> Vec<HandlerStatus> {
        let workers = self.workers.upgrade();
        workers.map_or(Vec::new(), |workers| current(&workers).iter().map(|worker| worker.status()).collect())
    }

    /// Returns the names of the handlers that write archives, and the paths of these.
    #[cfg(all(feature = "foxglove", feature = "sqlite"))]
    pub(crate) fn archives(&self) -> Vec<(String, PathBuf)> {
        let Some(workers) = self.workers.upgrade() else { return Vec::new() };
        let archives = current(&workers);
        let archives = archives.iter().filter(|worker| crate::archive::HANDLERS.contains(&worker.plan.kind.name));
        let place = |plan: &crate::HandlerPlan| Some((plan.name.clone(), plan.settings.text("path")?.into()));
        archives.filter_map(|worker| place(&worker.plan)).collect()
    }
}
