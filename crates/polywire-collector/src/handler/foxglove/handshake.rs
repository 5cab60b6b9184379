//! Which clients may connect, and with which version of the protocol.

use tungstenite::{
    handshake::server::{ErrorResponse, Request, Response},
    http::{HeaderValue, StatusCode, header},
};

/// The names of the protocol, the preferred one first.
const PROTOCOLS: [&str; 2] = ["foxglove.sdk.v1", "foxglove.websocket.v1"];

/// The header in which client and server negotiate the protocol.
const PROTOCOL: &str = "sec-websocket-protocol";

/// Which web pages may connect. Browsers report the origin of a page; other programs do not.
#[derive(Default)]
pub(super) struct Admission {
    origins: Vec<String>,
    /// Whether the server has pages of its own. Of the pages of this machine, only those may
    /// connect.
    own_pages: bool,
}

impl Admission {
    /// Parses `origins`, which are separated by blanks or commas.
    pub fn of(origins: &str, own_pages: bool) -> Admission {
        let origins = origins.split([' ', ',']).filter(|origin| !origin.is_empty());
        Admission { origins: origins.map(|origin| origin.trim_end_matches('/').to_owned()).collect(), own_pages }
    }

    /// Responds to the request that opens a connection.
    #[expect(clippy::result_large_err, reason = "the library has these types")]
    pub fn answer(&self, request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
        let text_of = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
        let host = text_of(header::HOST).unwrap_or_default();
        if !text_of(header::ORIGIN).is_none_or(|origin| self.admits(origin, host)) {
            return Err(refusal(StatusCode::FORBIDDEN, "pages of this origin may not connect: see 'origins'\n"));
        }
        let offered = request.headers().get_all(PROTOCOL).into_iter().filter_map(|value| value.to_str().ok());
        let offered: Vec<&str> = offered.flat_map(|value| value.split(',')).map(str::trim).collect();
        match PROTOCOLS.into_iter().find(|protocol| offered.contains(protocol)) {
            Some(protocol) => {
                response.headers_mut().insert(PROTOCOL, HeaderValue::from_static(protocol));
                Ok(response)
            }
            None => Err(refusal(StatusCode::BAD_REQUEST, "the protocol foxglove.websocket.v1 is expected\n")),
        }
    }

    /// Returns whether pages of an origin may connect. Pages of this machine may, regardless of
    /// their port, unless the server at `host` has pages of its own. The origin's host name is
    /// checked and not only compared with `host`, because a foreign name can resolve to this
    /// machine's address.
    fn admits(&self, origin: &str, host: &str) -> bool {
        let from = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let is_own = from.is_some_and(|from| is_this_machine(from) && (!self.own_pages || from == host));
        is_own || self.origins.iter().any(|admitted| admitted == origin)
    }
}

/// Returns whether a host name, with or without a port, is one of this machine's fixed names.
pub(in crate::handler) fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    ["localhost", "127.0.0.1", "::1"].contains(&name)
}

fn refusal(status: StatusCode, text: &str) -> ErrorResponse {
    let mut response = ErrorResponse::new(Some(text.to_owned()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_pages_admits_these_alone() {
        let admission = Admission::of("", true);
        assert!(admission.admits("http://127.0.0.1:8080", "127.0.0.1:8080"));
        for (origin, host) in [
            ("http://127.0.0.1:3000", "127.0.0.1:8080"),
            ("http://localhost:8080", "127.0.0.1:8080"),
            ("http://evil.example", "evil.example"),
            ("null", ""),
        ] {
            assert!(!admission.admits(origin, host), "{origin}");
        }
    }

    #[test]
    fn pages_of_this_machine_and_named_ones_may_connect() {
        let admission = Admission::of("https://app.foxglove.dev/, https://a.example:8443", false);
        for origin in [
            "http://localhost",
            "https://localhost:3000",
            "http://127.0.0.1:8765",
            "http://[::1]:80",
            "https://app.foxglove.dev",
            "https://a.example:8443",
        ] {
            assert!(admission.admits(origin, ""), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example:8765",
            "https://a.example",
            "http://app.foxglove.dev",
            "file://localhost",
            "http://[::2]",
        ] {
            assert!(!admission.admits(origin, ""), "{origin}");
        }
    }
}
