//! The order of computation within a tile, and the places of its values.

use super::{Map, Pair, Step, Sum, several::Arithmetic};

/// Place of a value during the computation of a tile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    Input(usize),
    Slot(usize),
    Output(usize),
    /// In registers only: the next step of the same pass is its only use.
    Nowhere,
}

/// A loop over a tile.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pass {
    /// Steps that are computed together. The last step's result is written. Each other result is used only by the next step.
    pub steps: Vec<usize>,
}

impl Pass {
    /// Returns the step whose result is written.
    pub fn last(&self) -> usize {
        self.steps[self.steps.len() - 1]
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub passes: Vec<Pass>,
    /// Places of the inputs, followed by those of the steps' results.
    pub places: Vec<Place>,
    /// Number of slots.
    pub slots: usize,
}

impl Plan {
    /// Plans the steps after `count` inputs.
    pub fn new(count: usize, steps: &[Step], outputs: &[usize], sums: &[Sum]) -> Self {
        let passes =
            passes(count, steps, |value| outputs.contains(&value) || sums.iter().any(|sum| sum.value == value));
        let operands = |pass: &Pass| {
            let own: Vec<usize> = pass.steps.iter().map(|step| count + step).collect();
            let all: Vec<usize> = pass.steps.iter().flat_map(|step| steps[*step].operands()).collect();
            all.into_iter().filter(move |x| !own.contains(x))
        };
        let mut last = vec![0; count + steps.len()];
        for (i, pass) in passes.iter().enumerate() {
            for x in operands(pass) {
                last[x] = i;
            }
        }
        let mut places: Vec<_> = (0..count).map(Place::Input).collect();
        places.resize(count + steps.len(), Place::Nowhere);
        let (mut free, mut slots) = (Vec::new(), 0);
        for (i, pass) in passes.iter().enumerate() {
            let value = count + pass.last();
            // Assigned before the operands' places are freed: a pass never writes to a place that it reads.
            places[value] = match outputs.iter().position(|output| *output == value) {
                Some(output) => Place::Output(output),
                None => Place::Slot(free.pop().unwrap_or_else(|| {
                    slots += 1;
                    slots - 1
                })),
            };
            let mut done: Vec<_> = operands(pass).filter(|x| last[*x] == i).collect();
            done.sort_unstable();
            done.dedup();
            free.extend(done.into_iter().filter_map(|x| match places[x] {
                Place::Slot(slot) => Some(slot),
                _ => None,
            }));
        }
        Self { passes, places, slots }
    }
}

/// Groups the steps, in order, into passes for which loops exist.
fn passes(count: usize, steps: &[Step], kept: impl Fn(usize) -> bool) -> Vec<Pass> {
    let mut uses = vec![0; count + steps.len()];
    for x in steps.iter().flat_map(|step| step.operands()) {
        uses[x] += 1;
    }
    let mut groups: Vec<Option<Vec<usize>>> = Vec::with_capacity(steps.len());
    for (i, step) in steps.iter().enumerate() {
        let joined = step.operands().filter_map(|x| x.checked_sub(count)).find(|&before| {
            let alone = uses[count + before] == 1 && !kept(count + before);
            let group = groups[before].as_deref().filter(|_| alone);
            group.is_some_and(|group| fit(&group.iter().map(|step| steps[*step]).collect::<Vec<_>>(), *step))
        });
        let mut group = joined.and_then(|before| groups[before].take()).unwrap_or_default();
        group.push(i);
        groups.push(Some(group));
    }
    groups.into_iter().flatten().map(|steps| Pass { steps }).collect()
}

/// Returns true if a loop exists for `steps`, each of which uses the result of the one before, followed by `next`.
fn fit(steps: &[Step], next: Step) -> bool {
    let affine = |steps: &[Step]| matches!(steps, [Step::Pair(Pair::Mul, ..), Step::Pair(Pair::Add, ..)]);
    match (steps, next) {
        ([Step::Pair(first, ..) | Step::Number(first, ..)], Step::Pair(second, ..) | Step::Number(second, ..)) => {
            Arithmetic::of(*first).is_some() && Arithmetic::of(second).is_some()
        }
        ([before @ .., Step::Map(map, _)], Step::Pair(second, ..)) => {
            (before.is_empty() || affine(before)) && map.is_long() && Arithmetic::of(second).is_some()
        }
        (steps, Step::Map(map, _)) => affine(steps) && map.is_long(),
        _ => false,
    }
}

impl Map {
    /// Returns true for functions of many instructions, which justify a loop of their own for each operation that may follow.
    fn is_long(self) -> bool {
        matches!(self, Self::Exp | Self::Erf | Self::Tanh | Self::GeluErf | Self::GeluTanh | Self::Selu)
    }
}
