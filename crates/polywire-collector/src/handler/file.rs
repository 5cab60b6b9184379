//! A file of lines to which lines are appended, rotated by size and time, and compressed when full.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{
    Expects, HandlerError, Setting, Settings,
    files::{numbered, sync_folder},
};

/// The number of bytes that are buffered before they are written.
const BUFFER: usize = 64 << 10;

/// The number of bytes that are read at a time to find the last line of a file.
const STEP: u64 = 64 << 10;

/// The settings of handlers that write such files, after the setting `path`.
pub(super) const ROTATION: [Setting; 4] = [
    Setting {
        name: "rotate_bytes",
        expects: Expects::Count,
        summary: "begins a new file after so many bytes; 0, the default, never",
    },
    Setting {
        name: "rotate_seconds",
        expects: Expects::Seconds,
        summary: "begins a new file after this time; 0, the default, never",
    },
    Setting { name: "keep", expects: Expects::Count, summary: "how many full files stay; 0, the default, all" },
    Setting { name: "zstd", expects: Expects::Truth, summary: "compresses full files; false is the default" },
];

/// When a new file begins, and what happens to the full one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rotation {
    pub bytes: Option<u64>,
    pub time: Option<Duration>,
    pub keep: Option<usize>,
    pub zstd: bool,
}

impl Rotation {
    pub fn of(settings: &Settings) -> Result<Rotation, HandlerError> {
        let zstd = settings.truth("zstd").unwrap_or(false);
        if zstd && !cfg!(feature = "zstd") {
            return Err(HandlerError::Setting("'zstd' is not in this build: it needs the feature 'zstd'".into()));
        }
        Ok(Rotation {
            bytes: settings.count("rotate_bytes").filter(|bytes| *bytes > 0),
            time: settings.seconds("rotate_seconds").filter(|time| !time.is_zero()),
            keep: settings.count("keep").filter(|keep| *keep > 0).and_then(|keep| usize::try_from(keep).ok()),
            zstd,
        })
    }
}

/// A file of complete lines. If writing fails, lines that [`LineFile::sync`] has not stored are
/// removed, so that lines which are written again are not duplicated.
pub(super) struct LineFile {
    path: PathBuf,
    file: File,
    rotation: Rotation,
    /// The header that is written at the beginning of each file.
    header: Vec<u8>,
    buffer: Vec<u8>,
    /// The number of bytes that are on the disk.
    stored: u64,
    /// The size of the file including the buffer, in bytes.
    len: u64,
    began: SystemTime,
}

impl LineFile {
    /// Opens a file, and creates it and its folder if they do not exist. An incomplete last line,
    /// left by an interrupted write, is removed: it was never reported as stored.
    pub fn open(path: &Path, rotation: Rotation, header: &[u8]) -> Result<LineFile, HandlerError> {
        let failed = |cause| HandlerError::file(path, &cause);
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path).map_err(failed)?;
        let len = whole_lines(&mut file, path).map_err(failed)?;
        sync_folder(path).map_err(failed)?;
        let began = file.metadata().and_then(|data| data.created()).unwrap_or_else(|_| SystemTime::now());
        let mut opened = LineFile {
            path: path.to_owned(),
            file,
            rotation,
            header: header.to_vec(),
            buffer: Vec::new(),
            stored: len,
            len,
            began,
        };
        opened.begin();
        Ok(opened)
    }

    /// Appends a line, without its line break. A full file is rotated first.
    pub fn line(&mut self, text: &[u8]) -> Result<(), HandlerError> {
        if self.is_full(text.len()) {
            self.rotate()?;
        }
        self.buffer.extend_from_slice(text);
        self.buffer.push(b'\n');
        self.len += text.len() as u64 + 1;
        match self.buffer.len() >= BUFFER {
            true => self.write(),
            false => Ok(()),
        }
    }

    /// Writes all appended lines to the disk.
    pub fn sync(&mut self) -> Result<(), HandlerError> {
        self.write()?;
        if self.stored < self.len {
            self.file.sync_data().map_err(|cause| HandlerError::file(&self.path, &cause))?;
            self.stored = self.len;
        }
        Ok(())
    }

    fn begin(&mut self) {
        if self.len == 0 && !self.header.is_empty() {
            self.buffer.extend_from_slice(&self.header);
            self.len = self.header.len() as u64;
        }
    }

    fn is_full(&self, more: usize) -> bool {
        let is_large = self.rotation.bytes.is_some_and(|most| self.len + more as u64 + 1 > most);
        let is_old = || {
            let age = self.began.elapsed().unwrap_or_default();
            self.rotation.time.is_some_and(|most| age >= most)
        };
        self.len > self.header.len() as u64 && (is_large || is_old())
    }

    fn write(&mut self) -> Result<(), HandlerError> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|cause| {
            // If this fails, too, the lines appear twice.
            let _ = self.file.set_len(self.stored);
            HandlerError::file(&self.path, &cause)
        })
    }

    /// Renames the full file with its number, and begins a new one.
    fn rotate(&mut self) -> Result<(), HandlerError> {
        self.sync()?;
        full(&self.path, self.rotation)?;
        let fresh = LineFile::open(&self.path, self.rotation, &self.header)?;
        *self = LineFile { began: SystemTime::now(), ..fresh };
        Ok(())
    }
}

/// Renames a full file with its number, compresses it, and removes the oldest files.
pub(super) fn full(path: &Path, rotation: Rotation) -> Result<(), HandlerError> {
    let failed = |cause| HandlerError::file(path, &cause);
    let full = numbered(path).map_err(failed)?;
    let number = full.last().map_or(1, |(number, _)| number + 1);
    let name = with_number(path, number);
    fs::rename(path, &name).map_err(failed)?;
    if rotation.zstd {
        compress(&name)?;
    }
    let surplus = rotation.keep.map_or(0, |keep| (full.len() + 1).saturating_sub(keep));
    full.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path)).map_err(failed)?;
    sync_folder(path).map_err(failed)
}

/// Removes an incomplete last line, and returns the length of the rest.
fn whole_lines(file: &mut File, path: &Path) -> io::Result<u64> {
    let len = file.metadata()?.len();
    let (mut end, mut part) = (len, Vec::new());
    let whole = loop {
        let start = end.saturating_sub(STEP);
        part.resize(usize::try_from(end - start).unwrap_or_default(), 0);
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut part)?;
        match part.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => break start + at as u64 + 1,
            None if start == 0 => break 0,
            None => end = start,
        }
    };
    if whole < len {
        log::warn!("{}: the last line is not whole: its {} bytes are removed", path.display(), len - whole);
        file.set_len(whole)?;
        file.sync_data()?;
    }
    Ok(whole)
}

/// Adds a number to a path: `a/b.jsonl` with the number 7 is `a/b.7.jsonl`.
fn with_number(path: &Path, number: u64) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}

/// Replaces a file by a compressed one, `NAME.zst`. If this is interrupted at any point, one of the
/// two files is complete.
#[cfg(feature = "zstd")]
fn compress(path: &Path) -> Result<(), HandlerError> {
    let with = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let (partial, whole) = (with(".zst.part"), with(".zst"));
    let compress = || -> io::Result<()> {
        let mut encoder = zstd::Encoder::new(File::create(&partial)?, 0)?;
        encoder.include_checksum(true)?;
        io::copy(&mut File::open(path)?, &mut encoder)?;
        encoder.finish()?.sync_all()?;
        fs::rename(&partial, &whole)?;
        sync_folder(&whole)?;
        fs::remove_file(path)
    };
    compress().map_err(|cause| HandlerError::file(&whole, &cause))
}

/// Has no effect: [`Rotation::of`] rejects the setting.
#[cfg(not(feature = "zstd"))]
fn compress(_: &Path) -> Result<(), HandlerError> {
    Ok(())
}

/// Converts the name of a type to a file name: letters, digits, `-` and `_` remain, `::` becomes a
/// full stop, and any other byte becomes `%` and two hexadecimal digits.
pub(super) fn file_name(type_name: &str) -> String {
    const MAX_NAME_BYTES: usize = 200;
    let mut name = String::new();
    for byte in type_name.replace("::", "\u{0}").bytes() {
        match byte {
            0 => name.push('.'),
            b'-' | b'_' => name.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => name.push(byte.into()),
            byte => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name.truncate(MAX_NAME_BYTES);
    if name.is_empty() { "%".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use polywire_testing::Folder;

    use super::*;

    #[test]
    fn a_line_that_is_not_whole_is_removed() {
        let folder = Folder::new("torn");
        let path = folder.path().join("a.jsonl");
        for (before, after) in
            [("one\ntwo\nthr", "one\ntwo\nnew\n"), ("thr", "new\n"), ("", "new\n"), ("one\n", "one\nnew\n")]
        {
            fs::write(&path, before).expect("written");
            let mut file = LineFile::open(&path, Rotation::default(), b"").expect("opened");
            file.line(b"new").expect("written");
            file.sync().expect("stored");
            assert_eq!(fs::read_to_string(&path).expect("read"), after);
        }
        // The incomplete line is longer than what is read at a time.
        fs::write(&path, format!("one\n{}", "x".repeat(STEP as usize * 2))).expect("written");
        LineFile::open(&path, Rotation::default(), b"").expect("opened");
        assert_eq!(fs::read_to_string(&path).expect("read"), "one\n");
    }

    #[test]
    fn full_files_get_numbers_and_old_ones_go() {
        let folder = Folder::new("rotate");
        let rotation = Rotation { bytes: Some(12), keep: Some(2), ..Rotation::default() };
        let mut file = LineFile::open(&folder.path().join("a.csv"), rotation, b"head\n").expect("opened");
        for number in 1..=5 {
            file.line(format!("line{number}").as_bytes()).expect("written");
        }
        file.sync().expect("stored");
        assert_eq!(folder.names(), ["a.3.csv", "a.4.csv", "a.csv"]);
        assert_eq!(fs::read_to_string(folder.path().join("a.4.csv")).expect("read"), "head\nline4\n");
        assert_eq!(fs::read_to_string(folder.path().join("a.csv")).expect("read"), "head\nline5\n");
    }

    #[test]
    fn a_file_that_is_too_old_is_full() {
        let folder = Folder::new("old");
        let rotation = Rotation { time: Some(Duration::from_nanos(1)), ..Rotation::default() };
        let mut file = LineFile::open(&folder.path().join("a"), rotation, b"").expect("opened");
        file.line(b"one").expect("written");
        while file.began.elapsed().unwrap_or_default().is_zero() {
            std::thread::yield_now();
        }
        file.line(b"two").expect("written");
        file.sync().expect("stored");
        assert_eq!(folder.names(), ["a", "a.1"]);
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn full_files_are_compressed() {
        let folder = Folder::new("zstd");
        let rotation = Rotation { bytes: Some(4), zstd: true, ..Rotation::default() };
        let mut file = LineFile::open(&folder.path().join("a.jsonl"), rotation, b"").expect("opened");
        for line in ["one", "two", "six"] {
            file.line(line.as_bytes()).expect("written");
        }
        file.sync().expect("stored");
        assert_eq!(folder.names(), ["a.1.jsonl.zst", "a.2.jsonl.zst", "a.jsonl"]);
        let packed = File::open(folder.path().join("a.2.jsonl.zst")).expect("opened");
        assert_eq!(zstd::decode_all(packed).expect("whole"), b"two\n");
    }

    #[test]
    fn names_of_types_stay_in_the_folder() {
        assert_eq!(file_name("system::Load"), "system.Load");
        assert_eq!(file_name("../../etc/passwd"), "%2e%2e%2f%2e%2e%2fetc%2fpasswd");
        assert_eq!((file_name(""), file_name("a~2")), ("%".to_owned(), "a%7e2".to_owned()));
        assert_eq!(file_name(&"/".repeat(500)).len(), 200);
    }

    /// `/dev/full` behaves like a full disk.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_a_failure() {
        let mut file = LineFile {
            path: "/dev/full".into(),
            file: OpenOptions::new().append(true).open("/dev/full").expect("opened"),
            rotation: Rotation::default(),
            header: Vec::new(),
            buffer: Vec::new(),
            stored: 0,
            len: 0,
            began: SystemTime::now(),
        };
        file.line(b"one").expect("it is in the buffer");
        let error = file.sync().expect_err("no room").to_string();
        assert!(error.starts_with("/dev/full: No space left"), "{error}");
    }
}
