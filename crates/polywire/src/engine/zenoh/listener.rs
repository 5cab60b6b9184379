//! Listens to keys, and queries the caches of other applications' advanced publishers for what they
//! published before. Caches are queried when this node begins to listen to a key, and when such a
//! publisher appears later. In ROS 2, they are queried when the node accepts the history of a
//! publisher.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use zenoh::{
    Wait,
    key_expr::OwnedKeyExpr,
    query::{ConsolidationMode, QueryTarget, Reply, ReplyKeyExpr},
    sample::{Locality, Sample, SampleKind},
};

use super::{
    attachment::{self, Attached},
    caches::Listener,
    errors,
    key::{self, FROM_NODE},
    port::Shared,
    publishers::Kept,
    ros::{self, Topic},
};

/// The time-out of a query of caches.
const PATIENCE: Duration = Duration::from_secs(2);

impl Shared {
    /// Listens to a key, and queries the caches for what was published before.
    pub(super) fn listener(self: &Arc<Self>, key: &OwnedKeyExpr) -> Option<Listener> {
        let (shared, pattern) = (Arc::downgrade(self), key.is_wild().then(|| key.clone()));
        let subscriber = self.session.declare_subscriber(key.clone()).callback(move |sample| {
            let is_for = |shared: &Arc<Shared>| pattern.as_ref().is_none_or(|pattern| shared.is_for(pattern, &sample));
            if let Some(shared) = shared.upgrade().filter(is_for) {
                shared.sample_came(sample);
            }
        });
        // Begins before the first live sample, which must wait for the samples from caches.
        let question = (!self.keys.is_ros()).then(|| {
            self.caches.lock().listen(key);
            self.question(key)
        });
        match subscriber.wait() {
            Ok(subscriber) => {
                // Queried when live samples arrive already, so that no sample is missed in between.
                if let Some(question) = question.flatten() {
                    self.query_caches(&key::caches(key), move |reply| question.replied(reply));
                }
                Some(Listener::new(&self.caches, key, subscriber))
            }
            Err(error) => {
                log::warn!("{}: cannot listen to '{key}': {}", self.endpoint, errors::text(error));
                self.caches.lock().unlisten(key);
                None
            }
        }
    }

    /// Queries the cache of an advanced publisher that has appeared.
    pub(super) fn cache_came(&self, token: &Sample) {
        let cache = token.key_expr().as_str();
        let Some(topic) = key::topic_of_cache(cache).filter(|_| token.kind() == SampleKind::Put) else { return };
        let listened = self.caches.lock().listened_for(topic);
        if let Some(question) = listened.and_then(|listened| self.question(&listened)) {
            self.query_caches(cache, move |reply| question.replied(reply));
        }
    }

    /// Begins a query of the caches of a key that the node listens to. Live samples wait from now
    /// on. `None` if too many queries are under way.
    fn question(&self, key: &OwnedKeyExpr) -> Option<Question> {
        if !self.caches.lock().begin(key) {
            log::debug!("'{key}': more caches than can be asked at once");
            return None;
        }
        Some(Question { shared: self.this.clone(), key: key.clone() })
    }

    /// Queries the samples of a topic that publishers of ROS 2 keep. Called without a lock.
    pub(super) fn ask_kept(&self, topic: Topic) {
        let Some(key) = self.keys.of_ros_topic(&topic) else { return };
        // The node accepts a history before it listens. If the query began before it listens,
        // samples that are published in between would be missed.
        self.lock().publishers.postpone(&topic);
        if !self.listens(&key) || !self.lock().publishers.resume(&topic) {
            return;
        }
        let question = KeptQuestion { shared: self.this.clone(), topic, arrived: Mutex::default() };
        self.query_caches(&key::caches(&key), move |reply| question.replied(&reply));
    }

    /// Queries caches. `replied` is dropped when the query ends, or if it fails.
    fn query_caches(&self, caches: &str, replied: impl Fn(Reply) + Send + Sync + 'static) {
        let query = self.session.get(format!("{caches}?{FROM_NODE}")).target(QueryTarget::All).timeout(PATIENCE);
        let query = query.accept_replies(ReplyKeyExpr::Any).consolidation(ConsolidationMode::None);
        if let Err(error) = query.allowed_destination(Locality::Remote).callback(replied).wait() {
            log::debug!("{}: cannot ask for what came before: {error}", self.endpoint);
        }
    }

    /// Handles a live sample of a foreign application.
    pub(super) fn foreign_sample_came(&self, sample: Sample) {
        // Passes samples on under the lock, so that those which have waited are passed on first.
        self.caches.lock().live(sample, |sample| self.foreign_came(sample));
    }
}

/// A query of caches that is under way. Dropping this value notes that the query has ended.
struct Question {
    shared: Weak<Shared>,
    key: OwnedKeyExpr,
}

impl Question {
    fn replied(&self, reply: Reply) {
        let (Some(shared), Ok(sample)) = (self.shared.upgrade(), reply.into_result()) else { return };
        let attached = sample.attachment().map(|bytes| bytes.to_bytes()).unwrap_or_default();
        let is_foreign = matches!(attachment::parse(&attached, &shared.local.options.limits), Ok(Attached::Foreign));
        // A sample without a timestamp is ignored, because it may arrive live as well.
        if is_foreign && self.key.includes(sample.key_expr()) && sample.timestamp().is_some() {
            shared.caches.lock().answered(sample);
        }
    }
}

/// A query for the samples that publishers of ROS 2 keep. Dropping this value notes that the query
/// has ended.
struct KeptQuestion {
    shared: Weak<Shared>,
    topic: Topic,
    /// The samples that have arrived, and their size in bytes.
    arrived: Mutex<(Vec<Kept>, usize)>,
}

impl KeptQuestion {
    fn replied(&self, reply: &Reply) {
        let (Some(shared), Ok(sample)) = (self.shared.upgrade(), reply.result()) else { return };
        let attached = sample.attachment().and_then(|bytes| ros::parse_attachment(&bytes.to_bytes()));
        let of = shared.keys.ros_topic(sample.key_expr().as_str()).filter(|_| sample.kind() == SampleKind::Put);
        let Some((gid, at)) = attached.filter(|_| of.as_ref() == Some(&self.topic)) else { return };
        let (mut arrived, payload) = (self.arrived.lock(), sample.payload().clone());
        let bytes = arrived.1 + payload.len() + size_of::<Kept>();
        match bytes <= shared.local.options.queue_bytes {
            true => {
                arrived.1 = bytes;
                arrived.0.push(Kept { gid, at, payload });
            }
            false => log::debug!("'{}': more was published before than there is room for", self.topic.name),
        }
    }
}

impl Drop for KeptQuestion {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let kept = std::mem::take(&mut self.arrived.lock().0);
        let mut state = shared.lock();
        state.of_ros(|publishers, context| publishers.kept(&self.topic, kept, context));
        shared.wake(state);
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.caches.lock().end(&self.key, |sample| shared.foreign_came(sample));
        }
    }
}
