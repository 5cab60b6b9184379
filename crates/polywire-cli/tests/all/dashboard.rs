//! The dashboard in a browser: a person's way from the empty page to a plot, another wire and an
//! alert.

use std::{thread, time::Instant};

use serde_json::json;

use crate::{
    browser::{Browser, TICK},
    common::{Folder, Running, SOON},
};

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
