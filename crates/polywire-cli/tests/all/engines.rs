//! The commands that open a node, over each engine that has a medium of its own: a publisher in one
//! process, and each command in another.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::common::{Folder, report};

/// The endpoint of the publisher, and that of the commands.
struct Place {
    publisher: String,
    command: String,
    /// Whether somebody can relay there.
    relays: bool,
}

fn places(folder: &Folder) -> Vec<Place> {
    let mut places = Vec::new();
    let mut add = |publisher: String, command: String, relays| places.push(Place { publisher, command, relays });
    #[cfg(all(feature = "shm", target_os = "linux"))]
    {
        let shared = format!("shm/{}/nodes", folder.path().display());
        add(shared.clone(), shared.clone(), false);
        add(shared.clone(), format!("{shared}?wait=spin"), false);
    }
    let file = format!("unix/{}/nodes.sock", folder.path().display());
    add(file.clone(), file, true);
    #[cfg(feature = "zenoh")]
    {
        let port = free_port();
        let listening = format!("zenoh/peer?scouting=off,listen=tcp/127.0.0.1:{port}");
        add(listening, format!("zenoh/client/tcp/127.0.0.1:{port}"), false);
    }
    #[cfg(feature = "zeromq")]
    {
        let port = free_port();
        let at = |what: &str| format!("zeromq/{what}/tcp://127.0.0.1:{port}");
        add(at("bind"), at("connect"), false);
    }
    #[cfg(feature = "dds")]
    {
        let domain = format!("dds/{}?interface=127.0.0.1", polywire_testing::domains::lease());
        add(domain.clone(), domain, false);
    }
    places
}

/// A port of TCP that nobody listens at.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn every_command_that_opens_a_node_works_over_every_engine() {
    let folder = Folder::new();
    let value = report(1);
    let expected: Value = serde_json::from_str(&value).expect("JSON");
    for (number, Place { publisher, command, relays }) in places(&folder).into_iter().enumerate() {
        let from = format!("json@{publisher}");
        let publishing = ["pub", "weather", &value, "--idl", "weather.idl", "--type", "Report", "--wait", "0"];
        let publisher =
            folder.start(&[&publishing[..], &["--count", "1000000", "--rate", "100", "--wire", &from]].concat());
        let ask = |arguments: &[&str], wire: &str| {
            let out = folder.run(&[arguments, &["--timeout", "100", "--wire", wire]].concat()).with(0).out;
            serde_json::from_str::<Value>(out.lines().last().expect("a line")).expect("JSON")
        };
        assert_eq!(ask(&["echo", "weather", "-n", "2"], &command), expected, "{command}");
        assert_eq!(ask(&["hz", "weather", "-n", "10", "--json"], &command)["messages"], json!(10), "{command}");
        assert!(ask(&["bw", "weather", "-n", "10", "--json"], &command)["message_bytes_max"].is_number(), "{command}");
        let rows = ask(&["list", "--json"], &command);
        assert_eq!((&rows[0]["topic"], &rows[0]["codec"]), (&json!("weather"), &json!("json")), "{command}");
        assert_eq!(ask(&["typeof", "weather", "--json"], &command)["type"], json!("weather::Report"), "{command}");
        let bridged = format!("unix/bridged-{number}.sock");
        let bridge = folder.start(&["bridge", &command, &format!("cbor@{bridged}"), "weather"]);
        assert_eq!(ask(&["echo", "weather", "-n", "2"], &bridged), expected, "{command}");
        bridge.end_by("TERM").with(0);
        if !relays {
            let refused = folder.run(&["relay", &command, "--for", "1"]).with(3);
            let engine = command.split('/').next().unwrap_or_default();
            assert!(refused.errors.contains(engine), "{}", refused.errors);
        }
        publisher.end_by("TERM");
    }
}

/// A node of ROS 2 on the library `hiroz`, in domain 7, and a command that has no IDL.
#[cfg(feature = "zenoh")]
#[test]
fn a_node_of_ros_over_zenoh_is_read_without_its_idl() {
    use polywire_testing::{program::Program, tools};

    let folder = Folder::new();
    let place = format!("127.0.0.1:{}", free_port());
    let Some(mut talker) = tools::peer("ros2_zenoh", "polywire-ros2-zenoh-peer") else { return };
    let wire = format!("zenoh/peer?scouting=off,ros=true,domain=7,listen=tcp/{place}");
    let echo = folder.start(&["echo", "chatter", "--wire", &wire, "--count", "2", "--timeout", "60"]);
    let until = std::time::Instant::now() + polywire_testing::waiting::SOON;
    while std::net::TcpStream::connect(&place).is_err() {
        assert!(std::time::Instant::now() < until, "the command does not listen");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let _talker = Program::start(talker.args(["talk", &format!("tcp/{place}")]));
    let printed = echo.end().with(0).out;
    let numbers: Vec<u64> = printed
        .lines()
        .map(|line| line.strip_prefix("{\"data\":\"hello ").and_then(|rest| rest.strip_suffix("\"}")))
        .map(|number| number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{printed}")))
        .collect();
    assert!(numbers.len() == 2 && numbers[1] == numbers[0] + 1, "{printed}");
}
