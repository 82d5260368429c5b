//! Arrays that a function captures instead of receiving them as arguments.
//!
//! An operation with sub-graphs, such as a branch of `cond`, differentiates its arguments. If a gradient flows to an array
//! that its function captured, that array becomes an argument: [`capturing`] records such arrays while the function runs,
//! and [`Captured::replaced`] runs the function again with other arrays in their place. Both intercept the arguments of
//! each method of [`Autodiff`](super::Autodiff).

use burn_autodiff::NodeId;
use std::{
    any::{Any, TypeId},
    cell::RefCell,
    collections::HashMap,
};

use burn::tensor::ops::FloatTensor;

use super::Float;
use crate::{Backend, ops::AnyTensor};

/// Captured arrays of a function to which gradients flow.
#[derive(Clone, Debug)]
pub struct Captured<B: Backend> {
    nodes: Vec<u64>,
    arrays: Vec<AnyTensor<B>>,
}

/// A running function.
struct Frame {
    /// Type of the intercepted tensors: one level of differentiation.
    level: TypeId,
    /// First node that the function creates. Tensors with earlier nodes are captured.
    start: u64,
    arrays: Arrays,
}

enum Arrays {
    /// Captured arrays, in order of first use.
    Found(Vec<(u64, Box<dyn Any>)>),
    /// Replacements of captured arrays, by node.
    Given(HashMap<u64, Box<dyn Any>>),
}

thread_local! {
    static FRAMES: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
}

/// Runs a function and records the captured arrays to which gradients flow.
pub fn capturing<B: Backend, R>(f: impl FnOnce() -> R) -> (R, Captured<B>) {
    let frame = Frame::new::<B>(Arrays::Found(Vec::new()));
    let (result, arrays) = frame.during(f);
    let Arrays::Found(found) = arrays else { unreachable!("a frame keeps its kind") };
    let (nodes, arrays) =
        found.into_iter().filter_map(|(node, x)| Some((node, AnyTensor::Float(*x.downcast().ok()?)))).unzip();
    (result, Captured { nodes, arrays })
}

impl<B: Backend> Default for Captured<B> {
    fn default() -> Self {
        Self { nodes: Vec::new(), arrays: Vec::new() }
    }
}

impl<B: Backend> Captured<B> {
    /// Retains the arrays that satisfy a predicate. Other functions may run on the thread of the running function.
    pub fn only(self, keep: impl Fn(&AnyTensor<B>) -> bool) -> Self {
        let pairs = self.nodes.into_iter().zip(self.arrays);
        let (nodes, arrays) = pairs.filter(|(_, x)| keep(x)).unzip();
        Self { nodes, arrays }
    }

    /// The arrays.
    pub fn arrays(&self) -> &[AnyTensor<B>] {
        &self.arrays
    }

    /// Runs a function with other arrays in place of the captured ones.
    pub fn replaced<R>(&self, arrays: Vec<AnyTensor<B>>, f: impl FnOnce() -> R) -> R {
        let boxed = |x| match x {
            AnyTensor::Float(x) => Some(Box::new(x) as Box<dyn Any>),
            AnyTensor::Int(_) | AnyTensor::Bool(_) => None,
        };
        let pairs = self.nodes.iter().zip(arrays).filter_map(|(node, x)| Some((*node, boxed(x)?)));
        Frame::new::<B>(Arrays::Given(pairs.collect())).during(f).0
    }
}

impl Frame {
    fn new<B: Backend>(arrays: Arrays) -> Self {
        let level = TypeId::of::<FloatTensor<B>>();
        Self { level, start: NodeId::new().value, arrays }
    }

    /// Runs a function within the frame. The frame ends even if the function panics.
    fn during<R>(self, f: impl FnOnce() -> R) -> (R, Arrays) {
        /// Ends the frame of a function that panics.
        struct OnPanic;

        impl Drop for OnPanic {
            fn drop(&mut self) {
                pop();
            }
        }

        FRAMES.with_borrow_mut(|frames| frames.push(self));
        let on_panic = OnPanic;
        let result = f();
        std::mem::forget(on_panic);
        match pop() {
            Some(arrays) => (result, arrays),
            None => unreachable!("the frame was put there above"),
        }
    }

    /// Returns the replacement of a tensor, or the tensor itself.
    fn used<B: Backend>(&mut self, x: Float<B>) -> Float<B> {
        let node = x.node.id.value;
        if self.level != TypeId::of::<Float<B>>() || node >= self.start {
            return x;
        }
        match &mut self.arrays {
            Arrays::Found(found) => {
                let is_tracked = || x.is_tracked() || B::into_innermost(AnyTensor::Float(x.primitive.clone())).1;
                if !found.iter().any(|(known, _)| *known == node) && is_tracked() {
                    found.push((node, Box::new(x.clone())));
                }
                x
            }
            Arrays::Given(given) => match given.get(&node).and_then(|x| x.downcast_ref::<Float<B>>()) {
                Some(other) => other.clone(),
                None => x,
            },
        }
    }
}

/// Returns true while captured arrays are recorded or replaced on this thread.
pub fn is_capturing() -> bool {
    FRAMES.with_borrow(|frames| !frames.is_empty())
}

fn pop() -> Option<Arrays> {
    FRAMES.with_borrow_mut(Vec::pop).map(|frame| frame.arrays)
}

/// Replaces an argument of a method: a tensor, an optional tensor, or several. Other arguments are returned unchanged.
pub(crate) fn used<B: Backend, T: 'static>(argument: T) -> T {
    if !is_capturing() {
        return argument;
    }
    let mut place = Some(argument);
    let any: &mut dyn Any = &mut place;
    if let Some(x) = any.downcast_mut::<Option<Float<B>>>() {
        *x = x.take().map(tensor::<B>);
    } else if let Some(Some(x)) = any.downcast_mut::<Option<Option<Float<B>>>>() {
        *x = x.take().map(tensor::<B>);
    } else if let Some(Some(xs)) = any.downcast_mut::<Option<Vec<Float<B>>>>() {
        *xs = std::mem::take(xs).into_iter().map(tensor::<B>).collect();
    }
    match place {
        Some(argument) => argument,
        None => unreachable!("what was taken is put back"),
    }
}

/// Replaces a tensor, by the outermost function first.
pub(crate) fn tensor<B: Backend>(x: Float<B>) -> Float<B> {
    if !is_capturing() {
        return x;
    }
    FRAMES.with_borrow_mut(|frames| frames.iter_mut().fold(x, |x, frame| frame.used::<B>(x)))
}
