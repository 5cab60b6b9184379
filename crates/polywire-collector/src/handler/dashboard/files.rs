//! The files of the page, and their delivery over HTTP.

use crate::handler::foxglove::is_this_machine;

/// The files: path, media type, content.
const FILES: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("/app.js", "text/javascript; charset=utf-8", include_str!("page/app.js")),
    ("/system.js", "text/javascript; charset=utf-8", include_str!("page/system.js")),
    ("/plot.js", "text/javascript; charset=utf-8", include_str!("page/plot.js")),
    ("/recorded.js", "text/javascript; charset=utf-8", include_str!("page/recorded.js")),
    ("/table.js", "text/javascript; charset=utf-8", include_str!("page/table.js")),
];

/// The path for requests about archives.
const RECORDED: &str = "/recorded";

/// The page may run only its own scripts, connect only to its own server, and be shown in no frame.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
     X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n";

/// Returns the response to a request with this head. `recorded` answers queries about archives.
pub(super) fn respond(head: &str, recorded: impl FnOnce(&str) -> Result<String, String>) -> Vec<u8> {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |name| head.lines().find_map(|line| value_of(line, name));
    let host = header("host").unwrap_or_default();
    if !is_this_machine(host) {
        // A foreign host name that resolves to this machine's address.
        return response("421 Misdirected Request", "text/plain", "open this page by 127.0.0.1 or localhost\n", true);
    }
    let has_body = method == "GET";
    if !has_body && method != "HEAD" {
        return response("405 Method Not Allowed", "text/plain", "GET is expected\n", true);
    }
    if path == RECORDED {
        // Browsers report requests of other pages, which could not read the response anyway.
        if header("sec-fetch-site").is_some_and(|site| site != "same-origin") {
            return response("403 Forbidden", "text/plain", "only the dashboard may ask\n", has_body);
        }
        return match recorded(query) {
            Ok(json) => response("200 OK", "application/json", &json, has_body),
            Err(reason) => response("400 Bad Request", "text/plain; charset=utf-8", &reason, has_body),
        };
    }
    match FILES.iter().find(|(name, _, _)| *name == path) {
        Some((_, media, content)) => response("200 OK", media, content, has_body),
        None => response("404 Not Found", "text/plain", "there is no such page; the dashboard is at /\n", has_body),
    }
}

fn value_of<'a>(line: &'a str, header: &str) -> Option<&'a str> {
    let (name, value) = line.split_once(':')?;
    name.eq_ignore_ascii_case(header).then(|| value.trim())
}

fn response(status: &str, media: &str, content: &str, has_body: bool) -> Vec<u8> {
    let length = content.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n{HEADERS}\r\n");
    let body = if has_body { content } else { "" };
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str) -> String {
        let response = String::from_utf8(respond(head, |_| Err("nothing".into()))).expect("text");
        response.lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn files_are_served_to_this_machine_alone() {
        for path in ["/", "/app.js", "/?x=1", "/style.css"] {
            assert_eq!(
                status(&format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n")),
                "HTTP/1.1 200 OK",
                "{path}"
            );
        }
        assert_eq!(status("GET / HTTP/1.1\r\nhOST: [::1]:80\r\n"), "HTTP/1.1 200 OK");
        for (head, code) in [
            ("GET / HTTP/1.1\r\nHost: evil.example:8080\r\n", "421"),
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n", "421"),
            ("GET / HTTP/1.1\r\n", "421"),
            ("POST / HTTP/1.1\r\nHost: localhost\r\n", "405"),
            ("GET /../Cargo.toml HTTP/1.1\r\nHost: localhost\r\n", "404"),
            ("GET //app.js HTTP/1.1\r\nHost: localhost\r\n", "404"),
            ("GET /recorded?a=b HTTP/1.1\r\nHost: localhost\r\n", "400"),
            ("GET /recorded HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n", "403"),
            ("GET /recorded HTTP/1.1\r\nHost: evil.example\r\n", "421"),
        ] {
            assert!(status(head).contains(code), "{head}: {}", status(head));
        }
        assert!(status("").starts_with("HTTP/1.1 421"));
    }

    #[test]
    fn a_query_is_passed_on_as_it_is() {
        let head = "GET /recorded?topic=a%2Fb HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n";
        let answer = |query: &str| Ok(format!("[{query:?}]"));
        let response = String::from_utf8(respond(head, answer)).expect("text");
        assert!(response.contains("application/json") && response.ends_with("[\"topic=a%2Fb\"]"), "{response}");
    }

    #[test]
    fn a_head_has_no_body() {
        let response = respond("HEAD / HTTP/1.1\r\nHost: localhost\r\n", |_| Err(String::new()));
        assert!(response.ends_with(b"\r\n\r\n"));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for (path, _, content) in FILES {
            let foreign = content
                .lines()
                .find(|line| line.contains("//") && line.contains("http") && !line.contains("www.w3.org"));
            assert_eq!(foreign, None, "{path}");
            for unsafe_word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "document.write"] {
                assert!(!content.contains(unsafe_word), "{path} has {unsafe_word}");
            }
        }
    }
}
