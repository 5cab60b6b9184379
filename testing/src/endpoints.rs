//! How nodes of a test meet at an endpoint with a port that the system chose.

/// The settings of a session of Zenoh that is not Polywire's, as keys and JSON. By default, a
/// publisher drops a message if its session is busy for a millisecond; here, it waits.
pub const PLAIN_ZENOH: [(&str, &str); 2] = [
    ("scouting/multicast/enabled", "false"),
    ("qos/publication", r#"[{ key_exprs: ["**"], config: { congestion_control: "block" } }]"#),
];

/// The endpoint at which a second node opens to meet the first one, which has opened this one. It
/// is the same, except that a node of Zenoh listens for itself and connects to the first one.
///
/// ```
/// use polywire_testing::endpoints::second;
/// assert_eq!(second("tcp/127.0.0.1:7460"), "tcp/127.0.0.1:7460");
/// let first = "zenoh/peer?scouting=off,listen=tcp/127.0.0.1:7447";
/// let expected = "zenoh/peer?scouting=off,listen=tcp/127.0.0.1:0,connect=tcp/127.0.0.1:7447";
/// assert_eq!(second(first), expected);
/// ```
pub fn second(first: &str) -> String {
    first.replace(",listen=", ",listen=tcp/127.0.0.1:0,connect=")
}
