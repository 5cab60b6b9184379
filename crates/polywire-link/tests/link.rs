//! Tests of the link between real sockets: its effect on packets and streams, and its capture.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use polywire_link::{Change, Emulator, Plan, Way};

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(any()).expect("a port");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    socket
}

/// Receives until nothing more arrives.
fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| socket.recv_from(&mut buffer).ok().map(|(len, _)| buffer[..len].to_vec())).collect()
}

/// The numbers that arrive through a link with this seed, sent one by one.
fn through(model: &str, seed: u64, count: u32) -> Vec<u32> {
    let target = socket();
    let plan = Plan { there: model.parse().expect("a model"), seed, ..Plan::default() };
    let link = Emulator::udp(any(), target.local_addr().expect("bound"), plan).expect("a link");
    let sender = socket();
    for number in 0..count {
        sender.send_to(&number.to_le_bytes(), link.address()).expect("sent");
        // The socket's buffer is not part of the experiment.
        if number % 20 == 19 {
            thread::sleep(Duration::from_millis(2));
        }
    }
    let packets = received(&target);
    let (there, _) = link.stats();
    assert_eq!(there.sent, u64::from(count));
    assert_eq!(there.delivered as usize, packets.len());
    packets.iter().map(|packet| u32::from_le_bytes(packet[..4].try_into().expect("four bytes"))).collect()
}

#[test]
fn a_seed_makes_the_same_packets_lost() {
    let first = through("loss=gilbert:20%:3", 7, 200);
    assert!((110..195).contains(&first.len()), "{}", first.len());
    assert_eq!(first, through("loss=gilbert:20%:3", 7, 200));
    assert_ne!(first, through("loss=gilbert:20%:3", 8, 200));
}

#[test]
fn answers_go_back_to_who_asked_and_take_their_time() {
    let target = socket();
    let model = || "delay=30ms".parse().expect("a model");
    let plan = Plan { there: model(), back: model(), ..Plan::default() };
    let link = Emulator::udp(any(), target.local_addr().expect("bound"), plan).expect("a link");
    let senders = [socket(), socket()];
    let start = Instant::now();
    for (name, sender) in senders.iter().enumerate() {
        sender.send_to(&[name as u8], link.address()).expect("sent");
    }
    let mut buffer = [0; 8];
    for _ in 0..2 {
        let (len, from) = target.recv_from(&mut buffer).expect("received");
        target.send_to(&buffer[..len], from).expect("sent");
    }
    for (name, sender) in senders.iter().enumerate() {
        assert_eq!(sender.recv(&mut buffer).map(|len| buffer[..len].to_vec()).expect("answered"), [name as u8]);
    }
    assert!(start.elapsed() >= Duration::from_millis(60), "{:?}", start.elapsed());
}

#[test]
fn a_script_changes_the_link() {
    let target = socket();
    let changes: Vec<Change> =
        ["0.3 there loss=100%", "0.6 there loss=0"].iter().map(|text| text.parse().expect("a change")).collect();
    let link =
        Emulator::udp(any(), target.local_addr().expect("bound"), Plan { changes, ..Plan::default() }).expect("a link");
    let sender = socket();
    let start = Instant::now();
    let mut sent_in = [0u32; 3];
    while start.elapsed() < Duration::from_millis(900) {
        let third = (start.elapsed().as_millis() / 300).min(2) as usize;
        sent_in[third] += 1;
        sender.send_to(&[third as u8], link.address()).expect("sent");
        thread::sleep(Duration::from_millis(10));
    }
    link.set(Way::There, &"loss=100%".parse().expect("a model"));
    let packets = received(&target);
    let came = |third: u8| packets.iter().filter(|packet| packet[0] == third).count() as u32;
    // The bounds come from two clocks.
    assert!(came(0) + 3 >= sent_in[0] && came(1) <= 3 && came(2) + 3 >= sent_in[2], "{sent_in:?} {packets:?}");
}

/// The bytes of a capture.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Interface, time in nanoseconds and bytes of each packet of a capture.
fn packets(capture: &[u8]) -> Vec<(u32, u64, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut packets, mut interfaces) = (0, Vec::new(), 0);
    while at < capture.len() {
        let (kind, length) = (word(at), word(at + 4) as usize);
        assert!(length.is_multiple_of(4) && word(at + length - 4) as usize == length, "a block ends as it begins");
        match kind {
            0x0A0D_0D0A => assert_eq!((at, word(at + 8)), (0, 0x1A2B_3C4D)),
            1 => interfaces += 1,
            6 => {
                let time = u64::from(word(at + 12)) << 32 | u64::from(word(at + 16));
                let kept = word(at + 20) as usize;
                packets.push((word(at + 8), time, capture[at + 28..at + 28 + kept].to_vec()));
            }
            other => panic!("block {other}"),
        }
        at += length;
    }
    assert_eq!(interfaces, 2);
    packets
}

#[test]
fn a_capture_shows_both_sides() {
    let (target, file) = (socket(), Shared::default());
    let plan = Plan {
        there: "delay=20ms,loss=pattern:01".parse().expect("a model"),
        capture: Some(Box::new(file.clone())),
        ..Plan::default()
    };
    let link = Emulator::udp(any(), target.local_addr().expect("bound"), plan).expect("a link");
    let sender = socket();
    for number in 0..4u8 {
        sender.send_to(&[number; 5], link.address()).expect("sent");
    }
    assert_eq!(received(&target).len(), 2);
    drop(link);
    let packets = packets(&file.0.lock().expect("nobody panicked"));
    let of = |side: u32| packets.iter().filter(|packet| packet.0 == side).collect::<Vec<_>>();
    assert_eq!((of(0).len(), of(1).len()), (4, 2));
    for (_, _, packet) in &packets {
        assert_eq!((packet.len(), packet[14], packet[23]), (14 + 20 + 8 + 5, 0x45, 17), "IPv4, UDP");
        assert_eq!(packet[36..38], target.local_addr().expect("bound").port().to_be_bytes());
    }
    assert_eq!(of(1)[1].2[42..], [2; 5]);
    assert!(of(1)[0].1 - of(0)[0].1 >= 20_000_000, "the delay is between the two");
}

#[test]
fn a_stream_comes_whole_and_no_faster_than_the_line() {
    let listener = TcpListener::bind(any()).expect("a port");
    let model = || "rate=8mbit,delay=5ms,loss=50%,corrupt=50%,duplicate=50%".parse().expect("a model");
    let plan = Plan { there: model(), back: model(), ..Plan::default() };
    let link = Emulator::tcp(any(), listener.local_addr().expect("bound"), plan).expect("a link");
    let sent: Vec<u8> = (0..200_000u32).map(|i| (i * 7 / 3) as u8).collect();
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("read");
        stream.write_all(&bytes).expect("written");
    });
    let start = Instant::now();
    let mut stream = TcpStream::connect(link.address()).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    stream.write_all(&sent).expect("written");
    stream.shutdown(std::net::Shutdown::Write).expect("ended");
    let mut back = Vec::new();
    stream.read_to_end(&mut back).expect("read");
    echo.join().expect("nobody panicked");
    assert!(back == sent, "{} of {} bytes", back.len(), sent.len());
    // 200 kB take 200 ms each way at a megabyte a second.
    assert!(start.elapsed() >= Duration::from_millis(400), "{:?}", start.elapsed());
    let (there, back) = link.stats();
    assert_eq!((there.sent_bytes, back.sent_bytes, there.lost + there.corrupted), (200_000, 200_000, 0));
}

#[cfg(all(feature = "hosts", target_os = "linux"))]
#[test]
fn whole_packets_go_between_devices_and_the_capture_has_them() {
    use std::os::unix::net::UnixDatagram;

    let pair = || {
        let (own, links) = UnixDatagram::pair().expect("a pair");
        links.set_nonblocking(true).expect("set");
        own.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
        (own, links)
    };
    let ((here, left), (there, right)) = (pair(), pair());
    let captured = Shared::default();
    let plan = Plan {
        there: "loss=pattern:001,delay=5ms".parse().expect("a model"),
        capture: Some(Box::new(captured.clone())),
        ..Plan::default()
    };
    let link = Emulator::devices(left, right, plan).expect("a link");
    for number in 0..6u8 {
        here.send(&[0x45, 0, 0, number]).expect("sent");
    }
    there.send(&[0x60, 99]).expect("sent");
    let mut buffer = [0; 16];
    let came: Vec<u8> = std::iter::from_fn(|| there.recv(&mut buffer).ok().map(|_| buffer[3])).collect();
    assert_eq!(came, [0, 1, 3, 4]);
    assert_eq!(here.recv(&mut buffer).map(|len| buffer[..len].to_vec()).expect("the way back"), [0x60, 99]);
    let (forth, back) = link.stats();
    assert_eq!((forth.sent, forth.lost, back.delivered), (6, 2, 1));
    assert!(forth.delay_ns / 4 >= 5_000_000);
    drop(link);
    let packets = packets(&captured.0.lock().expect("nobody panicked"));
    let of =
        |side: u32, kind: [u8; 3]| packets.iter().filter(|packet| packet.0 == side && packet.2[12..15] == kind).count();
    // The bytes after the Ethernet header are unchanged.
    let (four, six) = ([0x08, 0x00, 0x45], [0x86, 0xDD, 0x60]);
    assert_eq!((of(0, four), of(1, four), of(0, six), of(1, six)), (6, 4, 1, 1));
}
