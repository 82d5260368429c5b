//! Lazy devices, with an engine that computes on the host and counts what it is asked for.

use burn::tensor::{DType, Tensor, TensorData};
use grove_backend::Flex;
use grove_compile::{DeviceArray, Engine, Executable, Graph, TraceDevice, Traced, jit, lazy_device};
use grove_tree::{Array, Key};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

#[derive(Default)]
struct Counts {
    uploads: AtomicUsize,
    programs: AtomicUsize,
    runs: AtomicUsize,
}

impl Counts {
    fn get(&self) -> [usize; 3] {
        [&self.uploads, &self.programs, &self.runs].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Computes vectors of f32.
struct Host(Arc<Counts>);

struct Program(Graph, Arc<Counts>);

fn data(array: &DeviceArray) -> TensorData {
    array.downcast_ref::<TensorData>().expect("an array of this engine").clone()
}

impl Engine for Host {
    fn supports(&self, dtype: DType) -> bool {
        dtype != DType::F64
    }

    fn upload(&self, data: TensorData) -> Result<DeviceArray, String> {
        self.0.uploads.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(data))
    }

    fn download(&self, array: &DeviceArray) -> Result<TensorData, String> {
        Ok(data(array))
    }

    fn wait(&self, _: &DeviceArray) -> Result<(), String> {
        Ok(())
    }

    fn compile(&self, graph: &Graph, _: &[DeviceArray], _: &[bool]) -> Result<Arc<dyn Executable>, String> {
        self.0.programs.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Program(graph.clone(), self.0.clone())))
    }
}

impl Executable for Program {
    fn run(&self, inputs: Vec<DeviceArray>, _: &[Key]) -> Result<Vec<DeviceArray>, String> {
        self.1.runs.fetch_add(1, Ordering::Relaxed);
        let array = |x: &DeviceArray| Array::<Flex, 1>::new(Tensor::from_data(data(x), &Default::default()));
        let inputs: Vec<_> = inputs.iter().map(array).collect();
        Ok(self.0.eval::<Flex, _>(&inputs).into_iter().map(|x| Arc::new(x.into_data()) as DeviceArray).collect())
    }
}

fn device() -> (TraceDevice, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    (lazy_device(Host(counts.clone())), counts)
}

fn values(x: Array<Traced, 1>) -> Vec<f32> {
    x.val().into_data().to_vec().expect("f32")
}

/// A program of `jit` has its constants on the device after the first call, which is one program of it.
#[test]
fn constants_of_a_jitted_program_are_uploaded_once() {
    let (device, counts) = device();
    let shift = |x: Array<Traced, 1>| {
        let by = Tensor::from_data([1.0_f32, 2.0, 3.0], &Default::default());
        Array::new(x.val() * 2.0 + by)
    };
    let shift = jit(shift);
    for call in 1..=3 {
        let x = Array::<Traced, 1>::new(Tensor::from_data([call as f32; 3], &device));
        let twice = 2.0 * call as f32;
        assert_eq!(values(shift.call(x)), [twice + 1.0, twice + 2.0, twice + 3.0]);
        // The array and the factor in each call, and the constant in the first.
        assert_eq!(counts.get(), [2 * call + 1, 1, call]);
    }
    // On another device they are others.
    let (other, of_other) = self::device();
    let x = Array::<Traced, 1>::new(Tensor::from_data([0.0_f32; 3], &other));
    assert_eq!(values(shift.call(x)), [1.0, 2.0, 3.0]);
    assert_eq!((of_other.get(), counts.get()), ([3, 1, 1], [7, 1, 3]));
}
