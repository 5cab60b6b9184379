//! The same figures of the system by other agents: processor, memory, disks, file systems, network
//! and load. Each candidate is an agent and what it sends to, on this machine, in a network
//! namespace whose loopback interface counts the bytes of both directions, with all headers.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{
    Options,
    child::{Process, WORD, free_port},
    table,
};

/// Where `bench/telemetry/peers` puts the other agents, unless this variable names another folder.
const FOLDER: (&str, &str) = ("POLYWIRE_PEERS", "target/telemetry-peers");

/// Samples a second.
const RATES: [u32; 2] = [1, 100];

/// Before the measurement, connections are made, and descriptions and types sent.
const WARM_UP: Duration = Duration::from_secs(4);

/// The bars: the share of another agent's bytes and of its processor time.
const BARS: [f64; 2] = [0.1, 0.5];

/// An agent, and what it sends to.
struct Pair(Vec<Process>);

type Start = fn(&Path, u32) -> Option<Pair>;

/// The candidates that the others are compared with: each sample as it comes to those who listen,
/// and node packets.
const COMPARED: [&str; 2] = [THIN, PACKETS];

const THIN: &str = "Polywire, fast, thin TCP with a lease of 30 s";

const PACKETS: &str = "Polywire, cdr in node packets with zstd, every 4 s at 1 Hz and every second at 100 Hz";

const TCP: [&str; 2] = ["tcp-connect/127.0.0.1:PORT", "tcp-listen/127.0.0.1:PORT"];

/// The handler that stores nothing.
const NULL: &str = "kind = 'null'";

/// Polywire first.
const CANDIDATES: &[(&str, Start)] = &[
    (THIN, |_, rate| polywire(rate, "fast", TCP, NULL, "[engine]\nthin = true\nlease_ms = 30000")),
    ("Polywire, fast", |_, rate| polywire(rate, "fast", TCP, NULL, "")),
    ("Polywire, fast, reliable UDP", |_, rate| polywire(rate, "fast", ["udp-reliable/127.0.0.1:PORT"; 2], NULL, "")),
    ("Polywire, cdr", |_, rate| polywire(rate, "cdr", TCP, NULL, "")),
    ("Polywire, fast, into SQLite", |_, rate| polywire(rate, "fast", TCP, "kind = 'sqlite'\npath = 'bench.db'", "")),
    (PACKETS, kept),
    ("OpenTelemetry collector, hostmetrics and OTLP", opentelemetry),
    ("collectd, network", collectd),
    ("Telegraf, lines over TCP to another Telegraf", telegraf),
    ("node_exporter and Prometheus, which stores", prometheus),
];

pub(super) fn measure(options: &Options, out: &mut String) {
    let program = env::current_exe().expect("the path of this program");
    let mut command = Command::new("unshare");
    let words: &[&str] = if is_root() { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
    command.args(words).arg("--").arg(program).args([WORD, "peers", &options.span.as_secs_f64().to_string()]);
    match command.output() {
        Ok(output) if output.status.success() => out.push_str(&String::from_utf8_lossy(&output.stdout)),
        Ok(output) => panic!("in a network namespace: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => panic!("unshare (util-linux): {error}"),
    }
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Uid:").is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0")))
}

/// What a candidate costs a sample: bytes, and processor time of the agent and of the other end.
struct Costs {
    bytes: f64,
    agent_us: f64,
    other_us: f64,
}

/// Measures all candidates in a network namespace that nobody else uses.
pub(super) fn alone(seconds: f64) {
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.is_ok_and(|status| status.success()), "ip (iproute2) cannot switch on the loopback interface");
    let folder = env::var_os(FOLDER.0).map_or_else(|| PathBuf::from(FOLDER.1), PathBuf::from);
    let folder = fs::canonicalize(&folder).unwrap_or(folder);
    let scratch = env::temp_dir().join(format!("polywire-bench-telemetry-{}", std::process::id()));
    fs::create_dir_all(&scratch).expect("a folder");
    env::set_current_dir(&scratch).expect("a folder");
    println!(
        "\n## Beside other agents\n\nProcessor, memory, disks, file systems, network and load of one machine. A sample is one round of all \
         of them that was asked for, also if an agent is late and leaves it out. Bytes are those on the loopback interface, in both \
         directions with all headers. CPU is the time of all threads. The last columns have the shares of `{}` (live) and of node packets \
         in the bytes and the CPU of the candidate; the bars are {} and {}.\n",
        COMPARED[0], BARS[0], BARS[1]
    );
    let head = [
        "samples/s",
        "candidate",
        "bytes a sample",
        "agent CPU, us",
        "other end CPU, us",
        "live: bytes, CPU",
        "packets: bytes, CPU",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for rate in RATES {
        let mut own = Vec::new();
        for (name, start) in CANDIDATES {
            let costs = costs(start, &folder, rate, Duration::from_secs_f64(seconds));
            rows.push(row(rate, name, costs.as_ref(), &own));
            if COMPARED.contains(name) {
                own.extend(costs);
            }
        }
    }
    let mut text = String::new();
    table(&mut text, &rows);
    println!("{text}");
    let _ = fs::remove_dir_all(&scratch);
}

/// A row of the table; `own` has the costs of Polywire's candidates that others are compared with.
fn row(rate: u32, name: &str, costs: Option<&Costs>, own: &[Costs]) -> Vec<String> {
    let Some(Costs { bytes, agent_us, other_us }) = costs else {
        return [&rate.to_string(), name, "not installed", "", "", "", ""].map(str::to_owned).to_vec();
    };
    let ratio = |ratio: f64, bar: f64| format!("{ratio:.3}{}", if ratio <= bar { "" } else { " missed" });
    let ratios = own.iter().filter(|_| !name.starts_with("Polywire")).map(|own| {
        let cpu = (own.agent_us + own.other_us) / (agent_us + other_us);
        format!("{}, {}", ratio(own.bytes / bytes, BARS[0]), ratio(cpu, BARS[1]))
    });
    let mut row = vec![rate.to_string(), name.to_owned()];
    row.extend([*bytes, *agent_us, *other_us].map(|figure| format!("{figure:.0}")));
    row.extend(ratios);
    row.resize(7, String::new());
    row
}

/// `None` if it is not installed.
fn costs(start: &Start, folder: &Path, rate: u32, span: Duration) -> Option<Costs> {
    let Pair(processes) = start(folder, rate)?;
    thread::sleep(WARM_UP);
    let cpu = || processes.iter().map(Process::cpu).collect::<Vec<_>>();
    let (bytes, before, begun) = (loopback_bytes(), cpu(), Instant::now());
    thread::sleep(span);
    let (bytes, after, seconds) = (loopback_bytes() - bytes, cpu(), begun.elapsed().as_secs_f64());
    let samples = seconds * f64::from(rate);
    let each = |at: usize| (after[at] - before[at]).as_secs_f64() * 1e6 / samples;
    Some(Costs { bytes: bytes as f64 / samples, agent_us: each(0), other_us: each(1) })
}

/// The bytes that the loopback interface of this namespace has sent.
fn loopback_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/net/dev").expect("statistics of interfaces");
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("lo:")).expect("the loopback interface");
    line.split_whitespace().nth(8).and_then(|number| number.parse().ok()).expect("bytes")
}

fn seconds(rate: u32) -> String {
    (1.0 / f64::from(rate)).to_string()
}

/// `endpoints` has the agent's and the collector's; `node` is the configuration of both nodes.
fn polywire(rate: u32, format: &str, endpoints: [&str; 2], handler: &str, node: &str) -> Option<Pair> {
    let port = free_port().to_string();
    let [from, to] = endpoints.map(|endpoint| endpoint.replace("PORT", &port));
    let config = format!("[collector]\nendpoints = ['{to}']\n[handlers.samples]\n{handler}\n");
    let collector = Process::start(&["collector", &config], node);
    let agent = Process::start(&["system", &format!("{format}@{from}"), &seconds(rate)], node);
    Some(Pair(vec![agent, collector]))
}

/// Every sample once and in order, many together.
fn kept(_: &Path, rate: u32) -> Option<Pair> {
    let port = free_port();
    let config = format!(
        "[collector]\nendpoints = ['tcp-listen/127.0.0.1:{port}']\nnodes = 'nodes.positions'\n\
         [handlers.samples]\nkind = 'null'\noverflow = 'block'\n"
    );
    let collector = Process::start(&["collector", &config], "");
    let (place, to) = (format!("cdr@inproc/bench-{port}"), format!("cdr+zstd@tcp-connect/127.0.0.1:{port}"));
    let batch = if rate == 1 { "4s" } else { "1s" };
    let agent = Process::start(&["kept", &place, &seconds(rate), &to, batch], "");
    Some(Pair(vec![agent, collector]))
}

fn opentelemetry(folder: &Path, rate: u32) -> Option<Pair> {
    let program = found(&folder.join("otelcol"))?;
    let port = free_port();
    fs::write(
        "otel-to.yaml",
        format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:{port}'}}}}}}}}\nexporters: {{nop: }}\n\
             service: {{telemetry: {{metrics: {{level: none}}}}, pipelines: {{metrics: {{receivers: [otlp], exporters: [nop]}}}}}}\n"
        ),
    )
    .expect("written");
    fs::write(
        "otel-from.yaml",
        format!(
            "receivers: {{hostmetrics: {{collection_interval: {}s, scrapers: {{cpu: , memory: , paging: , disk: , filesystem: , network: , load: }}}}}}\n\
             exporters: {{otlp: {{endpoint: '127.0.0.1:{port}', tls: {{insecure: true}}}}}}\n\
             service: {{telemetry: {{metrics: {{level: none}}}}, pipelines: {{metrics: {{receivers: [hostmetrics], exporters: [otlp]}}}}}}\n",
            seconds(rate)
        ),
    )
    .expect("written");
    let other = Process::other(&program, &["--config", "otel-to.yaml"], Some(port))?;
    let agent = Process::other(&program, &["--config", "otel-from.yaml"], None)?;
    Some(Pair(vec![agent, other]))
}

fn collectd(folder: &Path, rate: u32) -> Option<Pair> {
    let root = folder.join("root/usr");
    let program = found(&root.join("sbin/collectd"))?;
    let (port, root) = (free_port(), root.display());
    let common = format!(
        "Hostname \"bench\"\nFQDNLookup false\nInterval {}\nPluginDir \"{root}/lib/collectd\"\nTypesDB \"{root}/share/collectd/types.db\"\n",
        seconds(rate)
    );
    let plugins: String = ["cpu", "memory", "swap", "disk", "df", "interface", "load", "network"]
        .map(|plugin| format!("LoadPlugin {plugin}\n"))
        .concat();
    let network = |word: &str| format!("<Plugin network>\n{word} \"127.0.0.1\" \"{port}\"\n</Plugin>\n");
    let from = format!("{common}BaseDir \"from\"\nPIDFile \"from.pid\"\n{plugins}{}", network("Server"));
    let to = format!("{common}BaseDir \"to\"\nPIDFile \"to.pid\"\nLoadPlugin network\n{}", network("Listen"));
    for (name, text) in [("from", from), ("to", to)] {
        fs::create_dir_all(name).expect("a folder");
        fs::write(format!("{name}.conf"), text).expect("written");
    }
    let here = env::current_dir().expect("a folder");
    let file = |name: &str| here.join(name).display().to_string();
    let other = Process::other(&program, &["-f", "-C", &file("to.conf")], None)?;
    let agent = Process::other(&program, &["-f", "-C", &file("from.conf")], None)?;
    Some(Pair(vec![agent, other]))
}

fn telegraf(folder: &Path, rate: u32) -> Option<Pair> {
    let program = found(&folder.join("telegraf"))?;
    let port = free_port();
    let common = format!(
        "[agent]\ninterval = '{0}s'\nflush_interval = '{0}s'\nprecision = '1ms'\nhostname = 'bench'\nquiet = true\n",
        seconds(rate)
    );
    let inputs = ["cpu", "mem", "swap", "disk", "diskio", "net", "system"].map(|input| format!("[[inputs.{input}]]\n"));
    let from = format!("{common}{}[[outputs.socket_writer]]\naddress = 'tcp://127.0.0.1:{port}'\n", inputs.concat());
    let to = format!(
        "{common}[[inputs.socket_listener]]\nservice_address = 'tcp://127.0.0.1:{port}'\n[[outputs.discard]]\n"
    );
    fs::write("telegraf-from.conf", from).expect("written");
    fs::write("telegraf-to.conf", to).expect("written");
    let other = Process::other(&program, &["-config", "telegraf-to.conf"], Some(port))?;
    let agent = Process::other(&program, &["-config", "telegraf-from.conf"], None)?;
    Some(Pair(vec![agent, other]))
}

fn prometheus(folder: &Path, rate: u32) -> Option<Pair> {
    let root = folder.join("root/usr/bin");
    let (exporter, server) = (found(&root.join("prometheus-node-exporter"))?, found(&root.join("prometheus"))?);
    let (port, web) = (free_port(), free_port());
    let every = format!("{}ms", 1000 / rate);
    let config = format!(
        "global: {{scrape_interval: {every}, scrape_timeout: {every}}}\n\
         scrape_configs: [{{job_name: bench, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n"
    );
    fs::write("prometheus.yaml", config).expect("written");
    let collectors = ["cpu", "meminfo", "diskstats", "filesystem", "netdev", "loadavg"];
    let mut arguments: Vec<String> = collectors.map(|name| format!("--collector.{name}")).to_vec();
    arguments.extend(["--collector.disable-defaults".into(), "--web.disable-exporter-metrics".into()]);
    arguments.push(format!("--web.listen-address=127.0.0.1:{port}"));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let agent = Process::other(&exporter, &arguments, Some(port))?;
    let address = format!("--web.listen-address=127.0.0.1:{web}");
    let path = format!("--storage.tsdb.path=tsdb-{rate}");
    let other = Process::other(&server, &["--config.file=prometheus.yaml", &path, &address], Some(web))?;
    Some(Pair(vec![agent, other]))
}

fn found(program: &Path) -> Option<String> {
    program.exists().then(|| program.display().to_string())
}
