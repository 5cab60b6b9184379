//! Samples the processor, memory and network of this machine, for the publisher of the
//! demonstration.

use std::time::{Duration, Instant};

use polywire::extend::layout::{PathError, Record};
use sysinfo::{MINIMUM_CPU_UPDATE_INTERVAL, Networks, System};

/// Memory and network are read at most this often, so that reading them does not limit the
/// publisher's rate.
const REFRESH: Duration = Duration::from_millis(20);

/// Samples processor, memory and network.
pub struct Machine {
    system: System,
    networks: Networks,
    host: String,
    processor_at: Instant,
    rest_at: Instant,
}

impl Machine {
    pub fn new() -> Machine {
        let mut system = System::new();
        system.refresh_memory();
        system.refresh_cpu_usage();
        let now = Instant::now();
        let host = System::host_name().unwrap_or_default();
        Machine { system, networks: Networks::new_with_refreshed_list(), host, processor_at: now, rest_at: now }
    }

    /// Writes a sample into a record of the published version of the type.
    pub fn sample(&mut self, number: u32, record: &mut Record) -> Result<(), PathError> {
        self.refresh();
        let load = System::load_average();
        record.set("host", self.host.as_str())?;
        record.set("sample", number)?;
        record.set("uptime_s", System::uptime() as f64)?;
        record.set("processor_percent", self.system.global_cpu_usage())?;
        record.resize("core_percent", self.system.cpus().len())?;
        for (i, core) in self.system.cpus().iter().enumerate() {
            record.set(&format!("core_percent[{i}]"), core.cpu_usage())?;
        }
        record.set("memory_total_bytes", self.system.total_memory())?;
        record.set("memory_used_bytes", self.system.used_memory())?;
        record.set("load_1min", load.one)?;
        self.interfaces(record)
    }

    fn interfaces(&self, record: &mut Record) -> Result<(), PathError> {
        let mut interfaces: Vec<_> = self.networks.iter().collect();
        interfaces.sort_by_key(|(name, _)| name.as_str());
        record.resize("interfaces", interfaces.len())?;
        for (i, (name, data)) in interfaces.into_iter().enumerate() {
            record.set(&format!("interfaces[{i}].name"), name.as_str())?;
            record.set(&format!("interfaces[{i}].received_bytes"), data.total_received())?;
            record.set(&format!("interfaces[{i}].sent_bytes"), data.total_transmitted())?;
        }
        Ok(())
    }

    fn refresh(&mut self) {
        if self.processor_at.elapsed() >= MINIMUM_CPU_UPDATE_INTERVAL {
            self.system.refresh_cpu_usage();
            self.processor_at = Instant::now();
        }
        if self.rest_at.elapsed() >= REFRESH {
            self.system.refresh_memory();
            self.networks.refresh(true);
            self.rest_at = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use polywire::extend::layout::Shape;

    use super::{super::types::Version, *};

    #[test]
    fn a_sample_has_this_machines_figures() {
        let shape = Shape::of(&Version::Published.schema().expect("valid")).expect("a shape");
        let mut record = Record::new(&shape);
        Machine::new().sample(7, &mut record).expect("sampled");
        assert_eq!(record.u64("sample"), Ok(7));
        let bytes = |path: &str| record.u64(path).expect("a number");
        let (used, total) = (bytes("memory_used_bytes"), bytes("memory_total_bytes"));
        assert!(total > 0 && used <= total, "{used} of {total}");
        assert!(record.f64("core_percent[0]").is_ok_and(|percent| (0.0..=100.0).contains(&percent)));
    }
}
