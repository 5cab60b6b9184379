//! Decimal128 (IEEE 754-2008, binary integer encoding) as text. The kernels of `get` call it. Pure
//! functions.

/// Length of the longest text: a sign, 34 digits, a point, and five zeros or an exponent.
const LONGEST: usize = 48;

/// A number in the notation of the BSON corpus: all its digits, with an exponent if the point would
/// be far from them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Text {
    /// Converts sixteen bytes, least significant first.
    pub fn of(bytes: [u8; 16]) -> Text {
        let bits = u128::from_le_bytes(bytes);
        let mut text = Text { bytes: [0; LONGEST], len: 0 };
        let special = (bits >> 122) as u8 & 0x1F;
        if bits >> 127 == 1 && special != 0x1F {
            text.push(b"-");
        }
        match special {
            0x1F => text.push(b"NaN"),
            0x1E => text.push(b"Infinity"),
            _ => text.number(bits),
        }
        text
    }

    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.bytes.get(..self.len).unwrap_or_default()).unwrap_or_default()
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.bytes.iter_mut().skip(self.len);
        self.len += room.zip(bytes).map(|(to, from)| *to = *from).count();
    }

    fn number(&mut self, bits: u128) {
        // If these two bits are set, the coefficient has more digits than allowed, which means
        // zero.
        let large = bits >> 125 & 3 == 3;
        let exponent = (bits >> if large { 111 } else { 113 } & 0x3FFF) as i32 - 6176;
        let coefficient = if large { 0 } else { bits & ((1 << 113) - 1) };
        let coefficient = if coefficient < 10u128.pow(34) { coefficient } else { 0 };
        let (digits, from) = digits(coefficient);
        self.place_point(&digits[from..], exponent);
    }

    fn place_point(&mut self, digits: &[u8], exponent: i32) {
        let scientific = exponent + digits.len() as i32 - 1;
        if exponent > 0 || scientific < -6 {
            let (first, rest) = digits.split_at(1);
            self.push(first);
            if !rest.is_empty() {
                self.push(b".");
                self.push(rest);
            }
            self.push(if scientific < 0 { b"E-" } else { b"E+" });
            let (digits, from) = self::digits(scientific.unsigned_abs().into());
            return self.push(&digits[from..]);
        }
        let behind = exponent.unsigned_abs() as usize;
        match digits.len().checked_sub(behind) {
            Some(before) if behind > 0 && before > 0 => {
                self.push(&digits[..before]);
                self.push(b".");
                self.push(&digits[before..]);
            }
            Some(_) if behind == 0 => self.push(digits),
            _ => {
                self.push(b"0.");
                (digits.len()..behind).for_each(|_| self.push(b"0"));
                self.push(digits);
            }
        }
    }
}

/// The decimal digits, and the index of the first.
fn digits(mut number: u128) -> ([u8; 40], usize) {
    let mut digits = [0; 40];
    for at in (0..40).rev() {
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return (digits, at);
        }
    }
    (digits, 0)
}
