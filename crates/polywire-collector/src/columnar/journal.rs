//! A journal: rows of one table in order of arrival, until they are converted into a Parquet file.
//! A Parquet file can be read only when it is complete, but rows must be stored at once.
//!
//! After [`MAGIC`] follow frames: the length of the body (4 bytes, little-endian), the CRC-32 of
//! the length and the body (4 bytes), and the body. The first body is JSON and describes the table,
//! the others are rows.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use polywire_telemetry::LockedFile;
use serde_json::{Value, json};

use super::{
    rows::{MAX_ROW, content_name, content_of},
    sequences::StoredSequences,
};
use crate::{CellValue, HandlerError, files::sync_folder, table::Layout};

const MAGIC: &[u8; 8] = b"PWROWS\x00\x01";

/// The extension of journals.
pub(crate) const ENDING: &str = "journal";

/// The number of bytes that are buffered before they are written.
const BUFFER: usize = 64 << 10;

/// A journal that is open for writing.
pub(crate) struct Journal {
    pub path: PathBuf,
    pub layout: Layout,
    file: LockedFile,
    buffer: Vec<u8>,
    began: SystemTime,
    /// The size of the file including the buffer, in bytes.
    len: u64,
    /// The number of bytes that are on the disk.
    stored: u64,
    pub rows: u64,
}

impl Journal {
    /// Creates a journal. `sequences` has the messages of the previous journals.
    pub fn create(path: &Path, layout: &Layout, sequences: &StoredSequences) -> Result<Journal, HandlerError> {
        let failed = |cause| HandlerError::file(path, &cause);
        let began = SystemTime::now();
        let since = began.duration_since(UNIX_EPOCH).unwrap_or_default();
        let columns: Vec<Value> =
            layout.columns.iter().map(|(name, column)| json!([name, content_name(*column)])).collect();
        let head = json!({
            "type": layout.type_name, "columns": columns, "began_s": since.as_secs(), "seen": sequences.to_json(),
        });
        let mut journal = Journal {
            path: path.to_owned(),
            layout: layout.clone(),
            file: lock(OpenOptions::new().read(true).write(true).create_new(true).open(path)).map_err(failed)?,
            buffer: MAGIC.to_vec(),
            began,
            len: MAGIC.len() as u64,
            stored: 0,
            rows: 0,
        };
        journal.frame(head.to_string().as_bytes())?;
        // A journal without its first frame is unusable.
        journal.sync()?;
        sync_folder(path).map_err(failed)?;
        Ok(journal)
    }

    /// Opens a journal that was left behind, and replaces `sequences` by its state. Unreadable
    /// bytes are moved to a file next to it, with a warning. Returns `None` if nothing is readable.
    pub fn recover(path: &Path, sequences: &mut StoredSequences) -> Result<Option<Journal>, HandlerError> {
        let failed = |cause| HandlerError::file(path, &cause);
        let mut file = lock(OpenOptions::new().read(true).write(true).open(path)).map_err(failed)?;
        let mut reader = Reader::of(file.try_clone().map_err(failed)?);
        let Some(head) = reader.head().map_err(failed)? else {
            set_aside(path, &mut file, 0).map_err(failed)?;
            fs::remove_file(path).map_err(failed)?;
            return Ok(None);
        };
        *sequences = head.sequences;
        let mut rows = 0;
        while let Some(body) = reader.next().map_err(failed)? {
            if let Some(id) = head.layout.decode(body).as_deref().and_then(identity) {
                sequences.insert(&(id.0, id.1), id.2);
            }
            rows += 1;
        }
        let whole = reader.at;
        if reader.end != End::Whole {
            set_aside(path, &mut file, whole).map_err(failed)?;
            file.set_len(whole).and_then(|()| file.sync_data()).map_err(failed)?;
        }
        file.seek(SeekFrom::Start(whole)).map_err(failed)?;
        Ok(Some(Journal {
            path: path.to_owned(),
            layout: head.layout,
            file,
            buffer: Vec::new(),
            began: head.began,
            len: whole,
            stored: whole,
            rows,
        }))
    }

    /// Appends a row.
    pub fn append(&mut self, row: &[u8]) -> Result<(), HandlerError> {
        self.frame(row)?;
        self.rows += 1;
        Ok(())
    }

    /// Stores what was appended.
    pub fn sync(&mut self) -> Result<(), HandlerError> {
        self.write()?;
        if self.stored < self.len {
            self.file.sync_data().map_err(|cause| HandlerError::file(&self.path, &cause))?;
            self.stored = self.len;
        }
        Ok(())
    }

    /// Returns whether all appended rows are on the disk.
    pub fn is_stored(&self) -> bool {
        self.stored == self.len
    }

    /// Returns the size including appended rows, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn age(&self) -> Duration {
        self.began.elapsed().unwrap_or_default()
    }

    fn frame(&mut self, body: &[u8]) -> Result<(), HandlerError> {
        // A row has at most MAX_ROW bytes, and the limits of `sequences` bound the first frame.
        let len = u32::try_from(body.len()).map_err(|_| HandlerError::Refused("it is too large".to_owned()))?;
        self.buffer.extend_from_slice(&len.to_le_bytes());
        self.buffer.extend_from_slice(&checksum(len, body).to_le_bytes());
        self.buffer.extend_from_slice(body);
        self.len += 8 + u64::from(len);
        if self.buffer.len() >= BUFFER { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), HandlerError> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|cause| {
            // If this fails, the rest is detected when the journal is opened again.
            let _ = self.file.set_len(self.stored);
            HandlerError::file(&self.path, &cause)
        })
    }
}

fn checksum(len: u32, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&len.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

fn lock(opened: io::Result<File>) -> io::Result<LockedFile> {
    LockedFile::lock(opened?, "another collector writes here")
}

/// Returns writer, incarnation and sequence number of a row.
fn identity(cells: &[CellValue<'_>]) -> Option<(String, u64, u64)> {
    use CellValue::{Text, Uint};
    match cells {
        [_, Text(writer), Uint(incarnation), Uint(sequence), ..] => {
            Some(((*writer).to_owned(), *incarnation, *sequence))
        }
        _ => None,
    }
}

/// Moves the bytes from a position on into a file of their own.
fn set_aside(path: &Path, file: &mut File, from: u64) -> io::Result<()> {
    let aside = path.with_extension("damaged");
    file.seek(SeekFrom::Start(from))?;
    let bytes = io::copy(file, &mut File::create(&aside)?)?;
    File::open(&aside)?.sync_all()?;
    log::warn!(
        "{}: from byte {from} on it cannot be read, because it was interrupted or is damaged: {bytes} bytes are now in {}",
        path.display(),
        aside.display()
    );
    Ok(())
}

/// How the readable part of a journal ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The last frame ends with the file.
    Whole,
    /// The file ends within a frame, as it may while it is being written.
    Within,
    /// A frame differs from what was written.
    Damage,
}

/// The contents of the first frame.
pub(crate) struct Head {
    pub layout: Layout,
    began: SystemTime,
    sequences: StoredSequences,
}

/// Reads the frames of a journal, up to the first invalid one.
pub(crate) struct Reader {
    reader: BufReader<File>,
    body: Vec<u8>,
    /// The position after the last valid frame.
    pub at: u64,
    pub end: End,
}

impl Reader {
    pub fn of(file: File) -> Reader {
        Reader { reader: BufReader::with_capacity(1 << 16, file), body: Vec::new(), at: 0, end: End::Whole }
    }

    /// Reads the first frame; `None` if it cannot be read.
    pub fn head(&mut self) -> io::Result<Option<Head>> {
        let mut magic = [0; MAGIC.len()];
        if self.fill(&mut magic)? < magic.len() || magic != *MAGIC {
            return Ok(None);
        }
        self.at = MAGIC.len() as u64;
        let head = self.next()?.and_then(head_of);
        Ok(head)
    }

    /// Returns the body of the next frame. If it returns `None`, `end` is the reason.
    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let mut front = [0; 8];
        match self.fill(&mut front)? {
            8 => {}
            0 => return Ok(None),
            _ => return Ok(self.ends(End::Within)),
        }
        let [a, b, c, d, rest @ ..] = front;
        let len = u32::from_le_bytes([a, b, c, d]);
        let size = len as usize;
        if size > MAX_ROW {
            return Ok(self.ends(End::Damage));
        }
        self.body.clear();
        let mut body = std::mem::take(&mut self.body);
        let read = (&mut self.reader).take(len.into()).read_to_end(&mut body)?;
        self.body = body;
        if read < size {
            return Ok(self.ends(End::Within));
        }
        if checksum(len, &self.body) != u32::from_le_bytes(rest) {
            return Ok(self.ends(End::Damage));
        }
        self.at += 8 + u64::from(len);
        Ok(Some(&self.body))
    }

    fn ends(&mut self, end: End) -> Option<&[u8]> {
        self.end = end;
        None
    }

    /// Fills the buffer as far as possible. Returns the number of bytes read.
    fn fill(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.reader.read(&mut into[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

fn head_of(body: &[u8]) -> Option<Head> {
    let head: Value = serde_json::from_slice(body).ok()?;
    let column = |of: &Value| Some((of[0].as_str()?.to_owned(), content_of(of[1].as_str()?)?));
    let columns = head["columns"].as_array()?.iter().map(column).collect::<Option<Vec<_>>>()?;
    let layout = Layout { type_name: head["type"].as_str()?.to_owned(), columns };
    let began = UNIX_EPOCH.checked_add(Duration::from_secs(head["began_s"].as_u64()?))?;
    layout.has_metadata().then(|| Head { layout, began, sequences: StoredSequences::of_json(&head["seen"]) })
}
