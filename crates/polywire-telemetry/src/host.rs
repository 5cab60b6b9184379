//! Files of the system: their paths, and repeated reading.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use crate::MeasureError;

/// The maximum number of bytes that are read of a file. `/proc/stat` of a machine with 1,000 cores
/// has 200 kB.
const MAX_BYTES: usize = 4 << 20;

/// The maximum number of entries that are read of a folder. Linux has at most 4 million processes;
/// a sample of that length is not worth its cost.
const MAX_ENTRIES: usize = 1 << 16;

/// A host to measure: its root folder, and the units of its counters.
///
/// ```
/// use polywire_telemetry::{Moment, Probe as _, Settings, system::{self, Host}};
///
/// // A folder with files in the form of /proc and /sys, such as a container's or a test's.
/// let host = Host::at("/nowhere");
/// let error = (system::find("load")?.open)(&host, &Settings::default()).err().unwrap();
/// assert_eq!(error.to_string(), "cannot read /nowhere/proc/loadavg");
/// # Ok::<(), polywire_telemetry::MeasureError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    /// The number of bytes in a page of memory.
    pub(crate) page_bytes: u64,
    /// The number of ticks of processor time in a second.
    pub(crate) ticks_per_second: u64,
}

impl Host {
    /// Returns the host on which this process runs.
    pub fn this() -> Host {
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        Host { root: "/".into(), page_bytes: rustix::param::page_size() as u64, ticks_per_second }
    }

    /// Returns the host with this root folder. Pages have 4,096 bytes, and a second has 100 ticks.
    pub fn at(root: impl Into<PathBuf>) -> Host {
        Host { root: root.into(), page_bytes: 4096, ticks_per_second: 100 }
    }

    /// Returns a path below the root folder.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Opens a file that is read with each sample. Fails if it cannot be read now.
    pub(crate) fn file(&self, path: &str) -> Result<SystemFile, MeasureError> {
        let mut file = SystemFile::new(self.path(path));
        file.read()?;
        Ok(file)
    }

    /// Returns the names in a folder, sorted; empty if the folder cannot be read.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().take(MAX_ENTRIES);
        let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Returns the first line of a file; `None` if it cannot be read.
    pub(crate) fn line(&self, path: &str) -> Option<String> {
        let mut file = SystemFile::new(self.path(path));
        file.read().ok()?.lines().next().map(|line| line.trim().to_owned())
    }

    /// Returns the number in the first line of a file; `None` if there is none.
    pub(crate) fn number(&self, path: &str) -> Option<i64> {
        self.line(path)?.parse().ok()
    }

    /// Returns the number of entries of a folder; `None` if the folder cannot be read.
    pub(crate) fn count(&self, folder: &str) -> Option<u32> {
        let entries = fs::read_dir(self.path(folder)).ok()?;
        u32::try_from(entries.take(MAX_ENTRIES).count()).ok()
    }
}

/// A system file that is read repeatedly.
pub(crate) struct SystemFile {
    path: PathBuf,
    file: Option<File>,
    bytes: Vec<u8>,
}

impl SystemFile {
    fn new(path: PathBuf) -> SystemFile {
        SystemFile { path, file: None, bytes: vec![0; 4096] }
    }

    /// Reads the file from its start. Text that is not UTF-8 is an error.
    pub fn read(&mut self) -> Result<&str, MeasureError> {
        let len = self.fill().map_err(|cause| {
            self.file = None;
            MeasureError::Read { path: self.path.display().to_string(), cause }
        })?;
        std::str::from_utf8(&self.bytes[..len]).map_err(|_| form(&self.path, "UTF-8"))
    }

    /// Makes the error that the file has another form than expected.
    pub fn form(&self, expected: &'static str) -> MeasureError {
        form(&self.path, expected)
    }

    fn fill(&mut self) -> io::Result<usize> {
        if self.file.is_none() {
            self.file = Some(File::open(&self.path)?);
        }
        let Some(file) = &self.file else { return Ok(0) };
        let mut len = 0;
        loop {
            let read = file.read_at(&mut self.bytes[len..], len as u64)?;
            len += read;
            if read == 0 {
                return Ok(len);
            }
            if len == self.bytes.len() {
                if len >= MAX_BYTES {
                    return Err(io::Error::other("the file is too long"));
                }
                self.bytes.resize(2 * len, 0);
            }
        }
    }
}

fn form(path: &Path, expected: &'static str) -> MeasureError {
    MeasureError::Form { path: path.display().to_string(), expected }
}

/// Returns the numbers of a line. Words that are not numbers are left out.
pub(crate) fn numbers(line: &str) -> impl Iterator<Item = u64> + '_ {
    line.split_ascii_whitespace().filter_map(|word| word.parse().ok())
}

/// Returns the first `N` numbers of a line; `None` if there are fewer.
pub(crate) fn take<const N: usize>(line: &str) -> Option<[u64; N]> {
    let mut found = [0; N];
    let mut words = numbers(line);
    for number in &mut found {
        *number = words.next()?;
    }
    Some(found)
}

/// Returns the number after `key` in a file with lines `key: number` or `key number`.
pub(crate) fn value_of(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    numbers(rest.trim_start_matches(':')).next()
}
