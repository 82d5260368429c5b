//! Second-order methods: Hutchinson's estimate of the trace of a Hessian, and a network fitted by Gauss-Newton steps.
//! `cargo run --example curvature`

use clap::Parser;
use grove::{
    backend::Flex,
    compile::{hessian, hvp, linearize},
    prelude::*,
    transform::vjp,
};

/// Estimates the trace of a Hessian, and fits a sine by the Gauss-Newton method.
#[derive(Parser)]
#[command(name = "curvature", version)]
struct Options {
    /// Number of random directions for the estimate of the trace
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    directions: u32,
    /// Number of Gauss-Newton steps
    #[arg(long, default_value_t = 15)]
    steps: usize,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

const POINTS: usize = 64;
const WIDTH: usize = 16;
/// Number of parameters: weights and biases of the hidden layer, weights and bias of the output.
const PARAMETERS: usize = 3 * WIDTH + 1;

/// Returns the residuals of a network with one hidden layer, fitted to a sine at points from -1 to 1. All parameters
/// are one vector.
fn errors<B: Backend>(parameters: Array<B, 1>) -> Array<B, 1> {
    let p = parameters.val();
    let part = |from: usize| p.clone().narrow(0, from * WIDTH, WIDTH).unsqueeze::<2>(); // [1, width]
    let x = Tensor::arange(0..POINTS as i64, &p.device()).float() * (2.0 / (POINTS - 1) as f64) - 1.0;
    let hidden = (x.clone().unsqueeze_dim::<2>(1) * part(0) + part(1)).tanh(); // [points, width]
    let y = (hidden * part(2)).sum_dim(1).squeeze_dim::<1>(1) + p.clone().narrow(0, 3 * WIDTH, 1);
    Array::new(y - (x * 3.0).sin())
}

/// Returns half the sum of squared residuals.
fn loss<B: Backend>(parameters: Array<B, 1>) -> Tensor<B, 1> {
    errors(parameters).val().square().sum() * 0.5
}

fn number(x: Tensor<Flex, 1>) -> f32 {
    x.into_scalar()
}

fn dot(a: &Tensor<Flex, 1>, b: &Tensor<Flex, 1>) -> f32 {
    number((a.clone() * b.clone()).sum())
}

/// Solves `A x = b` for a positive definite `A` by conjugate gradients.
fn conjugate_gradients(apply: impl Fn(&Tensor<Flex, 1>) -> Tensor<Flex, 1>, b: Tensor<Flex, 1>) -> Tensor<Flex, 1> {
    let (mut x, mut residual, mut direction) = (b.zeros_like(), b.clone(), b);
    let (start, mut size) = (dot(&residual, &residual), dot(&residual, &residual));
    for _ in 0..2 * PARAMETERS {
        if size <= 1e-10 * start {
            break;
        }
        let product = apply(&direction);
        let step = size / dot(&direction, &product);
        x = x + direction.clone() * step;
        residual = residual - product * step;
        let next = dot(&residual, &residual);
        direction = residual.clone() + direction * (next / size);
        size = next;
    }
    x
}

fn main() {
    let Options { directions, steps, json } = Options::parse();
    let device = Default::default();
    let mut parameters = Array::<Flex, 1>::new(Key::new(0).normal([PARAMETERS], &device) * 0.5);

    // Hutchinson: E[v' H v] = trace(H) for random signs v. `hvp` costs about as much as a few gradients and never
    // builds H.
    let estimate = (0..directions).map(|i| {
        let signs = Key::new(1).fold_in(i).bernoulli::<Flex, 1>([PARAMETERS], 0.5, &device).float() * 2.0 - 1.0;
        let product = hvp(loss, &parameters, &Array::new(signs.clone()));
        dot(&signs, &product.val())
    });
    let estimate = estimate.sum::<f32>() / directions as f32;
    let matrix = hessian(loss, &parameters).array::<2>().val();
    let diagonal = matrix.mask_fill(Tensor::<Flex, 2>::eye(PARAMETERS, &device).equal_elem(0.0), 0.0);
    let trace = number(diagonal.sum());
    println!("trace of the Hessian: {trace:.3}; from {directions} random directions: {estimate:.3}");

    // Levenberg-Marquardt: with the Jacobian J of the residuals e, the step d solves (J' J + damping I) d = J' e.
    let (mut damping, mut before) = (1.0_f32, number(loss(parameters.clone())));
    println!("loss before the first step: {before:.6}");
    for step in 1..=steps {
        let (_, jacobian) = linearize(errors::<Traced>, &parameters);
        let transposed = |errors_grad: Array<Flex, 1>| vjp(&parameters, errors::<Autodiff<Flex>>).1(errors_grad).val();
        let slope = transposed(errors(parameters.clone()));
        let curved = |v: &Tensor<Flex, 1>| transposed(jacobian.call(&Array::new(v.clone()))) + v.clone() * damping;
        let next = Array::new(parameters.val() - conjugate_gradients(curved, slope));
        let after = number(loss(next.clone()));
        // Reject a step that increases the loss, and increase the damping, which shortens the next step.
        if after < before {
            (parameters, before, damping) = (next, after, damping * 0.3);
        } else {
            damping *= 4.0;
        }
        println!("step {step}: loss {before:.6}, damping {damping:.1e}");
    }
    if json {
        println!("{}", serde_json::json!({ "trace": trace, "estimated_trace": estimate, "loss": before }));
    }
}
