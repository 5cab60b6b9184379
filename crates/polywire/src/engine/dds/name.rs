//! Converts Polywire's names of topics and types to names in DDS, and back.
//!
//! Cyclone DDS takes printable ASCII except blanks and `*?[]"'#$`. Every other byte, and `%`, is
//! written as `%` with two hexadecimal digits.

use std::fmt::Write as _;

use polywire_core::{
    envelope::Announcement,
    ros::{self, TypeError, TypeHash, TypeName},
    rpc,
    schema::Schema,
};
use polywire_dds::Endpoint;

use super::{
    form::{Form, OCTETS},
    rpc as dds_rpc,
};

const FORBIDDEN: &[u8] = b"*?[]\"'#$%";

/// The prefix of built-in topics, which are never topics of ROS 2.
const BUILT_IN: &str = "polywire/";

/// How topics and types are named in DDS.
///
/// ```
/// use polywire::engine::dds::Naming;
/// assert_ne!(Naming::Plain, Naming::Ros);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// As in Polywire.
    Plain,
    /// As in ROS 2 (`spec/ros.md`), for channels whose samples are those of ROS 2. The option
    /// `ros=true`.
    Ros,
    /// As in Polywire, except for services, which are those of DDS-RPC (`spec/dds-rpc.md`). The
    /// option `rpc=true`.
    Rpc,
}

/// The names of a channel in DDS.
pub(super) struct Names {
    pub(super) topic: String,
    pub(super) type_name: String,
    /// The hash of the type, if it is a type of ROS 2.
    pub(super) hash: Option<TypeHash>,
}

impl Naming {
    /// Checks whether services have a native form.
    pub(super) fn has_services(self) -> bool {
        self != Naming::Plain
    }

    /// Returns the names of a channel in DDS. A channel in native form has a schema.
    pub(super) fn of_channel(
        self,
        form: Form,
        announcement: &Announcement,
        schema: Option<&Schema>,
    ) -> Result<Names, TypeError> {
        let Announcement { topic, type_name, .. } = announcement;
        let plain = |type_name: &str| Names { topic: escape(topic), type_name: type_name.into(), hash: None };
        match (self, form) {
            (_, Form::Octets) => Ok(plain(OCTETS)),
            (Naming::Rpc, Form::Native { .. }) if let Some((_, role)) = rpc::service_of(topic) => {
                Ok(Names { topic: self.topic(topic)?, type_name: dds_rpc::dds_type(type_name, role), hash: None })
            }
            (Naming::Plain | Naming::Rpc, Form::Native { .. }) => Ok(plain(type_name)),
            (Naming::Ros, Form::Native { .. }) => {
                let (topic, type_name) = (self.topic(topic)?, TypeName::of_schema(type_name)?.to_dds());
                Ok(Names { topic, type_name, hash: schema.map(TypeHash::of).transpose()? })
            }
        }
    }

    /// Returns the name in DDS of a topic in native form.
    fn topic(self, topic: &str) -> Result<String, TypeError> {
        match (self, rpc::service_of(topic)) {
            (Naming::Rpc, Some((service, role))) => Ok(dds_rpc::dds_topic(service, role)),
            (Naming::Plain | Naming::Rpc, _) => Ok(escape(topic)),
            (Naming::Ros, Some((service, _))) => Ok(ros::check_topic(service).map(|()| topic.into())?),
            (Naming::Ros, None) => Ok(ros::dds_topic(topic)?),
        }
    }

    /// Returns Polywire's names of the topic and type of another program's endpoint. With
    /// [`Naming::Ros`], `None` if they are not names of ROS 2. With [`Naming::Rpc`], `None` if the
    /// topic is a service's, but the endpoint is not one of DDS-RPC. A type that wraps the values
    /// of a service keeps its name in DDS.
    pub(super) fn of_endpoint(self, writer: &Endpoint) -> Option<(String, String)> {
        match self {
            Naming::Plain => Some((unescape(&writer.topic), writer.type_name.clone())),
            Naming::Rpc => {
                let plain = || Some(unescape(&writer.topic)).filter(|topic| rpc::service_of(topic).is_none());
                Some((dds_rpc::topic_of(writer).or_else(plain)?, writer.type_name.clone()))
            }
            Naming::Ros => {
                let service = || rpc::service_of(&writer.topic).map(|_| &*writer.topic);
                let topic = ros::topic_of_dds(&writer.topic).or_else(service)?;
                Some((topic.into(), TypeName::of_dds(&writer.type_name)?.to_schema()))
            }
        }
    }

    /// Checks whether a writer has the topic of the channel that a node announces for it.
    pub(super) fn fits(self, announced: &str, writer: &Endpoint) -> bool {
        let native = if writer.type_name == OCTETS { None } else { self.topic(announced).ok() };
        writer.topic == native.unwrap_or_else(|| escape(announced))
    }

    /// Checks whether a channel may have the native form, apart from its type. ROS 2 supports only
    /// XCDR1, and has none of Polywire's built-in topics.
    pub(super) fn has_room_for(self, announcement: &Announcement) -> bool {
        self != Naming::Ros || (announcement.codec == "cdr" && !announcement.topic.starts_with(BUILT_IN))
    }
}

/// Returns the name of a topic in DDS.
pub(crate) fn escape(topic: &str) -> String {
    let mut name = String::with_capacity(topic.len());
    for byte in topic.bytes() {
        if byte.is_ascii_graphic() && !FORBIDDEN.contains(&byte) {
            name.push(byte.into());
        } else {
            // Writing to a string does not fail.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    name
}

/// Returns Polywire's name of another program's topic. A name that [`escape`] cannot have made
/// remains unchanged.
pub(super) fn unescape(name: &str) -> String {
    unescaped(name).filter(|topic| escape(topic) == name).unwrap_or_else(|| name.into())
}

fn unescaped(name: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(name.len()), name.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
    use polywire_dds::{Guid, Qos};

    use super::*;

    fn called(topic: &str, type_name: &str, codec: &str) -> Result<(String, String, bool), String> {
        let mut types = SchemaBuilder::new();
        let id = types.add(Def::structure(type_name, vec![Member::new("data", Type::string())]));
        let schema = types.finish(Type::Def(id)).expect("a schema");
        let (topic, type_name, codec) = (topic.into(), type_name.into(), codec.into());
        let announcement = Announcement { topic, type_name, codec, ..Announcement::default() };
        let form = Form::of(&announcement, Some(&schema).filter(|_| Naming::Ros.has_room_for(&announcement)), true);
        let names = Naming::Ros.of_channel(form, &announcement, Some(&schema)).map_err(|error| error.to_string())?;
        Ok((names.topic, names.type_name, names.hash.is_some()))
    }

    #[test]
    fn channels_of_ros_have_its_names() {
        let ros = ("rt/chatter".into(), "std_msgs::msg::dds_::String_".into(), true);
        assert_eq!(called("chatter", "std_msgs::msg::String", "cdr"), Ok(ros));
        let request = ("rq/addRequest".into(), "p::srv::dds_::Add_Request_".into(), true);
        assert_eq!(called("rq/addRequest", "p::srv::Add_Request", "cdr"), Ok(request));
        let octets = |topic: &str| Ok((topic.into(), OCTETS.into(), false));
        assert_eq!(called("chatter", "std_msgs::msg::String", "json"), octets("chatter"));
        assert_eq!(called("polywire/node", "Polywire::Node", "cdr"), octets("polywire/node"));
        assert!(called("chatter", "plant::Pump", "cdr").is_err_and(|error| error.contains("'plant::Pump' cannot be")));
        assert!(called("50%", "std_msgs::msg::String", "cdr").is_err_and(|error| error.contains("'50%' cannot be")));
    }

    #[test]
    fn endpoints_of_ros_have_our_names() {
        let endpoint = |topic: &str, type_name: &str| Endpoint {
            guid: Guid::default(),
            participant: Guid::default(),
            topic: topic.into(),
            type_name: type_name.into(),
            qos: Qos::default(),
            types: None,
        };
        let string = endpoint("rt/chatter", "std_msgs::msg::dds_::String_");
        assert_eq!(Naming::Ros.of_endpoint(&string), Some(("chatter".into(), "std_msgs::msg::String".into())));
        assert_eq!(Naming::Plain.of_endpoint(&string), Some((string.topic.clone(), string.type_name.clone())));
        for (topic, type_name) in [
            ("chatter", "std_msgs::msg::dds_::String_"),
            ("rt/chatter", "plant::Pump"),
            (ros::entities::TOPIC, ros::entities::TYPE_NAME),
        ] {
            assert_eq!(Naming::Ros.of_endpoint(&endpoint(topic, type_name)), None, "{topic}");
        }
    }

    #[test]
    fn names_come_back() {
        for (topic, name) in
            [("plant/pumps", "plant/pumps"), ("$nodes", "%24nodes"), ("50% a", "50%25%20a"), ("Kühl", "K%c3%bchl")]
        {
            assert_eq!(escape(topic), name);
            assert_eq!(unescape(name), topic);
        }
    }

    #[test]
    fn what_others_name_is_left_alone() {
        for name in ["a%", "a%4", "a%zz", "%ff", "%41", "rt/chatter", "a%C3%BC"] {
            assert_eq!(unescape(name), name);
        }
    }
}
