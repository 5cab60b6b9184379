//! Tests that a test whose tool is missing is reported as skipped, and fails if all tools are
//! required. They start this test program again as a child process.

use polywire_testing::tools;
use std::process::{Command, Output};

/// An example of a test that needs a tool. The other test runs it in a child process.
#[test]
#[ignore = "the other test of this file runs it"]
fn without_its_tool() {
    assert!(!tools::has_program("polywire-has-no-such-program", "--version"));
}

/// An example of a test that needs a program which has to be built.
#[test]
#[ignore = "the other test of this file runs it"]
fn without_its_program() {
    assert!(tools::peer("ros2", "no-such-node").is_none());
}

fn run_it(test: &str, required: &str) -> Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", test]).env("POLYWIRE_TEST_REQUIRE", required);
    child.output().unwrap()
}

#[test]
fn it_says_so_and_passes_or_fails_where_all_are_required() {
    let what = "the program 'polywire-has-no-such-program' is missing";
    let passed = run_it("without_its_tool", "");
    assert!(passed.status.success());
    assert!(String::from_utf8_lossy(&passed.stderr).contains(&format!("SKIPPED without_its_tool: {what}")));
    for required in ["all", "installed"] {
        let failed = run_it("without_its_tool", required);
        assert!(!failed.status.success());
        assert!(String::from_utf8_lossy(&failed.stdout).contains(what));
    }
    for (required, passes) in [("", true), ("installed", true), ("all", false)] {
        assert_eq!(run_it("without_its_program", required).status.success(), passes, "{required}");
    }
}
