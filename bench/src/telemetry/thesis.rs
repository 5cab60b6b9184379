//! The set-up of the thesis of 2016, section 5.4, with this system: a probe `CodecsTest`, a node, a
//! line of 8 Mbit/s, and a collector whose handler does nothing. The node sends as fast as the line
//! takes it.

use std::{
    io::Read as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use polywire::{Message, Node, coding::Typed};
use polywire_collector::{Collector, CollectorConfig};
use polywire_link::{Emulator, Plan as LinkPlan};
use polywire_telemetry::{Instrument, MeasureError, Moment, Pdl, Plan, Probe, ProbeType, Uuid};
use polywire_workloads::{CodecsTest10, CodecsTest50, CodecsTest100, CodecsTest250, CodecsTest500, Workload};

use super::{
    Options,
    child::{Process, agent, free_port},
    table,
};

/// Messages a second in the thesis, for 10 and 500 members.
const THESIS: [(&str, f64, f64); 3] = [("cdr", 4959.0, 190.0), ("bson", 2911.0, 80.0), ("fast", 7740.0, 1206.0)];

/// Before the measurement, programs are compiled and queues filled.
const WARM_UP: Duration = Duration::from_secs(2);

/// Samples that may wait in the node.
const AHEAD: u64 = 64;

/// A type of probe whose samples are a workload's, one after the other.
macro_rules! probes {
    ($($fields:literal $test:ident $uuid:literal),*) => {
        const FIELDS: &[&str] = &[$(stringify!($fields)),*];

        fn probe_of(fields: &str) -> &'static ProbeType {
            match fields {
                $(stringify!($fields) => {
                    static PROBE: ProbeType = ProbeType {
                        name: "codecs",
                        summary: "The probe CodecsTest of the thesis",
                        uuid: Uuid::of($uuid),
                        version: "1.0",
                        pdl: Pdl::File(include_str!("../../../workloads/codecs_test.pdl")),
                        every: Duration::from_millis(1),
                        parameters: &[],
                        shape: $test::shape,
                        open: |_, _| Ok(repeated::<$test>()),
                    };
                    &PROBE
                })*
                other => panic!("no CodecsTest has {other} members"),
            }
        }
    };
}

probes!(
    10 CodecsTest10 0x29e5_4a5d_5d3f_44b0_8d55_8e8c_38c9_0a10,
    50 CodecsTest50 0x29e5_4a5d_5d3f_44b0_8d55_8e8c_38c9_0a50,
    100 CodecsTest100 0x29e5_4a5d_5d3f_44b0_8d55_8e8c_38c9_0b00,
    250 CodecsTest250 0x29e5_4a5d_5d3f_44b0_8d55_8e8c_38c9_0b50,
    500 CodecsTest500 0x29e5_4a5d_5d3f_44b0_8d55_8e8c_38c9_0c00
);

fn repeated<T: Workload + Message>() -> Box<dyn Probe> {
    let (samples, mut next) = (T::generate(256), 0);
    let measure = move |_: Moment, sample: &mut T| -> Result<(), MeasureError> {
        sample.clone_from(&samples[next % samples.len()]);
        next += 1;
        Ok(())
    };
    Box::new(Instrument::new(Typed::<T>::default(), measure))
}

/// A node with the probe, which is sampled as fast as the line takes it. Time is virtual: each turn
/// is a millisecond after the one before.
pub(super) fn node(wire: &str, fields: &str) {
    let (node, mut agent) = agent(wire, "bench");
    agent.add(Plan::of(probe_of(fields))).expect("added");
    println!("ready");
    let ends = Arc::new(AtomicBool::new(false));
    let seen = ends.clone();
    thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        seen.store(true, Ordering::Release);
    });
    let mut now = Moment::default();
    while !ends.load(Ordering::Acquire) {
        for _ in 0..AHEAD {
            now.steady += Duration::from_millis(1);
            agent.turn(now);
        }
        node.flush(Duration::from_secs(1));
    }
}

/// Messages a second and bytes a message on the line.
fn rate(codec: &str, fields: &str, span: Duration) -> (f64, f64) {
    let port = free_port();
    let node = Node::new();
    let mut collector = Collector::new(node.clone());
    let config = format!(
        "[collector]\nendpoints = ['tcp-listen/127.0.0.1:{port}']\n\
         [handlers.samples]\nkind = 'null'\noverflow = 'block'\ntopics = ['probes/bench/codecs']\n"
    );
    collector.reload(&CollectorConfig::parse(&config).expect("a configuration")).expect("it opens");
    let to = format!("127.0.0.1:{port}").parse().expect("an address");
    let model = || "8mbit".parse().expect("a model");
    let plan = LinkPlan { there: model(), back: model(), ..LinkPlan::default() };
    let line = Emulator::tcp("127.0.0.1:0".parse().expect("an address"), to, plan).expect("a line");
    let sender = Process::start(&["codecs", &format!("{codec}@tcp-connect/{}", line.address()), fields], "");
    let stored = || collector.status()[0].received;
    while stored() == 0 {
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(WARM_UP);
    let (count, bytes, start) = (stored(), line.stats().0.delivered_bytes, std::time::Instant::now());
    thread::sleep(span);
    let (count, bytes) = (stored() - count, line.stats().0.delivered_bytes - bytes);
    let seconds = start.elapsed().as_secs_f64();
    drop(sender);
    node.close();
    (count as f64 / seconds, bytes as f64 / count as f64)
}

pub(super) fn measure(options: &Options, out: &mut String) {
    out.push_str(
        "\n## The thesis's set-up\n\nThe probe `CodecsTest` with 10 to 500 members, a node, a line of 8 Mbit/s, and a collector with the \
         handler `null`: samples a second that arrive, and bytes of each on the line, with frames. The thesis's figures are those of its \
         section 5.4.\n\n",
    );
    let mut rows =
        vec![["format", "members", "samples/s", "bytes each", "thesis: messages/s"].map(str::to_owned).to_vec()];
    for (codec, few, many) in THESIS {
        for fields in FIELDS {
            let (rate, bytes) = rate(codec, fields, options.span);
            let thesis = match *fields {
                "10" => format!("{few}"),
                "500" => format!("{many}"),
                _ => String::new(),
            };
            rows.push(vec![
                codec.to_owned(),
                (*fields).to_owned(),
                format!("{rate:.0}"),
                format!("{bytes:.1}"),
                thesis,
            ]);
        }
    }
    table(out, &rows);
}
