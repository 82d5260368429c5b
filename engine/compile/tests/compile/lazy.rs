//! Lazy devices, with an engine that computes on the host and counts its calls.

use burn::tensor::{DType, Tensor, TensorData};
use grove_backend::{Backend, Flex, ops::Recorder};
use grove_compile::{
    CustomJvp, DeviceArray, Engine, Executable, Graph, RunError, TraceDevice, Traced, cond, custom_jvp, jit,
    lazy_device, scan, while_loop,
};
use grove_optim::apply_updates;
use grove_tree::{AnyArray, Array, Key};
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

/// Computes arrays on the host. It does not support `cosh`, and programs with `sinh` fail at run time.
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
        if graph.counts().contains_key("cosh") {
            return Err("no hyperbolic cosine".into());
        }
        self.0.programs.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Program(graph.clone(), self.0.clone())))
    }
}

impl Executable for Program {
    fn run(&self, inputs: Vec<DeviceArray>, _: &[Key]) -> Result<Vec<DeviceArray>, RunError> {
        if self.0.counts().contains_key("sinh") {
            return Err(RunError { message: "out of memory".into(), inputs: inputs.into_iter().map(Some).collect() });
        }
        self.1.runs.fetch_add(1, Ordering::Relaxed);
        let array = |x: &DeviceArray| AnyArray::<Flex>::from_data(data(x), &Default::default());
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

/// After the first call, the constants of a jitted program are on the device. Each call runs one program.
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
        // The array is uploaded in each call, the constant and the factor only in the first.
        assert_eq!(counts.get(), [call + 2, 1, call]);
    }
    // Another device has its own constants.
    let (other, of_other) = self::device();
    let x = Array::<Traced, 1>::new(Tensor::from_data([0.0_f32; 3], &other));
    assert_eq!(values(shift.call(x)), [1.0, 2.0, 3.0]);
    assert_eq!((of_other.get(), counts.get()), ([3, 1, 1], [5, 1, 3]));
}

/// A result may be an argument, a constant, or another result. Arguments that something else holds keep their values.
#[test]
fn results_of_a_jitted_program_are_those_of_its_function() {
    type X = Array<Traced, 1>;
    let (device, counts) = device();
    let function = jit(|(x, y): (X, X)| {
        let one = X::new(Tensor::from_data([1.0_f32, 1.0], &Default::default()));
        let sum = X::new(x.val() + y.val());
        (x, one, sum.clone(), (sum, y))
    });
    let x = X::new(Tensor::from_data([1.0_f32, 2.0], &device));
    // Not computed before the call, and twice an argument.
    let y = X::new(x.val() * 3.0);
    for _ in 0..3 {
        let (same, one, sum, (again, other)) = function.call((x.clone(), y.clone()));
        assert_eq!([values(same), values(one)], [[1.0, 2.0], [1.0, 1.0]]);
        assert_eq!([values(sum), values(again), values(other)], [[4.0, 8.0], [4.0, 8.0], [3.0, 6.0]]);
        let (_, _, double, _) = function.call((y.clone(), y.clone()));
        assert_eq!(values(double), [6.0, 12.0]);
    }
    assert_eq!([values(x), values(y)], [[1.0, 2.0], [3.0, 6.0]]);
    // One for `y`, one for the function.
    assert_eq!(counts.get()[1..], [2, 7]);
}

/// Without equations, there is nothing to run.
#[test]
fn a_jitted_identity_runs_no_program() {
    let (device, counts) = device();
    let x = Array::<Traced, 1>::new(Tensor::from_data([1.0_f32], &device));
    assert_eq!(values(jit(|x: Array<Traced, 1>| x).call(x)), [1.0]);
    assert_eq!(counts.get(), [1, 0, 0]);
}

/// The results of a jitted program that failed, and what is computed from them, give its error when they are read.
#[test]
fn a_jitted_program_that_fails() {
    type X = Array<Traced, 1>;
    for fails in [Tensor::<Traced, 1>::cosh, Tensor::<Traced, 1>::sinh] {
        let (device, _) = device();
        let wrong = jit(move |x: X| X::new(fails(x.val())));
        let double = jit(|x: X| X::new(x.val() * 2.0));
        let x = X::new(Tensor::from_data([1.0_f32, 2.0], &device));
        let y = wrong.call(x.clone());
        for z in [y.val(), double.call(y.clone()).val(), y.val() + 1.0, y.val()] {
            let error = z.try_into_data().expect_err("no value").to_string();
            assert!(error.contains("no hyperbolic cosine") || error.contains("out of memory"), "{error}");
        }
        assert!(<Traced as burn::tensor::backend::Backend>::sync(&device).is_err());
        drop(y);
        assert_eq!(values(double.call(x)), [2.0, 4.0]);
        <Traced as burn::tensor::backend::Backend>::sync(&device).unwrap();
    }
}

/// While one thread computes only shapes, as for the derivative of an operation, the operations of others are recorded.
#[test]
fn threads_share_a_device() {
    let (device, _) = device();
    let double = || Tensor::<Traced, 1>::from_data([1.0_f32, 2.0], &device) * 2.0;
    let client = double().into_primitive().tensor().client;
    let of_other = client.forget(|| {
        drop(double());
        std::thread::scope(|scope| scope.spawn(double).join()).expect("no panic")
    });
    assert_eq!(of_other.into_data().to_vec::<f32>().unwrap(), [2.0, 4.0]);
}

/// Multiplies `x` by a number until it is large.
fn grown(x: Array<Traced, 1>, factor: f32) -> Array<Traced, 1> {
    let next = |x: Array<Traced, 1>| Array::new(x.val() * Tensor::from_floats([factor], &x.val().device()));
    while_loop(|x: Array<Traced, 1>| x.val().lower_elem(100.0), next, x)
}

/// Constants in loops are part of the identity of programs.
#[test]
fn loops_that_differ_in_a_constant_are_other_programs() {
    let (device, counts) = device();
    let x = || Array::<Traced, 1>::new(Tensor::from_data([3.0_f32], &device));
    for _ in 0..2 {
        assert_eq!(values(grown(x(), 2.0)), [192.0]);
        assert_eq!(values(grown(x(), 8.0)), [192.0]);
        assert_eq!(values(grown(x(), 0.5 * 8.0)), [192.0]);
        assert_eq!(values(grown(x(), 1.0 + 9.0)), [300.0]);
    }
    assert_eq!(counts.get()[1..], [4, 8]);
}

/// The square, with a custom derivative.
#[derive(Clone, Debug)]
struct Square;

impl CustomJvp for Square {
    type Args<B: Backend> = Array<B, 1>;
    type Output<B: Backend> = Array<B, 1>;

    fn call<B: Backend>(&self, x: Array<B, 1>) -> Array<B, 1> {
        Array::new(x.val() * x.val())
    }

    fn jvp<B: Backend>(&self, x: Array<B, 1>, tangent: Array<B, 1>) -> (Array<B, 1>, Array<B, 1>) {
        let tangent = Array::new(x.val() * tangent.val() * 2.0);
        (custom_jvp(self, x), tangent)
    }
}

/// A differentiation rule is not part of a program that does not differentiate.
#[test]
fn a_function_with_a_rule_is_compiled_once() {
    let (device, counts) = device();
    for step in 1..=6 {
        let x = Array::<Traced, 1>::new(Tensor::from_data([step as f32], &device));
        assert_eq!(values(custom_jvp(&Square, x)), [(step * step) as f32]);
    }
    assert_eq!(counts.get()[1..], [1, 6]);
}

/// Reading a result of a failed program returns the error each time, and the device stays usable.
#[test]
fn a_program_that_fails() {
    let (device, _) = device();
    let x = Tensor::<Traced, 1>::from_data([1.0_f32, 2.0], &device);
    let y = x.clone().cosh();
    for z in [y.clone(), y.clone() * 2.0, y] {
        let error = z.try_into_data().expect_err("no value").to_string();
        assert!(error.contains("no hyperbolic cosine"), "{error}");
    }
    assert_eq!((x * 3.0).into_data().to_vec::<f32>().unwrap(), [3.0, 6.0]);
}

/// An operation that panics leaves the device unchanged.
#[test]
fn a_panic_while_shapes_are_found() {
    let (device, _) = device();
    let x = Tensor::<Traced, 2>::from_data([[1.0_f32, 2.0]], &device);
    let weight = || Tensor::<Traced, 1>::ones([3], &device);
    let wrong = || {
        grove_backend::ops::row_norm(x.clone(), weight(), None, grove_backend::ops::RowNorm { centred: true, eps: 0.0 })
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(wrong)).is_err());
    let y = Tensor::<Traced, 1>::from_data([1.0_f32, 2.0], &device) * 2.0;
    assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [2.0, 4.0]);
}

/// A failed program loses neither arrays that are independent of the failure, nor arrays that were donated to it.
#[test]
fn arguments_survive_a_failed_program() {
    for fails in [Tensor::<Traced, 1>::cosh, Tensor::<Traced, 1>::sinh] {
        let (device, counts) = device();
        let [x, y] = [1.0_f32, 2.0].map(|value| Tensor::<Traced, 1>::from_data([value, 4.0], &device));
        let wrong = fails(x.clone());
        // `y` is donated to this program.
        let unrelated = y * 2.0;
        let related = x * 3.0;
        let error = wrong.clone().try_into_data().expect_err("no value").to_string();
        assert!(error.contains("no hyperbolic cosine") || error.contains("out of memory"), "{error}");
        let numbers = |x: Tensor<Traced, 1>| x.into_data().to_vec::<f32>().unwrap();
        assert_eq!(numbers(unrelated.clone()), [4.0, 8.0]);
        assert_eq!(numbers(unrelated * related.clone() + 1.0), [13.0, 97.0]);
        assert!(wrong.clone().try_into_data().is_err());
        // Without the failing operation, the remaining operations are one program again.
        drop(wrong);
        let before = counts.get()[2];
        assert_eq!(numbers(related * 2.0), [6.0, 24.0]);
        assert_eq!(counts.get()[2], before + 1);
    }
}

/// One step of gradient descent, with a few operations per parameter.
fn descended(params: Vec<Tensor<Traced, 1>>, rate: f32) -> (Vec<Tensor<Traced, 1>>, Tensor<Traced, 1>) {
    let grads = params.iter().map(|x| x.clone() * 2.0);
    let params: Vec<_> = grads.zip(&params).map(|(grad, x)| x.clone() - grad * rate).collect();
    let loss = params.iter().cloned().reduce(|sum, x| sum + x).unwrap();
    (params, loss)
}

/// A loop that reads the loss every hundred steps, with step ends marked by an optimizer, compiles the same number of programs
/// for 500 steps as for 200. Each program contains at most one step and the operations around a read.
#[test]
fn a_loop_that_reads_seldom_runs_one_program_a_step() {
    let (device, counts) = device();
    let mut params: Vec<_> = (1..=5).map(|i| Tensor::<Traced, 1>::from_data([i as f32], &device)).collect();
    let mut expected: Vec<f32> = (1..=5).map(|i| i as f32).collect();
    let mut of_200 = 0;
    for step in 1..=500 {
        // A changing learning rate does not need another program.
        let rate = 0.01 / step as f32;
        let loss;
        (params, loss) = descended(params, rate);
        params = apply_updates(params.into_iter().map(Array::<_, 1>::new).collect::<Vec<_>>(), vec![zero(&device); 5])
            .into_iter()
            .map(|x| x.val())
            .collect();
        expected.iter_mut().for_each(|x| *x -= *x * 2.0 * rate);
        if step % 100 == 0 {
            let (found, sum) = (loss.into_scalar(), expected.iter().sum::<f32>());
            assert!((found - sum).abs() < 1e-4 * sum, "{found} and {sum}");
        }
        if step == 200 {
            of_200 = counts.get()[1];
        }
    }
    let [_, programs, runs] = counts.get();
    assert_eq!(programs, of_200);
    assert!(programs <= 5 && runs >= 490, "{programs} programs and {runs} runs");
}

fn zero(device: &TraceDevice) -> Array<Traced, 1> {
    Array::new(Tensor::from_data([0.0_f32], device))
}

/// Jitted functions that follow each other without a read are separate programs.
#[test]
fn a_jitted_step_is_one_program() {
    let (device, counts) = device();
    let step = jit(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val() * 0.5 + 1.0));
    let mut x = Array::<Traced, 1>::new(Tensor::from_data([0.0_f32], &device));
    for _ in 0..300 {
        x = step.call(x);
    }
    assert_eq!(values(x), [2.0]);
    let [_, programs, runs] = counts.get();
    assert!(programs <= 2 && runs >= 299, "{programs} programs and {runs} runs");
}

/// Without marked ends, the device finds the period of the operations and runs several steps as one program, which is compiled
/// once.
#[test]
fn a_loop_without_ends_is_cut_by_its_period() {
    let (device, counts) = device();
    let mut params: Vec<_> = (1..=5).map(|i| Tensor::<Traced, 1>::from_data([i as f32], &device)).collect();
    let (mut of_half, mut loss) = (0, params[0].clone());
    let mut expected: Vec<f32> = (1..=5).map(|i| i as f32).collect();
    // Nineteen operations per step.
    for step in 0..6_000 {
        (params, loss) = descended(params, 1e-5);
        expected.iter_mut().for_each(|x| *x -= *x * 2.0 * 1e-5);
        if step == 3_000 {
            of_half = counts.get()[1];
        }
    }
    let [_, programs, runs] = counts.get();
    assert_eq!(programs, of_half, "{runs} runs");
    assert!(programs <= 4 && runs > 40, "{programs} programs and {runs} runs");
    let (found, sum) = (loss.into_scalar(), expected.iter().sum::<f32>());
    assert!((found - sum).abs() < 1e-3 * sum, "{found} and {sum}");
}

/// A number that changes between steps, in any operation, is an argument of the program.
#[test]
fn numbers_that_change_are_arguments() {
    type X = Array<Traced, 1>;
    let of = |values: [f32; 3], device: &TraceDevice| X::new(Tensor::from_data(values, device));
    /// A function of an array and a number, and the same function of one element.
    type Case = (&'static str, fn(X, f32) -> X, fn(f32, f32) -> f32);
    let cases: [Case; 6] = [
        ("clamp", |x, by| X::new(x.val().clamp(-by, by * 2.0)), |x, by| x.clamp(-by, by * 2.0)),
        (
            "fill",
            |x, by| X::new(x.val().mask_fill(x.val().greater_elem(1.0), by)),
            |x, by| if x > 1.0 { by } else { x },
        ),
        (
            "cond",
            |x, by| {
                let (one, other) = (move |x: X| X::new(x.val() * by), move |x: X| X::new(x.val() * 3.0 + by * 0.5));
                cond(x.val().sum().greater_elem(100.0), one, other, x)
            },
            |x, by| x * 3.0 + by * 0.5,
        ),
        (
            "while",
            |x, by| {
                let goes_on = move |(i, _): (X, X)| i.val().lower_elem(3.0 + by);
                let step = move |(i, x): (X, X)| (X::new(i.val() + 2.0 * by), X::new(x.val() + by));
                while_loop(goes_on, step, (X::new(x.val().narrow(0, 0, 1) * 0.0), x)).1
            },
            |x, by| x + by * ((3.0 + by) / (2.0 * by)).ceil(),
        ),
        (
            "scan",
            |x, by| {
                let step = move |carry: X, row: X| (X::new(carry.val() * by + row.val().clamp(0.0, by)), row);
                let rows = Array::<Traced, 2>::new(x.val().reshape([3, 1]).repeat_dim(1, 3));
                scan(step, x, rows).0
            },
            |x, by| ((x * by + 0.5_f32.clamp(0.0, by)) * by + 4.0_f32.clamp(0.0, by)) * by,
        ),
        (
            "loop in a branch",
            |x, by| {
                let loops = move |x: X| {
                    while_loop(|x: X| x.val().sum().lower_elem(50.0), move |x: X| X::new(x.val() + by + 7.0), x)
                };
                cond(x.val().sum().greater_elem(100.0), |x: X| x, loops, x)
            },
            |x, by| (0..100).map(|i| x + i as f32 * (by + 7.0)).find(|y| 3.0 * (y - x) + 3.0 >= 50.0).unwrap(),
        ),
    ];
    for (name, f, expected) in cases {
        let (device, counts) = device();
        for by in [0.3, 0.7, 1.3] {
            let found = values(f(of([0.5, 4.0, -1.5], &device), by));
            for (found, x) in found.iter().zip([0.5_f32, 4.0, -1.5]) {
                assert!((found - expected(x, by)).abs() < 1e-5, "{name} of {x} and {by}: {found}");
            }
        }
        assert_eq!(counts.get()[1..], [1, 3], "{name}");
    }
}

/// Clamping preserves NaN.
#[test]
fn clamps_propagate_nan() {
    let (device, _) = device();
    let x = Tensor::<Traced, 1>::from_data([f32::NAN, f32::INFINITY, f32::NEG_INFINITY], &device);
    let found = x.clamp(-0.3, 0.7).into_data().to_vec::<f32>().unwrap();
    assert!(found[0].is_nan() && found[1..] == [0.7, -0.3], "{found:?}");
}
