//! Fills vectors with the items of a random stream, in blocks: with vector instructions if the CPU has them, and on the
//! kernels' threads for long vectors.

#[cfg(target_arch = "x86_64")]
use crate::CpuCapability;
use crate::{for_chunks, threefry};

/// A sequence of random items, each a function of its index only.
///
/// Implementations mark `item` and its callees `#[inline(always)]`, so that they are compiled with vector
/// instructions inside the loops below.
pub(super) trait Stream: Sync {
    /// Type of the items.
    type Item: Copy + Default + Send;

    /// Returns the item at an index, which is two words, high word first.
    fn item(&self, counter: [u32; 2]) -> Self::Item;
}

/// Minimum number of items for which waking threads pays off.
const PARALLEL_FROM: usize = 1 << 18;

/// Number of items computed by one call of the loop over a block: small enough for the output to stay in the L1 cache, and
/// for a 32-bit index.
const BLOCK: usize = 1 << 12;

/// Number of items of a thread's task: several blocks.
const TASK: usize = 16 * BLOCK;

/// Returns the first `n` items.
pub(super) fn fill<S: Stream>(stream: &S, n: usize) -> Vec<S::Item> {
    let mut items = vec![S::Item::default(); n];
    if n < PARALLEL_FROM {
        fill_from(stream, 0, &mut items);
    } else {
        for_chunks(&mut items, TASK, |i, part| fill_from(stream, i * TASK, part));
    }
    items
}

/// Writes the items from index `first` on.
fn fill_from<S: Stream>(stream: &S, first: usize, items: &mut [S::Item]) {
    for (i, block) in items.chunks_mut(BLOCK).enumerate() {
        let first = (first + i * BLOCK) as u64;
        #[cfg(target_arch = "x86_64")]
        if CpuCapability::get() >= CpuCapability::Avx2 {
            // SAFETY: `CpuCapability::get` returns this level only if the CPU has AVX2 and FMA, the features of the function.
            unsafe { fill_block_avx2(stream, first, block) };
            continue;
        }
        fill_block(stream, first, block);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fill_block_avx2<S: Stream>(stream: &S, first: u64, block: &mut [S::Item]) {
    fill_block(stream, first, block);
}

#[inline(always)]
fn fill_block<S: Stream>(stream: &S, first: u64, block: &mut [S::Item]) {
    let first = threefry::counter(first);
    for (i, item) in block.iter_mut().enumerate() {
        *item = stream.item(threefry::advanced(first, i as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Indices;

    impl Stream for Indices {
        type Item = u64;

        #[inline(always)]
        fn item(&self, [high, low]: [u32; 2]) -> u64 {
            (u64::from(high) << 32) | u64::from(low)
        }
    }

    #[test]
    fn every_index_comes_once_and_in_order() {
        for n in [0, 1, BLOCK - 1, BLOCK + 1, PARALLEL_FROM - 1, 2 * PARALLEL_FROM + 5] {
            let items = fill(&Indices, n);
            assert_eq!(items.len(), n);
            assert!(items.iter().enumerate().all(|(i, &item)| item == i as u64));
        }
    }

    struct Fused;

    impl Stream for Fused {
        type Item = f32;

        #[inline(always)]
        fn item(&self, [_, low]: [u32; 2]) -> f32 {
            (low as f32 / 7.0).mul_add(0.1, 1.0 / (1.0 + low as f32))
        }
    }

    #[test]
    fn vector_instructions_change_no_bit() {
        let mut plain = vec![0.0; BLOCK];
        fill_block(&Fused, 0, &mut plain);
        assert_eq!(fill(&Fused, BLOCK), plain);
    }

    #[test]
    fn counters_carry_into_the_high_word() {
        let mut items = [0; 4];
        fill_block(&Indices, u64::from(u32::MAX) - 1, &mut items);
        let first = u64::from(u32::MAX) - 1;
        assert_eq!(items, [first, first + 1, first + 2, first + 3]);
    }
}
