//! Running a program on a device that is chosen at run time.
#![cfg(all(feature = "flex", feature = "candle"))]

use burn::tensor::{Tensor, TensorData};
use grove_backend::{Backend, BackendName, DeviceError, DeviceSpec, Program};

/// A program that returns the backend's name, and `x x^T` of a row.
struct Square([f32; 3]);

impl Program for Square {
    type Output = (String, f32);

    fn run<B: Backend>(self, device: B::Device) -> (String, f32) {
        let x = Tensor::<B, 2>::from_data(TensorData::from([self.0]), &device);
        let y = x.clone().matmul(x.transpose()).into_data();
        (B::name(&device), y.iter::<f32>().sum())
    }
}

fn run(backend: BackendName, index: usize) -> Result<(String, f32), DeviceError> {
    DeviceSpec::new(backend, index).run(Square([1.0, 2.0, 3.0]))
}

#[test]
fn programs_run_on_the_backend_that_is_named() {
    for backend in [BackendName::Flex, BackendName::Candle] {
        let (name, square) = run(backend, 0).unwrap();
        assert!(name.starts_with(backend.as_str()), "{name}");
        assert_eq!(square, 14.0);
    }
    assert_eq!(DeviceSpec::default(), DeviceSpec::new(BackendName::Flex, 0));
}

#[cfg(feature = "wgpu")]
#[test]
fn programs_run_on_wgpu() {
    match run(BackendName::Wgpu, 0) {
        Ok((name, square)) => assert!(name.contains("wgpu") && square == 14.0, "{name}: {square}"),
        Err(error) => println!("skipped: {error}"),
    }
}

#[test]
fn a_device_number_beyond_the_last_is_refused() {
    for backend in [BackendName::Flex, BackendName::Candle] {
        let message = run(backend, 3).unwrap_err().to_string();
        let expected = format!("backend '{backend}' has 1 device here, numbered from 0; there is no device 3");
        assert_eq!(message, expected);
    }
}

#[test]
fn a_backend_outside_this_build_names_its_feature() {
    let missing = BackendName::ALL.into_iter().filter(|backend| !backend.is_compiled());
    for backend in missing {
        let error = run(backend, 0).unwrap_err();
        assert_eq!(error, DeviceError::NotCompiled { backend });
        let expected = format!("backend '{backend}' is not compiled in; build with `--features {}`", backend.feature());
        assert_eq!(error.to_string(), expected);
    }
    if BackendName::Rocm.is_compiled() {
        println!("skipped: this build has every backend that was to be missing");
    }
}

/// Without a driver the result is a one-sentence error with a remedy, not Burn's panic.
#[test]
fn cuda_without_a_driver_is_one_sentence() {
    if !BackendName::Cuda.is_compiled() {
        println!("skipped: cuda is not compiled in");
        return;
    }
    match run(BackendName::Cuda, 0) {
        Ok((name, square)) => {
            assert!(name.contains("cuda") && square == 14.0, "{name}: {square}");
            println!("skipped: there is an NVIDIA GPU here");
        }
        Err(DeviceError::Index { count, .. }) => panic!("{count} devices, and none of them is the first"),
        Err(error) => {
            let message = error.to_string();
            println!("{message}");
            assert!(matches!(error, DeviceError::Unavailable { backend: BackendName::Cuda, .. }), "{message}");
            assert!(message.starts_with("backend 'cuda' cannot be used here: "), "{message}");
            assert!(message.len() < 250 && !message.contains(['\n', '\0']), "{message}");
        }
    }
}
