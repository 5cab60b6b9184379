//! The input `command`: reads the output of a command, JSON or words `NAME=VALUE`.

use std::{
    io::Read as _,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use polywire::Message as _;

use super::{
    Metrics,
    fetch::Fetch,
    flat::{add, flatten},
    needed,
};
use crate::{MeasureError, Parameter, ProbeType, Settings, probe::boxed};

const COMMAND: Parameter =
    Parameter { name: "command", summary: "Shell command that prints a JSON object, or words NAME=VALUE", default: "" };

const TIMEOUT: Parameter =
    Parameter { name: "timeout", summary: "Seconds after which the command is killed", default: "10" };

/// The maximum value of the parameter `timeout`, in seconds.
const MAX_SECONDS: usize = 3600;

/// The maximum number of bytes that a command may print.
const MAX_BYTES: u64 = 1 << 20;

pub(super) const PROBE: ProbeType = ProbeType {
    name: "command",
    summary: "What a command prints: numbers by name",
    uuid: super::UUID,
    version: super::VERSION,
    pdl: super::PDL,
    every: Duration::from_secs(10),
    parameters: &[COMMAND, TIMEOUT],
    shape: Metrics::shape,
    open: |_, settings| open(settings).map(boxed::<Metrics>),
};

fn open(settings: &Settings) -> Result<Fetch, MeasureError> {
    let command = settings.get(&COMMAND).to_owned();
    if command.is_empty() {
        return Err(needed(&COMMAND, "a shell command"));
    }
    let timeout = Duration::from_secs(settings.number(&TIMEOUT, MAX_SECONDS)? as u64);
    Fetch::start(&format!("command '{command}'"), move || read(&output(&command, timeout)?))
}

/// Runs a command and returns its output. The command runs in a process group of its own. When it
/// times out, the whole group is killed, so that no process of it is left.
fn output(command: &str, timeout: Duration) -> Result<String, String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = shell.spawn().map_err(|error| format!("cannot run sh: {error}"))?;
    let out = child.stdout.take().ok_or("it has no output")?;
    let (tell, told) = mpsc::channel();
    let reading = thread::Builder::new().name("input-output".into()).spawn(move || {
        let mut text = String::new();
        let read = out.take(MAX_BYTES + 1).read_to_string(&mut text);
        // After the timeout, the receiver is gone.
        let _ = tell.send(read.map(|_| text));
    });
    let text = match reading {
        Ok(_) => told.recv_timeout(timeout).map_err(|_| format!("it has not ended after {} s", timeout.as_secs())),
        Err(error) => Err(format!("cannot start a thread: {error}")),
    };
    let too_long = || format!("it prints more than {MAX_BYTES} bytes");
    let text = text.and_then(|text| text.map_err(|error| error.to_string()));
    let text = text.and_then(|text| if text.len() as u64 > MAX_BYTES { Err(too_long()) } else { Ok(text) });
    if text.is_err() {
        kill(&child);
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    match text {
        Ok(_) if !status.success() => Err(format!("it has failed: {status}")),
        text => text,
    }
}

fn kill(child: &Child) {
    let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        // Fails if all processes of the group have ended.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

fn read(text: &str) -> Result<Metrics, String> {
    let mut sample = Metrics::default();
    let text = text.trim();
    match text.starts_with('{') {
        true => {
            let value: serde_json::Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
            flatten(&mut String::new(), &value, &mut sample);
        }
        false => text.split_whitespace().for_each(|word| match word.split_once('=') {
            Some((name, value)) if !name.is_empty() => add(&mut sample, name, value.parse().ok(), value),
            _ => sample.refused += 1,
        }),
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Label, MAX_METRICS};

    fn numbers(sample: &Metrics) -> Vec<(&str, f64)> {
        sample.metrics.iter().map(|metric| (metric.name.as_str(), metric.value)).collect()
    }

    #[test]
    fn json_and_words_are_read() {
        let sample = read(r#" {"a":{"b":1.5,"c":[true,null,"x"]},"d":-2} "#).expect("JSON");
        assert_eq!(numbers(&sample), [("a.b", 1.5), ("a.c.0", 1.0), ("d", -2.0)]);
        assert_eq!(sample.texts, [Label { name: "a.c.2".into(), value: "x".into() }]);
        let sample = read("level=2.5 name=tank\nrpm=3e3 x =1").expect("words");
        assert_eq!((numbers(&sample), sample.refused), (vec![("level", 2.5), ("rpm", 3000.0)], 2));
        assert_eq!(sample.texts.len(), 1);
        assert!(read("{").is_err_and(|text| text.starts_with("no JSON")));
        let deep = "{\"a\":".repeat(10_000);
        assert!(read(&deep).is_err(), "the depth is bounded");
        let many = format!("[{}]", vec!["1"; MAX_METRICS + 5].join(","));
        let sample = read(&format!("{{\"a\":{many}}}")).expect("JSON");
        assert_eq!((sample.metrics.len(), sample.refused), (MAX_METRICS, 5));
    }

    #[test]
    fn commands_that_fail_hang_or_flood_are_told() {
        let long = Duration::from_secs(100);
        assert_eq!(output("echo a=1", long).as_deref(), Ok("a=1\n"));
        assert!(output("exit 3", long).is_err_and(|text| text.starts_with("it has failed")));
        let hangs = output("sleep 1000 & sleep 1000", Duration::from_millis(100));
        assert!(hangs.is_err_and(|text| text.starts_with("it has not ended")));
        assert!(output("yes", long).is_err_and(|text| text.starts_with("it prints more")));
        assert!(output("printf '\\377'", long).is_err());
    }
}
