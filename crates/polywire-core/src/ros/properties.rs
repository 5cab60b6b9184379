//! The user data of participants, writers and readers of DDS, as ROS 2 writes it:
//! `KEY=VALUE;KEY=VALUE;`.

/// The value of a property in user data. `None` if there is no such property. The bytes may come
/// from anybody.
///
/// ```
/// use polywire_core::ros::property;
/// let user_data = b"enclave=/;typehash=RIHS01_00;";
/// assert_eq!(property(user_data, "typehash"), Some("RIHS01_00"));
/// assert_eq!(property(user_data, "hash"), None);
/// ```
pub fn property<'a>(user_data: &'a [u8], key: &str) -> Option<&'a str> {
    let value = |pair: &'a [u8]| pair.strip_prefix(key.as_bytes())?.strip_prefix(b"=");
    let value = user_data.split(|byte| *byte == b';').find_map(value)?;
    core::str::from_utf8(value).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_found_by_their_keys() {
        let data = b"enclave=/a/b;typehash=x=y;;last=1";
        assert_eq!(
            ["enclave", "typehash", "last"].map(|key| property(data, key)),
            [Some("/a/b"), Some("x=y"), Some("1")]
        );
        for data in [&b""[..], b"enclave", b"enclave=", b"enclave=;", b"xenclave=1", b"enclave=\xff", b"enclaves=1"] {
            assert_eq!(property(data, "enclave"), None, "{data:?}");
        }
    }
}
