//! Two machines and a line of 8 Mbit/s between them, with the commands of docs/telemetry.md: both
//! are on the page, a wire chosen there makes the bytes on the line fewer, and the samples of
//! both are in SQLite, in MCAP, and come by Foxglove's protocol. All processes are real ones, on
//! two hosts of `polywire link hosts`.

use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use polywire_testing::tools;
use serde_json::{Value, json};

use crate::{
    browser::{Browser, TICK},
    common::{
        Folder, SOON, hosts_are_permitted,
        markdown::{self, blocks},
    },
};

/// Tells the test that it runs on the host with the collector, and in which folder.
const ON_HOST: &str = "POLYWIRE_TEST_ON_HOST";

const NAME: &str = "two_hosts::a_new_user_finds_both_machines_on_the_page_and_in_the_archives";

/// The line is measured for so long in each format.
const MEASURED: Duration = Duration::from_secs(5);

/// What the line of statistics before and after a measurement is marked with.
const MARKS: [&str; 4] = ["json begins", "json ends", "fast begins", "fast ends"];

/// The command of docs/telemetry.md for one of the two machines.
fn documented(machine: &str) -> String {
    let page = markdown::page("docs/telemetry.md");
    let found = blocks(&page).into_iter().find(|block| block.info == format!("console {machine}"));
    let text = found.unwrap_or_else(|| panic!("no block for {machine}")).text;
    text.lines().find_map(|line| line.strip_prefix("$ ")).expect("a command").to_owned()
}

#[test]
fn a_new_user_finds_both_machines_on_the_page_and_in_the_archives() {
    if let Some(folder) = env::var_os(ON_HOST) {
        return on_the_host_with_the_collector(folder.as_ref());
    }
    if !Browser::is_installed() || !hosts_are_permitted() {
        return;
    }
    let folder = Folder::new();
    let program = Path::new(env!("CARGO_BIN_EXE_polywire")).parent().expect("a folder").display();
    let test = env::current_exe().expect("this program");
    let again = format!("{ON_HOST}={} {} --exact {NAME} --nocapture", folder.path().display(), test.display());
    let [far, near] = [documented("pump-house"), again].map(|command| format!("PATH={program}:$PATH; {command}"));
    let arguments = ["--json", "link", "hosts", "--model", "8mbit", "--every", "0.1", "--for", "400"];
    let ended = folder.run(&[&arguments[..], &["-a", &far, "-b", &near]].concat()).with(0);
    let lines = ended.out.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let marked = bytes_at_marks(lines);
    let [json, fast] = [0, 2].map(|first| {
        let [begin, end] = [first, first + 1].map(|mark| marked.get(MARKS[mark]).expect("it was marked"));
        (end.1 - begin.1) / (end.0 - begin.0)
    });
    println!("{json:.0} bytes a second on the line in JSON, {fast:.0} in FAST");
    assert!(fast * 2.0 < json, "{fast:.0} and {json:.0} bytes a second");
}

/// The seconds and the bytes from the far host to the near one, at each mark that a test prints.
fn bytes_at_marks(lines: impl Iterator<Item = Value>) -> BTreeMap<&'static str, (f64, f64)> {
    let (mut latest, mut marked) = ((0.0, 0.0), BTreeMap::new());
    for line in lines {
        if let (Some(at), Some(bytes)) = (line["seconds"].as_f64(), line["there"]["delivered_bytes"].as_f64()) {
            latest = (at, bytes);
        }
        let said = line["line"].as_str().unwrap_or_default();
        marked.extend(MARKS.iter().filter(|mark| said.contains(**mark)).map(|mark| (*mark, latest)));
    }
    marked
}

/// Runs the collector, and does in the browser what a person does.
fn on_the_host_with_the_collector(folder: &Path) {
    let browser = Browser::start().expect("there is one");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec {} > room.log", documented("control-room"))]).current_dir(folder);
    shell.env("NO_COLOR", "1").env("XDG_RUNTIME_DIR", folder).env_remove("POLYWIRE_DOMAIN");
    let mut collector = shell.spawn().expect("it starts");
    let address = folder.join("room.url");
    let start = Instant::now();
    while !address.exists() {
        assert!(start.elapsed() < SOON, "no page: {:?}", fs::read_to_string(folder.join("room.log")));
        thread::sleep(TICK);
    }
    browser.open(fs::read_to_string(address).expect("an address").trim());
    browser.until("document.getElementById('state').textContent === 'live'");
    see_both_machines(&browser);
    measured(&MARKS[..2]);
    let selects = "[...document.querySelectorAll('#probes select')]";
    let probes = format!(
        "{selects}.filter((of) => of.getAttribute('aria-label').startsWith('Wire of pump-house/') && of.value === 'json')
            .map((of) => of.getAttribute('aria-label'))"
    );
    for label in browser.value(&probes).as_array().expect("a list").iter().filter_map(Value::as_str) {
        browser.click(&format!("select[aria-label='{label}'] option[value=fast]"));
        browser
            .until(&format!("{selects}.find((of) => of.getAttribute('aria-label') === '{label}')?.value === 'fast'"));
        browser.until(&format!("document.getElementById('state').textContent.includes('{}: fast')", &label[8..]));
    }
    see_fewer_bytes(&browser);
    measured(&MARKS[2..]);
    browser.picture("two-hosts");
    hear_by_the_protocol_of_foxglove(&browser);
    assert_eq!(browser.complaints(), [""; 0]);
    let id = collector.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
    assert!(collector.wait().expect("it ends").success());
    find_the_samples(folder);
}

/// Marks the beginning and the end of a measurement of the line.
fn measured(marks: &[&str]) {
    println!("{}", marks[0]);
    thread::sleep(MEASURED);
    println!("{}", marks[1]);
    // Until the next statistics of the line.
    thread::sleep(3 * TICK);
}

fn see_both_machines(browser: &Browser) {
    for node in ["pump-house", "control-room"] {
        browser.until(&format!("document.getElementById('picture').textContent.includes('{node}')"));
        // A topic whose messages come, by the rate in the table.
        browser.until(&format!(
            "[...document.querySelectorAll('#edges tbody tr')].some((row) =>
                row.cells[0].innerText === 'probes/{node}/processor' && /[1-9]/.test(row.cells[4].innerText)
                && /[1-9]/.test(row.cells[6].innerText))"
        ));
        browser.until(&format!(
            "[...document.querySelectorAll('#probes tbody tr')].some((row) =>
                row.cells[0].innerText === '{node}' && row.cells[1].innerText === 'processor')"
        ));
    }
}

/// The page compares bytes a sample before and after each change.
fn see_fewer_bytes(browser: &Browser) {
    browser.until(
        "[...document.querySelectorAll('#effects tbody tr')].some((row) =>
            row.cells[0].innerText === 'pump-house/processor' && row.cells[1].innerText === 'fast')",
    );
    let rows = browser.value(
        "[...document.querySelectorAll('#effects tbody tr')].filter((row) => row.cells[0].innerText === 'pump-house/processor')
            .map((row) => [row.cells[1].innerText, parseFloat(row.cells[3].innerText)])",
    );
    assert_eq!((&rows[0][0], &rows[1][0]), (&json!("json"), &json!("fast")), "{rows}");
    let [json, fast] = [0, 1].map(|row| rows[row][1].as_f64().expect("bytes a sample"));
    assert!(fast * 3.0 < json, "{fast} and {json} bytes a sample");
}

/// A client of Foxglove's protocol, as Foxglove itself: it subscribes to a topic and gets samples.
fn hear_by_the_protocol_of_foxglove(browser: &Browser) {
    let client = "(() => {
        window.heard = 0;
        const socket = new WebSocket(`ws://${location.host}/`, ['foxglove.websocket.v1']);
        socket.binaryType = 'arraybuffer';
        socket.addEventListener('message', ({ data }) => {
            if (typeof data !== 'string') {
                const sample = JSON.parse(new TextDecoder().decode(data.slice(13)));
                if (new DataView(data).getUint8(0) === 1 && typeof sample.busy_percent === 'number') window.heard += 1;
                return;
            }
            const message = JSON.parse(data);
            if (message.op !== 'advertise') return;
            const wanted = message.channels.filter((of) => of.topic === 'probes/pump-house/processor');
            const subscriptions = wanted.map((of) => ({ id: of.id, channelId: of.id }));
            if (subscriptions.length) socket.send(JSON.stringify({ op: 'subscribe', subscriptions }));
        });
        return true;
    })()";
    browser.value(client);
    browser.until("window.heard >= 5");
}

/// The archives have the samples of both machines, without a gap where the wire changed.
fn find_the_samples(folder: &Path) {
    let query = |arguments: &[&str]| -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polywire"));
        command.args(["--json", "query", "room.db"]).args(arguments).current_dir(folder);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")).collect()
    };
    let rows = query(&[
        "SELECT _topic, count(*) AS stored, max(_sequence) - min(_sequence) + 1 AS numbered FROM \"system::Processor\"
            WHERE _timestamp_ns > (unixepoch() - 3600) * 1000000000 GROUP BY _topic ORDER BY _topic",
    ]);
    let mut stored = BTreeMap::new();
    for row in rows.as_array().expect("rows") {
        assert_eq!(row["stored"], row["numbered"], "{row}");
        stored.insert(row["_topic"].as_str().expect("a topic").to_owned(), row["stored"].as_u64().expect("a count"));
    }
    let topics: Vec<&str> = stored.keys().map(String::as_str).collect();
    assert_eq!(topics, ["probes/control-room/processor", "probes/pump-house/processor"]);
    assert!(stored.values().all(|count| *count > 5), "{stored:?}");
    let recorded = fs::read(folder.join("room.mcap")).expect("a recording");
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for message in mcap::MessageStream::new(&recorded).expect("readable") {
        let message = message.expect("whole");
        if stored.contains_key(&message.channel.topic) {
            *counts.entry(message.channel.topic.clone()).or_default() += 1;
        }
    }
    assert_eq!(counts, stored);
}
