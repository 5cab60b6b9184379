//! `polywire transcode` and `polywire dict`: every format is converted to another and back; wrong
//! files are reported.

use crate::common::{Folder, report};

/// Reports as JSON lines, exactly as the JSON codec writes them.
fn lines(count: u32) -> String {
    (0..count).map(|number| report(number) + "\n").collect()
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("in.json", &lines(300));
    folder
}

/// The options for the type `weather::Report`.
const WEATHER: [&str; 4] = ["--idl", "weather.idl", "--type", "Report"];

fn transcode(folder: &Folder, arguments: &[&str]) -> crate::common::Ended {
    folder.run(&[&["transcode"], arguments].concat())
}

#[test]
fn any_format_to_any_format_and_back_to_the_same_lines() {
    let folder = folder();
    let plain = transcode(&folder, &[&["in.json"][..], &WEATHER].concat()).with(0);
    assert!(plain.errors.contains("300 messages"), "{}", plain.errors);
    let listed = folder.run(&["codecs", "--json"]).with(0).json();
    let names = |table: &str| -> Vec<String> {
        let all = listed[table].as_array().expect("a list");
        all.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
    };
    let (codecs, compressors) = (names("codecs"), names("compressors"));
    transcode(&folder, &[&["in.json", "--to", &codecs[0], "-o", "0.frames"][..], &WEATHER].concat()).with(0);
    let steps = codecs.len().max(compressors.len());
    for step in 0..steps {
        let to = format!("{}+{}", codecs[step % codecs.len()], compressors[step % compressors.len()]);
        let (from, into) = (format!("{step}.frames"), format!("{}.frames", step + 1));
        let done = transcode(&folder, &[&from, "--to", &to, "-o", &into]).with(0);
        assert!(done.out.starts_with("300 messages, ") && done.out.contains(&to), "{to}: {}", done.out);
    }
    let back = transcode(&folder, &[&format!("{steps}.frames"), "--quiet"]).with(0);
    assert_eq!(back.out, plain.out);
    assert_eq!(back.errors, "");
    let compressed = transcode(&folder, &["0.frames", "--to", "json+zlib", "-o", "z", "--json"]).with(0).json();
    assert_eq!(compressed["messages"], 300);
    let size = folder.path().join("z").metadata().expect("a file").len();
    assert_eq!(compressed["bytes_out"], size);
}

#[test]
fn templates_of_a_file_go_with_the_messages() {
    let folder = folder();
    let plain = transcode(&folder, &[&["in.json", "--quiet"][..], &WEATHER].concat()).with(0);
    let template = "<templates><template name='Report' id='1'><string name='notes'/></template></templates>";
    folder.write("wrong.xml", template);
    let refused =
        transcode(&folder, &[&["in.json", "--to", "fast:template=wrong.xml", "-o", "a"][..], &WEATHER].concat());
    assert!(refused.with(2).errors.contains("notes"));
    folder.write("wind.idl", "struct Wind { unsigned short direction_deg; };");
    let wind = "<template name='Wind' id='1'><uInt16 name='direction_deg'><copy/></uInt16></template>";
    folder.write("wind.xml", wind);
    folder.write("wind.json", "{\"direction_deg\":270}\n{\"direction_deg\":271}\n");
    transcode(&folder, &["wind.json", "--idl", "wind.idl", "--to", "fast:template=wind.xml", "-o", "wind.frames"])
        .with(0);
    let back = transcode(&folder, &["wind.frames", "--quiet"]).with(0);
    assert_eq!(back.out, "{\"direction_deg\":270}\n{\"direction_deg\":271}\n");
    transcode(&folder, &[&["in.json", "--to", "fast", "-o", "b"][..], &WEATHER].concat()).with(0);
    assert_eq!(transcode(&folder, &["b", "--quiet"]).with(0).out, plain.out);
}

#[test]
fn another_version_of_the_type_reads_it() {
    let folder = folder();
    let to_frames = [&["in.json", "--to", "bson+rle", "-o", "a", "--topic", "w"][..], &WEATHER].concat();
    transcode(&folder, &to_frames).with(0);
    let older = transcode(&folder, &["a", "--idl", "older.idl", "--type", "Report", "--quiet"]).with(0);
    let first = older.out.lines().nth(7).expect("a line");
    assert!(first.contains(r#""station":"S7""#) && first.contains(r#""pressure_hpa":1013.25"#), "{first}");
    let wrong = transcode(&folder, &["a", "--idl", "wrong.idl"]).with(2);
    assert!(wrong.errors.contains("topic 'w'") && wrong.errors.contains("temperature_c"), "{}", wrong.errors);
    assert_eq!(transcode(&folder, &["a", "--topic", "other", "--quiet"]).with(0).out, "");
    assert_eq!(transcode(&folder, &["a", "--topic", "w", "--quiet"]).with(0).out.lines().count(), 300);
}

#[test]
fn what_is_wrong_is_named() {
    let folder = folder();
    assert!(transcode(&folder, &["in.json"]).with(3).errors.contains("add --idl"));
    assert!(transcode(&folder, &[&["none.json"][..], &WEATHER].concat()).with(2).errors.contains("none.json"));
    assert!(transcode(&folder, &["in.json", "--to", "cdr@tcp/x:1"]).with(3).errors.contains("a codec alone"));
    assert!(transcode(&folder, &["in.json", "--to", "cdr+zip"]).with(3).errors.contains("unknown compressor 'zip'"));
    let same = transcode(&folder, &[&["in.json", "--to", "cdr", "-o", "./in.json"][..], &WEATHER].concat()).with(3);
    assert!(same.errors.contains("while it is read"), "{}", same.errors);

    folder.write("bad.json", &format!("{}\n{{\"station\":7}}\n{{\"statoin\":\"x\"}}\n{}\n", report(1), report(2)));
    let bad = transcode(&folder, &[&["bad.json"][..], &WEATHER].concat()).with(1);
    assert_eq!(bad.out.lines().count(), 2);
    assert!(bad.errors.contains("bad.json:2: station") && bad.errors.contains("no member 'statoin'"), "{}", bad.errors);
    assert!(bad.errors.contains("2 bad messages skipped"), "{}", bad.errors);
    let lenient = transcode(&folder, &[&["bad.json", "--lenient"][..], &WEATHER].concat()).with(1);
    assert_eq!(lenient.out.lines().count(), 3);
    let strict = transcode(&folder, &[&["bad.json", "--strict"][..], &WEATHER].concat()).with(2);
    assert_eq!(strict.out.lines().count(), 1);
}

#[test]
fn damaged_frames_are_told_after_all_that_can_be_read() {
    let folder = folder();
    transcode(&folder, &[&["in.json", "--to", "cdr+lz4", "-o", "a"][..], &WEATHER].concat()).with(0);
    let whole = std::fs::read(folder.path().join("a")).expect("read");
    for keep in [7, 40, whole.len() / 2, whole.len() - 3] {
        std::fs::write(folder.path().join("cut"), &whole[..keep]).expect("written");
        let cut = transcode(&folder, &["cut", "--quiet"]).with(2);
        assert!(cut.errors.contains("ends in the middle of a frame"), "{keep}: {}", cut.errors);
        assert!(keep < whole.len() / 2 || cut.out.lines().count() > 100, "{keep}: {} lines", cut.out.lines().count());
    }
    // A message that is not valid LZ4 is skipped, and later ones are read.
    let at = whole.len() / 2;
    let mut flipped = whole.clone();
    for at in (at..at + 400).step_by(7) {
        flipped[at] ^= 0x5A;
    }
    std::fs::write(folder.path().join("flipped"), &flipped).expect("written");
    let ended = transcode(&folder, &["flipped", "--quiet"]);
    assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
    let first: String = ended.out.lines().take(100).map(|line| format!("{line}\n")).collect();
    let good = transcode(&folder, &["a", "--quiet"]).with(0);
    assert!(good.out.starts_with(&first));
}

#[test]
fn a_dictionary_is_trained_and_used_by_files_and_topics() {
    let folder = folder();
    folder.write("many.json", &lines(2000));
    let train = |size: &str| {
        let arguments = ["dict", "train", "many.json", "--codec", "cdr", "--size", size, "-o", "w.dict", "--json"];
        folder.run(&[&arguments[..], &WEATHER].concat())
    };
    assert!(train("9").with(3).errors.contains("from 256"));
    for (codec, expected) in
        [("jsn", "did you mean 'json'?"), ("json+lz4", "leave out +lz4"), ("json:x", "no option 'x'")]
    {
        let train = ["dict", "train", "many.json", "--codec", codec, "-o", "x"];
        let refused = folder.run(&[&train[..], &WEATHER].concat()).with(3);
        assert!(refused.errors.contains(expected), "{codec}: {}", refused.errors);
    }
    let trained = train("2048").with(0).json();
    assert_eq!(trained["samples"], 1750);
    for worth in trained["worth"].as_array().expect("a list") {
        let number = |name: &str| worth[name].as_u64().expect("a number");
        assert!(number("with_dictionary") * 3 < number("bytes") * 2, "{worth}");
    }
    let few = folder.run(&[&["dict", "train", "few.json", "-o", "x"][..], &WEATHER].concat());
    few.with(2);
    folder.write("few.json", &lines(2));
    let few = folder.run(&[&["dict", "train", "few.json", "-o", "x"][..], &WEATHER].concat()).with(2);
    assert!(few.errors.contains("too few"), "{}", few.errors);

    let to_frames = [&["in.json", "--to", "cdr+zstd:3,dict=w.dict", "-o", "a"][..], &WEATHER].concat();
    transcode(&folder, &to_frames).with(0);
    std::fs::remove_file(folder.path().join("w.dict")).expect("removed");
    let back = transcode(&folder, &["a", "--quiet"]).with(0);
    assert_eq!(back.out.lines().count(), 300);
}

/// Codecs, and framings of bare payloads that can hold their messages.
const BARE: &[(&str, &[&str])] = &[
    ("cdr", &["none", "len1", "len2le", "len2be", "len4le", "len4be", "len8le", "len8be", "delimited", "block"]),
    ("xcdr2", &["none", "len2be", "delimited"]),
    ("protobuf", &["len1", "len4be", "delimited", "block"]),
    ("msgpack", &["none", "len4le", "delimited"]),
    ("cbor", &["none", "len8be", "delimited"]),
    ("ubjson", &["none", "len2le", "delimited"]),
    ("bson", &["none", "len4le", "delimited"]),
    ("json", &["none", "len4le", "delimited", "lines"]),
    ("xml", &["len4le", "delimited", "lines"]),
    ("yaml", &["len4le", "delimited"]),
    ("yaml-flow", &["len2be", "lines"]),
    ("fast", &["none", "len2be", "block"]),
];

#[test]
fn bare_payloads_of_every_codec_there_and_back() {
    let folder = folder();
    let plain = transcode(&folder, &[&["in.json", "--quiet"][..], &WEATHER].concat()).with(0).out;
    for (codec, framings) in BARE {
        for framing in *framings {
            let to =
                [&["in.json", "--to", codec, "--to-framing", framing, "-o", "bare", "--json"][..], &WEATHER].concat();
            let written = transcode(&folder, &to).with(0).json();
            assert_eq!(written["bytes_out"], std::fs::read(folder.path().join("bare")).expect("read").len());
            let from = [&["bare", "--from", codec, "--framing", framing, "--quiet"][..], &WEATHER].concat();
            assert_eq!(transcode(&folder, &from).with(0).out, plain, "{codec} {framing}");
        }
    }
}

#[test]
fn payloads_of_fast_are_read_by_the_templates_of_a_file() {
    let folder = Folder::new();
    folder.write("wind.idl", "struct Wind { unsigned short direction_deg; };");
    let template = "<template name='Wind' id='1'><uInt16 name='direction_deg'><copy value='270'/></uInt16></template>";
    folder.write("wind.xml", template);
    // Presence maps with bits for the template and for the field; without that, the initial value.
    std::fs::write(folder.path().join("wind"), b"\0\x02\xc0\x81\0\x04\xe0\x81\x02\x8f").expect("written");
    let from = ["wind", "--from", "fast:template=wind.xml", "--framing", "len2be", "--idl", "wind.idl", "--quiet"];
    let read = transcode(&folder, &from).with(0);
    assert_eq!(read.out, "{\"direction_deg\":270}\n{\"direction_deg\":271}\n");
}

/// The file is longer than one read, so that messages are cut at many places.
#[test]
fn messages_that_say_where_they_end_are_cut_out_of_a_large_file() {
    let folder = Folder::new();
    folder.write("many.json", &lines(20_000));
    let plain = transcode(&folder, &[&["many.json", "--quiet"][..], &WEATHER].concat()).with(0).out;
    for (codec, _) in BARE.iter().filter(|(_, framings)| framings.contains(&"none")) {
        let to = [&["many.json", "--to", codec, "--to-framing", "none", "-o", "bare", "-q"][..], &WEATHER].concat();
        transcode(&folder, &to).with(0);
        assert!(std::fs::metadata(folder.path().join("bare")).expect("a file").len() > 1 << 20 || *codec == "fast");
        let back = transcode(&folder, &[&["bare", "--from", codec, "--quiet"][..], &WEATHER].concat()).with(0);
        assert!(back.out == plain, "{codec}");
    }
}

/// Each file was written by hand and has three messages. The second one does not fit the type.
#[test]
fn a_payload_that_cannot_be_read_is_named_and_the_rest_is_read() {
    let folder = Folder::new();
    folder.write("n.idl", "struct N { long n; };");
    let n = ["--idl", "n.idl", "--quiet"];
    let (one, two) = (b"\x0c\0\0\0\x10n\0\x01\0\0\0\0", b"\x0c\0\0\0\x10n\0\x02\0\0\0\0");
    let bad = b"\x0e\0\0\0\x02n\0\x02\0\0\0x\0\0";
    std::fs::write(folder.path().join("bson"), [&one[..], bad, two].concat()).expect("written");
    let read = transcode(&folder, &[&["bson", "--from", "bson"][..], &n].concat()).with(1);
    assert_eq!(read.out, "{\"n\":1}\n{\"n\":2}\n");
    assert!(read.errors.starts_with("error: bson: message 2, which begins at byte 12: n: "), "{}", read.errors);
    let strict = transcode(&folder, &[&["bson", "--from", "bson", "--strict"][..], &n].concat()).with(2);
    assert_eq!(strict.out, "{\"n\":1}\n");

    let files: [(&str, &str, &[u8], &str); 6] = [
        ("json", "none", b"{\"n\":1}\n{\"n\":\"x\"} {\n\"n\":\n2}\n", "message 2, which begins at byte 8: n: "),
        ("cbor", "none", b"\xa1\x61n\x01\xa1\x61n\x61x\xa1\x61n\x02", "message 2, which begins at byte 4: n: "),
        (
            "msgpack",
            "delimited",
            b"\x04\x81\xa1n\x01\x05\x81\xa1n\xa1x\x04\x81\xa1n\x02",
            "message 2, which begins at byte 6: n: ",
        ),
        ("json", "lines", b"{\"n\":1}\r\n\n{\"n\":\"x\"}\n{\"n\":2}", "foreign:3: n: "),
        ("protobuf", "len2be", b"\0\x02\x08\x02\0\x01\x08\0\x02\x08\x04", "message 2, which begins at byte 6: "),
        (
            "cdr:header",
            "len4le",
            b"\x08\0\0\0\0\x01\0\0\x01\0\0\0\x02\0\0\0\0\x01\x0a\0\0\0\0\x01\0\0\x02\0\0\0\0\0",
            "message 2, which begins at byte 16: ",
        ),
    ];
    for (codec, framing, bytes, place) in files {
        std::fs::write(folder.path().join("foreign"), bytes).expect("written");
        let read = transcode(&folder, &[&["foreign", "--from", codec, "--framing", framing][..], &n].concat()).with(1);
        assert_eq!(read.out, "{\"n\":1}\n{\"n\":2}\n", "{codec} {framing}");
        assert!(read.errors.contains(place), "{codec} {framing}: {}", read.errors);
    }
}

#[test]
fn a_file_of_payloads_that_breaks_off_is_told_after_all_that_can_be_read() {
    let folder = Folder::new();
    folder.write("n.idl", "struct N { long n; };");
    let files: [(&str, &str, &[u8], &str); 5] = [
        (
            "protobuf",
            "delimited",
            b"\x02\x08\x02\x02\x08",
            "foreign: at byte 3: the file ends in the middle of a frame; is the framing delimited?",
        ),
        ("protobuf", "len4be", b"\0\0\0\x02\x08\x02\xff\xff\xff\xff", "at byte 6: a frame of 4294967295 bytes"),
        ("json", "none", b"{\"n\":1} {\"n\":", "foreign: byte 8: message 2: EOF while parsing a value"),
        ("cbor", "none", b"\xa1\x61n\x01\xff", "foreign: byte 4: message 2: "),
        ("msgpack", "none", b"\x81\xa1n\x01\xc1\x81\xa1n\x02", "where the next one begins is not known"),
    ];
    for (codec, framing, bytes, expected) in files {
        std::fs::write(folder.path().join("foreign"), bytes).expect("written");
        let arguments = ["foreign", "--from", codec, "--framing", framing, "--idl", "n.idl"];
        let read = transcode(&folder, &arguments).with(2);
        assert_eq!(read.out, "{\"n\":1}\n", "{codec} {framing}");
        assert!(
            read.errors.contains(expected) && read.errors.contains("1 message, "),
            "{codec} {framing}: {}",
            read.errors
        );
    }
}

#[test]
fn a_file_without_framing_is_one_message_where_the_format_does_not_say_its_end() {
    let folder = Folder::new();
    folder.write("n.idl", "struct N { long n; };");
    std::fs::write(folder.path().join("one"), [8, 10]).expect("written");
    let read = transcode(&folder, &["one", "--from", "protobuf", "--idl", "n.idl", "--quiet"]).with(0);
    assert_eq!(read.out, "{\"n\":5}\n");
    folder.write("two.json", "{\"n\":1}\n{\"n\":2}\n");
    let to = ["two.json", "--idl", "n.idl", "--to", "protobuf", "--to-framing", "none", "-o", "out"];
    let refused = transcode(&folder, &to).with(3);
    assert!(refused.errors.contains("does not say where it ends"), "{}", refused.errors);
}

#[test]
fn what_a_format_cannot_hold_is_named_and_the_rest_is_written() {
    let folder = Folder::new();
    folder.write("m.idl", "struct M { long n; map<string, long> m; };");
    folder.write("m.json", "{\"n\":1}\n{\"n\":2,\"m\":{\"a\\u0000b\":1}}\n{\"n\":3,\"m\":{\"a\":1}}\n");
    for framing in [&[][..], &["--to-framing", "len4le"]] {
        let to = [&["m.json", "--idl", "m.idl", "--to", "bson", "-o", "out"], framing].concat();
        let written = transcode(&folder, &to).with(1);
        assert!(written.errors.starts_with("error: m.json:2: m"), "{}", written.errors);
        assert!(
            written.out.starts_with("2 messages, ") && written.out.contains("1 bad message skipped"),
            "{}",
            written.out
        );
        transcode(&folder, &[&to[..], &["--strict"]].concat()).with(2);
    }
    transcode(&folder, &["m.json", "--idl", "m.idl", "--to", "bson", "-o", "frames"]).with(1);
    assert_eq!(
        transcode(&folder, &["frames", "--quiet"]).with(0).out,
        "{\"n\":1,\"m\":{}}\n{\"n\":3,\"m\":{\"a\":1}}\n"
    );
    // A line cannot hold a line break.
    folder.write("s.idl", "struct S { string s; };");
    folder.write("s.json", "{\"s\":\"a\\nb\"}\n{\"s\":\"c\"}\n");
    let to = ["s.json", "--idl", "s.idl", "--to", "xml", "--to-framing", "lines"];
    let lines = transcode(&folder, &to);
    assert!(
        matches!(lines.code, Some(0 | 1)) && lines.out.lines().last().is_some_and(|line| line.contains(">c<")),
        "{lines:?}"
    );
}

#[test]
fn options_of_payloads_go_together() {
    let folder = folder();
    let refused = |arguments: &[&str], expected: &str| {
        let ended = transcode(&folder, &[&["in.json"], arguments].concat()).with(3);
        assert!(ended.errors.contains(expected), "{arguments:?}: {}", ended.errors);
    };
    refused(&["--from", "cdr"], "--idl");
    refused(&[&["--framing", "lines"][..], &WEATHER].concat(), "--from");
    refused(&[&["--to-framing", "lines"][..], &WEATHER].concat(), "--to");
    refused(&[&["--from", "cdr", "--framing", "lines"][..], &WEATHER].concat(), "cdr is not text");
    refused(&[&["--from", "cdr", "--framing", "len3"][..], &WEATHER].concat(), "possible values: none, len1");
    refused(&[&["--from", "cdr+lz4"][..], &WEATHER].concat(), "leave out +lz4");
    refused(&[&["--to", "cdr+lz4", "--to-framing", "len1"][..], &WEATHER].concat(), "leave out +lz4");
    refused(&[&["--to", "cdr", "--to-framing", "pcap"][..], &WEATHER].concat(), "cannot be written");
    refused(&[&["--from", "cdr", "--framing", "len1", "--port", "7"][..], &WEATHER].concat(), "--framing pcap");
}
