/// Calls a function with the format of a [`Quantisation`] value as its type, so that it is compiled for each format.
macro_rules! for_kind {
    ($kind:expr, $function:ident[$($constant:ident)?]($($arg:expr),*)) => {{
        use $crate::quantised::{Quantisation, large, pairs};
        match $kind {
            Quantisation::Q4_0 => $function::<pairs::Q4_0, $($constant)?>($($arg),*),
            Quantisation::Q4_1 => $function::<pairs::Q4_1, $($constant)?>($($arg),*),
            Quantisation::Q5_0 => $function::<pairs::Q5_0, $($constant)?>($($arg),*),
            Quantisation::Q5_1 => $function::<pairs::Q5_1, $($constant)?>($($arg),*),
            Quantisation::Q8_0 => $function::<pairs::Q8_0, $($constant)?>($($arg),*),
            Quantisation::Q4K => $function::<large::Q4K, $($constant)?>($($arg),*),
            Quantisation::Q5K => $function::<large::Q5K, $($constant)?>($($arg),*),
            Quantisation::Q6K => $function::<large::Q6K, $($constant)?>($($arg),*),
        }
    }};
}
pub(super) use for_kind;
