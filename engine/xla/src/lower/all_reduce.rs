//! All-reduces over the ranks of a job: calls of a Rust function that communicates with the other ranks, or XLA's collectives if
//! one client has the devices of all ranks.

use burn::tensor::TensorData;
use grove_backend::ops::{AllReduce, Ranks};

use super::{LowerError, Lowering, Result, Value, custom_call::register_once};
use crate::{ArrayType, ElementType, FfiBuffer, FfiBufferMut, Plugin};

/// Name of the function in programs.
const NAME: &str = "grove_all_reduce";

/// Number of arguments before the arrays: the identifier of the ranks, a flag for adding f32 in f64, the description of the sum,
/// and the order token.
const BEFORE: usize = 4;

impl Lowering<'_> {
    /// Lowers the all-reduces. Each waits for the one before it, so that all ranks communicate in the same order.
    pub(super) fn all_reduce(&mut self, sum: &AllReduce, inputs: &[Option<Value>]) -> Result<Vec<Option<Value>>> {
        let refused = |reason: &str| LowerError { operation: "all_reduce".into(), reason: reason.into() };
        if self.mesh.is_some() {
            return Err(refused("a program on a mesh cannot all-reduce over ranks"));
        }
        let order = self.order.take().ok_or_else(|| refused("the condition of a loop cannot all-reduce over ranks"))?;
        let inputs: Vec<Value> = inputs.iter().flatten().cloned().collect();
        let mut results = match self.replicas {
            0 => self.call(sum, inputs, order),
            replicas => self.collective(inputs, order, replicas),
        };
        self.order = results.pop();
        Ok(results.into_iter().map(Some).collect())
    }

    /// Emits a collective of replicas, one on each rank. 16-bit values are added in f32.
    fn collective(&mut self, inputs: Vec<Value>, order: Value, replicas: usize) -> Vec<Value> {
        let lines = &mut self.lines;
        let types: Vec<ElementType> = inputs.iter().map(Value::element).collect();
        let wide = |element| if element == ElementType::F64 { element } else { ElementType::F32 };
        let mut values: Vec<Value> = inputs.iter().map(|x| lines.convert(x, wide(x.element()))).collect();
        values.push(order);
        let mut values = lines.barrier(&values);
        let groups = (0..replicas).map(|replica| replica.to_string()).collect::<Vec<_>>().join(", ");
        let attributes = format!("replica_groups = dense<[[{groups}]]> : tensor<1x{replicas}xi64>");
        for element in [ElementType::F32, ElementType::F64] {
            let of: Vec<usize> = (0..types.len()).filter(|&i| wide(types[i]) == element).collect();
            let given: Vec<Value> = of.iter().map(|&i| values[i].clone()).collect();
            let sums = if given.is_empty() { vec![] } else { lines.all_reduce(&given, &attributes) };
            of.into_iter().zip(sums).for_each(|(i, sum)| values[i] = sum);
        }
        let values = lines.barrier(&values);
        values.iter().zip(types.iter().chain([&ElementType::F32])).map(|(x, to)| lines.convert(x, *to)).collect()
    }

    /// Emits a call of the function.
    fn call(&mut self, sum: &AllReduce, inputs: Vec<Value>, order: Value) -> Vec<Value> {
        let lines = &mut self.lines;
        let number = lines.scalar(ElementType::I32, i64::from(sum.ranks.number()));
        let wide = lines.scalar(ElementType::I32, i64::from(sum.wide));
        let what = ArrayType::new(ElementType::U8, [sum.what.len()]);
        let what = lines.bytes(what, sum.what.as_bytes());
        let arrays: Vec<ArrayType> = inputs.iter().chain([&order]).map(|x| x.array.clone()).collect();
        let given: Vec<Value> = [number, wide, what, order].into_iter().chain(inputs).collect();
        lines.custom_call(NAME, &given, arrays)
    }
}

/// Registers the function for programs of a CPU plugin.
pub(crate) fn register(plugin: &Plugin) -> crate::Result<()> {
    register_once(plugin, NAME, call)
}

fn call(arguments: &[FfiBuffer<'_>], results: &mut [FfiBufferMut<'_>]) -> std::result::Result<(), String> {
    let (settings, arrays) = arguments.split_at_checked(BEFORE).ok_or("the all-reduce has no settings")?;
    let number = |i: usize| {
        settings[i].values::<i32>()?.first().copied().ok_or("a setting of the all-reduce has no value".to_owned())
    };
    let what = String::from_utf8_lossy(settings[2].bytes()).into_owned();
    let sum = AllReduce { ranks: Ranks::numbered(number(0)? as u32), what, wide: number(1)? != 0 };
    let array = |x: &FfiBuffer<'_>| {
        let array = x.array_type();
        TensorData::from_bytes_vec(x.bytes().to_vec(), array.dims.clone(), array.element.dtype())
    };
    let (order, results) = results.split_last_mut().ok_or("the all-reduce has no results")?;
    for (result, sum) in results.iter_mut().zip(sum.on_host(arrays.iter().map(array).collect())) {
        result.bytes_mut().copy_from_slice(sum.as_bytes());
    }
    order.bytes_mut().copy_from_slice(settings[3].bytes());
    Ok(())
}
