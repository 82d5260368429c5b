//! Conversion of stored values to the types of a backend.

use burn::tensor::{BoolStore, DType};
use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

#[cfg(target_endian = "big")]
compile_error!("weights files are little-endian and are read in place");

/// Number of elements converted at a time, on the stack.
const LANE: usize = 512;

/// Converts contiguous little-endian values of type `from` into `target`, which has room for exactly as many values of
/// type `to`. `source` need not be aligned.
///
/// Floats are rounded to nearest (overflow becomes infinite, as in PyTorch), integers become floats, booleans become
/// 0 and 1, and integers become booleans by comparison with 0.
///
/// # Errors
/// Returns the reason: floats do not convert to integers or booleans, and an integer must fit its new type.
pub(crate) fn convert(source: &[u8], from: DType, target: &mut [u8], to: DType) -> Result<(), String> {
    debug_assert_eq!(source.len() / from.size(), target.len() / to.size());
    // Booleans are never copied: any nonzero byte means true, but a `bool` must be 0 or 1.
    if as_stored(from) == as_stored(to) && !from.is_bool() {
        target.copy_from_slice(source);
        return Ok(());
    }
    for (source, target) in source.chunks(LANE * from.size()).zip(target.chunks_mut(LANE * to.size())) {
        match (from, to) {
            (DType::F16, DType::F32 | DType::Flex32) => {
                lane(source, target, |from: &[f16], to| from.convert_to_f32_slice(to))
            }
            (DType::BF16, DType::F32 | DType::Flex32) => {
                lane(source, target, |from: &[bf16], to| from.convert_to_f32_slice(to))
            }
            (DType::F32, DType::F16) => lane(source, target, |from, to: &mut [f16]| to.convert_from_f32_slice(from)),
            (DType::F32, DType::BF16) => lane(source, target, |from, to: &mut [bf16]| to.convert_from_f32_slice(from)),
            (_, to) if to.is_float() => {
                let mut wide = [0f64; LANE];
                widen_to_float(source, from, &mut wide)?;
                narrow_float(&wide, target, to)?;
            }
            (from, _) if from.is_float() => return Err("a float would lose its fraction".into()),
            (from, to) => {
                let mut wide = [0i128; LANE];
                widen_to_integer(source, from, &mut wide)?;
                narrow_integer(&wide, target, to)?;
            }
        }
    }
    Ok(())
}

/// Maps types with the same memory representation to one of them.
fn as_stored(dtype: DType) -> DType {
    if dtype == DType::Flex32 { DType::F32 } else { dtype }
}

/// Runs a conversion of slices on aligned copies of up to [`LANE`] elements.
fn lane<S: Pod, T: Pod>(source: &[u8], target: &mut [u8], convert: impl FnOnce(&[S], &mut [T])) {
    let (mut from, mut to) = ([S::zeroed(); LANE], [T::zeroed(); LANE]);
    bytemuck::cast_slice_mut(&mut from)[..source.len()].copy_from_slice(source);
    let count = source.len() / size_of::<S>();
    convert(&from[..count], &mut to[..count]);
    target.copy_from_slice(bytemuck::cast_slice(&to[..count]));
}

/// Reads elements of `N` bytes each.
fn read<const N: usize, W>(source: &[u8], wide: &mut [W], value: impl Fn([u8; N]) -> W) {
    for (bytes, wide) in source.as_chunks::<N>().0.iter().zip(wide) {
        *wide = value(*bytes);
    }
}

/// Writes elements of `N` bytes each. Returns false if `bytes` fails for one of them.
fn write<const N: usize, W: Copy>(wide: &[W], target: &mut [u8], bytes: impl Fn(W) -> Option<[u8; N]>) -> bool {
    target
        .as_chunks_mut::<N>()
        .0
        .iter_mut()
        .zip(wide)
        .all(|(target, &value)| bytes(value).map(|value| *target = value).is_some())
}

fn widen_to_float(source: &[u8], from: DType, wide: &mut [f64]) -> Result<(), String> {
    match from {
        DType::F64 => read(source, wide, f64::from_le_bytes),
        DType::F32 | DType::Flex32 => read(source, wide, |b| f64::from(f32::from_le_bytes(b))),
        DType::F16 => read(source, wide, |b| f16::from_le_bytes(b).to_f64()),
        DType::BF16 => read(source, wide, |b| bf16::from_le_bytes(b).to_f64()),
        from => {
            let mut integers = [0i128; LANE];
            widen_to_integer(source, from, &mut integers)?;
            wide.iter_mut().zip(integers).for_each(|(wide, integer)| *wide = integer as f64);
        }
    }
    Ok(())
}

fn narrow_float(wide: &[f64], target: &mut [u8], to: DType) -> Result<(), String> {
    match to {
        DType::F64 => write(wide, target, |v| Some(v.to_le_bytes())),
        DType::F32 | DType::Flex32 => write(wide, target, |v| Some((v as f32).to_le_bytes())),
        DType::F16 => write(wide, target, |v| Some(f16::from_f64(v).to_le_bytes())),
        DType::BF16 => write(wide, target, |v| Some(bf16::from_f64(v).to_le_bytes())),
        _ => false,
    };
    Ok(())
}

fn widen_to_integer(source: &[u8], from: DType, wide: &mut [i128]) -> Result<(), String> {
    match from {
        DType::I64 => read(source, wide, |b| i64::from_le_bytes(b).into()),
        DType::I32 => read(source, wide, |b| i32::from_le_bytes(b).into()),
        DType::I16 => read(source, wide, |b| i16::from_le_bytes(b).into()),
        DType::I8 => read(source, wide, |b| i8::from_le_bytes(b).into()),
        DType::U64 => read(source, wide, |b| u64::from_le_bytes(b).into()),
        DType::U32 => read(source, wide, |b| u32::from_le_bytes(b).into()),
        DType::U16 => read(source, wide, |b| u16::from_le_bytes(b).into()),
        DType::U8 => read(source, wide, |[b]: [u8; 1]| b.into()),
        DType::Bool(BoolStore::Native | BoolStore::U8) => read(source, wide, |[b]: [u8; 1]| (b != 0).into()),
        DType::Bool(BoolStore::U32) => read(source, wide, |b| (u32::from_le_bytes(b) != 0).into()),
        other => return Err(format!("{other:?} values are not whole numbers")),
    }
    Ok(())
}

fn narrow_integer(wide: &[i128], target: &mut [u8], to: DType) -> Result<(), String> {
    let fits = match to {
        DType::I64 => write(wide, target, |v| i64::try_from(v).ok().map(i64::to_le_bytes)),
        DType::I32 => write(wide, target, |v| i32::try_from(v).ok().map(i32::to_le_bytes)),
        DType::I16 => write(wide, target, |v| i16::try_from(v).ok().map(i16::to_le_bytes)),
        DType::I8 => write(wide, target, |v| i8::try_from(v).ok().map(i8::to_le_bytes)),
        DType::U64 => write(wide, target, |v| u64::try_from(v).ok().map(u64::to_le_bytes)),
        DType::U32 => write(wide, target, |v| u32::try_from(v).ok().map(u32::to_le_bytes)),
        DType::U16 => write(wide, target, |v| u16::try_from(v).ok().map(u16::to_le_bytes)),
        DType::U8 => write(wide, target, |v| u8::try_from(v).ok().map(|v| [v])),
        DType::Bool(BoolStore::Native | BoolStore::U8) => write(wide, target, |v| Some([u8::from(v != 0)])),
        DType::Bool(BoolStore::U32) => write(wide, target, |v| Some(u32::from(v != 0).to_le_bytes())),
        other => return Err(format!("conversion to {other:?} is not supported")),
    };
    if fits { Ok(()) } else { Err("a value does not fit".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOL: DType = DType::Bool(BoolStore::Native);

    fn bytes<const N: usize>(values: &[[u8; N]]) -> Vec<u8> {
        values.concat()
    }

    fn converted(source: &[u8], from: DType, to: DType) -> Result<Vec<u8>, String> {
        let mut target = vec![0; source.len() / from.size() * to.size()];
        convert(source, from, &mut target, to).map(|()| target)
    }

    #[test]
    fn floats() {
        // 1.5, -0.25, 65504 (the largest f16), the smallest subnormal f16.
        let values = [1.5f32, -0.25, 65504.0, 5.9604645e-8];
        let f16_bits = bytes(&[0x3e00u16, 0xb400, 0x7bff, 0x0001].map(u16::to_le_bytes));
        let f32_bytes = bytes(&values.map(f32::to_le_bytes));
        let f64_bytes = bytes(&values.map(|v| f64::from(v).to_le_bytes()));
        for (source, from, target, to) in [
            (&f16_bits, DType::F16, &f32_bytes, DType::F32),
            (&f32_bytes, DType::F32, &f16_bits, DType::F16),
            (&f16_bits, DType::F16, &f64_bytes, DType::F64),
            (&f64_bytes, DType::F64, &f16_bits, DType::F16),
            (&f64_bytes, DType::F64, &f32_bytes, DType::F32),
        ] {
            assert_eq!(converted(source, from, to).as_ref(), Ok(target), "{from:?} to {to:?}");
        }
        let bf16_bits = bytes(&[0x3fc0u16, 0xbe80].map(u16::to_le_bytes));
        assert_eq!(converted(&bf16_bits, DType::BF16, DType::F32).as_deref(), Ok(&f32_bytes[..8]));
        assert_eq!(converted(&f32_bytes[..8], DType::F32, DType::BF16), Ok(bf16_bits));
    }

    #[test]
    fn rounds_to_nearest_even_and_overflows_to_infinity() {
        // 1 + 2^-11 lies halfway between two f16 values, 1 + 3·2^-11 too.
        let source = bytes(&[1.0 + 0.5f32.powi(11), 1.0 + 3.0 * 0.5f32.powi(11), 1e6].map(f32::to_le_bytes));
        let expected = bytes(&[0x3c00u16, 0x3c02, 0x7c00].map(u16::to_le_bytes));
        assert_eq!(converted(&source, DType::F32, DType::F16), Ok(expected));
    }

    #[test]
    fn whole_numbers() {
        let source = bytes(&[3i64, -7, 120].map(i64::to_le_bytes));
        assert_eq!(converted(&source, DType::I64, DType::I8), Ok(bytes(&[3i8, -7, 120].map(i8::to_le_bytes))));
        assert_eq!(converted(&source, DType::I64, DType::F32), Ok(bytes(&[3f32, -7.0, 120.0].map(f32::to_le_bytes))));
        assert!(converted(&source, DType::I64, DType::U8).is_err(), "-7 is not a u8");
        assert!(converted(&bytes(&[1f32.to_le_bytes()]), DType::F32, DType::I32).is_err());
    }

    #[test]
    fn booleans_are_zero_or_one() {
        assert_eq!(converted(&[0, 1, 2, 255], BOOL, BOOL), Ok(vec![0, 1, 1, 1]));
        assert_eq!(converted(&[0, 3], DType::U8, BOOL), Ok(vec![0, 1]));
        assert_eq!(converted(&[0, 3], BOOL, DType::F32), Ok(bytes(&[0f32, 1.0].map(f32::to_le_bytes))));
        assert_eq!(converted(&[0, 3], BOOL, DType::Bool(BoolStore::U32)), Ok(bytes(&[0u32, 1].map(u32::to_le_bytes))));
    }

    #[test]
    fn unaligned_and_longer_than_a_lane() {
        let count = 3 * LANE + 17;
        let mut source = vec![0u8];
        source.extend((0..count).flat_map(|i| f16::from_f32((i % 1000) as f32).to_le_bytes()));
        let expected: Vec<u8> = (0..count).flat_map(|i| ((i % 1000) as f32).to_le_bytes()).collect();
        assert_eq!(converted(&source[1..], DType::F16, DType::F32), Ok(expected));
    }
}
