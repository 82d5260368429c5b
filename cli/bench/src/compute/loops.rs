//! Loops of many small steps.

use grove::{
    compile::{scan, while_loop},
    prelude::*,
};

use super::{Place, Run};
use crate::work::Work;

/// Repeats `x * 0.999 + 0.5` for `steps` steps.
fn repeat<B: Backend>(steps: usize, x: Array<B, 1>) -> Array<B, 1> {
    let zero = Array::new(Tensor::<B, 1, Int>::zeros([1], &x.val().device()));
    let holds = |(i, _): (Array<B, 1, Int>, Array<B, 1>)| i.val().lower_elem(steps as i64);
    let step = |(i, x): (Array<B, 1, Int>, Array<B, 1>)| (Array::new(i.val() + 1), Array::new(x.val() * 0.999 + 0.5));
    while_loop(holds, step, (zero, x)).1
}

/// Scans `tanh(c / 2 + x)`. Returns the last carry and the carries of all steps.
fn filter<B: Backend>((init, xs): (Array<B, 1>, Array<B, 2>)) -> (Array<B, 1>, Array<B, 2>) {
    let step = |c: Array<B, 1>, x: Array<B, 1>| {
        let c = Array::<B, 1>::new((c.val() * 0.5 + x.val()).tanh());
        (c.clone(), c)
    };
    scan(step, init, xs)
}

pub fn prepare<B: Backend>(work: &Work, place: Place<B>) -> Run {
    match *work {
        Work::While { steps } => {
            let x = Array::new(place.normal::<1>(0, [1]));
            let jitted = jit(move |x| repeat::<Traced>(steps, x));
            place.run(move || jitted.call::<B>(x.clone()))
        }
        Work::Scan { steps, size, train } => {
            let args = (Array::new(place.normal::<1>(0, [size])), Array::new(place.normal::<2>(1, [steps, size])));
            if !train {
                let jitted = jit(filter::<Traced>);
                return place.run(move || jitted.call::<B>(args.clone()));
            }
            let jitted =
                jit(|args: (Array<Traced, 1>, Array<Traced, 2>)| grad(&args, |args| filter(args).1.val().sum()));
            place.run(move || jitted.call::<B>(args.clone()))
        }
        _ => unreachable!("the work is not a loop"),
    }
}
