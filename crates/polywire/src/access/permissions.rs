//! Expresses rules of access as permissions of DDS Security: what a member of a fleet may write and
//! read, with the names that topics have in DDS.
//!
//! In a permissions document, the first rule that fits decides. Its patterns are those of POSIX
//! `fnmatch` without flags, in which `*` stands for any characters, also slashes. So `plant/*` also
//! fits names with more levels, and a rule in front of it must deny these. That deny rule must not
//! deny what another pattern allows, so patterns with more levels are written first.

use std::collections::BTreeSet;

use polywire_core::{
    ros::{entities, type_query},
    rpc::{self, Role},
    topic::Pattern,
};

use super::{Access, Rule};
use crate::{
    builtin::{INTEREST, NODE, STATS},
    engine::dds::{CONTROL_TOPIC, Naming, escape, rpc_topic},
};

/// The topic that a participant makes to find the state of its domain. It is neither read nor
/// written.
const STATE: &str = "polywire_state";

/// The most levels `**` in a pattern. Each of them may also stand for no level, which doubles the
/// number of expressions.
const MAX_OPTIONAL: usize = 4;

/// Why rules of access cannot be expressed as permissions of DDS.
///
/// ```
/// use polywire::{Config, access::{PermissionsError, permissions}, engine::dds::Naming};
/// let config = Config::parse("[[access.allow]]\ncertificates = ['pump-*']\npublish = ['a/*/b/**']")?;
/// let access = config.access.unwrap_or_default();
/// assert_eq!(permissions(&access, "hall", Naming::Plain), Err(PermissionsError::Nobody { name: "hall".into() }));
/// let told = permissions(&access, "pump-3", Naming::Plain).unwrap_err().to_string();
/// assert!(told.contains("'a/*/b/**'"), "{told}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PermissionsError {
    /// No rule applies to the member.
    #[error("no rule of access is for '{name}', so it could not join")]
    Nobody {
        /// The name of the member's certificate.
        name: String,
    },
    /// A pattern that `fnmatch` cannot express.
    #[error("the pattern '{pattern}' cannot be told to DDS: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// Why `fnmatch` cannot express the pattern.
        reason: &'static str,
    },
}

/// Returns what the rules allow the member with a certificate of this name, as the XML rules of a
/// grant in a permissions document. Topics have the names of this naming. The topics that nodes
/// need to find and to describe each other are allowed as well.
///
/// ```
/// use polywire::{Config, access::permissions, engine::dds::Naming};
/// let config = Config::parse("[[access.allow]]\ncertificates = ['pump-*']\npublish = ['plant/*']")?;
/// let rules = permissions(&config.access.unwrap_or_default(), "pump-3", Naming::Plain)?;
/// let (denied, allowed) = ("<topic>plant/*/*</topic>", "<topic>plant/*</topic>");
/// assert!(rules.find(denied) < rules.find(allowed) && rules.contains("<deny_rule>"), "{rules}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn permissions(access: &Access, name: &str, naming: Naming) -> Result<String, PermissionsError> {
    let rules = access.for_certificate(name);
    if rules.is_empty() {
        return Err(PermissionsError::Nobody { name: name.into() });
    }
    let mut xml = String::new();
    for writes in [true, false] {
        let criterion = if writes { "publish" } else { "subscribe" };
        for PermissionRule { allows, topics } in permission_rules(&rules, naming, writes)? {
            let rule = if allows { "allow_rule" } else { "deny_rule" };
            let topics: String = topics.iter().map(|topic| format!("<topic>{}</topic>", in_xml(topic))).collect();
            xml += &format!(
                "      <{rule}>\n        <domains><id_range><min>0</min><max>230</max></id_range></domains>\n        \
                 <{criterion}><topics>{topics}</topics><partitions><partition>*</partition></partitions></{criterion}>\
                 \n      </{rule}>\n"
            );
        }
    }
    Ok(xml)
}

/// A rule that allows or denies topics.
#[derive(Debug, PartialEq, Eq)]
struct PermissionRule {
    allows: bool,
    topics: Vec<String>,
}

/// Returns the rules for what a member may write, or may read, in their order.
fn permission_rules(rules: &[&Rule], naming: Naming, writes: bool) -> Result<Vec<PermissionRule>, PermissionsError> {
    let of = |patterns: fn(&Rule) -> &[Pattern]| rules.iter().flat_map(move |rule| patterns(rule)).collect::<Vec<_>>();
    let mut permission_rules = vec![own(naming, writes)];
    let mut calls = Vec::new();
    let [called, served] = if writes { [Role::Request, Role::Reply] } else { [Role::Reply, Role::Request] };
    for (patterns, role) in [(of(|rule| &rule.request), called), (of(|rule| &rule.serve), served)] {
        for pattern in patterns {
            for (prefix, suffix) in around_services(naming, role) {
                calls.push(Expression::of(pattern, &prefix, &suffix)?);
            }
        }
    }
    permission_rules.extend(ordered(calls));
    // Patterns of topics must not match the topics of services.
    let services = [Role::Request, Role::Reply].into_iter().flat_map(|role| around_services(naming, role));
    let topics = services.map(|(prefix, suffix)| format!("{prefix}*{suffix}")).collect();
    permission_rules.push(PermissionRule { allows: false, topics });
    let mut topics = Vec::new();
    for pattern in of(if writes { |rule| &rule.publish } else { |rule| &rule.subscribe }) {
        for prefix in prefixes(naming) {
            topics.push(Expression::of(pattern, prefix, "")?);
        }
    }
    permission_rules.extend(ordered(topics));
    Ok(permission_rules.into_iter().filter(|rule| !rule.topics.is_empty()).collect())
}

/// Allows the topics that every node needs and that describe it. The rules decide who may read
/// them.
fn own(naming: Naming, writes: bool) -> PermissionRule {
    let mut topics: Vec<String> = vec![CONTROL_TOPIC.into(), INTEREST.into()];
    topics.extend(if writes { [NODE, STATS].as_slice() } else { &[STATE] }.iter().map(|topic| (*topic).into()));
    if naming == Naming::Ros {
        // Every node serves its type descriptions, by a service below its name.
        let types = format!("*/{}", type_query::NAME);
        let served = if writes { rpc::reply_topic(&types) } else { rpc::request_topic(&types) };
        topics.extend([entities::TOPIC.into(), served]);
    }
    PermissionRule { allows: true, topics }
}

/// Returns the prefixes of topic names. A channel that is not in the native form has no prefix.
fn prefixes(naming: Naming) -> &'static [&'static str] {
    match naming {
        Naming::Plain | Naming::Rpc => &[""],
        Naming::Ros => &["rt/", ""],
    }
}

/// Returns the prefixes and suffixes of the names of a service's topics.
fn around_services(naming: Naming, role: Role) -> Vec<(String, String)> {
    let around = |topic: String| {
        let (prefix, suffix) = topic.split_once('*').unwrap_or((&topic, ""));
        (prefix.to_owned(), suffix.to_owned())
    };
    let mut all = vec![around(match role {
        Role::Request => rpc::request_topic("*"),
        Role::Reply => rpc::reply_topic("*"),
    })];
    if naming == Naming::Rpc {
        all.push((String::new(), rpc_topic("", role)));
    }
    all
}

/// The `fnmatch` expressions of a pattern.
struct Expression {
    levels: usize,
    allowed: Vec<String>,
    /// Names that `allowed` also fits, but that have more levels than the pattern.
    denied: Vec<String>,
}

/// A part of a pattern.
enum Part {
    Level(String),
    /// This number of levels, or at least this number if `is_open`.
    Any {
        levels: usize,
        is_open: bool,
    },
}

impl Expression {
    fn of(pattern: &Pattern, prefix: &str, suffix: &str) -> Result<Expression, PermissionsError> {
        let wrong = |reason| Err(PermissionsError::Pattern { pattern: pattern.to_string(), reason });
        let mut parts: Vec<Part> = Vec::new();
        for level in pattern.as_str().split('/') {
            let (more, opens) = match level {
                "*" => (1, false),
                "**" => (0, true),
                level if level.contains('\\') => return wrong("it has a '\\', which quotes characters there"),
                level => {
                    parts.push(Part::Level(escape(level)));
                    continue;
                }
            };
            match parts.last_mut() {
                Some(Part::Any { levels, is_open }) => (*levels, *is_open) = (*levels + more, *is_open || opens),
                _ => parts.push(Part::Any { levels: more, is_open: opens }),
            }
        }
        let exact = |part: &&Part| matches!(part, Part::Any { is_open: false, .. });
        let open = |part: &&Part| matches!(part, Part::Any { is_open: true, .. });
        if parts.iter().any(|part| exact(&part)) && parts.iter().any(|part| open(&part)) {
            return wrong("it has '**', and '*' elsewhere, which stands for any number of levels there as well");
        }
        let optional = |part: &&Part| matches!(part, Part::Any { levels: 0, .. });
        let optionals = parts.iter().filter(optional).count();
        if optionals > MAX_OPTIONAL {
            return wrong("it has too many '**'");
        }
        // Each value of `absent` is a set of optional parts that stand for no level.
        let without = |absent: usize| {
            let mut number = 0;
            let kept = parts.iter().filter(|part| {
                let is_absent = optional(part) && absent >> number & 1 == 1;
                number += usize::from(optional(part));
                !is_absent
            });
            joined(kept.map(|part| part.text(0)), prefix, suffix)
        };
        let more = |longer: usize| {
            let texts = parts.iter().enumerate().map(|(at, part)| part.text(usize::from(at == longer)));
            joined(texts, prefix, suffix)
        };
        let exact = parts.iter().enumerate().filter(|(_, part)| exact(part));
        Ok(Expression {
            levels: prefix.matches('/').count() + pattern.as_str().split('/').count(),
            allowed: (0..1 << optionals).filter_map(without).collect(),
            denied: exact.filter_map(|(at, _)| more(at)).collect(),
        })
    }
}

impl Part {
    fn text(&self, more: usize) -> String {
        match self {
            Part::Level(text) => text.clone(),
            Part::Any { levels, .. } => vec!["*"; (levels + more).max(1)].join("/"),
        }
    }
}

/// Joins parts. `None` if there are none: names have at least one level.
fn joined(parts: impl Iterator<Item = String>, prefix: &str, suffix: &str) -> Option<String> {
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("{prefix}{}{suffix}", parts.join("/")))
}

/// Orders expressions so that none denies what another one allows.
fn ordered(mut expressions: Vec<Expression>) -> Vec<PermissionRule> {
    let (whole, mut others): (Vec<_>, Vec<_>) = expressions.drain(..).partition(|one| one.denied.is_empty());
    let set = |topics: BTreeSet<String>| topics.into_iter().collect::<Vec<_>>();
    let topics = set(whole.into_iter().flat_map(|one| one.allowed).collect());
    let mut permission_rules = vec![PermissionRule { allows: true, topics }];
    others.sort_by_key(|one| std::cmp::Reverse(one.levels));
    for same in others.chunk_by(|one, other| one.levels == other.levels) {
        // The names that they deny have more levels than the names that they allow.
        let denied = same.iter().flat_map(|one| one.denied.iter().cloned()).collect();
        let allowed = same.iter().flat_map(|one| one.allowed.iter().cloned()).collect();
        permission_rules.push(PermissionRule { allows: false, topics: set(denied) });
        permission_rules.push(PermissionRule { allows: true, topics: set(allowed) });
    }
    permission_rules
}

fn in_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Who;

    /// Compares names as the access control of DDS Security does.
    fn fits(expression: &[u8], name: &[u8]) -> bool {
        match (expression.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => (0..=name.len()).any(|from| fits(rest, &name[from..])),
            (Some((one, rest)), Some((other, after))) => one == other && fits(rest, after),
            _ => false,
        }
    }

    fn decision(rules: &[PermissionRule], name: &str) -> bool {
        let fits = |rule: &&PermissionRule| rule.topics.iter().any(|topic| fits(topic.as_bytes(), name.as_bytes()));
        rules.iter().find(fits).is_some_and(|rule| rule.allows)
    }

    fn rule(publish: &[&str], request: &[&str]) -> Rule {
        let patterns = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a pattern")).collect();
        let mut rule = Rule::default();
        (rule.who, rule.publish, rule.request) = (vec![Who::Anyone], patterns(publish), patterns(request));
        rule
    }

    fn names() -> Vec<String> {
        let mut all: Vec<String> = vec!["a".into(), "b".into()];
        let mut from = 0;
        while all.len() < 60 {
            let longer: Vec<String> = all[from..].iter().flat_map(|n| [format!("{n}/a"), format!("{n}/b")]).collect();
            from = all.len();
            all.extend(longer);
        }
        all
    }

    #[test]
    fn two_patterns_together_allow_what_each_of_them_does() {
        let patterns = [
            "a", "a/b", "*", "**", "a/*", "a/**", "*/b", "**/b", "a/*/b", "a/**/b", "*/*", "*/a/*", "a/*/**",
            "**/a/**", "**/*/b", "*/*/a/b",
        ];
        let names = names();
        for one in patterns {
            for other in patterns {
                let rule = rule(&[one, other], &[]);
                let rules = permission_rules(&[&rule], Naming::Plain, true).expect("expressions");
                for name in &names {
                    let expected = rule.publish.iter().any(|pattern| pattern.fits(name));
                    assert_eq!(decision(&rules, name), expected, "{one} {other}: {name} in {rules:?}");
                }
            }
        }
    }

    #[test]
    fn services_are_subject_to_their_own_patterns() {
        let rule = rule(&["**"], &["plant/*"]);
        for (naming, request) in [(Naming::Plain, "rq/plant/xRequest"), (Naming::Rpc, "plant/x_Request")] {
            let (writes, reads) = (permission_rules(&[&rule], naming, true), permission_rules(&[&rule], naming, false));
            let (writes, reads) = (writes.expect("expressions"), reads.expect("expressions"));
            let replies = request.replace("rq/", "rr/").replace("Request", "Reply");
            assert!(decision(&writes, request) && decision(&reads, &replies), "{naming:?}");
            assert!(!decision(&writes, &replies) && !decision(&reads, request), "{naming:?}: it serves nothing");
            assert!(!decision(&writes, &request.replace("/x", "/x/y")), "{naming:?}: one level");
            assert!(decision(&writes, "plant/x") && !decision(&reads, "plant/x"), "{naming:?}");
            assert!([CONTROL_TOPIC, INTEREST].into_iter().all(|own| decision(&writes, own) && decision(&reads, own)));
        }
        let any = permission_rules(&[&self::rule(&["*"], &[])], Naming::Ros, true).expect("expressions");
        let decisions = ["rt/a", "a", "rt/a/b", "b/a"].map(|name| decision(&any, name));
        assert_eq!(decisions, [true, true, false, false], "in both forms");
        let ros = permission_rules(&[&self::rule(&["chatter"], &[])], Naming::Ros, true).expect("expressions");
        assert!(decision(&ros, "rt/chatter") && decision(&ros, entities::TOPIC) && !decision(&ros, "rt/other"));
        let reads = permission_rules(&[&self::rule(&[], &[])], Naming::Ros, false).expect("expressions");
        let [request, reply] = ["rq/hall_7/get_type_descriptionRequest", "rr/hall/north/get_type_descriptionReply"];
        assert!(decision(&reads, request) && decision(&any, reply), "it serves its types");
        assert!(!decision(&any, request) && !decision(&reads, reply), "and asks nobody");
        assert!(!decision(&any, "rr/hall_7/get_parametersReply"));
    }

    #[test]
    fn the_name_of_a_certificate_may_have_upper_case() {
        let text = "[[access.allow]]\ncertificates = ['Pump-*']\npublish = ['plant/*']";
        let access = crate::Config::parse(text).expect("valid").access.expect("rules");
        let of = |name: &str| permissions(&access, name, Naming::Plain);
        assert!(of("pump-3").is_ok());
        assert_eq!(of("Pump-3"), of("pump-3"));
        assert_eq!(of("Hall"), Err(PermissionsError::Nobody { name: "Hall".into() }));
    }

    #[test]
    fn what_fnmatch_cannot_express_is_refused() {
        for pattern in ["a/*/b/**", "**/a/*", "a\\b", "**/a/**/b/**/c/**/d/**"] {
            let rule = rule(&[pattern], &[]);
            let error = permission_rules(&[&rule], Naming::Plain, true).expect_err(pattern);
            assert!(matches!(&error, PermissionsError::Pattern { pattern: told, .. } if told == pattern), "{error}");
        }
        let escaped = permission_rules(&[&rule(&["a b<c"], &[])], Naming::Plain, true).expect("expressions");
        assert!(decision(&escaped, "a%20b<c"));
        assert_eq!(in_xml("a<&>"), "a&lt;&amp;&gt;");
    }
}
