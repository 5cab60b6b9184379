//! The information about a peer's channel that subscribers need to open it.

use std::sync::Arc;

use polywire_core::{
    envelope::{Announcement, Id128},
    qos::{Offer, OfferError},
    schema::Schema,
    session,
};

use super::{
    inner::Inner,
    route::{Route, Slot, Source},
};
use crate::engine::Properties;

/// Whether a subscriber needs the schema of a channel that announces only the ROS 2 hash of its
/// type.
pub(super) fn lacks_schema(route: &dyn Route, source: &Source, offer: &Result<Offer, OfferError>) -> bool {
    let told = offer.as_ref().ok().and_then(|offer| offer.ros_type);
    source.announcement.schema.is_zero() && told.is_some_and(|told| route.lacks(told))
}

/// Returns the first document that these subscribers need and the node does not have.
pub(super) fn missing(node: &Inner, announced: &Announcement, routes: &[Arc<dyn Route>]) -> Option<Id128> {
    let [schema, dictionary, configuration] = session::documents(announced);
    let needs_schema = routes.iter().any(|route| route.needs_schema());
    let schema = schema.filter(|id| needs_schema && !node.documents.has(*id));
    let dictionary = dictionary.filter(|id| !routes.is_empty() && !node.documents.has(*id));
    let configuration = configuration.filter(|id| needs_schema && !node.documents.has(*id));
    schema.or(dictionary).or(configuration)
}

/// A channel's properties when its subscribers open it.
pub(super) struct Opening<'a> {
    pub(super) node: &'a Arc<Inner>,
    pub(super) source: &'a Source,
    pub(super) medium: Properties,
    pub(super) offer: &'a Result<Offer, OfferError>,
    /// The writer's schema. `None` if no subscriber needs it, or the node does not have it.
    pub(super) schema: Option<&'a Result<Schema, String>>,
    /// Why a document that the channel needs could not be fetched.
    pub(super) unfetched: Option<&'a String>,
}

impl Opening<'_> {
    pub(super) fn slot(&self, route: &dyn Route) -> Result<Arc<dyn Slot>, String> {
        if let Some(reason) = self.source.announcement.denial() {
            return Err(reason.into());
        }
        let offer = self.offer.as_ref().map_err(ToString::to_string)?;
        match self.unfetched {
            Some(reason) if route.needs_schema() && (self.schema.is_none() || !self.is_configured()) => {
                Err(reason.clone())
            }
            _ if !route.needs_schema() => route.open(self.node, self.source, self.medium, offer, None),
            _ => {
                let schema = self.schema.map(Result::as_ref).transpose()?;
                route.open(self.node, self.source, self.medium, offer, schema)
            }
        }
    }

    /// Whether the node has the document that configures the codec, or the codec needs none.
    fn is_configured(&self) -> bool {
        self.source.announcement.configuration.is_none_or(|id| self.node.documents.has(id))
    }
}
