//! The findings at the end of the scaling page, as sentences: where the cost of a subscriber rises
//! steeply (the knee), which engine costs least, and how many subscribers a modelled publisher can
//! serve. Computes from figures only.

use polywire_core::netsim::Model;

use super::{
    point::{Point, SIZES, SUBSCRIBERS},
    system::System,
};
use crate::{Results, table::figure};

/// A cost above this multiple of the lowest cost is past the knee.
const PAST: f64 = 2.0;

/// Rates of the modelled publisher, in messages per second.
const RATES: [f64; 3] = [10.0, 100.0, 1000.0];

/// Engines that lose no messages.
const RELIABLE: [&str; 3] = ["tcp", "unix", "inproc"];

/// The sender's cost per subscriber on this machine with few and with many subscribers, for each
/// size of message, and the sizes that have a knee.
pub fn crowding(measured: &[Point]) -> Option<String> {
    let mut types: Vec<&str> =
        measured.iter().filter(|point| point.case.fields == 0).map(|p| p.case.ty.as_str()).collect();
    types.dedup();
    let curves: Vec<Curve> = types.iter().filter_map(|ty| curve_of(measured, ty)).collect();
    let ((least, _), (most, _)) = (*curves.first()?.costs.first()?, *curves.first()?.costs.last()?);
    let ends = |curve: &Curve| {
        let ((_, first), (_, last)) = (*curve.costs.first()?, *curve.costs.last()?);
        Some(format!("{} and {} for {:.0} bytes", figure("_ns", first), figure("_ns", last), curve.bytes))
    };
    let costs: Vec<String> = curves.iter().filter_map(ends).collect();
    let rise = |curve: &Curve| {
        let (before, past) = knee(&curve.costs)?;
        Some(format!("between {before} and {past} subscribers for {:.0} bytes", curve.bytes))
    };
    let rises: Vec<String> = curves.iter().filter_map(rise).collect();
    let told = match rises.is_empty() {
        true => format!("**For no size does it rise to more than {PAST} times its lowest value and stay there.**"),
        false => {
            format!("**It rises to more than {PAST} times its lowest value and stays there: {}.**", rises.join(", "))
        }
    };
    Some(format!(
        "On this machine, where the subscribers share the cores with the publisher, the sender's cost per subscriber \
         with {least} and with {most} of them is {}. {told}",
        costs.join(", ")
    ))
}

/// The sender's cost per subscriber, in nanoseconds, by the number of subscribers.
struct Curve {
    bytes: f64,
    costs: Vec<(usize, f64)>,
}

fn curve_of(measured: &[Point], ty: &str) -> Option<Curve> {
    let own: Vec<&Point> = measured.iter().filter(|point| point.case.ty == ty).collect();
    let cost = |point: &&Point| (point.case.subscribers, point.send_ns / point.load.subscribers);
    Some(Curve { bytes: own.first()?.load.bytes, costs: own.iter().map(cost).collect() })
}

/// The numbers of subscribers between which the knee lies: from the second one on, all costs are
/// past it. `None` if the last cost is not past the knee.
fn knee(curve: &[(usize, f64)]) -> Option<(usize, usize)> {
    let least = curve.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let at = curve.iter().rposition(|point| point.1 <= PAST * least)?;
    Some((curve[at].0, curve.get(at + 1)?.0))
}

/// For each size and rate: how many subscribers a modelled publisher can serve, over TCP and over
/// multicast.
pub fn modelled(network: &Model, system: impl Fn(usize, f64, bool) -> Option<System>) -> Vec<String> {
    let mut items = Vec::new();
    for bytes in SIZES {
        for rate_hz in RATES {
            let most = |multicast: bool| {
                most_subscribers(network, |count| Some(System { rate_hz, ..system(count, bytes, multicast)? }))
            };
            let Some(tcp) = most(false) else { continue };
            let multicast = most(true).map_or(String::new(), |count| format!(", multicast for {}", said(&count)));
            items.push(format!(
                "{rate_hz:.0} messages of {bytes:.0} bytes a second from one publisher: TCP keeps up for {}{multicast}.",
                said(&tcp)
            ));
        }
    }
    items
}

/// The maximum number of subscribers, and the busiest resource with one more.
struct Most {
    count: usize,
    busiest: &'static str,
}

fn said(most: &Most) -> String {
    let limit = SUBSCRIBERS[SUBSCRIBERS.len() - 1];
    match most.count {
        0 => format!("none (the {} is used up)", most.busiest),
        count if count == limit => format!("{count} subscribers and more"),
        count => format!("{count} subscribers (then the {} is used up)", most.busiest),
    }
}

/// The most subscribers with which the system keeps up. `None` if there is no such system.
fn most_subscribers(network: &Model, system: impl Fn(usize) -> Option<System>) -> Option<Most> {
    let (mut low, mut high) = (0, SUBSCRIBERS[SUBSCRIBERS.len() - 1] + 1);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if system(middle)?.keeps_up(network, 1) { low = middle } else { high = middle }
    }
    Some(Most { count: low, busiest: system(low + 1)?.busiest(network).0 })
}

/// For each size of message: the ratio of TCP's cost to that of Unix sockets, and the cheapest
/// engine.
pub fn cheapest(results: &Results) -> Vec<String> {
    let mut types: Vec<&str> = results.cases.iter().map(|result| result.case.ty.as_str()).collect();
    types.dedup();
    types.iter().flat_map(|ty| [between_processes(results, ty), within(results, ty)]).flatten().collect()
}

fn cost(results: &Results, ty: &str, engine: &str, subscribers: usize) -> Option<f64> {
    results.figure("cpu_ns", |case| case.ty == ty && case.engine == engine && case.subscribers == subscribers)
}

fn between_processes(results: &Results, ty: &str) -> Option<String> {
    let times = |subscribers: &usize| {
        let times = cost(results, ty, "tcp", *subscribers)? / cost(results, ty, "unix", *subscribers)?;
        Some(format!("{times:.1} for {subscribers}"))
    };
    let list: Vec<String> = results.scenario.axes.subscribers.iter().filter_map(times).collect();
    let told = format!(
        "Between processes of one machine, with messages of {ty}, TCP costs this multiple of Unix sockets, by number of \
         subscribers: {}.",
        list.join(", ")
    );
    (!list.is_empty()).then_some(told)
}

fn within(results: &Results, ty: &str) -> Option<String> {
    let least = |subscribers: &usize| {
        let own = RELIABLE.iter().filter_map(|engine| Some((*engine, cost(results, ty, engine, *subscribers)?)));
        let (engine, _) = own.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(format!("`{engine}` for {subscribers}"))
    };
    let list: Vec<String> = results.scenario.axes.subscribers.iter().filter_map(least).collect();
    let told = format!(
        "The cheapest engine with messages of {ty}, within a process or between processes, by number of subscribers: \
         {}.",
        list.join(", ")
    );
    (!list.is_empty()).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knee_is_where_costs_stay_high() {
        assert_eq!(knee(&[(1, 5.0), (4, 5.5), (8, 9.0), (16, 51.0), (32, 92.0)]), Some((8, 16)));
        // A single high cost, as of a disturbed measurement, is no knee.
        assert_eq!(knee(&[(1, 5.0), (4, 15.0), (8, 6.0), (16, 7.0)]), None);
        assert_eq!(knee(&[]), None);
    }

    #[test]
    fn as_many_subscribers_as_the_sender_has_time_for() {
        let network: Model = "rate=1gbit,delay=100us,queue=1000MB".parse().expect("a model");
        let system = |subscribers: usize| {
            let (send_ns, multicast) = ((0.0, 50_000.0), false);
            Some(System {
                publishers: 1,
                subscribers,
                rate_hz: 100.0,
                bytes: 100.0,
                send_ns,
                receive_ns: 1.0,
                multicast,
            })
        };
        // A message may take 10 ms; each subscriber takes 50 us of it.
        let most = most_subscribers(&network, system).expect("there is such a system");
        assert!((190..=200).contains(&most.count) && most.busiest == "publisher's processor", "{}", most.count);
        assert!(most_subscribers(&network, |_| None).is_none());
    }
}
