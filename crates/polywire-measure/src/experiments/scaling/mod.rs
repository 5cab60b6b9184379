//! The page `docs/scaling.md`: the measured CPU time of a message against subscribers, topics,
//! fields and bytes; a cost model that is fitted to it (`fit`); and systems much larger than this
//! machine, simulated with that model (`system`). `polywire bench scaling` measures and writes it;
//! this code only computes text and plots.

mod fit;
mod knee;
mod point;
mod system;

use polywire_core::netsim::Model;

use crate::{
    Case, Results,
    experiments::page::{Experiment, Page, texts},
    report::svg::{Lines, Scale, Series},
    table::figure,
};
use fit::{Fit, Load, Part, RECEIVE, SEND, SHARED};
use point::{Point, SIZES, SUBSCRIBERS, is_held_out, points};
use system::System;

/// The experiment that writes `docs/scaling.md`.
///
/// ```
/// use polywire_measure::experiments::scaling::SCALING;
///
/// assert_eq!((SCALING.name, SCALING.scenarios.len()), ("scaling", 4));
/// ```
pub static SCALING: Experiment = Experiment {
    name: "scaling",
    command: "polywire bench scaling",
    title: "Scaling: many subscribers, topics and publishers",
    scenarios: &["subscribers", "fields", "topics", "engines"],
    data: "scaling/",
    page,
};

/// The simulated network between hosts.
const NETWORK: &str = "rate=1gbit,delay=100us,queue=1000MB";

/// Numbers of publishers that are modelled.
const PUBLISHERS: [usize; 4] = [1, 10, 100, 1000];

/// The fitted costs of both ends of a message over TCP.
struct Costs {
    send: Fit,
    receive: Fit,
}

type Pairs = Vec<(Load, f64)>;

/// The load of each point with the sender's cost, or with the receivers' cost.
fn pairs(points: &[&Point], send: bool) -> Pairs {
    points.iter().map(|point| (point.load, if send { point.send_ns } else { point.receive_ns })).collect()
}

impl Costs {
    fn of(points: &[&Point]) -> Option<Costs> {
        Some(Costs { send: Fit::of(SEND, &pairs(points, true))?, receive: Fit::of(RECEIVE, &pairs(points, false))? })
    }

    /// The costs if every subscriber has a host of its own.
    fn apart(&self) -> Costs {
        Costs { send: self.send.without(SEND, SHARED), receive: self.receive.without(RECEIVE, SHARED) }
    }

    fn send(&self, subscribers: f64, bytes: f64) -> f64 {
        self.send.cost(SEND, &Load { subscribers, topics: 1.0, fields: 1.0, bytes })
    }

    fn receive(&self, bytes: f64) -> f64 {
        self.receive.cost(RECEIVE, &Load { subscribers: 1.0, topics: 1.0, fields: 1.0, bytes })
    }

    /// A system that uses TCP, with these costs.
    fn system(&self, publishers: usize, subscribers: usize, bytes: f64) -> System {
        let each = self.send(2.0, bytes) - self.send(1.0, bytes);
        System {
            publishers,
            subscribers,
            rate_hz: 1.0,
            bytes,
            send_ns: (self.send(1.0, bytes) - each, each),
            receive_ns: self.receive(bytes),
            multicast: false,
        }
    }
}

fn page(page: &mut Page, results: &[Results]) {
    let [_, _, _, engines] = results else { return };
    page.say(
        "Messages are sent from one process to another, over loopback, as fast as all subscribers take them. A cost is \
         the CPU time of a message, of the sender's process or of the process of all receivers. The first part has \
         measurements, compared with a model that was fitted to some of them and checked against the others. The second \
         part has systems of up to 1,000 publishers and 10,000 subscribers, computed with that model and an emulated \
         network.",
    );
    let all: Vec<Point> = results[..3].iter().flat_map(|results| points(results, "tcp")).collect();
    let (held_out, seen): (Vec<&Point>, Vec<&Point>) = all.iter().partition(|point| is_held_out(&point.case));
    let Some(costs) = Costs::of(&seen) else { return page.say("There are too few measurements to fit a model.") };
    model(page, &costs, &seen, &held_out);
    measured(page, results, &costs);
    let others = others(engines);
    let apart = costs.apart();
    engine_costs(page, engines, &apart, others.as_ref());
    systems(page, &apart, &all, engines, others.as_ref());
}

/// Writes the section on the model: the cost of each part, and the errors.
fn model(page: &mut Page, costs: &Costs, seen: &[&Point], held_out: &[&Point]) {
    page.heading("The model");
    page.say(
        "A cost is a sum of parts. The cost of each part, in nanoseconds, is fitted by least squares of the relative \
         errors. Subscribers that share the machine's two cores compete with each other, which costs more than in \
         proportion to their number. Below, where subscribers have hosts of their own, that part is omitted.",
    );
    let rows = |end: &'static str, parts: &'static [Part], fit: &Fit| -> Vec<Vec<String>> {
        let row = |(part, cost): (&Part, &f64)| vec![end.to_owned(), part.name.to_owned(), format!("{cost:.1} ns")];
        parts.iter().zip(&fit.costs).map(row).collect()
    };
    let table = [rows("sender", SEND, &costs.send), rows("receivers", RECEIVE, &costs.receive)].concat();
    page.table(&texts(["", "for", "costs"]), &table);
    let mut rows = Vec::new();
    for (end, parts, fit, send) in [("sender", SEND, &costs.send, true), ("receivers", RECEIVE, &costs.receive, false)]
    {
        for (name, points) in [("fitted to", seen), ("held out", held_out)] {
            let Some((middle, most)) = fit.errors(parts, &pairs(points, send)) else { continue };
            let percent = |part: f64| format!("{:.0} %", part * 100.0);
            rows.push(vec![end.into(), name.into(), points.len().to_string(), percent(middle), percent(most)]);
        }
    }
    page.say("Errors of the model; *held out*: cases (marked * below) that were measured but not used for the fit.");
    page.table(&texts(["", "cases", "", "error, median", "at most"]), &rows);
}

/// Writes the tables of measured and modelled costs, and the plot.
fn measured(page: &mut Page, results: &[Results], costs: &Costs) {
    let [subscribers, fields, topics, _] = results else { return };
    let heads = [
        (subscribers, "Subscribers and bytes", "subscribers"),
        (fields, "Fields", "type"),
        (topics, "Topics", "topics"),
    ];
    for (results, title, axis) in heads {
        page.heading(title);
        let rows: Vec<Vec<String>> = points(results, "tcp").iter().map(|point| row(point, axis, costs)).collect();
        page.table(&texts([axis, "bytes", "sender", "model", "receivers", "model"]), &rows);
    }
    let sizes: Vec<&str> = subscribers.cases.iter().map(|result| result.case.ty.as_str()).collect();
    let mut series = Vec::new();
    for size in [sizes.first(), sizes.last()].into_iter().flatten() {
        let own: Vec<Point> = points(subscribers, "tcp").into_iter().filter(|point| point.case.ty == *size).collect();
        let Some(bytes) = own.first().map(|point| point.load.bytes) else { continue };
        series.push(Series {
            label: format!("{size}, measured"),
            points: own.iter().map(|point| (point.load.subscribers, point.send_ns / 1e3)).collect(),
        });
        let line = (0..=40).map(|i| 10f64.powf(f64::from(i) / 10.0));
        series.push(Series {
            label: format!("{size}, model"),
            points: line.map(|count| (count, costs.send(count, bytes) / 1e3)).collect(),
        });
    }
    let lines = Lines {
        series,
        x: Scale::Logarithmic,
        y: Scale::Logarithmic,
        x_text: Box::new(|count| format!("{count} subscribers")),
        y_text: Box::new(|us| figure("_ns", us * 1e3)),
    };
    page.draw("CPU time of a sender for a message, against subscribers", lines.draw());
}

fn row(point: &Point, axis: &str, costs: &Costs) -> Vec<String> {
    let star = if is_held_out(&point.case) { " *" } else { "" };
    let time = |ns: f64| figure("_ns", ns);
    vec![
        format!("{}{star}", point.case.at(axis).unwrap_or_default()),
        format!("{:.0}", point.load.bytes),
        time(point.send_ns),
        time(costs.send.cost(SEND, &point.load)),
        time(point.receive_ns),
        time(costs.receive.cost(RECEIVE, &point.load)),
    ]
}

/// Costs of a bare datagram socket for each measured size: bytes, and the nanoseconds of sender and
/// receiver for one datagram.
struct Datagrams(Vec<(f64, f64, f64)>);

impl Datagrams {
    /// The costs of sender and receiver for the measured size that is nearest to this one.
    fn cost(&self, bytes: f64) -> Option<(f64, f64)> {
        let near = |own: &&(f64, f64, f64)| (own.0 / bytes).ln().abs();
        let (_, send, receive) = self.0.iter().min_by(|a, b| near(a).total_cmp(&near(b)))?;
        Some((*send, *receive))
    }
}

/// The costs of `raw-udp` with one subscriber. Those of the receiver count per datagram that
/// arrived.
fn others(results: &Results) -> Option<Datagrams> {
    let one = points(results, "raw-udp").into_iter().filter(|point| point.case.subscribers == 1);
    let came = |case: &Case| {
        let lost = results.figure("lost_percent", |other| other == case).unwrap_or(0.0);
        (1.0 - lost / 100.0).max(0.01)
    };
    let costs: Vec<(f64, f64, f64)> =
        one.map(|point| (point.load.bytes, point.send_ns, point.receive_ns / came(&point.case))).collect();
    (!costs.is_empty()).then_some(Datagrams(costs))
}

/// Writes the section on engines: the CPU time of both ends together.
fn engine_costs(page: &mut Page, results: &Results, costs: &Costs, datagrams: Option<&Datagrams>) {
    page.heading("Engines");
    page.say(
        "CPU time of a message at both ends together. `inproc` is within one process. `raw-udp` is a bare socket that \
         sends a datagram to each subscriber, and loses datagrams that are not received in time.",
    );
    let axes = &results.scenario.axes;
    let mut types: Vec<&str> = results.cases.iter().map(|result| result.case.ty.as_str()).collect();
    types.dedup();
    let mut rows = Vec::new();
    for ty in &types {
        for subscribers in &axes.subscribers {
            let mut row = vec![(*ty).to_owned(), subscribers.to_string()];
            row.extend(axes.engine.iter().map(|engine| {
                let own = results.figure("cpu_ns", |case| {
                    case.ty == *ty && case.subscribers == *subscribers && case.engine == *engine
                });
                own.map_or("-".into(), |ns| figure("_ns", ns))
            }));
            rows.push(row);
        }
    }
    let mut head = texts(["message", "subscribers"]);
    head.extend(axes.engine.iter().cloned());
    page.table(&head, &rows);
    let mut items = Vec::new();
    for bytes in SIZES {
        let each = costs.send(2.0, bytes) - costs.send(1.0, bytes);
        let first = costs.send(1.0, bytes) - each;
        items.push(format!(
            "A message of {bytes:.0} bytes over TCP costs its sender {}, and {} more for each subscriber. The subscribers \
             cost more than the fixed part **from {} on**.",
            figure("_ns", first),
            figure("_ns", each),
            match (first / each).max(1.0).ceil() {
                1.0 => "the first subscriber".to_owned(),
                count => format!("{count:.0} subscribers"),
            }
        ));
        if let Some((datagram, _)) = datagrams.and_then(|datagrams| datagrams.cost(bytes)) {
            let from = ((datagram - first) / each).max(0.0).floor() + 1.0;
            items.push(format!(
                "One datagram of that size costs its sender {}. A multicast engine, which sends one datagram for all \
                 subscribers, would cost the sender less than TCP from {from:.0} subscribers on.",
                figure("_ns", datagram)
            ));
        }
    }
    page.list(&items);
}

/// Writes the section on large systems, which are simulated.
fn systems(page: &mut Page, costs: &Costs, measured: &[Point], engines: &Results, datagrams: Option<&Datagrams>) {
    let Ok(network) = NETWORK.parse::<Model>() else { return };
    page.heading("Thousands of publishers and subscribers");
    page.say(&format!(
        "This part is computed. Every publisher and every subscriber has a host of its own, with one processor, which \
         handles one message at a time at the costs above, and a network link (*line*) `{NETWORK}`. Every subscriber \
         gets every message of every publisher. The highest rate of a publisher is that at which 99 of 100 messages take \
         at most three times as long as in an idle system; the table also says which resource is then used up. With more \
         subscribers, a message takes longer in an idle system too, because its copies leave one after the other. The \
         limit is then higher, so a rate can be higher with ten subscribers than with one. Multicast sends one datagram \
         for all at the costs of a bare UDP socket. The engine `udp` does that; `udp-reliable` also repairs losses, at \
         costs that are not counted here.",
    ));
    let system = |publishers: usize, subscribers: usize, bytes: f64, multicast: bool| {
        let system = costs.system(publishers, subscribers, bytes);
        let datagram = || datagrams.and_then(|datagrams| datagrams.cost(bytes));
        match multicast {
            false => Some(system),
            true => {
                datagram().map(|(send, receive_ns)| System { multicast, send_ns: (send, 0.0), receive_ns, ..system })
            }
        }
    };
    let mut curves = Vec::new();
    for bytes in SIZES {
        for multicast in [false, true] {
            let mut rows = Vec::new();
            for subscribers in SUBSCRIBERS {
                let rate = |publishers: &usize| {
                    Some(system(*publishers, subscribers, bytes, multicast)?.highest_rate(&network, 1))
                };
                let rates: Vec<(f64, &str)> = PUBLISHERS.iter().filter_map(rate).collect();
                let Some((hz, _)) = rates.first() else { continue };
                curves.push((bytes, multicast, subscribers, *hz));
                let mut row = vec![subscribers.to_string()];
                row.extend(rates.iter().map(|(hz, what)| format!("{}/s, {what}", figure("", *hz))));
                rows.push(row);
            }
            if rows.is_empty() {
                continue;
            }
            let engine = if multicast { "Multicast" } else { "TCP" };
            page.say(&format!("{engine}, messages of {bytes:.0} bytes, highest rate of each publisher:"));
            let mut head = texts(["subscribers"]);
            head.extend(
                PUBLISHERS.iter().map(|count| format!("{count} publisher{}", if *count == 1 { "" } else { "s" })),
            );
            page.table(&head, &rows);
        }
    }
    plot(page, &curves);
    page.heading("Conclusions");
    page.list(
        &[
            Vec::from_iter(knee::crowding(measured)),
            knee::cheapest(engines),
            knee::modelled(&network, |count, bytes, multicast| system(1, count, bytes, multicast)),
        ]
        .concat(),
    );
    page.say(
        "Between machines, the first limit is a publisher that sends each message once for every subscriber. Multicast \
         (`udp`, or `udp-reliable`) would help. With many publishers, the subscribers are the first limit. No \
         engine helps then, only filters or smaller messages.",
    );
}

/// Plots highest rates against subscribers. A point has the bytes of a message, whether it is
/// multicast, the number of subscribers, and messages per second.
fn plot(page: &mut Page, curves: &[(f64, bool, usize, f64)]) {
    let curve = |bytes: f64, multicast: bool| {
        let own = curves.iter().filter(move |point| point.0 == bytes && point.1 == multicast);
        own.map(|point| (point.2 as f64, point.3)).collect::<Vec<_>>()
    };
    let mut series = Vec::new();
    for bytes in SIZES {
        for (multicast, name) in [(false, "TCP"), (true, "multicast")] {
            let points = curve(bytes, multicast);
            if !points.is_empty() {
                series.push(Series { label: format!("{name}, {bytes:.0} B"), points });
            }
        }
    }
    let lines = Lines {
        series,
        x: Scale::Logarithmic,
        y: Scale::Logarithmic,
        x_text: Box::new(|count| format!("{count} subscribers")),
        y_text: Box::new(|hz| format!("{}/s", figure("", hz))),
    };
    page.draw("Highest rate of one publisher, against subscribers", lines.draw());
}
