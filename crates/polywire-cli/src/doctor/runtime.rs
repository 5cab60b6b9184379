//! Checks of the folder by which the nodes of `local` find each other, and of the files with a
//! node's identity.

use std::{env, ffi::OsStr, io, path::Path};

use nix::sys::statvfs::statvfs;
use polywire::engine::local;

use super::Finding;

/// The bytes and the number of files that should be free: sockets need very little.
const FREE: u64 = 1 << 20;
const FREE_FILES: u64 = 100;

pub fn check() -> Vec<Finding> {
    let mut findings = match local::folder("") {
        Ok(folder) => vec![place(&folder, env::var_os("XDG_RUNTIME_DIR").as_deref()), space(&folder)],
        Err(error) => vec![refused(&error)],
    };
    findings.extend(identity());
    findings
}

/// Checks the path of the folder. `runtime` is the runtime folder in the environment.
fn place(folder: &Path, runtime: Option<&OsStr>) -> Finding {
    let found = format!("{}, for this user alone", folder.display());
    if !folder.to_string_lossy().starts_with("/tmp/polywire-") {
        return Finding::ok("folder", found);
    }
    let (why, advice) = match runtime.filter(|runtime| !runtime.is_empty()) {
        Some(runtime) => (
            format!("because {}, which XDG_RUNTIME_DIR names, is no folder of this user", runtime.display()),
            "make that folder, with mode 0700, or name another one",
        ),
        None => (
            "because there is no runtime folder of the user".into(),
            "log in by a session that sets XDG_RUNTIME_DIR, or set it to a folder of mode 0700",
        ),
    };
    let found = format!("{found}, {why}");
    Finding::warning("folder", found, format!("{advice}: only nodes with the same folder find each other"))
}

fn refused(error: &io::Error) -> Finding {
    Finding::problem(
        "folder",
        format!("nodes cannot meet at 'local': {error}"),
        "correct its owner and mode, or set XDG_RUNTIME_DIR to another folder",
    )
}

fn space(folder: &Path) -> Finding {
    match statvfs(folder) {
        // Filesystems without a limit on files report 0 of 0. On some systems the counts have 32
        // bits.
        #[allow(clippy::unnecessary_cast)]
        Ok(stats) => {
            let bytes = stats.blocks_available() as u64 * stats.fragment_size() as u64;
            let files = (stats.files() > 0).then(|| stats.files_available() as u64);
            room(bytes, files)
        }
        Err(error) => Finding::warning("space", format!("unknown: {error}"), "look with df"),
    }
}

fn room(bytes: u64, files: Option<u64>) -> Finding {
    let full = bytes < FREE || files.is_some_and(|files| files < FREE_FILES);
    let found = format!("{} MiB free for the folder", bytes >> 20);
    match full {
        true => Finding::problem(
            "space",
            format!("{found}, and {} more files", files.unwrap_or(0)),
            "make room: nodes cannot make their sockets on a full file system",
        ),
        false => Finding::ok("space", found),
    }
}

/// Checks the identity that the environment gives to nodes, if it gives one.
#[cfg(feature = "tls")]
fn identity() -> Option<Finding> {
    use polywire::Node;
    const FILES: [&str; 3] = ["POLYWIRE_CERTIFICATE", "POLYWIRE_KEY", "POLYWIRE_AUTHORITY"];
    if FILES.iter().all(|name| std::env::var_os(name).is_none_or(|path| path.is_empty())) {
        return Some(Finding::ok("identity", "none in the environment: lan is open, tls needs a configuration"));
    }
    // Opening the port reads and checks the files. The port is closed at once.
    let opened = Node::new().open("tls-listen/127.0.0.1:0");
    Some(match opened {
        Ok(_) => Finding::ok("identity", format!("the certificate in {} is valid", path_of(FILES[0]))),
        Err(error) => Finding::problem("identity", error.to_string(), "'polywire identity sign' makes such files"),
    })
}

#[cfg(feature = "tls")]
fn path_of(variable: &str) -> String {
    let path = std::env::var_os(variable).unwrap_or_default();
    std::fs::canonicalize(&path).unwrap_or_else(|_| path.into()).display().to_string()
}

#[cfg(not(feature = "tls"))]
fn identity() -> Option<Finding> {
    None
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    #[test]
    fn a_folder_is_judged_by_its_place_and_room() {
        for own in ["/run/user/1000/polywire/0", "/tmp/runtime-of-robot/polywire/0"] {
            assert_eq!(place(Path::new(own), None).state, State::Ok);
        }
        let fallback = Path::new("/tmp/polywire-1000/0");
        assert!(place(fallback, None).advice.contains("XDG_RUNTIME_DIR"));
        let named = place(fallback, Some(OsStr::new("/no/such")));
        assert!(named.found.contains("/no/such, which XDG_RUNTIME_DIR names") && named.advice.contains("0700"));
        assert_eq!(room(5 << 20, Some(5000)).found, "5 MiB free for the folder");
        assert_eq!((room(0, None).state, room(5 << 20, Some(3)).state), (State::Problem, State::Problem));
        assert_eq!(room(5 << 20, None).state, State::Ok);
        assert!(refused(&io::Error::other("mode 777")).found.contains("mode 777"));
        assert_eq!(space(Path::new("/no/such/folder")).state, State::Warning);
    }
}
