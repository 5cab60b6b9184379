//! What a node advertises in DNS-SD: its instance name and the pairs of its TXT record.
//! `spec/lan.md` defines both. This module only converts text, and uses no socket.

use polywire_core::{
    envelope::Id128,
    frame::{Hello, VERSION},
};

use crate::engine::domain;

/// The service type of nodes.
pub(super) const SERVICE: &str = "_polywire._tcp.local.";

/// Version of the format of the pairs.
const TXT_VERSION: &str = "1";
/// The most bytes of a label of DNS.
const LABEL: usize = 63;
/// The most characters of a software version. A longer one is cut, so that it cannot fill a screen.
const SOFTWARE: usize = 32;

/// The content of a TXT record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) hello: Hello,
    pub(super) domain: u8,
    /// Version of the frames that the node speaks.
    pub(super) frames: u8,
    pub(super) is_tls: bool,
    /// Version of the software, for display.
    pub(super) software: String,
}

impl Record {
    pub(super) fn new(hello: Hello, domain: u8, is_tls: bool) -> Record {
        Record { hello, domain, frames: VERSION, is_tls, software: env!("CARGO_PKG_VERSION").into() }
    }

    /// Returns the pairs of the TXT record.
    pub(super) fn pairs(&self) -> [(&'static str, String); 7] {
        [
            ("txtvers", TXT_VERSION.into()),
            ("frames", self.frames.to_string()),
            ("node", self.hello.node.to_string()),
            ("inc", format!("{:x}", self.hello.incarnation)),
            ("domain", self.domain.to_string()),
            ("tls", u8::from(self.is_tls).to_string()),
            ("ver", self.software.clone()),
        ]
    }

    /// Reads the pairs, of which `value` returns the value for a key. Ignores unknown keys.
    pub(super) fn read<'a>(value: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Record, String> {
        let text = |key: &str| {
            let bytes = value(key).ok_or_else(|| format!("its TXT record has no '{key}'"))?;
            std::str::from_utf8(bytes).map_err(|_| format!("'{key}' of its TXT record is no text"))
        };
        let wrong = |key: &str| format!("'{key}' of its TXT record is malformed");
        if text("txtvers")? != TXT_VERSION {
            return Err(format!("its TXT record is not of version {TXT_VERSION}"));
        }
        let node = hexadecimal(text("node")?, 32).ok_or_else(|| wrong("node"))?;
        let incarnation = hexadecimal(text("inc")?, 16).and_then(|number| u64::try_from(number).ok());
        let software = value("ver").map(String::from_utf8_lossy).unwrap_or_default();
        Ok(Record {
            hello: Hello { node: Id128(node.to_be_bytes()), incarnation: incarnation.ok_or_else(|| wrong("inc"))? },
            domain: domain::parse(text("domain")?).map_err(|_| wrong("domain"))?,
            frames: decimal(text("frames")?).ok_or_else(|| wrong("frames"))?,
            is_tls: match text("tls")? {
                "0" => false,
                "1" => true,
                _ => return Err(wrong("tls")),
            },
            software: software.chars().filter(|c| !c.is_control()).take(SOFTWARE).collect(),
        })
    }
}

fn decimal(text: &str) -> Option<u8> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Parses a number of at most `most` hexadecimal digits, and no other character.
fn hexadecimal(text: &str, most: usize) -> Option<u128> {
    let is_fine = text.len() <= most && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_fine)
}

/// Returns the instance name `HOST:PORT NODE`, in one label. It is unique, because the node's id
/// is, and because a node has one port of the engine at a TCP port.
pub(super) fn instance(machine: &str, port: u16, node: Id128) -> String {
    let rest = format!(":{port} {node}");
    let room = LABEL - rest.len();
    let machine: String = machine.chars().filter(|c| !c.is_control()).collect();
    let cut = machine.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= room).last();
    format!("{}{rest}", machine.get(..cut.unwrap_or(0)).unwrap_or_default())
}

/// Returns the host name of a node's addresses. It is not the machine's host name: a daemon of the
/// system may own that one, and nodes that use different interfaces have different addresses.
pub(super) fn host(port: u16, node: Id128) -> String {
    format!("{node}-{port}.local.")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const HELLO: Hello = Hello { node: Id128([0xab; 16]), incarnation: 0x1234 };

    fn read(pairs: &[(&str, &[u8])]) -> Result<Record, String> {
        let pairs: BTreeMap<&str, &[u8]> = pairs.iter().copied().collect();
        Record::read(|key| pairs.get(key).copied())
    }

    #[test]
    fn what_is_written_is_read() {
        let record = Record::new(HELLO, 7, true);
        let pairs = record.pairs();
        let pairs: Vec<(&str, &[u8])> = pairs.iter().map(|(key, value)| (*key, value.as_bytes())).collect();
        assert_eq!(pairs[0], ("txtvers", &b"1"[..]), "it comes first (RFC 6763, 6.7)");
        assert!(pairs.iter().all(|(key, _)| key.len() <= 9), "RFC 6763, 6.4");
        assert_eq!(read(&pairs), Ok(record));
    }

    #[test]
    fn garbage_is_refused_and_says_what_is_wrong() {
        let fine: [(&str, &[u8]); 7] = [
            ("txtvers", b"1"),
            ("frames", b"1"),
            ("node", b"ab"),
            ("inc", b"ffffffffffffffff"),
            ("domain", b"0"),
            ("tls", b"0"),
            ("ver", b"9.9\x1b[2J"),
        ];
        assert_eq!(read(&fine).expect("valid").software, "9.9[2J");
        assert!(read(&[]).is_err_and(|reason| reason.contains("no 'txtvers'")));
        for (at, wrong, part) in [
            (0, &b"2"[..], "version 1"),
            (1, b"256", "'frames'"),
            (2, b"", "'node'"),
            (2, b"+1", "'node'"),
            (2, b"000000000000000000000000000000000", "'node'"),
            (3, b"10000000000000000", "'inc'"),
            (1, b"+1", "'frames'"),
            (4, b"233", "'domain'"),
            (5, b"yes", "'tls'"),
            (5, b"\xff", "no text"),
        ] {
            let mut pairs = fine;
            pairs[at].1 = wrong;
            let error = read(&pairs).expect_err("refused");
            assert!(error.contains(part), "{error}");
        }
        let long = [b'x'; 255];
        let mut pairs = fine;
        pairs[6].1 = &long;
        assert_eq!(read(&pairs).expect("valid").software.len(), SOFTWARE);
    }

    #[test]
    fn names_fit_into_a_label() {
        let node = Id128([0xab; 16]);
        assert_eq!(instance("hall-1", 7461, node), format!("hall-1:7461 {node}"));
        for machine in ["a".repeat(255), "\u{fc}".repeat(100), String::new(), "a\nb".into()] {
            let name = instance(&machine, 65535, node);
            assert!(name.len() <= LABEL && name.ends_with(&format!(":65535 {node}")) && !name.contains('\n'), "{name}");
        }
        assert!(host(65535, node).split('.').next().is_some_and(|label| label.len() <= LABEL));
    }
}
