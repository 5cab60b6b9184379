//! `polywire fast`: recordings of each framing become JSON lines and the same bytes again; wrong
//! recordings and lines are reported.

use std::fs;

use crate::common::{Ended, Folder};

const FEED: &str = r#"<templates xmlns="http://www.fixprotocol.org/ns/fast/td/1.1">
  <template name="Quote" id="1">
    <uInt32 name="seq"><increment value="1"/></uInt32>
    <string name="symbol"><copy/></string>
    <decimal name="px"><exponent><default value="-2"/></exponent><mantissa><delta/></mantissa></decimal>
    <sequence name="levels"><length name="n"/><int32 name="size" presence="optional"><delta/></int32></sequence>
  </template>
  <template name="Status" id="2"><string name="text"/><byteVector name="raw" presence="optional"/></template>
</templates>
"#;

/// The shortest encodings of the first two messages.
const FIRST: &[u8] = &[0xd0, 0x81, b'P', b'O', b'L', b'Y' | 0x80, 0x00, 0x4e, 0xa9, 0x82, 0x86, 0x80];
const SECOND: &[u8] = &[0x80, 0x81, 0x80];
/// The second message as many feeds encode it: with the template's id, the number and the symbol,
/// although none of them needs bytes.
const SECOND_IN_FULL: &[u8] = &[0xf0, 0x81, 0x82, b'P', b'O', b'L', b'Y' | 0x80, 0x81, 0x80];

const FIRST_LINE: &str =
    r#""template":"Quote","message":{"seq":1,"symbol":"POLY","px":100.25,"levels":[{"size":5},{}]}"#;
const SECOND_LINE: &str = r#""template":"Quote","message":{"seq":2,"symbol":"POLY","px":100.26,"levels":[]}"#;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("feed.xml", FEED);
    folder
}

fn write(folder: &Folder, name: &str, bytes: &[u8]) {
    fs::write(folder.path().join(name), bytes).expect("written");
}

fn read(folder: &Folder, name: &str) -> Vec<u8> {
    fs::read(folder.path().join(name)).expect("read")
}

fn fast(folder: &Folder, arguments: &[&str]) -> Ended {
    folder.run(&[&["fast"], arguments, &["--template", "feed.xml"]].concat())
}

/// Decodes a file, encodes the lines, and compares the bytes; returns the lines.
fn there_and_back(folder: &Folder, name: &str, options: &[&str]) -> String {
    fast(folder, &[&["decode", name, "-o", "lines.json"], options].concat()).with(0);
    let options: Vec<&str> = options.iter().copied().filter(|option| *option != "--skip-bad").collect();
    fast(folder, &[&["encode", "lines.json", "-o", "again"], &options[..]].concat()).with(0);
    assert_eq!(read(folder, "again"), read(folder, name), "{name} {options:?}");
    folder.read("lines.json")
}

/// A decimal with this mantissa and this many decimal places.
fn places(mantissa: u32, places: u32) -> String {
    let power = 10u32.pow(places);
    match places {
        0 => mantissa.to_string(),
        _ => format!("{}.{:0width$}", mantissa / power, mantissa % power, width = places as usize),
    }
}

/// A day of messages, as JSON lines; some share a frame.
fn lines(framed: bool) -> String {
    let line = |i: u32| {
        let frame = if framed { format!("\"frame\":{},", i / 3 + 1) } else { String::new() };
        match i % 7 {
            3 => format!("{{{frame}\"template\":\"Status\",\"message\":{{\"text\":\"round {i}\"}}}}\n"),
            _ => {
                let levels: Vec<String> = (0..i % 5)
                    .map(|level| if level == 3 { "{}".into() } else { format!("{{\"size\":{}}}", i * level) })
                    .collect();
                format!(
                    "{{{frame}\"template\":\"Quote\",\"message\":{{\"seq\":{i},\"symbol\":\"S{}\",\"px\":{},\"levels\":[{}]}}}}\n",
                    i % 3,
                    places(1000 + i * i % 91, i % 4),
                    levels.join(",")
                )
            }
        }
    };
    (0..400).map(line).collect()
}

#[test]
fn every_framing_there_and_back() {
    let folder = folder();
    for framing in ["none", "len2le", "len2be", "len4le", "len4be", "len8le", "len8be", "delimited", "block"] {
        for reset in ["template", "never", "packet", "message"] {
            let options = ["--framing", framing, "--reset", reset];
            let lines = lines(framing != "none");
            folder.write("in.json", &lines);
            let done =
                fast(&folder, &[&["encode", "in.json", "-o", "file", "--json"], &options[..]].concat()).with(0).json();
            let size = read(&folder, "file").len();
            assert_eq!((done["messages"].as_u64(), done["bytes_out"].as_u64()), (Some(400), Some(size as u64)));
            assert_eq!(there_and_back(&folder, "file", &options), lines, "{framing} {reset}");
        }
        // The same from standard input, without the frames.
        let options = ["--framing", framing, "--reset", "message", "--messages"];
        let plain = fast(&folder, &[&["decode", "file"], &options[..]].concat()).with(0);
        assert_eq!(plain.out.lines().count(), 400);
        assert!(plain.errors.contains("400 messages"), "{}", plain.errors);
    }
}

#[test]
fn bytes_that_are_not_the_shortest_come_back_as_they_were() {
    let folder = folder();
    // Two messages in a frame, two frames, one empty.
    let mut file = Vec::new();
    for frame in [&[FIRST, SECOND_IN_FULL].concat()[..], &[], SECOND] {
        file.extend(u16::try_from(frame.len()).expect("short").to_be_bytes());
        file.extend(frame);
    }
    write(&folder, "full", &file);
    let lines = there_and_back(&folder, "full", &["--framing", "len2be"]);
    let expected = format!(
        "{{\"frame\":1,{FIRST_LINE}}}\n{{\"frame\":1,{SECOND_LINE},\"bytes\":\"f08182504f4cd98180\"}}\n{{\"frame\":2}}\n{{\"frame\":3,{}}}\n",
        SECOND_LINE.replace("\"seq\":2", "\"seq\":3").replace("100.26", "100.27")
    );
    assert_eq!(lines, expected);
    // A changed message is encoded again, and later messages refer to it.
    folder.write("lines.json", &lines.replace("100.26", "100.30").replace("100.27", "100.31"));
    fast(&folder, &["encode", "lines.json", "-o", "changed", "--framing", "len2be"]).with(0);
    let changed = [&[0, 15][..], FIRST, &[0x80, 0x85, 0x80], &[0, 0, 0, 3], SECOND].concat();
    assert_eq!(read(&folder, "changed"), changed);

    // Superfluous bytes are deviations, which are only read on request.
    let overlong = [FIRST, &[0x80, 0x81, 0x00, 0x80]].concat();
    write(&folder, "overlong", &overlong);
    let refused = fast(&folder, &["decode", "overlong", "--framing", "none"]).with(2);
    let place = "overlong: byte 14: message 2, which begins at byte 12: Quote.levels: [R6]";
    assert!(refused.errors.contains(place), "{}", refused.errors);
    assert_eq!(refused.out.lines().count(), 1, "what was read before is there");
    let lines = there_and_back(&folder, "overlong", &["--framing", "none", "--deviations", "ignore"]);
    assert!(lines.contains("\"bytes\":\"80810080\""), "{lines}");
    // An overlong block size, and a preamble.
    let block = [&[0x00, 0x80 | (FIRST.len() as u8 + 4)][..], b"\x01\x02\x03\x04", FIRST].concat();
    write(&folder, "block", &block);
    let lines = there_and_back(&folder, "block", &["--framing", "block", "--preamble", "4"]);
    // Without a framing, each message has its own.
    write(&folder, "bare", &[b"\x01\x02\x03\x04", FIRST, b"\x05\x06\x07\x08", SECOND].concat());
    let bare = there_and_back(&folder, "bare", &["--framing", "none", "--preamble", "4"]);
    let expected = format!("{{\"preamble\":\"01020304\",{FIRST_LINE}}}\n{{\"preamble\":\"05060708\",{SECOND_LINE}}}\n");
    assert_eq!(bare, expected);
    write(&folder, "bare", &[b"\x01\x02\x03\x04", FIRST, b"\x05\x06"].concat());
    let short = fast(&folder, &["decode", "bare", "--framing", "none", "--preamble", "4"]).with(2);
    assert!(short.errors.contains("bare: byte 16: the file ends within 4 bytes of preamble"), "{}", short.errors);
    assert_eq!(lines, format!("{{\"frame\":1,\"head\":\"0090\",\"preamble\":\"01020304\",{FIRST_LINE}}}\n"));
}

/// An Ethernet packet with a UDP datagram over IPv4, padded like all short packets.
fn packet(payload: &[u8], protocol: u8, port: u16) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let mut packet = [vec![2; 12], vec![8, 0, 0x45, 0]].concat();
    packet.extend((length + 20).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 127, 0, 0, 1, 239, 1, 2, 3]);
    packet.extend(5000_u16.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend(length.to_be_bytes());
    packet.extend([0xbe, 0xef]);
    packet.extend(payload);
    packet.resize(packet.len().max(60), 0);
    packet
}

fn pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for number in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(number.to_le_bytes());
    }
    for (i, packet) in packets.iter().enumerate() {
        for number in [1000, i as u32, packet.len() as u32, packet.len() as u32] {
            file.extend(number.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

fn pcapng(packets: &[Vec<u8>]) -> Vec<u8> {
    let block = |kind: u32, words: &[u32], data: &[u8]| {
        let length = (12 + 4 * words.len() + data.len().next_multiple_of(4)) as u32;
        let mut block: Vec<u8> = [&[kind, length], words].concat().iter().flat_map(|word| word.to_be_bytes()).collect();
        block.extend(data);
        block.resize(length as usize - 4, 0);
        block.extend(length.to_be_bytes());
        block
    };
    let mut file = block(0x0a0d_0d0a, &[0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX], &[]);
    file.extend(block(1, &[1 << 16, 0], &[]));
    for packet in packets {
        file.extend(block(6, &[0, 1, 2, packet.len() as u32, packet.len() as u32], packet));
    }
    file
}

#[test]
fn captures_there_and_back() {
    let folder = folder();
    let both = [FIRST, SECOND_IN_FULL].concat();
    let packets = [
        packet(&both, 17, 9000),
        packet(b"not ours", 6, 9000),
        packet(b"", 17, 9000),
        packet(FIRST, 17, 9000),
        packet(b"\xff", 17, 53),
    ];
    for (name, file) in [("a.pcap", pcap(&packets)), ("a.pcapng", pcapng(&packets))] {
        write(&folder, name, &file);
        let options = ["--framing", "pcap", "--reset", "packet"];
        // The datagrams to port 53 are not of the feed.
        let refused = fast(&folder, &[&["decode", name], &options[..]].concat()).with(2);
        assert!(refused.errors.contains("message 4"), "{}", refused.errors);
        fast(&folder, &[&["decode", name, "--port", "9000", "-o", "lines.json"], &options[..]].concat()).with(0);
        fast(&folder, &[&["encode", "lines.json", "-o", "again"], &options[..]].concat()).with(0);
        assert_eq!(read(&folder, "again"), file, "{name}");
        let lines = folder.read("lines.json");
        assert_eq!(lines.matches("\"template\":\"Quote\"").count(), 3, "{lines}");
        assert_eq!(lines.matches("\"other\":").count(), if name == "a.pcap" { 3 } else { 4 }, "{lines}");
        let skipped =
            fast(&folder, &[&["decode", name, "--skip-bad", "-o", "skipped.json"], &options[..]].concat()).with(1);
        assert!(skipped.errors.contains("message 4, which begins at byte"), "{}", skipped.errors);
        assert!(folder.read("skipped.json").contains("\"undecoded\":\"ff\""));
        fast(&folder, &[&["encode", "skipped.json", "-o", "again"], &options[..]].concat()).with(0);
        assert_eq!(read(&folder, "again"), file, "{name}");
        // A change of the same length is accepted; one of another length contradicts the packet's
        // headers.
        let (before, after) = lines.rsplit_once("100.25").expect("a price");
        folder.write("lines.json", &format!("{before}100.24{after}"));
        fast(&folder, &[&["encode", "lines.json", "-o", "changed"], &options[..]].concat()).with(0);
        let changed = read(&folder, "changed");
        assert_eq!(changed.iter().zip(&file).filter(|(a, b)| a != b).count(), 1, "{name}");
        folder.write("lines.json", &lines.replace("\"POLY\"", "\"POLYWIRE\""));
        let refused = fast(&folder, &[&["encode", "lines.json"], &options[..]].concat()).with(2);
        assert!(refused.errors.contains("which is not what the frame's \"head\" says"), "{}", refused.errors);
        let plain =
            fast(&folder, &[&["decode", name, "--port", "9000", "--messages"], &options[..]].concat()).with(0).out;
        assert!(!plain.contains("head") && plain.lines().count() == 3, "{plain}");
        folder.write("plain.json", &plain);
        let refused = fast(&folder, &[&["encode", "plain.json"], &options[..]].concat()).with(2);
        assert!(refused.errors.contains("without --messages"), "{}", refused.errors);
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let folder = folder();
    let framed = [&12_u32.to_le_bytes()[..], FIRST].concat();
    write(&folder, "a", &framed);
    let told = |arguments: &[&str], code: i32, texts: &[&str]| {
        let ended = fast(&folder, arguments).with(code);
        texts.iter().for_each(|text| assert!(ended.errors.contains(text), "{arguments:?}: {}", ended.errors));
    };
    told(
        &["decode", "a", "--framing", "len4be"],
        2,
        &["a: at byte 0: a frame of 201326592 bytes", "is the framing len4be?"],
    );
    told(
        &["decode", "a", "--framing", "none"],
        2,
        &[
            "a: byte 5: message 1, which begins at byte 0",
            "are --template, --framing and --preamble those of the feed?",
        ],
    );
    told(&["decode", "nowhere", "--framing", "none"], 2, &["cannot read nowhere"]);
    told(&["decode", "a", "--framing", "pcap"], 2, &["a: at byte 0: not a capture"]);
    told(&["decode", "a", "--framing", "len3"], 3, &["len4le"]);
    told(&["decode", "a"], 3, &["--framing"]);
    told(&["decode", "a", "--framing", "len4le", "--skip-bad"], 3, &["--reset packet or message"]);
    told(&["decode", "a", "--framing", "len4le", "--port", "1"], 3, &["--framing pcap"]);
    told(&["decode", "a", "--framing", "len4le", "-o", "a"], 3, &["would be written while it is read"]);
    told(
        &["decode", "a", "--framing", "len4le", "--preamble", "20"],
        2,
        &["a frame of 12 bytes is shorter than the preamble of 20"],
    );
    write(&folder, "cut", &framed[..14]);
    told(&["decode", "cut", "--framing", "len4le"], 2, &["cut: at byte 0: the file ends in the middle of a frame"]);
    write(&folder, "cut", &FIRST[..9]);
    told(&["decode", "cut", "--framing", "none"], 2, &["cut: byte 0: message 1", "ends in the middle of a field"]);
    // A frame that ends within a field, and one whose message refers to a missing one.
    write(&folder, "short", &[&4_u32.to_le_bytes()[..], &FIRST[..4], &3_u32.to_le_bytes(), SECOND].concat());
    told(&["decode", "short", "--framing", "len4le"], 2, &["short: byte 4: message 1"]);
    write(&folder, "lost", &[&3_u32.to_le_bytes()[..], SECOND].concat());
    told(&["decode", "lost", "--framing", "len4le"], 2, &["lost: byte 5: message 1", "[D5]"]);

    for (line, text) in [
        ("{\"template\":\"Quote\"}", "both"),
        ("{\"template\":\"Trade\",\"message\":{}}", "Trade"),
        ("{\"template\":\"Quote\",\"message\":{\"seq\":-1}}", "seq"),
        ("{\"frame\":1,\"haed\":\"00\"}", "haed"),
        ("{\"frame\":1,\"head\":\"0x\"}", "hexadecimal"),
        ("{\"frame\":1,\"head\":\"05000000\"}", "head"),
        ("nonsense", "not a line that `polywire fast decode` wrote"),
    ] {
        folder.write("wrong.json", &format!("\n{line}\n"));
        let ended = fast(&folder, &["encode", "wrong.json", "--framing", "len4le"]).with(2);
        assert!(ended.errors.contains("wrong.json") && ended.errors.contains(text), "{line}: {}", ended.errors);
    }
    folder.write(
        "feed.xml",
        "<templates><template name='T' id='1'><int32 name='a'><tail/></int32></template></templates>",
    );
    told(&["decode", "a", "--framing", "none"], 2, &["feed.xml: [S2] line 1, column"]);
}

#[test]
fn messages_may_lie_anywhere_in_a_long_file() {
    let folder = folder();
    // Each level takes a byte, so a part of the file can end after any number of levels, and has
    // fewer than its length says.
    let levels = vec!["{}"; 200].join(",");
    let line = |seq: u32| {
        format!(
            "{{\"template\":\"Quote\",\"message\":{{\"seq\":{seq},\"symbol\":\"POLY\",\"px\":{},\"levels\":[{levels}]}}}}\n",
            places(seq, 2)
        )
    };
    folder.write("long.json", &(1..=4000).map(line).collect::<String>());
    fast(&folder, &["encode", "long.json", "-o", "long", "--framing", "none"]).with(0);
    assert!(read(&folder, "long").len() > 800_000);
    assert_eq!(there_and_back(&folder, "long", &["--framing", "none"]), folder.read("long.json"));
}

#[test]
fn a_study_says_what_a_recording_is_worth() {
    let folder = folder();
    folder.write("day.json", &lines(false));
    fast(&folder, &["encode", "day.json", "-o", "day", "--framing", "none"]).with(0);
    let links = ["--link", "delay=5ms", "--link", "lossy-30", "--rate", "1000", "--key-interval", "50"];
    let study =
        [&["--json", "fast", "study", "day", "--template", "feed.xml", "--framing", "none"], &links[..]].concat();
    let found: serde_json::Value = serde_json::from_str(&folder.run(&study).with(0).out).expect("it is JSON");
    assert_eq!((&found["messages"], &found["longer_than_needed"]), (&400.into(), &0.into()), "{found}");
    assert_eq!(found["bytes"], read(&folder, "day").len());
    assert_eq!((&found["templates"]["Quote"], &found["templates"]["Status"]), (&343.into(), &57.into()));
    let bytes = |name: &str| {
        let formats = found["formats"].as_array().expect("a list");
        let format =
            formats.iter().find(|format| format["format"] == name).unwrap_or_else(|| panic!("{name}: {found}"));
        assert!(format["encode_ns"].as_f64() > Some(0.0) && format["decode_ns"].as_f64() > Some(0.0), "{format}");
        format["bytes"].as_f64().expect("a number")
    };
    assert!(bytes("fast, as recorded") < bytes("fast, each message alone"), "{found}");
    assert!(bytes("fast, each message alone") < bytes("cdr") && bytes("cdr") < bytes("xml"), "{found}");
    let over = |link: &str, wire: &str| {
        let mut links = found["links"].as_array().expect("a list").iter();
        let figures = links.find(|figures| figures["link"] == link && figures["wire"] == wire).expect("it was run");
        assert_eq!((&figures["sent"], &figures["wrong"]), (&400.into(), &0.into()), "{figures}");
        let number = |name: &str| figures[name].as_u64().expect("a number");
        assert!(number("delivered") + number("undecodable") <= 400, "{figures}");
        (number("delivered"), figures["bytes"].as_f64().expect("a number"))
    };
    let of_four = ["fast:mode=chained", "fast:mode=anchored", "cdr", "json"].map(|wire| over("delay=5ms", wire));
    assert!(of_four.iter().all(|(delivered, _)| *delivered == 400), "{found}");
    let bytes = of_four.map(|(_, bytes)| bytes);
    assert!(bytes.is_sorted() && bytes[1] * 2.0 < bytes[2], "{found}");
    // 30 % of 400 messages are lost, in bursts. Messages that refer to a lost one cannot be
    // decoded.
    let (chained, anchored) = (over("lossy-30", "fast:mode=chained").0, over("lossy-30", "fast:mode=anchored").0);
    assert!(chained < anchored && anchored < over("delay=5ms", "cdr").0, "{found}");
    let plain = [over("lossy-30", "cdr").0, over("lossy-30", "json").0];
    assert!(plain.iter().all(|delivered| (200..360).contains(delivered)), "{found}");

    // Only as many messages as the time allows.
    let brief = ["study", "day", "--framing", "none", "--quiet", "-o", "day.md", "--seconds", "0.2"];
    let table = fast(&folder, &brief).with(0).out;
    assert!(table.starts_with("400 messages") && table.contains("encoding them again gives the same bytes"), "{table}");
    let page = folder.read("day.md");
    assert!(page.contains("| protobuf | ") && page.contains("100 messages on each of four topics"), "{page}");
    assert!(page.contains("### lossy-30") && page.contains("| fast:mode=anchored | 100 | "), "{page}");
    assert!(page.contains("](<day-1.svg>)") && folder.read("day-1.svg").contains(">Delivered of day<"), "{page}");
    write(&folder, "long", &[FIRST, SECOND_IN_FULL].concat());
    let longer = fast(&folder, &["study", "long", "--framing", "none", "--quiet"]).with(1).out;
    assert!(longer.contains("encoding them again changes the bytes of 1, because"), "{longer}");
    write(&folder, "cut", &FIRST[..9]);
    let cut = fast(&folder, &["study", "cut", "--framing", "none", "--quiet"]).with(2);
    assert!(cut.errors.contains("cut: byte 0: message 1, which begins at byte 0"), "{}", cut.errors);
    let wrong = fast(&folder, &["study", "long", "--framing", "none", "--link", "loss=much"]).with(3);
    assert!(wrong.errors.contains("loss"), "{}", wrong.errors);
}

/// In some old feeds, the only template has no id, and no message names it.
#[test]
fn the_only_template_may_be_told() {
    let folder = Folder::new();
    let quote = r#"<uInt32 name="seq"><increment/></uInt32><string name="symbol"><copy/></string>"#;
    let namespace = "http://www.fixprotocol.org/ns/template-definition";
    folder.write(
        "feed.xml",
        &format!("<templates xmlns=\"{namespace}\"><template name=\"Quote\">{quote}</template></templates>"),
    );
    let messages = [&[0xb0, 0x85, b'A', b'B' | 0x80][..], &[0x80], &[0x90, b'C' | 0x80]].concat();
    write(&folder, "day", &messages);
    let without = fast(&folder, &["decode", "day", "--framing", "none"]).with(2);
    assert!(without.errors.contains("no template has an id"), "{}", without.errors);
    let lines = there_and_back(&folder, "day", &["--framing", "none", "--template-id", "7"]);
    let line = |seq: u32, symbol: &str| {
        format!("{{\"template\":\"Quote\",\"message\":{{\"seq\":{seq},\"symbol\":\"{symbol}\"}}}}\n")
    };
    assert_eq!(lines, line(5, "AB") + &line(6, "AB") + &line(7, "C"), "nothing but the messages is kept");
    let study = ["study", "day", "--framing", "none", "--template-id", "7", "--link", "loss=0", "--quiet"];
    let table = fast(&folder, &study).with(0).out;
    assert_eq!(table.matches("  100.0 %    0            0\n").count(), 4, "{table}");
    // With several templates, it selects one of them.
    folder.write("feed.xml", FEED);
    let unknown = fast(&folder, &["decode", "day", "--framing", "none", "--template-id", "7"]).with(2);
    assert!(unknown.errors.contains("no template has the id 7"), "{}", unknown.errors);
}

#[test]
fn damaged_recordings_end_in_good_order() {
    let folder = folder();
    let file = pcap(&[packet(&[FIRST, SECOND_IN_FULL].concat(), 17, 9000), packet(SECOND, 17, 9000)]);
    let mut number = 0x9e37_79b9_u32;
    for _ in 0..40 {
        let mut damaged = file.clone();
        for _ in 0..3 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = number as usize % damaged.len();
            damaged[at] ^= 1 << (number >> 29);
        }
        write(&folder, "damaged", &damaged);
        let ended = folder
            .command(&[
                "fast",
                "decode",
                "damaged",
                "--template",
                "feed.xml",
                "--framing",
                "pcap",
                "-q",
                "-o",
                "lines.json",
            ])
            .output()
            .expect("it runs");
        assert!(matches!(ended.status.code(), Some(0 | 2)), "{damaged:02x?}: {ended:?}");
        if ended.status.code() == Some(0) {
            fast(&folder, &["encode", "lines.json", "-o", "again", "--framing", "pcap"]).with(0);
            assert_eq!(read(&folder, "again"), damaged);
        }
    }
}
