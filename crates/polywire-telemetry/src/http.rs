//! HTTP requests without encryption, each on a connection of its own, for probes and handlers that
//! communicate with programs on this machine.
//!
//! ```
//! use polywire_telemetry::http::Url;
//! use std::{io::{Read as _, Write as _}, net::TcpListener, thread, time::Duration};
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let url = Url::parse(&format!("http://{}/metrics", listener.local_addr()?), 80).ok_or("a URL")?;
//! let serving = thread::spawn(move || -> std::io::Result<()> {
//!     let (mut caller, _) = listener.accept()?;
//!     caller.read(&mut [0; 512])?;
//!     caller.write_all(b"HTTP/1.1 200 OK\r\n\r\nup 1\n")
//! });
//! assert_eq!(url.get("text/plain", Duration::from_secs(60), 1000)?, b"up 1\n");
//! assert!(url.post("application/json", b"{}", Duration::from_secs(60), 1000).is_err());
//! # serving.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{
    fmt,
    io::{Read as _, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    time::{Duration, Instant},
};

/// The maximum number of bytes of one read or write.
const PART: usize = 1 << 16;

/// The maximum number of characters of a reply that an error message quotes.
const MAX_QUOTED_CHARS: usize = 200;

/// A URL of the scheme `http`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host and port.
    authority: String,
    path: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl Url {
    /// Parses a URL. `port` is the port of URLs that name none.
    pub fn parse(url: &str, port: u16) -> Option<Url> {
        let rest = url.strip_prefix("http://")?;
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(at);
        if host.contains('@') || !rest.chars().all(|c| c.is_ascii_graphic()) {
            return None;
        }
        // The colons of an IPv6 address are between brackets.
        let name_ends = host.rfind(']').map_or(0, |at| at + 1);
        let (name, port) = match host[name_ends..].find(':') {
            Some(at) => (&host[..name_ends + at], host[name_ends + at + 1..].parse::<u16>().ok()?),
            None => (host, port),
        };
        let slash = if path.starts_with('/') { "" } else { "/" };
        (!name.is_empty()).then(|| Url { authority: format!("{name}:{port}"), path: format!("{slash}{path}") })
    }

    /// Returns the URL with this path, if it has no path itself.
    ///
    /// ```
    /// use polywire_telemetry::http::Url;
    /// let of = |text| Url::parse(text, 4318).map(|url| url.or_path("/v1/metrics").to_string());
    /// assert_eq!(of("http://localhost").as_deref(), Some("http://localhost:4318/v1/metrics"));
    /// assert_eq!(of("http://localhost/m").as_deref(), Some("http://localhost:4318/m"));
    /// ```
    #[must_use]
    pub fn or_path(mut self, path: &str) -> Url {
        if self.path == "/" {
            path.clone_into(&mut self.path);
        }
        self
    }

    /// Sends a `GET` request and returns the body of the reply. Fails if the exchange takes longer
    /// than `patience` or if the reply has more than `most` bytes; the error is the reason.
    pub fn get(&self, accept: &str, patience: Duration, most: usize) -> Result<Vec<u8>, String> {
        self.exchange("GET", &format!("Accept: {accept}\r\n"), &[], patience, most)
    }

    /// Sends a `POST` request with a body of this media type and returns the body of the reply. The
    /// limits are those of [`Url::get`].
    pub fn post(&self, media: &str, body: &[u8], patience: Duration, most: usize) -> Result<Vec<u8>, String> {
        let headers = format!("Content-Type: {media}\r\nContent-Length: {}\r\n", body.len());
        self.exchange("POST", &headers, body, patience, most)
    }

    /// Uses HTTP 1.0, so that the server does not send chunks and closes the connection after the
    /// reply.
    fn exchange(
        &self,
        method: &str,
        headers: &str,
        body: &[u8],
        patience: Duration,
        most: usize,
    ) -> Result<Vec<u8>, String> {
        let until = Instant::now().checked_add(patience);
        let text = |error: std::io::Error| error.to_string();
        let Url { authority, path } = self;
        let mut stream = self.connect(until)?;
        let head = format!("{method} {path} HTTP/1.0\r\nHost: {authority}\r\n{headers}\r\n");
        write(&mut stream, head.as_bytes(), until)?;
        write(&mut stream, body, until)?;
        let (mut reply, mut part) = (Vec::new(), vec![0; PART]);
        loop {
            stream.set_read_timeout(left(until)?).map_err(text)?;
            match stream.read(&mut part).map_err(text)? {
                0 => return body_of(&reply),
                len => reply.extend_from_slice(part.get(..len).unwrap_or_default()),
            }
            if reply.len() > most {
                return Err(format!("the reply has more than {most} bytes"));
            }
        }
    }

    fn connect(&self, until: Option<Instant>) -> Result<TcpStream, String> {
        let mut last = "the host has no address".to_owned();
        for address in self.authority.to_socket_addrs().map_err(|error| error.to_string())? {
            let connected = match left(until)? {
                Some(left) => TcpStream::connect_timeout(&address, left),
                None => TcpStream::connect(address),
            };
            match connected {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error.to_string(),
            }
        }
        Err(last)
    }
}

/// Writes all bytes, and fails if that takes longer than `until`. The socket's time-out limits one
/// write, so it is set anew for each part.
fn write(stream: &mut TcpStream, mut bytes: &[u8], until: Option<Instant>) -> Result<(), String> {
    while !bytes.is_empty() {
        stream.set_write_timeout(left(until)?).map_err(|error| error.to_string())?;
        match stream.write(bytes.get(..PART).unwrap_or(bytes)) {
            Ok(0) => return Err("the server takes no more bytes".to_owned()),
            Ok(len) => bytes = bytes.get(len..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Returns the time that is left; none if there is no limit, because the sum of the present time
/// and the patience would overflow.
fn left(until: Option<Instant>) -> Result<Option<Duration>, String> {
    let Some(until) = until else { return Ok(None) };
    let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    left.map(Some).ok_or_else(|| "the server is too slow".to_owned())
}

fn body_of(reply: &[u8]) -> Result<Vec<u8>, String> {
    let end = reply.windows(4).position(|end| end == b"\r\n\r\n").ok_or("the reply is no HTTP")?;
    let (head, body) = (String::from_utf8_lossy(&reply[..end]), &reply[end + 4..]);
    let status = head.lines().next().unwrap_or_default();
    let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    match code.and_then(|code| code.parse::<u16>().ok()) {
        Some(200..=299) => match length(&head)? {
            Some(len) => {
                let cut = || format!("the reply ends after {} of {len} bytes", body.len());
                body.get(..len).map(<[u8]>::to_vec).ok_or_else(cut)
            }
            None => Ok(body.to_vec()),
        },
        Some(_) => {
            let told = format!("'{status}' {}", String::from_utf8_lossy(body));
            Err(format!("the server says {}", told.chars().take(MAX_QUOTED_CHARS).collect::<String>().trim_end()))
        }
        None => Err("the reply is no HTTP".to_owned()),
    }
}

/// Returns the length of the body, if the head has it.
fn length(head: &str) -> Result<Option<usize>, String> {
    let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let len = fields.find(|(name, _)| name.eq_ignore_ascii_case("Content-Length"));
    let Some((_, len)) = len else { return Ok(None) };
    len.trim().parse().map(Some).map_err(|_| "the reply is no HTTP".to_owned())
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_reply_is_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = body_of(&bytes);
            prop_assert_eq!(body_of(&[&b"HTTP/1.1 200 OK\r\n\r\n"[..], &bytes].concat()), Ok(bytes));
        }
    }

    #[test]
    fn urls_are_taken_apart_and_checked() {
        let of = |text: &str| Url::parse(text, 4318).map(|url| url.or_path("/v1/metrics").to_string());
        for (text, expected) in [
            ("http://127.0.0.1:9100/metrics?x=1", "http://127.0.0.1:9100/metrics?x=1"),
            ("http://a", "http://a:4318/v1/metrics"),
            ("http://a:80/", "http://a:80/v1/metrics"),
            ("http://[::1]/m", "http://[::1]:4318/m"),
            ("http://[::1]:9?x", "http://[::1]:9/?x"),
        ] {
            assert_eq!(of(text).as_deref(), Some(expected));
        }
        for wrong in [
            "",
            "a:80",
            "https://a:1",
            "http://",
            "http:///m",
            "http://:1",
            "http://a:x",
            "http://a:1/ b",
            "http://a@b:1",
            "http://a\r\nb:1",
            "http://a/\r\nX: y",
            "http://a:65536/",
            "http://é/",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn patience_of_any_length_is_no_panic() {
        let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("an address");
        let url = Url::parse(&format!("http://{closed}"), 80).expect("a URL");
        assert!(url.get("text/plain", Duration::MAX, 1000).is_err(), "nobody listens");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let url = Url::parse(&format!("http://{}", listener.local_addr().expect("an address")), 80).expect("a URL");
        thread::spawn(move || {
            let (mut caller, _) = listener.accept().expect("a caller");
            let _ = caller.read(&mut [0; 1000]);
            caller.write_all(b"HTTP/1.0 200 OK\r\n\r\ntext").expect("written");
        });
        assert_eq!(url.get("text/plain", Duration::MAX, 1000), Ok(b"text".to_vec()));
    }

    #[test]
    fn patience_limits_the_whole_request_although_the_server_reads_all_the_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let url = Url::parse(&format!("http://{}", listener.local_addr().expect("an address")), 80).expect("a URL");
        // Reads at most 6.4 MB a second.
        thread::spawn(move || {
            let (mut caller, _) = listener.accept().expect("a caller");
            let mut part = vec![0; PART];
            while caller.read(&mut part).is_ok_and(|len| len > 0) {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let began = Instant::now();
        let told = url.post("text/plain", &vec![0; 128 << 20], Duration::from_millis(300), 1000);
        let took = began.elapsed();
        assert!(told.is_err() && took < Duration::from_secs(10), "{told:?} after {took:?}");
    }

    #[test]
    fn a_reply_that_is_cut_off_is_an_error() {
        let of = |head: &str, body: &str| body_of(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").as_bytes());
        assert_eq!(of("content-length:  3", "abc"), Ok(b"abc".to_vec()));
        assert_eq!(of("Content-Length: 3", "abcd"), Ok(b"abc".to_vec()), "nothing belongs to it after its end");
        assert_eq!(of("A: b\r\nContent-Length: 3", "ab"), Err("the reply ends after 2 of 3 bytes".to_owned()));
        assert_eq!(of("Content-Length: -3", "abc"), Err("the reply is no HTTP".to_owned()));
    }

    #[test]
    fn what_a_server_refuses_is_told() {
        let told = |reply: &str| body_of(reply.as_bytes()).expect_err("refused");
        assert_eq!(told("HTTP/1.1 404 Not Found\r\n\r\n"), "the server says 'HTTP/1.1 404 Not Found'");
        assert_eq!(told("HTTP/1.0 500 X\r\na: b\r\n\r\nfull\n"), "the server says 'HTTP/1.0 500 X' full");
        assert!(told(&format!("HTTP/1.1 400 No\r\n\r\n{}", "x".repeat(5000))).len() < 300);
        for reply in ["", "nonsense", "HTTP/2 200\r\n\r\n", "HTTP/1.1 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n"] {
            assert_eq!(told(reply), "the reply is no HTTP");
        }
    }
}
