//! Replays all earlier findings, and runs each target with a few generated inputs.

use polywire_core::schema::arbitrary::Random;
use polywire_fuzz::{TARGETS, target_of_file};

#[test]
fn what_was_found_stays_mended() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/regressions");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        let target =
            target_of_file(&name).unwrap_or_else(|| panic!("no target has the name with which '{name}' begins"));
        println!("{name}");
        (target.run)(&std::fs::read(&path).unwrap());
    }
}

#[test]
fn every_target_runs() {
    for target in TARGETS {
        let mut random = Random::new(1);
        for _ in 0..6 {
            let input = (target.generate)(&mut random);
            (target.run)(&input);
            (target.run)(&input[..input.len() / 2]);
        }
    }
}
