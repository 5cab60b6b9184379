//! Probes of the system, on folders with files in the form of `/proc` and `/sys`.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use polywire::{
    Schema,
    codec::{self, Decoder, Options},
    schema::{Literal, TypeHash},
};
use polywire_idl::{Compiler, Document};
use polywire_telemetry::{
    MeasureError, Moment, Probe, ProbeType, Settings,
    input::INPUTS,
    system::{self, Host, PROBES},
};

/// A root folder, removed at the end of the test.
struct Root(PathBuf);

impl Root {
    /// A machine with two cores, a disk, two interfaces, three sensors and three processes.
    fn new() -> Root {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("polywire-telemetry-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = Root(std::env::temp_dir().join(name));
        for (path, text) in FILES {
            root.write(path, text);
        }
        for descriptor in ["0", "1", "2"] {
            root.write(&format!("proc/7/fd/{descriptor}"), "");
        }
        root
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder");
        fs::write(path, text).expect("written");
    }

    fn open(&self, probe: &str, settings: &[(&str, &str)]) -> Result<Box<dyn Probe>, MeasureError> {
        let probe = system::find(probe)?;
        let mut set = Settings::default();
        settings.iter().try_for_each(|(name, value)| set.set(probe.parameters, name, value))?;
        (probe.open)(&Host::at(&self.0), &set)
    }

    fn opened(&self, probe: &str) -> Box<dyn Probe> {
        self.open(probe, &[]).expect("opened")
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const FILES: &[(&str, &str)] = &[
    (
        "proc/stat",
        "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0 0 0\ncpu1 50 0 50 400 0 0 0 0 0 0\nintr 5\n",
    ),
    (
        "proc/meminfo",
        "MemTotal:  2000 kB\nMemFree:  500 kB\nMemAvailable: 900 kB\nCached: 300 kB\nDirty: 4 kB\nSwapTotal: 10 kB\nSwapFree: 8 kB\n",
    ),
    (
        "proc/diskstats",
        "  8  0 sda 10 1 100 5 20 2 200 6 0 1000 11\n  8  1 sda1 9 1 90 5 20 2 200 6 0 1000 11\n  7  0 loop0 0 0 0 0 0 0 0 0 0 0 0\n",
    ),
    ("sys/block/sda/size", "1000\n"),
    ("sys/block/loop0/size", "0\n"),
    (
        "proc/self/mounts",
        "proc /proc proc rw 0 0\n/dev/sda1 / ext4 rw 0 0\n/dev/sda1 /again ext4 rw 0 0\nserver:/x /mnt nfs rw 0 0\n/dev/sdb /a\\040b ext4 rw 0 0\n",
    ),
    ("a b/file", ""),
    (
        "proc/net/dev",
        "Inter-| Receive | Transmit\n face |bytes\n    lo: 10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\neth0:1: 1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0\n",
    ),
    ("proc/loadavg", "0.25 0.50 0.75 2/80 11206\n"),
    ("sys/class/hwmon/hwmon0/name", "coretemp\n"),
    ("sys/class/hwmon/hwmon0/temp1_input", "45500\n"),
    ("sys/class/hwmon/hwmon0/temp1_label", "Core 0\n"),
    ("sys/class/hwmon/hwmon0/temp2_input", "-3000\n"),
    ("sys/class/thermal/thermal_zone0/type", "acpitz\n"),
    ("sys/class/thermal/thermal_zone0/temp", "27800\n"),
    ("sys/class/thermal/cooling_device0/type", "Fan\n"),
    ("proc/self/stat", "7 (pump (a) b) S 1 7 7 0 -1 0 0 0 0 0 100 50 0 0 20 0 3 0 500 1000 25 0\n"),
    ("proc/7/stat", "7 (pump (a) b) S 1 7 7 0 -1 0 0 0 0 0 100 50 0 0 20 0 3 0 500 1000 25 0\n"),
    ("proc/8/stat", "8 (pumpd) S 1 8 8 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 600 1000 5 0\n"),
    ("proc/9/stat", "9 (valve) S 1 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 700 1000 5 0\n"),
    ("proc/self/cgroup", "9:name=systemd:/x\n0::/system.slice/pump.service\n"),
    (
        "sys/fs/cgroup/system.slice/pump.service/cpu.stat",
        "usage_usec 1000000\nuser_usec 1\nsystem_usec 2\nthrottled_usec 500\n",
    ),
    ("sys/fs/cgroup/system.slice/pump.service/memory.current", "4096\n"),
    ("sys/fs/cgroup/system.slice/pump.service/memory.max", "max\n"),
    ("sys/fs/cgroup/system.slice/pump.service/pids.current", "12\n"),
    (
        "proc/pressure/cpu",
        "some avg10=1.50 avg60=2.50 avg300=3.50 total=77\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    ),
    (
        "proc/pressure/memory",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=2\n",
    ),
    (
        "proc/pressure/io",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=3\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=4\n",
    ),
    ("proc/uptime", "100.5 190.25\n"),
];

fn at(seconds: f64) -> Moment {
    Moment { steady: Duration::from_secs_f64(seconds), wall_ns: (seconds * 1e9) as i64 }
}

fn number(probe: &dyn Probe, path: &str) -> f64 {
    let value = probe.view().get(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    value.as_f64().or(value.as_u64().map(|n| n as f64)).or(value.as_i64().map(|n| n as f64)).expect("a number")
}

fn numbers<const N: usize>(probe: &dyn Probe, paths: [&str; N]) -> [f64; N] {
    paths.map(|path| number(probe, path))
}

fn text(probe: &dyn Probe, path: &str) -> String {
    probe.view().get(path).expect("there").as_str().expect("text").to_owned()
}

fn sampled(probe: &mut Box<dyn Probe>, seconds: f64) {
    probe.sample(at(seconds)).expect("a sample");
}

#[test]
fn the_processor_is_measured_between_two_samples() {
    let root = Root::new();
    let mut probe = root.opened("processor");
    sampled(&mut probe, 1.0);
    assert_eq!(numbers(&*probe, ["interval_s", "busy_percent", "cores[1].busy_percent"]), [0.0; 3]);
    root.write(
        "proc/stat",
        "cpu  130 10 120 880 40 5 5 10 0 0\ncpu0 50 0 50 500 0 0 0 0 0 0\ncpu2 60 0 50 450 0 0 0 0 0 0\n",
    );
    sampled(&mut probe, 3.0);
    // 200 ticks have passed: 40 in programs, 20 in the kernel, 10 in interrupts, 80 idle.
    let members = ["interval_s", "busy_percent", "user_percent", "system_percent", "wait_percent"];
    assert_eq!(numbers(&*probe, members), [2.0, 35.0, 20.0, 10.0, 20.0]);
    assert_eq!(numbers(&*probe, ["interrupt_percent", "steal_percent"]), [5.0, 5.0]);
    assert_eq!(numbers(&*probe, ["cores[0].number", "cores[0].busy_percent", "cores[1].number"]), [0.0, 0.0, 2.0]);
}

#[test]
fn memory_is_in_bytes() {
    let mut probe = Root::new().opened("memory");
    sampled(&mut probe, 1.0);
    let members = ["total_bytes", "available_bytes", "free_bytes", "cached_bytes", "dirty_bytes"];
    assert_eq!(numbers(&*probe, members), [2000.0, 900.0, 500.0, 300.0, 4.0].map(|kb| kb * 1024.0));
    assert_eq!(numbers(&*probe, ["swap_total_bytes", "swap_free_bytes"]), [10240.0, 8192.0]);
}

#[test]
fn disks_have_rates_and_file_systems_room() {
    let root = Root::new();
    let mut probe = root.opened("disks");
    sampled(&mut probe, 1.0);
    root.write(
        "proc/diskstats",
        "  8  0 sda 12 1 300 5 22 2 1000 6 0 1500 11\n  8  0 sdz 12 1 300 5 22 2 1000 6 0 1500 11\n",
    );
    sampled(&mut probe, 2.0);
    let members = ["read_bytes", "written_bytes", "read_rate", "write_rate", "operation_rate", "busy_percent"];
    let of_disk = members.map(|member| number(&*probe, &format!("disks[0].{member}")));
    assert_eq!(of_disk, [300.0 * 512.0, 512_000.0, 200.0 * 512.0, 800.0 * 512.0, 4.0, 50.0]);
    assert_eq!(text(&*probe, "disks[0].name"), "sda");
    assert!(probe.view().get("disks[1]").is_err(), "sdz is no disk");
    assert_eq!([text(&*probe, "filesystems[0].place"), text(&*probe, "filesystems[1].place")], ["/", "/a b"]);
    assert!(number(&*probe, "filesystems[0].total_bytes") > number(&*probe, "filesystems[0].available_bytes"));
    assert!(probe.view().get("filesystems[2]").is_err(), "a device counts once");
}

#[test]
fn interfaces_have_rates() {
    let root = Root::new();
    let mut probe = root.opened("network");
    sampled(&mut probe, 1.0);
    assert_eq!(number(&*probe, "interfaces[1].receive_rate"), 0.0);
    // The second interface was reset.
    root.write(
        "proc/net/dev",
        "a\nb\n    lo: 30 3 0 0 0 0 0 0 50 1 0 0 0 0 0 0\neth0:1: 5 1 1 2 0 0 0 0 2000 20 3 4 0 0 0 0\n",
    );
    sampled(&mut probe, 3.0);
    assert_eq!(numbers(&*probe, ["interfaces[0].receive_rate", "interfaces[0].send_rate"]), [10.0, 20.0]);
    assert_eq!(numbers(&*probe, ["interfaces[1].receive_rate", "interfaces[1].receive_faults"]), [0.0, 3.0]);
    assert_eq!(
        (text(&*probe, "interfaces[1].name"), number(&*probe, "interfaces[1].send_faults")),
        ("eth0:1".into(), 7.0)
    );
    // Figures have no digits that are noise: they would take bytes.
    root.write("proc/net/dev", "a\nb\n    lo: 50 3 0 0 0 0 0 0 51 1 0 0 0 0 0 0\n");
    sampled(&mut probe, 6.000_000_4);
    let members = ["interval_s", "interfaces[0].receive_rate", "interfaces[0].send_rate"];
    assert_eq!(numbers(&*probe, members), [3.0, 6.67, 0.33]);
}

#[test]
fn load_uptime_and_pressure_are_read() {
    let root = Root::new();
    let (mut load, mut uptime, mut pressure) = (root.opened("load"), root.opened("uptime"), root.opened("pressure"));
    [&mut load, &mut uptime, &mut pressure].into_iter().for_each(|probe| sampled(probe, 1.0));
    let members = ["average_1min", "average_5min", "average_15min", "running", "threads"];
    assert_eq!(numbers(&*load, members), [0.25, 0.5, 0.75, 2.0, 80.0]);
    assert_eq!(numbers(&*uptime, ["uptime_s", "idle_s"]), [100.5, 190.25]);
    assert_eq!(numbers(&*pressure, ["processor.average_60s", "processor.total_us"]), [2.5, 77.0]);
    assert_eq!(numbers(&*pressure, ["memory_full.total_us", "disk_full.average_10s"]), [2.0, 0.25]);
}

#[test]
fn temperatures_have_the_names_of_chips_and_zones() {
    let root = Root::new();
    let mut probe = root.opened("temperatures");
    sampled(&mut probe, 1.0);
    let sensor =
        |i: usize| (text(&*probe, &format!("sensors[{i}].name")), number(&*probe, &format!("sensors[{i}].celsius")));
    let expected = [("acpitz", 27.8), ("coretemp Core 0", 45.5), ("coretemp temp2", -3.0)];
    for (i, (name, celsius)) in expected.into_iter().enumerate() {
        let (found, degrees) = sensor(i);
        assert!(found == name && (degrees - celsius).abs() < 1e-4, "{found} {degrees}");
    }
    // A sensor that goes is left out at once; a new one is found within a minute.
    fs::remove_file(root.0.join("sys/class/hwmon/hwmon0/temp2_input")).expect("removed");
    root.write("sys/class/thermal/thermal_zone1/temp", "1000\n");
    sampled(&mut probe, 2.0);
    assert!(probe.view().get("sensors[2]").is_err());
    sampled(&mut probe, 62.0);
    assert_eq!(text(&*probe, "sensors[2].name"), "thermal_zone1");
}

#[test]
fn processes_are_chosen_by_name_and_sorted_by_processor_time() {
    let root = Root::new();
    let mut probe = root.open("processes", &[("pattern", "pump*"), ("most", "1")]).expect("opened");
    sampled(&mut probe, 1.0);
    root.write("proc/7/stat", "7 (pump (a) b) S 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 3 0 500 1000 25 0\n");
    // Process 8 has ended, and another one has its number.
    root.write("proc/8/stat", "8 (pumpd) S 1 8 8 0 -1 0 0 0 0 0 900 0 0 0 20 0 1 0 999 1000 5 0\n");
    sampled(&mut probe, 3.0);
    let members = ["processes[0].id", "processes[0].processor_percent", "processes[0].memory_bytes"];
    assert_eq!(numbers(&*probe, members), [7.0, 25.0, 102_400.0]);
    assert_eq!(numbers(&*probe, ["matching", "processes[0].threads", "processes[0].descriptors"]), [2.0, 3.0, 3.0]);
    assert_eq!(text(&*probe, "processes[0].name"), "pump (a) b");
    assert!(probe.view().get("processes[1]").is_err());
    let error = root.open("processes", &[("most", "0")]).err().expect("an error");
    assert_eq!(error.to_string(), "parameter 'most' cannot be '0': a number from 1 to 10000 is expected");
}

#[test]
fn a_control_group_is_the_own_one_or_a_named_one() {
    let root = Root::new();
    let mut probe = root.opened("cgroup");
    sampled(&mut probe, 1.0);
    let folder = "sys/fs/cgroup/system.slice/pump.service";
    root.write(&format!("{folder}/cpu.stat"), "usage_usec 2500000\nthrottled_usec 500500\n");
    sampled(&mut probe, 2.0);
    let members = ["processor_percent", "throttled_percent", "memory_bytes", "tasks"];
    assert_eq!(numbers(&*probe, members), [150.0, 50.0, 4096.0, 12.0]);
    assert!(probe.view().get("memory_limit_bytes").expect("a member").is_absent());
    assert_eq!(text(&*probe, "path"), "system.slice/pump.service");
    assert!(root.open("cgroup", &[("path", "/system.slice/pump.service")]).is_ok());
    assert!(matches!(root.open("cgroup", &[("path", "a/../../x")]), Err(MeasureError::Value { .. })));
    assert!(matches!(root.open("cgroup", &[("path", "nowhere")]), Err(MeasureError::Read { .. })));
}

#[test]
fn a_wall_clock_that_is_moved_is_noticed() {
    let mut probe = Root::new().opened("clock");
    let moment =
        |seconds: u64, wall_s: i64| Moment { steady: Duration::from_secs(seconds), wall_ns: wall_s * 1_000_000_000 };
    for (now, offset, moved) in [
        (moment(5, 100), 0.0, 0.0),
        (moment(6, 101), 0.0, 0.0),
        (moment(7, 99), -3.0, -3.0),
        (moment(8, 101), -2.0, 1.0),
    ] {
        probe.sample(now).expect("a sample");
        assert_eq!(numbers(&*probe, ["offset_s", "moved_s"]), [offset, moved]);
    }
}

/// Files that are cut or filled with anything else cause errors or fewer members, never a panic.
#[test]
fn damaged_files_are_errors() {
    for (path, good) in FILES.iter().filter(|(path, _)| path.starts_with("proc/") || path.contains("cgroup/")) {
        let root = Root::new();
        let mut probes: Vec<Box<dyn Probe>> = PROBES.iter().map(|probe| root.opened(probe.name)).collect();
        let cuts = (0..good.len()).map(|end| good.as_bytes()[..end].to_vec());
        let others =
            [b"\xff\xfe".to_vec(), b"99999999999999999999999 ".repeat(40), b":=()/ -1\n".repeat(9), vec![0; 5000]];
        for bytes in cuts.chain(others) {
            fs::write(root.0.join(path), &bytes).expect("written");
            for probe in &mut probes {
                let _ = probe.sample(at(2.0));
            }
        }
        root.write(path, good);
        assert!(probes.iter_mut().all(|probe| probe.sample(at(3.0)).is_ok()), "{path}: usable again");
    }
}

/// The files of all probes, for `#include`.
fn document(probe: &ProbeType) -> Document {
    let files = BTreeMap::from([
        ("rated.pdl".to_owned(), system::RATED_PDL.to_owned()),
        ("probe.pdl".to_owned(), probe.pdl.text().to_owned()),
    ]);
    let document =
        Compiler::new().loader(files).parse_file("probe.pdl").unwrap_or_else(|e| panic!("{}", e.render(false)));
    assert!(document.warnings().is_empty(), "{}", document.warnings().render(false));
    document
}

fn units(schema: &Schema) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for def in schema.defs() {
        let polywire::schema::DefKind::Struct { members, .. } = &def.kind else { continue };
        for member in members {
            let unit = member.annotations.iter().find(|annotation| annotation.name == "unit");
            if let Some((_, Literal::String(unit))) = unit.and_then(|unit| unit.args.first()) {
                found.insert(format!("{}.{}", def.name, member.name), unit.clone());
            }
        }
    }
    found
}

#[test]
fn each_probe_is_what_its_pdl_file_says() {
    for probe in PROBES.iter().chain(INPUTS) {
        let (document, schema) = (document(probe), (probe.shape)().schema());
        let written = document.schema(schema.name()).expect("the probe's type");
        let hashes: [TypeHash; 2] = [written.type_hash(), schema.type_hash()];
        assert_eq!(hashes[0], hashes[1], "{}: {written:?}\n{schema:?}", probe.name);
        assert_eq!(units(&written), units(schema), "{}", probe.name);
        let root = written.def(written.find(schema.name()).expect("defined"));
        let annotation = |name: &str| {
            let found = root.annotations.iter().find(|annotation| annotation.name == name);
            match found.and_then(|annotation| annotation.args.first()) {
                Some((_, Literal::String(text))) => text.to_lowercase(),
                other => panic!("{}: {name} is {other:?}", probe.name),
            }
        };
        assert_eq!((annotation("uuid"), annotation("version")), (probe.uuid.to_string(), probe.version.to_owned()));
    }
}

#[test]
fn names_and_uuids_are_unique() {
    let names: std::collections::BTreeSet<_> = PROBES.iter().chain(INPUTS).map(|probe| probe.name).collect();
    // All inputs have the same type.
    let uuids: std::collections::BTreeSet<_> = PROBES.iter().chain(INPUTS).map(|probe| probe.uuid).collect();
    assert_eq!((names.len(), uuids.len()), (PROBES.len() + INPUTS.len(), PROBES.len() + 1));
    assert_eq!(
        system::find("procesor").expect_err("unknown").to_string(),
        "unknown probe 'procesor', did you mean 'processor'?"
    );
}

/// What a probe encodes, in any format, is what it shows.
#[test]
fn samples_are_encoded_in_every_format() {
    let root = Root::new();
    for probe in PROBES {
        let mut open = root.opened(probe.name);
        assert!(!open.encode(&mut Vec::new()).expect("nothing to encode"));
        sampled(&mut open, 1.0);
        for codec in codec::CODECS {
            open.set_format(*codec, &Options::default()).expect("a format");
            let mut bytes = Vec::new();
            assert!(open.encode(&mut bytes).expect("encoded"));
            let shape = polywire::Shape::of(open.schema()).expect("a shape");
            let decoder = Decoder::for_shape(*codec, &Options::default(), open.schema(), &shape).expect("a decoder");
            let mut record = polywire::Record::new(&shape);
            decoder.decode(&bytes, &mut record).expect("decoded");
            assert_eq!(format!("{:?}", record.view()), format!("{:?}", open.view()), "{} {}", probe.name, codec.name());
        }
    }
}

/// This machine: whatever can be opened has samples.
#[test]
#[cfg(target_os = "linux")]
fn this_machine_is_measured() {
    let host = Host::this();
    for probe in PROBES {
        if let Ok(mut open) = (probe.open)(&host, &Settings::default()) {
            sampled(&mut open, 1.0);
            sampled(&mut open, 2.0);
        }
    }
    let mut memory = (system::find("memory").expect("there").open)(&host, &Settings::default()).expect("opened");
    sampled(&mut memory, 1.0);
    assert!(number(&*memory, "total_bytes") > number(&*memory, "free_bytes"));
}
