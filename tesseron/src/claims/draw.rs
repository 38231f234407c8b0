//! Random text over an alphabet, with a uniform distribution.

use core::slice;

/// The maximum number of times that a rejected byte is drawn again. A random source needs more with a probability of less than 2^-300.
/// Without this maximum, a source that repeats a single byte would cause an endless loop.
const REDRAWS: usize = 64;

/// `N` symbols of `alphabet`, by rejection sampling.
pub(super) fn draw<const N: usize>(alphabet: &[u8], random: &mut dyn FnMut(&mut [u8])) -> [u8; N] {
    let remainder = |byte: usize| byte.checked_rem(alphabet.len()).unwrap_or_default();
    // Bytes from this number on would make the first symbols of the alphabet more likely than the others.
    let usable = 256_usize.saturating_sub(remainder(256));
    let mut drawn = [0; N];
    random(&mut drawn);
    for symbol in &mut drawn {
        for _ in 0..REDRAWS {
            if usize::from(*symbol) < usable {
                break;
            }
            random(slice::from_mut(symbol));
        }
        *symbol = alphabet.get(remainder((*symbol).into())).copied().unwrap_or_default();
    }
    drawn
}

/// A deterministic source for tests, with a long period.
#[cfg(test)]
pub(super) fn sequence(seed: u64) -> impl FnMut(&mut [u8]) {
    let mut state = seed;
    move |out| {
        for byte in out {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALPHABET: &[u8] = b"ABCDEFGHJKMNPQRSTUVWXYZ23456789";

    #[test]
    fn every_symbol_is_as_likely_as_every_other() {
        // Each byte from 0 to 247 once. These bytes are used, and 248 = 8 * 31, so each of the 31 symbols is drawn eight times.
        let mut next = 0_u8;
        let mut counted = [0_u32; 128];
        for _ in 0..248 {
            let [symbol] = draw::<1>(ALPHABET, &mut |out: &mut [u8]| {
                for byte in out {
                    *byte = next;
                    next = next.wrapping_add(1);
                }
            });
            counted[usize::from(symbol)] += 1;
        }
        assert!(ALPHABET.iter().all(|symbol| counted[usize::from(*symbol)] == 8));
    }

    #[test]
    fn a_byte_that_would_make_some_symbols_more_likely_is_drawn_again() {
        let mut bytes = [248, 255, 3].into_iter();
        let [symbol] = draw::<1>(ALPHABET, &mut |out: &mut [u8]| out.fill_with(|| bytes.next().unwrap()));
        assert_eq!(symbol, b'D');
    }

    #[test]
    fn a_random_source_that_repeats_one_byte_does_not_loop_for_ever() {
        assert_eq!(draw::<2>(ALPHABET, &mut |out: &mut [u8]| out.fill(255)), *b"HH");
    }
}
