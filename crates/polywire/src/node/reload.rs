//! A node's publishers and subscribers, as it sees them when its configuration is replaced.

use super::Node;
use crate::error::NodeError;

/// A publisher or subscriber.
pub(crate) trait Reload: Send + Sync {
    /// Goes to the endpoints that are configured now.
    fn reload(&self, node: &Node) -> Result<(), NodeError>;
}
