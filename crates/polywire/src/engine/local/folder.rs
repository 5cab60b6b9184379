//! The folder of a domain: where it is, and the check that no other user can write to it.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::{engine::domain, system};

/// Where nodes meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Place {
    /// A domain of the user.
    Domain(u8),
    /// A folder by its absolute path.
    Folder(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(address: &str) -> Result<Place, String> {
        if Path::new(address).is_absolute() {
            return Ok(Place::Folder(address.into()));
        }
        let domain = domain::parse(address).map(Place::Domain);
        domain.map_err(|reason| format!("{reason}; or give the path of a folder"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Domain(domain) => domain.fmt(f),
            Place::Folder(path) => path.display().fmt(f),
        }
    }
}

impl Place {
    /// Returns the folder, or the folder `below` in it. Makes it if it is missing. Fails if it is
    /// not safe to use.
    pub(in crate::engine) fn folder(&self, below: Option<&str>) -> io::Result<PathBuf> {
        let folder = match self {
            Place::Folder(path) => own(path.clone()),
            Place::Domain(domain) => own(own(system::domains()?)?.join(domain.to_string())),
        }?;
        below.map_or(Ok(folder.clone()), |below| own(folder.join(below)))
    }
}

/// Makes a folder for this user alone, unless it exists. Fails if it belongs to another user, or if
/// other users can use it: they could take a node's place.
fn own(path: PathBuf) -> io::Result<PathBuf> {
    match system::make_private_folder(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(about(&path, &error)),
        _ => {}
    }
    let found = fs::symlink_metadata(&path).map_err(|error| about(&path, &error))?;
    let refused = |reason: String| {
        let reason = format!("{}: {reason}", path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
    };
    if found.is_symlink() {
        return refused("it is a symbolic link, and must be a folder".into());
    }
    if !found.is_dir() {
        return refused("it is a file, and must be a folder".into());
    }
    system::who_can_use(&found).map_or(Ok(path.clone()), refused)
}

/// Adds to an error the path that it is about.
pub(super) fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(all(test, unix))]
mod tests {
    use std::{
        env,
        fs::Permissions,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    };

    use rustix::process::geteuid;

    use super::*;

    fn temporary(name: &str) -> PathBuf {
        let path = env::temp_dir().join(format!("polywire-local-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn places_are_numbers_or_paths() {
        assert_eq!("007".parse(), Ok(Place::Domain(7)));
        assert_eq!("232".parse::<Place>().map(|place| place.to_string()).as_deref(), Ok("232"));
        assert_eq!("/run/plant".parse(), Ok(Place::Folder("/run/plant".into())));
        for wrong in ["233", "-1", "+1", "a", "", "1.0", "0x1", "99999999999", "a/b"] {
            assert!(wrong.parse::<Place>().is_err_and(|reason| reason.contains("0 to 232")), "{wrong}");
        }
    }

    #[test]
    fn a_folder_that_others_can_use_is_refused() {
        let path = temporary("own");
        let made = own(path.clone()).expect("it is made");
        assert_eq!(made.metadata().expect("there").mode() & 0o777, 0o700);
        assert!(own(path.clone()).is_ok(), "and used again");
        let refused = |path: &Path| own(path.into()).expect_err("refused").to_string();
        for mode in [0o710, 0o701, 0o777] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("changed");
            assert!(refused(&path).contains("chmod 700"));
        }
        fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("changed");
        let link = path.join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(refused(&link).contains("symbolic link"));
        let file = path.join("file");
        fs::write(&file, "").expect("a file");
        assert!(refused(&file).contains("it is a file"));
        assert!(refused(&path.join("missing/below")).contains("missing/below: "));
        // A folder of another user, whichever user runs the test.
        if geteuid().as_raw() != 0 {
            assert!(refused(Path::new("/")).contains("belongs to the user 0"));
        } else if let Ok(()) = std::os::unix::fs::chown(&file, Some(1), None) {
            let theirs = path.join("theirs");
            own(theirs.clone()).expect("made");
            std::os::unix::fs::chown(&theirs, Some(1), None).expect("given away");
            assert!(refused(&theirs).contains("belongs to the user 1"));
        }
        fs::remove_dir_all(&path).expect("removed");
    }
}
