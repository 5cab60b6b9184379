//! A collector and a thousand nodes with ten probes at 10 Hz: 100,000 samples a second into SQLite
//! and MCAP, all of which must be there at the end. The nodes keep their samples until the
//! collector has stored them; this process has all of them.

use std::{
    env, fs,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use polywire::{
    Message, Node,
    codec::{Encoder, Options as CodecOptions, cdr},
    service::{Client, Reply},
};
use polywire_collector::{Archive, ArchiveValue};
use polywire_telemetry::{
    Moment, Uuid,
    packet::{NodePacket, PACKETS, PacketReply, StreamDescription},
    uplink::{Memory, Rule, Uplink, UplinkOptions},
};

use super::{
    Options,
    child::{Process, free_port},
    table,
};

const NODES: usize = 1000;
const PROBES: usize = 10;
const HZ: u64 = 10;

/// Connections to the collector: nodes share them, as behind a relay.
const LINKS: usize = 8;

/// How long the collector may take to store a packet.
const ANSWER: Duration = Duration::from_secs(60);

/// A sample: what a machine says of itself.
#[derive(Clone, Debug, Default, Message)]
#[polywire(name = "bench::Reading")]
struct Reading {
    number: u64,
    temperature_c: f64,
    pressure_bar: f64,
    speed_hz: f32,
    is_running: bool,
    starts: u32,
}

/// What the nodes have seen.
#[derive(Default)]
struct Seen {
    offered: AtomicU64,
    acknowledged: AtomicU64,
    failures: AtomicU64,
    /// The longest time from the last sample of a packet to its reply.
    late_us: AtomicU64,
}

pub(super) fn measure(options: &Options, out: &mut String) {
    out.push_str(&format!(
        "\n## Many nodes\n\n{NODES} nodes with {PROBES} probes at {HZ} Hz, over TCP, in node packets of a second each: {} samples a second, of \
         which each must be in every archive once. Nodes take samples on time, whatever the collector does. The nodes are one process, \
         whose CPU counts as well on this machine. *Seconds* are those from the first sample to the last reply, *CPU* is that of the \
         collector in cores, and the latest reply is counted from the last sample of its packet.\n\n",
        NODES as u64 * PROBES as u64 * HZ
    ));
    let mut rows = vec![
        ["handlers", "samples", "stored", "seconds", "CPU", "us a sample", "peak memory, MB", "latest reply, s"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for handlers in [&["null"][..], &["sqlite"], &["mcap"], &["sqlite", "mcap"]] {
        rows.push(run(handlers, options.span));
    }
    table(out, &rows);
}

fn run(handlers: &[&str], span: Duration) -> Vec<String> {
    let folder = env::temp_dir().join(format!("polywire-bench-nodes-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let port = free_port();
    let mut config = format!(
        "[collector]\nendpoints = ['tcp-listen/127.0.0.1:{port}']\nnodes = '{0}/nodes.positions'\n",
        folder.display()
    );
    for kind in handlers {
        config += &format!("[handlers.{kind}]\nkind = '{kind}'\noverflow = 'block'\nqueue = 65536\n");
        if *kind != "null" {
            config += &format!("path = '{}/samples.{kind}'\n", folder.display());
        }
    }
    let collector = Process::start(&["collector", &config], "");
    let seen = Arc::new(Seen::default());
    let begun = Instant::now();
    let links: Vec<_> = (0..LINKS)
        .map(|link| {
            let (seen, wire) = (seen.clone(), format!("cdr@tcp-connect/127.0.0.1:{port}"));
            thread::spawn(move || nodes(&wire, NODES / LINKS, link, span, &seen))
        })
        .collect();
    links.into_iter().for_each(|link| link.join().expect("no panic"));
    let took = begun.elapsed();
    let (cpu, peak) = (collector.cpu(), collector.peak());
    collector.end();
    let offered = seen.offered.load(Ordering::Relaxed);
    assert_eq!(seen.acknowledged.load(Ordering::Relaxed), offered, "not all is acknowledged");
    let stored: Vec<String> = handlers.iter().map(|kind| stored(kind, &folder, offered)).collect();
    let _ = fs::remove_dir_all(&folder);
    vec![
        handlers.join(" and "),
        offered.to_string(),
        stored.join(" and "),
        format!("{:.2}", took.as_secs_f64()),
        format!("{:.2}", cpu.as_secs_f64() / took.as_secs_f64()),
        format!("{:.2}", cpu.as_secs_f64() * 1e6 / offered as f64),
        format!("{:.0}", peak as f64 / 1e6),
        format!("{:.2}", seen.late_us.load(Ordering::Relaxed) as f64 / 1e6),
    ]
}

/// How many samples an archive has, each counted once.
fn stored(kind: &str, folder: &Path, offered: u64) -> String {
    let path = folder.join(format!("samples.{kind}"));
    let count = match kind {
        "sqlite" => {
            let mut count = 0;
            let sql = "SELECT count(*) FROM (SELECT DISTINCT _writer, _incarnation, _sequence FROM \"bench::Reading\")";
            let archive = Archive::open(&path).expect("an archive");
            archive
                .query(sql, |_, row| {
                    if let ArchiveValue::Integer(number) = &row[0] {
                        count = u64::try_from(*number).expect("a count");
                    }
                    true
                })
                .expect("counted");
            count
        }
        "mcap" => {
            let bytes = fs::read(&path).expect("a recording");
            let summary = mcap::Summary::read(&bytes).expect("readable").expect("a summary");
            summary.stats.expect("statistics").message_count
        }
        _ => return "-".to_owned(),
    };
    assert_eq!(count, offered, "{kind} has lost samples");
    count.to_string()
}

/// Runs some nodes over one link, for a time in whole seconds. Samples are taken on one thread and
/// sent on another one, as in a real node.
fn nodes(wire: &str, count: usize, link: usize, span: Duration, seen: &Seen) {
    let node = Node::new();
    let client = node.client::<NodePacket, PacketReply>(PACKETS, Some(wire)).expect("a wire").open().expect("open");
    client.wait_for_server(ANSWER).expect("the collector is there");
    let encoder = Encoder::<Reading>::new(&cdr::CDR, &CodecOptions::default()).expect("an encoder");
    let start = Moment { steady: Duration::ZERO, wall_ns: wall_ns() };
    let uplinks: Vec<Mutex<Uplink>> = (0..count).map(|number| Mutex::new(uplink(link, number, start))).collect();
    let (ends, seconds) = mpsc::channel();
    thread::scope(|scope| {
        let (uplinks, begun) = (&uplinks, Instant::now());
        scope.spawn(move || {
            for now in seconds {
                send(&client, uplinks, now, seen);
            }
        });
        let (mut reading, mut payload) = (Reading::default(), Vec::new());
        let rounds = span.as_secs_f64().ceil() as u64 * HZ;
        for round in 0..rounds {
            let due = Duration::from_nanos(1_000_000_000 / HZ) * u32::try_from(round).expect("a short time");
            thread::sleep(due.saturating_sub(begun.elapsed()));
            let now = Moment { steady: begun.elapsed(), wall_ns: wall_ns() };
            reading.number += 1;
            reading.temperature_c = 20.0 + (reading.number % 17) as f64 / 7.0;
            reading.pressure_bar = 2.5 + (reading.number % 5) as f64 / 100.0;
            payload.clear();
            encoder.encode(&reading, &mut payload).expect("encoded");
            let ends_second = (round + 1) % HZ == 0;
            for uplink in uplinks {
                let mut uplink = locked(uplink);
                (0..PROBES as u32).for_each(|stream| uplink.offer(stream, &payload, now));
                if ends_second {
                    uplink.flush();
                }
            }
            seen.offered.fetch_add((count * PROBES) as u64, Ordering::Relaxed);
            if ends_second {
                ends.send(now).expect("the sender runs");
            }
        }
        drop(ends);
    });
}

/// Sends everything that waits since the end of a second, and waits for the replies.
fn send(client: &Client<NodePacket, PacketReply>, uplinks: &[Mutex<Uplink>], now: Moment, seen: &Seen) {
    loop {
        let mut asked = Vec::new();
        for uplink in uplinks {
            let Some(packet) = locked(uplink).poll(now) else { continue };
            let reply = client.request(&packet, ANSWER);
            asked.push((uplink, packet, reply));
        }
        if asked.is_empty() {
            break;
        }
        for (uplink, packet, reply) in asked {
            let samples = packet.packets.len() as u64;
            match reply.and_then(Reply::wait) {
                Ok(reply) => {
                    let is_stored = reply.value.is_stored();
                    let late_ns = wall_ns() - packet.packets.last().map_or(packet.time_ns, |sample| sample.time_ns);
                    seen.late_us.fetch_max(u64::try_from(late_ns / 1000).unwrap_or(0), Ordering::Relaxed);
                    seen.acknowledged.fetch_add(if is_stored { samples } else { 0 }, Ordering::Relaxed);
                    locked(uplink).handle_reply(packet.number, &reply.value);
                }
                Err(_) => {
                    seen.failures.fetch_add(1, Ordering::Relaxed);
                    locked(uplink).handle_failure();
                }
            }
        }
    }
}

fn locked(uplink: &Mutex<Uplink>) -> MutexGuard<'_, Uplink> {
    uplink.lock().unwrap_or_else(PoisonError::into_inner)
}

fn uplink(link: usize, number: usize, now: Moment) -> Uplink {
    let mut uplink =
        Uplink::new(Uuid::random(), 1, Box::new(Memory::default()), UplinkOptions::default(), now).expect("an uplink");
    for probe in 0..PROBES {
        let description = StreamDescription {
            node: format!("node-{link}-{number}"),
            instance: format!("probe-{probe}"),
            codec: "cdr".to_owned(),
            schema: Reading::shape().schema().to_bytes(),
            ..StreamDescription::default()
        };
        uplink.open(description, Rule::default()).expect("a stream");
    }
    uplink
}

fn wall_ns() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
