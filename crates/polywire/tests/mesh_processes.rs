//! Twenty processes at `local`, and at `shm`. One of them is suspended and goes on, and another one
//! is killed; nobody else notices anything but its absence.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use polywire::{Config, Message, Node, NodeEvent, Publisher, Subscriber, engine::Event};
use rustix::process::{Pid, Signal, kill_process};

const MEMBERS: u32 = 20;
/// Messages of each member in a second, and their size: what a suspended member does not take
/// fills its queue within ten seconds. Each one goes to nineteen others, so a higher rate is more
/// than two cores can carry beside other tests.
const RATE_HZ: u32 = 3;
const BYTES: usize = 4000;
/// Whoever waits for a suspended member waits for longer than this test takes.
const CONFIG: &str = "[engine]\nqueue_bytes = 65536\nsend_buffer = 16384\nreceive_buffer = 16384\npatience_ms = 600000";
/// Longer than anything takes on a slow machine that does other work, too.
const SOON: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Reading {
    member: u32,
    count: u64,
    filling: Vec<u8>,
}

/// What one process says of itself.
#[derive(Clone, Debug, Default)]
struct Report {
    links: usize,
    silent: u64,
    heard: u64,
    lost: u64,
    /// The last count of each member.
    counts: BTreeMap<u32, u64>,
    /// Why it has no link to somebody, as it was told last.
    trouble: String,
}

/// Not a test by itself: one of the processes. Ends with its standard input.
#[test]
#[ignore = "run by another test"]
fn member() {
    let number: u32 = std::env::var("POLYWIRE_TEST_MEMBER").expect("a number").parse().expect("a number");
    let wire = format!("cdr@{}", std::env::var("POLYWIRE_TEST_ENDPOINT").expect("an endpoint"));
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let node = Node::builder().config(Config::parse(CONFIG).expect("valid")).build();
    let events = node.events();
    let readings: Subscriber<Reading> = node.subscriber_on("readings", &wire).expect("a subscriber");
    let publisher: Publisher<Reading> = node.publisher_on("readings", &wire).expect("a publisher");
    let (mut report, mut count, mut told) = (Report::default(), 0, Instant::now());
    let mut due = Instant::now();
    loop {
        count += 1;
        publisher.publish(&Reading { member: number, count, filling: vec![7; BYTES] }).expect("published");
        due += Duration::from_secs(1) / RATE_HZ;
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            let Some(sample) = readings.recv_timeout(left) else { break };
            report.counts.insert(sample.value.member, sample.value.count);
        }
        // After a suspension, what was missed is not caught up with.
        due = due.max(Instant::now());
        while let Some(event) = events.try_recv() {
            match &event {
                NodeEvent::Engine { event: Event::Silent { .. }, .. } => report.silent += 1,
                NodeEvent::Engine { event: Event::Heard(_), .. } => report.heard += 1,
                NodeEvent::Engine { event: Event::Unreachable { .. } | Event::Rejected { .. }, .. } => {
                    println!("trouble {event}");
                }
                _ => {}
            }
        }
        if told.elapsed() > Duration::from_millis(200) {
            told = Instant::now();
            let counts: Vec<String> = report.counts.iter().map(|(member, count)| format!("{member}:{count}")).collect();
            let Report { silent, heard, .. } = report;
            println!("report {} {silent} {heard} {} {}", node.links(), readings.lost(), counts.join(" "));
        }
    }
}

fn parse(line: &str) -> Option<Report> {
    let mut words = line.split_once("report ")?.1.split(' ');
    let mut number = || words.next()?.parse().ok();
    let (links, silent, heard, lost) = (number()?, number()?, number()?, number()?);
    let counts = words.filter_map(|word| word.split_once(':'));
    let counts = counts.filter_map(|(member, count)| Some((member.parse().ok()?, count.parse().ok()?))).collect();
    Some(Report { links: links as usize, silent, heard, lost, counts, trouble: String::new() })
}

struct Member {
    number: u32,
    child: Child,
    last: Arc<Mutex<Report>>,
}

impl Member {
    fn start(number: u32, endpoint: &str) -> Member {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "member", "--ignored", "--nocapture"]);
        command.env("POLYWIRE_TEST_MEMBER", number.to_string()).env("POLYWIRE_TEST_ENDPOINT", endpoint);
        // Twenty compilers at once would take longer than the test.
        command.env("POLYWIRE_JIT", "off").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("started");
        let (out, last) = (child.stdout.take().expect("piped"), Arc::<Mutex<Report>>::default());
        let report = last.clone();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let mut report = report.lock().expect("no panic");
                if let Some(parsed) = parse(&line) {
                    *report = Report { trouble: std::mem::take(&mut report.trouble), ..parsed };
                } else if let Some((_, trouble)) = line.split_once("trouble ") {
                    report.trouble = trouble.into();
                }
            }
        });
        Member { number, child, last }
    }

    fn report(&self) -> Report {
        self.last.lock().expect("no panic").clone()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until it is so of every member.
fn all(members: &[Member], what: &str, is_so: impl Fn(&Member, &Report) -> bool) {
    let until = Instant::now() + SOON;
    for member in members {
        while !is_so(member, &member.report()) {
            assert!(Instant::now() < until, "{what}: member {}: {:?}", member.number, member.report());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Waits until every member has received so many more messages from each of the others of `from`.
fn progress(members: &[Member], from: &[u32], messages: u64) {
    let before: Vec<Report> = members.iter().map(Member::report).collect();
    for (member, before) in members.iter().zip(&before) {
        let others = from.iter().filter(|from| **from != member.number);
        let wanted: Vec<_> = others.map(|from| (*from, before.counts.get(from).unwrap_or(&0) + messages)).collect();
        all(std::slice::from_ref(member), "messages go on", |_, now| {
            wanted.iter().all(|(from, least)| now.counts.get(from).is_some_and(|count| count >= least))
        });
    }
}

#[test]
fn a_member_that_is_suspended_or_killed_disturbs_nobody_else() {
    let folder = std::env::temp_dir().join(format!("pw-twenty-{}", std::process::id()));
    check(&format!("local/{}", folder.display()), &folder);
    let _ = fs::remove_dir_all(&folder);
}

#[cfg(all(feature = "shm", target_os = "linux"))]
#[test]
fn nor_does_one_with_shared_memory() {
    /// The members are killed. Whoever comes next removes what they leave, also after a failure.
    struct Leavings(PathBuf, String);
    impl Drop for Leavings {
        fn drop(&mut self) {
            let _ = Node::new().open(&self.1);
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    let folder = std::env::temp_dir().join(format!("pw-twenty-shm-{}", std::process::id()));
    let endpoint = format!("shm/{}", folder.display());
    let _leavings = Leavings(folder.clone(), endpoint.clone());
    check(&endpoint, &folder.join("shm"));
}

/// Checks an engine at an endpoint whose nodes have their sockets in `folder`.
fn check(endpoint: &str, folder: &Path) {
    // Forty processes with nineteen links each would take turns on the processor for minutes.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut members: Vec<Member> = (0..MEMBERS).map(|number| Member::start(number, endpoint)).collect();
    let everybody: Vec<u32> = (0..MEMBERS).collect();
    all(&members, "links", |_, report| report.links == MEMBERS as usize - 1);
    progress(&members, &everybody, 5);

    // One is suspended, for longer than its queues hold what is published meanwhile.
    let suspended = members.remove(7);
    suspended.signal(Signal::STOP);
    let others: Vec<u32> = everybody.iter().copied().filter(|number| *number != suspended.number).collect();
    progress(&members, &others, u64::from(15 * RATE_HZ));
    all(&members, "the silence is told", |_, report| report.silent >= 1);
    all(&members, "nothing is lost and nobody leaves", |_, report| {
        report.lost == 0 && report.links == MEMBERS as usize - 1
    });

    // A newcomer meets the others meanwhile.
    let newcomer = Member::start(MEMBERS, endpoint);
    progress(std::slice::from_ref(&newcomer), &others, 5);
    progress(&members, &[newcomer.number], 5);

    // It comes back by itself: it hears the others, and they hear it.
    suspended.signal(Signal::CONT);
    progress(&members, &[suspended.number], 5);
    progress(std::slice::from_ref(&suspended), &others, 5);
    progress(std::slice::from_ref(&suspended), &[newcomer.number], 5);
    progress(std::slice::from_ref(&newcomer), &[suspended.number], 5);
    all(&members, "it is heard again", |_, report| report.heard >= 1);
    assert!(suspended.report().lost > 0, "it is told what it missed");

    // Another one is killed.
    let killed = members.remove(3);
    let rest: Vec<u32> = others.iter().copied().filter(|number| *number != killed.number).collect();
    killed.signal(Signal::KILL);
    all(&members, "its links end", |_, report| report.links == MEMBERS as usize - 1);
    progress(&members, &rest, 20);
    all(&members, "nothing is lost", |_, report| report.lost == 0);

    // Its files are gone.
    let until = Instant::now() + SOON;
    while files(folder) != 2 * MEMBERS as usize {
        assert!(Instant::now() < until, "the files of the dead one stay");
        thread::sleep(Duration::from_millis(20));
    }
    drop((members, suspended, killed, newcomer));
}

/// Sockets and locks in a folder.
fn files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).expect("a folder");
    entries.filter_map(Result::ok).filter(|entry| !entry.path().is_dir()).count()
}
