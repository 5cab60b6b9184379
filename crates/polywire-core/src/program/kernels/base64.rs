//! Bytes as base64 (RFC 4648, section 4: the standard alphabet, padded). The kernels of JSON and
//! XML call it. It works on slices only.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const VALUES: [u8; 256] = {
    let mut values = [0xFF; 256];
    let mut i = 0;
    while i < 64 {
        values[ALPHABET[i] as usize] = i as u8;
        i += 1;
    }
    // The URL-safe alphabet is accepted, too.
    values[b'-' as usize] = 62;
    values[b'_' as usize] = 63;
    values
};

/// Two letters for each 12 bits.
const PAIRS: [[u8; 2]; 4096] = {
    let mut pairs = [[0; 2]; 4096];
    let mut i = 0;
    while i < 4096 {
        pairs[i] = [ALPHABET[i >> 6], ALPHABET[i & 63]];
        i += 1;
    }
    pairs
};

/// Letters that `bytes` bytes take.
pub(crate) const fn encoded_len(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// Writes all of `bytes` to the front of `letters`, which has [`encoded_len`] of room.
pub(crate) fn encode(bytes: &[u8], letters: &mut [u8]) {
    let mut groups = bytes.chunks_exact(3);
    let mut fours = letters.chunks_exact_mut(4);
    for (group, four) in groups.by_ref().zip(fours.by_ref()) {
        let word = usize::from(group[0]) << 16 | usize::from(group[1]) << 8 | usize::from(group[2]);
        four[..2].copy_from_slice(&PAIRS[word >> 12]);
        four[2..].copy_from_slice(&PAIRS[word & 0xFFF]);
    }
    let last = match groups.remainder() {
        [] => return,
        [a] => [ALPHABET[usize::from(a >> 2)], ALPHABET[usize::from(a & 3) << 4], b'=', b'='],
        [a, b, ..] => {
            let word = usize::from(*a) << 8 | usize::from(*b);
            [ALPHABET[word >> 10], ALPHABET[word >> 4 & 63], ALPHABET[(word & 15) << 2], b'=']
        }
    };
    if let Some(four) = fours.next() {
        four.copy_from_slice(&last);
    }
}

/// The decoded length, if the number of letters is valid; the padding may be left out.
pub(crate) fn decoded_len(letters: &[u8]) -> Option<usize> {
    let padding = letters.iter().rev().take(2).take_while(|l| **l == b'=').count();
    let len = letters.len() - padding;
    match (len % 4, padding) {
        (1, _) => None,
        (rest, 0) => Some(len / 4 * 3 + rest.saturating_sub(1)),
        (rest, padding) => (rest + padding == 4).then(|| len / 4 * 3 + rest - 1),
    }
}

/// Decodes the letters into `bytes`, which is [`decoded_len`] long. The error is the index of the
/// invalid letter.
pub(crate) fn decode(letters: &[u8], bytes: &mut [u8]) -> Result<(), usize> {
    let whole = bytes.len() / 3;
    let (head, tail) = bytes.split_at_mut(3 * whole);
    let fours = letters.chunks_exact(4);
    for (i, (four, group)) in fours.zip(head.chunks_exact_mut(3)).enumerate() {
        let word = word(four).map_err(|at| 4 * i + at)?;
        group.copy_from_slice(&word.to_be_bytes()[1..]);
    }
    if !tail.is_empty() {
        let rest = letters.get(4 * whole..).unwrap_or_default();
        let mut four = [b'A'; 4];
        let given = tail.len() + 1;
        four.iter_mut().zip(rest.iter().take(given)).for_each(|(to, from)| *to = *from);
        let word = word(&four).map_err(|at| 4 * whole + at)?;
        // Unused bits must be zero, so that each value has one text only.
        if word << (8 + 8 * tail.len()) != 0 {
            return Err(4 * whole + given - 1);
        }
        tail.copy_from_slice(&word.to_be_bytes()[1..=tail.len()]);
    }
    Ok(())
}

#[inline]
fn word(four: &[u8]) -> Result<u32, usize> {
    let value = |i: usize| u32::from(VALUES[usize::from(four[i])]);
    let (a, b, c, d) = (value(0), value(1), value(2), value(3));
    if (a | b | c | d) & 0x80 != 0 {
        return Err(four.iter().position(|l| VALUES[usize::from(*l)] == 0xFF).unwrap_or(0));
    }
    Ok(a << 18 | b << 12 | c << 6 | d)
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    fn text(bytes: &[u8]) -> Vec<u8> {
        let mut letters = vec![0; encoded_len(bytes.len())];
        encode(bytes, &mut letters);
        letters
    }

    fn bytes(letters: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = vec![0; decoded_len(letters)?];
        decode(letters, &mut bytes).ok().map(|()| bytes)
    }

    #[test]
    fn the_vectors_of_rfc_4648() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, letters) in vectors {
            assert_eq!(text(plain.as_bytes()), letters.as_bytes());
            assert_eq!(bytes(letters.as_bytes()).unwrap(), plain.as_bytes());
            assert_eq!(bytes(letters.trim_end_matches('=').as_bytes()).unwrap(), plain.as_bytes());
        }
    }

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        for len in 250..=256 {
            assert_eq!(bytes(&text(&all[..len])).unwrap(), &all[..len]);
        }
    }

    #[test]
    fn other_letters_and_lengths_are_refused() {
        for letters in [
            "A", "AAAAA", "A===", "====", "=", "AA=", "AAA==", "AB==A", "A*==", "AAA*", "AB==", "AAB=", "Zg==Zg==",
            "A=AA",
        ] {
            assert_eq!(bytes(letters.as_bytes()), None, "{letters}");
        }
        assert_eq!(bytes(b"-_-_").unwrap(), bytes(b"+/+/").unwrap());
    }

    #[test]
    fn four_bytes_there_and_back() {
        use crate::program::kernels::base64;
        let mut letters = alloc::vec![0; base64::encoded_len(4)];
        base64::encode(b"pump", &mut letters);
        assert_eq!(letters, b"cHVtcA==");
        let mut bytes = alloc::vec![0; base64::decoded_len(&letters).unwrap()];
        assert_eq!((base64::decode(&letters, &mut bytes), &bytes[..]), (Ok(()), &b"pump"[..]));
        assert_eq!(base64::decode(b"c!VtcA==", &mut bytes), Err(1));
    }
}
