//! Compares the public API of the crates with the golden files in `docs/api`, so that every change
//! of the API appears in a diff. Reads source files; a test writes to a temporary folder.

use std::{collections::BTreeSet, env, fs, process};

use xtask::api::{CRATES, golden_file, of_crate, of_source};

#[test]
fn the_golden_files_are_the_public_api() {
    for krate in CRATES {
        let (api, path) = (of_crate(krate), golden_file(krate));
        assert!(api.lines().count() > 100, "{krate}: only 100 items or fewer found");
        let golden = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let [now, then]: [BTreeSet<&str>; 2] = [&api, &golden].map(|text| text.lines().collect());
        let more = now.difference(&then).map(|line| format!("+ {line}"));
        let less = then.difference(&now).map(|line| format!("- {line}"));
        let changes: Vec<String> = more.chain(less).collect();
        let renew = "if this is intended, update the files: cargo run -p xtask -- api";
        assert!(changes.is_empty(), "the API of {krate} has changed; {renew}\n{}", changes.join("\n"));
    }
}

#[test]
fn what_can_be_named_is_found_and_nothing_else() {
    let folder = env::temp_dir().join(format!("polywire-api-{}", process::id()));
    fs::create_dir_all(folder.join("shut")).expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("the file can be written");
    write(
        "lib.rs",
        "mod shut;\npub mod open;\npub use shut::{inner::deep as shallow, Given as Other, Given};\npub use other_crate::{self, Thing};\n\
         #[doc(hidden)] pub mod hidden { pub fn unseen() {} }\n#[cfg(test)] pub fn tested() {}\npub(crate) struct Inside;\n\
         impl Clone for Inside { fn clone(&self) -> Self { Inside } }\n",
    );
    write(
        "open.rs",
        "use super::shut::Given;\npub trait Seen<T>: Send {\n    fn see(&self, by: &T) -> bool { true }\n}\nimpl Seen<u8> for Given {}\n",
    );
    write(
        "shut/mod.rs",
        "pub mod inner;\n#[derive(Debug)]\n#[non_exhaustive]\npub struct Given { pub at: Vec<(u8, u16)>, kept: u8 }\n\
         impl Given {\n    pub const MAX: usize = 1;\n    pub fn told(&mut self) -> Option<&'static str> { None }\n    fn own(&self) {}\n}\n",
    );
    write("shut/inner.rs", "pub fn deep<F: Fn(u8) -> u8>(f: F) {}\n");
    let api = of_source(&folder.join("lib.rs"));
    fs::remove_dir_all(&folder).expect("the folder can be removed");
    let expected = "const Given::MAX: usize\n\
        field Given::at: Vec<(u8, u16)>\n\
        fn Given::told(&mut self) -> Option<&'static str>\n\
        fn deep<F: Fn(u8) -> u8>(f: F)\n\
        fn open::Seen::see(&self, by: &T) -> bool [provided]\n\
        impl Debug for Given [derived]\n\
        impl open::Seen<u8> for Given\n\
        mod open\n\
        struct Given [non_exhaustive] [private fields]\n\
        trait open::Seen<T>: Send\n\
        use Other = Given\n\
        use Thing = other_crate::Thing\n\
        use other_crate = other_crate\n";
    assert_eq!(api, expected);
}
