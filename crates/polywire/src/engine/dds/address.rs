//! Addresses of the engine `dds`: a domain, and the options behind the question mark.

use std::fs;

/// The largest number of a domain. Larger ones have no port numbers of their own.
const LAST_DOMAIN: u32 = 232;

/// What an address says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) domain: u32,
    /// Cyclone's configuration as XML; `None` for that of the environment.
    pub(super) configuration: Option<String>,
}

impl Address {
    /// Reads `DOMAIN`, `DOMAIN?interface=NAME` or `DOMAIN?config=FILE`.
    pub(super) fn parse(text: &str) -> Result<Address, String> {
        let (domain, options) = text.split_once('?').map_or((text, None), |(domain, rest)| (domain, Some(rest)));
        let domain = domain.parse().ok().filter(|domain| *domain <= LAST_DOMAIN);
        let domain = domain.ok_or(format!("a domain is a number from 0 to {LAST_DOMAIN}"))?;
        let configuration = match options.map(|option| option.split_once('=').unwrap_or((option, ""))) {
            None => None,
            Some(("interface", name)) => Some(on_interface(name)?),
            Some(("config", file)) => {
                Some(fs::read_to_string(file).map_err(|cause| format!("cannot read '{file}': {cause}"))?)
            }
            Some((key, _)) => return Err(format!("'{key}' is no option; there are interface and config")),
        };
        Ok(Address { domain, configuration })
    }
}

/// The configuration that uses an interface alone, by its address or its name.
fn on_interface(name: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".:-_%".contains(c);
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(format!("'{name}' is no interface: name it, or give its address"));
    }
    let by = if name.parse::<std::net::IpAddr>().is_ok() { "address" } else { "name" };
    Ok(format!(
        "<CycloneDDS><Domain><General><Interfaces><NetworkInterface {by}=\"{name}\"/></Interfaces></General></Domain>\
         </CycloneDDS>"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_domain_with_an_option() {
        assert_eq!(Address::parse("7"), Ok(Address { domain: 7, configuration: None }));
        let on = |text| Address::parse(text).map(|address| address.configuration.expect("a configuration"));
        assert!(on("0?interface=127.0.0.1").is_ok_and(|xml| xml.contains("address=\"127.0.0.1\"")));
        assert!(on("0?interface=eth0").is_ok_and(|xml| xml.contains("name=\"eth0\"")));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, reason) in [
            ("", "a domain is a number"),
            ("233", "a domain is a number"),
            ("x", "a domain is a number"),
            ("0?interface=", "is no interface"),
            ("0?interface=\"/>", "is no interface"),
            ("0?config=/nowhere/at/all", "cannot read '/nowhere/at/all'"),
            ("0?speed=9", "'speed' is no option"),
        ] {
            let error = Address::parse(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
