//! The Wireshark dissector `docs/wireshark/polywire.lua` shows the examples of `spec/frame.md`
//! correctly, however they are split into segments.

use polywire_testing::{Folder, spec_examples, tools};
use std::{path::Path, process::Command};

/// An IPv4 packet of one TCP segment.
fn segment(from: u16, to: u16, sequence: u32, data: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((40 + data.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
    packet.extend(from.to_be_bytes());
    packet.extend(to.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet.extend([0, 0, 0, 0, 0x50, 0x18, 0xFF, 0xFF, 0, 0, 0, 0]);
    packet.extend(data);
    packet
}

/// A capture of both directions, each in segments of `size` bytes.
fn capture(there: &[u8], back: &[u8], size: usize) -> Vec<u8> {
    // Version 2.4, packets of up to 65535 bytes, which begin with IP.
    let mut file = [0xA1B2_C3D4_u32, 4 << 16 | 2, 0, 0, 65535, 101].map(u32::to_le_bytes).concat();
    for (from, to, stream) in [(5000, 7447, there), (7447, 5000, back)] {
        for (at, data) in stream.chunks(size).enumerate() {
            let packet = segment(from, to, 1 + (at * size) as u32, data);
            let size = packet.len() as u32;
            file.extend([1, 0, size, size].map(u32::to_le_bytes).concat());
            file.extend(packet);
        }
    }
    file
}

/// What tshark shows of fields, a line for each packet that has any.
fn dissected(file: &[u8], fields: &[&str]) -> Vec<String> {
    let folder = Folder::new("wireshark");
    let path = folder.write("frames.pcap", file);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wireshark/polywire.lua");
    let mut tshark = Command::new("tshark");
    tshark.arg("-X").arg(format!("lua_script:{}", script.display())).arg("-r").arg(&path);
    tshark.args(["-Y", "polywire", "-T", "fields", "-E", "separator=/s"]);
    fields.iter().for_each(|field| _ = tshark.args(["-e", field]));
    let output = tshark.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn it_shows_the_examples_of_the_specification() {
    if !tools::has_program("tshark", "--version") {
        return;
    }
    let examples = spec_examples("frame.md");
    let join = |names: &[&str]| names.iter().flat_map(|name| examples[*name].clone()).collect::<Vec<u8>>();
    let there = join(&["hello", "announce", "data", "dispose", "position", "key", "anchored"]);
    let back = join(&["hello", "accept", "accept-three", "refuse", "renew", "taken"]);
    // In one segment, and cut so that frames and their lengths are apart.
    for size in [1000, 7] {
        let file = capture(&there, &back, size);
        let all = |field: &str| dissected(&file, &[field]).join(",").replace(",,", ",");
        let trimmed = |field: &str| all(field).split(',').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        assert_eq!(
            trimmed("polywire.frame"),
            "Hello Announce Data Dispose Position Data Data Hello Answer Answer Answer Answer Taken",
            "{size}"
        );
        // The announcement's start, the messages, and the position.
        assert_eq!(trimmed("polywire.sequence"), "0 1 4 7 8 9", "{size}");
        assert_eq!(trimmed("polywire.anchor"), "8 8", "{size}");
        assert_eq!(trimmed("polywire.topic"), "t t t t t", "{size}");
        assert_eq!(trimmed("polywire.payload"), "6869 6869 6869", "{size}");
        assert_eq!(
            (trimmed("polywire.answer"), trimmed("polywire.reason")),
            ("Accept Accept Refuse Renew".into(), "no".into())
        );
        assert_eq!((trimmed("polywire.subscribers"), trimmed("polywire.taken")), ("3".into(), "300".into()), "{size}");
        assert_eq!(trimmed("polywire.lost"), "3", "{size}");
        assert!(all("polywire.time").contains("00:00:01.000001000 UTC"), "{size}");
    }
    let info = dissected(&capture(&there, &back, 1000), &["_ws.col.Info"]).join("\n");
    assert!(info.contains("Announce 1: t as cdr; Data t #1, 2 bytes; Dispose t #4"), "{info}");
}

#[test]
fn a_broken_frame_is_called_malformed_and_the_next_ones_are_shown() {
    if !tools::has_program("tshark", "--version") {
        return;
    }
    let hello = &spec_examples("frame.md")["hello"];
    // An announcement that ends after its channel, and a heartbeat.
    let there = [&hello[..], &[2, 2, 1], &[1, 8]].concat();
    let file = capture(&there, hello, 1000);
    assert_eq!(dissected(&file, &["polywire.frame"])[0], "Hello,Announce,Heartbeat");
    assert!(dissected(&file, &["_ws.expert.message"])[0].contains("the frame ends too early"));
}
