//! External programs and Python libraries with which tests compare Polywire. The functions start
//! child processes.
//!
//! A test whose tool is missing prints `SKIPPED` and passes. With `POLYWIRE_TEST_REQUIRE=all` in
//! the environment it fails, with `installed` unless the tool is one that has to be built
//! ([`peer`]). `.ci/run` sets this variable, and installs and builds the tools.

use std::{
    env, fs,
    io::{self, Write as _},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

/// The configuration of programs with Cyclone DDS that meet nodes at `interface=127.0.0.1`, for
/// `CYCLONEDDS_URI`. Older versions have to be told that the loopback interface can multicast.
pub const CYCLONE_ON_LOOPBACK: &str = "<CycloneDDS><Domain><General><Interfaces>\
<NetworkInterface address=\"127.0.0.1\" multicast=\"true\"/></Interfaces></General></Domain></CycloneDDS>";

/// The Python interpreter for tests: `POLYWIRE_PYTHON`, or `python3`.
pub fn python() -> String {
    env::var("POLYWIRE_PYTHON").unwrap_or_else(|_| "python3".into())
}

/// Whether Python can import this module. If not, it calls [`missing`], and the caller skips its
/// test.
pub fn python_has(module: &str) -> bool {
    runs(&format!("Python's module '{module}'"), Command::new(python()).args(["-c", &format!("import {module}")]))
}

/// Whether a program runs with the argument `version` and exits with success. If not, it calls
/// [`missing`], and the caller skips its test.
pub fn has_program(program: &str, version: &str) -> bool {
    runs(&format!("the program '{program}'"), Command::new(program).arg(version))
}

/// The library of the package `faketime` that shows another time to a program with several
/// threads, for `LD_PRELOAD`. Without it, this calls [`missing`], and the caller skips its test.
pub fn faketime() -> Option<PathBuf> {
    // Below a folder for each architecture.
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let library = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    if library.is_none() {
        missing("the library 'libfaketimeMT.so.1' of the package 'faketime'");
    }
    library
}

/// A program on another library, from a workspace of its own: the one in
/// `crates/polywire/tests/FOLDER`, built in `target/foreign/FOLDER`. If it is not there, the caller
/// skips its test.
///
/// # Panics
/// If it is not there, and the environment has `POLYWIRE_TEST_REQUIRE=all`.
pub fn peer(folder: &str, program: &str) -> Option<Command> {
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")), PathBuf::from);
    let path = target.join("foreign").join(folder).join("debug").join(program);
    if !path.exists() {
        let what = format!("the program in target/foreign/{folder} (tests/{folder}/Cargo.toml builds it)");
        lacks(&what, &["all"]);
        return None;
    }
    Some(Command::new(path))
}

/// Whether the C compiler finds a header. If not, it calls [`missing`], and the caller skips its
/// test.
pub fn c_has(header: &str) -> bool {
    compiler_has("cc", "c", header)
}

/// The same for the compiler of C++.
pub fn cpp_has(header: &str) -> bool {
    compiler_has("c++", "c++", header)
}

fn compiler_has(compiler: &str, language: &str, header: &str) -> bool {
    let arguments = ["-fsyntax-only", "-include", header, "-x", language, "-"];
    runs(&format!("the compiler '{compiler}' or its header '{header}'"), Command::new(compiler).args(arguments))
}

/// Runs a program with `input` on its standard input, and returns its standard output.
///
/// # Errors
/// The program's standard error, if it does not exit with success.
pub fn output_of(command: &mut Command, input: &[u8]) -> Result<Vec<u8>, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    let output = thread::scope(|scope| {
        // A separate thread writes, because the program may fill its output before it has read all
        // input. It may also exit before that, which is not an error here.
        scope.spawn(move || stdin.write_all(input).is_ok());
        child.wait_with_output().expect("waiting for the program succeeds")
    });
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

fn runs(what: &str, command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let there = status.is_ok_and(|status| status.success());
    if !there {
        missing(what);
    }
    there
}

/// Prints that the calling test is skipped because `what` is missing.
///
/// # Panics
/// If the environment has `POLYWIRE_TEST_REQUIRE=all` or `POLYWIRE_TEST_REQUIRE=installed`.
pub fn missing(what: &str) {
    lacks(what, &["all", "installed"]);
}

fn lacks(what: &str, forbidden: &[&str]) {
    let required = env::var("POLYWIRE_TEST_REQUIRE").unwrap_or_default();
    let is_required = forbidden.contains(&required.as_str());
    assert!(!is_required, "{what} is missing, and POLYWIRE_TEST_REQUIRE={required} requires it");
    skipped(&format!("{what} is missing"));
}

/// Prints why a test, or a part of one, is skipped. It writes to standard error directly, because
/// the test runner shows the output of `eprintln` only if the test fails.
pub fn skipped(why: &str) {
    let thread = thread::current();
    let _ = writeln!(io::stderr(), "SKIPPED {}: {why}", thread.name().unwrap_or("a test"));
}
