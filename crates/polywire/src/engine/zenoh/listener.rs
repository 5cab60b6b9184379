//! Listens to keys. What other applications published under a key before is in the caches of their
//! advanced publishers. They are asked when this node begins to listen, and when such a publisher
//! appears later.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use zenoh::{
    Wait,
    key_expr::OwnedKeyExpr,
    query::{ConsolidationMode, QueryTarget, Reply, ReplyKeyExpr},
    sample::{Locality, Sample, SampleKind},
};

use super::{
    super::pipe::lock,
    attachment::{self, Attached},
    caches::Listener,
    key::{self, FROM_NODE},
    port::Shared,
};

/// How long a cache is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

impl Shared {
    /// Listens to a key, and asks for what came before.
    pub(super) fn listener(self: &Arc<Self>, key: &OwnedKeyExpr) -> Option<Listener> {
        let (shared, pattern) = (Arc::downgrade(self), key.is_wild().then(|| key.clone()));
        let subscriber = self.session.declare_subscriber(key.clone()).callback(move |sample| {
            let is_for = |shared: &Arc<Shared>| pattern.as_ref().is_none_or(|pattern| shared.is_for(pattern, &sample));
            if let Some(shared) = shared.upgrade().filter(is_for) {
                shared.sample_came(sample);
            }
        });
        // Before the first sample: it waits for what came before.
        if !self.keys.is_ros() {
            lock(&self.caches).listen(key);
            self.ask_caches(key, key::caches(key));
        }
        match subscriber.wait() {
            Ok(subscriber) => Some(Listener::new(&self.caches, key, subscriber)),
            Err(error) => {
                log::warn!("{}: cannot listen to '{key}': {error}", self.endpoint);
                lock(&self.caches).unlisten(key);
                None
            }
        }
    }

    /// An advanced publisher has appeared.
    pub(super) fn cache_came(&self, token: &Sample) {
        let cache = token.key_expr().as_str();
        let Some(topic) = key::topic_of_cache(cache).filter(|_| token.kind() == SampleKind::Put) else { return };
        let listened = lock(&self.caches).listened_for(topic);
        if let Some(listened) = listened {
            self.ask_caches(&listened, cache.into());
        }
    }

    /// Asks for what came before under a key that is listened to, without a lock.
    fn ask_caches(&self, key: &OwnedKeyExpr, caches: String) {
        if !lock(&self.caches).begin(key) {
            return log::debug!("'{key}': more caches than can be asked at once");
        }
        let question = Question { shared: self.this.clone(), key: key.clone() };
        let query = self.session.get(format!("{caches}?{FROM_NODE}")).target(QueryTarget::All).timeout(PATIENCE);
        let query = query.accept_replies(ReplyKeyExpr::Any).consolidation(ConsolidationMode::None);
        let query = query.allowed_destination(Locality::Remote).callback(move |reply| question.replied(reply));
        if let Err(error) = query.wait() {
            log::debug!("{}: cannot ask for what came before: {error}", self.endpoint);
        }
    }

    /// A live sample of another application came.
    pub(super) fn foreign_sample_came(&self, sample: Sample) {
        // Under the lock: what waited before it is passed on before it.
        lock(&self.caches).live(sample, |sample| self.foreign_came(sample));
    }
}

/// A query that is under way. It has ended when it is dropped.
struct Question {
    shared: Weak<Shared>,
    key: OwnedKeyExpr,
}

impl Question {
    fn replied(&self, reply: Reply) {
        let (Some(shared), Ok(sample)) = (self.shared.upgrade(), reply.into_result()) else { return };
        let attached = sample.attachment().map(|bytes| bytes.to_bytes()).unwrap_or_default();
        let is_foreign = matches!(attachment::parse(&attached, &shared.local.options.limits), Ok(Attached::Foreign));
        // One without a time might be live, too.
        if is_foreign && self.key.includes(sample.key_expr()) && sample.timestamp().is_some() {
            lock(&shared.caches).answered(sample);
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            lock(&shared.caches).end(&self.key, |sample| shared.foreign_came(sample));
        }
    }
}
