//! The audit of commands: who sent which command, and its result. A topic, and a file of the node.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use polywire::{
    Info, Message, Node, NodeError, Publisher, Wire,
    codec::{Encoder, Options, json::JSON},
    qos::{Durability, History, Qos, Reliability},
};

use crate::{Identity, Moment, disk::sync_folder_of};

/// The topic on which nodes publish the records of commands.
pub const AUDIT: &str = "telemetry/audit";

/// The maximum size of an [`AuditFile`] in bytes. Before a file exceeds it, the file is renamed to
/// `FILE.1` and replaces the previous file of that name.
pub const MAX_AUDIT_BYTES: u64 = 1 << 20;

/// The number of records of each node that late joiners receive.
const LATEST: u32 = 64;

/// The maximum number of bytes of a request in a record.
const MAX_REQUEST_BYTES: usize = 4096;

/// Returns the QoS of [`AUDIT`]: a late joiner also receives the latest 64 records of each node.
pub fn audit_qos() -> Qos {
    let qos = Qos::default().reliability(Reliability::Reliable);
    qos.durability(Durability::TransientLocal).history(History::KeepLast(LATEST))
}

/// A command that a node has received, and its result.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::AuditRecord")]
pub struct AuditRecord {
    /// The UUID of the node.
    pub node: String,
    /// The name of the node.
    pub name: String,
    /// The number of the command since the start of the node, from 1.
    pub number: u64,
    /// When the node handled the command: nanoseconds since 1970, by the clock of the node.
    #[polywire(unit = "ns")]
    pub time_ns: i64,
    /// The authenticated principal of the sender; `anonymous` if the engine has no proof of
    /// identity.
    pub who: String,
    /// The address of the sender, or of a relay in between.
    pub address: String,
    /// The service that was called.
    pub service: String,
    /// The request as JSON, cut after 4096 bytes.
    pub request: String,
    /// Why the command was refused or has failed; empty if it succeeded.
    pub problem: String,
}

/// The records of a node in a file, one line of JSON each.
///
/// ```
/// use polywire_telemetry::command::{AuditFile, AuditRecord, MAX_AUDIT_BYTES};
///
/// let path = std::env::temp_dir().join(format!("polywire-audit-doc-{}", std::process::id()));
/// let mut file = AuditFile::open(&path)?;
/// file.append(&AuditRecord { who: "ann".into(), number: 1, ..AuditRecord::default() })?;
/// let text = std::fs::read_to_string(&path)?;
/// assert!(text.contains(r#""who":"ann""#) && text.len() < MAX_AUDIT_BYTES as usize);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct AuditFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Whether the last line may be incomplete: the process ended, or the disk failed, while
    /// writing it.
    is_torn: bool,
    lines: Encoder<AuditRecord>,
}

impl AuditFile {
    /// Opens a file, and creates it if it does not exist.
    pub fn open(path: &Path) -> io::Result<AuditFile> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let bytes = file.seek(SeekFrom::End(0))?;
        let mut last = [b'\n'];
        if bytes > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        sync_folder_of(path)?;
        let lines = Encoder::new(&JSON, &Options::default()).map_err(io::Error::other)?;
        Ok(AuditFile { path: path.to_owned(), file, bytes, is_torn: last != [b'\n'], lines })
    }

    /// Appends a record. Blocks until the record is on the disk. After an error, the file may
    /// contain a part of the record; the next record then begins a new line.
    pub fn append(&mut self, record: &AuditRecord) -> io::Result<()> {
        let mut line = if self.is_torn { b"\n".to_vec() } else { Vec::new() };
        self.lines.encode(record, &mut line).map_err(io::Error::other)?;
        line.push(b'\n');
        if self.bytes > 0 && self.bytes + line.len() as u64 > MAX_AUDIT_BYTES {
            self.rotate()?;
        }
        self.is_torn = true;
        self.file.write_all(&line)?;
        self.file.sync_data()?;
        self.is_torn = false;
        self.bytes += line.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let mut former = self.path.as_os_str().to_owned();
        former.push(".1");
        fs::rename(&self.path, former)?;
        self.file = OpenOptions::new().append(true).create(true).open(&self.path)?;
        self.bytes = 0;
        sync_folder_of(&self.path)
    }
}

/// Publishes and writes the records of commands.
pub(crate) struct Audit {
    topic: Publisher<AuditRecord>,
    file: Option<AuditFile>,
    /// Whether writing the last record to the file failed.
    fails: bool,
    /// The last record: its number, and the members that all records have in common.
    last: AuditRecord,
}

impl Audit {
    /// Makes the audit of this node, without a file.
    pub fn new(node: &Node, identity: &Identity, wire: &Wire) -> Result<Audit, NodeError> {
        let topic = node.publish::<AuditRecord>(AUDIT, Some(&wire.to_string()))?.qos(audit_qos())?.open()?;
        let (node, name) = (identity.uuid.to_string(), identity.name.clone());
        Ok(Audit { topic, file: None, fails: false, last: AuditRecord { node, name, ..AuditRecord::default() } })
    }

    /// Also writes records to a file from now on.
    pub fn write_to(&mut self, file: AuditFile) {
        self.file = Some(file);
    }

    /// Records a request, given as JSON. `problem` is empty if the command succeeded.
    pub fn record(&mut self, info: &Info, service: &str, mut request: String, problem: &str, now: Moment) {
        let link = &info.source.link;
        request.truncate(request.floor_char_boundary(MAX_REQUEST_BYTES));
        self.last.number += 1;
        self.last = AuditRecord {
            time_ns: now.wall_ns,
            who: link.principal.to_string(),
            address: link.address.clone(),
            service: service.to_owned(),
            request,
            problem: problem.to_owned(),
            ..std::mem::take(&mut self.last)
        };
        if let Err(error) = self.topic.publish(&self.last) {
            log::warn!("the record of a command cannot be published: {error}");
        }
        let Some(file) = &mut self.file else { return };
        let written = file.append(&self.last);
        if let (Err(error), false) = (&written, self.fails) {
            log::warn!("cannot write the audit file {}: {error}", file.path.display());
        }
        self.fails = written.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_bounded_and_begins_a_line_after_a_torn_one() {
        let folder = std::env::temp_dir().join(format!("polywire-audit-{}", std::process::id()));
        let (path, former) = (folder.join("a.audit"), folder.join("a.audit.1"));
        let record = |number| AuditRecord { number, request: "x".repeat(MAX_REQUEST_BYTES), ..AuditRecord::default() };
        let mut file = AuditFile::open(&path).expect("opened");
        file.append(&record(1)).expect("written");
        drop(file);
        // The process was killed while it wrote a line.
        OpenOptions::new().append(true).open(&path).and_then(|mut f| f.write_all(b"{\"no")).expect("torn");
        let mut file = AuditFile::open(&path).expect("opened");
        file.append(&record(2)).expect("written");
        let text = fs::read_to_string(&path).expect("read");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[1]), (3, "{\"no"));
        assert!(lines[2].contains("\"number\":2"), "{}", lines[2]);
        for number in 3..1000 {
            file.append(&record(number)).expect("written");
        }
        let last = fs::read_to_string(&path).expect("read");
        assert!(last.lines().last().is_some_and(|line| line.contains("\"number\":999")));
        for path in [&path, &former] {
            let bytes = fs::metadata(path).expect("there").len();
            assert!((1..=MAX_AUDIT_BYTES).contains(&bytes), "{bytes}");
        }
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 2);
        fs::remove_dir_all(folder).expect("removed");
    }
}
