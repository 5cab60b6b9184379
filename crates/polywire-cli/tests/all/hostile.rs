//! A peer whose names contain control characters: these must not reach the terminal.

use std::{
    io::Write as _,
    net::{TcpListener, TcpStream},
};

use crate::common::Folder;
use polywire::extend::{
    envelope::{Announcement, Id128},
    frame::{Hello, Start, StreamEncoder},
};

/// Sets the title, clears the screen (with both forms of the escape), overwrites the line, changes
/// the direction of the text, and begins a new line.
const STEERS: &str = "T\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\r\u{202e}\nerror: all is lost";

fn announce(mut to: &TcpStream, topic: &str) {
    let (mut encoder, mut bytes) = (StreamEncoder::default(), Vec::new());
    encoder.hello(&Hello { node: Id128([7; 16]), incarnation: 1 }, &mut bytes);
    let announcement = Announcement {
        topic: topic.into(),
        writer: Id128([8; 16]),
        incarnation: 1,
        type_name: STEERS.into(),
        codec: STEERS.into(),
        ..Announcement::default()
    };
    encoder.announce(&announcement, Start::default(), &mut bytes).expect("it fits");
    to.write_all(&bytes).expect("written");
}

fn steers(c: char) -> bool {
    (c.is_control() && c != '\n') || c == '\u{202e}'
}

#[test]
fn nor_does_a_file_that_a_diagnostic_quotes() {
    let folder = Folder::new();
    folder.write("bad.idl", "struct A { doubel x; }; // \u{1b}[2J\u{9b}2J\u{202e}\n");
    for arguments in [&["idl", "check", "bad.idl"][..], &["typeof", "--idl", "bad.idl"]] {
        let errors = folder.run(arguments).with(2).errors;
        assert!(errors.contains("struct A { doubel x; };") && errors.contains(r"\u202e"), "{errors:?}");
        assert!(!errors.contains(steers), "{errors:?}");
    }
}

#[test]
fn names_from_strangers_do_not_steer_the_terminal() {
    for (verb, topic, code) in [("list", STEERS, 0), ("echo", "pumps", 2)] {
        let folder = Folder::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let wire = format!("tcp-connect/{}", listener.local_addr().expect("bound"));
        let arguments = ["--wire", &wire, "--timeout", "20", "-v"];
        let names = if verb == "list" { vec![verb] } else { vec![verb, topic] };
        let running = folder.start(&[&names[..], &arguments].concat());
        let (stream, _) = listener.accept().expect("it calls");
        announce(&stream, topic);
        let ended = running.end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let shown = format!("{}{}", ended.out, ended.errors);
        assert!(!shown.contains(steers), "{shown:?}");
        assert!(shown.contains(r"T\u001b]0;owned\u0007\u001b[2J\u009b2J\u000d\u202e"), "{shown}");
        assert!(!shown.lines().any(|line| line.starts_with("error: all is lost")), "{shown}");
    }
}
