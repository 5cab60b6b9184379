//! Diagnostics word for word: `conformance/idl-errors/NAME.idl` (or `.pdl`) must produce
//! `NAME.txt`.
//!
//! `POLYWIRE_BLESS=1` rewrites the texts. Review them before you commit them.

use std::path::PathBuf;

use polywire_idl::Compiler;

#[test]
fn messages_are_as_recorded() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../conformance/idl-errors");
    let mut checked = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "idl" && e != "pdl") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let loader = |path: &str| Ok((path == "good.idl").then(|| b"struct Good { long x; };".to_vec()));
        let shown = match Compiler::new().loader(loader).parse_str(name, &text) {
            Ok(document) => format!("accepted\n{}", document.warnings()),
            Err(errors) => errors.to_string(),
        };
        let golden = path.with_extension("txt");
        if std::env::var_os("POLYWIRE_BLESS").is_some() {
            std::fs::write(&golden, &shown).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(shown, expected, "{name}: run with POLYWIRE_BLESS=1 and read the difference");
        checked += 1;
    }
    assert!(checked >= 12, "only {checked} files");
}

#[test]
fn a_file_that_cannot_be_read_has_no_line_to_show() {
    let missing = Compiler::new().loader(|_: &str| Ok(None)).parse_file("gone.idl").unwrap_err();
    let shown = missing.to_string();
    assert!(shown.starts_with("gone.idl: error: cannot read the file: "), "{shown}");
    assert_eq!(shown.lines().count(), 1, "{shown}");
}
