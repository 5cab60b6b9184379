//! Floating-point numbers as decimals. The conversions are exact to the bit in both directions, or
//! refused. `state/decimal.rs` and `jit/decimal.rs` call this file. It is arithmetic only.

/// Powers of ten that a double holds exactly.
pub(crate) static POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// A double holds every integer up to this.
pub(crate) const EXACT: f64 = 9_007_199_254_740_992.0;

/// The most decimal places that are tried.
const PLACES: usize = 15;

/// The decimal of a number, given as its bits: the one with the exponent `hint` if that is exact,
/// else the one with the fewest places. None if no decimal gives back exactly these bits, as for
/// NaN, infinities and negative zero.
pub(crate) fn decompose(bits: u64, single: bool, hint: Option<i64>) -> Option<(i64, i64)> {
    let value = if single { f64::from(f32::from_bits(bits as u32)) } else { f64::from_bits(bits) };
    let hinted = hint.and_then(places).and_then(|places| at(value, bits, single, places));
    hinted.or_else(|| match single {
        true => shortest_single(value, bits),
        false => shortest(value, bits),
    })
}

/// The decimal of a double with the fewest places.
fn shortest(value: f64, bits: u64) -> Option<(i64, i64)> {
    let exponent = (bits >> 52 & 0x7FF) as i64 - 1023;
    // The number of places with which the mantissa has at most 50 bits. Then decimals lie further
    // apart than doubles, so a decimal with fewer places is also one with this number of places.
    let sure = (((49 - exponent) * 1233) >> 12).clamp(0, PLACES as i64) as usize;
    let Some((_, mut mantissa)) = at(value, bits, false, sure) else {
        return (sure + 1..=PLACES).find_map(|places| at(value, bits, false, places));
    };
    let mut places = sure;
    while places > 0 && mantissa % 10 == 0 {
        (places, mantissa) = (places - 1, mantissa / 10);
    }
    Some((-(places as i64), mantissa))
}

/// The same for a float. With each further place the decimal is at least as near.
fn shortest_single(value: f64, bits: u64) -> Option<(i64, i64)> {
    let most = (0..=PLACES).rev().find(|places| (-EXACT..=EXACT).contains(&(value * POWERS[*places])))?;
    let (mut least, mut found) = (0, at(value, bits, true, most)?);
    while least < -found.0 as usize {
        let middle = (least + -found.0 as usize) / 2;
        match at(value, bits, true, middle) {
            Some(shorter) => found = shorter,
            None => least = middle + 1,
        }
    }
    Some(found)
}

/// The places of an exponent whose power of ten a double holds exactly.
#[inline]
fn places(exponent: i64) -> Option<usize> {
    usize::try_from(exponent.checked_neg()?).ok().filter(|places| *places < POWERS.len())
}

/// The decimal with the given number of places.
#[inline]
fn at(value: f64, bits: u64, single: bool, places: usize) -> Option<(i64, i64)> {
    let power = POWERS[places];
    let scaled = value * power;
    if !(-EXACT..=EXACT).contains(&scaled) {
        return None;
    }
    // To the nearest integer.
    let mantissa = (scaled + f64::copysign(0.5, scaled)) as i64;
    (back(mantissa, power, single) == bits).then(|| (-(places as i64), mantissa))
}

#[inline]
fn back(mantissa: i64, power: f64, single: bool) -> u64 {
    let value = mantissa as f64 / power;
    if single { u64::from((value as f32).to_bits()) } else { value.to_bits() }
}

/// The integer that a decimal with an exponent above zero is, if it fits 64 bits.
fn product(exponent: i64, mantissa: i64) -> Option<i64> {
    let exponent = u32::try_from(exponent).ok().filter(|exponent| *exponent > 0)?;
    mantissa.checked_mul(10i64.checked_pow(exponent)?)
}

/// The bits of the number nearest to a decimal.
pub(crate) fn compose(exponent: i64, mantissa: i64, single: bool) -> u64 {
    // Trailing zeros are not decimal places.
    let (exponent, mantissa) = match product(exponent, mantissa) {
        Some(whole) => (0, whole),
        None => (exponent, mantissa),
    };
    match places(exponent) {
        // One division of two exact numbers, rounded once.
        Some(places) if mantissa.unsigned_abs() <= 1 << 53 => back(mantissa, POWERS[places], single),
        _ => {
            let text = alloc::format!("{mantissa}e{exponent}");
            match single {
                true => text.parse::<f32>().map_or(0, |value| value.to_bits().into()),
                false => text.parse::<f64>().map_or(0, |value| value.to_bits()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decimal_gives_back_its_number() {
        let mut random = crate::schema::arbitrary::Random::new(7);
        let (mut exact, total) = (0, 200_000);
        for i in 0..total {
            let value = match i % 4 {
                0 => f64::from_bits(random.bits()),
                1 => (random.bits() % 100_000_000) as f64 / 100.0,
                2 => (random.bits() as i32) as f64 / 10_000.0,
                _ => random.bits() as i16 as f64,
            };
            let hint = [None, Some(-2), Some(3), Some(-22), Some(-40)][i % 5];
            if let Some((exponent, mantissa)) = decompose(value.to_bits(), false, hint) {
                assert_eq!(compose(exponent, mantissa, false), value.to_bits(), "{value}");
                exact += 1;
            }
            let single = value as f32;
            if let Some((exponent, mantissa)) = decompose(single.to_bits().into(), true, hint) {
                assert_eq!(compose(exponent, mantissa, true), u64::from(single.to_bits()), "{single}");
            }
        }
        assert!(exact > total * 7 / 10, "{exact}");
    }

    #[test]
    fn the_shortest_is_found_as_by_trying_all() {
        let mut random = crate::schema::arbitrary::Random::new(11);
        for i in 0..400_000 {
            let value = match i % 5 {
                0 => f64::from_bits(random.bits()),
                1 => random.bits() as i64 as f64 / POWERS[i % 20],
                2 => (random.bits() as i64 >> 11) as f64 / POWERS[i % 17],
                3 => (random.bits() as i32 >> (i % 31)) as f64 / POWERS[i % 13],
                _ => f64::from_bits(random.bits() & !0 << (i % 52)),
            };
            let bits = value.to_bits();
            let all = (0..=PLACES).find_map(|places| at(value, bits, false, places));
            assert_eq!(shortest(value, bits), all, "{value}");
            let (single, bits) = (value as f32, u64::from((value as f32).to_bits()));
            let all = (0..=PLACES).find_map(|places| at(single.into(), bits, true, places));
            assert_eq!(shortest_single(single.into(), bits), all, "{single}");
        }
    }

    #[test]
    fn what_is_no_decimal_is_none() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e300, f64::MIN_POSITIVE, 1.0 / 3.0 * 1e-5] {
            assert_eq!(decompose(value.to_bits(), false, None), None, "{value}");
        }
        assert_eq!(decompose(12.5f64.to_bits(), false, None), Some((-1, 125)));
        assert_eq!(decompose(12.5f64.to_bits(), false, Some(-4)), Some((-4, 125_000)));
        assert_eq!(compose(3, 12, false), 12000f64.to_bits());
        for (exponent, mantissa) in [(1, 7), (15, -9), (15, 9_007), (18, 9), (18, 10), (22, 3), (1, (1 << 53) + 1)] {
            let text = format!("{mantissa}e{exponent}");
            assert_eq!(compose(exponent, mantissa, false), text.parse::<f64>().unwrap().to_bits(), "{text}");
            assert_eq!(compose(exponent, mantissa, true), u64::from(text.parse::<f32>().unwrap().to_bits()), "{text}");
        }
        assert_eq!(compose(-63, i64::MAX, false), "9223372036854775807e-63".parse::<f64>().unwrap().to_bits());
    }
}
