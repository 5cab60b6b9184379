//! Other people's programs and libraries that tests compare with.
//!
//! A test whose tool is missing says so, past the capture of the test runner, and passes. With
//! `POLYWIRE_TEST_REQUIRE=all` in the environment it fails: so it is in `.ci/run`, which installs
//! the tools.
#![allow(dead_code, reason = "each test file uses what it needs")]

use std::{
    env,
    io::{self, Write as _},
    process::{Command, Stdio},
};

/// The interpreter that tests run: `POLYWIRE_PYTHON`, or `python3`.
pub fn python() -> String {
    env::var("POLYWIRE_PYTHON").unwrap_or_else(|_| "python3".into())
}

/// Whether Python has a module; if it has not, the test is left out.
pub fn python_has(module: &str) -> bool {
    runs(&format!("Python's module '{module}'"), Command::new(python()).args(["-c", &format!("import {module}")]))
}

/// Whether there is a program; if there is none, the test is left out.
pub fn has_program(program: &str, version: &str) -> bool {
    runs(&format!("the program '{program}'"), Command::new(program).arg(version))
}

fn runs(what: &str, command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let there = status.is_ok_and(|status| status.success());
    if !there {
        missing(what);
    }
    there
}

/// Says that this is missing and a test is left out; panics where nothing may be.
pub fn missing(what: &str) {
    let required = env::var_os("POLYWIRE_TEST_REQUIRE").is_some_and(|value| value == "all");
    assert!(!required, "{what} is missing, and POLYWIRE_TEST_REQUIRE=all asks for it");
    skipped(&format!("{what} is missing"));
}

/// Says why a test or a part of it is left out, past the capture of the test runner, which shows
/// `eprintln` of failed tests only.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let _ = writeln!(io::stderr(), "SKIPPED {}: {why}", thread.name().unwrap_or("a test"));
}
