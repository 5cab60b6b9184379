//! Typed publish and echo against bare sockets: one-way latency and throughput from `publish` to
//! the callback, each end a process of its own on a core of its own, in the default configuration.
//!
//! `cargo run --release -p polywire --example typed_bench [tcp|unix]`

use std::{
    env,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use polywire::{Node, Publisher, Subscription};
use polywire_derive::Message;

const ROUNDS: usize = 20_000;
const WARM_UP: usize = 2_000;
const REPEATS: usize = 9;

#[derive(Clone, Debug, Default, Message)]
#[polywire(name = "Bench::Payload")]
struct Payload {
    number: u64,
    bytes: Vec<u8>,
}

fn payload(size: usize) -> Payload {
    // In CDR: the number, the length of the bytes, the bytes.
    Payload { number: 0, bytes: vec![7; size - 12] }
}

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
        ("tcp", "raw") => "127.0.0.1:17457".into(),
        ("tcp", _) => "127.0.0.1:17458".into(),
        (_, what) => format!("{}/polywire-typed-{what}.sock", env::temp_dir().display()),
    }
}

fn spawn(what: &str, family: &str, size: usize) -> Child {
    let mut command = Command::new(env::current_exe().expect("own path"));
    command.args(["child", what, family, &size.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("child");
    child.stdout.as_mut().expect("pipe").read_exact(&mut [0]).expect("child ready");
    child
}

fn ready() {
    io::stdout().write_all(b"r").and_then(|()| io::stdout().flush()).expect("parent");
}

fn parent(family: &str) {
    pin(0);
    for size in [510, 1000] {
        let (mut raw, mut typed) = (Vec::new(), Vec::new());
        for _ in 0..REPEATS {
            raw.push(raw_latency(family, size));
            typed.push(typed_latency(family, size));
        }
        let mut ratios: Vec<f64> = raw.iter().zip(&typed).map(|(raw, typed)| typed.0 / raw.0).collect();
        ratios.sort_by(f64::total_cmp);
        let ((raw50, raw99), (p50, p99)) = (median(raw), median(typed));
        println!(
            "{family} {size} B one way: raw p50 {raw50:.2} us p99 {raw99:.2} us; typed p50 {p50:.2} us p99 {p99:.2} us; median ratio of p50 {:.3}",
            ratios[ratios.len() / 2]
        );
    }
    for size in [100, 1000] {
        let mut rates: Vec<f64> = (0..5).map(|_| throughput(family, size)).collect();
        rates.sort_by(f64::total_cmp);
        println!("{family} {size} B: {:.2} M/s median of {rates:.2?}", rates[rates.len() / 2]);
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

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

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
    for round in 0..ROUNDS + WARM_UP {
        let start = Instant::now();
        stream.write_all(&buffer).expect("write");
        stream.read_exact(&mut buffer).expect("read");
        if round >= WARM_UP {
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

fn child(what: &str, family: &str, size: usize) {
    pin(1);
    if what == "raw" {
        return raw_echo(family, size);
    }
    let node = Node::new();
    let wire = format!("cdr@{family}-listen/{}", address(family, "typed"));
    let back: Publisher<Payload> = node.publisher_on("back", &wire).expect("publisher");
    let echo = what == "echo";
    let mut count = 0;
    let _subscription =
        node.subscribe::<Payload>("there", Some(&wire)).expect("subscriber").on_message_inline(move |value, info| {
            count += 1;
            assert_eq!(info.sequence, count, "in order and complete");
            if echo || value.number == u64::MAX {
                back.publish(value).expect("published");
            }
        });
    ready();
    let _ = io::stdin().read_to_end(&mut Vec::new());
    node.close();
}

struct Ends {
    node: Node,
    publisher: Arc<Publisher<Payload>>,
    _subscription: Subscription,
    child: Child,
}

/// Connects to a child; `answered` is called with each message that comes back.
fn connect(
    family: &str,
    what: &str,
    size: usize,
    answered: impl FnMut(&Payload, &Publisher<Payload>) + Send + 'static,
) -> Ends {
    let child = spawn(what, family, size);
    let node = Node::new();
    let wire = format!("cdr@{family}-connect/{}", address(family, "typed"));
    let publisher: Arc<Publisher<Payload>> = Arc::new(node.publisher_on("there", &wire).expect("publisher"));
    let again = publisher.clone();
    let mut answered = answered;
    let subscribe = node.subscribe::<Payload>("back", Some(&wire)).expect("subscriber");
    let _subscription = subscribe.on_message_inline(move |value, _| answered(value, &again));
    assert_eq!(publisher.wait_for_subscribers(1, Duration::from_secs(10)), 1);
    // The way back is ready, too, and all code is compiled.
    std::thread::sleep(Duration::from_millis(100));
    Ends { node, publisher, _subscription, child }
}

impl Ends {
    fn end(mut self) {
        self.node.close();
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("child").success());
    }
}

fn typed_latency(family: &str, size: usize) -> (f64, f64) {
    let (done, result) = mpsc::channel();
    let (mut times, mut round, mut start) = (Vec::with_capacity(ROUNDS), 0, Instant::now());
    let ends = connect(family, "echo", size, move |value, publisher| {
        if round > WARM_UP {
            times.push(start.elapsed());
        }
        round += 1;
        if times.len() == ROUNDS {
            return done.send(std::mem::take(&mut times)).expect("waited for");
        }
        start = Instant::now();
        publisher.publish(value).expect("published");
    });
    ends.publisher.publish(&payload(size)).expect("published");
    let times = result.recv().expect("times");
    ends.end();
    percentiles(times)
}

fn throughput(family: &str, size: usize) -> f64 {
    let (done, result) = mpsc::channel();
    let ends = connect(family, "count", size, move |_, _| done.send(()).expect("waited for"));
    let (total, mut value) = (2_000_000u64, payload(size));
    let start = Instant::now();
    for number in 1..=total {
        value.number = if number == total { u64::MAX } else { number };
        ends.publisher.publish(&value).expect("published");
    }
    result.recv_timeout(Duration::from_secs(60)).expect("all arrived");
    let rate = total as f64 / start.elapsed().as_secs_f64() / 1e6;
    ends.end();
    rate
}
