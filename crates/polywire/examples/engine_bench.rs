//! Engines against bare sockets: one-way latency and throughput of bytes, each end a process of its
//! own on a core of its own.
//!
//! `cargo run --release -p polywire --example engine_bench [tcp|unix|rate-tcp|rate-unix]`

use std::{
    env, io,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use polywire::engine::{self, EngineOptions, Event, LinkId, LinkInfo, LinkSink, Local, Port, Sink};
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Hello, Start},
};

const ROUNDS: usize = 20_000;
const REPEATS: usize = 7;

fn main() {
    let args: Vec<String> = env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("child") => child(&args[2], &args[3], args[4].parse().expect("size")),
        family => parent(family.unwrap_or("tcp")),
    }
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).expect("a core to stay on");
}

fn address(family: &str, what: &str) -> String {
    match (family, what) {
        ("tcp", "raw") => "127.0.0.1:17447".into(),
        ("tcp", _) => "127.0.0.1:17448".into(),
        (_, what) => format!("{}/polywire-bench-{what}.sock", env::temp_dir().display()),
    }
}

fn spawn(what: &str, family: &str, size: usize) -> Child {
    let me = env::current_exe().expect("own path");
    let mut command = Command::new(me);
    command.args(["child", what, family, &size.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("child");
    let mut ready = [0; 1];
    child.stdout.as_mut().expect("pipe").read_exact(&mut ready).expect("child ready");
    child
}

fn parent(family: &str) {
    pin(0);
    let (family, rates_only) = match family.strip_prefix("rate-") {
        Some(family) => (family, true),
        None => (family, false),
    };
    for size in [510, 1000].into_iter().filter(|_| !rates_only) {
        let (mut raw, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..REPEATS {
            raw.push(raw_latency(family, size));
            ours.push(engine_latency(family, size));
        }
        let (raw, ours) = (median(raw), median(ours));
        println!(
            "{family} {size} B one way: raw p50 {:.2} us p99 {:.2} us; engine p50 {:.2} us p99 {:.2} us; ratio {:.3}",
            raw.0,
            raw.1,
            ours.0,
            ours.1,
            ours.0 / raw.0
        );
    }
    for size in [100, 1000] {
        let rates: Vec<f64> = (0..5).map(|_| throughput(family, size)).collect();
        println!("{family} {size} B: {rates:.2?} M/s");
    }
}

fn median(mut all: Vec<(f64, f64)>) -> (f64, f64) {
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all[all.len() / 2]
}

fn percentiles(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let at = |q: usize| times[times.len() * q / 100].as_secs_f64() * 1e6 / 2.0;
    (at(50), at(99))
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

fn raw_connect(family: &str) -> Box<dyn Stream> {
    if family == "tcp" {
        let stream = TcpStream::connect(address(family, "raw")).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        Box::new(stream)
    } else {
        Box::new(UnixStream::connect(address(family, "raw")).expect("connect"))
    }
}

fn raw_latency(family: &str, size: usize) -> (f64, f64) {
    let mut child = spawn("raw", family, size);
    let mut stream = raw_connect(family);
    let mut buffer = vec![7; size];
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS + 1000 {
        let start = Instant::now();
        stream.write_all(&buffer).expect("write");
        stream.read_exact(&mut buffer).expect("read");
        if round >= 1000 {
            times.push(start.elapsed());
        }
    }
    drop(stream);
    child.wait().expect("child");
    percentiles(times)
}

fn raw_echo(family: &str, size: usize) {
    let path = address(family, "raw");
    let mut stream: Box<dyn Stream> = if family == "tcp" {
        let listener = TcpListener::bind(path).expect("bind");
        ready();
        let stream = listener.accept().expect("accept").0;
        stream.set_nodelay(true).expect("nodelay");
        Box::new(stream)
    } else {
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(path).expect("bind");
        ready();
        Box::new(listener.accept().expect("accept").0)
    };
    let mut buffer = vec![0; size];
    while stream.read_exact(&mut buffer).is_ok() && stream.write_all(&buffer).is_ok() {}
}

fn ready() {
    io::stdout().write_all(b"r").and_then(|()| io::stdout().flush()).expect("parent");
}

fn child(what: &str, family: &str, size: usize) {
    pin(1);
    if what == "raw" {
        return raw_echo(family, size);
    }
    let node = Node::open(
        &format!("{family}-listen"),
        &address(family, "pw"),
        if what == "echo" { Mode::Echo } else { Mode::Count },
    );
    ready();
    let mut end = Vec::new();
    let _ = io::stdin().read_to_end(&mut end);
    node.port().close();
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Echo,
    Ping,
    Count,
}

struct Node {
    port: OnceLock<Arc<dyn Port>>,
    mode: Mode,
    channel: OnceLock<ChannelId>,
    sequence: AtomicU64,
    accepted: AtomicU64,
    done: mpsc::Sender<Vec<Duration>>,
    results: std::sync::Mutex<mpsc::Receiver<Vec<Duration>>>,
}

struct NodeSink(Arc<Node>);

struct Peer {
    node: Arc<Node>,
    link: LinkId,
    state: std::sync::Mutex<(Instant, Vec<Duration>, usize)>,
    received: AtomicU64,
}

impl Node {
    fn open(engine: &str, address: &str, mode: Mode) -> Arc<Node> {
        let (done, results) = mpsc::channel();
        let node = Arc::new(Node {
            port: OnceLock::new(),
            mode,
            channel: OnceLock::new(),
            sequence: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            done,
            results: results.into(),
        });
        let hello = Hello { node: Id128([mode as u8; 16]), incarnation: 1 };
        let local = Local { hello, name: "bench".into(), options: EngineOptions::default() };
        let port = engine::find(engine)
            .expect("engine")
            .open(address, &local, Arc::new(NodeSink(node.clone())))
            .expect("port");
        let announcement = Announcement { topic: "bench".into(), writer: hello.node, ..Announcement::default() };
        let channel = port.announce(&announcement, Start::default()).expect("channel");
        node.channel.set(channel).expect("once");
        let _ = node.port.set(port);
        node
    }

    fn port(&self) -> &dyn Port {
        &**self.port.wait()
    }

    fn publish(&self, payload: &[u8]) {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let envelope = Envelope::data(*self.channel.wait(), sequence, now.as_nanos() as i64);
        let mut loan = self.port().reserve(payload.len());
        loan.buffer().extend_from_slice(payload);
        self.port().commit(&envelope, loan).expect("commit");
    }
}

impl Sink for NodeSink {
    fn link(&self, link: &LinkInfo) -> Arc<dyn LinkSink> {
        let state = (Instant::now(), Vec::with_capacity(ROUNDS), 0);
        Arc::new(Peer { node: self.0.clone(), link: link.id, state: state.into(), received: AtomicU64::new(0) })
    }

    fn event(&self, event: Event) {
        if let Event::Dropped { count, .. } = event {
            eprintln!("dropped {count}");
        }
    }
}

impl LinkSink for Peer {
    fn announced(&self, channel: ChannelId, _: Start, _: &Announcement) {
        self.node.port().answer(self.link, channel, Answer::Accept(1));
    }

    fn message(&self, _: &Envelope<'_>, payload: &[u8]) {
        assert_eq!(payload.as_ptr().addr() % 8, 0);
        match self.node.mode {
            Mode::Echo => self.node.publish(payload),
            Mode::Count => {
                let count = self.received.fetch_add(1, Ordering::Relaxed) + 1;
                if payload[0] == 1 {
                    self.node.publish(&count.to_le_bytes());
                }
            }
            Mode::Ping => {
                let mut state = self.state.lock().expect("state");
                let elapsed = state.0.elapsed();
                if payload.len() == 8 {
                    let _ = self
                        .node
                        .done
                        .send(vec![Duration::from_nanos(u64::from_le_bytes(payload.try_into().expect("8")))]);
                    return;
                }
                state.2 += 1;
                if state.2 > 1000 {
                    state.1.push(elapsed);
                }
                if state.2 < ROUNDS + 1000 {
                    state.0 = Instant::now();
                    self.node.publish(payload);
                } else {
                    let _ = self.node.done.send(std::mem::take(&mut state.1));
                }
            }
        }
    }

    fn position(&self, _: ChannelId, _: Start, lost: u64) {
        assert_eq!(lost, 0);
    }

    fn retired(&self, _: ChannelId) {}
    fn wanted(&self, _: Id128) {}
    fn supplied(&self, _: Id128, _: Option<&[u8]>) {}
    fn answered(&self, _: ChannelId, _: &Answer) {
        self.node.accepted.fetch_add(1, Ordering::Release);
    }
    fn drained(&self) {}
    fn down(&self) {}
}

fn connected(family: &str) -> Arc<Node> {
    let node = Node::open(&format!("{family}-connect"), &address(family, "pw"), Mode::Ping);
    while node.accepted.load(Ordering::Acquire) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(20));
    node
}

fn engine_latency(family: &str, size: usize) -> (f64, f64) {
    let mut child = spawn("echo", family, size);
    let node = connected(family);
    node.publish(&vec![7; size]);
    let times = node.results.lock().expect("results").recv().expect("times");
    node.port().close();
    drop(child.stdin.take());
    child.wait().expect("child");
    percentiles(times)
}

fn throughput(family: &str, size: usize) -> f64 {
    let mut child = spawn("count", family, size);
    let node = connected(family);
    let count = 2_000_000u64;
    let mut payload = vec![7; size];
    let start = Instant::now();
    for i in 0..count {
        payload[0] = if i + 1 == count { 1 } else { 0 };
        node.publish(&payload);
    }
    let counted = node.results.lock().expect("results").recv().expect("count")[0].as_nanos() as u64;
    let elapsed = start.elapsed();
    assert_eq!(counted, count, "nothing may be lost");
    node.port().close();
    drop(child.stdin.take());
    child.wait().expect("child");
    count as f64 / elapsed.as_secs_f64() / 1e6
}
