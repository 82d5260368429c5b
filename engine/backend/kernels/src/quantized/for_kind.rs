/// Calls a function with the format of a [`Quantization`] value as its type, so that it is compiled for each format.
macro_rules! for_kind {
    ($kind:expr, $function:ident[$($constant:ident)?]($($arg:expr),*)) => {{
        use $crate::quantized::{Quantization, large, pairs};
        match $kind {
            Quantization::Q4_0 => $function::<pairs::Q4_0, $($constant)?>($($arg),*),
            Quantization::Q4_1 => $function::<pairs::Q4_1, $($constant)?>($($arg),*),
            Quantization::Q5_0 => $function::<pairs::Q5_0, $($constant)?>($($arg),*),
            Quantization::Q5_1 => $function::<pairs::Q5_1, $($constant)?>($($arg),*),
            Quantization::Q8_0 => $function::<pairs::Q8_0, $($constant)?>($($arg),*),
            Quantization::Q4K => $function::<large::Q4K, $($constant)?>($($arg),*),
            Quantization::Q5K => $function::<large::Q5K, $($constant)?>($($arg),*),
            Quantization::Q6K => $function::<large::Q6K, $($constant)?>($($arg),*),
        }
    }};
}
pub(super) use for_kind;
