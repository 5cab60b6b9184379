//! One request by HTTP/1.1, on a connection of its own.

use std::{
    fmt,
    io::{self, Read as _, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    time::{Duration, Instant},
};

/// Bytes of a reply.
const MOST_REPLY: u64 = 1 << 20;

/// Where to send a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Host and port.
    authority: String,
    path: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl Target {
    /// Reads an address. `path` is taken if it has none.
    pub fn of(address: &str, path: &str) -> Result<Target, String> {
        let expected = || format!("an address such as http://127.0.0.1:4318 is expected, not '{address}'");
        let rest = address.strip_prefix("http://").ok_or_else(expected)?;
        let (authority, own) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let port = authority.rsplit_once(':').and_then(|(host, port)| {
            let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@');
            port.parse::<u16>().ok().filter(|_| is_host)
        });
        port.ok_or_else(expected)?;
        if !own.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(expected());
        }
        let path = if own.trim_end_matches('/').is_empty() { path } else { own };
        Ok(Target { authority: authority.to_owned(), path: path.to_owned() })
    }

    fn connect(&self, patience: Duration) -> io::Result<TcpStream> {
        let mut problem = io::Error::from(io::ErrorKind::NotFound);
        for address in self.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => return Ok(stream),
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }
}

/// Sends JSON, and returns the body of the reply. The error says why it was not taken.
pub(super) fn post(target: &Target, body: &[u8], patience: Duration) -> Result<Vec<u8>, String> {
    let reply = exchange(target, body, patience).map_err(|error| error.to_string())?;
    let end = reply.windows(4).position(|end| end == b"\r\n\r\n").ok_or("the reply is not HTTP")?;
    let (head, rest) = (String::from_utf8_lossy(&reply[..end]), &reply[end + 4..]);
    let status = head.lines().next().unwrap_or_default();
    let mut words = status.split(' ');
    match (words.next(), words.next().and_then(|code| code.parse::<u16>().ok())) {
        (Some("HTTP/1.1" | "HTTP/1.0"), Some(200..=299)) => Ok(rest.to_vec()),
        (Some("HTTP/1.1" | "HTTP/1.0"), Some(_)) => {
            let text: String = String::from_utf8_lossy(rest).chars().take(200).collect();
            Err(format!("{status}: {text}"))
        }
        _ => Err("the reply is not HTTP".into()),
    }
}

/// Sends a request and reads the reply up to the end of the connection, which the request asks for.
fn exchange(target: &Target, body: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let mut stream = target.connect(patience)?;
    stream.set_write_timeout(Some(patience))?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        target.path,
        target.authority,
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let (mut reply, mut part) = (Vec::new(), [0; 4096]);
    while (reply.len() as u64) < MOST_REPLY {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => break,
            read => reply.extend_from_slice(part.get(..read).unwrap_or_default()),
        }
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        let of = |text: &str| Target::of(text, "/v1/metrics").map(|target| target.to_string());
        assert_eq!(of("http://127.0.0.1:4318"), Ok("http://127.0.0.1:4318/v1/metrics".into()));
        assert_eq!(of("http://host:80/"), Ok("http://host:80/v1/metrics".into()));
        assert_eq!(of("http://[::1]:4318/a/b"), Ok("http://[::1]:4318/a/b".into()));
        for wrong in [
            "",
            "host:80",
            "https://a:1",
            "http://",
            "http://a",
            "http://:1",
            "http://a:x",
            "http://a:1/ b",
            "http://a@b:1",
            "http://a\r\nb:1",
        ] {
            assert!(of(wrong).is_err_and(|reason| reason.contains("http://127.0.0.1:4318 is expected")), "{wrong}");
        }
    }
}
