//! Access control: who may publish and subscribe to what. The configuration's section `[access]`
//! has the rules, and a node decides by them. The node asks `Rights` about each channel and each
//! message of a peer, over every engine. This module reads no files, and knows no ports and links.
//!
//! ```toml
//! [access]                            # once it is there, what no rule allows is refused
//!
//! [[access.allow]]
//! certificates = ["pump-*"]           # names of certificates; `*` stands for any characters
//! publish = ["plant/*/pump"]          # topics; `*` stands for one level, `**` for any number
//! bytes_per_second = 1_000_000        # of payloads that each of them may send
//!
//! [[access.allow]]
//! users = ["ann", 1000]               # Unix users, by name or number
//! subscribe = ["**"]
//! request = ["plant/*/reset"]         # services that they may call
//! serve = []                          # services that they may offer
//!
//! [[access.allow]]
//! anyone = true                       # also peers that cannot prove who they are
//! subscribe = ["public/**"]
//! ```

#[cfg(feature = "dds")]
mod permissions;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, RwLock};
use polywire_core::{
    rpc::{self, Role},
    topic::Pattern,
};

#[cfg(feature = "dds")]
pub use self::permissions::{PermissionsError, permissions};
use crate::{
    builtin::{INTEREST, NODE, STATS},
    engine::{Action, Principal},
    system,
};

/// The prefix of the reason of every refusal by the rules, also on the wire: spec/services.md.
pub(crate) const DENIED: &str = "access denied";

/// The longest sleep of a thread that the byte limit of a peer slows down. The thread then checks
/// whether its node closes.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The rules of a node. A peer may do what at least one rule allows. Nodes of the same process may
/// do everything.
///
/// ```
/// use polywire::{Config, access::{Access, Rule, Who}};
/// let config = Config::parse(
///     "[[access.allow]]\ncertificates = ['pump-*']\npublish = ['plant/**']\nbytes_per_second = 1000",
/// )?;
/// let access: &Access = config.access.as_ref().unwrap();
/// let rule: &Rule = &access.allow[0];
/// assert_eq!(rule.who, [Who::Certificate("pump-*".into())]);
/// assert_eq!((rule.publish.as_slice(), rule.bytes_per_second), (&["plant/**".parse()?][..], Some(1000)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access {
    /// What peers may do.
    pub allow: Vec<Rule>,
}

/// A rule: what the peers that it applies to may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rule {
    /// To whom the rule applies.
    pub who: Vec<Who>,
    /// Patterns of the topics that they may publish.
    pub publish: Vec<Pattern>,
    /// Patterns of the topics that they may subscribe to.
    pub subscribe: Vec<Pattern>,
    /// Patterns of the services that they may call. For the topics of services, only these patterns
    /// and those of [`Rule::serve`] count.
    pub request: Vec<Pattern>,
    /// Patterns of the services that they may offer.
    pub serve: Vec<Pattern>,
    /// Bytes of payloads that each peer may send in a second. If several rules apply to a peer, the
    /// lowest limit counts.
    pub bytes_per_second: Option<u64>,
}

impl Access {
    /// Returns the rules for the holder of a certificate of this name, in upper or lower case.
    #[cfg(feature = "dds")]
    fn for_certificate(&self, name: &str) -> Vec<&Rule> {
        let who = Principal::Certificate(name.to_ascii_lowercase());
        self.allow.iter().filter(|rule| rule.is_for(&who)).collect()
    }
}

/// To whom a rule applies.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Who {
    /// Everybody.
    Anyone,
    /// Holders of certificates whose name fits the pattern.
    Certificate(String),
    /// Processes of a Unix user.
    User(u32),
    /// Processes of the Unix user of this name, if the machine has one.
    UserName(String),
}

/// The rules as a node applies them.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    rules: RwLock<Arc<Rules>>,
    /// The meters of the present peers, by limit. Several links of one principal share a meter.
    meters: Mutex<BTreeMap<(Principal, u64), Weak<Meter>>>,
    denied: AtomicU64,
}

#[derive(Debug, Default)]
struct Rules {
    access: Option<Access>,
    /// Endpoints to which the node follows a topic, whoever announces that it has moved there.
    follow: Vec<String>,
}

impl Gate {
    pub(crate) fn new(access: Option<Access>, follow: Vec<String>) -> Gate {
        Gate { rules: RwLock::new(Arc::new(Rules { access, follow })), ..Gate::default() }
    }

    /// Replaces the rules. Peers that have [`Rights`] of the former rules keep them.
    pub(crate) fn replace(&self, access: Option<Access>, follow: Vec<String>) {
        *self.rules.write() = Arc::new(Rules { access, follow });
    }

    /// Returns the present rules. The caller applies them without a lock, because
    /// [`Rules::for_peer`] may block.
    fn rules(&self) -> Arc<Rules> {
        self.rules.read().clone()
    }

    /// Returns why the node does not follow when a peer announces that a topic has moved to an
    /// endpoint; `None` if it follows. The node follows processes of its own user and of root to
    /// any endpoint, because they could connect by themselves. It follows others only to endpoints
    /// that the configuration allows.
    pub(crate) fn refuses_to_follow(&self, who: &Principal, endpoint: &str) -> Option<String> {
        let is_trusted = match who {
            Principal::Process => true,
            Principal::User(user) => *user == 0 || system::user_id() == Some(*user),
            _ => false,
        };
        let is_allowed = is_trusted || self.may_follow(endpoint);
        (!is_allowed).then(|| format!("'{who}' says so, and no pattern of node.follow fits the endpoint"))
    }

    /// Checks whether a pattern of the configuration fits an endpoint, so that the node follows any
    /// peer to it.
    pub(crate) fn may_follow(&self, endpoint: &str) -> bool {
        self.rules().follow.iter().any(|pattern| name_fits(pattern, endpoint))
    }

    /// Checks whether there are rules. Without rules, every peer may do everything.
    pub(crate) fn has_rules(&self) -> bool {
        self.rules().access.is_some()
    }

    /// Checks whether the rules for a peer have changed since these rights were made. May block, as
    /// [`Gate::rights`] may.
    pub(crate) fn has_changed(&self, rights: &Rights) -> bool {
        self.rules().for_peer(&rights.who) != rights.rules
    }

    /// Checks whether these rights were made from the present rules. Does not block.
    pub(crate) fn is_current(&self, rights: &Rights) -> bool {
        Arc::ptr_eq(&self.rules(), &rights.made_from)
    }

    /// Returns the rights of a peer. May block while the system looks up users by name, so the
    /// caller should hold no lock.
    pub(crate) fn rights(&self, who: &Principal) -> Rights {
        let made_from = self.rules();
        let rules = made_from.for_peer(who);
        let limit = rules.iter().flatten().filter_map(|rule| rule.bytes_per_second).min();
        let meter = limit.map(|limit| self.meter(who, limit));
        Rights { who: who.clone(), made_from, rules, meter, prepaid: AtomicUsize::new(0) }
    }

    /// Counts a refusal.
    pub(crate) fn count_denied(&self) {
        self.denied.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of refusals so far.
    pub(crate) fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }

    fn meter(&self, who: &Principal, bytes_per_second: u64) -> Arc<Meter> {
        let mut meters = self.meters.lock();
        meters.retain(|_, meter| meter.strong_count() > 0);
        let key = (who.clone(), bytes_per_second);
        if let Some(meter) = meters.get(&key).and_then(Weak::upgrade) {
            return meter;
        }
        let meter = Arc::new(Meter::new(bytes_per_second, Instant::now()));
        meters.insert(key, Arc::downgrade(&meter));
        meter
    }
}

impl Rules {
    /// Returns the rules that apply to a peer. `None` if the peer may do everything. May block: the
    /// system may look up users by name in a directory on the network.
    fn for_peer(&self, who: &Principal) -> Option<Vec<Rule>> {
        let access = self.access.as_ref().filter(|_| *who != Principal::Process)?;
        Some(access.allow.iter().filter(|rule| rule.is_for(who)).cloned().collect())
    }
}

impl Rule {
    fn is_for(&self, who: &Principal) -> bool {
        self.who.iter().any(|allowed| match (allowed, who) {
            (Who::Anyone, _) => true,
            (Who::Certificate(pattern), Principal::Certificate(name)) => name_fits(pattern, name),
            (Who::User(id), Principal::User(user)) => id == user,
            (Who::UserName(name), Principal::User(user)) => system::user_named(name) == Some(*user),
            _ => false,
        })
    }

    fn patterns(&self, asked: &Asked<'_>) -> &[Pattern] {
        match asked {
            Asked::Topic(Action::Publish, _) => &self.publish,
            Asked::Topic(Action::Subscribe, _) => &self.subscribe,
            Asked::Request(_) => &self.request,
            Asked::Serve(_) => &self.serve,
        }
    }
}

/// What a peer asks for: an action on a topic or, if the topic is one of a service, on the service.
enum Asked<'a> {
    Topic(Action, &'a str),
    Request(&'a str),
    Serve(&'a str),
}

impl<'a> Asked<'a> {
    fn of(action: Action, topic: &'a str) -> Asked<'a> {
        match (rpc::service_of(topic), action) {
            (None, action) => Asked::Topic(action, topic),
            (Some((service, Role::Request)), Action::Publish) => Asked::Request(service),
            (Some((service, Role::Reply)), Action::Subscribe) => Asked::Request(service),
            (Some((service, _)), _) => Asked::Serve(service),
        }
    }

    /// The name of the topic or of the service.
    fn name(&self) -> &'a str {
        let (Asked::Topic(_, name) | Asked::Request(name) | Asked::Serve(name)) = self;
        name
    }

    fn denied(&self, who: &Principal) -> String {
        match self {
            Asked::Topic(action, _) => format!("{DENIED}: no rule allows '{who}' to {action} it"),
            Asked::Request(service) => format!("{DENIED}: no rule allows '{who}' to request service '{service}'"),
            Asked::Serve(service) => format!("{DENIED}: no rule allows '{who}' to serve service '{service}'"),
        }
    }
}

/// The rights of one peer. The default allows everything.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    who: Principal,
    made_from: Arc<Rules>,
    /// The rules that apply to the peer; `None` if the peer may do everything.
    rules: Option<Vec<Rule>>,
    meter: Option<Arc<Meter>>,
    /// The number of messages that [`Rights::admit`] has metered and [`Rights::take`] has not taken
    /// yet. Used by the thread that reads the peer's link.
    prepaid: AtomicUsize,
}

impl Rights {
    /// Checks whether the peer may do this with a topic. The error is the reason, for the peer.
    pub(crate) fn permit(&self, action: Action, topic: &str) -> Result<(), String> {
        let Some(rules) = &self.rules else { return Ok(()) };
        let asked = Asked::of(action, topic);
        // A peer that any rule applies to may ask for built-in topics and describe itself. Which
        // peers see the description is up to the rules.
        let is_own = topic == INTEREST || (matches!(topic, NODE | STATS) && action == Action::Publish);
        if is_own && !rules.is_empty() {
            return Ok(());
        }
        let mut patterns = rules.iter().flat_map(|rule| rule.patterns(&asked));
        match patterns.any(|pattern| pattern.fits(asked.name())) {
            true => Ok(()),
            false => Err(asked.denied(&self.who)),
        }
    }

    /// Meters a message before it is forwarded to anyone. Waits until the peer's limit allows it.
    /// Returns false if the message is larger than the limit of a second, or the node closes.
    pub(crate) fn admit(&self, bytes: usize, is_open: impl Fn() -> bool) -> bool {
        let Some(meter) = &self.meter else { return true };
        let admitted = meter.wait(bytes as u64, is_open);
        self.prepaid.fetch_add(usize::from(admitted), Ordering::Relaxed);
        admitted
    }

    /// Checks whether received messages are metered.
    #[inline]
    pub(crate) fn are_metered(&self) -> bool {
        self.meter.is_some()
    }

    /// Meters a received message, unless [`Rights::admit`] has done so.
    #[inline]
    pub(crate) fn take(&self, bytes: usize, is_open: impl Fn() -> bool) -> bool {
        match &self.meter {
            None => true,
            Some(_) if self.prepaid.load(Ordering::Relaxed) > 0 => {
                self.prepaid.fetch_sub(1, Ordering::Relaxed);
                true
            }
            Some(meter) => meter.wait(bytes as u64, is_open),
        }
    }
}

/// A token bucket that holds at most the bytes that may be sent in a second.
#[derive(Debug)]
struct Meter {
    bytes_per_second: u64,
    state: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Meter {
    fn new(bytes_per_second: u64, now: Instant) -> Meter {
        let tokens = bytes_per_second as f64;
        Meter { bytes_per_second, state: Mutex::new(Bucket { tokens, filled: now }) }
    }

    fn wait(&self, bytes: u64, is_open: impl Fn() -> bool) -> bool {
        if bytes > self.bytes_per_second {
            return false;
        }
        loop {
            let Some(pause) = self.take(bytes, Instant::now()) else { return true };
            if !is_open() {
                return false;
            }
            thread::sleep(pause.min(LOOK_EVERY));
        }
    }

    /// Takes the tokens for a message. If there are too few, returns the time until there are
    /// enough.
    fn take(&self, bytes: u64, now: Instant) -> Option<Duration> {
        let mut bucket = self.state.lock();
        let rate = self.bytes_per_second as f64;
        let since = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + since * rate).min(rate);
        bucket.filled = bucket.filled.max(now);
        let missing = bytes as f64 - bucket.tokens;
        if missing > 0.0 {
            return Some(Duration::from_secs_f64(missing / rate).max(Duration::from_millis(1)));
        }
        bucket.tokens -= bytes as f64;
        None
    }
}

/// Checks whether a name fits a pattern in which `*` stands for any characters, also none.
fn name_fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(who: Who, publish: &str, subscribe: &str) -> Rule {
        let list = |text: &str| text.split_whitespace().map(|text| text.parse().expect("a pattern")).collect();
        Rule { who: vec![who], publish: list(publish), subscribe: list(subscribe), ..Rule::default() }
    }

    fn certificate(name: &str) -> Principal {
        Principal::Certificate(name.into())
    }

    #[test]
    fn names_fit_patterns() {
        for (pattern, name) in [("a", "a"), ("*", "a"), ("*", ""), ("pump-*", "pump-3"), ("*-3", "pump-3")] {
            assert!(name_fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("p*m*3", "pump-3"), ("**", "a"), ("a*a", "aa"), ("*.*", "a.b")] {
            assert!(name_fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "b"), ("a", "ab"), ("", "a"), ("pump-*", "hall-3"), ("a*a", "a"), ("*x*", "abc")]
        {
            assert!(!name_fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn what_no_rule_allows_is_denied_once_there_are_rules() {
        let free = Gate::new(None, Vec::new()).rights(&Principal::Anonymous);
        assert_eq!(free.permit(Action::Publish, "t"), Ok(()));
        let access = Access {
            allow: vec![
                rule(Who::Certificate("pump-*".into()), "plant/*/pump", ""),
                rule(Who::Certificate("*".into()), "", "plant/**"),
                rule(Who::User(7), "user", "user"),
                rule(Who::Anyone, "", "public"),
            ],
        };
        let gate = Gate::new(Some(access), Vec::new());
        let may = |who: &Principal, action, topic| gate.rights(who).permit(action, topic).is_ok();
        use Action::{Publish, Subscribe};
        let (pump, hall) = (certificate("pump-3"), certificate("hall"));
        assert!(may(&pump, Publish, "plant/1/pump") && may(&pump, Subscribe, "plant/1/pump"));
        assert!(!may(&hall, Publish, "plant/1/pump") && may(&hall, Subscribe, "plant/x"));
        assert!(!may(&pump, Publish, "public") && may(&pump, Subscribe, "public"));
        assert!(may(&Principal::User(7), Publish, "user") && !may(&Principal::User(8), Publish, "user"));
        assert!(may(&Principal::Anonymous, Subscribe, "public") && !may(&Principal::Anonymous, Subscribe, "plant/x"));
        assert!(may(&Principal::Process, Publish, "anything"));
        let reason = gate.rights(&hall).permit(Publish, "t").expect_err("denied");
        assert_eq!(reason, "access denied: no rule allows 'hall' to publish it");
        let none = Gate::new(Some(Access::default()), Vec::new());
        assert!(none.rights(&pump).permit(Subscribe, "public").is_err(), "an empty section allows nothing");
    }

    #[test]
    fn rights_change_with_the_rules_for_their_peer() {
        let list = |rules: &[(&str, &str)]| {
            let rule = |(name, topics): &(&str, &str)| rule(Who::Certificate((*name).into()), topics, "");
            Some(Access { allow: rules.iter().map(rule).collect() })
        };
        let gate = Gate::new(list(&[("a", "t"), ("b", "t")]), Vec::new());
        let [a, b, own] = [certificate("a"), certificate("b"), Principal::Process].map(|who| gate.rights(&who));
        gate.replace(list(&[("b", "t"), ("a", "t u")]), vec!["tcp/*".into()]);
        assert_eq!([&a, &b, &own].map(|rights| gate.has_changed(rights)), [true, false, false]);
        assert!(gate.rights(&certificate("a")).permit(Action::Publish, "u").is_ok());
        assert_eq!(gate.refuses_to_follow(&Principal::Anonymous, "tcp/192.0.2.1:22"), None);
        gate.replace(None, Vec::new());
        let free = gate.rights(&certificate("a"));
        assert_eq!([&a, &b, &own, &free].map(|rights| gate.has_changed(rights)), [true, true, false, false]);
        gate.replace(list(&[]), Vec::new());
        assert!(gate.has_changed(&free));
    }

    #[test]
    fn rights_are_current_until_the_rules_are_replaced() {
        let gate = Gate::new(Some(Access::default()), Vec::new());
        let (peer, own) = (gate.rights(&certificate("a")), gate.rights(&Principal::Process));
        assert!(gate.is_current(&peer) && gate.is_current(&own));
        gate.replace(Some(Access::default()), Vec::new());
        assert!(!gate.is_current(&peer) && !gate.is_current(&own));
        assert!(!gate.has_changed(&peer), "the new rules say the same");
        assert!(gate.is_current(&gate.rights(&certificate("a"))));
    }

    #[test]
    fn the_topics_of_services_are_subject_to_rules_for_services() {
        let list = |text: &str| vec![text.parse().expect("a pattern")];
        let everything = Rule { publish: list("**"), subscribe: list("**"), ..rule(Who::User(1), "", "") };
        let client = Rule { request: list("plant/*"), ..rule(Who::User(2), "", "") };
        let server = Rule { serve: list("plant/add"), ..rule(Who::User(3), "", "") };
        let gate = Gate::new(Some(Access { allow: vec![everything, client, server] }), Vec::new());
        let (requests, replies) = (rpc::request_topic("plant/add"), rpc::reply_topic("plant/add"));
        let may = |user, action, topic: &str| gate.rights(&Principal::User(user)).permit(action, topic).is_ok();
        use Action::{Publish, Subscribe};
        let all = |user| {
            let asked = [(Publish, &requests), (Subscribe, &replies), (Publish, &replies), (Subscribe, &requests)];
            asked.map(|(action, topic)| may(user, action, topic))
        };
        assert_eq!(all(1), [false; 4]);
        assert_eq!((all(2), all(3)), ([true, true, false, false], [false, false, true, true]));
        let reason = gate.rights(&Principal::User(3)).permit(Publish, &requests);
        assert_eq!(
            reason.expect_err("denied"),
            "access denied: no rule allows 'user 3' to request service 'plant/add'"
        );
    }

    #[test]
    fn strangers_send_the_node_nowhere_else() {
        let gate = Gate::new(None, vec!["tls/plant-*:7448".into()]);
        let user = system::user_id().unwrap_or_default();
        let own = Principal::User(user);
        for who in [Principal::Process, own, Principal::User(0)] {
            assert_eq!(gate.refuses_to_follow(&who, "tcp/192.0.2.1:22"), None, "{who}");
        }
        for who in [Principal::Anonymous, certificate("pump-3"), Principal::User(user + 1)] {
            assert_eq!(gate.refuses_to_follow(&who, "tls/plant-3:7448"), None, "{who}");
            assert!(gate.refuses_to_follow(&who, "tcp/192.0.2.1:22").is_some_and(|reason| reason.contains("follow")));
        }
    }

    #[test]
    fn users_are_known_by_name() {
        assert_eq!((system::user_named("root"), system::user_named("no-such-user")), (Some(0), None));
        assert!(rule(Who::UserName("root".into()), "", "").is_for(&Principal::User(0)));
        assert!(!rule(Who::UserName("no-such-user".into()), "", "").is_for(&Principal::User(0)));
    }

    #[test]
    fn a_meter_gives_what_the_rate_allows() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let meter = Meter::new(1000, start);
        assert_eq!(meter.take(1000, at(0)), None, "a second's worth at once");
        assert_eq!(meter.take(500, at(0)), Some(Duration::from_millis(500)));
        assert_eq!(meter.take(500, at(500)), None);
        assert_eq!(meter.take(1, at(400)), Some(Duration::from_millis(1)), "time does not go back");
        assert_eq!(meter.take(1000, at(60_000)), None);
        assert_eq!(meter.take(1000, at(60_500)), Some(Duration::from_millis(500)), "no more than a second is saved up");
        assert!(!meter.wait(1001, || true), "it would wait for ever");
        assert!(
            !Meter { bytes_per_second: 1000, state: Mutex::new(Bucket { tokens: 0.0, filled: at(1_000_000_000) }) }
                .wait(1000, || false)
        );
    }

    #[test]
    fn links_of_one_principal_share_a_meter_and_the_lowest_limit_counts() {
        let limited = |limit| Rule { bytes_per_second: limit, ..rule(Who::Anyone, "**", "") };
        let gate = Gate::new(
            Some(Access { allow: vec![limited(Some(2000)), limited(Some(1000)), limited(None)] }),
            Vec::new(),
        );
        let (one, two) = (gate.rights(&certificate("a")), gate.rights(&certificate("a")));
        let other = gate.rights(&certificate("b"));
        // Messages that have arrived together are all admitted before the first is taken.
        assert!((0..4).all(|_| one.admit(250, || true)) && (0..4).all(|_| one.take(250, || false)), "metered once");
        assert!(!two.take(1000, || false), "nothing is left");
        assert!(other.take(1000, || false));
        assert_eq!(gate.meters.lock().len(), 2);
        drop((one, two, other));
        let _third = gate.rights(&certificate("c"));
        assert_eq!(gate.meters.lock().len(), 1, "nobody's meter is kept");
    }
}
