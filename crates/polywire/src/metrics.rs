//! Serves metrics to Prometheus over HTTP, at an address of this machine.
//!
//! The server handles one request at a time, each on a connection of its own. It answers
//! `GET /metrics` and refuses all other requests. A client may send 8 KiB and has two seconds for
//! that, and two seconds to receive the reply.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The most bytes of a request's head.
const REQUEST: usize = 8 << 10;

/// How long a client may take to send its request, and to receive the reply.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves a text at `/metrics`, on a thread of its own, until it is dropped.
///
/// ```
/// use polywire::metrics::MetricsServer;
/// use std::{io::{Read, Write}, net::TcpStream};
///
/// let server = MetricsServer::serve("127.0.0.1:0".parse()?, || Some("pumps 7\n".into()))?;
/// let mut stream = TcpStream::connect(server.address())?;
/// stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
/// let mut reply = String::new();
/// stream.read_to_string(&mut reply)?;
/// assert!(reply.ends_with("\r\n\r\npumps 7\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MetricsServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Starts to listen. The server's thread calls `text` for each request. `text` returns `None`
    /// if there is nothing to serve any more; the client gets status 503 then. Fails if the address
    /// is in use, or with [`io::ErrorKind::InvalidInput`] if other machines could reach the
    /// address.
    pub fn serve(address: SocketAddr, text: impl Fn() -> Option<String> + Send + 'static) -> io::Result<MetricsServer> {
        if !address.ip().is_loopback() {
            let reason = "other machines could reach it; use an address such as 127.0.0.1:9464";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || {
            for caller in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                // An error concerns only this client: it has gone, or has sent no valid request.
                let _ = caller.and_then(|caller| answer(&caller, &text));
            }
        };
        let thread = thread::Builder::new().name("pw-metrics".into()).spawn(work)?;
        Ok(MetricsServer { address, stop, thread: Some(thread) })
    }

    /// The address, with the port number that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread, which waits for a connection.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE).is_ok();
        if let Some(thread) =
            self.thread.take().filter(|thread| woken && thread.thread().id() != thread::current().id())
        {
            let _ = thread.join();
        }
    }
}

fn answer(caller: &TcpStream, text: &impl Fn() -> Option<String>) -> io::Result<()> {
    let head = head(caller)?;
    let (status, body) = match request(&head) {
        Ok(()) => match text() {
            Some(text) => ("200 OK", text),
            None => ("503 Service Unavailable", "it is closed\n".into()),
        },
        Err(status) => (status, format!("{status}\n")),
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let until = Instant::now() + PATIENCE;
    send(caller, head.as_bytes(), until)?;
    send(caller, body.as_bytes(), until)
}

/// Writes bytes. Fails at `until`, also if the client reads them slowly.
fn send(mut caller: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        caller.set_write_timeout(Some(left(until)?))?;
        match caller.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the time until `until`. Fails if none is left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    left.ok_or_else(|| io::ErrorKind::TimedOut.into())
}

/// Reads a request up to the empty line, or until [`REQUEST`] bytes have arrived. Fails after
/// [`PATIENCE`].
fn head(mut caller: &TcpStream) -> io::Result<Vec<u8>> {
    let (until, mut head, mut part) = (Instant::now() + PATIENCE, Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < REQUEST {
        caller.set_read_timeout(Some(left(until)?))?;
        match caller.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(part.get(..read).unwrap_or_default()),
        }
    }
    Ok(head)
}

/// Checks whether a request asks for the metrics. The error is the status that refuses it.
fn request(head: &[u8]) -> Result<(), &'static str> {
    let bad = "400 Bad Request";
    let end = head.windows(4).position(|end| end == b"\r\n\r\n").ok_or("431 Request Header Fields Too Large")?;
    let text = std::str::from_utf8(head.get(..end).unwrap_or_default()).map_err(|_| bad)?;
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    match (method, target, version, words.next()) {
        (Some(method), Some(target), Some("HTTP/1.0" | "HTTP/1.1"), None) => {
            let path = target.split('?').next().unwrap_or_default();
            match (method, path) {
                ("GET", "/metrics") => Ok(()),
                (_, "/metrics") => Err("405 Method Not Allowed"),
                _ => Err("404 Not Found"),
            }
        }
        _ => Err(bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).expect("connects");
        stream.write_all(request).expect("sent");
        let mut reply = String::new();
        // The server may close before it has read everything.
        let _ = stream.read_to_string(&mut reply);
        reply
    }

    #[test]
    fn metrics_are_served_and_nothing_else() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let metrics = MetricsServer::serve(any, || Some("a 1\n".into())).expect("listens");
        let address = metrics.address();
        let reply = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            reply.starts_with("HTTP/1.1 200 OK\r\n")
                && reply.ends_with("Content-Length: 4\r\nConnection: close\r\n\r\na 1\n")
        );
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"\x16\x03\x01\xff\r\n\r\n", "400"),
        ] {
            let reply = ask(address, request);
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
        }
        let endless = [b"GET /metrics HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; REQUEST]].concat();
        assert!(ask(address, &endless).starts_with("HTTP/1.1 431 "));
        // A client that sends nothing delays the other clients only for a limited time.
        let _silent = TcpStream::connect(address).expect("connects");
        assert!(ask(address, b"GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 "));
        drop(metrics);
        assert!(TcpListener::bind(address).is_ok(), "the port is free again");
    }

    #[test]
    fn a_client_that_reads_slowly_does_not_get_all_of_a_large_reply() {
        const BODY: usize = 64 << 20;
        let any = "127.0.0.1:0".parse().expect("an address");
        let metrics = MetricsServer::serve(any, || Some("x".repeat(BODY))).expect("listens");
        let mut slow = TcpStream::connect(metrics.address()).expect("connects");
        slow.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
        let (mut part, mut received) = (vec![0; 64 << 10], 0);
        // The system still delivers what the server had written before it closed the connection.
        while let Ok(read @ 1..) = slow.read(&mut part) {
            received += read;
            thread::sleep(Duration::from_millis(10));
        }
        assert!((1..BODY).contains(&received), "{received} bytes");
    }

    #[test]
    fn other_machines_are_not_served() {
        let error = MetricsServer::serve("0.0.0.0:0".parse().expect("an address"), || None).err().expect("refused");
        assert!(error.to_string().contains("other machines"), "{error}");
    }
}
