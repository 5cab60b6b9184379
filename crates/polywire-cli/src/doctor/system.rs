//! Checks of the build, of the processor, and of limits of the system.

use std::{env, fs};

use nix::{
    sys::resource::{Resource, getrlimit},
    unistd::geteuid,
};

use super::Finding;

/// The receive buffer that the UDP engines request, in bytes.
const RECEIVE_BUFFER: u64 = 4 << 20;
/// Linux's default for send buffers, in bytes. With less, even TCP on a fast network is slow.
const SEND_BUFFER: u64 = 212_992;
/// The number of files that a node with the default of 1024 peers may need: a socket for each peer,
/// and those of the application.
const FILES: u64 = 2048;

pub fn check() -> Vec<Finding> {
    let limit = |name: &str| read_number(&format!("/proc/sys/net/core/{name}"));
    let mut findings = vec![build(), processor(env::var_os("POLYWIRE_JIT").is_some_and(|v| v == "off" || v == "0"))];
    findings.extend(buffer("rmem_max", limit("rmem_max"), RECEIVE_BUFFER, "bursts over UDP are lost and repaired"));
    findings.extend(buffer("wmem_max", limit("wmem_max"), SEND_BUFFER, "fast writers wait more often"));
    findings.extend(getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, hard)| files(soft, hard)));
    findings.push(user(geteuid().is_root()));
    findings
}

fn build() -> Finding {
    // The last value of each says whether usual builds have the feature.
    let features = [
        ("dds", cfg!(feature = "dds"), false),
        ("hosts", cfg!(feature = "hosts"), true),
        ("jit", cfg!(feature = "jit"), true),
        ("lan", cfg!(feature = "lan"), true),
        ("shm", cfg!(feature = "shm"), false),
        ("tls", cfg!(feature = "tls"), true),
        ("zenoh", cfg!(feature = "zenoh"), false),
        ("zeromq", cfg!(feature = "zeromq"), false),
        ("zstd", cfg!(feature = "zstd"), true),
    ];
    let names = |are_there: bool| {
        let chosen =
            features.iter().filter(|(_, is_there, is_usual)| *is_there == are_there && (*is_there || *is_usual));
        chosen.map(|(name, ..)| *name).collect::<Vec<_>>().join(", ")
    };
    let found = format!(
        "polywire {} for {} on {}, with {}",
        env!("CARGO_PKG_VERSION"),
        env::consts::OS,
        env::consts::ARCH,
        names(true)
    );
    match names(false) {
        missing if missing.is_empty() => Finding::ok("build", found),
        missing => Finding::warning("build", format!("{found}, without {missing}"), "build with --features if needed"),
    }
}

fn processor(is_off: bool) -> Finding {
    if is_off {
        let advice = "unset POLYWIRE_JIT: encoding and decoding are several times slower";
        return Finding::warning("processor", "machine code is switched off", advice);
    }
    if cfg!(not(feature = "jit")) {
        let advice = "build with the feature jit: encoding and decoding are several times slower";
        return Finding::warning("processor", "this build makes no machine code", advice);
    }
    Finding::ok("processor", format!("machine code for {}{}", env::consts::ARCH, vectors()))
}

/// Returns the widest vector instructions of the processor, as text to append.
#[cfg(target_arch = "x86_64")]
fn vectors() -> &'static str {
    use std::arch::is_x86_feature_detected as has;
    match (has!("avx512f"), has!("avx2")) {
        (true, _) => ", with AVX-512",
        (false, true) => ", with AVX2",
        (false, false) => ", without AVX2",
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn vectors() -> &'static str {
    ""
}

/// Checks a buffer limit. Returns `None` if the system has no such limit, or does not show it, as
/// Linux does in a network namespace.
fn buffer(name: &str, limit: Option<u64>, wanted: u64, otherwise: &str) -> Option<Finding> {
    let limit = limit?;
    let found = format!("net.core.{name} is {limit}");
    Some(match limit < wanted {
        true => Finding::warning(
            "buffers",
            format!("{found}, less than {wanted}: {otherwise}"),
            format!("sysctl -w net.core.{name}={wanted}, and put it into /etc/sysctl.d"),
        ),
        false => Finding::ok("buffers", found),
    })
}

fn files(soft: u64, hard: u64) -> Finding {
    match (soft < FILES, hard < FILES) {
        (false, _) => Finding::ok("files", format!("{soft} may be open at a time")),
        (true, false) => Finding::warning(
            "files",
            format!("{soft} may be open at a time, enough for about {} peers", soft / 2),
            format!("ulimit -n {FILES}, or LimitNOFILE={FILES} in a systemd unit"),
        ),
        (true, true) => Finding::warning(
            "files",
            format!("{hard} may be open at a time, enough for about {} peers", hard / 2),
            "raise the hard limit in /etc/security/limits.conf, or LimitNOFILE in a systemd unit",
        ),
    }
}

fn user(is_root: bool) -> Finding {
    match is_root {
        true => Finding::warning(
            "user",
            "this is root, which no node needs to be",
            "run nodes as a user of their own: a fault then costs less",
        ),
        false => Finding::ok("user", format!("user {}, without special rights", geteuid())),
    }
}

/// Returns the number in a file of `/proc` or `/sys`.
pub fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    #[test]
    fn limits_are_compared_with_what_is_needed() {
        let small = buffer("rmem_max", Some(212_992), RECEIVE_BUFFER, "bursts are lost").expect("a finding");
        assert!(small.state == State::Warning && small.advice.contains("net.core.rmem_max=4194304"), "{small:?}");
        assert_eq!(buffer("rmem_max", Some(RECEIVE_BUFFER), RECEIVE_BUFFER, "").map(|f| f.state), Some(State::Ok));
        assert_eq!(buffer("rmem_max", None, RECEIVE_BUFFER, ""), None);
        assert_eq!(files(4096, 4096).state, State::Ok);
        assert!(files(1024, 4096).advice.contains("ulimit"));
        assert!(files(512, 1024).found.contains("1024 may be open") && files(512, 1024).advice.contains("hard limit"));
    }

    #[test]
    fn the_build_and_the_processor_are_named() {
        assert!(build().found.starts_with(concat!("polywire ", env!("CARGO_PKG_VERSION"))));
        assert!(processor(true).advice.contains("POLYWIRE_JIT"));
        assert_eq!((user(true).state, user(false).state), (State::Warning, State::Ok));
    }
}
