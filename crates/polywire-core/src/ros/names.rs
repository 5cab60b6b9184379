//! Names as ROS 2 writes them.

use alloc::{format, string::String};
use core::fmt;

/// Longest name of a topic with the slash in front, in bytes, as the middlewares of ROS 2 have it.
const MAX_TOPIC_BYTES: usize = 247;

/// Longest name of a type or node, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// What the topics of ROS 2 begin with in DDS.
const TOPIC_PREFIX: &str = "rt/";

/// The middle part of a type's name in DDS.
const DDS_MODULE: &str = "dds_";

/// The middle parts of a type's name.
const KINDS: [&str; 3] = ["msg", "srv", "action"];

/// Why a name cannot be one of ROS 2.
///
/// ```
/// use polywire_core::ros::{self, NameError, TypeName};
/// let error = TypeName::of_schema("plant::Pump").unwrap_err();
/// assert!(matches!(&error, NameError::Type { name } if name == "plant::Pump"));
/// assert_eq!(
///     error.to_string(),
///     "'plant::Pump' cannot be the name of a ROS 2 type, which is PACKAGE::msg::NAME, with srv or action as well as msg"
/// );
/// let error = ros::check_topic("50% full").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "'50% full' cannot be the name of a ROS 2 topic: its levels consist of letters, digits and '_', and begin with no \
///      digit"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// A topic's name has other characters.
    #[error(
        "'{topic}' cannot be the name of a ROS 2 topic: its levels consist of letters, digits and '_', and begin with no \
         digit"
    )]
    Topic {
        /// The name.
        topic: String,
    },
    /// A type has no package, is neither message, service nor action, or has other characters.
    #[error(
        "'{name}' cannot be the name of a ROS 2 type, which is PACKAGE::msg::NAME, with srv or action as well as msg"
    )]
    Type {
        /// The name.
        name: String,
    },
    /// A name has too many bytes.
    #[error("a name has {bytes} bytes, and ROS 2 allows {max}: it begins with '{start}'")]
    Long {
        /// Its length in bytes.
        bytes: usize,
        /// The most that is allowed.
        max: usize,
        /// Its first characters.
        start: String,
    },
}

/// Checks that a topic's or service's name is one in ROS 2, where a slash stands in front of it.
///
/// # Errors
/// If it has other characters, or is too long.
pub fn check_topic(topic: &str) -> Result<(), NameError> {
    check_length(topic, MAX_TOPIC_BYTES - 1)?;
    match topic.split('/').all(is_word) {
        true => Ok(()),
        false => Err(NameError::Topic { topic: topic.into() }),
    }
}

/// A name for a node of ROS 2: a text with `_` in place of what such names do not have.
///
/// ```
/// use polywire_core::ros::node_name;
/// assert_eq!(["hall-4711", "2nd floor", ""].map(node_name), ["hall_4711", "_2nd_floor", "_"]);
/// ```
pub fn node_name(text: &str) -> String {
    let start = if text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') { "" } else { "_" };
    let rest = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    start.chars().chain(rest).take(MAX_NAME_BYTES).collect()
}

/// The name that a ROS 2 topic has in DDS: `rt/chatter` for `chatter`.
///
/// # Errors
/// If the name cannot be one of ROS 2.
pub fn dds_topic(topic: &str) -> Result<String, NameError> {
    check_topic(topic)?;
    Ok(format!("{TOPIC_PREFIX}{topic}"))
}

/// The ROS 2 topic that has this name in DDS: `chatter` for `rt/chatter`. `None` for all others.
pub fn topic_of_dds(name: &str) -> Option<&str> {
    name.strip_prefix(TOPIC_PREFIX).filter(|topic| check_topic(topic).is_ok())
}

/// The name of a ROS 2 type. It prints as in ROS 2, `std_msgs/msg/String`.
///
/// ```
/// use polywire_core::ros::TypeName;
/// let name = TypeName::of_dds("example_interfaces::srv::dds_::AddTwoInts_Request_").unwrap();
/// assert_eq!(name.to_schema(), "example_interfaces::srv::AddTwoInts_Request");
/// assert_eq!((name.package, name.kind, name.name), ("example_interfaces", "srv", "AddTwoInts_Request"));
/// assert_eq!(name.service().map(|service| service.to_string()).as_deref(), Some("example_interfaces/srv/AddTwoInts"));
/// assert_eq!(TypeName::of_dds("example_interfaces::srv::AddTwoInts"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeName<'a> {
    /// The package.
    pub package: &'a str,
    /// `msg`, `srv` or `action`.
    pub kind: &'a str,
    /// The name within the package. Those of requests and replies end with `_Request` and
    /// `_Response`.
    pub name: &'a str,
}

impl<'a> TypeName<'a> {
    /// Splits the name of a definition of a schema, `std_msgs::msg::String`, as the front end for
    /// `.msg` files makes it.
    ///
    /// # Errors
    /// If ROS 2 has no such names.
    pub fn of_schema(name: &'a str) -> Result<TypeName<'a>, NameError> {
        check_length(name, MAX_NAME_BYTES)?;
        TypeName::of_parts(name.split("::")).ok_or_else(|| NameError::Type { name: name.into() })
    }

    /// Splits the name of a type in DDS or a key of Zenoh, `std_msgs::msg::dds_::String_`. `None`
    /// for types that are not of ROS 2.
    pub fn of_dds(name: &'a str) -> Option<TypeName<'a>> {
        let (scope, name) = name.strip_suffix('_')?.rsplit_once("::")?;
        let (scope, module) = scope.rsplit_once("::")?;
        let name = TypeName::of_parts(scope.split("::").chain([name]))?;
        (module == DDS_MODULE && name.len() <= MAX_NAME_BYTES).then_some(name)
    }

    fn of_parts(mut parts: impl Iterator<Item = &'a str>) -> Option<TypeName<'a>> {
        let (package, kind, name) = (parts.next()?, parts.next()?, parts.next()?);
        let is_name = |text: &str| is_word(text) && !text.starts_with('_') && !text.ends_with('_');
        let is_valid = parts.next().is_none() && is_name(package) && is_name(name) && KINDS.contains(&kind);
        is_valid.then_some(TypeName { package, kind, name })
    }

    /// The service that a request or a reply of this type belongs to. `None` for other types.
    pub fn service(&self) -> Option<TypeName<'a>> {
        let name = self.name.strip_suffix("_Request").or_else(|| self.name.strip_suffix("_Response"))?;
        (self.kind != "msg").then_some(TypeName { name, ..*self })
    }

    /// The name that a schema has.
    pub fn to_schema(&self) -> String {
        format!("{}::{}::{}", self.package, self.kind, self.name)
    }

    /// The name in DDS, and in keys of Zenoh.
    pub fn to_dds(&self) -> String {
        format!("{}::{}::{DDS_MODULE}::{}_", self.package, self.kind, self.name)
    }

    /// The length of the name that a schema has.
    fn len(&self) -> usize {
        self.package.len() + self.kind.len() + self.name.len() + 4
    }
}

impl fmt::Display for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.package, self.kind, self.name)
    }
}

/// Whether a text consists of letters, digits and underscores, and begins with no digit.
pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn check_length(name: &str, max: usize) -> Result<(), NameError> {
    let bytes = name.len();
    match bytes <= max {
        true => Ok(()),
        false => Err(NameError::Long { bytes, max, start: name.chars().take(40).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_come_back() {
        for topic in ["chatter", "robot_1/scan", "_hidden/topic", "a/b/c"] {
            let name = dds_topic(topic).expect(topic);
            assert_eq!(topic_of_dds(&name), Some(topic));
        }
        for topic in ["", "a//b", "/a", "a/", "1a", "a/2b", "a b", "K\u{fc}hl", "$nodes", "a*", "~a"] {
            assert!(matches!(dds_topic(topic), Err(NameError::Topic { .. })), "{topic}");
            assert_eq!(topic_of_dds(&format!("rt/{topic}")), None, "{topic}");
        }
        assert_eq!([topic_of_dds("chatter"), topic_of_dds("rq/addRequest"), topic_of_dds("rt")], [None; 3]);
        let long = "a".repeat(247);
        assert!(matches!(check_topic(&long), Err(NameError::Long { bytes: 247, max: 246, .. })));
        assert!(check_topic(&long[1..]).is_ok());
    }

    #[test]
    fn types_come_back() {
        for (schema, dds, ros) in [
            ("std_msgs::msg::String", "std_msgs::msg::dds_::String_", "std_msgs/msg/String"),
            ("p2::srv::A_Request", "p2::srv::dds_::A_Request_", "p2/srv/A_Request"),
            ("p::action::Turn_Goal", "p::action::dds_::Turn_Goal_", "p/action/Turn_Goal"),
        ] {
            let name = TypeName::of_schema(schema).expect(schema);
            assert_eq!((name.to_dds(), name.to_string()), (dds.into(), ros.into()));
            assert_eq!(TypeName::of_dds(dds), Some(name));
            assert_eq!(name.to_schema(), schema);
        }
        for name in [
            "String",
            "msg::String",
            "p::String",
            "p::msg::",
            "p::idl::A",
            "p::msg::A::B",
            "::msg::A",
            "p::msg::A_",
            "",
        ] {
            assert!(TypeName::of_schema(name).is_err(), "{name}");
        }
        for name in [
            "p::msg::A",
            "p::msg::dds_::A",
            "p::msg::A_",
            "p::dds_::A_",
            "p::msg::x::dds_::A_",
            "p::msg::dds_::A__",
            "",
        ] {
            assert_eq!(TypeName::of_dds(name), None, "{name}");
        }
        let long = format!("{}::msg::A", "p".repeat(300));
        assert!(matches!(TypeName::of_schema(&long), Err(NameError::Long { .. })));
        assert_eq!(TypeName::of_dds(&format!("{}::msg::dds_::A_", "p".repeat(300))), None);
    }

    #[test]
    fn requests_and_replies_name_their_service() {
        let service = |name| TypeName::of_schema(name).ok()?.service().map(|service| service.to_schema());
        assert_eq!(service("p::srv::Add_Request").as_deref(), Some("p::srv::Add"));
        assert_eq!(service("p::action::Turn_SendGoal_Response").as_deref(), Some("p::action::Turn_SendGoal"));
        assert_eq!([service("p::msg::Add_Request"), service("p::srv::Add")], [None, None]);
    }
}
