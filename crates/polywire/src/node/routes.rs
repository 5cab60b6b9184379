//! The subscribers of a port, indexed by topic.

use std::{collections::BTreeMap, sync::Arc};

use polywire_core::topic;

use super::route::Route;

/// Subscribers, indexed by topic, and those with patterns in a list.
#[derive(Default)]
pub(super) struct Routes {
    by_topic: BTreeMap<String, Vec<Arc<dyn Route>>>,
    patterns: Vec<Arc<dyn Route>>,
}

impl Routes {
    pub(super) fn add(&mut self, route: Arc<dyn Route>) {
        match is_pattern(route.topic()) {
            true => self.patterns.push(route),
            false => self.by_topic.entry(route.topic().into()).or_default().push(route),
        }
    }

    pub(super) fn remove(&mut self, route: &Arc<dyn Route>) {
        let is_other = |other: &Arc<dyn Route>| !Arc::ptr_eq(other, route);
        if is_pattern(route.topic()) {
            return self.patterns.retain(is_other);
        }
        if let Some(all) = self.by_topic.get_mut(route.topic()) {
            all.retain(is_other);
            if all.is_empty() {
                self.by_topic.remove(route.topic());
            }
        }
    }

    /// Returns the subscribers of a topic, and all subscribers with patterns.
    pub(super) fn near(&self, topic: &str) -> Vec<Arc<dyn Route>> {
        self.by_topic.get(topic).into_iter().flatten().chain(&self.patterns).cloned().collect()
    }

    pub(super) fn all(&self) -> Vec<Arc<dyn Route>> {
        self.by_topic.values().flatten().chain(&self.patterns).cloned().collect()
    }
}

/// Whether `wanted` is a pattern, and not the name of one topic.
pub(super) fn is_pattern(wanted: &str) -> bool {
    topic::check(wanted).is_err()
}
