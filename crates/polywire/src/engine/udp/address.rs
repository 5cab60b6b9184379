//! Addresses of the UDP engines, and the options behind the question mark.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    num::NonZeroU64,
    str::FromStr,
    time::Duration,
};

use polywire_core::multicast::Config;

use super::{
    super::{EngineOptions, Overflow},
    name::Name,
};

/// A parsed address `HOST:PORT?OPTIONS`: where to send, and how.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) cast: Cast,
    /// The addresses to which the host name resolves.
    pub(super) to: Vec<SocketAddr>,
    /// The host name and the port. `None` if the host is given by its IP address.
    pub(super) name: Option<Name>,
    pub(super) interface: Option<Interface>,
    /// Hops that packets may take. `None` for the system's choice.
    pub(super) ttl: Option<u32>,
    /// Whether members on the same host receive each other's packets.
    pub(super) is_looped: bool,
    pub(super) config: Config,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cast {
    Unicast,
    Broadcast,
    Multicast,
}

/// A network interface, by its IPv4 address or its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Interface {
    Address(Ipv4Addr),
    Name(String),
}

impl Address {
    pub(super) fn parse(text: &str, options: &EngineOptions) -> Result<Address, String> {
        let (place, settings) = text.split_once('?').map_or((text, None), |(place, rest)| (place, Some(rest)));
        let (to, name) = resolve(place)?;
        let mut address = Address {
            cast: Cast::Unicast,
            to,
            name,
            interface: None,
            ttl: None,
            is_looped: true,
            config: config(options),
        };
        let first = address.to.first().map(SocketAddr::ip);
        if first.is_some_and(|ip| ip.is_multicast()) {
            address.cast = Cast::Multicast;
        } else if first == Some(IpAddr::V4(Ipv4Addr::BROADCAST)) {
            address.cast = Cast::Broadcast;
        }
        for setting in settings.into_iter().flat_map(|all| all.split(',')) {
            address.set(setting)?;
        }
        address.config.is_pair = address.cast == Cast::Unicast;
        address.check()
    }

    fn set(&mut self, setting: &str) -> Result<(), String> {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        let config = &mut self.config;
        match key {
            "broadcast" if value.is_empty() => self.cast = Cast::Broadcast,
            "interface" => {
                let by_name = |_| Interface::Name(value.to_owned());
                self.interface = Some(value.parse().map_or_else(by_name, Interface::Address));
            }
            "ttl" => self.ttl = Some(number(value, 0..=255)? as u32),
            "loop" => self.is_looped = switch(value)?,
            "packet" => config.packet_bytes = number(value, 256..=65_000)?,
            "batch" => config.batch_bytes = number(value, 1..=65_000)?,
            "batch-interval" => config.batch_interval = time(value)?,
            "rate" => config.rate_limit = rate(value)?,
            "rate-interval" => config.rate_interval = time(value)?,
            "buffer" => config.retransmission_buffer = number(value, 1 << 12..=1 << 32)?,
            "window" => config.window = number(value, 4..=1 << 20)?,
            "nak" => config.first_nak_delay = time(value)?,
            "next-nak" => config.next_nak_delay = time(value)?,
            "burst" => config.largest_burst_lost = number(value, 1..=1 << 20)?,
            "heartbeat" => config.heartbeat = time(value)?,
            "lease" => config.lease = time(value)?,
            "patience" => config.patience = time(value)?,
            _ => return Err(format!("'{key}' is no option; there are {OPTIONS}")),
        }
        Ok(())
    }

    fn check(self) -> Result<Address, String> {
        let Address { cast, to, config, .. } = &self;
        match cast {
            Cast::Broadcast if !to.iter().all(SocketAddr::is_ipv4) => Err("only IPv4 has broadcast addresses".into()),
            Cast::Broadcast if to.iter().any(|to| to.ip().is_multicast()) => {
                Err("a multicast group is no broadcast address: leave 'broadcast' out".into())
            }
            Cast::Multicast | Cast::Broadcast if to.iter().any(|to| to.port() == 0) => {
                Err("a group needs a port number".into())
            }
            _ if config.next_nak_delay.is_zero() => Err("'next-nak' must not be 0".into()),
            _ if config.lease < config.heartbeat * 2 => Err("'lease' must be at least two heartbeats".into()),
            _ => Ok(self),
        }
    }
}

const OPTIONS: &str = "interface, ttl, loop, broadcast, packet, batch, batch-interval, rate, rate-interval, buffer, \
     window, nak, next-nak, burst, heartbeat, lease, patience";

/// Returns the protocol's configuration for the options of the port.
fn config(options: &EngineOptions) -> Config {
    let mut config = Config {
        batch_interval: options.gather,
        batch_after: options.burst,
        peers: options.peers,
        record_bytes: options.limits.frame_bytes,
        ..Config::default()
    };
    if let Overflow::Block { patience } = options.overflow {
        config.patience = patience;
    }
    config
}

/// Returns the addresses of a place, and its host name and port if it has a name.
fn resolve(place: &str) -> Result<(Vec<SocketAddr>, Option<Name>), String> {
    let (host, port) = place.rsplit_once(':').ok_or("there is no port")?;
    let port: u16 = port.parse().map_err(|_| format!("'{port}' is no port number"))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare.contains(':') && bare == host {
        return Err("an IPv6 address stands in brackets".into());
    }
    if matches!(host, "" | "*") {
        return Ok((vec![SocketAddr::from(([0; 4], port))], None));
    }
    let found = (bare, port).to_socket_addrs().map_err(|e| format!("'{bare}' cannot be resolved: {e}"))?;
    let name = bare.parse::<IpAddr>().is_err().then(|| (bare.to_owned(), port));
    Ok((found.collect(), name))
}

fn number(value: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize, String> {
    let number = value.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("'{value}' is no number from {} to {}", range.start(), range.end()))
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("'{value}' is neither 'on' nor 'off'")),
    }
}

/// Splits a text into a number and its unit.
fn quantity<T: FromStr>(value: &str) -> Option<(T, &str)> {
    let unit = value.find(|c: char| !c.is_ascii_digit())?;
    Some((value.get(..unit)?.parse().ok()?, value.get(unit..)?))
}

fn time(value: &str) -> Result<Duration, String> {
    let time = match quantity::<u32>(value) {
        Some((number, "us")) => Some(Duration::from_micros(number.into())),
        Some((number, "ms")) => Some(Duration::from_millis(number.into())),
        Some((number, "s")) => Some(Duration::from_secs(number.into())),
        _ => None,
    };
    time.ok_or_else(|| format!("'{value}' is no time, such as 50us, 2ms or 10s"))
}

fn rate(value: &str) -> Result<Option<NonZeroU64>, String> {
    let bits = match quantity::<u64>(value) {
        _ if value == "none" => return Ok(None),
        Some((number, "kbit")) => number.checked_mul(1_000),
        Some((number, "mbit")) => number.checked_mul(1_000_000),
        Some((number, "gbit")) => number.checked_mul(1_000_000_000),
        _ => None,
    };
    let rate = bits.and_then(NonZeroU64::new);
    rate.map(Some).ok_or_else(|| format!("'{value}' is no rate, such as 500kbit, 100mbit, 1gbit or none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, String> {
        Address::parse(text, &EngineOptions::default())
    }

    #[test]
    fn the_address_says_how_it_is_sent() {
        for (text, cast, pair) in [
            ("127.0.0.1:7400", Cast::Unicast, true),
            ("[::1]:0", Cast::Unicast, true),
            ("239.1.2.3:7400", Cast::Multicast, false),
            ("[ff02::1]:7400", Cast::Multicast, false),
            ("255.255.255.255:7400", Cast::Broadcast, false),
            ("127.255.255.255:7400?broadcast", Cast::Broadcast, false),
        ] {
            let address = parse(text).expect(text);
            assert_eq!((address.cast, address.config.is_pair), (cast, pair), "{text}");
        }
    }

    #[test]
    fn options_have_the_surveys_names() {
        let text = "239.1.2.3:7400?interface=127.0.0.1,ttl=4,loop=off,packet=9000,batch=2000,batch-interval=1ms,\
                    rate=100mbit,rate-interval=5ms,buffer=8192,window=100,nak=10ms,next-nak=1s,burst=50,lease=5s,\
                    patience=3s,heartbeat=500ms";
        let address = parse(text).expect("valid");
        assert_eq!(address.interface, Some(Interface::Address(Ipv4Addr::LOCALHOST)));
        assert_eq!((address.ttl, address.is_looped), (Some(4), false));
        let Config { packet_bytes, batch_bytes, rate_limit, window, next_nak_delay, lease, .. } = address.config;
        assert_eq!((packet_bytes, batch_bytes, window), (9000, 2000, 100));
        assert_eq!(rate_limit, NonZeroU64::new(100_000_000));
        assert_eq!((next_nak_delay, lease), (Duration::from_secs(1), Duration::from_secs(5)));
        assert_eq!(parse("239.1.2.3:1?rate=none").expect("valid").config.rate_limit, None);
        let named = parse("[ff02::1]:1?interface=eth0").expect("valid").interface;
        assert_eq!(named, Some(Interface::Name("eth0".into())));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("239.1.2.3", "no port"),
            ("239.1.2.3:x", "no port number"),
            ("239.1.2.3:0", "a group needs a port number"),
            ("::1:7400", "brackets"),
            ("[::1]:7400?broadcast", "only IPv4"),
            ("239.1.2.3:7400?broadcast", "leave 'broadcast' out"),
            ("239.1.2.3:1?speed=9", "'speed' is no option"),
            ("239.1.2.3:1?ttl=256", "no number from 0 to 255"),
            ("239.1.2.3:1?nak=5", "is no time"),
            ("239.1.2.3:1?next-nak=0ms", "must not be 0"),
            ("239.1.2.3:1?rate=0gbit", "is no rate"),
            ("239.1.2.3:1?lease=1s", "two heartbeats"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
