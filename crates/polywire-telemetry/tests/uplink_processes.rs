//! A node and a collector in processes of their own, which are killed again and again: nothing is
//! lost, and nothing comes twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Duration,
};

use polywire::{Message, Node, service::Service};
use polywire_telemetry::{
    Clocks, Uuid,
    intake::{Intake, IntakeLimits, Position},
    packet::{NodePacket, PACKETS, PacketReply, StreamDescription},
    uplink::{Carrier, Files, Rule, Uplink, UplinkOptions},
};

/// Kills; more of them if the environment says so.
const ROUNDS: usize = 12;
/// Longer than anything takes on a slow machine that does other work, too.
const SOON: Duration = Duration::from_secs(120);

#[derive(Default, Message)]
struct Count {
    count: u64,
}

fn variable(name: &str) -> String {
    std::env::var(name).expect("set by the test")
}

fn end_with_standard_input() {
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

/// Not a test by itself: a node. Says of each sample that it is kept. Ends when its standard input
/// ends, after the collector has everything.
#[test]
#[ignore = "run by another test"]
fn node_process() {
    let (ends, ended) = mpsc::channel::<()>();
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(ends);
    });
    let [.., a, b, c, d, e, f, g, h] = Uuid::random().0;
    let start = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let (node, clocks, uuid) = (Node::new(), Clocks::new(), Uuid::of(7));
    let files = Files::open(Path::new(&variable("POLYWIRE_TEST_FOLDER"))).expect("a folder");
    // Small packets and a small spool, so that there are many packets and segments.
    let options = UplinkOptions { packet_bytes: 2000, spool_bytes: 64 << 20, ..UplinkOptions::default() };
    let uplink = Uplink::new(uuid, start, Box::new(files), options, clocks.now()).expect("an uplink");
    let wire = format!("cdr@tcp-connect/{}", variable("POLYWIRE_TEST_ADDRESS"));
    let carrier = Carrier::start(&node, &wire, uplink, clocks).expect("a carrier");
    let kept = carrier.handle();
    let schema = Count::shape().schema().to_bytes();
    let stream = StreamDescription { instance: "count".into(), codec: "cdr".into(), schema, ..Default::default() };
    let stream = kept.open(stream, Rule::default()).expect("a stream");
    for number in 0u64.. {
        kept.offer(stream, &number.to_le_bytes(), clocks.now().wall_ns);
        println!("kept {start} {number}");
        if ended.recv_timeout(Duration::from_millis(1)) != Err(mpsc::RecvTimeoutError::Timeout) {
            break;
        }
    }
    assert!(carrier.flush(SOON), "{carrier:?}");
    println!("done");
}

/// Not a test by itself: a collector. A line of its log is a sample with its position; a line
/// without an end was not stored.
#[test]
#[ignore = "run by another test"]
fn collector_process() {
    end_with_standard_input();
    let path = PathBuf::from(variable("POLYWIRE_TEST_FOLDER"));
    let mut intake = Intake::new(IntakeLimits::default());
    let text = fs::read_to_string(&path).unwrap_or_default();
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    lines(&text[..whole]).for_each(|(position, _)| intake.recall(position));
    let mut log = OpenOptions::new().create(true).append(true).open(&path).expect("a log");
    log.set_len(whole as u64).expect("cut");
    let node = Node::new();
    let wire = format!("cdr@tcp-listen/{}", variable("POLYWIRE_TEST_ADDRESS"));
    let service = node.service::<NodePacket, PacketReply>(PACKETS, Some(&wire)).expect("a service");
    let service: Service<NodePacket, PacketReply> = service.open().expect("opened");
    for request in service.iter() {
        let accepted = match intake.take(request.value(), None) {
            Ok(accepted) => accepted,
            Err(rejection) => {
                request.reply(&rejection.reply().expect("there is room")).expect("replied");
                continue;
            }
        };
        for sample in accepted.samples {
            let Position { start, stream, sequence, .. } = sample.position();
            writeln!(log, "{start} {stream} {sequence} {:02x?}", sample.payload()).expect("written");
        }
        log.sync_data().expect("stored");
        intake.stored(accepted.ticket);
        request.reply(&PacketReply::default()).expect("replied");
        println!("stored");
    }
}

/// Start, stream, number and value of each line.
fn lines(text: &str) -> impl Iterator<Item = (Position, &str)> {
    text.lines().map(|line| {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [start, stream, sequence, value] = words[..] else { panic!("{line}") };
        let (start, stream) = (start.parse().expect("a start"), stream.parse().expect("a stream"));
        (Position { node: Uuid::of(7), start, stream, sequence: sequence.parse().expect("a number") }, value)
    })
}

/// A process, which is killed if the test ends before it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts one of the processes above. What it says goes to `said`.
fn start(test: &str, folder: &Path, address: &str, said: Sender<String>) -> Running {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("POLYWIRE_TEST_FOLDER", folder)
        .env("POLYWIRE_TEST_ADDRESS", address)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    // Ends with the process.
    thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
    Running(child)
}

/// Waits until a process has said so many lines that begin with a word, and notes all of them.
fn await_lines(said: &Receiver<String>, word: &str, count: usize, all: &mut Vec<String>) {
    let mut seen = 0;
    while seen < count {
        let line = said.recv_timeout(SOON).unwrap_or_else(|error| panic!("no '{word}': {error}"));
        seen += usize::from(line.starts_with(word));
        all.push(line);
    }
}

#[test]
fn killed_again_and_again_nothing_is_lost_and_nothing_comes_twice() {
    let folder = std::env::temp_dir().join(format!("polywire-uplink-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (spool, log) = (folder.join("spool"), folder.join("log"));
    // A port that was free a moment ago is free again, or the collector says why it cannot listen.
    let address =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").to_string();
    let rounds = std::env::var("POLYWIRE_TEST_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    let (say_node, node_said) = mpsc::channel();
    let (say_collector, collector_said) = mpsc::channel();
    let start_node = || start("node_process", &spool, &address, say_node.clone());
    let start_collector = || start("collector_process", &log, &address, say_collector.clone());
    let (mut node, mut collector) = (Some(start_node()), None);
    let (mut kept, mut stored) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let running = collector.get_or_insert_with(start_collector);
        node.get_or_insert_with(start_node);
        await_lines(&node_said, "kept", 20, &mut kept);
        await_lines(&collector_said, "stored", 1 + round % 5, &mut stored);
        match round % 3 {
            0 => drop(node.take()),
            1 => {
                running.0.kill().expect("killed");
                drop(collector.take());
                // The node goes on alone.
                await_lines(&node_said, "kept", 50, &mut kept);
            }
            _ => {
                drop(node.take());
                drop(collector.take());
            }
        }
    }
    let _collector = collector.unwrap_or_else(start_collector);
    let mut node = node.unwrap_or_else(start_node);
    await_lines(&node_said, "kept", 1, &mut kept);
    drop(node.0.stdin.take());
    await_lines(&node_said, "done", 1, &mut kept);
    assert!(node.0.wait().expect("ended").success());
    check(&fs::read_to_string(&log).expect("a log"), &kept, rounds);
    fs::remove_dir_all(folder).expect("removed");
}

fn check(log: &str, kept: &[String], rounds: usize) {
    let mut next: BTreeMap<u64, u64> = BTreeMap::new();
    for (Position { start, sequence, .. }, value) in lines(log) {
        let expected = next.entry(start).or_default();
        assert_eq!(sequence, *expected, "start {start}");
        assert_eq!(value, format!("{:02x?}", sequence.to_le_bytes()));
        *expected += 1;
    }
    // Lines of several starts may be mixed up, but none is missing.
    let said: BTreeSet<(u64, u64)> = kept.iter().filter_map(|line| said_kept(line)).collect();
    assert!(said.len() > 20 * rounds, "{}", said.len());
    for (start, number) in said {
        assert!(next.get(&start).is_some_and(|next| number < *next), "{start} {number}");
    }
}

fn said_kept(line: &str) -> Option<(u64, u64)> {
    let (start, number) = line.strip_prefix("kept ")?.split_once(' ')?;
    Some((start.parse().ok()?, number.parse().ok()?))
}
