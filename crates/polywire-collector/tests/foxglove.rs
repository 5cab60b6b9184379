//! Live messages by WebSocket: what a client is told, what it gets, who may connect, and clients
//! that never read.

mod common;

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::atomic::Ordering,
};

use common::{Numbers, SOON, until};
use polywire::Node;
use polywire_collector::{Collector, CollectorConfig};
use serde_json::{Value, json};
use socket2::SockRef;
use tungstenite::{ClientRequestBuilder, Message, WebSocket, handshake::HandshakeError};

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

/// A collector that serves at this address, with numbers.
fn collector(name: &str, address: SocketAddr, last: u64) -> (Collector, std::sync::Arc<common::Counts>) {
    collector_with(name, address, last, "")
}

/// The same, with further settings of the handler.
fn collector_with(
    name: &str,
    address: SocketAddr,
    last: u64,
    settings: &str,
) -> (Collector, std::sync::Arc<common::Counts>) {
    let text = format!(
        "[collector]\nendpoints = ['inproc/{name}']\n[handlers.live]\nkind = 'foxglove'\nserve = '{address}'\n\
         origins = 'https://app.foxglove.dev'\nsync = 0\noverflow = 'block'\n{settings}\n"
    );
    let mut collector = Collector::new(Node::new());
    collector.reload(&CollectorConfig::parse(&text).expect("valid")).expect("it opens");
    let (numbers, counts) = Numbers::new(last);
    collector.add_source(Box::new(numbers)).expect("a thread");
    (collector, counts)
}

/// Connects as a browser would; `Err` has the status of a refusal.
fn connect(address: SocketAddr, protocol: &str, origin: Option<&str>) -> Result<WebSocket<TcpStream>, u16> {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("set");
    let mut request = ClientRequestBuilder::new(format!("ws://{address}/").parse().expect("an address"));
    if !protocol.is_empty() {
        request = request.with_sub_protocol(protocol);
    }
    if let Some(origin) = origin {
        request = request.with_header("Origin", origin);
    }
    match tungstenite::client(request, stream) {
        Ok((socket, response)) => {
            assert_eq!(response.headers()["sec-websocket-protocol"], protocol);
            Ok(socket)
        }
        Err(HandshakeError::Failure(tungstenite::Error::Http(response))) => Err(response.status().as_u16()),
        Err(other) => panic!("{other}"),
    }
}

fn text(socket: &mut WebSocket<TcpStream>) -> Value {
    match socket.read().expect("a message") {
        Message::Text(text) => serde_json::from_str(text.as_str()).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

/// The first channel of those that a client is told of next.
fn first_channel(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        let told = text(socket);
        assert_eq!(told["op"], "advertise");
        if let Some(channel) = told["channels"].as_array().expect("a list").first() {
            return channel.clone();
        }
    }
}

/// Foxglove and the libraries around it read CDR by the type in IDL, or as a message of ROS 2.
#[test]
fn messages_are_cdr_if_that_is_asked_for() {
    for (format, schema_encoding, schema_name, start) in
        [("cdr", "ros2msg", "test/msg/Number", "uint64 number\n"), ("xcdr2", "omgidl", "test::Number", "module test {")]
    {
        let address = free_address();
        let settings = format!("format = '{format}'");
        let (_collector, counts) = collector_with(&format!("foxglove-{format}"), address, u64::MAX, &settings);
        until("there is a topic", || counts.given.load(Ordering::Acquire) > 10);
        let mut socket = connect(address, "foxglove.sdk.v1", None).expect("it connects");
        assert_eq!(text(&mut socket)["op"], "serverInfo");
        let channel = first_channel(&mut socket);
        assert_eq!((&channel["encoding"], &channel["schemaEncoding"]), (&json!("cdr"), &json!(schema_encoding)));
        assert_eq!(channel["schemaName"], schema_name);
        assert!(channel["schema"].as_str().expect("a text").starts_with(start), "{channel}");
        let subscribe = json!({ "op": "subscribe", "subscriptions": [{ "id": 5, "channelId": channel["id"] }] });
        socket.send(Message::text(subscribe.to_string())).expect("sent");
        let bytes = loop {
            match socket.read().expect("a message") {
                Message::Binary(bytes) => break bytes,
                Message::Text(_) => continue,
                other => panic!("{other:?}"),
            }
        };
        // The header of the encapsulation, and the number, which is the time as well.
        let (time, payload) = (&bytes[5..13], &bytes[13..]);
        let at = if format == "cdr" { 4 } else { payload.windows(8).position(|part| part == time).expect("a number") };
        assert_eq!((&payload[at..at + 8], payload[0]), (time, 0), "{payload:?}");
    }
    let text = "[collector]\nendpoints = ['inproc/x']\n[handlers.live]\nkind = 'foxglove'\nserve = '127.0.0.1:0'\nformat = 'yaml'";
    let error =
        Collector::new(Node::new()).reload(&CollectorConfig::parse(text).expect("valid")).expect_err("a format");
    assert!(error.to_string().contains("'format': json, cdr or xcdr2 is expected, not 'yaml'"), "{error}");
}

#[test]
fn a_client_subscribes_by_topic_and_gets_messages_with_their_type() {
    let address = free_address();
    let (mut collector, counts) = collector("foxglove-live", address, u64::MAX);
    until("there is a topic", || counts.given.load(Ordering::Acquire) > 10);
    let mut socket = connect(address, "foxglove.websocket.v1", Some("https://app.foxglove.dev")).expect("it connects");
    let greeting = text(&mut socket);
    assert_eq!((&greeting["op"], &greeting["capabilities"]), (&json!("serverInfo"), &json!([])));
    let channel = first_channel(&mut socket);
    assert_eq!((&channel["topic"], &channel["encoding"]), (&json!("test/numbers"), &json!("json")));
    assert_eq!((&channel["schemaName"], &channel["schemaEncoding"]), (&json!("test::Number"), &json!("jsonschema")));
    let schema: Value = serde_json::from_str(channel["schema"].as_str().expect("a text")).expect("JSON");
    assert_eq!(schema["properties"]["text"]["type"], "string");
    let wrong = json!({ "op": "publish" }).to_string();
    socket.send(Message::text(wrong)).expect("sent");
    let problem = text(&mut socket);
    assert!(problem["op"] == "status" && problem["level"] == 2, "{problem}");
    let subscribe = json!({ "op": "subscribe", "subscriptions": [{ "id": 77, "channelId": channel["id"] }] });
    socket.send(Message::text(subscribe.to_string())).expect("sent");
    let mut last = 0;
    for _ in 0..20 {
        let bytes = match socket.read().expect("a message") {
            Message::Binary(bytes) => bytes,
            // So many that this client is too slow.
            Message::Text(_) => continue,
            other => panic!("{other:?}"),
        };
        assert_eq!((bytes[0], u32::from_le_bytes(bytes[1..5].try_into().unwrap())), (1, 77));
        let value: Value = serde_json::from_slice(&bytes[13..]).expect("JSON");
        let number = value["number"].as_u64().expect("a number");
        assert_eq!(u64::from_le_bytes(bytes[5..13].try_into().unwrap()), number, "its time");
        assert!(number > last);
        last = number;
    }
    assert!(last > 0);
    assert!(collector.stop(SOON).0, "a server with clients ends");
    drop(collector);
    // After what waits for it, the client is told of the end.
    while socket.read().is_ok_and(|message| !message.is_close()) {}
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn strangers_pages_and_protocols_are_refused() {
    let address = free_address();
    let (_collector, _) = collector("foxglove-refused", address, 1);
    let protocol = "foxglove.sdk.v1";
    assert_eq!(connect(address, protocol, Some("https://evil.example")).err(), Some(403));
    assert_eq!(connect(address, protocol, Some("null")).err(), Some(403));
    assert_eq!(connect(address, "chat", None).err(), Some(400));
    assert_eq!(connect(address, "", None).err(), Some(400));
    assert!(connect(address, protocol, Some("http://localhost:3000")).is_ok());
    // No HTTP at all.
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"\x16\x03\x01 nonsense\r\n\r\n").expect("sent");
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    assert!(connect(address, protocol, None).is_ok(), "others are served");
}

#[test]
fn a_client_that_never_reads_holds_up_nobody_and_is_dropped() {
    let address = free_address();
    let (collector, counts) = collector("foxglove-stalled", address, u64::MAX);
    let subscribed = || {
        let mut socket = connect(address, "foxglove.websocket.v1", None).expect("it connects");
        let subscribe = json!({ "op": "subscribe", "subscriptions": [{ "id": 1, "channelId": 1 }] });
        socket.send(Message::text(subscribe.to_string())).expect("sent");
        socket
    };
    let stalled = subscribed();
    // Else the system takes some megabytes for it first.
    SockRef::from(stalled.get_ref()).set_recv_buffer_size(4096).expect("set");
    let mut reader = subscribed();
    until("the reader gets messages", || matches!(reader.read(), Ok(Message::Binary(_))));
    let before = counts.given.load(Ordering::Acquire);
    until("the source goes on", || counts.given.load(Ordering::Acquire) > before + 20_000);
    assert_eq!(collector.status()[0].problem, "");
    // The server closes the connection: writing fails at last.
    let mut stream = stalled.get_ref().try_clone().expect("cloned");
    until("it is dropped", || {
        let _ = reader.read();
        stream.write_all(&[0x8a, 0x80, 0, 0, 0, 0]).is_err()
    });
    until("the reader still gets messages", || matches!(reader.read(), Ok(Message::Binary(_))));
}

#[test]
fn slips_are_told() {
    for (serve, expected) in [
        ("0.0.0.0:8765", "line 3: [handlers.a]: 'serve': other machines could reach it"),
        ("here", "line 3: [handlers.a]: 'serve': an address such as 127.0.0.1:8765 is expected, not 'here'"),
    ] {
        let text = format!(
            "[collector]\nendpoints = ['inproc/foxglove-slips']\n[handlers.a]\nkind = 'foxglove'\nserve = '{serve}'"
        );
        let config = CollectorConfig::parse(&text).expect("valid");
        let error = Collector::new(Node::new()).reload(&config).expect_err(serve).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
