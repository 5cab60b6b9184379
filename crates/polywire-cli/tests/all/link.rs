//! `polywire link` between real processes.

use std::{net::UdpSocket, time::Duration};

use crate::common::Folder;

#[test]
fn datagrams_are_lost_as_the_model_says_and_the_statistics_tell() {
    let folder = Folder::new();
    let target = UdpSocket::bind("127.0.0.1:0").expect("a port");
    target.set_read_timeout(Some(Duration::from_millis(700))).expect("a timeout");
    let to = format!("udp/{}", target.local_addr().expect("bound"));
    let arguments = [
        "--json",
        "link",
        "udp/127.0.0.1:0",
        &to,
        "--model",
        "loss=pattern:001",
        "--for",
        "3",
        "--seed",
        "5",
        "--capture",
        "c.pcapng",
    ];
    let mut running = folder.start(&arguments);
    let first: serde_json::Value = serde_json::from_str(&running.line()).expect("JSON");
    assert_eq!(first["seed"], 5);
    let link = first["listening"].as_str().and_then(|text| text.strip_prefix("udp/")).expect("an address").to_owned();
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for number in 0..9u8 {
        sender.send_to(&[number], &link).expect("sent");
    }
    let mut buffer = [0; 4];
    let came: Vec<u8> = std::iter::from_fn(|| target.recv(&mut buffer).ok().map(|_| buffer[0])).collect();
    assert_eq!(came, [0, 1, 3, 4, 6, 7]);
    let ended = running.end().with(0);
    let last: serde_json::Value = serde_json::from_str(ended.out.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["there"]["sent"], &last["there"]["lost"]), (&9.into(), &3.into()));
    let capture = std::fs::read(folder.path().join("c.pcapng")).expect("a file");
    assert_eq!(capture[..4], [0x0A, 0x0D, 0x0D, 0x0A]);
}

#[test]
fn a_topic_goes_through_a_slow_link() {
    let folder = Folder::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let to = format!("tcp/{free}");
    let mut link = folder.start(&[
        "link",
        "tcp/127.0.0.1:0",
        &to,
        "--model",
        "rate=1mbit,delay=20ms",
        "--for",
        "60",
        "--every",
        "0",
    ]);
    let first = link.line();
    let address = first.split(' ').next().and_then(|text| text.strip_prefix("tcp/")).expect("an address").to_owned();
    let echo = folder.start(&[
        "echo",
        "weather",
        "--wire",
        &format!("tcp-listen/{free}"),
        "--idl",
        "weather.idl",
        "--type",
        "Report",
        "--count",
        "1",
        "--timeout",
        "50",
    ]);
    let publish = [
        "pub",
        "weather",
        &crate::common::report(1),
        "--idl",
        "weather.idl",
        "--type",
        "Report",
        "--wire",
        &format!("json@tcp-connect/{address}"),
    ];
    folder.run(&publish).with(0);
    assert!(echo.end().with(0).out.contains("\"station\":\"S1\""));
}

#[test]
fn what_of_a_model_a_stream_does_not_meet_is_told() {
    let folder = Folder::new();
    let link = |from: &str, model: &str| {
        let to = from.replace(":0", ":9");
        folder.run(&["link", from, &to, "--model", model, "--for", "0.1", "--every", "0"]).with(0).errors
    };
    let told = link("tcp/127.0.0.1:0", "lossy-30");
    assert!(told.contains("a stream loses nothing: loss, duplicate, reorder of the model have no effect"), "{told}");
    assert_eq!(told.lines().count(), 1, "once: {told}");
    assert_eq!(link("tcp/127.0.0.1:0", "8mbit") + &link("udp/127.0.0.1:0", "lossy-30"), "");
}

#[test]
fn what_is_wrong_is_told() {
    let folder = Folder::new();
    folder.write("script.txt", "# calm, then a storm\n1 both lan\n2 both stormy\n");
    let udp = "udp/127.0.0.1:0";
    assert!(
        folder.run(&["link", udp, "udp/127.0.0.1:9", "--script", "script.txt"]).with(3).errors.contains("script.txt:3")
    );
    assert!(folder.run(&["link", udp, "tcp/127.0.0.1:9"]).with(3).errors.contains("both be udp"));
    assert!(folder.run(&["link", udp, "udp/127.0.0.1:9", "--model", "loss=lots"]).with(3).errors.contains("loss=lots"));
    assert!(folder.run(&["link", "127.0.0.1:9", udp]).with(3).errors.contains("udp/ADDRESS"));
    assert!(folder.run(&["link", "--help"]).with(0).out.contains("satellite"));
}
