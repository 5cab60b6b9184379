//! The lower bound of the latency measurement: a blocking socket that sends and receives fixed
//! bytes, without Polywire.

use std::{
    env, fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    process, thread,
    time::{Duration, Instant},
};

use super::Family;

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Listens, and starts a thread that accepts one connection and returns its bytes in pieces of
/// `size`. Returns the address.
pub(super) fn echo(family: Family, size: usize) -> String {
    match family {
        Family::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = listener.local_addr().expect("the socket is bound").to_string();
            thread::spawn(move || {
                let (stream, _) = listener.accept().expect("the parent connects");
                stream.set_nodelay(true).expect("a TCP socket");
                send_back(stream, size);
            });
            address
        }
        Family::Unix => {
            let path = env::temp_dir().join(format!("polywire-bench-{}-raw.sock", process::id()));
            let listener = UnixListener::bind(&path).expect("a free path");
            let accepting = path.clone();
            thread::spawn(move || {
                let (stream, _) = listener.accept().expect("the parent connects");
                fs::remove_file(accepting).expect("the path that was bound");
                send_back(stream, size);
            });
            path.display().to_string()
        }
    }
}

fn send_back(mut stream: impl Stream, size: usize) {
    let mut buffer = vec![0; size];
    while stream.read_exact(&mut buffer).is_ok() && stream.write_all(&buffer).is_ok() {}
}

/// The parent's end of [`echo`].
pub(super) struct Ping {
    stream: Box<dyn Stream>,
    message: Vec<u8>,
    back: Vec<u8>,
}

impl Ping {
    pub(super) fn connect(family: Family, address: &str, message: Vec<u8>) -> Ping {
        let stream: Box<dyn Stream> = match family {
            Family::Tcp => {
                let stream = TcpStream::connect(address).expect("the other end listens");
                stream.set_nodelay(true).expect("a TCP socket");
                Box::new(stream)
            }
            Family::Unix => Box::new(UnixStream::connect(address).expect("the other end listens")),
        };
        let back = vec![0; message.len()];
        Ping { stream, message, back }
    }

    /// Makes `rounds` round trips one after the other, and returns their times.
    pub(super) fn turn(&mut self, rounds: usize) -> Vec<Duration> {
        let once = |_| {
            let start = Instant::now();
            self.stream.write_all(&self.message).expect("the other end reads");
            self.stream.read_exact(&mut self.back).expect("the other end answers");
            let took = start.elapsed();
            assert!(self.back == self.message, "the returned bytes differ from the sent ones");
            took
        };
        (0..rounds).map(once).collect()
    }
}
