//! What an `#include` reaches, and what is said of files that are no IDL.

use std::fs;
use std::path::PathBuf;

use polywire_idl::{Compiler, Diagnostics, Limits};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Folder {
        let folder = std::env::temp_dir().join(format!("polywire-includes-{}-{name}", std::process::id()));
        for (file, text) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Folder(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }

    fn refused(&self, name: &str) -> Diagnostics {
        Compiler::new().parse_file(&self.path(name)).expect_err(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const HELD: &str = "struct Held { long a; };";

#[test]
fn files_outside_are_not_read() {
    let uses = |path: &str| format!("#include \"{path}\"\nstruct User {{ Held held; }};");
    let folder = Folder::new(
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
        fs::write(folder.path("in/user.idl"), uses(path)).unwrap();
        let result = Compiler::new().parse_file(&folder.path("in/user.idl"));
        assert_eq!(result.is_ok(), allowed, "{path}: {:?}", result.err().map(|e| e.to_string()));
    }
    let shown = folder.refused("in/user.idl").to_string();
    assert!(shown.contains("'../held.idl' lies outside of the folder of the first file"), "{shown}");
    assert!(shown.contains("give the folder that holds it with -I"), "{shown}");
    let permitted = Compiler::new().include_dir(folder.path(""));
    assert!(permitted.parse_file(&folder.path("in/user.idl")).is_ok(), "it lies below a folder that was given");

    fs::write(folder.path("in/user.idl"), uses(&folder.path("held.idl"))).unwrap();
    assert!(folder.refused("in/user.idl").to_string().contains("lies outside"));
    assert!(permitted.parse_file(&folder.path("in/user.idl")).is_ok());
}

#[cfg(unix)]
#[test]
fn only_regular_files_are_read_and_no_more_than_the_limit() {
    let large = "/".repeat(10_000);
    let folder = Folder::new(
        "devices",
        &[("zero.idl", "#include </dev/zero>\n"), ("big.idl", "#include \"large.idl\"\n"), ("large.idl", &large)],
    );
    let devices = Compiler::new().include_dir("/dev").parse_file(&folder.path("zero.idl")).unwrap_err().to_string();
    assert!(devices.contains("cannot read '/dev/zero': it is no regular file"), "{devices}");
    let first = Compiler::new().parse_file("/dev/zero").unwrap_err().to_string();
    assert!(first.contains("it is no regular file"), "{first}");
    let limits = Limits { source_bytes: 5_000, ..Limits::default() };
    let limited = Compiler::new().limits(limits).parse_file(&folder.path("big.idl")).unwrap_err().to_string();
    assert!(limited.contains("larger than the limit of 5000 bytes"), "{limited}");
}

#[test]
fn files_that_are_no_sources_are_not_quoted() {
    let secret = "hunter2 swordfish;\n#error hunter2\nstruct Hunter2 { hunter2 swordfish; };\n";
    let folder = Folder::new(
        "secrets",
        &[
            (".env", secret),
            ("a.idl", "#include \".env\"\n"),
            ("secret.inc", secret),
            ("b.idl", "#include \"secret.inc\"\n"),
        ],
    );
    let errors = folder.refused("a.idl");
    let shown = errors.render(false).to_lowercase();
    assert!(!shown.contains("hunter2") && !shown.contains("swordfish"), "{shown}");
    assert!(shown.contains(".env:1:1: error: this is no idl"), "{shown}");
    assert!(
        errors.iter().all(|error| error.location.text.is_empty() && error.help.is_none() && error.notes.is_empty())
    );
    // A source is shown, wherever it was found.
    assert!(folder.refused("b.idl").to_string().contains("'hunter2' begins no definition"));
}

#[test]
fn latin_1_is_read_as_such() {
    let folder = Folder::new("latin", &[("a.idl", "")]);
    fs::write(folder.path("a.idl"), b"// caf\xe9\nconst string NAME = \"\xe9t\xe9\"; struct S { long a; };").unwrap();
    let document = Compiler::new().parse_file(&folder.path("a.idl")).unwrap();
    assert_eq!(document.constants()[0].value, polywire_core::schema::Literal::String("été".into()));
    assert!(document.warnings().to_string().contains("not UTF-8 at byte 6; it is read as Latin-1"));
}
