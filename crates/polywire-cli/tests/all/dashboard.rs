//! The dashboard in a browser: a person's way from the empty page to a plot, another wire and an
//! alert.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    browser::{Browser, TICK},
    common::{Folder, Running, SOON},
};

/// A collector with a dashboard. Returns the address of the page with its secret.
fn collect(folder: &Folder) -> (Running, String) {
    collect_with(folder, "")
}

/// The same with other handlers.
fn collect_with(folder: &Folder, handlers: &str) -> (Running, String) {
    let page = "[collector]\ntopics = ['probes/**']\n\
         [handlers.page]\nkind = 'dashboard'\nserve = '127.0.0.1:0'\ncontrol = 'page.url'\n\
         [alerts.running]\nwhen = 'uptime/uptime_s > 0'\n";
    folder.write("collect.toml", &format!("{page}{handlers}"));
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
    browser.value(&format!("document.querySelector(\"{select}\").mark = 7"));
    browser.click(&format!("{select} option[value=fast]"));
    browser.until("document.querySelectorAll('#effects tbody tr').length === 2");
    let each = |row: u32| {
        let cell = format!("document.querySelector('#effects tbody').rows[{row}].cells[3].textContent");
        let text = browser.value(&cell);
        text.as_str().and_then(|text| text.parse::<f64>().ok()).unwrap_or_else(|| panic!("no number of bytes: {text}"))
    };
    assert!(each(1) < each(0) / 2.0, "{} and {} bytes a sample", each(0), each(1));
    // The table was brought up to date, and nobody's open choice was closed.
    browser.until(&format!("document.querySelector(\"{select}\").value === 'fast'"));
    assert_eq!(browser.value(&format!("document.querySelector(\"{select}\").mark")), json!(7));
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

#[test]
fn any_recorded_time_is_plotted_and_listed_with_units() {
    let Some(browser) = Browser::start() else { return };
    let folder = Folder::new();
    let archives =
        "[handlers.tables]\nkind = 'sqlite'\npath = 'a.db'\n[handlers.files]\nkind = 'parquet'\npath = 'a'\n";
    let (collector, address) = collect_with(&folder, archives);
    folder.write("agent.toml", "[agent]\nname = 'house'\n[probes.clock]\nevery = 0.02\n[probes.memory]\nevery = 0.2\n");
    let mut agent = folder.start(&["agent", "agent.toml", "--state", "a.state"]);
    agent.line();
    // Reading needs no secret.
    let (open, _) = address.split_once('#').expect("the secret is behind it");
    browser.open(open);
    let handlers = "[...document.querySelectorAll('#handlers tbody tr')]";
    browser.until(&format!(
        "{handlers}.length === 3 && {handlers}.every((row) => row.cells[2].textContent === 'works')
         && {handlers}.some((row) => row.cells[1].textContent === 'sqlite' && Number(row.cells[4].textContent) > 200)"
    ));
    let note = "document.getElementById('recorded-note').textContent";
    for archive in ["tables", "files"] {
        browser.choose("#archive", archive);
        browser.until(
            "[...document.getElementById('recorded-topics').options].some((of) => of.value === 'probes/house/clock')",
        );
        browser.choose("#recorded-topic", "probes/house/memory");
        browser.until("document.querySelectorAll('#recorded-messages tbody tr').length > 1");
        browser
            .until("[...document.getElementById('recorded-members').options].some((of) => of.value === 'free_bytes')");
        browser.until(
            "[...document.querySelectorAll('#recorded-messages th')].some((of) => of.textContent === 'free_bytes [B]')",
        );
        browser.choose("#recorded-member", "free_bytes");
        browser.click("#recall button");
        browser.until(&format!("/^[1-9][0-9]* numbers, drawn by [1-9]/.test({note})"));
        browser.until(
            "document.getElementById('recorded-title').textContent.startsWith('probes/house/memory free_bytes [B], ')",
        );
        // An empty canvas is a picture of a few bytes.
        browser.until("document.getElementById('recorded-plot').toDataURL().length > 4000");
    }
    // A time of its own, first one without messages.
    browser.choose("#recorded-range", "");
    browser.until("!document.getElementById('recorded-times').hidden");
    browser.choose("#recorded-from", "2001-01-01T00:00:00");
    browser.choose("#recorded-to", "2001-01-02T00:00:00");
    browser.click("#recall button");
    browser.until(&format!("{note} === \"no message of 'probes/house/memory' with 'free_bytes' in this time\""));
    browser.choose("#recorded-to", "2101-01-02T00:00:00");
    browser.press("#recorded-member", "\u{e007}");
    browser.until(&format!("/^[1-9][0-9]* numbers, drawn by [1-9]/.test({note})"));
    // Errors are texts, and archives those of the collector.
    browser.choose("#recorded-topic", "<img src=x onerror=document.title='hit'>");
    browser.until(&format!("{note}.includes('<img src=x')"));
    let asked =
        "fetch('/recorded?archive=..%2Fa.db').then(async (of) => { window.told = `${of.status} ${await of.text()}` })";
    browser.value(asked);
    browser.until("window.told === \"400 there is no archive '../a.db'\"");
    assert_eq!(browser.value("document.title"), json!("Polywire"));
    browser.press("body", "r");
    assert_eq!(browser.value("location.hash"), json!("#recorded-section"));
    browser.picture("recorded");
    browser.become_dark_phone();
    browser.until("matchMedia('(prefers-color-scheme: dark)').matches && innerWidth === 390");
    assert_eq!(browser.value("document.documentElement.scrollWidth <= innerWidth"), json!(true), "nothing is cut off");
    assert_eq!(browser.value("getComputedStyle(document.body).backgroundColor"), json!("rgb(17, 21, 26)"));
    browser.picture("phone");
    // What was asked for wrongly is told as errors of the network, and nothing else is.
    let complaints = browser.complaints();
    assert!(complaints.iter().all(|text| text.contains("400 (Bad Request)")), "{complaints:?}");
    agent.end_by("TERM").with(0);
    collector.end_by("TERM").with(0);
}

/// Ten probes with twenty numbers each, 30 times a second, each number in a plot of its own.
#[test]
fn two_hundred_plots_at_30_hz_do_not_stall() {
    let Some(browser) = Browser::start() else { return };
    let folder = Folder::new();
    let (collector, address) = collect(&folder);
    let mut agent =
        folder.start(&["agent", "--name", "house", "--state", "a.state", "--probe", "uptime", "--socket", "s"]);
    agent.line();
    let sample = |probe: usize, time: f64| {
        let wave = |member: usize| (format!("m{member}"), json!((time + (probe * 20 + member) as f64 / 7.0).sin()));
        (0..20).map(wave).collect::<serde_json::Map<String, Value>>()
    };
    let mut program = UnixStream::connect(folder.path().join("s")).expect("it listens");
    let mut told = BufReader::new(program.try_clone().expect("cloned")).lines();
    for probe in 0..10 {
        writeln!(program, "{}", json!({ "probe": format!("p{probe}"), "example": sample(probe, 0.0) })).expect("sent");
        let line = told.next().expect("a line").expect("a text");
        assert!(line.contains("\"type\""), "{line}");
    }
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while !ends.load(Ordering::Acquire) {
                for probe in 0..10 {
                    let value = sample(probe, start.elapsed().as_secs_f64());
                    writeln!(program, "{}", json!({ "probe": format!("p{probe}"), "value": value })).expect("sent");
                }
                thread::sleep(Duration::from_millis(33));
            }
        });
        let figures = frames_with_plots(&browser, &address);
        ends.store(true, Ordering::Release);
        println!("200 plots at 30 Hz, on this machine: {figures}");
        let number = |name: &str| figures[name].as_f64().expect(name);
        // Bounds for a machine that does other work, too; a stall is a frame that takes seconds.
        assert!(number("frames") >= 50.0 && number("longest_task_ms") < 1000.0, "{figures}");
    });
    agent.end_by("TERM").with(0);
    collector.end_by("TERM").with(0);
}

/// Makes all plots, and counts frames for ten seconds, of which half are spent scrolling.
fn frames_with_plots(browser: &Browser, address: &str) -> Value {
    browser.open(address);
    let topics = "[...document.getElementById('topic').options].filter((of) => /house.p[0-9]$/.test(of.value))";
    browser.until(&format!("{topics}.length === 10"));
    for probe in 0..10 {
        browser.choose("#topic", &format!("probes/house/p{probe}"));
        browser.until("document.getElementById('member').options.length === 20");
        browser.value(
            "[...document.getElementById('member').options].forEach((of) => {
               document.getElementById('member').value = of.value;
               document.getElementById('add').requestSubmit() })",
        );
    }
    assert_eq!(browser.value("document.querySelectorAll('#plots figure').length"), json!(200));
    browser.value("document.getElementById('plots').scrollIntoView()");
    browser.until("/[0-9]/.test(document.querySelector('#plots figure b').textContent)");
    browser.value(
        "(() => {
           const seen = window.seen = { frames: 0, longest_task_ms: 0, longest_frame_ms: 0 };
           let last;
           new PerformanceObserver((list) => list.getEntries().forEach((of) => {
             seen.longest_task_ms = Math.max(seen.longest_task_ms, of.duration) })).observe({ type: 'longtask' });
           (function frame(now) {
             if (last !== undefined) seen.longest_frame_ms = Math.max(seen.longest_frame_ms, now - last);
             last = now;
             seen.frames += 1;
             requestAnimationFrame(frame) })() })()",
    );
    thread::sleep(Duration::from_secs(5));
    for _ in 0..50 {
        browser.value("scrollBy(0, 250)");
        thread::sleep(Duration::from_millis(100));
    }
    let seen = browser.value("window.seen");
    browser.value("document.querySelector('#plots figure:last-child').scrollIntoView()");
    browser.until("/[0-9]/.test(document.querySelector('#plots figure:last-child b').textContent)");
    browser.picture("plots");
    assert_eq!(browser.complaints(), [""; 0]);
    seen
}
