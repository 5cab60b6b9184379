//! Domains of DDS for tests that run at the same time, in this process and in others.

use std::{
    env,
    fs::{self, File},
    process,
    sync::Mutex,
};

/// Domains that tests use. Each has 250 ports of its own from 7400 + 250 x domain. Those of later
/// domains are ports that Linux gives to sockets without a fixed one, from 32768.
const DOMAINS: u32 = 100;

/// A domain that no other test of this machine has until this process ends: files in the temporary
/// folder are locked for as long.
///
/// ```
/// assert_ne!(polywire_testing::domains::lease(), polywire_testing::domains::lease());
/// ```
pub fn lease() -> u32 {
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let folder = env::temp_dir().join("polywire-test-domains");
    fs::create_dir_all(&folder).expect("a folder for locks");
    let free = (0..DOMAINS).find_map(|step| {
        let domain = 1 + (process::id().wrapping_add(step)) % DOMAINS;
        let file = File::options().create(true).append(true).open(folder.join(domain.to_string()));
        let file = file.expect("a file to lock");
        file.try_lock().ok().map(|()| (domain, file))
    });
    let (domain, file) = free.expect("a free domain");
    HELD.lock().expect("nobody panicked").push(file);
    domain
}
