//! Addresses of the engine `dds`: a domain, and options after a question mark, separated by `&`.

use std::fs;

use super::name::Naming;

/// The highest domain number. Higher ones have no port numbers of their own.
const LAST_DOMAIN: u32 = 232;

/// A parsed address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) domain: u32,
    /// Cyclone's configuration as XML; `None` for the one in the environment.
    pub(super) configuration: Option<String>,
    /// Whether types are sent to other programs, and read from them.
    pub(super) types: bool,
    /// Whether the participant uses DDS Security, with the node's identity.
    pub(super) security: bool,
    /// How topics and types are named.
    pub(super) naming: Naming,
}

impl Address {
    /// Reads `DOMAIN` or `DOMAIN?OPTION&OPTION..` with the options `interface=NAME`,
    /// `config=FILE`, `types=on` or `off`, `security=on` or `off`, and `ros=true` or `false`, or
    /// `rpc=true` or `false`.
    pub(super) fn parse(text: &str) -> Result<Address, String> {
        let (domain, options) = text.split_once('?').unwrap_or((text, ""));
        let domain = domain.parse().ok().filter(|domain| *domain <= LAST_DOMAIN);
        let domain = domain.ok_or(format!("a domain is a number from 0 to {LAST_DOMAIN}"))?;
        let (types, security) = (true, false);
        let mut address = Address { domain, configuration: None, types, security, naming: Naming::Plain };
        let has_options = text.contains('?');
        for option in options.split('&').filter(|_| has_options) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            match key {
                "interface" | "config" if address.configuration.is_some() => {
                    return Err("interface and config exclude each other, and occur once".into());
                }
                "interface" => address.configuration = Some(on_interface(value)?),
                "config" => {
                    let read = fs::read_to_string(value);
                    let read = read.map_err(|cause| format!("cannot read '{value}': {cause}"))?;
                    // Without `security=on`, nothing would end the participant when its certificate
                    // expires.
                    if ["<security", "<ddssecurity"].iter().any(|tag| read.to_ascii_lowercase().contains(tag)) {
                        return Err(format!("'{value}' is about security: that comes with security=on alone"));
                    }
                    address.configuration = Some(read);
                }
                "types" => address.types = is_on(key, value)?,
                "security" => address.security = is_on(key, value)?,
                "ros" | "rpc" if !is_on(key, value)? => {}
                "ros" | "rpc" if address.naming != Naming::Plain => {
                    return Err("ros and rpc exclude each other, and occur once".into());
                }
                "ros" => address.naming = Naming::Ros,
                "rpc" => address.naming = Naming::Rpc,
                _ => {
                    let there_are = "interface, config, types, security, ros and rpc";
                    return Err(format!("'{key}' is no option; there are {there_are}"));
                }
            }
        }
        match address.security && !cfg!(feature = "dds-security") {
            true => Err("this program was built without DDS Security: build it with the feature 'dds-security'".into()),
            false => Ok(address),
        }
    }
}

fn is_on(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(format!("{key} is on or off, not '{value}'")),
    }
}

/// Returns a configuration that uses only one interface, given by its address or its name.
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
        let plain = |types, naming| Ok(Address { domain: 7, configuration: None, types, security: false, naming });
        assert_eq!(Address::parse("7"), plain(true, Naming::Plain));
        let on = |text| Address::parse(text).map(|address| address.configuration.expect("a configuration"));
        assert!(on("0?interface=127.0.0.1").is_ok_and(|xml| xml.contains("address=\"127.0.0.1\"")));
        assert_eq!(Address::parse("7?types=off"), plain(false, Naming::Plain));
        assert_eq!(Address::parse("7?ros=true"), plain(true, Naming::Ros));
        assert_eq!(Address::parse("7?rpc=true&ros=false"), plain(true, Naming::Rpc));
        assert_eq!(Address::parse("7?ros=off&types=false"), plain(false, Naming::Plain));
        assert!(Address::parse("0?interface=eth0&types=off").is_ok_and(|address| !address.types));
        assert_eq!(Address::parse("7?security=off"), plain(true, Naming::Plain));
        match Address::parse("7?security=on") {
            Ok(address) => assert!(address.security && cfg!(feature = "dds-security")),
            Err(error) => assert!(error.contains("with the feature 'dds-security'") && !cfg!(feature = "dds-security")),
        }
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
            ("0?", "'' is no option"),
            ("0?types=maybe", "types is on or off"),
            ("0?security=/etc", "security is on or off"),
            ("0?ros=", "ros is on or off"),
            ("0?rpc=1", "rpc is on or off"),
            ("0?ros=true&rpc=true", "ros and rpc exclude each other"),
            ("0?interface=eth0&config=x", "exclude each other"),
        ] {
            let error = Address::parse(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
