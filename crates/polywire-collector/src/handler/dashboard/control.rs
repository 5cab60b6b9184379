//! Commands from the page to nodes. Only pages with the secret may send them.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use polywire::{Node, service::Client};
use polywire_telemetry::{
    Setting,
    command::{Action, Command, CommandReply, service_of},
};
use serde::Deserialize;
use serde_json::json;

use super::system::Known;
use crate::{files::beside, handler::foxglove::Reply};

/// The time limit for the reply of a node.
const PATIENCE: Duration = Duration::from_secs(5);

/// The maximum number of commands under way at a time.
const MAX_COMMANDS: usize = 8;

/// The size of the secret in bytes.
const SECRET: usize = 16;

pub(super) struct Control {
    node: Node,
    known: Known,
    secret: String,
    under_way: Arc<AtomicUsize>,
}

/// A request of a page.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", deny_unknown_fields)]
enum Asked {
    Command {
        /// The page's number of the request, which the reply repeats.
        id: u32,
        secret: String,
        /// The UUID of the node.
        node: String,
        /// The probe; empty for the node itself.
        instance: String,
        /// Names and values.
        settings: Vec<(String, String)>,
    },
}

impl Control {
    /// Makes the control of known nodes. Fails if the system has no random numbers.
    pub fn new(node: Node, known: Known) -> io::Result<Control> {
        let mut bytes = [0; SECRET];
        fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let secret = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Control { node, known, secret, under_way: Arc::default() })
    }

    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Executes the request of a page on a thread of its own. The error is a text for the user.
    pub fn ask(&self, text: &str, reply: Reply) -> Result<(), String> {
        let asked = serde_json::from_str(text).map_err(|error| format!("no command: {error}"))?;
        let Asked::Command { id, secret, node: uuid, instance, settings } = asked;
        if !is_equal(secret.as_bytes(), self.secret.as_bytes()) {
            return Err("this page is read-only: open it by the address in the file that 'control' names".into());
        }
        let (name, place) = self.known.find(&uuid).ok_or("there is no such node any more")?;
        if self.under_way.fetch_add(1, Ordering::AcqRel) >= MAX_COMMANDS {
            self.under_way.fetch_sub(1, Ordering::AcqRel);
            return Err(format!("{MAX_COMMANDS} commands are under way; try again later"));
        }
        let settings = settings.into_iter().map(|(name, value)| Setting { name, value }).collect();
        let command = Command { action: Action::Set, instance, settings, ..Command::to(&uuid) };
        let (node, under_way) = (self.node.clone(), self.under_way.clone());
        let run = move || {
            let problem = call(&node, &name, &place, &command).err().unwrap_or_default();
            under_way.fetch_sub(1, Ordering::AcqRel);
            reply(json!({ "op": "reply", "id": id, "problem": problem }).to_string());
        };
        let started = thread::Builder::new().name("dashboard command".into()).spawn(run);
        started.map(drop).map_err(|error| {
            self.under_way.fetch_sub(1, Ordering::AcqRel);
            format!("no thread for the command: {error}")
        })
    }
}

fn call(node: &Node, name: &str, place: &str, command: &Command) -> Result<(), String> {
    let client = node.client(&service_of(name), Some(place)).and_then(|client| client.open());
    let client: Client<Command, CommandReply> = client.map_err(|error| error.to_string())?;
    client.wait_for_server(PATIENCE).map_err(|error| error.to_string())?;
    let reply = client.call(command, PATIENCE).map_err(|error| error.to_string())?;
    match reply.is_done() {
        true => Ok(()),
        false => Err(reply.problem()),
    }
}

/// Compares two texts in a time that does not depend on where they differ.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Removes a file, if it is there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file that only this user can read. A reader never sees an incomplete file.
pub(super) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let written = beside(path, "new");
    remove(&written)?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&written)?;
    file.write_all(text.as_bytes())?;
    fs::rename(written, path)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn commands_need_the_secret_and_a_known_node() {
        let control = Control::new(Node::new(), Known::default()).expect("random numbers");
        let ask = |secret: &str| {
            let (tell, told) = mpsc::channel();
            let reply = Box::new(move |text| drop(tell.send(text)));
            let asked =
                json!({ "op": "command", "id": 1, "secret": secret, "node": "x", "instance": "", "settings": [] });
            (control.ask(&asked.to_string(), reply), told)
        };
        assert_eq!(control.secret().len(), 2 * SECRET);
        assert!(ask("").0.is_err_and(|why| why.contains("read-only")));
        assert!(ask(&"0".repeat(2 * SECRET)).0.is_err_and(|why| why.contains("read-only")));
        assert!(ask(control.secret()).0.is_err_and(|why| why.contains("no such node")));
        for text in ["", "{}", r#"{"op":"command"}"#, r#"{"op":"command","id":-1}"#] {
            assert!(control.ask(text, Box::new(|_| {})).is_err(), "{text}");
        }
    }

    #[test]
    fn the_file_is_for_this_user_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("polywire-dashboard-{}", std::process::id()));
        fs::write(&path, "old").expect("a file");
        write_private(&path, "new").expect("a file");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "new");
        fs::remove_file(&path).expect("it is there");
    }
}
