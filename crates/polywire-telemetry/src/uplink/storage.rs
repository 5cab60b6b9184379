//! The storage of a spool's segments: in memory, or as files in a folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use crate::LockedFile;

/// The extension of a segment's file; the number is the version of the entries in it.
const ENDING: &str = ".spool1";

/// Identifies a segment. If room is needed, segments are dropped in this order, by priority and
/// then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentId {
    /// The priority of all samples in the segment.
    pub priority: u8,
    /// The number of the segment in the spool; later segments have greater numbers.
    pub number: u64,
    /// The start of the node that numbered the samples.
    pub start: u64,
}

/// Stores segments. [`Memory`] is an example of an implementation.
///
/// ```
/// use polywire_telemetry::uplink::{Memory, SegmentId, Storage};
///
/// let (mut storage, id) = (Memory::default(), SegmentId { priority: 5, number: 0, start: 7 });
/// storage.write(id, 0, b"abc")?;
/// storage.write(id, 3, b"de")?;
/// storage.sync()?;
/// assert_eq!((storage.list()?, storage.read(id, 1, 3)?), (vec![(id, 5)], b"bcd".to_vec()));
/// storage.remove(id)?;
/// assert!(storage.list()?.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Storage: Send {
    /// Returns all segments, with their sizes in bytes.
    fn list(&mut self) -> io::Result<Vec<(SegmentId, u64)>>;

    /// Writes bytes at an offset, which is at most the segment's end; creates the segment if it
    /// does not exist. After an error, the contents after the offset are undefined. Written bytes
    /// outlive the process, but survive a failure of the system only after [`Storage::sync`].
    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads at most `most` bytes from an offset; fewer only at the end.
    fn read(&mut self, segment: SegmentId, offset: u64, most: usize) -> io::Result<Vec<u8>>;

    /// Blocks until all that was written is on the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Removes a segment.
    fn remove(&mut self, segment: SegmentId) -> io::Result<()>;
}

/// Segments in memory, which are lost when the process ends.
#[derive(Clone, Debug, Default)]
pub struct Memory(BTreeMap<SegmentId, Vec<u8>>);

impl Storage for Memory {
    fn list(&mut self) -> io::Result<Vec<(SegmentId, u64)>> {
        Ok(self.0.iter().map(|(id, bytes)| (*id, bytes.len() as u64)).collect())
    }

    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let kept = self.0.entry(segment).or_default();
        kept.truncate(usize::try_from(offset).map_err(io::Error::other)?);
        kept.extend_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, segment: SegmentId, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        let kept = self.0.get(&segment).ok_or(io::ErrorKind::NotFound)?;
        let from = usize::try_from(offset).map_err(io::Error::other)?.min(kept.len());
        Ok(kept[from..kept.len().min(from.saturating_add(most))].to_vec())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, segment: SegmentId) -> io::Result<()> {
        self.0.remove(&segment);
        Ok(())
    }
}

/// Segments as files of a folder, `PRIORITY-NUMBER-START.spool1`. Other files there are ignored.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    /// Segments that were written to and may be written to again. A segment is closed when another
    /// one of its priority is opened.
    open: BTreeMap<SegmentId, File>,
    dirty: BTreeSet<SegmentId>,
    /// Whether segments were created or removed since the folder was synchronized.
    is_folder_dirty: bool,
    /// The lock that this process holds while it uses the folder.
    _lock: LockedFile,
}

impl Files {
    /// Opens a folder, and creates it if it does not exist. Fails if another process uses the
    /// folder.
    ///
    /// ```
    /// use polywire_telemetry::uplink::{Files, SegmentId, Storage};
    ///
    /// let folder = std::env::temp_dir().join(format!("polywire-spool-doc-{}", std::process::id()));
    /// let id = SegmentId { priority: 5, number: 0, start: 7 };
    /// let mut files = Files::open(&folder)?;
    /// files.write(id, 0, b"abc")?;
    /// assert!(Files::open(&folder).is_err());
    /// drop(files);
    /// assert_eq!(Files::open(&folder)?.read(id, 0, 10)?, b"abc");
    /// std::fs::remove_dir_all(folder)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open(folder: &Path) -> io::Result<Files> {
        fs::create_dir_all(folder)?;
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(folder.join("lock"))?;
        let lock = LockedFile::lock(lock, "another process uses the folder")?;
        let (open, dirty) = (BTreeMap::new(), BTreeSet::new());
        Ok(Files { folder: folder.to_owned(), open, dirty, is_folder_dirty: true, _lock: lock })
    }

    fn path(&self, id: SegmentId) -> PathBuf {
        self.folder.join(format!("{}-{:016x}-{:016x}{ENDING}", id.priority, id.number, id.start))
    }

    fn writer(&mut self, id: SegmentId) -> io::Result<&File> {
        if !self.open.contains_key(&id) {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(self.path(id))?;
            self.is_folder_dirty = true;
            self.close_before(id)?;
            self.open.insert(id, file);
        }
        self.open.get(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn close_before(&mut self, id: SegmentId) -> io::Result<()> {
        let earlier = self.open.keys().find(|open| open.priority == id.priority).copied();
        let Some(earlier) = earlier else { return Ok(()) };
        if self.dirty.remove(&earlier) {
            self.open.get(&earlier).map_or(Ok(()), File::sync_data)?;
        }
        self.open.remove(&earlier);
        Ok(())
    }
}

impl Storage for Files {
    fn list(&mut self) -> io::Result<Vec<(SegmentId, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if let Some(id) = entry.file_name().to_str().and_then(parse) {
                found.push((id, entry.metadata()?.len()));
            }
        }
        found.sort();
        Ok(found)
    }

    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.writer(segment)?.write_all_at(bytes, offset)?;
        self.dirty.insert(segment);
        Ok(())
    }

    fn read(&mut self, segment: SegmentId, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        let file = File::open(self.path(segment))?;
        let rest = file.metadata()?.len().saturating_sub(offset).min(most as u64);
        let mut bytes = vec![0; usize::try_from(rest).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        for id in &self.dirty {
            self.open.get(id).map_or(Ok(()), File::sync_data)?;
        }
        self.dirty.clear();
        if self.is_folder_dirty {
            File::open(&self.folder)?.sync_all()?;
            self.is_folder_dirty = false;
        }
        Ok(())
    }

    fn remove(&mut self, segment: SegmentId) -> io::Result<()> {
        self.open.remove(&segment);
        self.dirty.remove(&segment);
        match fs::remove_file(self.path(segment)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                // Else the segment could be there again after a failure of the system.
                self.is_folder_dirty = true;
                Ok(())
            }
        }
    }
}

fn parse(name: &str) -> Option<SegmentId> {
    let mut parts = name.strip_suffix(ENDING)?.split('-');
    let priority = parts.next()?.parse().ok()?;
    let mut number = || u64::from_str_radix(parts.next().filter(|part| part.len() == 16)?, 16).ok();
    let id = SegmentId { priority, number: number()?, start: number()? };
    parts.next().is_none().then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_synchronized_after_segments_are_created_and_removed() {
        let folder = std::env::temp_dir().join(format!("polywire-spool-dirty-{}", std::process::id()));
        let id = SegmentId { priority: 5, number: 0, start: 7 };
        let mut files = Files::open(&folder).expect("opened");
        files.write(id, 0, b"abc").expect("written");
        files.sync().expect("on the disk");
        assert!(!files.is_folder_dirty);
        files.remove(id).expect("removed");
        assert!(files.is_folder_dirty);
        files.sync().expect("on the disk");
        assert!(!files.is_folder_dirty);
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn other_files_are_no_segments() {
        let id = SegmentId { priority: 5, number: 10, start: u64::MAX };
        assert_eq!(parse("5-000000000000000a-ffffffffffffffff.spool1"), Some(id));
        for name in ["lock", "5-a-b.spool1", "-.spool1", "300-000000000000000a-ffffffffffffffff.spool1", "é.spool1"] {
            assert_eq!(parse(name), None, "{name}");
        }
        assert_eq!(parse("5-000000000000000a-ffffffffffffffff-0000000000000000.spool1"), None);
        assert_eq!(parse("5-000000000000000a-ffffffffffffffff.spool2"), None);
    }
}
