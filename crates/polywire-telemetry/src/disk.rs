//! Files that are replaced atomically, also across a loss of power, and files locked by one
//! process.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    ops::{Deref, DerefMut},
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// The time for which [`LockedFile::lock`] retries. A reader may lock the file for a moment, and if
/// a process ends while it starts a child, the child keeps the locks until its program runs.
const PATIENCE: Duration = Duration::from_millis(500);

/// Replaces the contents of a file atomically: a reader finds either the old or the new contents,
/// also after a loss of power at any time. Creates the folder if it does not exist. Blocks until
/// the contents are on the disk. Returns the file, open for writing at its end. Two threads must
/// not replace the same file at the same time.
///
/// ```
/// use polywire_telemetry::replace_file;
///
/// let folder = std::env::temp_dir().join(format!("polywire-replace-{}", std::process::id()));
/// let path = folder.join("a/b.txt");
/// replace_file(&path, b"one")?;
/// replace_file(&path, b"two")?;
/// assert_eq!(std::fs::read(&path)?, b"two");
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn replace_file(path: &Path, contents: &[u8]) -> io::Result<File> {
    let folder = folder_of(path);
    fs::create_dir_all(folder)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let fresh = Path::new(&name);
    let mut file = File::create(fresh)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(fresh, path)?;
    sync_folder_of(path)?;
    Ok(file)
}

/// Blocks until the names in the folder of a file are on the disk.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that this process has locked against others, until it is dropped.
///
/// Closing a file does not release its lock while a child of this process has a copy of the
/// descriptor. A child has copies of all descriptors until its program runs. So dropping this
/// releases the lock explicitly.
///
/// ```
/// use std::fs::File;
/// use polywire_telemetry::LockedFile;
///
/// let path = std::env::temp_dir().join(format!("polywire-lock-{}", std::process::id()));
/// let file = LockedFile::lock(File::create(&path)?, "it is in use")?;
/// let error = LockedFile::lock(File::open(&path)?, "it is in use").unwrap_err();
/// assert_eq!(error.to_string(), "it is in use");
/// drop(file);
/// LockedFile::lock(File::open(&path)?, "it is in use")?;
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Locks a file. While another process has it locked, blocks for up to half a second, and then
    /// fails with [`io::ErrorKind::WouldBlock`] and the message `in_use`.
    pub fn lock(file: File, in_use: &str) -> io::Result<LockedFile> {
        let until = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(LockedFile(file)),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                Err(TryLockError::WouldBlock) => return Err(io::Error::new(io::ErrorKind::WouldBlock, in_use)),
            }
        }
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_is_left_does_not_keep_the_lock() {
        let path = std::env::temp_dir().join(format!("polywire-lock-copy-{}", std::process::id()));
        let file = LockedFile::lock(File::create(&path).expect("made"), "in use").expect("locked");
        // A child that is started meanwhile has such a copy.
        let _copy = file.try_clone().expect("copied");
        drop(file);
        LockedFile::lock(File::open(&path).expect("opened"), "in use").expect("nobody uses it");
        fs::remove_file(path).expect("removed");
    }
}
