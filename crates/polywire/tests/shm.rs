//! The engine `shm` with real processes: what is killed at any moment, who may read the memory,
//! when it is given back, and a system that has no memory left. The shared suite is in
//! `engines.rs`, twenty processes in `mesh_processes.rs`, and hostile bytes in the engine's own
//! tests.
#![cfg(all(feature = "shm", target_os = "linux"))]

mod common;

use std::{
    env, fs,
    io::{Read as _, Write as _},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use common::{SOON, Tap, find, until};
use polywire::engine::{self, Disconnect, EngineOptions, Event};
use polywire_core::{envelope::Id128, frame::Hello, schema::DocumentHash};
use polywire_testing::free_path;
use rustix::process::geteuid;

/// Where the system has shared memory.
const MOUNT: &str = "/dev/shm";

/// A folder that the nodes create.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        Folder(free_path(test))
    }

    fn address(&self) -> String {
        self.0.display().to_string()
    }

    /// The objects in shared memory of the nodes in the folder.
    fn objects(&self) -> Vec<PathBuf> {
        let prefixes = self.prefixes();
        let all = fs::read_dir(MOUNT).expect("shared memory").filter_map(|entry| Some(entry.ok()?.path()));
        all.filter(|path| prefixes.iter().any(|prefix| path.to_string_lossy().contains(prefix))).collect()
    }

    /// What their names have in common, for each half of a link.
    fn prefixes(&self) -> Vec<String> {
        let nodes = fs::read_dir(self.0.canonicalize().expect("a folder").join("shm/memory")).expect("a folder");
        let places = nodes
            .flat_map(|node| fs::read_dir(node.expect("there").path()).into_iter().flatten().filter_map(Result::ok));
        let prefix = |place: fs::DirEntry| {
            DocumentHash::of(place.path().as_os_str().as_encoded_bytes()).to_string()[..16].to_owned()
        };
        places.map(prefix).collect()
    }
}

/// The files below a folder, and the memories of nodes.
fn left(folder: &Path) -> Vec<PathBuf> {
    let is_left = |path: &PathBuf| !path.is_dir() || path.parent().is_some_and(|parent| parent.ends_with("memory"));
    below(folder).into_iter().filter(is_left).collect()
}

/// The files below a folder, and the folders.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").filter_map(Result::ok);
    entries
        .map(|entry| entry.path())
        .flat_map(|path| if path.is_dir() { [below(&path), vec![path]].concat() } else { vec![path] })
        .collect()
}

fn join(address: &str) -> (Arc<Tap>, mpsc::Receiver<Event>) {
    Tap::open("shm", address, EngineOptions::default())
}

fn links(tap: &Tap) -> usize {
    tap.port().links().len()
}

/// Waits for processes, which take longer to start.
fn patiently(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + 6 * SOON;
    while !done() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Two nodes that have met, of which the first one publishes.
fn pair(address: &str) -> (Arc<Tap>, Arc<Tap>) {
    let (writer, reader) = (join(address).0, join(address).0);
    until("they meet", || links(&writer) == 1 && links(&reader) == 1);
    (writer, reader)
}

/// Publishes a message of each size, and checks that all come as they were.
fn check(writer: &Tap, reader: &Tap, sizes: &[usize]) {
    let channel = writer.announce("t", 1);
    let first = reader.heard().messages.len();
    for (sequence, size) in (1..).zip(sizes) {
        let sent = writer.publish(channel, sequence, &vec![sequence as u8; *size]);
        assert_eq!((sent.peers, sent.dropped), (writer.port().links().len(), 0), "message {sequence} of {size} bytes");
    }
    let came = reader.until("all messages", |heard| {
        (heard.messages.len() == first + sizes.len()).then(|| heard.messages[first..].to_vec())
    });
    for ((sequence, size), message) in (1..).zip(sizes).zip(came) {
        assert_eq!((message.sequence, message.payload), (sequence, vec![sequence as u8; *size]));
    }
    writer.port().retire(channel);
}

#[test]
fn messages_of_any_size_come_whole() {
    let folder = Folder::new("sizes");
    let small = [0, 1, 7, 4000, 4095, 4096, 4097, 32_700, 32_768, 65_536];
    let large = [262_143, 262_144, 300_000, 6_220_800, 3, 1 << 20, 40_000, 5 << 20, 9000, 1 << 20, 0];
    let sizes = [&small[..], &large].concat();
    for wait in ["", "?wait=spin"] {
        let (writer, reader) = pair(&(folder.address() + wait));
        check(&writer, &reader, &sizes);
        check(&reader, &writer, &sizes);
        [writer, reader].iter().for_each(|tap| tap.port().close());
    }
}

#[test]
fn nothing_stays_of_nodes_that_close() {
    let folder = Folder::new("close");
    for _ in 0..3 {
        let (writer, reader) = pair(&folder.address());
        check(&writer, &reader, &[100]);
        let objects = folder.objects();
        assert!(!objects.is_empty());
        [writer, reader].iter().for_each(|tap| tap.port().close());
        until("the memory is given back", || !objects.iter().any(|path| path.exists()));
        until("nothing is left", || left(&folder.0).is_empty());
    }
}

#[test]
fn the_memory_for_large_messages_is_given_back() {
    let folder = Folder::new("back");
    let (writer, reader) = pair(&folder.address());
    let taken = || {
        let bytes = |path: PathBuf| path.metadata().map_or(0, |object| object.blocks() * 512);
        folder.objects().into_iter().map(bytes).sum::<u64>()
    };
    let before = taken();
    for _ in 0..2 {
        check(&writer, &reader, &[1 << 20, 100, 5 << 20]);
        assert!(taken() > before + (1 << 20));
        until("it is given back", || taken() == before);
        // Both ends of the link are in this process, and neither still has it.
        let prefixes = folder.prefixes();
        let is_gone = |line: &str| line.ends_with("(deleted)") && prefixes.iter().any(|prefix| line.contains(prefix));
        until("the reader lets go of it", || {
            !fs::read_to_string("/proc/self/maps").expect("maps").lines().any(is_gone)
        });
    }
}

#[test]
fn a_node_has_one_port_in_a_folder() {
    let folder = Folder::new("once");
    let node = polywire::Node::new();
    node.open(&format!("shm/{}", folder.address())).expect("opened");
    node.open(&format!("shm/{}", folder.address())).expect("it is the same port");
    let refused = node.open(&format!("shm/{}?wait=spin", folder.address())).expect_err("refused");
    assert!(refused.to_string().contains("this node has a port there already"), "{refused}");
}

#[test]
fn nobody_else_can_use_the_memory() {
    let folder = Folder::new("private");
    let (writer, reader) = pair(&folder.address());
    check(&writer, &reader, &[100, 1 << 20]);
    let objects = folder.objects();
    // At least the samples, and where both ends note which of them are free, in each direction.
    assert!(objects.len() >= 4, "{objects:?}");
    for path in &objects {
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o077, 0, "{}", path.display());
    }
    assert_eq!(folder.0.join("shm").metadata().expect("there").permissions().mode() & 0o777, 0o700);
    if !geteuid().is_root() {
        eprintln!("not tried as another user, which only root can");
        return;
    }
    let as_nobody = |script: &str, path: &Path| {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(path).uid(65_534).gid(65_534).stderr(Stdio::null());
        command.stdout(Stdio::null()).status().expect("a shell").success()
    };
    assert!(as_nobody("cat \"$1\"", Path::new("/etc/passwd")), "it can read what is public");
    for path in objects.iter().chain([&folder.0.join("shm/memory")]) {
        assert!(!as_nobody("cat \"$1\" || ls \"$1\"/", path), "{} can be read", path.display());
        assert!(!as_nobody("echo x >> \"$1\"", path), "{} can be written", path.display());
    }
}

/// Not a test by itself: a node that publishes without a pause until it is killed.
#[test]
#[ignore = "run by another test"]
fn publisher() {
    let address = env::var("POLYWIRE_TEST_ADDRESS").expect("an address");
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let mut node = [9; 16];
    node[..4].copy_from_slice(&std::process::id().to_be_bytes());
    let (hello, shm) = (Hello { node: Id128(node), incarnation: 1 }, engine::find("shm").expect("an engine"));
    let (tap, _events) = Tap::as_node(shm, &address, hello, EngineOptions::default(), true);
    let channel = tap.announce("t", 1);
    for sequence in 1.. {
        let size = if sequence % 8 == 0 { 1 << 20 } else { 3000 };
        tap.publish(channel, sequence, &vec![sequence as u8; size]);
        if links(&tap) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A process of this program, killed when this is dropped.
struct Process(Child);

impl Process {
    fn start(mut command: Command, test: &str, address: &str) -> Process {
        command.arg(env::current_exe().expect("this program")).args(["--exact", test, "--ignored", "--nocapture"]);
        command.env("POLYWIRE_TEST_ADDRESS", address).stdin(Stdio::piped()).stdout(Stdio::null());
        Process(command.spawn().expect("started"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_is_killed_at_any_moment_stops_nobody() {
    const ROUNDS: u64 = 20;
    let folder = Folder::new("killed");
    let (stays, _events) = join(&folder.address());
    // They die as writers and as readers of large samples.
    let (large, is_over) = (stays.clone(), Arc::new(AtomicBool::new(false)));
    let is_done = is_over.clone();
    let publishes = thread::spawn(move || {
        let channel = large.announce("large", 1);
        for sequence in 1.. {
            if is_done.load(Ordering::Relaxed) {
                break;
            }
            large.publish(channel, sequence, &vec![1; 1 << 20]);
            thread::sleep(Duration::from_millis(5));
        }
    });
    for round in 0..ROUNDS {
        // Before they have started, while they meet, and while they publish.
        let processes: Vec<Process> =
            (0..3).map(|_| Process::start(Command::new("env"), "publisher", &folder.address())).collect();
        if round % 4 == 3 {
            patiently("they publish", || links(&stays) == 3 && stays.heard().messages.len() > 100);
        }
        for mut process in processes {
            thread::sleep(Duration::from_millis(round * 7 % 60));
            process.0.kill().expect("killed");
            process.0.wait().expect("it has ended");
        }
        patiently("the links end", || links(&stays) == 0);
        stays.heard().messages.clear();
        // Whoever comes next meets those that stay.
        let next = join(&folder.address()).0;
        until("they meet", || links(&next) == 1 && links(&stays) == 1);
        check(&next, &stays, &[10, 10_000]);
        next.port().close();
        until("it has left", || links(&stays) == 0);
        stays.heard().messages.clear();
    }
    is_over.store(true, Ordering::Relaxed);
    publishes.join().expect("no panic");
    // What the dead have left goes with their peers, or when the next node comes: then there are
    // its socket and two locks.
    let objects = folder.objects();
    drop(stays);
    let last = join(&folder.address()).0;
    until("only the last one is left", || left(&folder.0).len() == 3);
    drop(last);
    until("nothing is left", || left(&folder.0).is_empty());
    assert!(!objects.iter().any(|path| path.exists()));
}

/// Not a test by itself: runs where shared memory is small, and fills it.
#[test]
#[ignore = "run by another test"]
fn small() {
    let folder = Folder(env::var_os("POLYWIRE_TEST_ADDRESS").expect("a folder").into());
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=3m", "tmpfs", MOUNT]).status();
    assert!(mounted.expect("mount").success());
    let (writer, reader) = pair(&folder.address());
    let full = Path::new(MOUNT).join("full");
    let mut file = fs::File::create(&full).expect("a file");
    while file.write(&[0; 4096]).is_ok() {}
    drop(file);
    // A link that is up has its memory.
    check(&writer, &reader, &[100; 500]);
    check(&writer, &reader, &[1 << 20; 3]);
    // Another one is refused, says why, and comes up when there is room.
    let (late, events) = join(&folder.address());
    let reason = find(&events, |event| match event {
        Event::Rejected { reason: Disconnect::Lost(reason), .. } => Some(reason),
        _ => None,
    });
    assert!(reason.contains("bytes left") || reason.contains("could not share memory"), "{reason}");
    assert_eq!(links(&late), 0);
    fs::remove_file(&full).expect("removed");
    until("they meet", || links(&late) == 2);
    check(&late, &reader, &[100]);
}

#[test]
fn a_system_without_memory_refuses_links_and_keeps_those_there_are() {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private"]);
    let is_possible = geteuid().is_root() && unshare.arg("true").status().is_ok_and(|status| status.success());
    if !is_possible {
        eprintln!("not tried: only root can make a small shared memory");
        return;
    }
    let folder = Folder::new("small");
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private"]);
    let mut process = Process::start(unshare, "small", &folder.address());
    let until = Instant::now() + 10 * SOON;
    let status = loop {
        if let Some(status) = process.0.try_wait().expect("a child") {
            break status;
        }
        assert!(Instant::now() < until, "it ends");
        thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success());
}
