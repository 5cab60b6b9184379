//! The interface through which a node moves its publishers and subscribers when its configuration
//! is replaced.

use super::Node;
use crate::error::NodeError;

/// A publisher or subscriber.
pub(crate) trait Reload: Send + Sync {
    /// Begins to use the endpoints of the present configuration.
    fn reload(&self, node: &Node) -> Result<(), NodeError>;
}
