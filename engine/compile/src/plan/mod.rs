//! Loops over small arrays, planned once and run without tensors.
//!
//! On backends whose arrays are in host memory ([`Backend::LOOPS`]), a loop whose steps use small arrays becomes a
//! [program](grove_backend::ops::loops) of instructions on one block of memory. Its results equal a step-by-step run of the
//! sub-graphs bit for bit. Operations without an instruction are called on tensors between the instructions. Values that do not
//! depend on the step are computed before the loop. Nested loops and branches are part of the program.
//!
//! | module | content |
//! |---|---|
//! | `planner` | values, their places in memory, and equations as instructions |
//! | `elementwise`, `movement`, `sums`, `chain` | instructions for primitives |
//! | `nested` | loops and branches |
//! | `run` | running a plan on tensors |

mod chain;
mod elementwise;
mod movement;
mod nested;
mod planner;
mod run;
mod sums;
#[cfg(test)]
mod tests;

use burn::tensor::{BoolStore, DType, TensorData};
use grove_backend::{
    Backend,
    ops::{
        Spec,
        loops::{Kind, Place, Program, Sizes},
    },
};

use crate::{
    Primitive,
    sub_graph::{HigherOrder, ScanLoop, SubGraph, WhileLoop},
    target::Target,
};
use planner::Planner;

/// Maximum number of elements of an array within a step. Operations on larger arrays take longer than the time that a plan
/// saves.
const MAX_ELEMENTS: usize = 1 << 12;

/// Maximum number of elements of all arrays of a plan, including the stacked arrays of a scan.
const MAX_TOGETHER: usize = 1 << 27;

/// A loop as a program.
pub(crate) struct Plan {
    inputs: Vec<Spec>,
    constants: Vec<TensorData>,
    /// Equations that run once on tensors, before the program.
    before: Vec<Call>,
    sizes: Sizes,
    /// Tensors that are copied into memory before the program starts.
    loads: Vec<(Tensor, Place)>,
    program: Program,
    /// Equations that run on tensors within the program.
    calls: Vec<Call>,
    outputs: Vec<(Place, Spec)>,
}

/// A tensor that does not depend on the step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tensor {
    Input(usize),
    Constant(usize),
    /// An output of an equation that runs before the program.
    Before(usize, usize),
}

/// An equation that runs on tensors.
struct Call {
    primitive: Primitive,
    inputs: Vec<Option<Source>>,
    outputs: Vec<Option<Spec>>,
    /// Places of the outputs; `None` for outputs that stay tensors.
    places: Vec<Option<Place>>,
}

/// Origin of an input of a call.
enum Source {
    Tensor(Tensor),
    Place(Place, Spec),
}

/// Plan of a body as part of one loop.
pub(crate) struct PlanOf {
    key: Key,
    plan: Option<Plan>,
}

/// Properties of a loop that determine its plan, together with its body.
struct Key {
    condition: Option<SubGraph>,
    length: usize,
    reverse: bool,
    consts: usize,
    carries: usize,
}

impl Key {
    fn of(op: &HigherOrder) -> Option<(Self, &SubGraph)> {
        match op {
            HigherOrder::While(WhileLoop { cond, body, consts }) => {
                let condition = Some(cond.clone());
                Some((Self { condition, length: 0, reverse: false, consts: *consts, carries: 0 }, body))
            }
            HigherOrder::Scan(ScanLoop { body, length, reverse, consts, carries }) => {
                let (length, reverse, consts, carries) = (*length, *reverse, *consts, *carries);
                Some((Self { condition: None, length, reverse, consts, carries }, body))
            }
            _ => None,
        }
    }

    fn is(&self, other: &Self) -> bool {
        let same_condition = match (&self.condition, &other.condition) {
            (Some(a), Some(b)) => a.is_same(b),
            (None, None) => true,
            _ => false,
        };
        let rest = |key: &Self| (key.length, key.reverse, key.consts, key.carries);
        same_condition && rest(self) == rest(other)
    }
}

/// Calls a function with the plan of a loop, or `None` if the loop has no plan. The plan is cached with the body of the loop.
pub(crate) fn with_plan<B: Backend, R>(
    op: &HigherOrder,
    target: &Target<'_, B>,
    f: impl FnOnce(Option<&Plan>) -> R,
) -> R {
    let Some((key, body)) = Key::of(op).filter(|_| B::LOOPS) else { return f(None) };
    let kept = body.memo(|| {
        let plan = Planner::plan(op, target);
        PlanOf { key, plan }
    });
    match Key::of(op) {
        Some((key, _)) if kept.key.is(&key) => f(kept.plan.as_ref()),
        // The cached plan belongs to another loop with the same body.
        _ => f(Planner::plan(op, target).as_ref()),
    }
}

/// Returns the element type in memory for a dtype; `None` for unsupported dtypes.
fn kind(dtype: DType) -> Option<Kind> {
    Some(match dtype {
        DType::F32 => Kind::F32,
        DType::F64 => Kind::F64,
        DType::I32 => Kind::I32,
        DType::I64 => Kind::I64,
        DType::Bool(BoolStore::Native) => Kind::Bool,
        _ => return None,
    })
}
