//! Describes the machine that a measurement ran on, for results. Reads files in `/proc` and `/sys`.

use std::{env, fs, thread};

use serde::{Deserialize, Serialize};

/// Properties of a machine that affect figures. None of them identifies the machine or its user.
///
/// ```
/// let host = polywire_measure::Host::here();
/// assert!(host.cores >= 1 && host.is_like(&host.clone()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Processor model.
    pub processor: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Operating system and the first two numbers of its kernel version.
    pub system: String,
    /// Frequency governor of the first core, if there is one.
    pub governor: String,
    /// Load average of the last minute before the run: processes that ran or waited to run.
    pub load: f64,
    /// The program was built with optimisation.
    pub optimised: bool,
    /// Codec programs are compiled to machine code.
    pub machine_code: bool,
}

impl Host {
    /// Reads the properties of this machine.
    pub fn here() -> Host {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.map_or(String::new(), |rest| rest.trim_start_matches([' ', '\t', ':']).trim().to_owned())
        };
        let processor = after(&read("/proc/cpuinfo"), "model name");
        let kib: u64 = after(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
        let kernel = read("/proc/sys/kernel/osrelease");
        let release = kernel.split('.').take(2).collect::<Vec<_>>().join(".");
        let load = read("/proc/loadavg").split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0);
        Host {
            processor: if processor.is_empty() { env::consts::ARCH.to_owned() } else { processor },
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib * 1024,
            system: format!("{} {}", env::consts::OS, release),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").trim().to_owned(),
            load,
            optimised: !cfg!(debug_assertions),
            machine_code: cfg!(feature = "jit") && env::var_os("POLYWIRE_JIT").is_none_or(|value| value != "off"),
        }
    }

    /// True if times that were measured on both can be compared.
    pub fn is_like(&self, other: &Host) -> bool {
        let fixed = |host: &Host| {
            (host.processor.clone(), host.cores, host.governor.clone(), host.optimised, host.machine_code)
        };
        fixed(self) == fixed(other)
    }
}

/// Peak memory of this process so far, in bytes; 0 if the system does not report it.
pub fn peak_memory() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) * 1024
}
