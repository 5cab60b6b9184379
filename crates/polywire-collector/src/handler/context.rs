//! The environment in which a handler is opened.

#[cfg(all(feature = "foxglove", feature = "sqlite"))]
use std::path::PathBuf;
use std::sync::Weak;

use polywire::Node;

use crate::{
    HandlerStatus,
    collector::{Lanes, current},
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
    lanes: Weak<Lanes>,
}

impl HandlerContext {
    /// Makes a context without other handlers.
    pub fn new(node: Node) -> HandlerContext {
        HandlerContext { node, lanes: Weak::new() }
    }

    pub(crate) fn of(node: Node, lanes: Weak<Lanes>) -> HandlerContext {
        HandlerContext { node, lanes }
    }

    /// Returns the node with which handlers publish and call services.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the states of all handlers of the collector, in the order of their names.
    pub fn handlers(&self) -> Vec<HandlerStatus> {
        let lanes = self.lanes.upgrade();
        lanes.map_or(Vec::new(), |lanes| current(&lanes).iter().map(|lane| lane.status()).collect())
    }

    /// Returns the names of the handlers that write archives, and the paths of these.
    #[cfg(all(feature = "foxglove", feature = "sqlite"))]
    pub(crate) fn archives(&self) -> Vec<(String, PathBuf)> {
        let Some(lanes) = self.lanes.upgrade() else { return Vec::new() };
        let archives = current(&lanes);
        let archives = archives.iter().filter(|lane| crate::archive::HANDLERS.contains(&lane.plan.kind.name));
        let place = |plan: &crate::HandlerPlan| Some((plan.name.clone(), plan.settings.text("path")?.into()));
        archives.filter_map(|lane| place(&lane.plan)).collect()
    }
}
