//! Printing values at run time.

use burn::tensor::TensorData;
use grove_backend::{
    AnyTensor, Backend,
    ops::{Function, FunctionVjp, Outcome, Values, Wanted},
};
use grove_tree::{AnyArray, Tree, map_with_path};

use super::function::record_like_inputs;
use crate::{Primitive, target::missing, words::dtype_name};

/// Maximum number of elements that are printed.
const MAX_ELEMENTS: usize = 1000;

/// Returns its argument and prints the values on standard error when they are computed: `jax.debug.print`. The line of each
/// array has the name, the path, the type and the first 1,000 elements.
///
/// In a trace the graph has one operation for each array. Nothing is printed if the program does not use the result. In a loop,
/// every step prints. [`vmap`](crate::vmap()) prints all examples at once. The derivative is the identity, so the backward pass
/// prints nothing. XLA programs print on the CPU only.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::{Traced, debug_print, jit};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let f = jit(|x: Array<Traced, 1>| Array::<_, 1>::new(debug_print("x", x).val() * 2.0));
/// // x: f32[2] [1.0, 2.0]
/// f.call(Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default())));
/// ```
pub fn debug_print<B: Backend, T: Tree<B>>(name: &str, tree: T) -> T {
    map_with_path(tree, |path, leaf| match leaf.is_present() {
        true => {
            let path = path.to_string();
            let name = if path.is_empty() { name.to_owned() } else { format!("{name}.{path}") };
            AnyArray::present(printed(&name, leaf.into_value().unwrap_or_else(|| missing())))
        }
        false => leaf,
    })
}

/// Prints an array, or records the printing in a trace. Returns the same values.
pub(crate) fn printed<B: Backend>(name: &str, x: AnyTensor<B>) -> AnyTensor<B> {
    let print = DebugPrint { name: name.to_owned() };
    B::run_function(&print, std::iter::once(Some(x)).collect()).take(0).unwrap_or_else(|| missing())
}

/// Formats the line printed by [`debug_print`].
pub fn debug_text(name: &str, data: &TensorData) -> String {
    let sizes = data.shape.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let count = data.shape.num_elements();
    let elements: Vec<String> = match data.dtype {
        dtype if dtype.is_float() => data.iter::<f64>().take(MAX_ELEMENTS).map(|x| format!("{:?}", x as f32)).collect(),
        dtype if dtype.is_bool() => data.iter::<bool>().take(MAX_ELEMENTS).map(|x| x.to_string()).collect(),
        _ => data.iter::<i64>().take(MAX_ELEMENTS).map(|x| x.to_string()).collect(),
    };
    let rest = if count > MAX_ELEMENTS { format!(", and {} more", count - MAX_ELEMENTS) } else { String::new() };
    format!("{name}: {}[{sizes}] [{}{rest}]", dtype_name(data.dtype), elements.join(", "))
}

#[derive(Clone, Debug)]
struct DebugPrint {
    name: String,
}

impl Function for DebugPrint {
    type Vjp = Self;

    fn run<B: Backend>(&self, inputs: Values<B>) -> Values<B> {
        record_like_inputs(Primitive::DebugPrint(self.name.clone()), inputs).unwrap_or_else(|inputs| {
            let x = inputs.get(0).unwrap_or_else(|| missing());
            eprintln!("{}", debug_text(&self.name, &x.clone().into_data()));
            inputs
        })
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _: &Wanted) -> (Outcome<B>, Self) {
        (B::run_function(self, inputs).into(), self.clone())
    }
}

impl FunctionVjp for DebugPrint {
    fn vjp<B: Backend>(&self, _: Values<B>, mut grads: Values<B>, _: &Wanted) -> Values<B> {
        std::iter::once(grads.take(0)).collect()
    }
}
