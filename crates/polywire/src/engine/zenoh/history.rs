//! The history of a topic for foreign applications that ask for it, as advanced subscribers of
//! zenoh-ext do when they join late. A queryable beside the topic's key answers with the last
//! samples. Polywire nodes do not use it: they receive the history from the publisher, as over
//! every engine.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use polywire_core::envelope::Id128;
use zenoh::{
    Session, Wait,
    bytes::{Encoding, ZBytes},
    key_expr::{KeyExpr, OwnedKeyExpr},
    liveliness::LivelinessToken,
    query::{Query, Queryable},
    time::{NTP64, Timestamp},
};

use super::key::{FROM_NODE, our_cache};

/// Makes timestamps that increase within the session. Advanced subscribers discard a sample that is
/// older than another one of the same session that they have.
#[derive(Default)]
pub(super) struct Times(Mutex<u64>);

impl Times {
    fn next(&self, session: &Session) -> Timestamp {
        let (mut last, now) = (self.0.lock(), session.new_timestamp());
        *last = now.get_time().as_u64().max(*last + 1);
        Timestamp::new(NTP64(*last), *now.get_id())
    }
}

/// The history of a channel.
pub(super) struct History {
    session: Session,
    times: Arc<Times>,
    past: Arc<Mutex<Past>>,
    _queryable: Queryable<()>,
    /// Announces the history to subscribers that existed before it.
    _token: LivelinessToken,
}

impl History {
    /// Declares the history of a key, which keeps at most `limit` bytes of the last `depth` samples
    /// of each instance, and answers queries with them.
    pub(super) fn open(
        session: &Session,
        key: &OwnedKeyExpr,
        encoding: &Encoding,
        times: Arc<Times>,
        (depth, limit): (usize, usize),
    ) -> zenoh::Result<History> {
        let beside = our_cache(key, &session.zid().to_string());
        let past = Arc::new(Mutex::new(Past::new(depth, limit)));
        let (asked, topic, encoding) = (past.clone(), KeyExpr::from(key.clone()), encoding.clone());
        let queryable = session.declare_queryable(beside.clone()).callback(move |query| {
            if query.parameters().contains_key(FROM_NODE) {
                return;
            }
            let samples = asked.lock().answer(&query);
            for (at, sample) in samples {
                let reply = query.reply(topic.clone(), sample.payload).encoding(encoding.clone());
                if let Err(error) = reply.attachment(sample.attachment).timestamp(at).wait() {
                    return log::debug!("{topic}: an answer with the history: {error}");
                }
            }
        });
        let _queryable = queryable.wait()?;
        let _token = session.liveliness().declare_token(beside).wait()?;
        Ok(History { session: session.clone(), times, past, _queryable, _token })
    }

    /// Keeps a sample, and returns the timestamp with which it must be published.
    pub(super) fn keep(&self, instance: Option<Id128>, attachment: ZBytes, payload: ZBytes) -> Timestamp {
        let at = self.times.next(&self.session);
        self.past.lock().keep(at, Sample { instance, attachment, payload });
        at
    }

    /// Discards the samples of an instance that has ended.
    pub(super) fn forget(&self, instance: Option<Id128>) {
        self.past.lock().forget(instance);
    }
}

#[derive(Clone)]
struct Sample {
    instance: Option<Id128>,
    attachment: ZBytes,
    payload: ZBytes,
}

impl Sample {
    fn size(&self) -> usize {
        self.attachment.len() + self.payload.len()
    }
}

struct Past {
    samples: BTreeMap<Timestamp, Sample>,
    instances: HashMap<Option<Id128>, VecDeque<Timestamp>>,
    bytes: usize,
    depth: usize,
    limit: usize,
}

impl Past {
    fn new(depth: usize, limit: usize) -> Past {
        Past { samples: BTreeMap::new(), instances: HashMap::new(), bytes: 0, depth, limit }
    }

    fn keep(&mut self, at: Timestamp, sample: Sample) {
        self.bytes += sample.size();
        let times = self.instances.entry(sample.instance).or_default();
        times.push_back(at);
        let oldest = if times.len() > self.depth { times.pop_front() } else { None };
        self.samples.insert(at, sample);
        oldest.into_iter().for_each(|oldest| self.remove(oldest));
        while self.bytes > self.limit
            && let Some((&oldest, sample)) = self.samples.first_key_value()
        {
            // The oldest of all samples is also the oldest of its instance.
            let instance = sample.instance;
            let times = self.instances.get_mut(&instance);
            if times.is_some_and(|times| times.pop_front().is_some() && times.is_empty()) {
                self.instances.remove(&instance);
            }
            self.remove(oldest);
        }
    }

    fn remove(&mut self, at: Timestamp) {
        self.bytes -= self.samples.remove(&at).map_or(0, |sample| sample.size());
    }

    fn forget(&mut self, instance: Option<Id128>) {
        self.instances.remove(&instance).into_iter().flatten().for_each(|at| self.remove(at));
    }

    /// Returns the samples that a query gets. They have no sequence numbers of Zenoh, so a query
    /// for such numbers gets none.
    fn answer(&self, query: &Query) -> Vec<(Timestamp, Sample)> {
        let parameters = query.parameters();
        let most = parameters.get("_max").and_then(|most| most.parse().ok()).unwrap_or(usize::MAX);
        let age_s = parameters.get("_time").and_then(age_s).unwrap_or(f64::INFINITY);
        if parameters.get("_sn").is_some() {
            return Vec::new();
        }
        self.last(most, age_s)
    }

    /// Returns at most `most` samples that are not older than `age_s`, the oldest first.
    fn last(&self, most: usize, age_s: f64) -> Vec<(Timestamp, Sample)> {
        let is_young = |at: &Timestamp| match at.get_time().to_system_time().elapsed() {
            Ok(age) => age.as_secs_f64() <= age_s,
            Err(_) => true,
        };
        let newest = self.samples.iter().rev().take(most).take_while(|(at, _)| is_young(at));
        let mut samples: Vec<_> = newest.map(|(at, sample)| (*at, sample.clone())).collect();
        samples.reverse();
        samples
    }
}

/// Returns the age in the time range `[now(-AGEs)..]`, which advanced subscribers write. `None` for
/// every other range: the query then gets samples of any age.
fn age_s(range: &str) -> Option<f64> {
    range.strip_prefix("[now(-")?.strip_suffix("s)..]")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use zenoh::time::TimestampId;

    use super::*;

    fn sample(instance: Option<Id128>, bytes: usize) -> Sample {
        Sample { instance, attachment: ZBytes::new(), payload: ZBytes::from(vec![0; bytes]) }
    }

    /// Returns the time this many seconds ago.
    fn ago(seconds: u64) -> Timestamp {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let id = TimestampId::try_from([1; 16]).expect("not zero");
        Timestamp::new(NTP64::from(now - Duration::from_secs(seconds)), id)
    }

    #[test]
    fn the_last_samples_of_each_instance_are_kept_within_a_bound() {
        let (mut past, [a, b]) = (Past::new(32, 10_000), [1, 2].map(|id| Some(Id128([id; 16]))));
        past.keep(ago(1000), sample(b, 100));
        (0..100).for_each(|n| past.keep(ago(900 - n), sample(a, 100)));
        assert_eq!((past.samples.len(), past.bytes), (33, 3300));
        past.forget(a);
        assert_eq!((past.samples.len(), past.bytes, past.instances.len()), (1, 100, 1));
        (0..3).for_each(|n| past.keep(ago(300 - n), sample(None, 4000)));
        assert_eq!((past.samples.len(), past.bytes, past.instances.len()), (2, 8000, 1), "the oldest went");
        past.keep(ago(1), sample(a, 20_000));
        assert_eq!((past.samples.len(), past.bytes, past.instances.len()), (0, 0, 0), "too large");
    }

    #[test]
    fn a_query_gets_the_newest_in_order() {
        let mut past = Past::new(32, 10_000);
        [90, 50, 10].into_iter().for_each(|age| past.keep(ago(age), sample(None, age as usize)));
        let got = |most, age_s| past.last(most, age_s).iter().map(|(_, got)| got.size()).collect::<Vec<_>>();
        assert_eq!((got(usize::MAX, f64::INFINITY), got(2, 1e9)), (vec![90, 50, 10], vec![50, 10]));
        assert_eq!((got(9, 60.0), got(0, 60.0)), (vec![50, 10], vec![]));
        assert_eq!(["[now(-1.5s)..]", "[now()..]", ""].map(age_s), [Some(1.5), None, None]);
    }
}
