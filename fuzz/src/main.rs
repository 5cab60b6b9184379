//! `polywire-fuzz SECONDS [SEED]`: see README.md.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use polywire_core::schema::arbitrary::Random;

mod mutate;
mod targets;

use targets::{TARGETS, Target};

fn main() -> ExitCode {
    let arguments: Vec<u64> = env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let seconds = arguments.first().copied().unwrap_or(60);
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |t| t.as_nanos() as u64);
    let seed = arguments.get(1).copied().unwrap_or(clock);
    println!("seed {seed}");
    // A finding is reported by us, once, with what repeats it.
    std::panic::set_hook(Box::new(|_| {}));
    let share = Duration::from_secs(seconds) / TARGETS.len() as u32;
    let findings = TARGETS.iter().filter(|target| !(replay(target) && run(target, seed, share))).count();
    println!("{} passed, {findings} failed", TARGETS.len() - findings);
    if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs what was found before.
fn replay(target: &Target) -> bool {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_target = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{}-", target.name)))
    };
    files.filter(of_target).all(|path| attempt(target, 0, &fs::read(&path).unwrap_or_default()))
}

fn run(target: &Target, seed: u64, share: Duration) -> bool {
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed() < share || rounds == 0 {
        let round = seed.wrapping_add(rounds);
        let mut random = Random::new(round);
        let valid = (target.valid)(round);
        for _ in 0..16 {
            let mut input = valid.clone();
            mutate::mutate(&mut random, &mut input);
            if !attempt(target, round, &input) {
                return false;
            }
        }
        rounds += 1;
    }
    println!("{:10} {:8} inputs", target.name, 16 * rounds);
    true
}

fn attempt(target: &Target, round: u64, input: &[u8]) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.check)(round, input))) else { return true };
    let what = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    println!("{} found (round {round}): {}", target.name, what.unwrap_or("a panic"));
    println!("input: {}", input.iter().map(|b| format!("{b:02x}")).collect::<String>());
    false
}
