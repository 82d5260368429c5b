//! StableHLO as text, one operation per line.

use std::fmt::{self, Write};

use super::{
    literal::Literal,
    value::{List, Mlir, Value, joined, signature, types},
};
use crate::{ArrayType, ElementType};

/// Builder of a function's text.
#[derive(Debug, Default)]
pub(super) struct Builder {
    text: String,
    depth: usize,
    count: usize,
}

impl Builder {
    /// Returns the text.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Appends a line without a value, such as the end of a region.
    pub fn line(&mut self, line: impl fmt::Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{:width$}{line}", "", width = 2 * (self.depth + 1));
    }

    /// Changes the indentation of the following lines.
    pub fn nest(&mut self, by: isize) {
        self.depth = self.depth.saturating_add_signed(by);
    }

    /// Indents the lines that a function appends.
    pub fn indented<T>(&mut self, lines: impl FnOnce(&mut Self) -> T) -> T {
        self.nest(1);
        let result = lines(self);
        self.nest(-1);
        result
    }

    /// Returns a value without a line, such as an argument of a region.
    pub fn argument(&mut self, array: ArrayType) -> Value {
        self.count += 1;
        Value { name: format!("%{}", self.count - 1), array }
    }

    /// Appends a line that defines a value.
    fn define(&mut self, operation: impl fmt::Display, array: ArrayType) -> Value {
        let value = self.argument(array);
        self.line(format_args!("{value} = {operation}"));
        value
    }

    /// Appends an operation that states the type of its result.
    fn emit(&mut self, operation: impl fmt::Display, array: ArrayType) -> Value {
        let ty = Mlir(&array).to_string();
        self.define(format_args!("{operation} : {ty}"), array)
    }

    /// Appends an operation that states the types of its operands and of its result.
    pub fn emit_typed<'a>(
        &mut self,
        operation: impl fmt::Display,
        operands: impl IntoIterator<Item = &'a Value>,
        array: ArrayType,
    ) -> Value {
        let types = signature(operands, &array);
        self.define(format_args!("{operation} : {types}"), array)
    }

    /// Returns the results of an operation with several, and their names at the start of its line.
    pub fn results(&mut self, arrays: impl IntoIterator<Item = ArrayType>) -> (String, Vec<Value>) {
        self.count += 1;
        let name = format!("%{}", self.count - 1);
        let value = |(i, array)| Value { name: format!("{name}#{i}"), array };
        let values: Vec<Value> = arrays.into_iter().enumerate().map(value).collect();
        (format!("{name}:{}", values.len()), values)
    }

    // Element-wise functions.

    /// An operation whose result has the type of its operand, such as `stablehlo.negate`.
    pub fn unary(&mut self, name: &str, x: &Value) -> Value {
        let ty = Mlir(&x.array);
        // CHLO operations state both types.
        let ty = if name.starts_with("chlo.") { format!("{ty} -> {ty}") } else { ty.to_string() };
        self.define(format_args!("{name} {x} : {ty}"), x.array.clone())
    }

    /// An operation with two operands of one type, such as `stablehlo.add`.
    pub fn binary(&mut self, name: &str, a: &Value, b: &Value) -> Value {
        self.emit(format_args!("stablehlo.{name} {a}, {b}"), a.array.clone())
    }

    /// A comparison, such as `LT`.
    pub fn compare(&mut self, direction: &str, a: &Value, b: &Value) -> Value {
        let kind = match a.element() {
            element if element.is_float() => "FLOAT",
            element if element.is_signed() => "SIGNED",
            _ => "UNSIGNED",
        };
        let array = ArrayType::new(ElementType::Bool, a.dims());
        self.emit_typed(format_args!("stablehlo.compare {direction}, {a}, {b}, {kind}"), [a, b], array)
    }

    /// Selects elements of `a` where the mask is true, and of `b` elsewhere.
    pub fn select(&mut self, mask: &Value, a: &Value, b: &Value) -> Value {
        self.define(format_args!("stablehlo.select {mask}, {a}, {b} : {}", types([mask, a])), a.array.clone())
    }

    /// Converts elements to another type.
    pub fn convert(&mut self, x: &Value, to: ElementType) -> Value {
        if x.element() == to {
            return x.clone();
        }
        self.emit_typed(format_args!("stablehlo.convert {x}"), [x], ArrayType::new(to, x.dims()))
    }

    /// Constrains the sharding of an array on the mesh.
    pub fn constrained(&mut self, x: &Value, sharding: &str) -> Value {
        self.emit(format_args!("sdy.sharding_constraint {x} {sharding}"), x.array.clone())
    }

    /// Reinterprets the bits as another type.
    pub fn bitcast(&mut self, x: &Value, to: ElementType) -> Value {
        self.emit_typed(format_args!("stablehlo.bitcast_convert {x}"), [x], ArrayType::new(to, x.dims()))
    }

    // Arrays without operands.

    /// Returns an array filled with one number.
    pub fn full(&mut self, array: ArrayType, value: impl Into<Literal>) -> Value {
        let value = if array.dims.contains(&0) { String::new() } else { value.into().text(array.element) };
        self.emit(format_args!("stablehlo.constant dense<{value}>"), array)
    }

    /// Returns a scalar.
    pub fn scalar(&mut self, element: ElementType, value: impl Into<Literal>) -> Value {
        self.full(ArrayType::new(element, []), value)
    }

    /// Returns an array of given elements, in row-major order.
    pub fn values(&mut self, array: ArrayType, values: impl IntoIterator<Item = impl Into<Literal>>) -> Value {
        let values: Vec<String> = values.into_iter().map(|value| value.into().text(array.element)).collect();
        let flat = array.dims.iter().product::<usize>();
        let row = ArrayType::new(array.element, [flat]);
        let x = self.emit(format_args!("stablehlo.constant dense<[{}]>", values.join(", ")), row);
        self.reshape(&x, &array.dims)
    }

    /// Returns an array from the little-endian bytes of its elements, in row-major order.
    pub fn bytes(&mut self, array: ArrayType, bytes: &[u8]) -> Value {
        let mut digits = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            // Writing to a string does not fail.
            let _ = write!(digits, "{byte:02X}");
        }
        self.emit(format_args!("stablehlo.constant dense<\"0x{digits}\">"), array)
    }

    /// Returns an array of the same type filled with one number.
    pub fn full_like(&mut self, x: &Value, value: impl Into<Literal>) -> Value {
        self.full(x.array.clone(), value)
    }

    /// Returns the index along an axis.
    pub fn iota(&mut self, array: ArrayType, axis: usize) -> Value {
        self.emit(format_args!("stablehlo.iota dim = {axis}"), array)
    }

    // Shapes.

    /// Broadcasts an array; `axes` are the positions of its axes in the shape `dims`.
    pub fn broadcast(&mut self, x: &Value, dims: &[usize], axes: &[usize]) -> Value {
        if x.dims() == dims {
            return x.clone();
        }
        let text = format!("stablehlo.broadcast_in_dim {x}, dims = [{}]", List(axes));
        self.emit_typed(text, [x], x.with_dims(dims))
    }

    /// Broadcasts an array along its last axes; axes of size 1 are repeated.
    pub fn broadcast_to(&mut self, x: &Value, dims: &[usize]) -> Value {
        let axes: Vec<usize> = (dims.len() - x.rank()..dims.len()).collect();
        self.broadcast(x, dims, &axes)
    }

    /// Broadcasts two arrays of the same rank against each other; axes of size 1 are repeated.
    pub fn broadcast_together(&mut self, a: &Value, b: &Value) -> (Value, Value) {
        let dims: Vec<usize> = a.dims().iter().zip(b.dims()).map(|(a, b)| if *a == 1 { *b } else { *a }).collect();
        (self.broadcast_to(a, &dims), self.broadcast_to(b, &dims))
    }

    /// Reshapes an array.
    pub fn reshape(&mut self, x: &Value, dims: &[usize]) -> Value {
        if x.dims() == dims {
            return x.clone();
        }
        self.emit_typed(format_args!("stablehlo.reshape {x}"), [x], x.with_dims(dims))
    }

    /// Permutes the axes.
    pub fn transpose(&mut self, x: &Value, axes: &[usize]) -> Value {
        if axes.iter().copied().eq(0..axes.len()) {
            return x.clone();
        }
        let array = x.with_dims(axes.iter().map(|axis| x.dims()[*axis]).collect::<Vec<_>>());
        self.emit_typed(format_args!("stablehlo.transpose {x}, dims = [{}]", List(axes)), [x], array)
    }

    /// Reverses axes.
    pub fn reverse(&mut self, x: &Value, axes: &[usize]) -> Value {
        self.emit(format_args!("stablehlo.reverse {x}, dims = [{}]", List(axes)), x.array.clone())
    }

    /// Slices each axis from a start to a limit with a step.
    pub fn slice(&mut self, x: &Value, ranges: &[[usize; 3]]) -> Value {
        let dims: Vec<usize> = ranges.iter().map(|[start, limit, step]| (limit - start).div_ceil(*step)).collect();
        let ranges = joined(ranges.iter().map(|[start, limit, step]| match step {
            1 => format!("{start}:{limit}"),
            _ => format!("{start}:{limit}:{step}"),
        }));
        self.emit_typed(format_args!("stablehlo.slice {x} [{ranges}]"), [x], x.with_dims(dims))
    }

    /// Slices one axis.
    pub fn slice_axis(&mut self, x: &Value, axis: usize, [start, limit]: [usize; 2]) -> Value {
        let mut ranges: Vec<[usize; 3]> = x.dims().iter().map(|dim| [0, *dim, 1]).collect();
        ranges[axis] = [start, limit, 1];
        self.slice(x, &ranges)
    }

    /// Concatenates arrays along an axis.
    pub fn concatenate(&mut self, parts: &[Value], axis: usize) -> Value {
        if let [one] = parts {
            return one.clone();
        }
        let mut dims = parts[0].dims().to_vec();
        dims[axis] = parts.iter().map(|part| part.dims()[axis]).sum();
        let text = format!("stablehlo.concatenate {}, dim = {axis}", joined(parts));
        self.emit_typed(text, parts, parts[0].with_dims(dims))
    }

    /// Pads with a number before, after and between the elements of each axis. Negative padding before or after removes elements.
    pub fn pad(&mut self, x: &Value, value: &Value, [low, high, interior]: [&[i64]; 3]) -> Value {
        let sizes = x.dims().iter().zip(low).zip(high).zip(interior);
        let size = |(((dim, low), high), interior): (((&usize, &i64), &i64), &i64)| {
            let dim = *dim as i64;
            (low + high + dim + interior * (dim - 1).max(0)) as usize
        };
        let array = x.with_dims(sizes.map(size).collect::<Vec<_>>());
        let [low, high, interior] = [joined(low), joined(high), joined(interior)];
        let text = format!("low = [{low}], high = [{high}], interior = [{interior}]");
        self.emit_typed(format_args!("stablehlo.pad {x}, {value}, {text}"), [x, value], array)
    }

    /// Slices of given sizes at positions that are scalar values.
    pub fn dynamic_slice(&mut self, x: &Value, starts: &[Value], sizes: &[usize]) -> Value {
        let text = format!("stablehlo.dynamic_slice {x}, {}, sizes = [{}]", joined(starts), List(sizes));
        self.emit_typed(text, [x].into_iter().chain(starts), x.with_dims(sizes))
    }

    /// Replaces a part of an array at positions that are scalar values.
    pub fn dynamic_update_slice(&mut self, x: &Value, part: &Value, starts: &[Value]) -> Value {
        let text = format!("stablehlo.dynamic_update_slice {x}, {part}, {}", joined(starts));
        self.emit_typed(text, [x, part].into_iter().chain(starts), x.array.clone())
    }

    // Reductions.

    /// Reduces over axes, which are removed. `op` is the operation of two elements.
    pub fn reduce(&mut self, x: &Value, op: &str, init: impl Into<Literal>, axes: &[usize]) -> Value {
        let init = self.scalar(x.element(), init);
        let kept = x.dims().iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, dim)| *dim);
        let array = x.with_dims(kept.collect::<Vec<_>>());
        let text = format!("applies stablehlo.{op} across dimensions = [{}]", List(axes));
        self.emit_typed(format_args!("stablehlo.reduce({x} init: {init}) {text}"), [x, &init], array)
    }

    /// A product of arrays, with pairs of batch axes, which come first in the result, and pairs of contracted axes.
    pub fn dot_general(&mut self, a: &Value, b: &Value, batch: [&[usize]; 2], contract: [&[usize]; 2]) -> Value {
        let free = |x: &Value, side: usize| {
            let gone = |axis: &usize| batch[side].contains(axis) || contract[side].contains(axis);
            (0..x.rank()).filter(|axis| !gone(axis)).map(|axis| x.dims()[axis]).collect::<Vec<_>>()
        };
        let batched: Vec<usize> = batch[0].iter().map(|axis| a.dims()[*axis]).collect();
        let array = a.with_dims([batched, free(a, 0), free(b, 1)].concat());
        let batching = match batch[0] {
            [] => String::new(),
            _ => format!("batching_dims = [{}] x [{}], ", List(batch[0]), List(batch[1])),
        };
        let axes = format!("{batching}contracting_dims = [{}] x [{}]", List(contract[0]), List(contract[1]));
        self.emit_typed(format_args!("stablehlo.dot_general {a}, {b}, {axes}"), [a, b], array)
    }

    /// An operation in MLIR's generic form, with a region for a function of two elements.
    pub fn with_reducer(
        &mut self,
        name: &str,
        operands: &[&Value],
        attributes: &str,
        reducer: &str,
        array: ArrayType,
    ) -> Value {
        let types = signature(operands.iter().copied(), &array);
        let scalar = ArrayType::new(array.element, []);
        let result = self.argument(array);
        self.line(format_args!("{result} = \"{name}\"({}) <{{{attributes}}}> ({{", joined(operands)));
        self.reducer(&scalar, reducer);
        self.line(format_args!("}}) : {types}"));
        result
    }

    /// Returns the values after a barrier: no result is available before all operands are computed.
    pub fn barrier(&mut self, values: &[Value]) -> Vec<Value> {
        let (names, results) = self.results(values.iter().map(|x| x.array.clone()));
        let (given, types) = (joined(values), types(values));
        self.line(format_args!("{names} = stablehlo.optimization_barrier {given} : {types}"));
        results
    }

    /// All-reduces arrays of one element type over the replicas.
    pub fn all_reduce(&mut self, values: &[Value], attributes: &str) -> Vec<Value> {
        let scalar = values[0].with_dims([]);
        let (names, results) = self.results(values.iter().map(|x| x.array.clone()));
        let (given, types) = (joined(values), types(values));
        self.line(format_args!("{names} = \"stablehlo.all_reduce\"({given}) <{{{attributes}}}> ({{"));
        self.reducer(&scalar, "add");
        self.line(format_args!("}}) : ({types}) -> ({types})"));
        results
    }

    /// Appends the region of a function of two elements.
    fn reducer(&mut self, scalar: &ArrayType, name: &str) {
        let (a, b) = (self.argument(scalar.clone()), self.argument(scalar.clone()));
        let ty = Mlir(scalar);
        self.line(format_args!("^bb0({a}: {ty}, {b}: {ty}):"));
        self.indented(|lines| {
            let sum = lines.binary(name, &a, &b);
            lines.line(format_args!("stablehlo.return {sum} : {ty}"));
        });
    }
}
