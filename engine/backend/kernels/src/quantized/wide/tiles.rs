//! Products of many rounded rows with quantized matrices by AMX. One instruction multiplies a tile of 16 rows and a panel, for a
//! group of weights that share a scale.

use std::{
    arch::{
        asm,
        x86_64::{
            __cpuid_count, _mm512_cvtepi32_ps, _mm512_fmadd_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_set1_ps,
            _mm512_setzero_ps, _mm512_storeu_ps,
        },
    },
    sync::LazyLock,
};

use super::{
    LANES, Wide,
    panels::{MEMORY, PANELS, Panels, floats},
};
use crate::{
    matmul::{NR, Tiles, for_bands, multiplies_tiles},
    quantized::{
        QuantizedMatrix, add_bias,
        rounded::{BLOCK, RoundedRows},
    },
};

/// Number of rows of a tile.
const ROWS: usize = 16;
/// Sums of the products of two groups of weights.
type Sums = [[[i32; LANES]; ROWS]; 2];

/// Returns true if this CPU multiplies tiles of 8-bit integers, and their use is not disabled.
pub(super) fn usable() -> bool {
    /// Bit of the register EDX.
    const INT8: u32 = 1 << 25;
    // Asked once: a virtual machine interrupts the program for each CPUID.
    static HAS_INT8: LazyLock<bool> = LazyLock::new(|| __cpuid_count(7, 0).edx & INT8 != 0);
    multiplies_tiles() && *HAS_INT8
}

/// The scales of a block of each row of a tile, and the sums of the block's values.
#[derive(Clone, Copy, Default)]
struct TileBlock {
    scales: [f32; ROWS],
    sums: [f32; ROWS],
}

/// Computes `c = a b^T + bias`.
///
/// # Safety
/// The CPU must multiply tiles of 8-bit integers; see [`usable`].
pub(super) unsafe fn product<W: Wide>(a: &RoundedRows, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    let blocks = b.columns / BLOCK;
    let factors: Vec<Vec<TileBlock>> = (0..a.count).step_by(ROWS).map(|first| tile_blocks(a, first, blocks)).collect();
    for_bands(c, b.rows, PANELS * NR, |first, c| {
        let mut panels = MEMORY.take();
        // SAFETY: the caller guarantees the CPU's instructions.
        unsafe {
            panels.pack::<W, true>(b, first);
            let tiles = configure::<W>();
            for (tile, (factors, c)) in factors.iter().zip(c.chunks_mut(ROWS)).enumerate() {
                for panel in 0..PANELS {
                    multiply::<W>(&tiles, a, tile * ROWS, factors, &panels, panel, c);
                }
            }
        }
        MEMORY.set(panels);
        add_bias(c, bias, first);
    });
}

fn tile_blocks(a: &RoundedRows, first: usize, blocks: usize) -> Vec<TileBlock> {
    let mut all = vec![TileBlock::default(); blocks];
    for i in 0..ROWS.min(a.count - first) {
        let row = a.row(first + i);
        for (block, factors) in all.iter_mut().enumerate() {
            (factors.scales[i], factors.sums[i]) = (row.scales[block], row.sum(block));
        }
    }
    all
}

/// Configures registers 0 and 1 for sums, 2 and 3 for rows, and 4 and 5 for weights.
///
/// # Safety
/// The CPU must multiply tiles.
unsafe fn configure<W: Wide>() -> Tiles {
    let (sums, rows, weights) = ([ROWS, 4 * LANES], [ROWS, W::GROUP], [W::GROUP / 4, 4 * LANES]);
    // SAFETY: the caller's promise.
    unsafe { Tiles::configure([sums, sums, rows, rows, weights, weights, [0; 2], [0; 2]]) }
}

/// Computes the results of a tile of rows, from `row` on, and a panel.
///
/// # Safety
/// The CPU must multiply tiles of 8-bit integers.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
// The totals stay in registers only if they are indexed by constants.
#[allow(clippy::needless_range_loop)]
unsafe fn multiply<W: Wide>(
    _: &Tiles,
    a: &RoundedRows,
    row: usize,
    factors: &[TileBlock],
    panels: &Panels,
    panel: usize,
    c: &mut [&mut [f32]],
) {
    let [codes, scales, offsets] = [&panels.codes, &panels.scales, &panels.offsets].map(|lines| {
        let each = lines.len() / PANELS;
        &lines[panel * each..][..each]
    });
    let (rows, stride) = a.padded_codes();
    let rows = &rows[row * stride..][..ROWS * stride];
    // A block has one or two groups, and two groups are multiplied at once. Behind the rows and panels are zeros.
    let pairs = (factors.len() * BLOCK).div_ceil(2 * W::GROUP);
    assert!(pairs * 2 * W::GROUP <= stride && codes.len() >= pairs * W::GROUP / 2, "panels of another depth");
    let mut totals = [_mm512_setzero_ps(); ROWS];
    let mut sums: Sums = [[[0; LANES]; ROWS]; 2];
    for pair in 0..pairs {
        // SAFETY: the registers are configured for groups of this length. `ROWS` rows of codes and the panel have `pairs` pairs of
        // groups, as asserted above.
        unsafe {
            let (a, b) = (rows.as_ptr().add(2 * pair * W::GROUP), codes.as_ptr().add(pair * W::GROUP / 2));
            products(a, stride, b.cast(), W::GROUP, &mut sums);
        }
        for (half, sums) in sums.iter().enumerate() {
            let group = 2 * pair + half;
            let block = group * W::GROUP / BLOCK;
            let Some(x) = factors.get(block) else { break };
            let scale = floats(&scales[group]);
            for r in 0..ROWS {
                // SAFETY: a line has 16 values.
                let sums = unsafe { _mm512_cvtepi32_ps(_mm512_loadu_si512(sums[r].as_ptr().cast())) };
                totals[r] = _mm512_fmadd_ps(sums, _mm512_mul_ps(scale, _mm512_set1_ps(x.scales[r])), totals[r]);
            }
            if W::OFFSETS {
                let offset = floats(&offsets[block]);
                for r in 0..ROWS {
                    totals[r] = _mm512_fmadd_ps(offset, _mm512_set1_ps(x.sums[r]), totals[r]);
                }
            }
        }
    }
    for (c, totals) in c.iter_mut().zip(totals) {
        let mut line = [0.0; NR];
        // SAFETY: a line has 16 values.
        unsafe { _mm512_storeu_ps(line.as_mut_ptr(), totals) };
        if let Some(c) = c.get_mut(panel * NR..) {
            let width = c.len().min(NR);
            c[..width].copy_from_slice(&line[..width]);
        }
    }
}

/// Multiplies two groups of codes.
///
/// # Safety
/// The registers must be [configured](configure) for groups of this length. `a` must have [`ROWS`] rows, `stride` apart, and `b` as
/// many lines of 64 bytes as there are times four codes in both groups.
#[inline(always)]
unsafe fn products(a: *const i8, stride: usize, b: *const u8, group: usize, sums: &mut Sums) {
    // SAFETY: the caller's promise. `sums` has two tiles of 16 lines of 64 bytes.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tileloadd tmm2, [{a} + {stride}]",
            "tileloadd tmm4, [{b} + {line}]",
            "tilezero tmm1",
            "tdpbssd tmm0, tmm2, tmm4",
            "tileloadd tmm3, [{a2} + {stride}]",
            "tileloadd tmm5, [{b2} + {line}]",
            "tdpbssd tmm1, tmm3, tmm5",
            "tilestored [{c} + {line}], tmm0",
            "tilestored [{c} + {line} + 1024], tmm1",
            a = in(reg) a, a2 = in(reg) a.add(group), b = in(reg) b, b2 = in(reg) b.add(group * LANES),
            stride = in(reg) stride, line = in(reg) 64_usize, c = in(reg) sums, options(nostack),
        );
    }
}
