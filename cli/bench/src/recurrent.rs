//! Comparison of three ways to run a recurrent network over sequences of different lengths: `--compare` of the example `rnn`.

use clap::{Args, ValueEnum};
use grove::{
    layers::rnn::{Cell, Gru, GruReset, Lstm, Recurrent, RnnOptions},
    prelude::*,
    tensor::FloatDType,
    transform::scan,
};
use serde_json::json;
use std::time::{Duration, Instant};

use grove_terminal::{Dtype, Exit, failure, report, usage};

/// Maximum difference between two forms in f32, relative to the largest value.
const TOLERANCE: f64 = 1e-3;

/// Options of the comparison.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// Time packed, padded and scanned sequences of random lengths, with random weights, instead of generating
    #[arg(long, conflicts_with_all = ["model", "prompt", "prompt_ids", "score", "summary"], help_heading = "Comparison")]
    pub compare: bool,

    /// Type of recurrent cell
    #[arg(long, value_enum, default_value_t = CellKind::Lstm, requires = "compare", help_heading = "Comparison")]
    cell: CellKind,

    /// Size of the inputs and of the hidden state
    #[arg(long, default_value_t = 256, value_name = "N", requires = "compare", help_heading = "Comparison")]
    hidden: usize,

    /// Number of recurrent layers
    #[arg(long, default_value_t = 1, value_name = "N", requires = "compare", help_heading = "Comparison")]
    layers: usize,

    /// Number of sequences
    #[arg(long, default_value_t = 32, value_name = "N", requires = "compare", help_heading = "Comparison")]
    batch: usize,

    /// Number of steps of the padded batch; lengths are uniform from 1 to N
    #[arg(long, default_value_t = 100, value_name = "N", requires = "compare", help_heading = "Comparison")]
    steps: usize,

    /// Seconds of runs for each measurement, after one warm-up run; at least three runs are made
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", requires = "compare", help_heading = "Comparison")]
    budget: f64,
}

#[derive(ValueEnum, Debug, Clone, Copy)]
enum CellKind {
    Lstm,
    Gru,
}

/// Way to run the network.
#[derive(Clone, Copy)]
enum Form {
    /// Packed sequences: padding is not computed.
    Packed,
    /// Padded batch: all steps of all sequences.
    Padded,
    /// Padded batch, computed by `scan` over the cell, as in JAX.
    Scan,
}

impl CompareArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), Exit> {
        for (name, size) in
            [("hidden", self.hidden), ("layers", self.layers), ("batch", self.batch), ("steps", self.steps)]
        {
            if size == 0 || size > 1 << 20 {
                return Err(usage(format!("--{name} is {size}; it must be between 1 and 2^20")));
            }
        }
        match self.budget.is_finite() && self.budget >= 0.0 {
            true => Ok(()),
            false => Err(usage(format!("--budget is {}; it must be a number of seconds", self.budget))),
        }
    }

    /// Runs the comparison and prints it.
    pub fn run<B: Backend>(&self, dtype: Dtype, seed: u64, json: bool, device: &B::Device) -> Result<(), Exit> {
        let key = Key::new(seed);
        let options = RnnOptions { layers: self.layers, ..RnnOptions::default() };
        let init = Init::new(key.fold_in(0), device);
        let n = self.hidden;
        let given = Given::<B>::new(self, dtype, key.fold_in(1), device);
        let compared = match self.cell {
            CellKind::Lstm => compare(&tree::cast(Lstm::new(n, n, &options, &init), dtype.into()), &given, self.budget),
            CellKind::Gru => compare(
                &tree::cast(Gru::with_reset(n, n, GruReset::After, &options, &init), dtype.into()),
                &given,
                self.budget,
            ),
        };
        self.tell(&given.lengths, &compared, json)?;
        match compared.apart.into_iter().find(|&apart| apart > TOLERANCE || apart.is_nan()) {
            Some(apart) if dtype == Dtype::F32 => {
                Err(failure(format!("packed and scan differ by {apart:.1e} of the largest number")))
            }
            _ => Ok(()),
        }
    }

    fn tell(&self, lengths: &[usize], Compared { times, apart }: &Compared, json: bool) -> Result<(), Exit> {
        let (valid, all) = (lengths.iter().sum::<usize>(), self.batch * self.steps);
        let cell = format!("{:?}", self.cell).to_lowercase();
        let rows =
            [("packed", valid), ("padded", all), ("scan", all)].into_iter().zip(times).map(|((form, steps), ms)| {
                let ratio = [ms[0] / times[0][0], ms[1] / times[0][1]];
                (form, steps * self.layers, ms, ratio)
            });
        let rows: Vec<_> = rows.collect();
        let forms: Vec<_> = rows
            .iter()
            .map(|(form, steps, ms, ratio)| {
                json!({
                    "form": form, "steps_computed": steps, "forward_ms": ms[0], "forward_ratio": ratio[0],
                    "forward_backward_ms": ms[1], "forward_backward_ratio": ratio[1],
                })
            })
            .collect();
        let Self { hidden, layers, batch, steps, .. } = self;
        let mut lines = vec![
            format!("{cell}: {layers} x {hidden}, {batch} sequences of 1 to {steps} steps, {valid} in all\n"),
            "                        forward    forward, backward".to_owned(),
            "form    steps      ms  to packed         ms  to packed".to_owned(),
        ];
        lines.extend(rows.iter().map(|(form, steps, [a, c], [b, d])| {
            format!("{form:<6} {steps:>6} {a:>7.2} {b:>10.2} {c:>10.2} {d:>10.2}")
        }));
        lines.push(format!(
            "\npacked and scan differ by at most {:.1e} of the largest number in outputs, {:.1e} in gradients",
            apart[0], apart[1]
        ));
        report(
            json,
            &json!({
                "cell": cell, "hidden": hidden, "layers": layers, "batch": batch, "steps": steps, "forms": forms,
                "output_difference": apart[0], "gradient_difference": apart[1],
            }),
            &lines.join("\n"),
        )
    }
}

/// Input sequences and the cotangent of their outputs.
struct Given<B: Backend> {
    /// Inputs, `[t, b, n]`.
    x: Tensor<B, 3>,
    /// Cotangent of the outputs, `[t, b, n]`; 0 after the end of a sequence, where the forms differ.
    dy: Tensor<B, 3>,
    lengths: Vec<usize>,
}

impl<B: Backend> Given<B> {
    fn new(args: &CompareArgs, dtype: Dtype, key: Key, device: &B::Device) -> Self {
        let (t, b, n) = (args.steps, args.batch, args.hidden);
        let dtype = FloatDType::from(dtype);
        let keys = key.split_n(3);
        let lengths = keys[0].randint_vec(b, 1, t as i32 + 1).into_iter().map(|length| length as usize).collect();
        let (x, dy) = (keys[1].normal::<B, 3>([t, b, n], device), keys[2].normal::<B, 3>([t, b, n], device));
        let mut given = Self { x: x.cast(dtype), dy: dy.cast(dtype), lengths };
        given.dy = given.dy.clone() * given.valid();
        given
    }

    /// Returns the mask of valid steps, `[t, b, 1]`: 1 within a sequence, 0 in padding.
    fn valid(&self) -> Tensor<B, 3> {
        let [t, b, _] = self.x.dims();
        let valid: Vec<f32> =
            (0..t).flat_map(|step| self.lengths.iter().map(move |&length| f32::from(step < length))).collect();
        Tensor::<B, 1>::from_floats(&*valid, &self.x.device()).reshape([t, b, 1]).cast(self.x.dtype())
    }
}

/// Results of the comparison.
struct Compared {
    /// Milliseconds of each form: forward, and forward with backward.
    times: [[f64; 2]; 3],
    /// Largest difference between packed and scan, in outputs and in gradients.
    apart: [f64; 2],
}

fn compare<B: Backend, C: Cell<B, S>, const S: usize>(layers: &Recurrent<C>, given: &Given<B>, budget: f64) -> Compared
where
    C::On<Autodiff<B>>: Cell<Autodiff<B>, S>,
{
    let device = given.x.device();
    let forward = |form: Form| outputs(form, layers, given.x.clone(), &given.lengths);
    let both = |form: Form| {
        value_and_grad(layers, |layers: Recurrent<C::On<Autodiff<B>>>| {
            let y = outputs(form, &layers, Tensor::from_inner(given.x.clone()), &given.lengths);
            (y * Tensor::from_inner(given.dy.clone())).sum()
        })
    };
    let times = [Form::Packed, Form::Padded, Form::Scan].map(|form| {
        let one = median_ms::<B>(&device, budget, || drop(forward(form)));
        [one, median_ms::<B>(&device, budget, || drop(both(form)))]
    });
    let valid = given.valid();
    let outputs = [Form::Packed, Form::Scan].map(|form| numbers(forward(form) * valid.clone()));
    let gradients = [Form::Packed, Form::Scan].map(|form| {
        let leaves = tree::leaves(&both(form).1);
        leaves
            .into_iter()
            .flat_map(|(_, leaf)| leaf.into_data().map_or(vec![f64::NAN], |data| data.iter().collect()))
            .collect::<Vec<f64>>()
    });
    Compared { times, apart: [outputs, gradients].map(|[a, b]| difference(&a, &b)) }
}

/// Returns the outputs of the last layer, `[t, b, n]`.
fn outputs<B: Backend, C: Cell<B, S>, const S: usize>(
    form: Form,
    layers: &Recurrent<C>,
    x: Tensor<B, 3>,
    lengths: &[usize],
) -> Tensor<B, 3> {
    match form {
        Form::Packed => layers.forward_lengths(x, lengths, None, None).expect("lengths are within the batch").0,
        Form::Padded => layers.forward(x, None, None).0,
        Form::Scan => {
            let b = x.dims()[1];
            let layer = |x: Array<B, 3>, cell: &C| {
                let first: Tensor<B, 2> = x.val().narrow(0, 0, 1).squeeze_dim(0);
                let zeros = cell.zeros(b, &first);
                scan::<B, _, _, Array<B, 2>>(|state, x| cell.step(state, x), zeros, x).1
            };
            layers.layers.iter().fold(Array::new(x), |x, directions| layer(x, &directions.forward)).val()
        }
    }
}

/// Returns the median time of `run` on the device in milliseconds, after one warm-up run.
fn median_ms<B: Backend>(device: &B::Device, budget: f64, run: impl Fn()) -> f64 {
    let timed = || {
        let start = Instant::now();
        run();
        // An error of the device is reported when the next result is read.
        let _ = B::sync(device);
        start.elapsed()
    };
    timed();
    let mut times = Vec::new();
    while times.len() < 3 || times.iter().sum::<Duration>().as_secs_f64() < budget {
        times.push(timed());
    }
    times.sort();
    1e3 * times[times.len() / 2].as_secs_f64()
}

fn numbers<B: Backend>(x: Tensor<B, 3>) -> Vec<f64> {
    x.into_data().iter().collect()
}

/// Returns the largest difference relative to the largest value of `a`.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    let largest = a.iter().fold(0f64, |most, x| most.max(x.abs()));
    let apart =
        a.iter().zip(b).fold(0f64, |most, (x, y)| if (x - y).is_nan() { f64::NAN } else { most.max((x - y).abs()) });
    apart / largest.max(f64::MIN_POSITIVE)
}
