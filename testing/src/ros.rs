//! Types of ROS 2, for tests with its nodes over Zenoh.
#![expect(missing_docs, reason = "the members are those of ROS 2")]

use polywire_derive::Message;

/// `std_msgs/msg/String`.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "std_msgs::msg::String")]
pub struct Text {
    pub data: String,
}

/// The request of `example_interfaces/srv/AddTwoInts`.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "example_interfaces::srv::AddTwoInts_Request")]
pub struct Add {
    pub a: i64,
    pub b: i64,
}

/// The reply of `example_interfaces/srv/AddTwoInts`.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "example_interfaces::srv::AddTwoInts_Response")]
pub struct Sum {
    pub sum: i64,
}

/// A text with this content.
pub fn text(data: &str) -> Text {
    Text { data: data.into() }
}
