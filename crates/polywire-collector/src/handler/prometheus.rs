//! The kind `prometheus`: the latest numbers of each topic in the text format of Prometheus, as a
//! file or over HTTP.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt::Write as _,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use polywire::{Kind as Message, metrics::MetricsServer};

use super::{Handler, Kind};
use crate::{
    Entry, Expects, HandlerError, Setting, Settings,
    numbers::{instance, numbers},
};

/// The maximum number of numbers of a handler.
const MAX_NUMBERS: usize = 100_000;

/// The default time after which a number that is no longer published is removed.
const EXPIRE: Duration = Duration::from_secs(300);

pub(super) static KIND: Kind = Kind {
    name: "prometheus",
    summary: "The latest numbers for Prometheus, as a file or over HTTP",
    settings: &[
        Setting { name: "path", expects: Expects::Text, summary: "the file" },
        Setting {
            name: "serve",
            expects: Expects::Text,
            summary: "address of this machine that serves the same at /metrics, such as 127.0.0.1:9464",
        },
        Setting {
            name: "expire",
            expects: Expects::Seconds,
            summary: "leaves out what nobody has published for this time; 300 is the default, 0 never does",
        },
    ],
    open: |settings, _| {
        let path = settings.text("path");
        if let Some(address) = path.filter(|path| path.parse::<SocketAddr>().is_ok()) {
            let reason = format!("'path': {address} is an address; 'serve' serves the numbers there");
            return Err(HandlerError::Setting(reason));
        }
        let path = path.map(Path::new);
        if let Some(path) = path
            && let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty())
        {
            fs::create_dir_all(folder).map_err(|cause| HandlerError::file(path, &cause))?;
        }
        let served = Served::open(settings)?;
        if path.is_none() && served.is_none() {
            return Err(HandlerError::Setting("'path' or 'serve' is missing".into()));
        }
        let expire = settings.seconds("expire").unwrap_or(EXPIRE);
        Ok(Box::new(Metrics {
            path: path.map(Path::to_owned),
            served,
            expire: Some(expire).filter(|expire| !expire.is_zero()),
            latest: BTreeMap::new(),
            count: 0,
            is_news: true,
        }))
    },
};

struct Metrics {
    path: Option<PathBuf>,
    served: Option<Served>,
    expire: Option<Duration>,
    /// The latest messages, by topic, type and key.
    latest: BTreeMap<(String, String, String), Latest>,
    /// The number of numbers in `latest`.
    count: usize,
    is_news: bool,
}

/// The text that is served over HTTP.
struct Served {
    text: Arc<Mutex<String>>,
    /// The server ends when this is dropped.
    _server: MetricsServer,
}

impl Served {
    fn open(settings: &Settings) -> Result<Option<Served>, HandlerError> {
        let Some(address) = settings.text("serve") else { return Ok(None) };
        let address = address.parse().map_err(|_| {
            HandlerError::Setting(format!("'serve': an address such as 127.0.0.1:9464 is expected, not '{address}'"))
        })?;
        let text: Arc<Mutex<String>> = Arc::default();
        let shown = text.clone();
        let server = MetricsServer::serve(address, move || Some(shown.lock().clone()));
        let server = server.map_err(|cause| match cause.kind() {
            io::ErrorKind::InvalidInput => HandlerError::Setting(format!("'serve': {cause}")),
            _ => HandlerError::Failed(format!("{address}: {cause}")),
        })?;
        Ok(Some(Served { text, _server: server }))
    }
}

/// The latest message of an instance.
struct Latest {
    at: Instant,
    /// Names of metrics, each with its labels and value as text.
    numbers: Vec<(String, String)>,
}

impl Handler for Metrics {
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        let key = instance(entry)?;
        let mut labels = format!("topic=\"{}\"", escaped(entry.topic()));
        if !key.is_empty() {
            let _ = write!(labels, ",key=\"{}\"", escaped(&key));
        }
        let instance = (entry.topic().to_owned(), entry.type_name().to_owned(), key);
        if entry.kind != Message::Data {
            self.remove(&instance);
            return Ok(());
        }
        self.remove(&instance);
        let mut found = Vec::new();
        numbers(entry.value.view(), MAX_NUMBERS - self.count, &mut |path, index, number| {
            let index = if index.is_empty() { String::new() } else { format!(",index=\"{}\"", escaped(index)) };
            let value = number_text(number.as_f64());
            let rest = format!("{{{labels},member=\"{}\"{index}}} {value}", escaped(path));
            found.push((metric(entry.type_name(), path), rest));
        })?;
        self.count += found.len();
        self.latest.insert(instance, Latest { at: Instant::now(), numbers: found });
        Ok(())
    }

    /// Replaces the text. Numbers need not survive a restart, so nothing else is stored.
    fn sync(&mut self) -> Result<(), HandlerError> {
        self.expire();
        if !self.is_news {
            return Ok(());
        }
        let text = self.text();
        if let Some(path) = &self.path {
            let mut partial: OsString = path.into();
            partial.push(".part");
            let replaced = fs::write(&partial, &text).and_then(|()| fs::rename(&partial, path));
            replaced.map_err(|cause| HandlerError::file(path, &cause))?;
        }
        if let Some(served) = &self.served {
            *served.text.lock() = text;
        }
        self.is_news = false;
        Ok(())
    }
}

impl Metrics {
    fn remove(&mut self, instance: &(String, String, String)) {
        self.is_news = true;
        if let Some(old) = self.latest.remove(instance) {
            self.count -= old.numbers.len();
        }
    }

    fn expire(&mut self) {
        let Some(expire) = self.expire else { return };
        let is_old = |latest: &Latest| latest.at.elapsed() >= expire;
        let old: Vec<_> = self.latest.iter().filter(|(_, latest)| is_old(latest)).map(|(key, _)| key.clone()).collect();
        old.iter().for_each(|instance| self.remove(instance));
    }

    /// Returns the text. The format requires that the numbers of a metric are consecutive.
    fn text(&self) -> String {
        let mut metrics: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, rest) in self.latest.values().flat_map(|latest| &latest.numbers) {
            metrics.entry(name).or_default().push(rest);
        }
        let mut text = String::new();
        for (name, lines) in metrics {
            let _ = writeln!(text, "# TYPE {name} gauge");
            for line in lines {
                let _ = writeln!(text, "{name}{line}");
            }
        }
        text
    }
}

/// Returns the name of a metric: letters, digits and `_`, not beginning with a digit.
fn metric(type_name: &str, path: &str) -> String {
    let name = format!("{}_{path}", type_name.replace("::", "_"));
    let permitted = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().map(permitted).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number_text(number: f64) -> String {
    match number {
        _ if number.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap as Map, sync::Arc, thread};

    use polywire::{Message as _, Record, Shape};

    use super::*;
    use crate::Origin;

    #[derive(Default, polywire::Message)]
    struct Core {
        busy: f32,
    }

    #[derive(Default, polywire::Message)]
    #[polywire(name = "plant::Pump_2")]
    struct Pump {
        #[polywire(key)]
        id: u32,
        pressure: Option<f64>,
        on: bool,
        name: String,
        cores: Vec<Core>,
        levels: Map<String, i64>,
        blob: Vec<u8>,
    }

    fn metrics(expire: Option<Duration>) -> Metrics {
        Metrics { path: None, served: None, expire, latest: BTreeMap::new(), count: 0, is_news: false }
    }

    fn pump(topic: &str, id: u32, set: impl FnOnce(&mut Record)) -> Entry {
        let mut record = Record::new(&Shape::of(Pump::shape().schema()).expect("a shape"));
        record.set("id", id).expect("set");
        set(&mut record);
        Entry::new(Arc::new(Origin { topic: topic.to_owned(), ..Origin::default() }), 1, 0, record)
    }

    #[test]
    fn numbers_have_names_and_labels() {
        let mut metrics = metrics(None);
        let full = pump("a\"\\b\n", 7, |record| {
            record.set("pressure", f64::NEG_INFINITY).expect("set");
            record.set("on", true).expect("set");
            record.resize("cores", 2).expect("set");
            record.set("cores[1].busy", f32::NAN).expect("set");
            record.set("levels[\"low\"]", -3).expect("set");
        });
        metrics.write(&full).expect("taken");
        metrics.write(&pump("p", 8, |_| {})).expect("taken");
        let expected = r##"# TYPE plant_Pump_2_cores_busy gauge
plant_Pump_2_cores_busy{topic="a\"\\b\n",key="id=7",member="cores.busy",index="0"} 0
plant_Pump_2_cores_busy{topic="a\"\\b\n",key="id=7",member="cores.busy",index="1"} NaN
# TYPE plant_Pump_2_id gauge
plant_Pump_2_id{topic="a\"\\b\n",key="id=7",member="id"} 7
plant_Pump_2_id{topic="p",key="id=8",member="id"} 8
# TYPE plant_Pump_2_levels gauge
plant_Pump_2_levels{topic="a\"\\b\n",key="id=7",member="levels",index="low"} -3
# TYPE plant_Pump_2_on gauge
plant_Pump_2_on{topic="a\"\\b\n",key="id=7",member="on"} 1
plant_Pump_2_on{topic="p",key="id=8",member="on"} 0
# TYPE plant_Pump_2_pressure gauge
plant_Pump_2_pressure{topic="a\"\\b\n",key="id=7",member="pressure"} -Inf
"##;
        assert_eq!(metrics.text(), expected);
    }

    #[test]
    fn an_instance_ends_and_old_numbers_go() {
        let mut metrics = metrics(Some(Duration::from_nanos(1)));
        metrics.write(&pump("p", 7, |_| {})).expect("taken");
        metrics.write(&pump("p", 8, |_| {})).expect("taken");
        assert_eq!((metrics.latest.len(), metrics.count), (2, 4));
        metrics.write(&Entry { kind: Message::Dispose, ..pump("p", 7, |_| {}) }).expect("taken");
        assert_eq!((metrics.latest.len(), metrics.count), (1, 2));
        while metrics.latest.values().any(|latest| latest.at.elapsed().is_zero()) {
            thread::yield_now();
        }
        metrics.expire();
        assert_eq!((metrics.text(), metrics.count), (String::new(), 0));
    }

    #[test]
    fn there_are_not_more_numbers_than_the_limit() {
        let mut metrics = metrics(None);
        let large = |id, len| pump("p", id, |record| record.resize("cores", len).expect("set"));
        metrics.write(&large(1, MAX_NUMBERS - 2)).expect("taken");
        assert!(matches!(metrics.write(&large(2, 0)), Err(HandlerError::Refused(_))));
        metrics.write(&large(1, 0)).expect("an instance is replaced");
        metrics.write(&large(2, 0)).expect("taken");
    }
}
