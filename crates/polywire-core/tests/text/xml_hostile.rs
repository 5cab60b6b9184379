//! Hostile XML: the W3C conformance suite, texts truncated and flipped at every byte, entity
//! expansion. Also, another library reads the texts that we write.

use super::text_support::Format;
use polywire_core::{
    codec::xml::{validate, validate_within},
    program::{FaultKind, Limits},
    schema::arbitrary::Random,
};
use polywire_derive::Message;
use polywire_testing::{corpus, tools};
use std::{collections::BTreeMap, fs, io::Read, process::Command};

const FORMATS: [Format; 2] = [Format("xml"), Format("xml-dom")];

/// A test of the suite: the attributes of its description, and the document.
struct Case {
    id: String,
    about: BTreeMap<String, String>,
    document: Vec<u8>,
}

impl Case {
    fn is(&self, name: &str, value: &str) -> bool {
        self.about.get(name).is_some_and(|v| v == value)
    }

    /// It is about XML 1.0 in its fifth edition, without namespaces, and nothing that we refuse by
    /// name.
    fn is_ours(&self) -> bool {
        let recommended = self.about.get("RECOMMENDATION").is_none_or(|r| r.starts_with("XML1.0"));
        let edition = self.about.get("EDITION").is_none_or(|editions| editions.contains('5'));
        recommended && edition && !self.is("VERSION", "1.1")
    }

    /// Comments, instructions and CDATA sections set aside.
    fn has_doctype(&self) -> bool {
        let text = String::from_utf8_lossy(&self.document).into_owned();
        let mut rest = text.as_str();
        while let Some(at) = rest.find('<') {
            rest = &rest[at..];
            let end = match rest.get(..2) {
                Some("<?") => rest.find("?>"),
                _ if rest.starts_with("<!--") => rest.find("-->"),
                _ if rest.starts_with("<![CDATA[") => rest.find("]]>"),
                _ if rest.starts_with("<!DOCTYPE") => return true,
                _ => None,
            };
            rest = &rest[end.unwrap_or(1)..];
        }
        false
    }
}

fn suite() -> Option<Vec<Case>> {
    let file = fs::File::open(corpus("xml/xmlts20130923.zip")?).unwrap();
    let mut archive = zip::ZipArchive::new(file).unwrap();
    let mut files = BTreeMap::new();
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(entry.name().unwrap().into_owned(), bytes);
    }
    let mut cases = Vec::new();
    for (name, list) in &files {
        let Some((folder, _)) = name.rsplit_once('/').filter(|_| name.ends_with(".xml")) else { continue };
        let list = String::from_utf8_lossy(list);
        for test in list.split("<TEST ").skip(1) {
            let about = attributes(test.split('>').next().unwrap_or_default());
            let (Some(uri), Some(id)) = (about.get("URI"), about.get("ID")) else { continue };
            let Some(document) = files.get(&format!("{folder}/{uri}")) else { continue };
            cases.push(Case { id: id.clone(), document: document.clone(), about });
        }
    }
    Some(cases)
}

/// `name="value"`, with blanks anywhere.
fn attributes(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = text;
    while let Some((name, more)) = rest.split_once('=') {
        let more = more.trim_start();
        let Some(quote) = more.chars().next().filter(|c| matches!(c, '"' | '\'')) else { break };
        let Some((value, behind)) = more[1..].split_once(quote) else { break };
        found.insert(name.trim().to_string(), value.to_string());
        rest = behind;
    }
    found
}

#[test]
fn the_suite_is_judged_as_it_says() {
    let Some(cases) = suite() else { return };
    let (mut refused, mut accepted) = (0, 0);
    for case in cases.iter().filter(|case| case.is_ours()) {
        let verdict = validate(&case.document);
        let utf8 = std::str::from_utf8(&case.document).is_ok();
        if case.is("TYPE", "not-wf") || case.has_doctype() {
            assert!(verdict.is_err(), "{} is accepted", case.id);
            refused += 1;
        } else if utf8 && (case.is("TYPE", "valid") || case.is("TYPE", "invalid")) {
            let foreign = verdict.as_ref().is_err_and(|error| error.kind == FaultKind::Forbidden);
            assert!(foreign || verdict == Ok(()), "{}: {verdict:?}", case.id);
            accepted += usize::from(!foreign);
        }
        // As an unknown member it gets the same verdict, except for constructs that are allowed
        // only at a document's start.
        if case.document.starts_with(b"<") && !case.document.starts_with(b"<?xml ") && !case.has_doctype() {
            let inside = [b"<Counter><x>", case.document.as_slice(), b"</x></Counter>"].concat();
            for format in FORMATS {
                let read = format.read(&inside, Counter::default).is_ok();
                assert_eq!(read, validate(&inside).is_ok(), "{}, {}", case.id, format.0);
            }
        }
    }
    assert!(refused > 1500 && accepted > 20, "{refused} refused, {accepted} accepted");
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
struct Counter {
    counter: u32,
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
struct Tree {
    value: u8,
    name: String,
    numbers: Vec<f64>,
    #[polywire(idl = "sequence<octet>")]
    blob: Vec<u8>,
    branches: Vec<Tree>,
}

fn tree() -> Tree {
    let leaf =
        Tree { value: 7, name: "<&\u{1}ü_x_".into(), numbers: vec![0.5, -1e300], blob: vec![1, 2], branches: vec![] };
    Tree { branches: vec![leaf.clone(), leaf.clone()], ..leaf }
}

#[test]
fn texts_cut_at_every_byte_are_refused() {
    for format in FORMATS {
        let read = format.reader::<Tree>();
        for options in ["", "members=attributes,pretty,declaration"] {
            let text = format.write(&tree(), options);
            assert_eq!(read(text.as_bytes()), Ok(tree()));
            for len in 0..text.len() {
                let error = read(&text.as_bytes()[..len]).expect_err(&text[..len.min(20)]);
                assert!(error.offset <= len, "{error}");
            }
        }
    }
}

#[test]
fn flipped_bytes_do_no_harm() {
    let mut random = Random::new(11);
    for format in FORMATS {
        let (text, read) = (format.write(&tree(), "members=attributes").into_bytes(), format.reader::<Tree>());
        for at in 0..text.len() {
            for _ in 0..2 {
                let mut bad = text.clone();
                bad[at] = *random.choose(b"<>&;/\"'=! \0-]?x0\x80\xFF");
                let _ = read(&bad);
            }
        }
    }
}

#[test]
fn depth_is_limited_typed_or_not() {
    let nested = |n: usize| {
        let (open, close) = ("<branches><item>".repeat(n), "</item></branches>".repeat(n));
        format!("<Tree>{open}{close}</Tree>")
    };
    for format in FORMATS {
        assert!(format.read(nested(10).as_bytes(), Tree::default).is_ok());
        let error = format.read(nested(10_000).as_bytes(), Tree::default).unwrap_err();
        assert_eq!(error.kind, FaultKind::TooDeep);
    }
    let shallow = Limits { depth: 3, ..Limits::default() };
    assert!(validate_within(b"<a><b><c/></b></a>", &shallow).is_ok());
    assert_eq!(validate_within(b"<a><b><c><d/></c></b></a>", &shallow).unwrap_err().kind, FaultKind::TooDeep);
}

#[test]
fn entities_are_never_expanded() {
    let laughs = "<!DOCTYPE Tree [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;'>]><Tree><name>&b;</name></Tree>";
    let outside = "<!DOCTYPE Tree SYSTEM 'file:///etc/passwd'><Tree/>";
    let parameter = "<!DOCTYPE Tree [<!ENTITY % p SYSTEM 'http://localhost/'> %p;]><Tree/>";
    for format in FORMATS {
        for text in [laughs, outside, parameter] {
            assert_eq!(format.read(text.as_bytes(), Tree::default).unwrap_err().kind, FaultKind::Forbidden);
        }
        let error = format.read(b"<Tree><name>&xxe;</name></Tree>", Tree::default).unwrap_err();
        assert_eq!(error.kind, FaultKind::Syntax);
    }
}

#[test]
fn memory_stays_within_its_limit() {
    let limits = Limits { memory_bytes: 10_000, ..Limits::default() };
    let many = format!("<Tree><numbers>{}</numbers></Tree>", "1 ".repeat(5_000));
    let long = format!("<Tree><name>{}</name></Tree>", "x".repeat(20_000));
    for format in FORMATS {
        for text in [&many, &long] {
            assert_eq!(format.read_within::<Tree>(text.as_bytes(), limits).unwrap_err().kind, FaultKind::Limit);
        }
    }
}

/// What we write is well-formed for others, too.
#[test]
fn libxml2_reads_what_we_write() {
    if !tools::has_program("xmllint", "--version") {
        return;
    }
    let text = Format("xml").write(&tree(), "members=attributes,pretty,declaration");
    let read = tools::output_of(Command::new("xmllint").args(["--noout", "-"]), text.as_bytes());
    assert_eq!(read, Ok(vec![]), "{text}");
}
