//! What a node tells of the liveliness of writers.

use std::time::Instant;

use polywire::{Events, NodeEvent};
use polywire_testing::waiting::SOON;

/// Whether a writer is alive again, at the next change.
pub fn change(events: &Events) -> bool {
    let until = Instant::now() + SOON;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if let Some(NodeEvent::LivelinessChanged { alive, .. }) = events.recv_timeout(left) {
            return alive;
        }
    }
    panic!("no change");
}
