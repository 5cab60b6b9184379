//! The nodes that are found on this machine and on the network, and their versions.

use std::{
    thread,
    time::{Duration, Instant},
};

use polywire::{Node, NodeEvent, engine::Event};

use super::Finding;

pub fn check(interfaces: &[String], time: Duration) -> Vec<Finding> {
    // Both checks take `time`, so they run concurrently.
    let (interfaces, looked) = (interfaces.to_vec(), thread::spawn(move || local(time)));
    let mut findings = lan(&interfaces, time);
    findings.splice(0..0, looked.join().unwrap_or_default());
    findings
}

/// Joins the domain of the engine `local` for a while.
fn local(time: Duration) -> Vec<Finding> {
    let node = Node::new();
    let events = node.events();
    if let Err(error) = node.open("local") {
        return vec![Finding::problem("local", error.to_string(), "see 'folder' above")];
    }
    let until = Instant::now() + time;
    let mut findings = Vec::new();
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        findings.extend(events.recv_timeout(left).and_then(|event| trouble(&event)));
    }
    findings.insert(0, Finding::ok("local", count(node.links())));
    node.close();
    findings
}

fn trouble(event: &NodeEvent) -> Option<Finding> {
    match event {
        NodeEvent::Engine { event: event @ (Event::Rejected { .. } | Event::Unreachable { .. }), .. } => {
            Some(Finding::warning("local", event.to_string(), "use the same release of Polywire everywhere"))
        }
        NodeEvent::Engine { event: event @ Event::Silent { .. }, .. } => {
            Some(Finding::warning("local", event.to_string(), "look whether that process is suspended"))
        }
        _ => None,
    }
}

fn count(nodes: usize) -> String {
    match nodes {
        0 => "no other node there".into(),
        1 => "1 other node there".into(),
        many => format!("{many} other nodes there"),
    }
}

#[cfg(feature = "lan")]
use found::lan;

#[cfg(not(feature = "lan"))]
fn lan(_: &[String], time: Duration) -> Vec<Finding> {
    thread::sleep(time);
    vec![Finding::warning(
        "lan",
        "this build has no engine lan",
        "build with the feature lan to find nodes of the network",
    )]
}

#[cfg(feature = "lan")]
mod found {
    use std::{
        collections::{BTreeMap, BTreeSet},
        time::Duration,
    };

    use polywire::engine::lan::{Advertised, browse};

    use super::{super::Finding, count};

    /// Browses for nodes that announce themselves on the network. Does not connect to them.
    pub fn lan(interfaces: &[String], time: Duration) -> Vec<Finding> {
        let names: Vec<&str> = interfaces.iter().map(String::as_str).collect();
        match browse(&names, time) {
            Ok(nodes) => judged(nodes.iter().map(Node::of).collect(), env!("CARGO_PKG_VERSION")),
            Err(error) => vec![Finding::problem("lan", error.to_string(), "see the interfaces above")],
        }
    }

    /// The data of a node that is checked.
    pub struct Node {
        pub name: String,
        pub domain: u8,
        pub is_tls: bool,
        pub version: String,
    }

    impl Node {
        fn of(found: &Advertised) -> Node {
            Node {
                name: found.name.clone(),
                domain: found.domain,
                is_tls: found.is_tls,
                version: found.version.clone(),
            }
        }
    }

    pub fn judged(nodes: Vec<Node>, own: &str) -> Vec<Finding> {
        let mut domains: BTreeMap<u8, Vec<&Node>> = BTreeMap::new();
        nodes.iter().for_each(|node| domains.entry(node.domain).or_default().push(node));
        if domains.is_empty() {
            return vec![Finding::ok("lan", count(0))];
        }
        let mut findings: Vec<Finding> = domains.iter().flat_map(|(domain, nodes)| of(*domain, nodes)).collect();
        let others = nodes.iter().filter(|node| node.version != own);
        let others: BTreeSet<String> = others.map(|node| format!("{} at {}", node.version, place(node))).collect();
        if !others.is_empty() {
            let all = others.into_iter().collect::<Vec<_>>().join(", ");
            let advice = "use the same release of Polywire everywhere";
            findings.push(Finding::warning("versions", format!("this is {own}, and there is {all}"), advice));
        }
        findings
    }

    fn of(domain: u8, nodes: &[&Node]) -> Option<Finding> {
        let places = nodes.iter().map(|node| place(node)).collect::<Vec<_>>().join(", ");
        let found = format!("{} in domain {domain}: {places}", count(nodes.len()));
        let with_tls = nodes.iter().filter(|node| node.is_tls).count();
        Some(match with_tls {
            0 => Finding::warning(
                "lan",
                format!("{found}, without TLS"),
                "give nodes certificates ('polywire identity'), unless every host of the network is trusted",
            ),
            all if all == nodes.len() => Finding::ok("lan", format!("{found}, with TLS")),
            some => Finding::warning(
                "lan",
                format!("{found}, {some} of them with TLS"),
                "give all of them certificates: those with and those without do not link",
            ),
        })
    }

    /// Returns `HOST:PORT`, the human-readable part of the instance name.
    fn place(node: &Node) -> &str {
        node.name.split(' ').next().unwrap_or_default()
    }
}

#[cfg(all(test, feature = "lan"))]
mod tests {
    use super::{
        super::State,
        found::{Node, judged},
        *,
    };

    fn node(name: &str, domain: u8, is_tls: bool, version: &str) -> Node {
        Node { name: format!("{name} 00ff"), domain, is_tls, version: version.into() }
    }

    #[test]
    fn nodes_are_told_by_domain_and_version() {
        assert_eq!(judged(Vec::new(), "1.0"), [Finding::ok("lan", "no other node there")]);
        let all = vec![node("a:1", 0, true, "1.0"), node("b:2", 0, true, "1.0"), node("c:3", 5, false, "0.9")];
        let found = judged(all, "1.0");
        assert_eq!(found[0], Finding::ok("lan", "2 other nodes there in domain 0: a:1, b:2, with TLS"));
        assert!(found[1].state == State::Warning && found[1].found.contains("domain 5: c:3, without TLS"));
        assert_eq!(found[2].found, "this is 1.0, and there is 0.9 at c:3");
        let mixed = judged(vec![node("a:1", 0, true, "1.0"), node("b:2", 0, false, "1.0")], "1.0");
        assert!(mixed[0].advice.contains("do not link"), "{mixed:?}");
    }

    #[test]
    fn trouble_with_peers_is_told() {
        let unreachable = Event::Unreachable { endpoint: "local/0".into(), reason: "busy".into() };
        let event = NodeEvent::Engine { endpoint: "local/0".into(), event: unreachable };
        assert!(trouble(&event).is_some_and(|finding| finding.found.contains("busy")));
        let listening = Event::Listening { endpoint: "local/0".into() };
        assert_eq!(trouble(&NodeEvent::Engine { endpoint: "local/0".into(), event: listening }), None);
    }
}
