//! Makes the packages of a release with the command line that the tests of the workspace built, and
//! runs what they contain.

use std::{fs, path::Path, process::Command};

use xtask::{dist::Dist, root};

fn output(command: &mut Command) -> String {
    let ended = command.output().expect("it runs");
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).expect("text")
}

/// The command line in the folder that this test was built into.
fn command_line() -> Option<std::path::PathBuf> {
    let test = std::env::current_exe().expect("a path");
    let folder = test.parent().and_then(Path::parent).expect("deps lies in a folder");
    Some(folder.join("polywire")).filter(|binary| binary.exists())
}

#[test]
fn the_packages_have_what_a_user_needs() {
    let Some(binary) = command_line() else {
        println!("SKIPPED: the command line is not built; `cargo test --workspace` builds it");
        return;
    };
    let folder = std::env::temp_dir().join(format!("polywire-dist-{}", std::process::id()));
    let dist = Dist { output: folder.clone(), binary, level: 0 };
    let packages = dist.pack().expect("packages");
    output(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&folder));

    let unpacked = folder.join("unpacked");
    fs::create_dir_all(&unpacked).expect("a folder");
    output(Command::new("tar").arg("-xzf").arg(&packages[0]).arg("-C").arg(&unpacked));
    let version = output(Command::new(unpacked.join("usr/bin/polywire")).arg("--version"));
    assert_eq!(version.trim(), format!("polywire {}", env!("CARGO_PKG_VERSION")));
    let read = |path: &str| fs::read_to_string(unpacked.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert!(read("usr/share/man/man1/polywire-relay.1").contains("stands by"));
    assert!(read("usr/share/bash-completion/completions/polywire").contains("transcode"));
    assert!(read("usr/lib/systemd/system/polywire-relay@.service").contains("ExecStart=/usr/bin/polywire relay %I"));
    let dependencies = read("usr/share/doc/polywire/DEPENDENCIES.md");
    assert!(dependencies.contains("| clap v") && !dependencies.contains("polywire-core"), "{dependencies}");
    assert!(root().join("packaging/systemd/polywire-relay@.service").exists());

    if let Some(package) = packages.iter().find(|package| package.extension().is_some_and(|kind| kind == "deb")) {
        let listed = output(Command::new("dpkg-deb").arg("--contents").arg(package));
        assert!(listed.contains("./usr/bin/polywire") && listed.contains("root/root"), "{listed}");
    }
    fs::remove_dir_all(&folder).expect("removed");
}
