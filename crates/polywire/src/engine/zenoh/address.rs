//! Addresses of the engine: `MODE[/LOCATOR][?OPTIONS]`.

use std::net::{IpAddr, SocketAddr, TcpListener};

use zenoh::Config;

use super::{super::EngineOptions, key::Keys, pace::Express};

/// After so many messages without a pause, the next ones leave in batches.
const BURST: u32 = 16;
/// The most locators that an address may name.
const MOST: usize = 64;

/// What a session is in Zenoh's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Peer,
    Client,
    Router,
}

#[derive(Clone, Debug)]
pub(super) struct Address {
    mode: Mode,
    /// Where to connect to, and where to listen. The configuration decides if there is none.
    connect: Vec<String>,
    listen: Vec<String>,
    /// Zenoh's configuration file.
    config: Option<String>,
    is_scouting: Option<bool>,
    /// Which messages leave at once, not in a batch with others.
    pub(super) express: Express,
    pub(super) keys: Keys,
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
        let (listen, keys) = (Vec::new(), Keys::new("")?);
        let (config, is_scouting, express) = (None, None, Express::Until(BURST));
        let mut address = Address { mode, connect, listen, config, is_scouting, express, keys };
        settings.into_iter().flat_map(|all| all.split(',')).try_for_each(|setting| address.set(setting))?;
        match address.connect.len().max(address.listen.len()) > MOST {
            true => Err(format!("there are more than {MOST} locators")),
            false => Ok(address),
        }
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
            "prefix" => self.keys = Keys::new(value)?,
            "scouting" => self.is_scouting = Some(switch(value)?),
            _ => {
                let all = "config, connect, express, listen, prefix, scouting";
                return Err(format!("'{key}' is no option; there are {all}"));
            }
        }
        Ok(())
    }

    /// Replaces the port 0 of locators to listen at by one that is free, so that others can be
    /// told. Returns the address with these ports.
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
        self.mode != Mode::Client && self.config.is_none() && !(self.listen.iter().all(is_local) && self.is_closed())
    }

    /// Whether it listens only where the address says.
    fn is_closed(&self) -> bool {
        !self.listen.is_empty()
    }

    /// What to look at if no session can be opened.
    pub(super) fn advice(&self) -> &'static str {
        match self.mode {
            Mode::Client => "is a router there, and does the address name it? Without one, use 'zenoh/peer'",
            Mode::Peer | Mode::Router => "are the addresses to listen at those of this machine, and free?",
        }
    }

    pub(super) fn listens(&self) -> bool {
        !self.listen.is_empty()
    }

    /// Zenoh's configuration.
    pub(super) fn config(&self, options: &EngineOptions) -> Result<Config, String> {
        let mut config = match &self.config {
            None => Config::default(),
            Some(file) => Config::from_file(file).map_err(|error| format!("'{file}': {error}"))?,
        };
        let mode = match self.mode {
            Mode::Peer => "peer",
            Mode::Client => "client",
            Mode::Router => "router",
        };
        let mut set = |key: &str, value: String| {
            config.insert_json5(key, &value).map_err(|error| format!("Zenoh refuses {key} = {value}: {error}"))
        };
        set("mode", format!("\"{mode}\""))?;
        if !self.connect.is_empty() {
            set("connect/endpoints", list(&self.connect))?;
        }
        if !self.listen.is_empty() {
            set("listen/endpoints", list(&self.listen))?;
        }
        if let Some(is_scouting) = self.is_scouting {
            set("scouting/multicast/enabled", is_scouting.to_string())?;
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

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("'{value}' is neither 'on' nor 'off'")),
    }
}

fn list(locators: &[String]) -> String {
    let quoted: Vec<String> = locators.iter().map(|locator| format!("\"{locator}\"")).collect();
    format!("[{}]", quoted.join(","))
}

/// A TCP locator with port 0, with a free port instead.
fn with_port(locator: &str) -> Option<String> {
    let at: SocketAddr = locator.strip_prefix("tcp/")?.parse().ok().filter(|at: &SocketAddr| at.port() == 0)?;
    let free = TcpListener::bind(at).and_then(|listener| listener.local_addr()).ok()?;
    let host = match at.ip() {
        IpAddr::V4(host) => host.to_string(),
        IpAddr::V6(host) => format!("[{host}]"),
    };
    Some(format!("tcp/{host}:{}", free.port()))
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
        let text =
            "router?listen=tcp/127.0.0.1:1,listen=tcp/[::1]:2,connect=tcp/b:3,scouting=off,express=off,prefix=a/b";
        let all = Address::parse(text).expect("valid");
        assert_eq!((all.mode, all.listen.len(), &*all.connect[0]), (Mode::Router, 2, "tcp/b:3"));
        assert_eq!((all.is_scouting, all.express, all.is_exposed()), (Some(false), Express::Never, false));
        assert_eq!(all.keys.of("t").expect("a key").as_str(), "a/b/t");
        assert!(all.config(&EngineOptions::default()).is_ok());
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
        let many = format!("peer?{}", vec!["connect=tcp/a:1"; MOST + 1].join(","));
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
            ("peer?config=", "path of a configuration file"),
            (&many, "more than 64"),
        ] {
            let error = Address::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        let missing = Address::parse("peer?config=/nowhere.json5").expect("valid");
        assert!(missing.config(&EngineOptions::default()).is_err_and(|reason| reason.contains("/nowhere.json5")));
        let unknown = Address::parse("peer?listen=carrier/pigeon").expect("the form is right");
        assert!(unknown.config(&EngineOptions::default()).is_ok(), "opening it says so");
    }
}
