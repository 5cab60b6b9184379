//! Files that are whole after a loss of power.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

/// Gives a file these contents, all of them or none: whoever reads it, also after a loss of power
/// at any time, finds the old ones or the new ones. Makes the folder if there is none. Blocks until
/// the contents are on the disk. Returns the file, open for writing at its end. Two threads must
/// not replace the same file at once.
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
