//! Who may connect, and with which version of the protocol.

use tungstenite::{
    handshake::server::{ErrorResponse, Request, Response},
    http::{HeaderValue, StatusCode, header},
};

/// The names of the protocol, best first.
const PROTOCOLS: [&str; 2] = ["foxglove.sdk.v1", "foxglove.websocket.v1"];

/// The header in which client and server agree on a protocol.
const PROTOCOL: &str = "sec-websocket-protocol";

/// Which pages may connect. A browser says where a page is from; other programs do not.
pub(super) struct Admission {
    origins: Vec<String>,
}

impl Admission {
    /// `origins` are separated by blanks or commas.
    pub fn of(origins: &str) -> Admission {
        let origins = origins.split([' ', ',']).filter(|origin| !origin.is_empty());
        Admission { origins: origins.map(|origin| origin.trim_end_matches('/').to_owned()).collect() }
    }

    /// Answers the request that opens a connection.
    #[expect(clippy::result_large_err, reason = "the library has these types")]
    pub fn answer(&self, request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
        let origin = request.headers().get(header::ORIGIN);
        if !origin.is_none_or(|origin| origin.to_str().is_ok_and(|origin| self.admits(origin))) {
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

    /// Pages of this machine are admitted whatever their port. Their name is checked, and not
    /// compared with that of the server: a stranger's name can stand for this machine's address.
    fn admits(&self, origin: &str) -> bool {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let is_own = host.is_some_and(|host| {
            let name = match host.strip_prefix('[') {
                Some(rest) => rest.split(']').next().unwrap_or_default(),
                None => host.split(':').next().unwrap_or_default(),
            };
            ["localhost", "127.0.0.1", "::1"].contains(&name)
        });
        is_own || self.origins.iter().any(|admitted| admitted == origin)
    }
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
    fn pages_of_this_machine_and_named_ones_may_connect() {
        let admission = Admission::of("https://app.foxglove.dev/, https://a.example:8443");
        for origin in [
            "http://localhost",
            "https://localhost:3000",
            "http://127.0.0.1:8765",
            "http://[::1]:80",
            "https://app.foxglove.dev",
            "https://a.example:8443",
        ] {
            assert!(admission.admits(origin), "{origin}");
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
            assert!(!admission.admits(origin), "{origin}");
        }
    }
}
