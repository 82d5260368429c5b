//! Threefry-2x32 with 20 rounds, the block cipher of all random keys. Reference: Salmon et al., "Parallel random numbers: as
//! easy as 1, 2, 3" (2011).

/// Constant of the key schedule; the third word of the schedule is the parity of the key with it.
const PARITY: u32 = 0x1BD1_1BDA;

/// Returns the two words of a 64-bit counter, high word first.
#[inline(always)]
pub const fn counter(index: u64) -> [u32; 2] {
    [(index >> 32) as u32, index as u32]
}

/// Adds to a counter. 64-bit counters would halve the vector width, so two words with a carry are used.
#[inline(always)]
pub(crate) fn advanced([high, low]: [u32; 2], by: u32) -> [u32; 2] {
    let index = low.wrapping_add(by);
    [high.wrapping_add(u32::from(index < low)), index]
}

/// Encrypts a counter with a key. Returns the two words of the block.
#[inline(always)]
pub fn threefry2x32(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let [k0, k1] = key;
    let k2 = k0 ^ k1 ^ PARITY;
    let x = inject(counter, k0, k1, 0);
    let x = inject(four_rounds(x, [13, 15, 26, 6]), k1, k2, 1);
    let x = inject(four_rounds(x, [17, 29, 16, 24]), k2, k0, 2);
    let x = inject(four_rounds(x, [13, 15, 26, 6]), k0, k1, 3);
    let x = inject(four_rounds(x, [17, 29, 16, 24]), k1, k2, 4);
    inject(four_rounds(x, [13, 15, 26, 6]), k2, k0, 5)
}

/// Returns the 32 random bits that JAX derives from one block.
#[inline(always)]
pub fn bits(key: [u32; 2], counter: [u32; 2]) -> u32 {
    let [high, low] = threefry2x32(key, counter);
    high ^ low
}

#[inline(always)]
fn four_rounds(x: [u32; 2], rotations: [u32; 4]) -> [u32; 2] {
    let x = round(x, rotations[0]);
    let x = round(x, rotations[1]);
    let x = round(x, rotations[2]);
    round(x, rotations[3])
}

#[inline(always)]
fn round([a, b]: [u32; 2], rotation: u32) -> [u32; 2] {
    let a = a.wrapping_add(b);
    [a, b.rotate_left(rotation) ^ a]
}

#[inline(always)]
fn inject([a, b]: [u32; 2], k0: u32, k1: u32, step: u32) -> [u32; 2] {
    [a.wrapping_add(k0), b.wrapping_add(k1).wrapping_add(step)]
}

#[cfg(test)]
mod tests {
    use super::*;

    // Known answers for Threefry-2x32-20, published by the authors of Random123.
    #[test]
    fn known_answers() {
        assert_eq!(threefry2x32([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry2x32([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(threefry2x32([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]), [0xc492_3a9c, 0x483d_f7a0]);
    }

    #[test]
    fn a_counter_has_its_high_word_first() {
        assert_eq!(counter((3 << 32) + 9), [3, 9]);
    }
}
