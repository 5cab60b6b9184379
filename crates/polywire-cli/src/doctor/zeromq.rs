//! Checks whether two nodes connect over ZeroMQ on this machine: one connects to the other.

use std::time::{Duration, Instant};

use polywire::{Node, NodeEvent, engine::Event};

use super::Finding;

/// The time limit for the connection.
const SOON: Duration = Duration::from_secs(2);
/// The endpoint of the listening node, at a port that the system chooses.
const BOUND: &str = "zeromq/bind/tcp://127.0.0.1:0";

pub fn check() -> Vec<Finding> {
    vec![meet(BOUND)]
}

fn meet(bound: &str) -> Finding {
    let (answers, asks) = (Node::new(), Node::new());
    let events = asks.events();
    let opened = answers.open(bound).and_then(|endpoint| asks.open(&endpoint).map(|_| endpoint));
    let endpoint = match opened {
        Ok(endpoint) => endpoint,
        Err(error) => return Finding::problem("zeromq", error.to_string(), "see 'files' and 'ports' above"),
    };
    let until = Instant::now() + SOON;
    let met = std::iter::from_fn(|| events.recv_timeout(until.saturating_duration_since(Instant::now())))
        .any(|event| matches!(event, NodeEvent::Engine { event: Event::Connected(_), .. }));
    match met {
        true => Finding::ok("zeromq", "two nodes met at an address of this machine"),
        false => Finding::problem(
            "zeromq",
            format!("two nodes did not meet at {endpoint} within {} s", SOON.as_secs()),
            "let this machine connect to itself by TCP: its firewall may forbid it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    #[test]
    fn two_nodes_meet_or_it_is_said_why_not() {
        assert_eq!(check().iter().map(|finding| finding.state).collect::<Vec<_>>(), [State::Ok]);
        // An address that this machine does not have.
        let finding = meet("zeromq/bind/tcp://192.0.2.1:0");
        assert!(finding.state == State::Problem && finding.found.contains("192.0.2.1"), "{finding:?}");
    }
}
