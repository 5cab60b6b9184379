//! Which files an `#include` can read, and diagnostics for files that are not IDL.

use std::fs;

use polywire_idl::{Compiler, Diagnostics, Limits};
use polywire_testing::Folder;

fn folder_with(name: &str, files: &[(&str, &str)]) -> Folder {
    let folder = Folder::new(name);
    files.iter().for_each(|(file, text)| _ = folder.write(file, text));
    folder
}

/// The diagnostics of a file that is refused.
fn refused(folder: &Folder, name: &str) -> Diagnostics {
    Compiler::new().parse_file(&folder.file(name)).expect_err(name)
}

const HELD: &str = "struct Held { long a; };";

#[test]
fn files_outside_the_include_folders_are_not_read() {
    let uses = |path: &str| format!("#include \"{path}\"\nstruct User {{ Held held; }};");
    let folder = folder_with(
        "outside",
        &[
            ("in/sub/held.idl", HELD),
            ("in/sub/up.idl", "#include \"../held.idl\""),
            ("in/held.idl", HELD),
            ("held.idl", HELD),
        ],
    );
    for (path, allowed) in
        [("sub/held.idl", true), ("sub/up.idl", true), ("sub/../held.idl", true), ("../held.idl", false)]
    {
        fs::write(folder.file("in/user.idl"), uses(path)).unwrap();
        let result = Compiler::new().parse_file(&folder.file("in/user.idl"));
        assert_eq!(result.is_ok(), allowed, "{path}: {:?}", result.err().map(|e| e.to_string()));
    }
    let shown = refused(&folder, "in/user.idl").to_string();
    assert!(shown.contains("'../held.idl' lies outside the folder of the first file"), "{shown}");
    assert!(shown.contains("add the folder that contains it with -I"), "{shown}");
    let permitted = Compiler::new().include_dir(folder.file(""));
    assert!(permitted.parse_file(&folder.file("in/user.idl")).is_ok(), "it lies below a folder that was given");

    fs::write(folder.file("in/user.idl"), uses(&folder.file("held.idl"))).unwrap();
    assert!(refused(&folder, "in/user.idl").to_string().contains("lies outside"));
    assert!(permitted.parse_file(&folder.file("in/user.idl")).is_ok());
}

#[cfg(unix)]
#[test]
fn only_regular_files_are_read_and_no_more_than_the_limit() {
    let large = "/".repeat(10_000);
    let folder = folder_with(
        "devices",
        &[("zero.idl", "#include </dev/zero>\n"), ("big.idl", "#include \"large.idl\"\n"), ("large.idl", &large)],
    );
    let devices = Compiler::new().include_dir("/dev").parse_file(&folder.file("zero.idl")).unwrap_err().to_string();
    assert!(devices.contains("cannot read '/dev/zero': it is not a regular file"), "{devices}");
    let first = Compiler::new().parse_file("/dev/zero").unwrap_err().to_string();
    assert!(first.contains("it is not a regular file"), "{first}");
    let limits = Limits { source_bytes: 5_000, ..Limits::default() };
    let limited = Compiler::new().limits(limits).parse_file(&folder.file("big.idl")).unwrap_err().to_string();
    assert!(limited.contains("larger than the limit of 5000 bytes"), "{limited}");
}

#[test]
fn files_that_are_no_sources_are_not_quoted() {
    let secret = "hunter2 swordfish;\n#error hunter2\nstruct Hunter2 { hunter2 swordfish; };\n";
    let folder = folder_with(
        "secrets",
        &[
            (".env", secret),
            ("a.idl", "#include \".env\"\n"),
            ("secret.inc", secret),
            ("b.idl", "#include \"secret.inc\"\n"),
        ],
    );
    let errors = refused(&folder, "a.idl");
    let shown = errors.render(false).to_lowercase();
    assert!(!shown.contains("hunter2") && !shown.contains("swordfish"), "{shown}");
    assert!(shown.contains(".env:1:1: error: this is not idl"), "{shown}");
    assert!(
        errors.iter().all(|error| error.location.text.is_empty() && error.help.is_none() && error.notes.is_empty())
    );
    // A source is shown, wherever it was found.
    assert!(refused(&folder, "b.idl").to_string().contains("expected a definition, found 'hunter2'"));
}

#[test]
fn latin_1_is_read_as_such() {
    let folder = Folder::new("latin");
    folder.write("a.idl", b"// caf\xe9\nconst string NAME = \"\xe9t\xe9\"; struct S { long a; };");
    let document = Compiler::new().parse_file(&folder.file("a.idl")).unwrap();
    assert_eq!(document.constants()[0].value, polywire_core::schema::Literal::String("été".into()));
    assert!(document.warnings().to_string().contains("not UTF-8 at byte 6; it is read as Latin-1"));
}
