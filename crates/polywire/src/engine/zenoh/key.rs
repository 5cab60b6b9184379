//! Key expressions: those of topics, and those by which nodes discover each other and send mails.
//!
//! The key of a topic is its name behind the prefix of the address. Zenoh gives a meaning to `$`,
//! and to `@` at the beginning of a level, which names of topics may have. In keys they are written
//! as `%24` and `%40`, and `%` as `%25`. No two names have the same key.

use std::fmt;

use polywire_core::{
    envelope::{Announcement, Id128},
    frame::Hello,
    topic,
};
use zenoh::key_expr::{OwnedKeyExpr, keyexpr};

use super::{
    super::foreign::{id, visibility::is_private},
    errors, ros,
};

/// The prefix of the keys of nodes, mails and schemas. No wildcard matches a level with `@` in
/// front.
const OURS: &str = "@polywire/1";

/// What zenoh-ext puts between the key of a topic and the rest of the key of a publisher's cache.
/// The publisher's liveliness token has the same key as the cache.
const CACHE: &str = "/@adv/pub/";

/// The last level of the keys of this engine's own caches.
const OUR_CACHE: &str = "/polywire";

/// The parameter of a query of caches that a Polywire node sends. Caches of nodes do not answer
/// such a query, because nodes replay their histories themselves.
pub(super) const FROM_NODE: &str = "polywire";

/// The keys of one address.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// Empty, or the levels in front of all keys with a slash at the end.
    prefix: String,
    /// The prefix of the keys of nodes, mails and schemas.
    ours: String,
    /// The domain, if topics have the keys of ROS 2.
    ros_domain: Option<u32>,
}

/// A node, as it stands in keys: its id and its incarnation in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(pub(super) Hello);

impl Name {
    /// Whether this node says hello to the other one first.
    pub(super) fn is_before(&self, other: &Name) -> bool {
        let order = |name: &Name| (name.0.node, name.0.incarnation);
        order(self) < order(other)
    }
}

impl Keys {
    /// Returns the keys behind a prefix, which is a key expression without wildcards, or empty.
    pub(super) fn new(prefix: &str) -> Result<Keys, String> {
        if prefix.is_empty() {
            return Ok(Keys { prefix: String::new(), ours: OURS.into(), ros_domain: None });
        }
        let wrong = |error| format!("'{prefix}' is no key expression: {}", errors::text(error));
        let key = OwnedKeyExpr::new(prefix).map_err(wrong)?;
        match key.is_wild() {
            true => Err(format!("'{prefix}' has wildcards: the prefix is a key, as in 'prefix=plant/3'")),
            false => Ok(Keys { prefix: format!("{prefix}/"), ours: format!("{prefix}/{OURS}"), ros_domain: None }),
        }
    }

    /// Keys of a domain of ROS 2.
    pub(super) fn of_ros(domain: u32) -> Keys {
        Keys { prefix: format!("{domain}/"), ours: format!("{OURS}/ros/{domain}"), ros_domain: Some(domain) }
    }

    pub(super) fn ros_domain(&self) -> Option<u32> {
        self.ros_domain
    }

    pub(super) fn is_ros(&self) -> bool {
        self.ros_domain.is_some()
    }

    /// The key of a topic, or the key expression of a pattern.
    pub(super) fn of(&self, topic: &str) -> Option<OwnedKeyExpr> {
        let levels: Vec<String> = topic.split('/').map(escaped).collect();
        // A topic of ROS 2 matches whatever its type and hash are.
        let end = if self.is_ros() { "/*/*" } else { "" };
        OwnedKeyExpr::autocanonize(format!("{}{}{end}", self.prefix, levels.join("/"))).ok()
    }

    /// The key under which the messages of a topic of ROS 2 are put.
    pub(super) fn of_ros_topic(&self, topic: &ros::Topic) -> Option<OwnedKeyExpr> {
        let ros::Topic { name, type_name, hash } = topic;
        OwnedKeyExpr::new(format!("{}{name}/{type_name}/{hash}", self.prefix)).ok()
    }

    /// The topic of ROS 2 that has this key.
    pub(super) fn ros_topic(&self, key: &str) -> Option<ros::Topic> {
        ros::Topic::of_key(key.strip_prefix(&self.prefix)?)
    }

    /// Whether the messages of a channel are put under a key of its topic.
    pub(super) fn uses_topic_key(&self, announced: &Announcement) -> bool {
        if self.is_ros() { ros::uses_topic_key(announced) } else { !is_private(announced) }
    }

    /// Whether foreign applications may use a channel of a service.
    pub(super) fn are_services_open(&self, announced: &Announcement) -> bool {
        let is_plain = announced.compressor.is_empty() && announced.configuration.is_none();
        is_plain && !is_private(announced) && (!self.is_ros() || announced.codec == ros::CODEC)
    }

    /// The topic of a key. `None` if it is the key of no topic.
    pub(super) fn topic(&self, key: &str) -> Option<String> {
        let levels: Option<Vec<String>> = key.strip_prefix(&self.prefix)?.split('/').map(unescaped).collect();
        levels.map(|levels| levels.join("/")).filter(|name| topic::check(name).is_ok())
    }

    /// The key expression of the caches of all publishers. `None` in ROS 2.
    pub(super) fn caches(&self) -> Option<String> {
        (!self.is_ros()).then(|| caches(&format!("{}**", self.prefix)))
    }

    /// The liveliness token of a node.
    pub(super) fn token(&self, node: Name) -> String {
        format!("{}/node/{node}", self.ours)
    }

    /// The key expression of the tokens of all nodes.
    pub(super) fn tokens(&self) -> String {
        format!("{}/node/*", self.ours)
    }

    /// The key under which a node receives mails.
    pub(super) fn mailbox(&self, to: Name) -> Option<OwnedKeyExpr> {
        OwnedKeyExpr::new(format!("{}/mail/{to}", self.ours)).ok()
    }

    /// The key expression under which nodes answer queries for schemas.
    pub(super) fn schemas(&self) -> String {
        format!("{}/schema/*", self.ours)
    }

    /// The key of a query for a schema.
    pub(super) fn schema(&self, hash: Id128) -> String {
        format!("{}/schema/{hash}", self.ours)
    }
}

/// The key expression of the caches of all publishers under a key.
pub(super) fn caches(topic: &str) -> String {
    format!("{topic}{CACHE}**")
}

/// The key of the cache of a publisher of this engine. Instead of an id of the publisher within its
/// session it has `uhlc`, as usual for publishers whose samples have timestamps instead of numbers.
pub(super) fn our_cache(topic: &str, session: &str) -> String {
    format!("{topic}{CACHE}{session}/uhlc{OUR_CACHE}")
}

/// The key of the topic that a cache is for. `None` for caches of this engine.
pub(super) fn topic_of_cache(cache: &str) -> Option<&keyexpr> {
    let (topic, _) = cache.split_once(CACHE).filter(|_| !cache.ends_with(OUR_CACHE))?;
    keyexpr::new(topic).ok()
}

/// Returns the node that the last level of a key names.
pub(super) fn last(key: &str) -> Option<Name> {
    let (node, incarnation) = key.rsplit('/').next()?.split_once('-')?;
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let has_leading_zeros = incarnation.starts_with('0') && incarnation != "0";
    if !(1..=16).contains(&incarnation.len()) || !is_hex(incarnation) || has_leading_zeros {
        return None;
    }
    Some(Name(Hello { node: id(node)?, incarnation: u64::from_str_radix(incarnation, 16).ok()? }))
}

/// Returns the schema that the last level of a key names.
pub(super) fn last_schema(key: &str) -> Option<Id128> {
    key.rsplit('/').next().and_then(id)
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:x}", self.0.node, self.0.incarnation)
    }
}

fn escaped(level: &str) -> String {
    let text = level.replace('%', "%25").replace('$', "%24");
    text.strip_prefix('@').map(|rest| format!("%40{rest}")).unwrap_or(text)
}

/// Reverses [`escaped`]. `None` if no level is escaped to this text.
fn unescaped(level: &str) -> Option<String> {
    let text = level.strip_prefix("%40").map_or_else(|| level.into(), |rest| format!("@{rest}"));
    let text = text.replace("%24", "$").replace("%25", "%");
    (escaped(&text) == level).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(prefix: &str) -> Keys {
        Keys::new(prefix).expect("a prefix")
    }

    #[test]
    fn caches_have_the_keys_of_zenoh_ext() {
        assert_eq!(keys("plant").caches().as_deref(), Some("plant/**/@adv/pub/**"));
        assert_eq!(Keys::of_ros(3).caches(), None);
        assert_eq!(topic_of_cache("a/b/@adv/pub/1f/uhlc/_").map(keyexpr::as_str), Some("a/b"));
        let ours = our_cache("a/b", "1f");
        assert!(keyexpr::new(&caches("a/*")).expect("a key").includes(keyexpr::new(&ours).expect("a key")));
        assert_eq!([ours.as_str(), "a/b", "/@adv/pub/1"].map(topic_of_cache), [None; 3]);
    }

    #[test]
    fn names_are_keys_and_keys_are_names() {
        for (topic, key) in [
            ("plant/3/pump", "plant/3/pump"),
            ("a$b/@c/d@", "a%24b/%40c/d@"),
            ("100%/%24/%40x", "100%25/%2524/%2540x"),
            ("größe/温度", "größe/温度"),
        ] {
            assert_eq!(keys("").of(topic).expect("a key").as_str(), key);
            assert_eq!(keys("").topic(key).as_deref(), Some(topic));
            assert_eq!(keys("a/b").of(topic).expect("a key").as_str(), format!("a/b/{key}"));
            assert_eq!(keys("a/b").topic(&format!("a/b/{key}")).as_deref(), Some(topic));
        }
        for pattern in ["**", "plant/*/pump", "plant/**"] {
            assert_eq!(keys("").of(pattern).expect("an expression").as_str(), pattern);
        }
        // Keys of no topic, or of a topic that has exactly this key.
        for key in ["a$*", "@polywire/1/node/x", "100%", "a%41", "a/%4", "x/@y"] {
            let name = keys("").topic(key);
            assert!(name.is_none() || keys("").of(&name.expect("some")).expect("a key").as_str() == key, "{key}");
        }
        assert_eq!(keys("a").topic("b/c"), None);
        assert_eq!(keys("").topic("100%"), None);
        assert!(Keys::new("a/*").is_err_and(|reason| reason.contains("wildcards")));
        assert!(Keys::new("a//b").is_err_and(|reason| reason.contains("no key expression")));
    }

    #[test]
    fn nodes_are_named_in_keys() {
        let name = Name(Hello { node: Id128([0xab; 16]), incarnation: 0x17 });
        assert_eq!(keys("p").token(name), format!("p/@polywire/1/node/{}-17", "ab".repeat(16)));
        assert_eq!(last(&keys("p").token(name)), Some(name));
        assert_eq!(last(keys("").mailbox(name).expect("a key").as_str()), Some(name));
        assert_eq!(last(&format!("{}-0", "ab".repeat(16))).map(|name| name.0.incarnation), Some(0));
        for wrong in ["", "x", "ab-17"] {
            assert_eq!(last(wrong), None, "{wrong}");
        }
        for wrong in ["", "+1", "1G", "017", "00", "12345678123456781"] {
            assert_eq!(last(&format!("{}-{wrong}", "ab".repeat(16))), None, "{wrong}");
        }
        let all = OwnedKeyExpr::new("**").expect("an expression");
        assert!(
            !all.intersects(&OwnedKeyExpr::new(keys("p").token(name)).expect("a key")),
            "nobody hears it by accident"
        );
    }

    proptest! {
        #[test]
        fn no_two_names_have_one_key(a in "[%$@/0-9a-c]{1,8}", b in "[%$@/0-9a-c]{1,8}") {
            let valid = |name: &str| topic::check(name).is_ok();
            prop_assume!(valid(&a) && valid(&b));
            let (key_a, key_b) = (keys("").of(&a), keys("").of(&b));
            prop_assert_eq!(a == b, key_a == key_b);
            let key = key_a.expect("every name has a key");
            prop_assert_eq!(keys("").topic(key.as_str()), Some(a));
        }

        #[test]
        fn hostile_keys_are_no_names_or_come_back(key in "\\PC{0,40}") {
            let _ = last(&key);
            if let Some(name) = keys("").topic(&key) {
                prop_assert_eq!(keys("").of(&name).map(|key| key.as_str().to_owned()), Some(key));
            }
        }
    }
}
