//! Helpers shared by the tests of several crates: running a test on every backend, and comparison with a reference. Other
//! crates include this file by its path.

/// Generates a `#[test]` for each backend in this build from each function `fn name<B: Backend>(device: B::Device)`.
///
/// The functions are called with concrete types, because `DeviceSpec::run` would compile every test for CUDA too.
macro_rules! on_each_backend {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            not_on_cuda!($test);

            #[cfg(feature = "cuda_tests")]
            #[test]
            fn cuda() {
                let gpu = grove_backend::DeviceSpec::new(grove_backend::BackendName::Cuda, 0);
                gpu.probe().expect("a GPU, or tools/cuda_emulator/emulate before the command");
                super::$test::<grove_backend::Cuda>(Default::default());
            }
        }
    )*};
}

/// Generates a `#[test]` for each backend but CUDA, in a module beside the function.
macro_rules! not_on_cuda {
    ($test:ident) => {
        #[test]
        fn flex() {
            super::$test::<grove_backend::Flex>(Default::default());
        }

        #[test]
        fn candle() {
            super::$test::<grove_backend::Candle>(Default::default());
        }

        #[cfg(feature = "wgpu")]
        #[test]
        fn wgpu() {
            match grove_backend::DeviceSpec::new(grove_backend::BackendName::Wgpu, 0).probe() {
                Ok(()) => super::$test::<grove_backend::Wgpu>(grove_backend::wgpu_device(0)),
                Err(error) => println!("skipped: {error}"),
            }
        }
    };
}

/// Returns the maximum absolute difference of two lists, and the maximum absolute value of the second one. NaN if any value
/// is NaN.
pub fn distance(a: &[f64], b: &[f64]) -> (f64, f64) {
    assert_eq!(a.len(), b.len(), "as many numbers");
    let max = |max: f64, x: f64| if x.is_nan() { x } else { max.max(x.abs()) };
    (a.iter().zip(b).map(|(x, y)| x - y).fold(0.0, max), b.iter().copied().fold(0.0, max))
}
