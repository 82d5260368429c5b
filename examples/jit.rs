//! Transformations of functions: SELU traced, printed, compiled, mapped and differentiated, and a whole train step of
//! AdamW as one graph.
//! `cargo run --example jit`

use clap::Parser;
use grove::prelude::*;
use grove::{backend::Flex, layers::activation::selu, optim::AdamwChain, tensor::backend::Backend as _};
use std::time::Instant;

/// Traces SELU and a train step, prints the graphs, and compares compiled calls with eager ones.
#[derive(Parser)]
#[command(name = "jit", version)]
struct Options {
    /// Number of elements of SELU's argument
    #[arg(long, default_value_t = 1_000_000)]
    elements: usize,
    /// Number of training steps
    #[arg(long, default_value_t = 200)]
    steps: usize,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

/// SELU in elementary operations, as in a textbook.
fn textbook<B: Backend>(x: Array<B, 1>) -> Array<B, 1> {
    let x = x.val();
    let negative = x.clone().exp().sub_scalar(1.0) * 1.673_263_242_354_377_2;
    Array::new(x.clone().mask_where(x.lower_elem(0.0), negative) * 1.050_700_987_355_480_5)
}

/// Two linear layers, and their optimizer state.
type Mlp<B> = (Linear<B>, Linear<B>);
type State<B> = <AdamwChain<B> as GradientTransformation<B, Mlp<B>>>::State;

type Args<B> = (Mlp<B>, State<B>, Array<B, 2>, Array<B, 2>);

/// Computes one step of AdamW, and the loss before it. The graph contains the loss, the backward pass and the
/// optimizer.
fn step<B: Backend>((model, state, x, y): Args<B>) -> (Mlp<B>, State<B>, Array<B, 1>) {
    let (loss, grads) = value_and_grad_with(&model, &(x, y), |(up, down), (x, y)| {
        squared_error(down.forward(selu(up.forward(x.val()))), y.val()).mean()
    });
    let (model, state) = adamw(0.01, Adamw::default()).step(grads, state, model);
    (model, state, Array::new(loss))
}

/// Returns the result of a function and its time in milliseconds.
fn timed<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = f();
    Flex::sync(&Default::default()).expect("a CPU does not fail");
    (result, start.elapsed().as_secs_f64() * 1e3)
}

/// Returns the shortest time of ten calls, in milliseconds.
fn best_of_ten(f: impl Fn()) -> f64 {
    (0..10).map(|_| timed(&f).1).fold(f64::INFINITY, f64::min)
}

fn main() {
    let Options { elements, steps, json } = Options::parse();
    let device = Default::default();
    let x = Array::<Flex, 1>::new(Key::new(0).normal([elements], &device));

    println!("{}\n", trace(textbook::<Traced>, &x));
    let jitted = jit(textbook::<Traced>);
    let (_, first) = timed(|| jitted.call::<Flex>(x.clone()));
    let (y, second) = timed(|| jitted.call::<Flex>(x.clone()));
    let (expected, eager) = timed(|| textbook(x.clone()));
    assert!(
        tree::all_close::<Flex, _>(&y, &expected, 1e-6, 1e-6),
        "jitted and eager results differ by more than rounding"
    );
    // Measure the steady state, with memory already allocated.
    let steady = best_of_ten(|| drop(jitted.call::<Flex>(x.clone())));
    let eager_steady = best_of_ten(|| drop(textbook(x.clone())));
    println!("SELU of {elements}: first call {first:.2} ms, second {second:.2} ms, eager {eager:.2} ms");
    println!("  the best of ten more: jitted {steady:.2} ms, eager {eager_steady:.2} ms");
    println!("  the compiled graph: {}\n", jitted.graph().expect("a program was used"));

    // Slope at each point: `jvp` differentiates the function of one number, and `vmap` maps it over the points.
    let points = Array::<Flex, 2>::new(Tensor::from_floats([[-1.0], [0.5], [2.0]], &device));
    let slope = |x: Array<Traced, 1>| jvp(textbook, &x, &Array::new(x.val().ones_like())).1;
    println!(
        "slopes at -1, 0.5 and 2: {:?}\n",
        vmap(slope).call(points).val().into_data().iter::<f32>().collect::<Vec<_>>()
    );

    let init = Init::new(Key::new(1), &device);
    let model: Mlp<Flex> = (Linear::new(8, 64, init.named("up")), Linear::new(64, 1, init.named("down")));
    let x = Array::<Flex, 2>::new(Key::new(2).normal([32, 8], &device));
    let y = Array::new(x.val().sum_dim(1).sin());
    let state = adamw(0.01, Adamw::default()).init(&model);
    let loss = |(up, down): Mlp<Autodiff<Traced>>, (x, y): (Array<Autodiff<Traced>, 1>, Array<Autodiff<Traced>, 1>)| {
        squared_error(down.forward(selu(up.forward(x.val()))), y.val()).mean()
    };
    let grads = per_example_grads(&model, (x.clone(), y.clone()), loss);
    println!("gradients of the {} examples: {}\n", grads.len(), tree::display(&grads));

    let train = |step: &dyn Fn(Args<Flex>) -> (Mlp<Flex>, State<Flex>, Array<Flex, 1>)| {
        let (mut model, mut state, mut losses) = (model.clone(), state.clone(), vec![]);
        for _ in 0..steps {
            let loss;
            (model, state, loss) = step((model, state, x.clone(), y.clone()));
            losses.push(loss.val().into_scalar());
        }
        losses
    };
    let jitted = jit(step::<Traced>);
    let (found, jitted_ms) = timed(|| train(&|args| jitted.call::<Flex>(args)));
    let (expected, eager_ms) = timed(|| train(&step::<Flex>));
    let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-4, "jitted and eager training differ by {apart}");
    let graph = jitted.graph().expect("a program was used");
    println!("a train step is {} operations: {:?}", graph.equations().len(), graph.counts());
    let (before, after) = (found.first().copied().unwrap_or_default(), found.last().copied().unwrap_or_default());
    println!("{steps} steps: loss {before:.3} to {after:.3}; jitted {jitted_ms:.0} ms, eager {eager_ms:.0} ms");
    if json {
        println!(
            "{}",
            serde_json::json!({ "first_ms": first, "second_ms": second, "steady_ms": steady, "eager_ms": eager_steady, "operations": graph.equations().len(),
                "jitted_ms": jitted_ms, "eager_steps_ms": eager_ms, "loss": after })
        );
    }
}
