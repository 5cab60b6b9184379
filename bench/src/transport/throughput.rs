//! Throughput: time per message of a flood of messages over TCP between two processes, without
//! loss.

use super::{
    child::{OtherEnd, stay},
    pubsub,
};
use crate::{
    measure::{Candidate, Effort, compare_turns, unpin},
    report::{Group, Row},
};

/// Messages in a turn of a full measurement. A quick one has 1000.
const MESSAGES: u64 = 100_000;

pub fn group(effort: Effort) -> Group {
    let note = "Time per message of a flood over TCP between two processes, complete and in order. `typed` is `publish` to the inline \
                callback in the default configuration. libzmq is PUSH/PULL with its defaults and bytes of the same size."
        .into();
    let rows = [100, 1000].into_iter().map(|size| row(size, effort)).collect();
    let left_out = if cfg!(feature = "peers") { None } else { Some("libzmq (needs the feature `peers`)".into()) };
    Group { title: "Throughput", note, rows, left_out: left_out.into_iter().collect(), ..Group::default() }
}

fn row(size: usize, effort: Effort) -> Row {
    // Both libraries may use all cores: libzmq has threads of its own for the sockets.
    unpin();
    let messages = if effort.turns > Effort::QUICK.turns { MESSAGES } else { 1000 };
    let other = OtherEnd::start(&["throughput", &messages.to_string()]);
    let mut ours = pubsub::Flood::connect(&other.addresses[0], size);
    let per_message = |took: std::time::Duration| took.as_nanos() as f64 / messages as f64;
    let candidates = vec![
        Candidate::elsewhere("typed", move |_| per_message(ours.turn(messages))),
        #[cfg(feature = "peers")]
        {
            let mut theirs = super::zeromq::Flood::connect(&other.addresses[1], &other.addresses[2], size);
            Candidate::elsewhere("libzmq", move |_| per_message(theirs.turn(messages)))
                .with_bar(crate::measure::Bar::AtLeast(1.0))
        },
    ];
    Row::new(format!("{size} bytes"), "flood", None, compare_turns(candidates, effort.at_most(15)))
}

/// Runs in the child: counts messages, by publish/subscribe and by libzmq.
pub(super) fn count(turn: u64) {
    let ours = pubsub::Counter::listen(turn);
    #[cfg(feature = "peers")]
    let addresses = {
        let [flood, answers] = super::zeromq::count(turn);
        [ours.address.clone(), flood, answers]
    };
    #[cfg(not(feature = "peers"))]
    let addresses = [ours.address.clone()];
    stay(&addresses);
}
