//! Fan-out: one publisher, and receivers in another process, each with a node and a connection of
//! its own.

use super::{
    Family,
    child::{OtherEnd, stay},
    pubsub, raw,
    throughput::{Turns, measure, without_libzmq},
};
use crate::{
    measure::{Effort, unpin},
    report::{Group, Row},
};

/// Bytes of a message.
const SIZE: usize = 1000;
/// Messages that each receiver gets in a turn of a full measurement. A quick one has 100.
const MESSAGES: u64 = 10_000;

pub fn group(effort: Effort) -> Group {
    let note = "Time per message of a flood of 1000 bytes to several receivers in one other process, complete and in order at each, \
                and CPU time per message of both processes together. `typed` is one publisher, and a node for each receiver. `raw` \
                writes the same bytes to each connection in batches of 64 KiB. libzmq is PUB/SUB over TCP with unbounded queues."
        .into();
    let cases = [(Family::Tcp, 4), (Family::Unix, 4), (Family::Tcp, 32), (Family::Unix, 32)];
    let rows = cases.into_iter().flat_map(|(family, receivers)| rows(family, receivers, effort)).collect();
    Group { title: "Fan-out", note, rows, left_out: without_libzmq(), ..Group::default() }
}

fn rows(family: Family, receivers: usize, effort: Effort) -> Vec<Row> {
    unpin();
    let messages = if effort.turns > Effort::QUICK.turns { MESSAGES } else { 100 };
    let address = pubsub::free_address(family);
    #[cfg(feature = "peers")]
    let mut theirs = super::zeromq::Fan::listen(SIZE);
    let mut words = vec!["fan-out".into(), family.name().into(), messages.to_string(), receivers.to_string()];
    words.push(address.clone());
    #[cfg(feature = "peers")]
    words.extend(theirs.addresses());
    let other = OtherEnd::start(&words.iter().map(String::as_str).collect::<Vec<_>>());
    // The receivers call until somebody listens.
    let mut ours = pubsub::Flood::open(family, "listen", &address, &other.identity, SIZE);
    ours.meet(receivers);
    let mut bare = raw::Flood::connect(family, &other.addresses[0], &other.identity, SIZE, receivers);
    #[cfg(feature = "peers")]
    theirs.meet(receivers);
    let turns = vec![
        Turns::new("typed", None, || ours.turn(messages)),
        Turns::new("raw", None, || bare.turn(messages)),
        #[cfg(feature = "peers")]
        Turns::new("libzmq", Some(crate::measure::Bar::AtLeast(1.0)), || theirs.turn(messages)),
    ];
    let workload = format!("{SIZE} bytes over {}", family.name());
    measure(&workload, &format!("1 to {receivers}"), turns, messages, &other, effort)
}

/// Runs in the child: the receivers.
pub(super) fn count(family: Family, turn: u64, receivers: usize, addresses: &[&str]) {
    let [ours, theirs @ ..] = addresses else { panic!("the parent gives an address") };
    let _ours: Vec<_> = (0..receivers).map(|_| pubsub::Counter::open(family, "connect", ours, turn)).collect();
    #[cfg(feature = "peers")]
    super::zeromq::subscribe(theirs, turn, receivers);
    #[cfg(not(feature = "peers"))]
    assert!(theirs.is_empty());
    stay(&[raw::count(family, turn as usize * SIZE, receivers)]);
}
