//! The kind `mcap`: files for Foxglove and compatible tools, with JSON or CDR (`coding`) and their
//! schemas.
//!
//! Chunks are appended as a whole, so an interrupted file can be read up to its last chunk. When
//! the handler finds such a file, it completes it. Each start begins a new file.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use mcap::{
    Compression, MAGIC, McapError, WriteOptions, Writer, io::MessageReader, records::MessageHeader,
    sans_io::LinearReaderOptions,
};
use polywire::{Kind as Message, Shape};

use super::{
    Handler, Kind,
    coding::{Coding, FORMAT, Format},
    file::{ROTATION, Rotation, full},
};
use crate::{
    Entry, Expects, HandlerError, JsonText, Origin, Setting,
    files::{beside, sync_folder},
    json::PerType,
};

/// The number of message bytes after which a chunk ends.
const CHUNK: u64 = 1 << 20;

/// The maximum number of channels of a file. The format permits 65,535.
const MAX_CHANNELS: u16 = 32_768;

/// The maximum number of pairs of origin and type whose channel is cached.
const MAX_KNOWN: usize = 4096;

/// The maximum size of a record when an interrupted file is completed. Chunks are not much larger
/// than the largest message.
const MAX_RECORD: usize = 1 << 28;

pub(super) static KIND: Kind = Kind {
    name: "mcap",
    summary: "MCAP files with JSON or CDR for Foxglove, with rotation",
    settings: &{
        let [bytes, time, keep, _] = ROTATION;
        let path = Setting { name: "path", expects: Expects::Required, summary: "the file" };
        let zstd = Setting { name: "zstd", expects: Expects::Truth, summary: "compresses chunks; true is the default" };
        [path, FORMAT, bytes, time, keep, zstd]
    },
    open: |settings, _| {
        let path = Path::new(settings.text("path").unwrap_or_default());
        let is_compressed = settings.truth("zstd").unwrap_or(cfg!(feature = "zstd"));
        let rotation = Rotation { zstd: false, ..Rotation::of(settings)? };
        let recording = Recording {
            path: path.to_owned(),
            rotation,
            options: options(is_compressed),
            format: Format::of(settings)?,
            file: None,
            codings: PerType::default(),
            json: JsonText::default(),
            bytes: Vec::new(),
        };
        recording.put_away()?;
        Ok(Box::new(recording))
    },
};

fn options(is_compressed: bool) -> WriteOptions {
    let options = WriteOptions::new().library(concat!("polywire ", env!("CARGO_PKG_VERSION")));
    // Without seeking, a chunk is written when it is complete.
    options.compression(compression(is_compressed)).chunk_size(Some(CHUNK)).disable_seeking(true)
}

#[cfg(feature = "zstd")]
fn compression(is_compressed: bool) -> Option<Compression> {
    is_compressed.then_some(Compression::Zstd)
}

/// Without the feature, [`Rotation::of`] rejects the setting.
#[cfg(not(feature = "zstd"))]
fn compression(_: bool) -> Option<Compression> {
    None
}

struct Recording {
    path: PathBuf,
    rotation: Rotation,
    options: WriteOptions,
    /// The current file, created for the first message.
    file: Option<OpenFile>,
    format: Format,
    codings: PerType<Coding>,
    json: JsonText,
    bytes: Vec<u8>,
}

/// A file that is being written.
struct OpenFile {
    path: PathBuf,
    /// `None` after the file has been closed.
    writer: Option<Writer<BufWriter<File>>>,
    /// The file of `writer`.
    file: File,
    began: Instant,
    /// A cache of the channels by origin, type and kind.
    known: HashMap<ChannelKey, Channel>,
    /// The highest channel number.
    channels: u16,
    /// The number of bytes that are on the disk.
    stored: u64,
    /// Whether messages were written that are not on the disk.
    is_dirty: bool,
}

/// The key of a channel: an origin, a type and a kind. The first two are addresses; the cached
/// value keeps them allocated.
type ChannelKey = (usize, usize, Message);
type Channel = (Arc<Origin>, Arc<Shape>, u16);

impl Handler for Recording {
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        if self.is_full() {
            self.rotate()?;
        }
        let Recording { path, options, file, format, codings, json, bytes, .. } = self;
        let shape = entry.value.shape();
        let coding = codings.get(shape, || Ok::<_, HandlerError>(Coding::of(*format, shape)))?;
        coding.encode(entry, json, bytes)?;
        let file = match file {
            Some(file) => file,
            none => none.insert(OpenFile::create(path, options.clone())?),
        };
        let failed = |error: McapError| failed(path, &error);
        file.is_dirty = true;
        let channel = file.channel(entry, coding).map_err(failed)?;
        let time = u64::try_from(entry.timestamp_ns).unwrap_or(0);
        // The format has only 32 bits for the sequence number.
        let sequence = entry.sequence as u32;
        let header = MessageHeader { channel_id: channel, sequence, log_time: time, publish_time: time };
        file.writer()?.write_to_known_channel(&header, bytes).map_err(failed)
    }

    fn sync(&mut self) -> Result<(), HandlerError> {
        self.file.as_mut().map_or(Ok(()), OpenFile::sync)
    }
}

impl Recording {
    fn is_full(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let is_large = self.rotation.bytes.is_some_and(|most| file.stored >= most);
        let is_old = self.rotation.time.is_some_and(|most| file.began.elapsed() >= most);
        is_large || is_old || file.channels >= MAX_CHANNELS
    }

    fn rotate(&mut self) -> Result<(), HandlerError> {
        if let Some(mut file) = self.file.take() {
            file.sync()?;
            file.finish()?;
        }
        full(&self.path, self.rotation)
    }

    /// Renames an existing file with its number. An incomplete file is completed first.
    fn put_away(&self) -> Result<(), HandlerError> {
        let path = &self.path;
        let found = match ends(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(HandlerError::file(path, &error)),
        };
        match found {
            Ends::Complete => full(path, self.rotation),
            Ends::Interrupted => {
                complete(path, self.options.clone())?;
                full(path, self.rotation)
            }
            Ends::TooShort => fs::remove_file(path).map_err(|cause| HandlerError::file(path, &cause)),
            Ends::Other => Err(HandlerError::Setting(format!("'path': {} is there and no MCAP file", path.display()))),
        }
    }
}

fn failed(path: &Path, error: &McapError) -> HandlerError {
    HandlerError::Failed(format!("{}: {error}", path.display()))
}

impl OpenFile {
    fn create(path: &Path, options: WriteOptions) -> Result<OpenFile, HandlerError> {
        let wrong = |cause| HandlerError::file(path, &cause);
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(wrong)?;
        }
        let file = File::create_new(path).map_err(wrong)?;
        sync_folder(path).map_err(wrong)?;
        let writer = options.create(BufWriter::new(file.try_clone().map_err(wrong)?));
        Ok(OpenFile {
            path: path.to_owned(),
            writer: Some(writer.map_err(|error| failed(path, &error))?),
            file,
            began: Instant::now(),
            known: HashMap::new(),
            channels: 0,
            stored: 0,
            is_dirty: false,
        })
    }

    fn writer(&mut self) -> Result<&mut Writer<BufWriter<File>>, HandlerError> {
        self.writer.as_mut().ok_or_else(|| HandlerError::Failed(format!("{} is closed", self.path.display())))
    }

    /// Returns the channel of an entry, and adds it if necessary.
    fn channel(&mut self, entry: &Entry, coding: &Coding) -> Result<u16, McapError> {
        let (origin, shape) = (&entry.origin, entry.value.shape());
        let key = (Arc::as_ptr(origin).addr(), Arc::as_ptr(shape).addr(), entry.kind);
        if let Some((_, _, channel)) = self.known.get(&key) {
            return Ok(*channel);
        }
        let Some(writer) = &mut self.writer else { return Err(McapError::AttemptedWriteAfterFailure) };
        let schema = writer.add_schema(&coding.type_name, coding.schema_encoding, coding.schema.as_bytes())?;
        // Viewers would take the end of an instance for a value, so it has a topic of its own.
        let topic = match entry.kind {
            Message::Data => origin.topic.clone(),
            kind => format!("{}#{}", origin.topic, kind.name()),
        };
        let mut metadata = BTreeMap::from([
            ("writer".to_owned(), origin.writer.to_string()),
            ("incarnation".to_owned(), origin.incarnation.to_string()),
            ("kind".to_owned(), entry.kind.name().to_owned()),
        ]);
        if let Some(idl) = &coding.idl {
            metadata.insert("idl".to_owned(), idl.clone());
            metadata.insert("type".to_owned(), entry.type_name().to_owned());
        }
        let channel = writer.add_channel(schema, &topic, coding.message_encoding, &metadata)?;
        // Channel numbers increase; equal origins and types share a channel.
        self.channels = self.channels.max(channel);
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(key, (origin.clone(), shape.clone(), channel));
        Ok(channel)
    }

    /// Ends the chunk and writes it to the disk.
    fn sync(&mut self) -> Result<(), HandlerError> {
        if !self.is_dirty {
            return Ok(());
        }
        let path = self.path.clone();
        self.writer()?.flush().map_err(|error| failed(&path, &error))?;
        let stored = self.file.sync_data().and_then(|()| self.file.metadata());
        self.stored = stored.map_err(|cause| HandlerError::file(&path, &cause))?.len();
        self.is_dirty = false;
        Ok(())
    }

    /// Writes the index and the end of the file.
    fn finish(&mut self) -> Result<(), HandlerError> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let finished = writer.finish();
        drop(writer);
        finished.map_err(|error| failed(&self.path, &error))?;
        self.file.sync_all().map_err(|cause| HandlerError::file(&self.path, &cause))
    }
}

impl Drop for OpenFile {
    /// Removes data that is not stored, because it will be written again; otherwise completes the
    /// file.
    fn drop(&mut self) {
        if !self.is_dirty {
            if let Err(error) = self.finish() {
                log::warn!("the file is completed when it is found again: {error}");
            }
            return;
        }
        if let Some(writer) = self.writer.take() {
            // Dropping the writer itself would complete the file.
            drop(writer.into_inner());
        }
        let _ = match self.stored {
            0 => fs::remove_file(&self.path),
            stored => self.file.set_len(stored),
        };
    }
}

/// The state of a file, judged by its beginning and end.
#[derive(Debug, PartialEq, Eq)]
enum Ends {
    Complete,
    Interrupted,
    /// The file contains only a part of the magic bytes.
    TooShort,
    Other,
}

fn ends(path: &Path) -> io::Result<Ends> {
    let mut file = File::open(path)?;
    let (len, magic) = (file.metadata()?.len(), MAGIC.len() as u64);
    let (mut first, mut last) = (Vec::new(), Vec::new());
    (&mut file).take(magic).read_to_end(&mut first)?;
    file.seek(SeekFrom::Start(len.saturating_sub(magic)))?;
    file.read_to_end(&mut last)?;
    Ok(match (MAGIC.starts_with(&first), len > magic) {
        (false, _) => Ends::Other,
        (true, false) => Ends::TooShort,
        (true, true) if last == MAGIC => Ends::Complete,
        (true, true) => Ends::Interrupted,
    })
}

/// Replaces an interrupted file by a complete one with its chunks up to the first one that is not
/// intact. If what follows is more than a torn end, the file is kept under another name.
fn complete(path: &Path, options: WriteOptions) -> Result<(), HandlerError> {
    let wrong = |cause: io::Error| HandlerError::file(path, &cause);
    let mut partial: OsString = path.into();
    partial.push(".part");
    let target = File::create(&partial).map_err(wrong)?;
    let writer = options.create(BufWriter::new(target.try_clone().map_err(wrong)?));
    let mut writer = writer.map_err(|error| failed(path, &error))?;
    let options = LinearReaderOptions::default().with_record_length_limit(MAX_RECORD).with_prevalidate_chunk_crcs(true);
    let reader = BufReader::new(File::open(path).map_err(wrong)?);
    let (mut messages, mut end) = (0_u64, None);
    for message in MessageReader::new_with_options(reader, options) {
        match message {
            Ok(message) => copy(&message, &mut writer).map_err(|error| failed(path, &error))?,
            Err(error) if is_unreadable(&error) => return Err(failed(path, &error)),
            Err(error) => {
                end = Some(error);
                break;
            }
        }
        messages += 1;
    }
    writer.finish().map_err(|error| failed(path, &error))?;
    drop(writer);
    target.sync_all().map_err(wrong)?;
    if end.as_ref().is_some_and(|error| !matches!(error, McapError::UnexpectedEof)) {
        set_aside(path).map_err(wrong)?;
    }
    fs::rename(&partial, path).and_then(|()| sync_folder(path)).map_err(wrong)?;
    let reason = end.map_or("it has no index".to_owned(), |error| error.to_string());
    log::warn!("{} was interrupted ({reason}): it is completed with its {messages} messages", path.display());
    Ok(())
}

/// Returns whether reading has failed because of the disk or the system, and not because of what
/// the file contains.
fn is_unreadable(error: &McapError) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    let of_contents = |kind| matches!(kind, InvalidData | InvalidInput | UnexpectedEof);
    matches!(error, McapError::Io(cause) if !of_contents(cause.kind()))
}

/// Renames a damaged file, with a number if there is one of this name.
fn set_aside(path: &Path) -> io::Result<()> {
    let mut aside = beside(path, "damaged");
    let mut number = 1_u64;
    while aside.try_exists()? {
        number += 1;
        aside = beside(path, &format!("damaged.{number}"));
    }
    fs::rename(path, &aside)?;
    log::warn!("{} is damaged: it is kept as {}", path.display(), aside.display());
    Ok(())
}

fn copy(message: &mcap::Message<'_>, writer: &mut Writer<BufWriter<File>>) -> Result<(), McapError> {
    let mcap::Message { channel, sequence, log_time, publish_time, data } = message;
    let schema = match &channel.schema {
        Some(schema) => writer.add_schema(&schema.name, &schema.encoding, &schema.data)?,
        None => 0,
    };
    let channel_id = writer.add_channel(schema, &channel.topic, &channel.message_encoding, &channel.metadata)?;
    let header = MessageHeader { channel_id, sequence: *sequence, log_time: *log_time, publish_time: *publish_time };
    writer.write_to_known_channel(&header, data)
}

#[cfg(test)]
mod tests {
    use polywire::{Message as _, Record, extend::envelope::Id128};
    use polywire_testing::Folder;

    use super::*;

    #[derive(Default, polywire::Message)]
    #[polywire(name = "plant::Pump")]
    struct Pump {
        #[polywire(key)]
        id: u32,
        pressure: f64,
    }

    fn file(folder: &Folder) -> PathBuf {
        folder.path().join("a.mcap")
    }

    /// Returns the numbers of the pumps in a file, and whether the file is complete.
    fn pumps(folder: &Folder, name: &str) -> (Vec<u64>, bool) {
        let (mut pumps, mut is_whole) = (Vec::new(), true);
        for message in MessageReader::new(File::open(folder.path().join(name)).expect(name)) {
            let Ok(message) = message else {
                is_whole = false;
                break;
            };
            let value: serde_json::Value = serde_json::from_slice(&message.data).expect("JSON");
            pumps.push(value["id"].as_u64().expect("a number"));
        }
        (pumps, is_whole)
    }

    fn recording(folder: &Folder, rotation: Rotation) -> Recording {
        let recording = Recording {
            path: file(folder),
            rotation,
            options: options(true),
            format: Format::Json,
            file: None,
            codings: PerType::default(),
            json: JsonText::default(),
            bytes: Vec::new(),
        };
        recording.put_away().expect("it can begin");
        recording
    }

    /// Writes the pumps with these numbers.
    fn write(recording: &mut Recording, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            recording.write(&pump("plant/pump", number)).expect("written");
        }
    }

    fn pump(topic: &str, id: u32) -> Entry {
        let mut record = Record::new(&Shape::of(Pump::shape().schema()).expect("a shape"));
        record.set("id", id).expect("set");
        let origin = Origin { topic: topic.to_owned(), writer: Id128([7; 16]), incarnation: 3 };
        Entry::new(Arc::new(origin), id.into(), 1_700_000_000_000_000_000 + i64::from(id), record)
    }

    #[test]
    fn a_file_has_channels_with_schemas_and_an_index() {
        let folder = Folder::new("whole");
        let mut recording = recording(&folder, Rotation::default());
        let hostile = "<script>/\"x\"";
        for entry in [
            pump("plant/pump", 1),
            pump(hostile, 2),
            Entry { kind: Message::Dispose, ..pump("plant/pump", 1) },
            pump("plant/pump", 3),
        ] {
            recording.write(&entry).expect("written");
        }
        recording.sync().expect("stored");
        drop(recording);
        let bytes = fs::read(file(&folder)).expect("a file");
        let summary = mcap::Summary::read(&bytes).expect("readable").expect("there is one");
        let statistics = summary.stats.as_ref().expect("there are some");
        // Each origin has a channel; channels with the same content are shared.
        assert_eq!((statistics.message_count, statistics.channel_count, statistics.schema_count), (4, 3, 1));
        assert_eq!(summary.chunk_indexes.len(), 1);
        let mut topics: Vec<&str> = summary.channels.values().map(|channel| channel.topic.as_str()).collect();
        topics.sort();
        assert_eq!(topics, [hostile, "plant/pump", "plant/pump#dispose"]);
        let schema = summary.schemas.values().next().expect("there is one");
        assert_eq!((schema.name.as_str(), schema.encoding.as_str()), ("plant::Pump", "jsonschema"));
        let message =
            mcap::MessageStream::new(&bytes).expect("readable").next().expect("there are some").expect("whole");
        assert_eq!(&*message.data, br#"{"id":1,"pressure":0.0}"#);
        assert_eq!((message.sequence, message.log_time), (1, 1_700_000_000_000_000_001));
        let metadata = &message.channel.metadata;
        assert_eq!((metadata["incarnation"].as_str(), metadata["kind"].as_str()), ("3", "data"));
    }

    #[test]
    fn an_interrupted_file_is_completed_wherever_it_ends() {
        let folder = Folder::new("torn");
        let mut torn = recording(&folder, Rotation::default());
        write(&mut torn, 1..=3);
        torn.sync().expect("stored");
        let stored = fs::metadata(file(&folder)).expect("a file").len();
        write(&mut torn, 4..=6);
        torn.sync().expect("stored");
        let bytes = fs::read(file(&folder)).expect("a file");
        // Simulates that the process was killed.
        std::mem::forget(torn);
        let len = bytes.len();
        for at in (0..len).step_by(7).chain([len]) {
            fs::write(file(&folder), &bytes[..at]).expect("written");
            drop(recording(&folder, Rotation::default()));
            let names = folder.names();
            // A chunk is complete before the bytes that follow it.
            let least = [at as u64 >= stored, at == len].iter().filter(|is_stored| **is_stored).count() as u64 * 3;
            match names.as_slice() {
                [] => assert!(at <= MAGIC.len()),
                [name] => {
                    let (pumps, is_whole) = pumps(&folder, name);
                    assert!(is_whole && pumps.len() as u64 >= least, "{at} of {len} bytes, {stored} stored: {pumps:?}");
                    assert_eq!(pumps, (1..=pumps.len() as u64).collect::<Vec<_>>());
                }
                more => panic!("{more:?}"),
            }
            names.iter().for_each(|name| fs::remove_file(folder.path().join(name)).expect("removed"));
        }
    }

    #[test]
    fn damage_is_no_panic() {
        let folder = Folder::new("damage");
        let mut torn = recording(&folder, Rotation::default());
        write(&mut torn, 1..=50);
        torn.sync().expect("stored");
        let bytes = fs::read(file(&folder)).expect("a file");
        std::mem::forget(torn);
        for at in (MAGIC.len()..bytes.len()).step_by(3) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            fs::write(file(&folder), damaged).expect("written");
            drop(recording(&folder, Rotation::default()));
            let mut names = folder.names();
            assert_eq!(names.remove(0), "a.1.mcap");
            assert!(names.is_empty() || names == ["a.mcap.damaged"], "{names:?}");
            assert!(pumps(&folder, "a.1.mcap").1, "what is left is a whole file");
            fs::remove_file(folder.path().join("a.1.mcap")).expect("removed");
            names.iter().for_each(|name| fs::remove_file(folder.path().join(name)).expect("removed"));
        }
    }

    #[test]
    fn a_damaged_file_is_kept() {
        let folder = Folder::new("kept");
        let mut torn = recording(&folder, Rotation::default());
        write(&mut torn, 1..=3);
        torn.sync().expect("stored");
        let middle = fs::metadata(file(&folder)).expect("a file").len() as usize;
        write(&mut torn, 4..=6);
        torn.sync().expect("stored");
        let mut bytes = fs::read(file(&folder)).expect("a file");
        std::mem::forget(torn);
        // Near the end of the first chunk, within its messages.
        bytes[middle / 2..middle].iter_mut().for_each(|byte| *byte ^= 0x55);
        for kept in ["a.mcap.damaged", "a.mcap.damaged.2"] {
            fs::write(file(&folder), &bytes).expect("written");
            drop(recording(&folder, Rotation::default()));
            assert_eq!(fs::read(folder.path().join(kept)).expect("kept"), bytes);
        }
        let unreadable = McapError::Io(io::ErrorKind::PermissionDenied.into());
        assert!(is_unreadable(&unreadable) && !is_unreadable(&McapError::UnexpectedEof));
    }

    #[test]
    fn full_files_get_numbers_and_old_ones_go() {
        let folder = Folder::new("rotate");
        let rotation = Rotation { bytes: Some(1), keep: Some(2), ..Rotation::default() };
        let mut recording = recording(&folder, rotation);
        for number in 1..=5 {
            write(&mut recording, [number]);
            recording.sync().expect("stored");
        }
        assert_eq!(folder.names(), ["a.3.mcap", "a.4.mcap", "a.mcap"]);
        assert_eq!((pumps(&folder, "a.4.mcap"), pumps(&folder, "a.mcap")), ((vec![4], true), (vec![5], false)));
        // Entries that are not stored are written again, so they are removed here.
        write(&mut recording, [6]);
        recording.sync().expect("stored");
        write(&mut recording, [7]);
        drop(recording);
        assert_eq!(folder.names(), ["a.5.mcap", "a.6.mcap"]);
    }

    #[test]
    fn another_file_stays_as_it_is() {
        let folder = Folder::new("other");
        fs::write(file(&folder), "something else").expect("written");
        let other = Recording {
            path: file(&folder),
            rotation: Rotation::default(),
            options: options(false),
            format: Format::Json,
            file: None,
            codings: PerType::default(),
            json: JsonText::default(),
            bytes: Vec::new(),
        };
        let error = other.put_away().expect_err("it is no MCAP file").to_string();
        assert!(error.contains("a.mcap is there and no MCAP file"), "{error}");
        assert_eq!(fs::read_to_string(file(&folder)).expect("still there"), "something else");
    }
}
