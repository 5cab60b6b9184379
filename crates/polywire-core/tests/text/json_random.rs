//! JSON of random types and values: another library parses it, and it round-trips under every
//! option.

use super::json_support::{coders, random_record};
use polywire_core::{
    codec::json,
    layout::{Record, Shape},
    schema::arbitrary::Random,
};
use polywire_testing::random_schema;
use std::sync::Arc;

const OPTIONS: [&str; 8] = [
    "",
    "int64=string",
    "enum=number",
    "bytes=array",
    "bitmask=names",
    "null=write",
    "pretty",
    "int64=string,enum=number,bytes=array,bitmask=names,null=write,pretty",
];

/// A record of each of many random types.
fn records() -> impl Iterator<Item = (u64, Arc<Shape>, Random)> {
    (0..150).filter_map(|seed| {
        let schema = random_schema(seed, 8);
        // Some are too large for a record.
        Some((seed, Shape::of(&schema).ok()?, Random::new(seed)))
    })
}

#[test]
fn random_values_come_back_under_every_option() {
    let mut compared = 0;
    for (seed, shape, mut random) in records() {
        for with in OPTIONS {
            let coders = coders(&shape, with);
            for _ in 0..4 {
                let record = random_record(&mut random, &shape);
                let mut texts = Vec::new();
                for (encoder, decoder) in &coders {
                    let mut text = Vec::new();
                    encoder.encode(&record, &mut text).unwrap_or_else(|e| panic!("seed {seed}, {with}: {e}"));
                    json::validate(&text)
                        .unwrap_or_else(|e| panic!("seed {seed}, {with}: {e}\n{}", String::from_utf8_lossy(&text)));
                    let oracle = serde_json::from_slice::<serde_json::Value>(&text);
                    oracle.unwrap_or_else(|e| panic!("seed {seed}, {with}: {e}\n{}", String::from_utf8_lossy(&text)));
                    assert!(with.contains("pretty") || !text.contains(&b'\n'), "a line is a line");

                    // Over another value, which leaves no trace.
                    let mut back = random_record(&mut random, &shape);
                    let read = decoder.decode(&text, &mut back);
                    let read =
                        read.unwrap_or_else(|e| panic!("seed {seed}, {with}: {e}\n{}", String::from_utf8_lossy(&text)));
                    assert_eq!(read, text.len());
                    assert_eq!(back, record, "seed {seed}, {with}\n{}", String::from_utf8_lossy(&text));
                    texts.push(text);
                    compared += 1;
                }
                assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: the back ends differ");
            }
        }
    }
    assert!(compared > 2000, "only {compared} were compared");
}

#[test]
fn pretty_text_is_the_same_text_with_blanks() {
    for (seed, shape, mut random) in records().take(60) {
        let record = random_record(&mut random, &shape);
        let [plain, pretty] = ["", "pretty"].map(|with| {
            let mut text = Vec::new();
            coders(&shape, with)[0].0.encode(&record, &mut text).unwrap();
            text
        });
        let tree: serde_json::Value = serde_json::from_slice(&plain).unwrap();
        assert_eq!(tree, serde_json::from_slice::<serde_json::Value>(&pretty).unwrap(), "seed {seed}");
        let (mut in_string, mut escaped) = (false, false);
        let stripped = pretty.iter().copied().filter(|byte| {
            let keep = in_string || !matches!(byte, b' ' | b'\n');
            in_string ^= *byte == b'"' && !escaped;
            escaped = in_string && *byte == b'\\' && !escaped;
            keep
        });
        assert_eq!(stripped.collect::<Vec<u8>>(), plain, "seed {seed}");
    }
}

#[test]
fn cut_and_flipped_texts_do_no_harm() {
    let (mut refused, mut read) = (0, 0);
    for (seed, shape, mut random) in records().take(60) {
        let coders = coders(&shape, "");
        let record = random_record(&mut random, &shape);
        let mut text = Vec::new();
        coders[0].0.encode(&record, &mut text).unwrap();
        for (_, decoder) in &coders {
            let mut target = Record::new(&shape);
            for len in (0..text.len()).step_by(1 + text.len() / 200) {
                assert!(decoder.decode(&text[..len], &mut target).is_err(), "seed {seed}, cut to {len}");
            }
            for _ in 0..200 {
                let mut other = text.clone();
                let at = random.below(other.len());
                other[at] ^= 1 << random.below(8);
                let outcome = decoder.decode(&other, &mut target);
                match outcome {
                    // Accepted input is valid JSON, and its value can be written again.
                    Ok(_) => {
                        json::validate(&other).unwrap();
                        coders[0].0.encode(&target, &mut Vec::new()).unwrap();
                        read += 1;
                    }
                    Err(error) => {
                        assert!(error.offset <= other.len());
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 1000 && read > 100, "{refused} refused, {read} read");
}
