use super::*;
use crate::matmul::NR;

/// Converts a finite f16 by the definition.
fn f16(block: &[u8], at: usize) -> f32 {
    let bits = u16::from_le_bytes([block[at], block[at + 1]]);
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023) / 1024.0);
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    sign * if exponent == 0 { fraction * 2f32.powi(-14) } else { (1.0 + fraction) * 2f32.powi(exponent - 15) }
}

/// Returns weight `j` of a block, like ggml's `dequantize_row` of the format.
fn weight(kind: Quantization, block: &[u8], j: usize) -> f32 {
    let nibble = |byte: u8, upper: bool| if upper { byte >> 4 } else { byte & 15 };
    // Formats with blocks of 32 weights.
    let simple = |start: usize| nibble(block[start + j % 16], j >= 16);
    let fifth = |start: usize| (block[start + j / 8] >> (j % 8) & 1) << 4;
    // Formats with blocks of 256 weights: scale and minimum, and four of the bits.
    let scale_and_minimum = |i: usize| {
        let q = &block[4..16];
        if i < 4 {
            (q[i] & 63, q[i + 4] & 63)
        } else {
            ((q[i + 4] & 15) | (q[i - 4] >> 6) << 4, (q[i + 4] >> 4) | (q[i] >> 6) << 4)
        }
    };
    let with_minimum = |code: u8| {
        let (scale, minimum) = scale_and_minimum(j / 32);
        f16(block, 0) * f32::from(scale) * f32::from(code) - f16(block, 2) * f32::from(minimum)
    };
    let large = |start: usize| nibble(block[start + j / 64 * 32 + j % 32], j / 32 % 2 == 1);
    match kind {
        Quantization::Q4_0 => f16(block, 0) * (f32::from(simple(2)) - 8.0),
        Quantization::Q4_1 => f16(block, 0) * f32::from(simple(4)) + f16(block, 2),
        Quantization::Q5_0 => f16(block, 0) * (f32::from(simple(6) | fifth(2)) - 16.0),
        Quantization::Q5_1 => f16(block, 0) * f32::from(simple(8) | fifth(4)) + f16(block, 2),
        Quantization::Q8_0 => f16(block, 0) * f32::from(block[2 + j] as i8),
        Quantization::Q4K => with_minimum(large(16)),
        Quantization::Q5K => with_minimum(large(48) | (block[16 + j % 32] >> (j / 32) & 1) << 4),
        Quantization::Q6K => {
            let (n, quarter, l) = (j / 128, j % 128 / 32, j % 32);
            let low = nibble(block[64 * n + 32 * (quarter % 2) + l], quarter >= 2);
            let high = block[128 + 32 * n + l] >> (2 * quarter) & 3;
            let scale = block[192 + 8 * n + 2 * quarter + l / 16] as i8;
            f16(block, 208) * f32::from(scale) * (f32::from(low | high << 4) - 32.0)
        }
    }
}

/// Returns blocks of arbitrary bytes, except for their factors, which have several magnitudes, including subnormals and 0.
fn blocks(kind: Quantization, count: usize) -> Vec<u8> {
    let noise = |i: usize| ((i as u32).wrapping_mul(2_654_435_761) >> 13) as u8;
    let mut data: Vec<u8> = (0..count * kind.block_bytes()).map(noise).collect();
    let factors: &[usize] = match kind {
        Quantization::Q4_0 | Quantization::Q5_0 | Quantization::Q8_0 => &[0],
        Quantization::Q4_1 | Quantization::Q5_1 | Quantization::Q4K | Quantization::Q5K => &[0, 2],
        Quantization::Q6K => &[208],
    };
    for (i, block) in data.chunks_exact_mut(kind.block_bytes()).enumerate() {
        for &at in factors {
            let exponent = [0x28, 0x20, 0xac, 0x00, 0xa4, 0x24, 0x2c][(i + at) % 7];
            block[at + 1] = block[at + 1] & 3 | exponent;
        }
    }
    data
}

fn weights(kind: Quantization, data: &[u8]) -> Vec<f32> {
    data.chunks_exact(kind.block_bytes())
        .flat_map(|block| (0..kind.block_len()).map(|j| weight(kind, block, j)))
        .collect()
}

#[test]
fn names() {
    for kind in Quantization::ALL {
        assert_eq!(Quantization::from_name(kind.name()), Some(kind));
        assert_eq!(kind.to_string(), kind.name());
    }
    assert_eq!(Quantization::from_name("Q2_K"), None);
}

#[test]
fn weights_match_ggml() {
    for kind in Quantization::ALL {
        for count in [0, 1, 2, 3, 33, 2000] {
            let data = blocks(kind, count);
            let mut out = vec![f32::NAN; count * kind.block_len()];
            dequantize(kind, &data, &mut out);
            assert!(out == weights(kind, &data), "{kind}, {count} blocks");
        }
    }
}

/// Returns a row as a product reads it.
fn read(row: &[f32], precision: InputPrecision) -> Vec<f32> {
    match precision {
        InputPrecision::F32 => row.to_vec(),
        InputPrecision::Int8 => row.chunks(32).flat_map(round).collect(),
    }
}

/// Rounds a block of 32 values to multiples of its scale.
fn round(block: &[f32]) -> Vec<f32> {
    let largest = block.iter().fold(1e-30f32, |largest, x| largest.max(x.abs()));
    let scale = largest / 127.0;
    let nearest = |x: &f32| (x * scale.recip()).round_ties_even() * scale;
    block.iter().map(nearest).collect()
}

type Product = fn(Matrix<'_>, InputPrecision, QuantizedMatrix<'_>, Option<&[f32]>, &mut [f32]);

/// The product of rounded rows on CPUs without AVX512-VNNI.
fn portable(a: Matrix<'_>, _: InputPrecision, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    rounded::product(&RoundedRows::new(a), b, bias, c);
}

fn check(product: Product, precision: InputPrecision, kind: Quantization, [m, n, blocks_of_row]: [usize; 3]) {
    let k = blocks_of_row * kind.block_len();
    let data = blocks(kind, n * blocks_of_row);
    let wide = weights(kind, &data);
    let stride = k + 5;
    let mut a: Vec<f32> = (0..m * stride).map(|i| ((i * 7919) % 1013) as f32 / 500.0 - 1.0).collect();
    for i in 0..m.min(2) {
        // Blocks of other magnitudes, and of zeros.
        a[i * stride..][..32.min(k)].iter_mut().for_each(|x| *x *= [1e-4, 0.0][i]);
    }
    let read: Vec<_> = (0..m).map(|i| read(&a[i * stride..][..k], precision)).collect();
    let bias: Vec<f32> = (0..n).map(|j| (j % 50) as f32).collect();
    let b = QuantizedMatrix { data: &data, rows: n, columns: k, kind };
    for bias in [None, Some(&bias[..])] {
        let mut c = vec![f32::NAN; m * n];
        product(Matrix { data: &a, rows: m, columns: k, stride, transposed: false }, precision, b, bias, &mut c);
        for (at, &found) in c.iter().enumerate() {
            let (i, j) = (at / n, at % n);
            let (mut expected, mut size) = (bias.map_or(0.0, |bias| f64::from(bias[j])), 0.0);
            for p in 0..k {
                let product = f64::from(read[i][p]) * f64::from(wide[j * k + p]);
                (expected, size) = (expected + product, size + product.abs());
            }
            let error = (f64::from(found) - expected).abs();
            assert!(error <= 1e-6 * (size + expected.abs()), "{kind}, {m} {n} {k}: {found} {expected} {size}");
        }
    }
}

#[test]
fn products_of_few_rows_and_of_many() {
    for kind in Quantization::ALL {
        for (m, n) in [(0, 3), (1, 0), (1, 1), (1, 2), (1, 301), (2, 17), (3, 5), (4, 70), (5, 33), (9, 40), (100, 19)]
        {
            for blocks_of_row in [0, 1, 3, 6] {
                for precision in [InputPrecision::F32, InputPrecision::Int8] {
                    check(matmul_quantized, precision, kind, [m, n, blocks_of_row]);
                }
            }
        }
        // Several tasks, several depths, several passes of rows.
        let (long, short) = if kind.block_len() == 32 { (45, 19) } else { (5, 2) };
        for precision in [InputPrecision::F32, InputPrecision::Int8] {
            check(matmul_quantized, precision, kind, [1, 700, long]);
            check(matmul_quantized, precision, kind, [485, 150, short]);
        }
    }
}

#[test]
fn products_of_rounded_rows_without_vnni() {
    for kind in Quantization::ALL {
        for (m, n, blocks_of_row) in [(1, 1, 1), (2, 17, 3), (9, 40, 6)] {
            check(portable, InputPrecision::Int8, kind, [m, n, blocks_of_row]);
        }
        // Several chunks.
        check(portable, InputPrecision::Int8, kind, [3, 5, if kind.block_len() == 32 { 301 } else { 35 }]);
    }
}

#[test]
fn a_row_that_is_not_finite_has_no_rounded_results() {
    for kind in Quantization::ALL {
        let k = 2 * kind.block_len();
        let data = blocks(kind, 6);
        for product in [matmul_quantized as Product, portable] {
            for (m, special) in [(1, f32::NAN), (9, f32::NAN), (1, f32::INFINITY), (9, f32::NEG_INFINITY)] {
                let mut a = vec![1.0; m * k];
                a[k - 3] = special;
                let mut c = vec![0.0; m * 3];
                let b = QuantizedMatrix { data: &data, rows: 3, columns: k, kind };
                product(Matrix::new(&a, m, k), InputPrecision::Int8, b, None, &mut c);
                assert!(c[..3].iter().all(|c| c.is_nan()) && c[3..].iter().all(|c| c.is_finite()), "{kind}, {special}");
            }
        }
    }
}

#[test]
fn old_cpus() {
    for kind in Quantization::ALL {
        let (n, k) = (19, 3 * kind.block_len());
        let data = blocks(kind, n * 3);
        let (wide, b) = (weights(kind, &data), QuantizedMatrix { data: &data, rows: n, columns: k, kind });
        let a: Vec<f32> = (0..k).map(|i| ((i * 7919) % 1013) as f32 / 500.0 - 1.0).collect();
        let (mut c, mut panel) = (vec![0.0; n - 2], vec![[f32::NAN; NR]; k]);
        direct::plain_dots(b, 2, &a, &mut c);
        panel::plain_pack(&b, 0, 16, &mut panel);
        for (j, &c) in c.iter().enumerate() {
            let products = || (0..k).map(|p| f64::from(a[p]) * f64::from(wide[(j + 2) * k + p]));
            let (dot, size) = (products().sum::<f64>(), products().map(f64::abs).sum::<f64>());
            assert!((f64::from(c) - dot).abs() <= 1e-6 * size);
        }
        assert!((0..k).all(|p| (0..3).all(|j| panel[p][j] == wide[(16 + j) * k + p])));
    }
}

#[test]
fn nan_propagates() {
    for kind in Quantization::ALL {
        let k = kind.block_len();
        let data = blocks(kind, 3);
        for m in [1, 9] {
            let mut a = vec![1.0; m * k];
            a[k - 3] = f32::NAN;
            let mut c = vec![0.0; m * 3];
            let b = QuantizedMatrix { data: &data, rows: 3, columns: k, kind };
            matmul_quantized(Matrix::new(&a, m, k), InputPrecision::F32, b, None, &mut c);
            assert!(c[..3].iter().all(|c| c.is_nan()) && c[3..].iter().all(|c| c.is_finite()));
        }
    }
}

#[test]
fn infinities_are_multiplied_as_by_the_dequantized_weights() {
    for kind in Quantization::ALL {
        let (rows, k) = (5, 2 * kind.block_len());
        let data = blocks(kind, rows * k / kind.block_len());
        let mut weights = vec![0.0; rows * k];
        dequantize(kind, &data, &mut weights);
        for m in [1, 9] {
            for special in [f32::INFINITY, f32::NEG_INFINITY] {
                let mut a = vec![0.25; m * k];
                a[k - 3] = special;
                let mut c = vec![0.0; m * rows];
                let b = QuantizedMatrix { data: &data, rows, columns: k, kind };
                matmul_quantized(Matrix::new(&a, m, k), InputPrecision::F32, b, None, &mut c);
                for (row, c) in c[..rows].iter().enumerate() {
                    let weight = weights[row * k + k - 3];
                    let expected = special * weight;
                    assert!(*c == expected || expected.is_nan() && c.is_nan(), "{kind}, {m}: {c}, {weight}");
                }
                assert!(c[rows..].iter().all(|c| c.is_finite()), "{kind}");
            }
        }
    }
}

#[test]
fn threads_do_not_matter() {
    let (n, k) = (1000, 512);
    for kind in [Quantization::Q4_1, Quantization::Q6K] {
        let data = blocks(kind, n * k / kind.block_len());
        let a: Vec<f32> = (0..10 * k).map(|i| ((i * 7919) % 1013) as f32 / 500.0 - 1.0).collect();
        for (m, precision) in
            [(1, InputPrecision::F32), (10, InputPrecision::F32), (1, InputPrecision::Int8), (10, InputPrecision::Int8)]
        {
            let run = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut c = vec![0.0; m * n];
                let b = QuantizedMatrix { data: &data, rows: n, columns: k, kind };
                pool.install(|| matmul_quantized(Matrix::new(&a[..m * k], m, k), precision, b, None, &mut c));
                c
            };
            assert_eq!(run(1), run(3));
        }
    }
}
