//! Chromium without a window, driven by its own driver with the protocol WebDriver.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use polywire_testing::tools;
use serde_json::{Value, json};

use crate::common::SOON;

/// How often the test looks at the page.
pub const TICK: Duration = Duration::from_millis(100);

/// A browser without a window.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// Whether this machine has one.
    pub fn is_installed() -> bool {
        ["chromedriver", "chromium", "setpriv"].iter().all(|program| tools::has_program(program, "--version"))
    }

    /// `None` if there is none, which skips the test.
    pub fn start() -> Option<Browser> {
        if !Browser::is_installed() {
            return None;
        }
        // Without IPv6, the driver does not say which port it has chosen.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        // If this test is killed, the driver ends, and then its browser, whose pipe is closed.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "chromedriver"])
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut driver = command.spawn().expect("started");
        let mut lines = BufReader::new(driver.stdout.take().expect("piped")).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("started successfully")), "it says that it has started");
        thread::spawn(move || lines.count());
        let mut browser = Browser { driver, port, session: String::new() };
        // Its sandbox needs rights that containers do not have. It opens only pages of this test.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--remote-debugging-pipe",
            "--window-size=1200,1400",
        ];
        let options = json!({ "args": arguments });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let session = browser.ask("POST", "", &wanted);
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        Some(browser)
    }

    /// A request to the driver that is about no element, and the value of its reply.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_to(method, path, body).expect("no element")
    }

    /// A request to the driver, below the session, and the value of its reply; `None` if the
    /// element in its path is gone.
    fn try_to(&self, method: &str, path: &str, body: &Value) -> Option<Value> {
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
        let error = &reply["value"]["error"];
        // The page may have made an element anew since it was found.
        if error == "stale element reference" {
            return None;
        }
        assert!(error.is_null(), "{method} {path}: {reply}");
        Some(reply["value"].clone())
    }

    pub fn open(&self, address: &str) {
        // An address that differs in its fragment alone loads nothing.
        self.ask("POST", "/url", &json!({ "url": "about:blank" }));
        self.ask("POST", "/url", &json!({ "url": address }));
    }

    /// The value of an expression in the page.
    pub fn value(&self, expression: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({ "script": format!("return {expression}"), "args": [] }))
    }

    /// Waits until an expression is true.
    pub fn until(&self, expression: &str) {
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

    /// Does something with the element that a selector finds, again if the page has made it anew
    /// meanwhile.
    fn act(&self, selector: &str, action: &str, body: &Value) {
        let start = Instant::now();
        while self.try_to("POST", &format!("/element/{}/{action}", self.element(selector)), body).is_none() {
            assert!(start.elapsed() < SOON, "{selector} does not stay");
        }
    }

    pub fn click(&self, selector: &str) {
        self.act(selector, "click", &json!({}));
    }

    pub fn press(&self, selector: &str, key: &str) {
        self.act(selector, "value", &json!({ "text": key }));
    }

    /// Chooses a value of an element, as a person does who leaves it then.
    pub fn choose(&self, selector: &str, value: &str) {
        let script = "const element = document.querySelector(arguments[0]); element.value = arguments[1]; \
                      element.dispatchEvent(new Event('change'))";
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [selector, value] }));
    }

    /// Shows pages as a phone does, in dark colours.
    pub fn become_dark_phone(&self) {
        let ask = |command: &str, parameters: Value| {
            self.ask("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }));
        };
        let dark = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
        ask("Emulation.setEmulatedMedia", dark);
        let size = json!({ "width": 390, "height": 3400, "deviceScaleFactor": 2, "mobile": true });
        ask("Emulation.setDeviceMetricsOverride", size);
    }

    /// What a browser's console says that is wrong.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.ask("POST", "/se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().cloned().unwrap_or_default();
        let texts = entries.iter().filter_map(|entry| entry["message"].as_str());
        texts.filter(|text| !text.contains("favicon")).map(str::to_owned).collect()
    }

    /// Keeps a picture if the environment names a folder for it.
    pub fn picture(&self, name: &str) {
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
