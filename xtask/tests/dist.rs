//! Makes the packages of a release with the command line that the tests of the workspace built, and
//! runs what they contain.

use std::{fs, path::Path, process::Command};

use xtask::{dist::Dist, root};

/// Those with which the tests build the command line, as far as crates of their own come with them.
const FEATURES: &str = "full";

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
    let dist = Dist { output: folder.clone(), binary, features: FEATURES.into(), level: 0 };
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
    assert!(read("usr/share/zsh/vendor-completions/_polywire").contains("#compdef polywire"));
    assert!(read("usr/share/fish/vendor_completions.d/polywire.fish").contains("complete -c polywire"));
    assert!(read("usr/lib/systemd/system/polywire-relay@.service").contains("ExecStart=/usr/bin/polywire relay %I"));
    let dependencies = read("usr/share/doc/polywire/DEPENDENCIES.md");
    assert!(dependencies.contains("| clap v") && !dependencies.contains("polywire-core"), "{dependencies}");
    assert!(dependencies.contains("| zenoh v"), "{dependencies}");

    runs_in_a_container(&folder, &packages[1]);

    if let Some(package) = packages.iter().find(|package| package.extension().is_some_and(|kind| kind == "deb")) {
        let listed = output(Command::new("dpkg-deb").arg("--contents").arg(package));
        assert!(listed.contains("./usr/bin/polywire") && listed.contains("root/root"), "{listed}");
        let depends = output(Command::new("dpkg-deb").arg("--field").arg(package).arg("Depends"));
        assert!(depends.split(", ").any(|package| package.trim() == "libc6"), "{depends}");
    }
    fs::remove_dir_all(&folder).expect("removed");
}

/// The command line finds all its libraries in the archive for a container. The image is that of
/// the recipe, if there is a tool to build it, which needs the rights of root here.
fn runs_in_a_container(folder: &Path, archive: &Path) {
    let root_of_container = folder.join("root");
    fs::create_dir_all(&root_of_container).expect("a folder");
    output(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&root_of_container));
    assert!(root_of_container.join("usr/share/doc/polywire/DEPENDENCIES.md").exists());
    if output(Command::new("id").arg("-u")).trim() != "0" {
        println!("SKIPPED: only root can change the root folder");
        return;
    }
    let mut confined = Command::new("chroot");
    confined.arg("--userspec=65532:65532").arg(&root_of_container);
    let alone = confined.args(["/usr/bin/polywire", "list", "--wire", "local"]).output().expect("it runs");
    let told = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(told.contains("no topics or nodes at local"), "{told}");
    if Command::new("buildah").arg("--version").output().is_err() {
        println!("SKIPPED: buildah is not installed");
        return;
    }
    let storage = folder.join("storage");
    let buildah = || {
        let mut buildah = Command::new("buildah");
        buildah.args(["--storage-driver", "vfs", "--root"]).arg(&storage).arg("--runroot").arg(folder.join("running"));
        buildah
    };
    let recipe = root().join("packaging/Containerfile");
    output(buildah().args(["build", "--tag", "polywire-test", "--file"]).arg(recipe).arg(folder));
    let image = output(buildah().args(["inspect", "--type", "image", "polywire-test"]));
    for part in ["\"/usr/bin/polywire\"", "\"User\": \"polywire\""] {
        assert!(image.contains(part), "{image}");
    }
    output(buildah().args(["rmi", "polywire-test"]));
}

/// Each unit runs a command that there is, which tells systemd that it is ready.
#[test]
fn units_run_commands_that_report_to_systemd() {
    let Some(binary) = command_line() else {
        println!("SKIPPED: the command line is not built; `cargo test --workspace` builds it");
        return;
    };
    let units: Vec<_> = fs::read_dir(root().join("packaging/systemd")).expect("a folder").flatten().collect();
    assert!(units.len() >= 4, "{units:?}");
    for unit in units {
        let text = fs::read_to_string(unit.path()).expect("text");
        let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/polywire ")).expect("a start");
        let verb = start.split(' ').next().expect("a verb");
        let name = unit.file_name().into_string().expect("text");
        assert!(name.starts_with(&format!("polywire-{verb}")), "{name} runs {verb}");
        let help = output(Command::new(&binary).args([verb, "--help"]));
        assert!(text.contains("\nType=notify\n") && help.contains("Type=notify"), "{name}");
        assert!(text.contains(&format!("man:polywire-{verb}(1)")), "{name}");
    }
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("SKIPPED: systemd-analyze is not installed");
        return;
    }
    let checked = units_checked();
    assert!(checked.is_empty(), "{checked}");
}

/// What systemd finds wrong in the units, apart from the command, which need not be installed.
fn units_checked() -> String {
    let units = fs::read_dir(root().join("packaging/systemd")).expect("a folder").flatten().map(|unit| unit.path());
    let checked = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(units).output().expect("it runs");
    let told = String::from_utf8_lossy(&checked.stderr).into_owned();
    let is_ours = |line: &&str| line.contains("polywire") && !line.contains("is not executable");
    told.lines().filter(is_ours).collect::<Vec<_>>().join("\n")
}
