//! SIGTERM, SIGINT and SIGHUP: every command but the services cleans up and ends
//! by the signal, as shells and service managers expect.

use crate::common::{Folder, Running, report};

const WIRE: [&str; 2] = ["--wire", "json@unix/t.sock"];

/// The names of the signals, and their numbers.
const SIGNALS: [(&str, i32); 3] = [("TERM", 15), ("INT", 2), ("HUP", 1)];

fn publishing(folder: &Folder) -> Running {
    let value = report(1);
    let arguments = ["pub", "weather", &value, "--idl", "weather.idl", "--type", "Report", "--wait", "0"];
    folder.start(&[&arguments[..], &["--count", "1000000", "--rate", "100", "-v"], &WIRE].concat())
}

#[test]
fn every_verb_with_a_node_says_goodbye() {
    let folder = Folder::new();
    let verbs = ["echo weather", "hz weather", "bw weather", "typeof other --timeout 100"];
    for (signal, number) in SIGNALS {
        for verb in verbs {
            let mut publisher = publishing(&folder);
            publisher.error_after("listening on ");
            let arguments: Vec<&str> = verb.split(' ').collect();
            let mut running = folder.start(&[&arguments[..], &["-v"], &WIRE].concat());
            running.error_after(" is up");
            let ended = running.end_by(signal);
            assert_eq!(ended.signal(), Some(number), "{verb}: {ended:?}");
            let goodbye = publisher.error_after(" is down: ");
            assert_eq!(goodbye, "closed by the peer", "{verb}");
            let mut echo = folder.start(&[&["echo", "weather", "-v"], &WIRE[..]].concat());
            echo.error_after(" is up");
            echo.line();
            let ended = publisher.end_by(signal);
            assert_eq!(ended.signal(), Some(number), "pub: {ended:?}");
            assert_eq!(echo.error_after(" is down: "), "closed by the peer");
        }
    }
}

#[test]
fn a_server_answers_the_request_at_hand_and_ends_with_0() {
    for signal in ["TERM", "INT"] {
        let folder = Folder::new();
        folder.write("slow.sh", "sleep 1; echo '{\"station\":\"EDDM\"}'");
        let reply = ["--exec", "sh slow.sh", "--idl", "weather.idl", "--type", "Report"];
        let mut server = folder.start(&[&["serve", "now", "-v"], &reply[..], &WIRE].concat());
        server.error_after("listening on ");
        let value = report(1);
        let call = ["call", "now", &value, "--idl", "weather.idl", "--type", "Report", "--timeout", "60"];
        let mut call = folder.start(&[&call[..], &WIRE].concat());
        // It prints the request before it runs the command.
        assert!(server.line().contains("station"));
        let ended = server.end_by(signal);
        ended.with(0);
        assert!(call.line().contains("EDDM"));
    }
}

#[test]
fn a_link_shows_what_it_did() {
    for (signal, number) in SIGNALS {
        let folder = Folder::new();
        let mut link = folder.start(&["link", "udp/127.0.0.1:0", "udp/127.0.0.1:9", "--every", "0"]);
        link.line();
        let ended = link.end_by(signal);
        assert_eq!(ended.signal(), Some(number), "{ended:?}");
        assert!(ended.out.contains("there  in 0") && ended.out.contains("back   in 0"), "{ended:?}");
    }
}
