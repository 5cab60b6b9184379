//! The input `lines`: programs of any language send values as JSON lines to a Unix socket.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::UnixDatagram,
    },
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use polywire::Message as _;
use serde_json::Value;

use super::{
    Label, MAX_METRICS, Metrics,
    flat::flatten,
    problem,
    registry::{Key, Registry},
};
use crate::{Measure, MeasureError, Moment, Parameter, ProbeType, Settings, probe::boxed};

const PATH: Parameter =
    Parameter { name: "path", summary: "Unix socket for datagrams, which the node makes", default: "" };

/// How often the thread checks whether the probe still exists.
const TICK: Duration = Duration::from_millis(100);

/// The maximum size of a datagram in bytes.
const MAX_BYTES: usize = 1 << 18;

pub(super) const PROBE: ProbeType = ProbeType {
    name: "lines",
    summary: "What programs send as JSON lines to a Unix socket",
    uuid: super::UUID,
    version: super::VERSION,
    pdl: super::PDL,
    every: Duration::from_secs(1),
    parameters: &[PATH],
    shape: Metrics::shape,
    open: |_, settings| open(settings).map(boxed::<Metrics>),
};

/// The latest values.
#[derive(Default)]
struct Values {
    registry: Registry,
    texts: Mutex<BTreeMap<String, String>>,
}

/// The values. A thread updates them until the server is dropped.
struct Server {
    values: Arc<Values>,
    path: PathBuf,
}

fn open(settings: &Settings) -> Result<Server, MeasureError> {
    let path = PathBuf::from(settings.get(&PATH));
    if path.as_os_str().is_empty() {
        return Err(super::needed(&PATH, "the path of a socket"));
    }
    let what = path.display().to_string();
    let failed = |error: io::Error| problem(&what, error);
    let socket = bind(&path).map_err(failed)?;
    socket.set_read_timeout(Some(TICK)).map_err(failed)?;
    let server = Server { values: Arc::default(), path };
    let weak = Arc::downgrade(&server.values);
    thread::Builder::new().name("lines".into()).spawn(move || receive(&socket, &weak)).map_err(failed)?;
    Ok(server)
}

/// Creates a socket that only this user's processes can use. A stale socket of an ended process is
/// replaced.
fn bind(path: &Path) -> io::Result<UnixDatagram> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        match UnixDatagram::unbound()?.connect(path) {
            Ok(()) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process has this socket")),
            Err(_) => fs::remove_file(path)?,
        }
    }
    let socket = UnixDatagram::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

impl Drop for Server {
    fn drop(&mut self) {
        // Another process may have removed the socket.
        let _ = fs::remove_file(&self.path);
    }
}

impl Measure<Metrics> for Server {
    fn measure(&mut self, _: Moment, sample: &mut Metrics) -> Result<(), MeasureError> {
        self.values.registry.read(sample);
        let texts = self.values.texts.lock();
        sample.texts = texts.iter().map(|(name, value)| Label { name: name.clone(), value: value.clone() }).collect();
        Ok(())
    }
}

fn receive(socket: &UnixDatagram, values: &Weak<Values>) {
    let mut bytes = vec![0; MAX_BYTES + 1];
    while let Some(values) = values.upgrade() {
        match socket.recv(&mut bytes) {
            Ok(len) if len > MAX_BYTES => values.registry.refuse(),
            Ok(len) => values.take(bytes.get(..len).unwrap_or_default()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            // An error of the socket may be permanent: the thread must not use all processor time.
            Err(_) => thread::sleep(TICK),
        }
    }
}

impl Values {
    /// Applies the lines of a datagram. Invalid lines are counted as refused.
    fn take(&self, datagram: &[u8]) {
        for line in datagram.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            match parse(line) {
                Some((probe, value)) => self.apply(probe, &value),
                None => self.registry.refuse(),
            }
        }
    }

    fn apply(&self, mut probe: String, value: &Value) {
        let mut found = Metrics::default();
        flatten(&mut probe, value, &mut found);
        (0..found.refused).for_each(|_| self.registry.refuse());
        for metric in found.metrics {
            // The registry counts the figures that it refuses.
            self.registry.gauge(Key::new(metric.name, Vec::new())).iter().for_each(|gauge| gauge.set(metric.value));
        }
        let mut texts = self.texts.lock();
        for Label { name, value } in found.texts {
            match texts.len() < MAX_METRICS || texts.contains_key(&name) {
                true => drop(texts.insert(name, value)),
                false => self.registry.refuse(),
            }
        }
    }
}

/// Parses `{"probe":NAME,"value":VALUE}`.
fn parse(line: &[u8]) -> Option<(String, Value)> {
    let Value::Object(mut members) = serde_json::from_slice(line).ok()? else { return None };
    let (Value::String(probe), value) = (members.remove("probe")?, members.remove("value")?) else { return None };
    (members.is_empty() && !probe.is_empty()).then_some((probe, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::registry::MAX_NAME_BYTES;

    fn sample(values: Values) -> Metrics {
        let mut server = Server { values: Arc::new(values), path: PathBuf::new() };
        let mut sample = Metrics::default();
        server.measure(Moment::default(), &mut sample).expect("a sample");
        sample
    }

    #[test]
    fn the_latest_values_count() {
        let values = Values::default();
        values.take(b"{\"probe\":\"pump\",\"value\":{\"bar\":2.5,\"on\":true,\"state\":\"up\"}}\n\n");
        values
            .take(b"{\"value\":{\"bar\":3,\"state\":\"down\"},\"probe\":\"pump\"}\n{\"probe\":\"level\",\"value\":7}");
        let found = sample(values);
        let metrics: Vec<(&str, f64)> = found.metrics.iter().map(|m| (m.name.as_str(), m.value)).collect();
        assert_eq!(metrics, [("level", 7.0), ("pump.bar", 3.0), ("pump.on", 1.0)]);
        assert_eq!(found.texts, [Label { name: "pump.state".into(), value: "down".into() }]);
        assert_eq!(found.refused, 0);
    }

    #[test]
    fn hostile_lines_are_counted() {
        let values = Values::default();
        let deep = format!("{{\"probe\":\"a\",\"value\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
        let long = format!("{{\"probe\":\"a\",\"value\":\"{}\"}}", "x".repeat(MAX_NAME_BYTES));
        let lines: [&[u8]; 9] = [
            b"x",
            b"1",
            b"{}",
            b"{\"probe\":1,\"value\":1}",
            b"{\"probe\":\"a\"}",
            b"{\"probe\":\"\",\"value\":1}",
            b"{\"probe\":\"a\",\"value\":1,\"more\":1}",
            deep.as_bytes(),
            long.as_bytes(),
        ];
        lines.iter().for_each(|line| values.take(line));
        values.take(b"\xff\xfe");
        for number in 0..MAX_METRICS + 2 {
            values.take(format!("{{\"probe\":\"p{number}\",\"value\":\"t\"}}").as_bytes());
        }
        let found = sample(values);
        assert_eq!((found.metrics.len(), found.texts.len(), found.refused), (0, MAX_METRICS, 12));
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
        let folder = std::env::temp_dir().join(format!("polywire-lines-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("a.sock");
        drop(UnixDatagram::bind(&path).expect("left behind"));
        let mut settings = Settings::default();
        assert!(open(&settings).is_err_and(|error| error.to_string().contains("the path of a socket is expected")));
        settings.set(PROBE.parameters, "path", path.to_str().expect("UTF-8")).expect("known");
        let mut server = open(&settings).expect("opened");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert!(open(&settings).is_err_and(|error| error.to_string().ends_with("another process has this socket")));
        let sender = UnixDatagram::unbound().expect("a socket");
        sender.send_to(b"{\"probe\":\"level\",\"value\":7}", &path).expect("sent");
        let mut found = Metrics::default();
        while found.metrics.is_empty() {
            thread::yield_now();
            server.measure(Moment::default(), &mut found).expect("a sample");
        }
        drop(server);
        assert!(!path.exists());
        fs::write(&path, "a file").expect("written");
        assert!(open(&settings).is_err() && path.exists(), "other files are left alone");
        fs::remove_dir_all(folder).expect("removed");
    }
}
