//! Checks that docs/scenarios.md agrees with the code on every key, mode and metric of scenarios.

use std::{collections::BTreeSet, fs, path::Path};

use polywire_measure::{
    Scenario,
    metrics::{Better, METRICS, Metric, Needs},
    scenario::Mode,
};
use serde_json::Value;

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md")).expect("the page")
}

/// A scenario with every key.
const FULL: &str = "name = 'x'
summary = 'y'
[[type]]
idl = 'a.idl'
text = 'struct A { long x; };'
name = 'A'
codecs_test = [10]
lengths = { x = 1 }
texts = { x = 'y' }
label = 'l'
reader = { name = 'B' }
[[criteria]]
metric = 'bytes'
where = { codec = 'cdr' }
relative_to = { codec = 'cdr' }
at_most = 2
at_least = 1
";

/// The first cells of the tables in a section, without back quotes.
fn first_cells(section: &str) -> BTreeSet<String> {
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    cells.map(str::to_owned).collect()
}

#[test]
fn every_key_is_documented_and_no_other() {
    let scenario = serde_json::to_value(Scenario::from_toml(FULL).expect("valid")).expect("JSON");
    let keys = |value: &Value| value.as_object().expect("a table").keys().cloned().collect::<Vec<String>>();
    let mut expected: BTreeSet<String> = keys(&scenario).into_iter().collect();
    for part in [&scenario["effort"], &scenario["type"][0], &scenario["axes"], &scenario["criteria"][0]] {
        expected.extend(keys(part));
    }
    let page = page();
    let section = page.split("\n## ").find(|section| section.starts_with("Keys")).expect("a section");
    assert_eq!(first_cells(section), expected);
}

#[test]
fn every_mode_is_documented_and_no_other() {
    let page = page();
    let section = page.split("\n## ").find(|section| section.starts_with("Modes")).expect("a section");
    assert_eq!(first_cells(section), Mode::ALL.map(|mode| mode.name().to_owned()).into());
}

#[test]
fn the_table_of_metrics_is_that_of_the_code() {
    let table: String = METRICS.iter().map(row).collect();
    let table = format!("| metric | heading | meaning | better | modes |\n|---|---|---|---|---|\n{table}");
    let page = page();
    let start = page.find("| metric | heading ").unwrap_or(page.len());
    assert!(page[start..] == table, "docs/scenarios.md should end with\n{table}");
}

fn row(metric: &Metric) -> String {
    let better = match metric.better {
        Better::Lower => "less",
        Better::Higher => "more",
        Better::Neither => "-",
    };
    let modes = Mode::ALL.into_iter().filter_map(|mode| {
        let needs = match mode.needs_for(metric.name)? {
            Needs::Nothing => "",
            Needs::Compressor => "+compressor",
            Needs::Network => "+network",
            Needs::Process => "+process",
        };
        Some(format!("{}{needs}", mode.name()))
    });
    let modes = modes.collect::<Vec<_>>().join(", ");
    assert!(!modes.is_empty(), "{} is measured by no mode", metric.name);
    format!("| `{}` | {} | {} | {better} | {modes} |\n", metric.name, metric.label, metric.help)
}

#[test]
fn the_example_is_a_scenario() {
    let page = page();
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    assert_eq!(Scenario::from_toml(example).expect("valid").cases().expect("cases").len(), 12);
}
