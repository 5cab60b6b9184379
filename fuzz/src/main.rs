//! The fuzzer, `polywire-fuzz [SECONDS [SEED [TARGET..]]]`; README.md describes it. It runs each
//! target in a child process, writes the current input to a temporary file, and copies the inputs
//! of failures to `regressions/`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode},
    thread,
    time::{Duration, Instant, SystemTime},
};

use polywire_core::schema::arbitrary::Random;
use polywire_fuzz::{TARGETS, Target, target, target_of_file};

/// The time after which an input counts as a hang.
const HANG: Duration = Duration::from_secs(20);
/// The maximum number of findings of a target in one run. Further ones usually have the same cause.
const ENOUGH: usize = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--child", name, seed, millis] => child(name, number(seed), Duration::from_millis(number(millis))),
        ["--replay", file] => replay(Path::new(file)),
        _ => run(&arguments),
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("'{text}' is not a number"))
}

/// Runs all targets or the named ones, each in its own process.
fn run(arguments: &[String]) -> ExitCode {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let seconds = arguments.first().map_or(60, |text| number(text));
    let seed = arguments.get(1).map_or(now, |text| number(text));
    let named = arguments.get(2..).unwrap_or_default();
    let all: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    named
        .iter()
        .for_each(|name| assert!(all.contains(&name.as_str()), "unknown target '{name}'; the targets are {all:?}"));
    let chosen: Vec<&Target> =
        TARGETS.iter().filter(|t| named.is_empty() || named.iter().any(|name| name == t.name)).collect();
    println!("seed {seed}");
    let share = Duration::from_secs(seconds) / chosen.len() as u32;
    let hurting = replay_all();
    let found: usize = chosen.iter().map(|target| fuzz(target, seed, share)).sum();
    println!("{} targets, {found} new findings, {hurting} earlier findings that fail again", chosen.len());
    if found + hurting == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn regressions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions")
}

/// Runs a target until its time is over, and returns the number of findings.
fn fuzz(target: &Target, seed: u64, share: Duration) -> usize {
    let (start, mut found, mut round) = (Instant::now(), 0, 0);
    let current = env::temp_dir().join(format!("polywire-fuzz-{}-{}", std::process::id(), target.name));
    while found < ENOUGH && (round == 0 || start.elapsed() < share) {
        let left = share.saturating_sub(start.elapsed());
        let arguments = ["--child", target.name, &(seed ^ round).to_string(), &left.as_millis().to_string()];
        if !wait(spawn(&arguments, &current), left, &current) {
            found += 1;
            keep(target, &current);
        }
        round += 1;
    }
    let _ = fs::remove_file(current);
    found
}

fn keep(target: &Target, current: &Path) {
    let input = fs::read(current).unwrap_or_default();
    let hash = input.iter().fold(0xCBF2_9CE4_8422_2325, |h: u64, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01B3));
    let file = regressions().join(format!("{}-{hash:016x}.bin", target.name));
    let kept = fs::write(&file, input).is_ok();
    println!("{}: found {} (kept: {kept})", target.name, file.display());
}

/// Starts this program as a child, which writes each input to `current` before it uses it.
fn spawn(arguments: &[&str], current: &Path) -> Child {
    let program = env::current_exe().expect("the path of this program");
    Command::new(program).args(arguments).env("POLYWIRE_FUZZ_CURRENT", current).spawn().expect("the child starts")
}

/// Waits for a child. Returns whether it exited with success and in time. A child that takes longer
/// than [`HANG`] for one input is killed.
fn wait(mut child: Child, time: Duration, current: &Path) -> bool {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => {}
            Err(_) => return false,
        }
        let age = fs::metadata(current).and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        if start.elapsed() > time + HANG && age.is_none_or(|age| age > HANG) {
            let _ = child.kill();
            let _ = child.wait();
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn child(name: &str, seed: u64, time: Duration) -> ExitCode {
    let target = target(name).expect("the parent knows the targets");
    let file = env::var_os("POLYWIRE_FUZZ_CURRENT").expect("the parent sets the variable");
    let (start, mut random, mut runs) = (Instant::now(), Random::new(seed), 0u64);
    while runs == 0 || start.elapsed() < time {
        let input = (target.generate)(&mut random);
        // The input is written before it runs, because a crash leaves no time for it.
        fs::write(&file, &input).expect("the file of the current input can be written");
        (target.run)(&input);
        runs += 1;
    }
    println!("{name}: {runs} inputs");
    ExitCode::SUCCESS
}

/// Replays all earlier findings, and returns how many fail again.
fn replay_all() -> usize {
    let files = fs::read_dir(regressions()).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let hurts = files.filter(|path| path.extension().is_some_and(|e| e == "bin")).filter(|path| {
        let well = wait(spawn(&["--replay", &path.to_string_lossy()], path), Duration::ZERO, path);
        if !well {
            println!("{} fails again", path.display());
        }
        !well
    });
    hurts.count()
}

fn replay(path: &Path) -> ExitCode {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let target = target_of_file(&name).unwrap_or_else(|| panic!("no target has the name with which '{name}' begins"));
    (target.run)(&fs::read(path).expect("the file can be read"));
    ExitCode::SUCCESS
}
