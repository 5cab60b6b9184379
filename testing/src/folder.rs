//! A temporary folder for the files of one test.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// A new folder in the system's folder for temporary files. Dropping it deletes the folder and its
/// contents.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder. Its name contains `name`, so that a folder that a crash leaves behind can
    /// be traced to its test.
    pub fn new(name: &str) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let path = env::temp_dir().join(format!("polywire-{name}-{}-{number}", process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
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
