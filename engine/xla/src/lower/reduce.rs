//! Reductions, positions of extremes, sorting, and cumulative reductions.

use grove_backend::ops::Argsort;
use grove_compile::primitive::Reduction;

use super::{
    builder::Builder,
    literal::Literal,
    value::{Mlir, Value, attribute, joined, types},
};
use crate::{ArrayType, ElementType};

/// Returns the operation of two elements, and its neutral element.
fn operation(op: Reduction) -> (&'static str, Literal) {
    match op {
        Reduction::Sum | Reduction::Mean => ("add", Literal::Int(0)),
        Reduction::Prod => ("multiply", Literal::Int(1)),
        Reduction::Max | Reduction::MaxAbs => ("maximum", Literal::Lowest),
        Reduction::Min => ("minimum", Literal::Highest),
    }
}

impl Builder {
    /// Reduces over an axis, which keeps size 1, or over all axes, to `[1]`. 16-bit sums are computed in f32.
    pub(super) fn reduction(&mut self, op: Reduction, x: &Value, axis: Option<usize>) -> Value {
        let (axes, dims): (Vec<usize>, Vec<usize>) = match axis {
            Some(axis) => {
                let dims = x.dims().iter().enumerate().map(|(i, dim)| if i == axis { 1 } else { *dim });
                (vec![axis], dims.collect())
            }
            None => ((0..x.rank()).collect(), vec![1]),
        };
        let wide = self.at_least_f32(x);
        let wide = if op == Reduction::MaxAbs { self.unary("stablehlo.abs", &wide) } else { wide };
        let (name, init) = operation(op);
        let mut sum = self.reduce(&wide, name, init, &axes);
        if op == Reduction::Mean {
            let count: usize = axes.iter().map(|axis| x.dims()[*axis]).product();
            let count = self.full_like(&sum, count);
            sum = self.binary("divide", &sum, &count);
        }
        let sum = self.convert(&sum, x.element());
        self.reshape(&sum, &dims)
    }

    /// Sums over axes, which are removed; 16-bit sums are computed in f32.
    pub(super) fn sum(&mut self, x: &Value, axes: &[usize]) -> Value {
        let wide = self.at_least_f32(x);
        let sum = self.reduce(&wide, "add", Literal::Int(0), axes);
        self.convert(&sum, x.element())
    }

    /// Returns the position of the first maximum along an axis (of the first NaN, if any), or of the minimum; the axis keeps size
    /// 1.
    pub(super) fn arg_extreme(&mut self, x: &Value, axis: usize, op: Reduction, element: ElementType) -> Value {
        let extreme = self.reduction(op, x, Some(axis));
        let extreme = self.broadcast_to(&extreme, x.dims());
        let mut found = self.compare("EQ", x, &extreme);
        if x.element().is_float() {
            let nan = self.compare("NE", x, x);
            found = self.binary("or", &found, &nan);
        }
        let positions = self.iota(ArrayType::new(element, x.dims()), axis);
        let none = self.full_like(&positions, Literal::Highest);
        let positions = self.select(&found, &positions, &none);
        self.reduction(Reduction::Min, &positions, Some(axis))
    }

    /// Returns the `k` largest elements along an axis, in descending order, and their positions. NaN comes first.
    pub(super) fn largest(&mut self, x: &Value, axis: usize, k: usize, element: ElementType) -> [Value; 2] {
        let sorted = self.sorted(x, axis, element, |lines, a, b| {
            let greater = lines.compare("GT", a, b);
            if !a.element().is_float() {
                return greater;
            }
            let (nan, number) = (lines.compare("NE", a, a), lines.compare("EQ", b, b));
            let before = lines.binary("and", &nan, &number);
            lines.binary("or", &greater, &before)
        });
        sorted.map(|x| self.slice_axis(&x, axis, [0, k]))
    }

    /// Returns the positions that sort the elements, with NaN as the largest.
    pub(super) fn argsort(&mut self, argsort: &Argsort, x: &Value, element: ElementType) -> Value {
        let [_, positions] = self.sorted(x, argsort.axis, element, |lines, a, b| {
            let (a, b) = if argsort.descending { (b, a) } else { (a, b) };
            let less = lines.compare("LT", a, b);
            let (number, other) = (lines.compare("EQ", a, a), lines.compare("NE", b, b));
            let before = lines.binary("and", &number, &other);
            lines.binary("or", &less, &before)
        });
        positions
    }

    /// Sorts the elements along an axis by an order; also returns their positions.
    fn sorted(
        &mut self,
        x: &Value,
        axis: usize,
        element: ElementType,
        before: impl FnOnce(&mut Self, &Value, &Value) -> Value,
    ) -> [Value; 2] {
        let positions = self.iota(ArrayType::new(element, x.dims()), axis);
        let arrays = [x.array.clone(), positions.array.clone()];
        let (names, sorted) = self.results(arrays.clone());
        self.line(format_args!(
            "{names} = \"stablehlo.sort\"({x}, {positions}) <{{dimension = {axis} : i64, is_stable = true}}> ({{"
        ));
        let scalars = arrays.map(|array| ArrayType::new(array.element, []));
        let arguments: Vec<Value> =
            [0, 0, 1, 1].into_iter().map(|i| self.argument(ArrayType::clone(&scalars[i]))).collect();
        let list = joined(arguments.iter().map(|value| format!("{value}: {}", Mlir(&value.array))));
        self.line(format_args!("^bb0({list}):"));
        self.indented(|lines| {
            let before = before(lines, &arguments[0], &arguments[1]);
            lines.line(format_args!("stablehlo.return {before} : tensor<i1>"));
        });
        let both = types(&sorted);
        self.line(format_args!("}}) : ({both}) -> ({both})"));
        [sorted[0].clone(), sorted[1].clone()]
    }

    /// Cumulative sums, products or extremes along an axis.
    pub(super) fn cumulative(&mut self, op: Reduction, x: &Value, axis: usize) -> Value {
        let wide = self.at_least_f32(x);
        let (name, init) = operation(op);
        let init = self.scalar(wide.element(), init);
        let (rank, len) = (wide.rank(), wide.dims()[axis]);
        let along = |value: usize, other: usize| (0..rank).map(|i| if i == axis { value } else { other }).collect();
        let window: Vec<usize> = along(len.max(1), 1);
        let sums = self.reduce_window(
            &wide,
            &init,
            name,
            &Window {
                strides: vec![1; rank],
                dilation: vec![1; rank],
                padding: (0..rank).map(|i| [if i == axis { len.saturating_sub(1) } else { 0 }, 0]).collect(),
                size: window,
            },
        );
        self.convert(&sums, x.element())
    }

    /// Reduces over the windows of an array.
    pub(super) fn reduce_window(&mut self, x: &Value, init: &Value, op: &str, window: &Window) -> Value {
        let dims: Vec<usize> = (0..x.rank())
            .map(|i| {
                let [low, high] = window.padding[i];
                let reach = window.dilation[i] * (window.size[i] - 1) + 1;
                (low + x.dims()[i] + high).checked_sub(reach).map_or(0, |rest| rest / window.strides[i] + 1)
            })
            .collect();
        let attributes = [
            format!("base_dilations = {}", attribute(&vec![1; x.rank()])),
            format!("padding = {}", pairs(&window.padding)),
            format!("window_dilations = {}", attribute(&window.dilation)),
            format!("window_dimensions = {}", attribute(&window.size)),
            format!("window_strides = {}", attribute(&window.strides)),
        ];
        self.with_reducer("stablehlo.reduce_window", &[x, init], &attributes.join(", "), op, x.with_dims(dims))
    }
}

/// Windows of an array: size, stride, dilation, and padding before and after, for each axis.
pub(super) struct Window {
    pub size: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilation: Vec<usize>,
    pub padding: Vec<[usize; 2]>,
}

/// Formats pairs of numbers as an attribute.
fn pairs(pairs: &[[usize; 2]]) -> String {
    let rows = joined(pairs.iter().map(|[low, high]| format!("[{low}, {high}]")));
    format!("dense<[{rows}]> : tensor<{}x2xi64>", pairs.len())
}
