//! All modes of a function in one program, which is compiled once for all kinds of arguments.

use grove_backend::Backend;
use grove_compile::{Graph, Traced, jvp, trace, vmap};
use grove_tree::Array;
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::{Arrays, Case, Quantity, text};

/// Arguments of a case, the tangents, and the weights of its results.
pub type Inputs<B> = (Arrays<B>, Arrays<B>, Array<B, 1>);

type Function<'a> = Box<dyn Fn(Inputs<Traced>) -> Arrays<Traced> + 'a>;

/// A mode, its quantity, and the number of its results or the first line of its error.
pub type Counted = (&'static str, Quantity, Result<usize, String>);

/// Groups cases of one function with the same sizes and dtypes of arguments.
pub fn families(cases: &[Case]) -> Vec<Vec<&Case>> {
    let count = |text: &String| text.split_whitespace().count();
    let mut families: BTreeMap<_, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        let sizes: Vec<usize> = case.x.iter().chain([&case.w]).map(count).collect();
        families.entry((&case.function, &case.dtype, sizes)).or_default().push(case);
    }
    families.into_values().collect()
}

impl Case {
    pub fn inputs<B: Backend>(&self) -> Inputs<B> {
        (self.x(), self.t(), self.w())
    }

    /// Returns the functions of all modes that can be part of one program.
    fn functions(&self) -> Vec<(&'static str, Quantity, Function<'_>)> {
        use Quantity::{Gradient, Product, Tangent, Value};
        let value = || self.value::<Traced>();
        let tangent = move |(x, t): (Arrays<Traced>, Arrays<Traced>)| jvp(value(), &x, &t).1;
        let mapped_tangent = move |(x, t, _): Inputs<Traced>| {
            Self::last(vmap(tangent).call::<Traced, _>((Self::twice(x), Self::twice(t))))
        };
        let mapped_gradient =
            |(x, _, w): Inputs<Traced>| Self::last(vmap(self.gradient::<Traced>(w)).call::<Traced, _>(Self::twice(x)));
        let mapped_value = move |(x, ..): Inputs<Traced>| Self::last(vmap(value()).call::<Traced, _>(Self::twice(x)));
        let mut modes: Vec<(_, _, Function<'_>)> =
            vec![("jit", Value, Box::new(move |(x, ..)| value()(x))), ("vmap", Value, Box::new(mapped_value))];
        if self.forward {
            modes.push(("jvp", Tangent, Box::new(move |(x, t, _)| tangent((x, t)))));
            modes.push(("vmap(jvp)", Tangent, Box::new(mapped_tangent)));
        }
        if self.reverse {
            modes.push(("grad", Gradient, Box::new(|(x, _, w)| self.gradient::<Traced>(w)(x))));
            modes.push(("vmap(grad)", Gradient, Box::new(mapped_gradient)));
            modes.push(("hvp", Product, Box::new(|(x, t, w)| jvp(self.gradient::<Traced>(w), &x, &t).1)));
        }
        modes
    }

    /// Traces all modes that can be traced into one program. Also returns, for each mode, the number of its results or the
    /// first line of its error.
    pub fn in_one(&self) -> (Graph, Vec<Counted>) {
        let inputs = self.inputs::<grove_backend::Flex>();
        let count = |f: &Function<'_>| {
            let graph = catch_unwind(AssertUnwindSafe(|| trace(f, &inputs)));
            graph.map(|graph| graph.outputs().len()).map_err(text)
        };
        let (mut traced, mut modes) = (Vec::new(), Vec::new());
        for (mode, quantity, f) in self.functions() {
            let found = count(&f);
            if found.is_ok() {
                traced.push(f);
            }
            modes.push((mode, quantity, found));
        }
        let all = |inputs: Inputs<Traced>| traced.iter().flat_map(|f| f(inputs.clone())).collect::<Arrays<Traced>>();
        (trace(all, &inputs), modes)
    }
}
