//! The dashboard in a browser: a person's way from the empty page to a plot, another wire and an
//! alert. Chromium is driven by its own driver, by the protocol WebDriver.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use polywire_testing::tools;
use serde_json::{Value, json};

use crate::common::{Folder, Running, SOON};

/// How often the test looks at the page.
const TICK: Duration = Duration::from_millis(100);

/// A browser without a window.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// `None` if there is none, which skips the test.
    fn start() -> Option<Browser> {
        if !tools::has_program("chromedriver", "--version") || !tools::has_program("chromium", "--version") {
            return None;
        }
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = command.spawn().expect("started");
        let mut lines = BufReader::new(driver.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let started = lines.find(|line| line.contains("started successfully on port")).expect("it says its port");
        let port = started.trim_end_matches('.').rsplit(' ').next().and_then(|port| port.parse().ok());
        thread::spawn(move || lines.count());
        let mut browser = Browser { driver, port: port.expect("a port"), session: String::new() };
        // Its sandbox needs rights that containers do not have. It opens only pages of this test.
        let arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,1400"];
        let options = json!({ "args": arguments });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let session = browser.ask("POST", "", &wanted);
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        Some(browser)
    }

    /// A request to the driver, below the session, and the value of its reply.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let slash = if self.session.is_empty() { "" } else { "/" };
        let head = format!(
            "{method} /session{slash}{}{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            self.session,
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the driver runs");
        stream.set_read_timeout(Some(SOON)).expect("a time-out");
        stream.write_all(format!("{head}{body}").as_bytes()).expect("it reads");
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a reply");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut reply = vec![0; length];
        reader.read_exact(&mut reply).expect("the whole reply");
        let reply: Value = serde_json::from_slice(&reply).expect("JSON");
        assert!(reply["value"]["error"].is_null(), "{method} {path}: {reply}");
        reply["value"].clone()
    }

    fn open(&self, address: &str) {
        // An address that differs in its fragment alone loads nothing.
        self.ask("POST", "/url", &json!({ "url": "about:blank" }));
        self.ask("POST", "/url", &json!({ "url": address }));
    }

    /// The value of an expression in the page.
    fn value(&self, expression: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({ "script": format!("return {expression}"), "args": [] }))
    }

    /// Waits until an expression is true.
    fn until(&self, expression: &str) {
        let start = Instant::now();
        while self.value(expression) != json!(true) {
            if start.elapsed() > SOON {
                let text = self.value("document.body.innerText");
                panic!("never: {expression}\n{}", text.as_str().unwrap_or_default());
            }
            thread::sleep(TICK);
        }
    }

    /// The element that a selector of CSS finds.
    fn element(&self, selector: &str) -> String {
        let found = self.ask("POST", "/element", &json!({ "using": "css selector", "value": selector }));
        let reference = found.as_object().and_then(|of| of.values().next()).and_then(Value::as_str);
        reference.unwrap_or_else(|| panic!("nothing is {selector}")).to_owned()
    }

    fn click(&self, selector: &str) {
        self.ask("POST", &format!("/element/{}/click", self.element(selector)), &json!({}));
    }

    fn press(&self, selector: &str, key: &str) {
        self.ask("POST", &format!("/element/{}/value", self.element(selector)), &json!({ "text": key }));
    }

    /// What a browser's console says that is wrong.
    fn complaints(&self) -> Vec<String> {
        let log = self.ask("POST", "/se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().cloned().unwrap_or_default();
        let texts = entries.iter().filter_map(|entry| entry["message"].as_str());
        texts.filter(|text| !text.contains("favicon")).map(str::to_owned).collect()
    }

    /// Keeps a picture if the environment names a folder for it.
    fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("POLYWIRE_TEST_PICTURES") else { return };
        let script = Path::new(&folder).join(name).with_extension("base64");
        let picture = self.ask("GET", "/screenshot", &Value::Null);
        fs::write(script, picture.as_str().unwrap_or_default()).expect("written");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !thread::panicking() {
            self.ask("DELETE", "", &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// A collector with a dashboard. Returns the address of the page with its secret.
fn collect(folder: &Folder) -> (Running, String) {
    folder.write(
        "collect.toml",
        "[collector]\ntopics = ['probes/**']\n\
         [handlers.page]\nkind = 'dashboard'\nserve = '127.0.0.1:0'\ncontrol = 'page.url'\n\
         [alerts.running]\nwhen = 'uptime/uptime_s > 0'\n",
    );
    let collector = folder.start(&["collect", "--file", "collect.toml"]);
    let start = Instant::now();
    while !folder.path().join("page.url").exists() {
        assert!(start.elapsed() < SOON, "no page");
        thread::sleep(TICK);
    }
    let address = folder.read("page.url").trim().to_owned();
    (collector, address)
}

#[test]
fn a_person_plots_changes_a_wire_and_sees_an_alert() {
    let Some(browser) = Browser::start() else { return };
    let folder = Folder::new();
    let (collector, address) = collect(&folder);
    browser.open(&address);
    browser.until("document.getElementById('state').textContent === 'live'");
    assert_eq!(browser.value("location.hash"), json!(""), "the secret is not shown");
    browser.picture("empty");

    folder.write("agent.toml", "[agent]\nname = 'house'\n[probes.clock]\nevery = 0.05\n[probes.uptime]\nevery = 1\n");
    let mut agent = folder.start(&["agent", "agent.toml", "--state", "a.state", "--wire", "json"]);
    agent.line();
    browser.until(
        "[...document.querySelectorAll('#edges tbody tr')].some((row) => row.innerText.includes('probes/house/clock'))",
    );
    browser.until("document.getElementById('picture').textContent.includes('house')");

    // A plot.
    browser.until("[...document.getElementById('topic').options].some((of) => of.value === 'probes/house/clock')");
    browser.click("#topic option[value='probes/house/clock']");
    browser.until("document.getElementById('member').options.length > 0");
    browser.click("#add button[type=submit]");
    browser.until("/[0-9]/.test(document.querySelector('#plots figure b').textContent)");
    browser.until("document.querySelector('#values tbody').rows.length > 0");

    // Another wire. JSON has the names of members in each sample.
    let select = "select[aria-label='Wire of house/clock']";
    browser.until(&format!("document.querySelector(\"{select}\")?.value === 'json'"));
    // The bytes of a sample are known for the time before.
    browser.until(
        "[...document.querySelectorAll('#edges tbody tr')]
            .some((row) => row.cells[0].innerText === 'probes/house/clock' && /[1-9]/.test(row.cells[6].innerText))",
    );
    browser.click(&format!("{select} option[value=fast]"));
    browser.until("document.querySelectorAll('#effects tbody tr').length === 2");
    let each = |row: u32| {
        let cell = format!("document.querySelector('#effects tbody').rows[{row}].cells[3].textContent");
        browser.value(&cell).as_str().and_then(|text| text.parse::<f64>().ok()).expect("a number of bytes")
    };
    assert!(each(1) < each(0) / 2.0, "{} and {} bytes a sample", each(0), each(1));
    let listed = folder.run(&["probe", "list", "--timeout", "60", "--json"]).with(0).out;
    assert!(listed.contains(r#""wire":"fast""#), "{listed}");

    // An alert, and the keyboard.
    browser.until("document.querySelectorAll('#alerts li').length > 0");
    assert!(
        browser.value("document.getElementById('alerts').innerText").as_str().is_some_and(|t| t.contains("running"))
    );
    browser.press("body", " ");
    assert_eq!(browser.value("document.getElementById('hold').getAttribute('aria-pressed')"), json!("true"));
    browser.press("body", "a");
    assert_eq!(browser.value("location.hash"), json!("#alerts-section"));
    browser.picture("live");
    assert_eq!(browser.complaints(), [""; 0]);
    agent.end_by("TERM").with(0);
    collector.end_by("TERM").with(0);
}

#[test]
fn strangers_names_are_text_and_pages_without_the_secret_only_look() {
    let Some(browser) = Browser::start() else { return };
    let folder = Folder::new();
    let (collector, address) = collect(&folder);
    let (open, _) = address.split_once('#').expect("the secret is behind it");
    browser.open(open);
    browser.until("document.getElementById('state').textContent === 'live'");
    folder.write("evil.idl", "struct Evil { long value; };\n");
    let topic = "probes/<img src=x onerror=document.title='hit'>/<script>document.title='hit'<\u{2215}script>";
    let publish =
        folder.start(&["pub", topic, r#"{"value":1}"#, "--idl", "evil.idl", "--rate", "20", "--count", "100000"]);
    browser.until("[...document.getElementById('topic').options].some((of) => of.value.includes('<script>'))");
    browser.until("document.querySelector('#edges tbody').innerText.includes('<img src=x')");
    assert_eq!(browser.value("document.title"), json!("Polywire"));
    assert_eq!(browser.value("document.querySelectorAll('img, body script').length"), json!(0));
    let mut agent = folder.start(&["agent", "--state", "a.state", "--name", "house", "--probe", "clock"]);
    agent.line();
    browser.until("document.querySelector('#probes tbody').innerText.includes('house')");
    assert_eq!(browser.value("document.querySelectorAll('#probes select').length"), json!(0));
    assert!(
        browser
            .value("document.getElementById('rights').textContent")
            .as_str()
            .is_some_and(|t| t.contains("read-only"))
    );
    assert_eq!(browser.complaints(), [""; 0]);
    drop(publish);
    agent.end_by("TERM").with(0);
    collector.end_by("TERM").with(0);
}
