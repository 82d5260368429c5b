//! Division of result columns among threads.

use rayon::prelude::*;

/// Calls `run` for each band of `width` columns of `c`, a matrix with rows of `columns`. `run` gets the band's first column
/// and the band's slice of each row. A single band runs on the calling thread, so that no thread is woken for little work.
pub(crate) fn for_bands(
    c: &mut [f32],
    columns: usize,
    width: usize,
    run: impl Fn(usize, &mut [&mut [f32]]) + Sync + Send,
) {
    if c.len() == columns && columns <= width {
        run(0, &mut [c]);
    } else if c.len() == columns {
        c.par_chunks_mut(width).enumerate().for_each(|(i, c)| run(i * width, &mut [c]));
    } else {
        let mut bands: Vec<Vec<&mut [f32]>> = Vec::new();
        bands.resize_with(columns.div_ceil(width), || Vec::with_capacity(c.len() / columns));
        for row in c.chunks_exact_mut(columns) {
            for (band, part) in bands.iter_mut().zip(row.chunks_mut(width)) {
                band.push(part);
            }
        }
        bands.par_iter_mut().enumerate().for_each(|(i, rows)| run(i * width, rows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_once() {
        for (rows, columns, width) in [(1, 5, 8), (1, 20, 8), (3, 20, 8), (4, 16, 16), (2, 3, 1)] {
            let mut c = vec![0.0; rows * columns];
            for_bands(&mut c, columns, width, |first, parts| {
                for (row, part) in parts.iter_mut().enumerate() {
                    for (i, c) in part.iter_mut().enumerate() {
                        *c += (row * columns + first + i + 1) as f32;
                    }
                }
            });
            assert!(c.iter().enumerate().all(|(i, &c)| c == (i + 1) as f32));
        }
    }
}
