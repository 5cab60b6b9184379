//! The configurations that the pages in `docs/` show are valid, and mean what the pages say.

use polywire::{Config, Message, Node, NodeEvent};
use polywire_testing::markdown::{blocks, page};
use std::time::Duration;

/// The configurations of a page, in their order.
fn configurations(name: &str) -> Vec<Config> {
    let shown = blocks(&page(&format!("docs/{name}"))).into_iter().filter(|block| block.info.starts_with("toml"));
    let parsed = |text: &str, line| Config::parse(text).unwrap_or_else(|error| panic!("docs/{name}, {line}: {error}"));
    shown.map(|block| parsed(&block.text, block.line)).collect()
}

#[test]
fn every_page_shows_configurations_that_are_valid() {
    for (page, count) in [("deploy.md", 1), ("observe.md", 2), ("security.md", 1), ("services.md", 1), ("wires.md", 2)]
    {
        assert_eq!(configurations(page).len(), count, "{page}");
    }
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Pump {
    id: u32,
}

#[test]
fn a_topic_at_several_endpoints_is_as_the_page_on_wires_says() {
    let config = configurations("wires.md").remove(0);
    let wires = |topic| config.wires_for(topic, &[]).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(wires("plant/3/pump"), ["cdr@local", "fast@udp/239.1.2.3:7400"]);
    assert_eq!(wires("plant/pump"), [""; 0]);
}

#[test]
fn a_stranger_moves_a_topic_only_where_the_page_on_wires_lets_it() {
    let config = configurations("wires.md").remove(1);
    let (here, there) = (Node::builder().config(config).build(), Node::new());
    let endpoint = here.open("tcp-listen/127.0.0.1:0").expect("listens");
    let events = here.events();
    let _pumps = here.subscriber_on::<Pump>("pumps", &format!("cdr@{endpoint}")).expect("subscribes");
    let wire = format!("cdr@{}", endpoint.replace("tcp/", "tcp-connect/"));
    let publisher = there.publisher_on::<Pump>("pumps", &wire).expect("opens");
    let soon = Duration::from_secs(60);
    assert_eq!(publisher.wait_for_subscribers(1, soon), 1);
    publisher.set_wire("inproc/documented-elsewhere").expect("moves");
    let refused = std::iter::from_fn(|| events.recv_timeout(soon)).find_map(|event| match event {
        NodeEvent::Redirected { refused, .. } => Some(refused),
        _ => None,
    });
    let reason = refused.flatten().expect("a stranger is not followed");
    assert!(reason.contains("no pattern of node.follow fits"), "{reason}");
}
