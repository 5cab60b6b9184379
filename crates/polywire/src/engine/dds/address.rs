//! Addresses of the engine `dds`: a domain, and options after a question mark, separated by `&`.

use std::{fs, net::IpAddr};

use super::{super::renewing::Place, name::Naming};

/// The highest domain number. Higher ones have no port numbers of their own.
const LAST_DOMAIN: u32 = 232;

/// The environment variable from which Cyclone takes its configuration if the address has none.
const ENVIRONMENT: &str = "CYCLONEDDS_URI";

/// Which interfaces Cyclone uses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Interfaces {
    /// The one that it finds.
    Found,
    /// The one of this name.
    Named(String),
    /// Those that a configuration chooses, or the one with an address.
    Configured,
}

/// A parsed address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) domain: u32,
    interfaces: Interfaces,
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
        let (interfaces, naming) = (Interfaces::Found, Naming::Plain);
        let mut address = Address { domain, interfaces, configuration: None, types, security, naming };
        let has_options = text.contains('?');
        for option in options.split('&').filter(|_| has_options) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            match key {
                "interface" | "config" if address.configuration.is_some() => {
                    return Err("interface and config exclude each other, and occur once".into());
                }
                "interface" => {
                    address.configuration = Some(on_interface(value)?);
                    address.interfaces = match value.parse::<IpAddr>() {
                        Ok(_) => Interfaces::Configured,
                        Err(_) => Interfaces::Named(value.into()),
                    };
                }
                "config" => {
                    let read = fs::read_to_string(value);
                    let read = read.map_err(|cause| format!("cannot read '{value}': {cause}"))?;
                    // Without `security=on`, nothing would end the participant when its certificate
                    // expires.
                    if ["<security", "<ddssecurity"].iter().any(|tag| read.to_ascii_lowercase().contains(tag)) {
                        return Err(format!("'{value}' is about security: that comes with security=on alone"));
                    }
                    (address.configuration, address.interfaces) = (Some(read), Interfaces::Configured);
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

    /// Returns which of these addresses, in the order of the system, Cyclone uses if the domain is
    /// opened now: the first one of the interface that is named, or else of all. None if a
    /// configuration chooses.
    pub(super) fn chosen(&self, usable: Vec<Place>) -> Vec<Place> {
        let is_it = |place: &Place| match &self.interfaces {
            Interfaces::Found => std::env::var_os(ENVIRONMENT).is_none_or(|configuration| configuration.is_empty()),
            Interfaces::Named(name) => place.interface == *name,
            Interfaces::Configured => false,
        };
        usable.into_iter().find(is_it).into_iter().collect()
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
    let by = if name.parse::<IpAddr>().is_ok() { "address" } else { "name" };
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
        let plain = |types, naming| {
            let (interfaces, security) = (Interfaces::Found, false);
            Ok(Address { domain: 7, interfaces, configuration: None, types, security, naming })
        };
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
    fn one_address_is_chosen_unless_a_configuration_does() {
        let place = |name: &str, last| Place::new(name, [10, 0, 0, last].into());
        let usable = [place("eth0", 1), place("wlan0", 2), place("wlan0", 3)];
        let chosen = |text| Address::parse(text).expect("valid").chosen(usable.to_vec());
        assert_eq!(chosen("0?interface=wlan0"), [place("wlan0", 2)]);
        assert!(chosen("0?interface=10.0.0.2").is_empty() && chosen("0?interface=eth7").is_empty());
        if std::env::var_os(ENVIRONMENT).is_none() {
            assert_eq!(chosen("0"), [place("eth0", 1)]);
        }
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
