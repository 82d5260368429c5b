//! Products of bf16 with AMX. A tile register holds 16 rows of 64 bytes. One instruction multiplies a tile of 16 x 32 numbers
//! by one of 32 x 16, and adds the products to 16 x 16 sums in f32.
//!
//! The left-hand matrix is packed once, for all threads, part by part of the depth; so is the right-hand one if several tasks use
//! each column. Each task takes some rows and columns. It multiplies two panels of columns at a time, part by part of the depth.
//! They stay in the first-level cache while all its rows are processed; the rows and the sums stay in the second-level cache.

use rayon::prelude::*;
use std::{arch::asm, cell::Cell};

use super::{
    Matrix, bf16_tile::Operand, microkernel::NR, multiplies_tiles, panel_rows::PanelRows, results::Results,
    tiles::Tiles,
};

/// Rows of a tile, and 4-byte columns.
pub(super) const TILE: usize = 16;
const _: () = assert!(TILE == NR, "a row of a panel is a row of a tile");
/// Numbers of bf16 in a row of a tile.
pub(super) const NUMBERS: usize = 2 * TILE;
/// Maximum number of tiles along the summed axis that are processed at once: two panels of them fill two thirds of a
/// first-level cache of 48 KiB.
const DEPTH: usize = 16;
/// Maximum number of row tiles of a task.
const ROWS: usize = 32;
/// Maximum number of blocks of sums (two by two tiles, 4 KiB) that a task holds, if it has several columns of them.
const SUMS: usize = 256;
/// Maximum number of tiles of rows that stay in the second-level cache from one band of columns to the next.
const HELD: usize = 1 << 10;
/// Maximum number of lines of a right-hand matrix that is packed once for several tasks, and of a buffer that is kept: 16 MiB.
const PACKED: usize = 1 << 18;
/// Number of tile products that justifies waking a thread.
const TASK: usize = 1 << 9;

thread_local! {
    /// Buffers of the last matrices, panels and sums, reused because first-touch page faults of fresh memory would cost
    /// as much as packing.
    static LEFT: Cell<PanelRows> = const { Cell::new(PanelRows::new()) };
    static RIGHT: Cell<PanelRows> = const { Cell::new(PanelRows::new()) };
    static PANELS: Cell<PanelRows> = const { Cell::new(PanelRows::new()) };
    static BLOCKS: Cell<PanelRows> = const { Cell::new(PanelRows::new()) };
}

/// Multiplies non-empty matrices of bf16. Subnormal numbers count as 0. `right` are the columns of the right-hand matrix. Returns
/// the number of elements that `results` has written.
///
/// # Panics
/// If this CPU does not [multiply tiles](multiplies_tiles), or the sizes do not match.
///
/// # Safety
/// No other thread may access the memory of the results.
pub(super) unsafe fn multiply(a: Matrix<'_, u16>, right: &Operand<'_>, results: &impl Results) -> usize {
    assert!(multiplies_tiles(), "no AMX");
    assert!(a.columns == right.depth(), "vectors of {} and {} elements", a.columns, right.depth());
    let left = Operand::of_rows(a);
    let product = Product { rows: a.rows, columns: right.vectors(), tiles: a.columns.div_ceil(NUMBERS) };
    assert!(results.size() == [product.rows, product.columns], "a product of another size");
    let [row_tiles, pairs] = [product.row_tiles(), product.pairs()];
    let mut rows = LEFT.take();
    let left_packed = product.pack_left(&left, &mut rows);
    let (bands, parts) = product.division();
    let mut panels = RIGHT.take();
    let right_packed = (parts > 1 && pairs * product.pair() <= PACKED).then(|| product.pack_right(right, &mut panels));
    let run = |task: usize| {
        let (band, part) = (task % bands, task / bands);
        let rows = [part, part + 1].map(|part| part * row_tiles / parts);
        let pairs = [band, band + 1].map(|band| band * pairs / bands);
        // SAFETY: the CPU multiplies tiles. Each task has a different combination of rows and columns, and no thread outside of
        // this product accesses the results.
        unsafe { product.task(rows, pairs, left_packed, right, right_packed, results) }
    };
    let tasks = bands * parts;
    let written = if tasks == 1 { run(0) } else { (0..tasks).into_par_iter().map(run).sum() };
    for (buffer, used) in [(&LEFT, rows), (&RIGHT, panels)] {
        if used.len() <= PACKED {
            buffer.set(used);
        }
    }
    written
}

/// Packs some tiles of a row of tiles, from `from` on.
///
/// # Safety
/// The CPU must [multiply tiles](multiplies_tiles).
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
unsafe fn pack_rows(left: &Operand<'_>, row: usize, from: usize, tiles: &mut [[f32; NR]]) {
    for (k, tile) in tiles.as_chunks_mut().0.iter_mut().enumerate() {
        left.rows_to(row * TILE, (from + k) * NUMBERS, tile);
    }
}

/// Packs some tiles of both panels of a pair, from `from` on.
///
/// # Safety
/// The CPU must [multiply tiles](multiplies_tiles).
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
unsafe fn pack_pair(right: &Operand<'_>, pair: usize, from: usize, panels: &mut [[f32; NR]]) {
    let half = panels.len() / 2;
    for (p, panel) in panels.chunks_exact_mut(half).enumerate() {
        for (k, tile) in panel.as_chunks_mut().0.iter_mut().enumerate() {
            right.columns_to((2 * pair + p) * TILE, (from + k) * NUMBERS, tile);
        }
    }
}

/// Sizes of a product.
struct Product {
    rows: usize,
    columns: usize,
    /// Number of tiles along the summed axis.
    tiles: usize,
}

impl Product {
    /// Returns the number of parts of the summed axis.
    fn parts(&self) -> usize {
        self.tiles.div_ceil(DEPTH)
    }

    /// Returns the first tile of a part, and the end. As even as possible.
    fn part(&self, part: usize) -> [usize; 2] {
        [part, part + 1].map(|part| part * self.tiles / self.parts())
    }

    /// Returns the number of tiles along the rows.
    fn row_tiles(&self) -> usize {
        self.rows.div_ceil(TILE)
    }

    /// Returns the number of pairs of panels.
    fn pairs(&self) -> usize {
        self.columns.div_ceil(2 * TILE)
    }

    /// Returns the number of lines of a packed pair of panels.
    fn pair(&self) -> usize {
        2 * self.tiles * TILE
    }

    /// Packs the left-hand matrix: for each part of the summed axis, the tiles of each row.
    fn pack_left<'a>(&self, left: &Operand<'_>, memory: &'a mut PanelRows) -> &'a [[f32; NR]] {
        let lines = self.row_tiles() * self.tiles * TILE;
        memory.grow(lines);
        let mut rest = &mut memory[..lines];
        let mut strips = vec![];
        for part in 0..self.parts() {
            let [from, to] = self.part(part);
            let strip;
            (strip, rest) = rest.split_at_mut(self.row_tiles() * (to - from) * TILE);
            strips.push((from, strip, (to - from) * TILE));
        }
        strips.into_par_iter().for_each(|(from, strip, lines)| {
            let rows = strip.par_chunks_exact_mut(lines).enumerate().with_min_len((TASK / 8 * TILE).div_ceil(lines));
            // SAFETY: the CPU multiplies tiles, as `multiply` has checked.
            rows.for_each(|(row, tiles)| unsafe { pack_rows(left, row, from, tiles) });
        });
        &memory[..lines]
    }

    /// Packs the right-hand matrix: for each pair of panels and each part of the summed axis, one panel after the other.
    fn pack_right<'a>(&self, right: &Operand<'_>, memory: &'a mut PanelRows) -> &'a [[f32; NR]] {
        let lines = self.pairs() * self.pair();
        memory.grow(lines);
        let pairs = memory[..lines].par_chunks_exact_mut(self.pair()).enumerate();
        pairs.with_min_len(TASK.div_ceil(16 * self.tiles)).for_each(|(pair, mut rest)| {
            for part in 0..self.parts() {
                let [from, to] = self.part(part);
                let panels;
                (panels, rest) = rest.split_at_mut(2 * (to - from) * TILE);
                // SAFETY: the CPU multiplies tiles, as `multiply` has checked.
                unsafe { pack_pair(right, pair, from, panels) };
            }
        });
        &memory[..lines]
    }

    /// Returns the numbers of bands of columns and of parts of rows. Each combination is a task. Rows are divided if there are
    /// many of them, or too few columns for the threads.
    fn division(&self) -> (usize, usize) {
        let ([row_tiles, pairs], threads) = ([self.row_tiles(), self.pairs()], rayon::current_num_threads());
        let worth = (2 * row_tiles * pairs * self.tiles).div_ceil(TASK);
        let wanted = worth.min(if threads == 1 { 1 } else { 8 * threads });
        let parts = row_tiles.div_ceil(ROWS);
        if wanted > 1 && row_tiles.div_ceil(parts) * self.tiles > HELD {
            // Each band reads all rows of a part from the last-level cache, so there are few.
            let widest = SUMS / row_tiles.div_ceil(parts).div_ceil(2);
            let least = pairs.div_ceil(widest).max((4 * threads).div_ceil(parts));
            let even = (least..least + threads).find(|bands| (bands * parts).is_multiple_of(threads));
            return (even.unwrap_or(least).min(pairs), parts);
        }
        let bands = wanted.min(pairs);
        (bands, parts.max((wanted / bands).min(row_tiles.div_ceil(8))))
    }

    /// Computes the results of some row tiles (from, to) and some pairs of panels. Returns the number of elements written.
    ///
    /// # Safety
    /// The CPU must [multiply tiles](multiplies_tiles). No other thread may access these results.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn task(
        &self,
        rows: [usize; 2],
        pairs: [usize; 2],
        left: &[[f32; NR]],
        right: &Operand<'_>,
        right_packed: Option<&[[f32; NR]]>,
        results: &impl Results,
    ) -> usize {
        let (mut panels, mut sums) = (PANELS.take(), BLOCKS.take());
        let blocks = (rows[1] - rows[0]).div_ceil(2);
        let together = (SUMS / blocks.max(1)).clamp(1, pairs[1] - pairs[0]);
        panels.grow(2 * self.tiles.div_ceil(self.parts()) * TILE);
        sums.grow(together * blocks * BLOCK);
        // SAFETY: the CPU multiplies tiles.
        let tiles = unsafe { Tiles::configure([[TILE, 4 * TILE]; 8]) };
        let mut written = 0;
        for first in (pairs[0]..pairs[1]).step_by(together) {
            let count = together.min(pairs[1] - first);
            for part in 0..self.parts() {
                let [from, to] = self.part(part);
                let half = (to - from) * TILE;
                let left = &left[self.row_tiles() * from * TILE..];
                for (pair, sums) in sums.chunks_exact_mut(blocks * BLOCK).take(count).enumerate() {
                    let panels = match right_packed {
                        Some(all) => &all[(first + pair) * self.pair() + 2 * from * TILE..][..2 * half],
                        None => {
                            let panels = &mut panels[..2 * half];
                            // SAFETY: the CPU multiplies tiles.
                            unsafe { pack_pair(right, first + pair, from, panels) };
                            &*panels
                        }
                    };
                    let b = [&panels[..half], &panels[half..]];
                    for (block, sums) in sums.as_chunks_mut().0.iter_mut().enumerate() {
                        let row = rows[0] + 2 * block;
                        let a = |row: usize| &left[row * half..][..half];
                        match row + 1 < rows[1] {
                            true => tiles.block([a(row), a(row + 1)], b, sums, part == 0),
                            false => tiles.half_block(a(row), b, sums, part == 0),
                        }
                    }
                }
            }
            // The panels are no longer needed.
            // SAFETY: the rows and columns are among those of the task.
            written += unsafe { self.pass(rows, [first, count], &sums, &mut panels, results) };
        }
        drop(tiles);
        PANELS.set(panels);
        BLOCKS.set(sums);
        written
    }

    /// Passes on the sums of some row tiles (from, to) and some pairs of panels (first, number), row by row. Returns the
    /// number of elements written.
    ///
    /// # Safety
    /// No other thread may access these results.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn pass(
        &self,
        rows: [usize; 2],
        [first, count]: [usize; 2],
        sums: &[[f32; NR]],
        line: &mut PanelRows,
        results: &impl Results,
    ) -> usize {
        let blocks = (rows[1] - rows[0]).div_ceil(2);
        let (from, column) = (rows[0] * TILE, 2 * first * TILE);
        let width = (2 * count * TILE).min(self.columns - column);
        line.grow(2 * count);
        let mut written = 0;
        for row in from..self.rows.min(rows[1] * TILE) {
            let tile = (row - from) / TILE;
            let at = tile / 2 * BLOCK + tile % 2 * 2 * TILE + row % TILE;
            for (pair, line) in line.as_chunks_mut::<2>().0.iter_mut().enumerate().take(count) {
                let at = pair * blocks * BLOCK + at;
                *line = [sums[at], sums[at + TILE]];
            }
            // SAFETY: the caller's promise.
            written += unsafe { results.write(row, column, &mut line.as_flattened_mut()[..width]) };
        }
        written
    }
}

/// Lines of a block of sums: two by two tiles, row by row.
const BLOCK: usize = 4 * TILE;

impl Tiles {
    /// Adds the product of two row tiles and two panels to a block of sums, or with `first` sets it.
    #[inline(always)]
    fn block(&self, a: [&[[f32; NR]]; 2], b: [&[[f32; NR]]; 2], sums: &mut [[f32; NR]; BLOCK], first: bool) {
        let lines = a[0].len();
        assert!(
            lines > 0 && [a[0], a[1], b[0], b[1]].iter().all(|part| part.len() == lines && lines.is_multiple_of(TILE))
        );
        // SAFETY: each iteration reads one of `lines / TILE` tiles of each part. `sums` has four tiles.
        unsafe {
            if first {
                asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nomem, nostack));
            } else {
                asm!(
                    "tileloadd tmm0, [{c} + {row}]",
                    "tileloadd tmm1, [{c} + {row} + 1024]",
                    "tileloadd tmm2, [{c} + {row} + 2048]",
                    "tileloadd tmm3, [{c} + {row} + 3072]",
                    c = in(reg) sums, row = in(reg) 64_usize, options(readonly, nostack),
                );
            }
            asm!(
                "2:",
                "tileloadd tmm6, [{b} + {row}]",
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm7, [{b2} + {row}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm5, [{a2} + {row}]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {a}, 1024", "add {a2}, 1024", "add {b}, 1024", "add {b2}, 1024",
                "dec {n}", "jnz 2b",
                "tilestored [{c} + {row}], tmm0",
                "tilestored [{c} + {row} + 1024], tmm1",
                "tilestored [{c} + {row} + 2048], tmm2",
                "tilestored [{c} + {row} + 3072], tmm3",
                a = inout(reg) a[0].as_ptr() => _, a2 = inout(reg) a[1].as_ptr() => _,
                b = inout(reg) b[0].as_ptr() => _, b2 = inout(reg) b[1].as_ptr() => _,
                n = inout(reg) lines / TILE => _, row = in(reg) 64_usize, c = in(reg) sums, options(nostack),
            );
        }
    }

    /// Like [`block`](Self::block), for one row tile.
    #[inline(always)]
    fn half_block(&self, a: &[[f32; NR]], b: [&[[f32; NR]]; 2], sums: &mut [[f32; NR]; BLOCK], first: bool) {
        let lines = a.len();
        assert!(lines > 0 && [a, b[0], b[1]].iter().all(|part| part.len() == lines && lines.is_multiple_of(TILE)));
        // SAFETY: as in `block`.
        unsafe {
            if first {
                asm!("tilezero tmm0", "tilezero tmm1", options(nomem, nostack));
            } else {
                asm!(
                    "tileloadd tmm0, [{c} + {row}]",
                    "tileloadd tmm1, [{c} + {row} + 1024]",
                    c = in(reg) sums, row = in(reg) 64_usize, options(readonly, nostack),
                );
            }
            asm!(
                "2:",
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm6, [{b} + {row}]",
                "tileloadd tmm7, [{b2} + {row}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "add {a}, 1024", "add {b}, 1024", "add {b2}, 1024",
                "dec {n}", "jnz 2b",
                "tilestored [{c} + {row}], tmm0",
                "tilestored [{c} + {row} + 1024], tmm1",
                a = inout(reg) a.as_ptr() => _,
                b = inout(reg) b[0].as_ptr() => _, b2 = inout(reg) b[1].as_ptr() => _,
                n = inout(reg) lines / TILE => _, row = in(reg) 64_usize, c = in(reg) sums, options(nostack),
            );
        }
    }
}
