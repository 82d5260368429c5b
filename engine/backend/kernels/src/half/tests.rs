use super::*;

/// Returns the bits of finite numbers of various magnitudes, including subnormals of f16.
fn bits(len: usize) -> Vec<u16> {
    (0..len as u32)
        .map(|i| {
            let noise = (i.wrapping_mul(2_654_435_761) >> 16) as u16;
            // Below 1 in both formats.
            (noise & 0x83ff) | [0x3800, 0x3400, 0, 0x2c00][i as usize % 4]
        })
        .collect()
}

#[test]
fn sizes_layouts_and_formats() {
    for (m, k, n) in [
        (0, 3, 4),
        (3, 0, 4),
        (7, 0, 4),
        (1, 1, 1),
        (1, 37, 9),
        (1, 1030, 70),
        (2, 17, 1037),
        (3, 600, 33),
        (4, 64, 64),
        (5, 7, 9),
        (6, 256, 16),
        (13, 300, 33),
        (100, 17, 70),
        (500, 520, 18),
        (7, 40, 4200),
    ] {
        let a: Vec<f32> = (0..m * k).map(|i| ((i * 7919) % 113) as f32 / 50.0 - 1.0).collect();
        let bias: Vec<f32> = (0..n).map(|j| (j % 50) as f32).collect();
        let turned: Vec<f32> = (0..m * k).map(|i| a[i % m * k + i / m]).collect();
        for format in [HalfFormat::F16, HalfFormat::Bf16] {
            for transposed in [false, true] {
                let (outer, inner) = if transposed { (n, k) } else { (k, n) };
                let stride = inner + 3;
                let data = bits(outer * stride);
                let b = HalfMatrix { bits: Matrix { data: &data, rows: k, columns: n, stride, transposed }, format };
                let mut wide = vec![0.0; data.len()];
                widen(format, &data, &mut wide);
                let weight = |p, j| f64::from(wide[if transposed { j * stride + p } else { p * stride + j }]);
                for (a_form, bias) in
                    [(Matrix::new(&a, m, k), Some(&bias[..])), (Matrix::new(&turned, k, m).transpose(), None)]
                {
                    let mut c = vec![f32::NAN; m * n];
                    matmul_half(a_form, b, bias, &mut c);
                    for (at, &found) in c.iter().enumerate() {
                        let (i, j) = (at / n, at % n);
                        let first = bias.map_or(0.0, |bias| f64::from(bias[j]));
                        let expected: f64 = (0..k).map(|p| f64::from(a[i * k + p]) * weight(p, j)).sum::<f64>() + first;
                        let size: f64 =
                            (0..k).map(|p| (f64::from(a[i * k + p]) * weight(p, j)).abs()).sum::<f64>() + first;
                        let error = (f64::from(found) - expected).abs();
                        assert!(error <= 1e-6 * size, "{m} {k} {n}, {format:?} {transposed}: {found} {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn non_finite_values_propagate() {
    let (infinity, nan) = (0x7c00, 0x7e01);
    for rows in [1, 6] {
        for transposed in [false, true] {
            // One column with an infinity, one with a NaN, one with neither.
            let weights = if transposed { [infinity, 0, nan, 0, 0, 0] } else { [infinity, nan, 0, 0, 0, 0] };
            let b = HalfMatrix::new(&weights, HalfFormat::F16, 2, 3);
            let b = if transposed { HalfMatrix::new(&weights, HalfFormat::F16, 3, 2).transpose() } else { b };
            let mut c = vec![0.0; rows * 3];
            matmul_half(Matrix::new(&vec![1.0; rows * 2], rows, 2), b, None, &mut c);
            assert!(c.chunks(3).all(|c| c[0] == f32::INFINITY && c[1].is_nan() && c[2] == 0.0));
        }
    }
}

#[test]
fn threads_do_not_matter() {
    let (depth, columns) = (1100, 2300);
    let (data, a) = (bits(depth * columns), vec![0.7; 6 * depth]);
    let run = |threads: usize, rows: usize, b: HalfMatrix<'_>| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut c = vec![0.0; rows * b.bits.columns];
        pool.install(|| matmul_half(Matrix::new(&a[..rows * b.bits.rows], rows, b.bits.rows), b, None, &mut c));
        c
    };
    for rows in [1, 3, 6] {
        let b = HalfMatrix::new(&data, HalfFormat::Bf16, depth, columns);
        assert_eq!(run(1, rows, b), run(3, rows, b));
        let b = HalfMatrix::new(&data, HalfFormat::Bf16, columns, depth).transpose();
        assert_eq!(run(1, rows, b), run(3, rows, b));
    }
}
