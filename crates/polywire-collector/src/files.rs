//! Numbered files, names derived from other files, and folders that are synchronized to the disk.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// Returns the full, numbered files that belong to a file, the oldest first.
pub(crate) fn numbered(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let text = |name: Option<&std::ffi::OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, ending) = (text(path.file_stem()), path.extension().map(|ending| text(Some(ending))));
    let number = |name: &str| -> Option<u64> {
        let name = name.strip_suffix(".zst").unwrap_or(name);
        let rest = name.strip_prefix(&stem)?.strip_prefix('.')?;
        match &ending {
            Some(ending) => rest.strip_suffix(ending.as_str())?.strip_suffix('.')?.parse().ok(),
            None => rest.parse().ok(),
        }
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Some(number) = entry.file_name().to_str().and_then(number) {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the path of a file with an additional extension, in the same folder.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// Synchronizes the folder of a file that was created or renamed.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
