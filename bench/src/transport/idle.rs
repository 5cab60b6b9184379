//! What a node costs that has nothing to do: CPU time, memory and threads.

use std::{thread, time::Duration};

use polywire::{Node, Publisher, Subscriber};

use super::{
    Family,
    child::{OtherEnd, stay},
    pubsub::{Blob, free_address},
};
use crate::{
    measure::{Effort, unpin},
    report::Group,
};

/// Topics of the node, each with a publisher and a subscriber.
const TOPICS: usize = 100;

pub fn group(effort: Effort) -> Group {
    let note = "A process with one node that has a publisher and a subscriber on each topic, linked to another process with the same \
                topics, while nobody publishes: CPU time in a second, and resident memory of the whole process."
        .into();
    let time = if effort.turns > Effort::QUICK.turns { Duration::from_secs(10) } else { Duration::from_millis(50) };
    let heading = ["engine", "topics", "CPU a second", "memory"].map(String::from).to_vec();
    let cases = [(Family::Local, 1), (Family::Local, TOPICS), (Family::Tcp, TOPICS), (Family::UdpReliable, TOPICS)];
    let lines = cases.into_iter().map(|(family, topics)| line(family, topics, time));
    Group { title: "Idle", note, lengths: std::iter::once(heading).chain(lines).collect(), ..Group::default() }
}

fn line(family: Family, topics: usize, time: Duration) -> Vec<String> {
    unpin();
    let other = OtherEnd::start(&["idle", family.name(), &topics.to_string()]);
    let node = Node::new();
    let idle = Idle::open(&node, &family.wire("connect", &other.addresses[0]), topics);
    for (publisher, _) in &idle.ends {
        // One here, and one at the other end.
        assert_eq!(publisher.wait_for_subscribers(2, Duration::from_secs(30)), 2, "the other end does not subscribe");
    }
    // Decoders are compiled meanwhile.
    thread::sleep(time / 2);
    let (before, _) = other.costs();
    thread::sleep(time);
    let (after, memory) = other.costs();
    let used = after.saturating_sub(before).as_secs_f64() / time.as_secs_f64();
    let (name, topics) = (family.name().into(), topics.to_string());
    vec![name, topics, format!("{:.2} ms", used * 1e3), format!("{:.1} MB", memory as f64 / 1e6)]
}

/// Publishers and subscribers that do nothing.
struct Idle {
    ends: Vec<(Publisher<Blob>, Subscriber<Blob>)>,
}

impl Idle {
    fn open(node: &Node, wire: &str, topics: usize) -> Idle {
        let end = |number| {
            let topic = format!("topic{number}");
            let subscriber = node.subscriber_on::<Blob>(&topic, wire).expect("a subscriber");
            (node.publisher_on::<Blob>(&topic, wire).expect("a publisher"), subscriber)
        };
        Idle { ends: (0..topics).map(end).collect() }
    }
}

/// Runs in the child: the idle node.
pub(super) fn run(family: Family, topics: usize) {
    let (node, address) = (Node::new(), free_address(family));
    let _idle = Idle::open(&node, &family.wire("listen", &address), topics);
    stay(&[address]);
}
