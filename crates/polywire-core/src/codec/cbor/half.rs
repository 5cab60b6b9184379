//! Conversions of 16-bit floating-point numbers. They keep the payloads of NaNs.

/// The value of a 16-bit number.
pub(super) fn widen(half: u16) -> f32 {
    let (sign, exponent, fraction) = (u32::from(half >> 15), u32::from(half >> 10 & 0x1F), u32::from(half & 0x3FF));
    let magnitude = match exponent {
        // Subnormals are multiples of 2^-24.
        0 => (fraction as f32 / 16_777_216.0).to_bits(),
        31 => 0xFF << 23 | fraction << 13,
        _ => (exponent + 127 - 15) << 23 | fraction << 13,
    };
    f32::from_bits(sign << 31 | magnitude)
}

/// The 16-bit number with the same value, if there is one.
pub(super) fn half(single: f32) -> Option<u16> {
    let bits = single.to_bits();
    let (sign, exponent, fraction) = ((bits >> 16 & 0x8000) as u16, bits >> 23 & 0xFF, bits & 0x7F_FFFF);
    let (rest, magnitude) = match exponent {
        0 => (fraction, 0),
        255 => (fraction & 0x1FFF, 0x7C00 | fraction >> 13),
        113..=142 => (fraction & 0x1FFF, (exponent - 112) << 10 | fraction >> 13),
        // Numbers below 2^-14 are subnormal: multiples of 2^-24 without an implicit one.
        103..=112 => {
            let (whole, shift) = (fraction | 0x80_0000, 126 - exponent);
            (whole & ((1 << shift) - 1), whole >> shift)
        }
        _ => return None,
    };
    (rest == 0).then_some(sign | magnitude as u16)
}

/// The `f32` with the same value, if there is one.
pub(super) fn single(double: f64) -> Option<f32> {
    if !double.is_nan() {
        let single = double as f32;
        return (f64::from(single) == double).then_some(single);
    }
    let bits = double.to_bits();
    let fraction = bits & 0xF_FFFF_FFFF_FFFF;
    let sign = (bits >> 32 & 0x8000_0000) as u32;
    (fraction & 0x1FFF_FFFF == 0).then_some(f32::from_bits(sign | 0xFF << 23 | (fraction >> 29) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_comes_back() {
        for bits in 0..=u16::MAX {
            assert_eq!(half(widen(bits)), Some(bits), "{bits:#06x}");
        }
    }

    #[test]
    fn values_of_halves() {
        let values = [
            (0x0000, 0.0),
            (0x8000, -0.0),
            (0x3C00, 1.0),
            (0x3E00, 1.5),
            (0x7BFF, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x0400, 6.103_515_6e-5),
            (0xC400, -4.0),
            (0x7C00, f32::INFINITY),
        ];
        for (bits, value) in values {
            assert_eq!(widen(bits).to_bits(), f32::to_bits(value));
        }
        for other in [65_505.0, 65_536.0, 1e-8, 0.1, f32::MAX, f32::MIN_POSITIVE, 5.960_465e-8] {
            assert_eq!(half(other), None, "{other}");
        }
    }

    #[test]
    fn singles_of_doubles() {
        assert_eq!(single(0.1), None);
        assert_eq!(single(1e300), None);
        assert_eq!(single(0.5), Some(0.5));
        assert_eq!(single(f64::from_bits(0x7FF8_0000_0000_0001)), None);
        assert_eq!(single(f64::from_bits(0xFFF8_0000_2000_0000)).map(f32::to_bits), Some(0xFFC0_0001));
    }
}
