//! Temporary files of tests: a folder that is deleted with its guard, and paths that need no guard.

use std::{
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// How the folder of a process is named; its number follows. Paths of sockets and of shared memory
/// must be short.
const PROCESS: &str = "pw-test-";

/// A new folder at a [`free_path`]. Dropping it deletes the folder and its contents.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder. Its name contains `name`, so that a folder that a crash leaves behind can
    /// be traced to its test.
    pub fn new(name: &str) -> Folder {
        let path = free_path(name);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Folder(path)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in the folder, as text.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("temporary folders have names in UTF-8").to_owned()
    }

    /// The names of what is in the folder, in order.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap_or_else(|error| panic!("{}: {error}", self.0.display()));
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<String> = entries.map(|entry| name(entry).into_string().expect("a name in UTF-8")).collect();
        names.sort();
        names
    }

    /// Writes a file and creates the folders in its name. Returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.file(name);
        let folder = Path::new(&path).parent().expect("a file is in a folder");
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, content));
        written.unwrap_or_else(|error| panic!("{path}: {error}"));
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A path where nothing is yet, for what an engine creates and leaves behind, such as a socket. It
/// is in a folder of this process, which a later process deletes once this one has ended.
///
/// ```
/// let (one, other) = (polywire_testing::free_path("socket"), polywire_testing::free_path("socket"));
/// assert!(one != other && !one.exists() && one.parent() == other.parent());
/// ```
pub fn free_path(name: &str) -> PathBuf {
    static OWN: LazyLock<(PathBuf, File)> = LazyLock::new(|| own_folder().expect("a folder for temporary files"));
    static COUNT: AtomicU32 = AtomicU32::new(0);
    OWN.0.join(format!("{name}-{}", COUNT.fetch_add(1, Relaxed)))
}

/// Creates the folder of this process, with a file that is locked as long as the process runs, and
/// deletes those of processes that have ended.
fn own_folder() -> io::Result<(PathBuf, File)> {
    let others = fs::read_dir(env::temp_dir())?.flatten();
    for other in others.filter(|other| other.file_name().to_string_lossy().starts_with(PROCESS)) {
        let lock = File::open(lock_in(&other.path()));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            // Another process may be deleting it, too.
            let _ = fs::remove_dir_all(other.path());
        }
    }
    // Nobody looks for a folder of this name before its file is locked.
    let new = env::temp_dir().join(format!("pw-new-{}", process::id()));
    let _ = fs::remove_dir_all(&new);
    fs::create_dir(&new)?;
    let lock = File::create(lock_in(&new))?;
    lock.lock()?;
    let folder = env::temp_dir().join(format!("{PROCESS}{}", process::id()));
    fs::rename(&new, &folder)?;
    Ok((folder, lock))
}

fn lock_in(folder: &Path) -> PathBuf {
    folder.join("lock")
}
