//! Domains: numbers that separate systems which share a machine or a network, as in DDS.

use std::env;

/// The largest domain.
const LAST: u8 = 232;
/// The environment variable with the domain for addresses that name none.
const VARIABLE: &str = "POLYWIRE_DOMAIN";

/// Parses the number of a domain.
pub(super) fn parse(text: &str) -> Result<u8, String> {
    let domain = text.parse().ok().filter(|domain| *domain <= LAST && !text.starts_with('+'));
    domain.ok_or_else(|| format!("a domain is a number from 0 to {LAST}, in the address or in {VARIABLE}"))
}

/// Returns the domain of an address that names none: the text of the environment variable, else
/// `0`.
pub(super) fn default() -> String {
    env::var(VARIABLE).ok().filter(|domain| !domain.is_empty()).unwrap_or_else(|| "0".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_small_numbers() {
        assert_eq!((parse("007"), parse("232")), (Ok(7), Ok(232)));
        for wrong in ["233", "-1", "+1", "a", "", "1.0", "0x1", "99999999999", "a/b"] {
            assert!(parse(wrong).is_err_and(|reason| reason.contains("0 to 232")), "{wrong}");
        }
    }
}
