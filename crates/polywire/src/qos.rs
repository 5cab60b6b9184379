//! Quality of service: the policies of [`polywire_core::qos`], and the checks whether a port and a
//! node can enforce them. Publishers and subscribers are checked before they are opened. The checks
//! have no side effects.
//!
//! `spec/qos.md` says for each policy what is native to an engine, what Polywire adds, and what is
//! refused.
//!
//! ```
//! use polywire::{Node, qos::Qos};
//! # use std::time::Duration;
//! # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
//! # struct Pump { #[polywire(key)] id: u32, pressure_bar: f64 }
//! let node = Node::new();
//! let publish = node.publish::<Pump>("pumps", Some("cdr@inproc/qos-doc"))?;
//! let publisher = publish.qos(Qos::default().lifespan(Duration::from_secs(60)))?.open()?;
//! let subscribe = node.subscribe::<Pump>("pumps", Some("cdr@inproc/qos-doc"))?;
//! let latest = subscribe.qos("history=keep-last:1".parse()?)?.open();
//! for (id, pressure_bar) in [(1, 2.5), (2, 7.5), (1, 3.5)] {
//!     publisher.publish(&Pump { id, pressure_bar })?;
//! }
//! let values = [latest.recv().unwrap().value, latest.recv().unwrap().value];
//! assert_eq!(values, [Pump { id: 2, pressure_bar: 7.5 }, Pump { id: 1, pressure_bar: 3.5 }]);
//! assert_eq!(latest.status().replaced, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::Duration;

use crate::error::NodeError;

pub use polywire_core::qos::*;

/// The shortest lease. A shorter one would lapse whenever the system is busy.
const SHORTEST_LEASE: Duration = Duration::from_millis(10);

/// Checks the policies that publishers and subscribers have in common.
fn check(qos: &Qos, reliable_engine: bool) -> Result<(), NodeError> {
    qos.check()?;
    if qos.reliability == Reliability::Reliable && !reliable_engine {
        return unsupported("reliability=reliable", "the engine loses messages; use another engine, or best-available");
    }
    if qos.lease.is_some_and(|lease| lease < SHORTEST_LEASE) {
        return unsupported("lease", "the shortest lease is 10ms");
    }
    Ok(())
}

/// Checks the policies of a publisher.
pub(crate) fn check_publisher(qos: &Qos, reliable_engine: bool) -> Result<(), NodeError> {
    check(qos, reliable_engine)?;
    if !qos.time_based_filter.is_zero() {
        return unsupported("time-based-filter", "it is a policy of subscribers");
    }
    if qos.durability == Durability::TransientLocal
        && qos.history == History::KeepAll
        && qos.resource_limits.max_samples.is_none()
    {
        let reason = "nothing says how much to keep: add history=keep-last:N, or max-samples=N";
        return unsupported("durability=transient-local", reason);
    }
    Ok(())
}

/// Checks the policies of a subscriber.
pub(crate) fn check_subscriber(qos: &Qos, reliable_engine: bool) -> Result<(), NodeError> {
    check(qos, reliable_engine)?;
    if qos.lifespan.is_some() {
        return unsupported("lifespan", "it is a policy of publishers");
    }
    Ok(())
}

fn unsupported(policy: &str, reason: &str) -> Result<(), NodeError> {
    Err(NodeError::Unsupported { policy: policy.into(), reason: reason.into() })
}

/// Checks an offer against a request. `reliable_engine` says whether an offer of
/// [`Reliability::BestAvailable`] counts as reliable. The error is a text that both sides report.
pub(crate) fn matched(offered: &Qos, requested: &Qos, reliable_engine: bool) -> Result<(), String> {
    let reliability = match offered.reliability {
        Reliability::BestAvailable if reliable_engine => Reliability::Reliable,
        other => other,
    };
    compatible(&offered.clone().reliability(reliability), requested).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        format!("incompatible quality of service: {}", problems.join("; "))
    })
}
