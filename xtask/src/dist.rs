//! Packages for a release: an archive, the file system of a container, a Debian package, and their
//! checksums. `main.rs` calls it; it runs `cargo`, `git`, `strip`, `readelf`, `ldd`, `tar`,
//! `dpkg-deb`, `sha256sum` and the command line that it packs.

use std::{
    collections::BTreeSet,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::root;

/// What `dpkg-deb` takes unless it is told otherwise.
pub const LEVEL: u8 = 6;

/// What is packed.
#[derive(Debug)]
pub struct Dist {
    /// Folder for the packages.
    pub output: PathBuf,
    /// The command line, already built.
    pub binary: PathBuf,
    /// Features of the command line besides the default ones, separated by commas.
    pub features: String,
    /// How hard to compress the packages, 0 to 9.
    pub level: u8,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Files of the repository with their places in a package, below its root.
const FILES: [(&str, &str); 5] = [
    ("README.md", "usr/share/doc/polywire/README.md"),
    ("CHANGELOG.md", "usr/share/doc/polywire/CHANGELOG.md"),
    ("docs/cli.md", "usr/share/doc/polywire/cli.md"),
    ("LICENSE-APACHE", "usr/share/doc/polywire/LICENSE-APACHE"),
    ("LICENSE-MIT", "usr/share/doc/polywire/LICENSE-MIT"),
];

/// The folder of the systemd units, in the repository and in a package.
const UNITS: (&str, &str) = ("packaging/systemd", "usr/lib/systemd/system");

/// Libraries that the command line may be linked with, and the packages of Debian 12 with them.
const LIBRARIES: [(&str, &str); 7] = [
    ("libc.so", "libc6"),
    ("libm.so", "libc6"),
    ("ld-linux", "libc6"),
    ("libgcc_s.so", "libgcc-s1"),
    ("libstdc++.so", "libstdc++6"),
    ("libssl.so.3", "libssl3"),
    ("libcrypto.so.3", "libssl3"),
];

/// What a container has of the documents: the licences of what is in it.
const LICENCES: [&str; 3] = [
    "usr/share/doc/polywire/DEPENDENCIES.md",
    "usr/share/doc/polywire/LICENSE-APACHE",
    "usr/share/doc/polywire/LICENSE-MIT",
];

/// Files of a container besides the command line and its libraries: its user, and how names of
/// hosts are looked up.
const CONTAINER: [(&str, &str); 3] = [
    ("etc/passwd", "polywire:x:65532:65532:Polywire:/tmp:/usr/bin/polywire\n"),
    ("etc/group", "polywire:x:65532:\n"),
    ("etc/nsswitch.conf", "hosts: files dns\n"),
];

/// Shells with the places of their completions.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/polywire"),
    ("zsh", "usr/share/zsh/vendor-completions/_polywire"),
    ("fish", "usr/share/fish/vendor_completions.d/polywire.fish"),
];

impl Dist {
    /// Builds the command line in release mode, with these features besides the default ones.
    pub fn build(output: PathBuf, features: &str) -> Result<Dist> {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--locked", "-p", "polywire-cli", "--features", features]);
        run(cargo.current_dir(root()))?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        Ok(Dist { output, binary: target.join("release/polywire"), features: features.into(), level: LEVEL })
    }

    /// Writes the packages and returns their paths: the archive, the files of a container, the
    /// Debian package if `dpkg-deb` is installed, and the checksums.
    pub fn pack(&self) -> Result<Vec<PathBuf>> {
        let (tree, container) = (self.output.join("tree"), self.output.join("container"));
        for folder in [&tree, &container] {
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
        }
        self.stage(&tree)?;
        stage_container(&tree, &container)?;
        for folder in [&tree, &container] {
            run(Command::new("chmod").args(["-R", "u+rw,go=rX"]).arg(folder))?;
        }
        // Nodes of `local` keep their sockets there.
        run(Command::new("install").args(["-d", "-m", "1777"]).arg(container.join("tmp")))?;
        let target = target()?;
        let mut packages = vec![self.archive(&tree, &target)?, self.archive(&container, "container")?];
        packages.extend(self.debian(&tree)?);
        let sums = self.output.join("SHA256SUMS");
        let names = packages.iter().filter_map(|package| package.file_name());
        fs::write(&sums, run(Command::new("sha256sum").args(names).current_dir(&self.output))?)?;
        packages.push(sums);
        Ok(packages)
    }

    /// Lays out the files as they are installed.
    fn stage(&self, tree: &Path) -> Result<()> {
        for (from, to) in FILES {
            copy(&root().join(from), &tree.join(to))?;
        }
        for unit in fs::read_dir(root().join(UNITS.0))? {
            let unit = unit?;
            copy(&unit.path(), &tree.join(UNITS.1).join(unit.file_name()))?;
        }
        let binary = tree.join("usr/bin/polywire");
        copy(&self.binary, &binary)?;
        run(Command::new("strip").arg(&binary))?;
        for (shell, to) in SHELLS {
            let script = run(Command::new(&self.binary).args(["completions", shell]))?;
            write(&tree.join(to), &script)?;
        }
        let pages = tree.join("usr/share/man/man1");
        run(Command::new(&self.binary).arg("man").arg("--output").arg(&pages))?;
        write(&tree.join("usr/share/doc/polywire/DEPENDENCIES.md"), dependencies(&self.features)?.as_bytes())
    }

    /// The files in one archive whose bytes depend on nothing but their content.
    fn archive(&self, tree: &Path, suffix: &str) -> Result<PathBuf> {
        let package = self.output.join(format!("polywire-{}-{suffix}.tar.gz", version()));
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
        tar.arg(format!("--mtime=@{}", time()?)).env("GZIP", format!("-n{}", self.level.max(1)));
        tar.arg("-czf").arg(&package).arg("-C").arg(tree);
        let mut names: Vec<_> = fs::read_dir(tree)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
        names.sort();
        run(tar.args(names))?;
        Ok(package)
    }

    /// A Debian package, if its tool is installed.
    fn debian(&self, tree: &Path) -> Result<Option<PathBuf>> {
        let Ok(architecture) = run(Command::new("dpkg").arg("--print-architecture")) else { return Ok(None) };
        let architecture = String::from_utf8(architecture)?.trim().to_owned();
        let package = self.output.join(format!("polywire_{}_{architecture}.deb", version()));
        let control = format!(
            "Package: polywire\nVersion: {}\nArchitecture: {architecture}\nMaintainer: The Polywire authors\n\
             Section: net\nPriority: optional\nDepends: {}\n\
             Description: typed publish/subscribe in which the wire is a run-time choice\n \
             The command line of Polywire, with its manual pages, completions and systemd units.\n",
            version(),
            packages_of(&self.binary)?.join(", ")
        );
        write(&tree.join("DEBIAN/control"), control.as_bytes())?;
        let mut deb = Command::new("dpkg-deb");
        let level = format!("-z{}", self.level);
        deb.env("SOURCE_DATE_EPOCH", time()?).args(["--root-owner-group", &level, "--build"]);
        run(deb.arg(tree).arg(&package))?;
        Ok(Some(package))
    }
}

/// Lays out the files of a container: the command line of a staged tree, and what it needs to run.
fn stage_container(tree: &Path, container: &Path) -> Result<()> {
    let binary = "usr/bin/polywire";
    copy(&tree.join(binary), &container.join(binary))?;
    for name in LICENCES {
        copy(&tree.join(name), &container.join(name))?;
    }
    for library in libraries(&tree.join(binary))? {
        copy(&library, &container.join(library.strip_prefix("/")?))?;
    }
    for package in packages_of(&tree.join(binary))? {
        let terms = Path::new("usr/share/doc").join(package).join("copyright");
        // Elsewhere than on Debian there is no such file.
        if Path::new("/").join(&terms).exists() {
            copy(&Path::new("/").join(&terms), &container.join(&terms))?;
        }
    }
    for (to, text) in CONTAINER {
        write(&container.join(to), text.as_bytes())?;
    }
    Ok(())
}

/// The files that the system's linker loads for a program, itself included.
fn libraries(binary: &Path) -> Result<Vec<PathBuf>> {
    let listed = String::from_utf8(run(Command::new("ldd").arg(binary))?)?;
    let file = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(listed.lines().filter_map(file).collect())
}

/// A table of the crates that are linked into the command line, with their licences.
fn dependencies(features: &str) -> Result<String> {
    let mut tree = Command::new("cargo");
    tree.args(["tree", "--locked", "-p", "polywire-cli", "-e", "normal", "--prefix", "none", "--features", features]);
    let list = run(tree.args(["--no-dedupe", "-f", "{p}|{l}|{r}"]).current_dir(root()))?;
    let list = String::from_utf8(list)?;
    let mut rows: Vec<String> = list.lines().filter_map(row).collect();
    rows.sort();
    rows.dedup();
    let head = "# Crates in the command line, and their licences\n\n| crate | licence | source |\n|---|---|---|\n";
    Ok(format!("{head}{}\n", rows.join("\n")))
}

/// The packages of Debian with the libraries that a program is linked with.
fn packages_of(binary: &Path) -> Result<Vec<&'static str>> {
    let listed = String::from_utf8(run(Command::new("readelf").arg("--dynamic").arg(binary))?)?;
    let needed = listed.lines().filter(|line| line.contains("(NEEDED)"));
    let names = needed.filter_map(|line| line.split_once('[')?.1.strip_suffix(']'));
    let package = |name: &str| {
        let known = LIBRARIES.iter().find(|(library, _)| name.starts_with(library));
        known.map(|(_, package)| *package).ok_or_else(|| format!("nobody knows which package has {name}"))
    };
    let packages: std::result::Result<BTreeSet<_>, _> = names.map(package).collect();
    Ok(packages?.into_iter().collect())
}

/// A row of the table; none for the project's own crates, which have a path.
fn row(line: &str) -> Option<String> {
    let cells: Vec<&str> = line.split('|').collect();
    let [name, licence, source] = cells[..] else { return None };
    let name = name.trim_end_matches("(proc-macro)").trim();
    (!name.contains('(')).then(|| format!("| {name} | {licence} | {source} |"))
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The host's target, for which the command line is built.
fn target() -> Result<String> {
    let text = String::from_utf8(run(Command::new("rustc").arg("-vV"))?)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc names no host")?.to_owned())
}

/// The time of the commit in seconds since 1970, so that the same commit gives the same package.
fn time() -> Result<String> {
    let time = run(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()))?;
    Ok(String::from_utf8(time)?.trim().to_owned())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::copy(from, folder_of(to)?).map_err(|error| format!("{}: {error}", from.display()))?;
    if bytes == 0 { Err(format!("{} is empty", from.display()).into()) } else { Ok(()) }
}

fn write(to: &Path, bytes: &[u8]) -> Result<()> {
    Ok(fs::write(folder_of(to)?, bytes)?)
}

/// Creates the folder of a file.
fn folder_of(file: &Path) -> Result<&Path> {
    fs::create_dir_all(file.parent().ok_or("a file has a folder")?)?;
    Ok(file)
}

/// Runs a program to its end and returns its output; an error names the program and what it said.
fn run(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ended = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !ended.status.success() {
        return Err(format!("{name}: {}\n{}", ended.status, String::from_utf8_lossy(&ended.stderr)).into());
    }
    Ok(ended.stdout)
}
