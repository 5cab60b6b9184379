//! ROS 2's conventions as data, for engines whose medium carries ROS 2 too: names of topics, types
//! and nodes as ROS 2 writes them on DDS and Zenoh, the hash of a type, and the properties in the
//! user data of DDS. `spec/ros.md` has the rules.
//!
//! ```
//! use polywire_core::ros::{self, TypeHash, TypeName};
//! use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
//!
//! assert_eq!(ros::dds_topic("chatter").as_deref(), Ok("rt/chatter"));
//! assert_eq!(ros::topic_of_dds("rt/chatter"), Some("chatter"));
//!
//! let mut types = SchemaBuilder::new();
//! let text = types.add(Def::structure("std_msgs::msg::String", vec![Member::new("data", Type::string())]));
//! let schema = types.finish(Type::Def(text))?;
//! let name = TypeName::of_schema(schema.name())?;
//! assert_eq!((name.to_string(), name.to_dds()), ("std_msgs/msg/String".into(), "std_msgs::msg::dds_::String_".into()));
//! let hash = TypeHash::of(&schema)?;
//! assert_eq!(hash.to_string(), "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cdr;
mod description;
pub mod entities;
mod hash;
mod names;
mod properties;
pub mod type_query;

pub use description::{TypeError, description, service_description};
pub use hash::{ParseTypeHashError, TypeHash};
pub use names::{NameError, TypeName, check_topic, dds_topic, node_name, topic_of_dds};
pub use properties::property;
