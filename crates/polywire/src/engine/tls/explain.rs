//! Texts that tell the operator of a node why a handshake failed, and what to do about it.

use rustls::{AlertDescription, CertificateError, Error, pki_types::UnixTime};

/// Explains an error of TLS.
pub(super) fn failure(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(cause) => certificate("the peer's certificate", cause),
        Error::AlertReceived(alert) => alerted(*alert),
        Error::NoCertificatesPresented => {
            "the peer has no certificate: give it one ('polywire identity sign'), and name its files in its \
             section [identity]"
                .into()
        }
        Error::InvalidMessage(_) => "the peer does not speak TLS: does it use tcp/ instead of tls/?".into(),
        Error::PeerIncompatible(_) => "the peer does not speak TLS 1.3 as Polywire does".into(),
        Error::NoApplicationProtocol => NO_NODE.into(),
        other => format!("TLS failed: {other}"),
    }
}

const NO_NODE: &str = "the peer speaks TLS, but is no node of Polywire";

/// Explains what is wrong with a certificate, and what to do.
pub(super) fn certificate(whose: &str, error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::ExpiredContext { time, not_after } => format!(
            "{whose} expired at {}, and the clock here says {}: sign a new one ('polywire identity sign --renew'), or \
             set the clock",
            moment(*not_after),
            moment(*time)
        ),
        E::NotValidYetContext { time, not_before } => format!(
            "{whose} is valid from {} on, and the clock here says {}: set the clock",
            moment(*not_before),
            moment(*time)
        ),
        E::UnknownIssuer | E::BadSignature => format!(
            "{whose} was signed by no authority that is known here: give all nodes the certificate of the same \
             authority"
        ),
        E::NotValidForNameContext { expected, presented } => format!(
            "{whose} is not for {}, but for {}: connect to one of these names, or sign it with --host {}",
            expected.to_str(),
            presented.iter().map(|name| name_in(name)).collect::<Vec<_>>().join(", "),
            expected.to_str()
        ),
        E::InvalidPurposeContext { .. } | E::InvalidPurpose => {
            format!("{whose} was not made for both sides of a connection: sign it with 'polywire identity sign'")
        }
        other => format!("{whose} is not valid: {other}"),
    }
}

/// Explains an alert that the peer has sent.
fn alerted(alert: AlertDescription) -> String {
    use AlertDescription as A;
    match alert {
        A::CertificateExpired => "the peer says that this node's certificate has expired, or is not valid yet: sign a \
                                  new one ('polywire identity sign'), or set the peer's clock"
            .into(),
        A::UnknownCA | A::DecryptError => "the peer does not know the authority that signed this node's certificate: \
                                           give both the certificate of the same authority"
            .into(),
        A::BadCertificate | A::CertificateUnknown | A::UnsupportedCertificate => {
            "the peer refuses this node's certificate: its log says why".into()
        }
        A::NoApplicationProtocol => NO_NODE.into(),
        A::ProtocolVersion | A::HandshakeFailure => "the peer does not speak TLS 1.3 as Polywire does".into(),
        other => format!("the peer broke TLS off: {other:?}"),
    }
}

/// Returns the name in `DnsName("a")` or `IpAddress(1.2.3.4)`, as the library writes names.
fn name_in(presented: &str) -> &str {
    let inner = presented.split_once('(').map_or(presented, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"')
}

/// Formats a moment in UTC, to the second: `2026-11-23T09:05:00Z`.
fn moment(time: UnixTime) -> String {
    let (days, second) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Returns year, month and day of the date `days` days after 1970-01-01. Counts years from March
/// on, so that the leap day is the last day of its year, within eras of 400 years.
fn date(days: u64) -> (u64, u64, u64) {
    /// Days from 0000-03-01 to 1970-01-01.
    const TO_1970: u64 = 719_468;
    /// Days in an era.
    const ERA: u64 = 146_097;
    let days = days + TO_1970;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, of_month)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moments_are_written_as_people_read_them() {
        let at = |seconds| moment(UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
        // By `date --utc --date=@..`.
        let known = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_795_424_700, "2026-11-23T09:05:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in known {
            assert_eq!(at(seconds), text);
        }
    }

    #[test]
    fn names_are_told_without_the_notation_of_the_library() {
        assert_eq!(
            [name_in("DnsName(\"a.b\")"), name_in("IpAddress(10.0.0.1)"), name_in("x")],
            ["a.b", "10.0.0.1", "x"]
        );
    }
}
