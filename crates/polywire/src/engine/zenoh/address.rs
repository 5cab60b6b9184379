//! Addresses of the engine: `MODE[/LOCATOR][?OPTIONS]`.

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    path::Path,
};

use zenoh::Config;

use super::{
    super::{EngineOptions, identity::Files, renewing::Place},
    errors,
    key::Keys,
    pace::Express,
};

/// After this many messages without a pause, the next ones leave in batches.
const BURST: u32 = 16;
/// The most locators that an address may name.
const MAX_LOCATORS: usize = 64;
/// The prefix of locators whose connections need certificates.
const TLS: &str = "tls/";
/// The environment variable with the domain of ROS 2, and the largest domain.
const ROS_DOMAIN: &str = "ROS_DOMAIN_ID";
const LAST_DOMAIN: u32 = 232;

/// The role of a session in Zenoh's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Peer,
    Client,
    Router,
}

#[derive(Clone, Debug)]
pub(super) struct Address {
    mode: Mode,
    /// The locators to connect to, and those to listen at. Zenoh's configuration decides if there
    /// are none.
    connect: Vec<String>,
    listen: Vec<String>,
    /// Zenoh's configuration file.
    config: Option<String>,
    /// Whether other sessions are discovered by multicast, and through connected sessions.
    is_scouting: Option<bool>,
    is_gossiping: Option<bool>,
    /// Which messages leave at once, not in a batch with others.
    pub(super) express: Express,
    prefix: String,
    /// Whether topics in CDR are those of ROS 2, and in which domain.
    is_ros: bool,
    domain: Option<u32>,
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Address, String> {
        let (place, settings) = text.split_once('?').map_or((text, None), |(place, rest)| (place, Some(rest)));
        let (mode, target) = place.split_once('/').map_or((place, None), |(mode, target)| (mode, Some(target)));
        let mode = match mode {
            "peer" => Mode::Peer,
            "client" => Mode::Client,
            "router" => Mode::Router,
            _ => return Err(format!("'{mode}' is no mode; there are peer, client, router")),
        };
        let connect = target.map(locator).transpose()?.into_iter().collect();
        let mut address = Address {
            mode,
            connect,
            listen: Vec::new(),
            config: None,
            is_scouting: None,
            is_gossiping: None,
            express: Express::Until(BURST),
            prefix: String::new(),
            is_ros: false,
            domain: None,
        };
        settings.into_iter().flat_map(|all| all.split(',')).try_for_each(|setting| address.set(setting))?;
        if address.connect.len().max(address.listen.len()) > MAX_LOCATORS {
            return Err(format!("there are more than {MAX_LOCATORS} locators"));
        }
        if address.is_ros && !address.prefix.is_empty() || !address.is_ros && address.domain.is_some() {
            return Err("'domain' is for 'ros=true' alone, and 'prefix' is not for it".into());
        }
        let plain = address.locators().find(|locator| !locator.starts_with(TLS)).filter(|_| address.is_tls());
        match plain.map(|plain| format!("'{plain}' has no TLS, which all locators have, or none")) {
            Some(reason) => Err(reason),
            None => Ok(address),
        }
    }

    /// The keys of topics and nodes.
    pub(super) fn keys(&self) -> Result<Keys, String> {
        if !self.is_ros {
            return Keys::new(&self.prefix);
        }
        let given = || std::env::var(ROS_DOMAIN).ok().filter(|text| !text.is_empty());
        let given = || given().map(|text| domain(&text).map_err(|reason| format!("{ROS_DOMAIN}: {reason}")));
        Ok(Keys::of_ros(self.domain.map(Ok).or_else(given).transpose()?.unwrap_or(0)))
    }

    fn locators(&self) -> impl Iterator<Item = &String> {
        self.connect.iter().chain(&self.listen)
    }

    /// Whether the node and its peers authenticate each other by certificates.
    pub(super) fn is_tls(&self) -> bool {
        self.locators().any(|locator| locator.starts_with(TLS))
    }

    /// Whether the session needs the node's identity files. A configuration file names its own
    /// files.
    pub(super) fn needs_identity(&self) -> bool {
        self.is_tls() && self.config.is_none()
    }

    fn set(&mut self, setting: &str) -> Result<(), String> {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        match key {
            "connect" => self.connect.push(locator(value)?),
            "listen" => self.listen.push(locator(value)?),
            "config" if value.is_empty() => return Err("'config' is the path of a configuration file of Zenoh".into()),
            "config" => self.config = Some(value.into()),
            "express" => self.express = if switch(value)? { Express::Always } else { Express::Never },
            "prefix" if value.is_empty() => return Err("'prefix' is a key, as in 'prefix=plant/3'".into()),
            "prefix" => {
                Keys::new(value)?;
                self.prefix = value.into();
            }
            "domain" => self.domain = Some(domain(value)?),
            "ros" if value == "true" || value == "false" => self.is_ros = value == "true",
            "ros" => return Err(format!("'ros' is true or false, not '{value}'")),
            "gossip" => self.is_gossiping = Some(switch(value)?),
            "scouting" => self.is_scouting = Some(switch(value)?),
            _ => {
                let all = "config, connect, domain, express, gossip, listen, prefix, ros, scouting";
                return Err(format!("'{key}' is no option; there are {all}"));
            }
        }
        Ok(())
    }

    /// Replaces port 0 of the locators to listen at by a free port, so that others can be informed
    /// of it. Returns the address with the chosen ports.
    pub(super) fn choose_ports(&mut self, text: &str) -> String {
        let mut told = text.to_owned();
        for locator in &mut self.listen {
            if let Some(chosen) = with_port(locator) {
                told = told.replacen(&format!("listen={locator}"), &format!("listen={chosen}"), 1);
                *locator = chosen;
            }
        }
        told
    }

    /// Whether this node listens where other machines reach it, and everybody may connect.
    pub(super) fn is_exposed(&self) -> bool {
        let is_local = |locator: &String| {
            let host = locator.split_once('/').map(|(_, at)| at).and_then(|at| at.parse::<SocketAddr>().ok());
            locator.starts_with("unixsock") || host.is_some_and(|at| at.ip().is_loopback())
        };
        let is_closed = self.listens() && self.listen.iter().all(is_local);
        self.mode != Mode::Client && self.config.is_none() && !self.is_tls() && !is_closed
    }

    /// What the user can check if no session can be opened.
    pub(super) fn advice(&self) -> &'static str {
        match self.mode {
            Mode::Client => "is a router there, and does the address name it? Without one, use 'zenoh/peer'",
            Mode::Peer | Mode::Router => "are the addresses to listen at those of this machine, and free?",
        }
    }

    pub(super) fn listens(&self) -> bool {
        !self.listen.is_empty()
    }

    /// Whether the session and others find each other by scouting alone, over the addresses that
    /// Zenoh chooses. A router has a place of its own, which others are told.
    pub(super) fn scouts_alone(&self) -> bool {
        let has_no_place = self.config.is_none() && self.mode != Mode::Router && self.locators().next().is_none();
        has_no_place && self.is_scouting != Some(false)
    }

    /// Zenoh's configuration, with the files of the node's identity if it needs them. With
    /// `places`, the session scouts and listens at these addresses alone. It must be told them if
    /// they have changed since the process opened its first session: Zenoh asks the system for
    /// interfaces only once.
    pub(super) fn config(
        &self,
        options: &EngineOptions,
        identity: Option<&Files>,
        places: Option<&[Place]>,
    ) -> Result<Config, String> {
        let mut config = match &self.config {
            None => Config::default(),
            Some(file) => Config::from_file(file).map_err(|error| format!("'{file}': {}", errors::text(error)))?,
        };
        let mode = match self.mode {
            Mode::Peer => "peer",
            Mode::Client => "client",
            Mode::Router => "router",
        };
        let mut set = |key: &str, value: String| {
            let refused = |error| format!("Zenoh refuses {key} = {value}: {}", errors::text(error));
            config.insert_json5(key, &value).map_err(refused)
        };
        set("mode", format!("\"{mode}\""))?;
        if !self.connect.is_empty() {
            set("connect/endpoints", list(&self.connect))?;
        }
        if !self.listen.is_empty() {
            set("listen/endpoints", list(&self.listen))?;
        }
        for (way, is_on) in [("multicast", self.is_scouting), ("gossip", self.is_gossiping)] {
            if let Some(is_on) = is_on {
                set(&format!("scouting/{way}/enabled"), is_on.to_string())?;
            }
        }
        if let Some(places) = places {
            let firsts =
                places.chunk_by(|a, b| a.interface == b.interface).filter_map(|of_interface| of_interface.first());
            let interfaces: Vec<String> = firsts.map(|place| place.address.to_string()).collect();
            set("scouting/multicast/interface", format!("\"{}\"", interfaces.join(",")))?;
            let listen: Vec<String> = places.iter().map(|place| format!("tcp/{}:0", place.address)).collect();
            if self.mode == Mode::Peer {
                set("listen/endpoints", list(&listen))?;
            }
        }
        if let Some(Files { certificate, key, authority }) = identity {
            let [certificate, key, authority] = [quoted(certificate)?, quoted(key)?, quoted(authority)?];
            for (setting, value) in [
                ("root_ca_certificate", &*authority),
                ("listen_certificate", &*certificate),
                ("listen_private_key", &*key),
                ("connect_certificate", &*certificate),
                ("connect_private_key", &*key),
                ("enable_mtls", "true"),
                ("close_link_on_expiration", "true"),
            ] {
                set(&format!("transport/link/tls/{setting}"), value.into())?;
            }
            // Otherwise the session could connect to discovered applications, or accept their
            // connections, without TLS.
            set("transport/link/protocols", "[\"tls\"]".into())?;
            if self.listen.is_empty() {
                set("listen/endpoints", "[]".into())?;
            }
        }
        if self.config.is_none() {
            let [first, longest] = [options.reconnect_min, options.reconnect_max].map(|pause| pause.as_millis().max(1));
            let retry = format!("{{period_init_ms: {first}, period_max_ms: {longest}, period_increase_factor: 2}}");
            set("connect/retry", retry)?;
            set("transport/unicast/max_sessions", options.peers.max(1).to_string())?;
            if self.mode == Mode::Client {
                set("connect/timeout_ms", options.connect_timeout.as_millis().to_string())?;
            }
        }
        Ok(config)
    }
}

/// A locator of Zenoh, as `tcp/127.0.0.1:7447`.
fn locator(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\');
    match text.split_once('/') {
        Some((protocol, at)) if !protocol.is_empty() && !at.is_empty() && is_plain => Ok(text.into()),
        _ => Err(format!("'{text}' is no locator, as tcp/127.0.0.1:7447 is")),
    }
}

/// A domain of ROS 2.
fn domain(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number <= LAST_DOMAIN);
    number.ok_or_else(|| format!("'{text}' is no domain, which is a number from 0 to {LAST_DOMAIN}"))
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("'{value}' is neither 'on' nor 'off'")),
    }
}

/// A path as a string in JSON.
fn quoted(path: &Path) -> Result<String, String> {
    let text = path.to_str().filter(|text| !text.contains(char::is_control));
    let text = text.ok_or_else(|| format!("Zenoh cannot read a file of this name: {}", path.display()))?;
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

fn list(locators: &[String]) -> String {
    let quoted: Vec<String> = locators.iter().map(|locator| format!("\"{locator}\"")).collect();
    format!("[{}]", quoted.join(","))
}

/// Returns a locator of TCP or TLS with a free port instead of port 0. `None` for others.
fn with_port(locator: &str) -> Option<String> {
    let (protocol, at) = locator.split_once('/').filter(|(protocol, _)| matches!(*protocol, "tcp" | "tls"))?;
    let at: SocketAddr = at.parse().ok().filter(|at: &SocketAddr| at.port() == 0)?;
    let free = TcpListener::bind(at).and_then(|listener| listener.local_addr()).ok()?;
    let host = match at.ip() {
        IpAddr::V4(host) => host.to_string(),
        IpAddr::V6(host) => format!("[{host}]"),
    };
    Some(format!("{protocol}/{host}:{}", free.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_what_to_be_and_whom_to_meet() {
        let plain = Address::parse("peer").expect("valid");
        assert_eq!((plain.mode, plain.connect.len(), plain.is_exposed()), (Mode::Peer, 0, true));
        assert_eq!(plain.express, Express::Until(BURST));
        let client = Address::parse("client/tcp/10.0.0.7:7447").expect("valid");
        assert_eq!((client.mode, &*client.connect), (Mode::Client, &["tcp/10.0.0.7:7447".to_owned()][..]));
        let text = "router?listen=tcp/127.0.0.1:1,listen=tcp/[::1]:2,connect=tcp/b:3,scouting=off,gossip=off,express=off,prefix=a/b";
        let all = Address::parse(text).expect("valid");
        assert_eq!((all.mode, all.listen.len(), &*all.connect[0]), (Mode::Router, 2, "tcp/b:3"));
        assert_eq!((all.is_scouting, all.express, all.is_exposed()), (Some(false), Express::Never, false));
        assert_eq!(all.keys().expect("keys").of("t").expect("a key").as_str(), "a/b/t");
        let config = all.config(&EngineOptions::default(), None, None).expect("valid");
        assert_eq!(config.get_json("scouting/gossip/enabled").expect("a setting"), "false");
        let ros = Address::parse("peer?ros=true,domain=7").expect("valid").keys().expect("keys");
        assert_eq!(ros.of("a/chatter").expect("a key").as_str(), "7/a/chatter/*/*");
    }

    #[test]
    fn sessions_that_scout_alone_are_opened_anew_at_given_addresses() {
        let scouts_alone = |text| Address::parse(text).expect("valid").scouts_alone();
        let scouting = ["peer", "client", "peer?scouting=on,gossip=off", "peer?ros=true"];
        let others = [
            "router",
            "client/tcp/10.0.0.7:7447",
            "peer?scouting=off",
            "peer?connect=tcp/a:1",
            "peer?listen=tcp/127.0.0.1:1",
            "peer?config=own.json5",
        ];
        assert_eq!((scouting.map(scouts_alone), others.map(scouts_alone)), ([true; 4], [false; 6]));
        let places = [("eth0", 1), ("eth0", 2), ("wlan0", 3)];
        let places = places.map(|(interface, last)| Place::new(interface, [10, 0, 0, last].into()));
        let setting = |text, key| {
            let config = Address::parse(text).expect("valid").config(&EngineOptions::default(), None, Some(&places));
            config.expect("valid").get_json(key).expect("a setting")
        };
        assert_eq!(setting("peer", "scouting/multicast/interface"), "\"10.0.0.1,10.0.0.3\"");
        let listen = ["1", "2", "3"].map(|last| format!("\"tcp/10.0.0.{last}:0\"")).join(",");
        assert_eq!(setting("peer", "listen/endpoints"), format!("[{listen}]"));
        assert!(!setting("client", "listen/endpoints").contains("10.0.0.1"));
    }

    #[test]
    fn certificates_are_for_all_locators_or_none() {
        let [plain, tls] = ["client/tcp/a:1", "peer/tls/a:1?listen=tls/127.0.0.1:0"].map(Address::parse);
        let (plain, tls) = (plain.expect("valid"), tls.expect("valid"));
        assert_eq!((plain.needs_identity(), tls.needs_identity(), tls.is_exposed()), (false, true, false));
        let file = |name: &str| name.into();
        let files = Files { certificate: file("a \"b\".pem"), key: file("c\\d"), authority: file("größe") };
        let config = tls.config(&EngineOptions::default(), Some(&files), None).expect("valid");
        let told = |key: &str| config.get_json(key).expect("a setting");
        assert_eq!(told("transport/link/tls/connect_certificate"), r#""a \"b\".pem""#);
        assert_eq!(told("transport/link/tls/listen_private_key"), r#""c\\d""#);
        assert_eq!(told("transport/link/protocols"), r#"["tls"]"#);
        let closed = Address::parse("peer/tls/a:1").expect("valid");
        let config = closed.config(&EngineOptions::default(), Some(&files), None).expect("valid");
        assert!(!config.get_json("listen/endpoints").expect("a setting").contains("tcp"));
        for mixed in ["peer/tls/a:1?listen=tcp/127.0.0.1:0", "peer?connect=udp/a:1,connect=tls/a:2"] {
            assert!(Address::parse(mixed).is_err_and(|error| error.contains("has no TLS")), "{mixed}");
        }
        let own = Address::parse("peer/tls/a:1?config=own.json5").expect("valid");
        assert!(own.is_tls() && !own.needs_identity());
    }

    #[test]
    fn ports_are_chosen_and_told() {
        let text = "peer?listen=tcp/127.0.0.1:0,scouting=off";
        let mut address = Address::parse(text).expect("valid");
        let told = address.choose_ports(text);
        assert!(told.starts_with("peer?listen=tcp/127.0.0.1:") && told.ends_with(",scouting=off"), "{told}");
        assert!(!told.contains(":0,") && told.contains(&address.listen[0]), "{told}");
        assert_eq!(address.choose_ports(&told), told);
    }

    #[test]
    fn mistakes_are_named() {
        let many = format!("peer?{}", vec!["connect=tcp/a:1"; MAX_LOCATORS + 1].join(","));
        for (text, part) in [
            ("", "is no mode"),
            ("node", "'node' is no mode"),
            ("client/10.0.0.7:7447", "is no locator"),
            ("client/tcp/", "is no locator"),
            ("peer?listen=\"", "is no locator"),
            ("peer?speed=9", "'speed' is no option"),
            ("peer?express=yes", "neither 'on' nor 'off'"),
            ("peer?prefix=a/**", "wildcards"),
            ("peer?prefix=", "'prefix' is a key"),
            ("peer?ros=yes", "'ros' is true or false"),
            ("peer?ros=true,domain=233", "from 0 to 232"),
            ("peer?ros=true,prefix=a", "'prefix' is not for it"),
            ("peer?domain=1", "'domain' is for 'ros=true' alone"),
            ("peer?config=", "path of a configuration file"),
            (&many, "more than 64"),
        ] {
            let error = Address::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        let missing = Address::parse("peer?config=/nowhere.json5").expect("valid");
        assert!(
            missing
                .config(&EngineOptions::default(), None, None)
                .is_err_and(|reason| reason.contains("/nowhere.json5"))
        );
        let unknown = Address::parse("peer?listen=carrier/pigeon").expect("the form is right");
        assert!(unknown.config(&EngineOptions::default(), None, None).is_ok(), "opening it says so");
    }
}
