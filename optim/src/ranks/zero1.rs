use burn::tensor::{DType, Element, TensorData};
use grove_backend::Backend;
use grove_distributed::{CommError, Communicator, Number};
use grove_tree::{AnyArray, Tree, leaves, map};
use std::ops::Mul;

use crate::{GradientTransformation, leafwise::takes_part};

/// See [`zero1`].
#[derive(Clone, Debug)]
pub struct Zero1<T> {
    inner: T,
    comm: Communicator,
    reduced: bool,
}

/// Shards an optimizer's state and computation over the ranks. Rajbhandari et al., "ZeRO" (2020), stage 1,
/// <https://arxiv.org/abs/1910.02054>.
///
/// Each parameter belongs to one rank; the assignment balances the number of elements. A rank receives the mean
/// gradients of its parameters from all ranks, computes their updates, and sends the result to all ranks. An optimizer
/// that treats each parameter separately therefore gives the same bits as on one rank with gradients from
/// [`all_reduce_mean`](grove_distributed::all_reduce_mean). Transformations that combine all gradients, such as
/// [`clip_by_global_norm`](crate::clip_by_global_norm), do not: they see the parameters of one rank only. States of
/// other ranks' parameters are absent; [`gather_missing`](grove_distributed::gather_missing) collects them.
///
/// Buffers and frozen parameters belong to a rank too, but are not sent: the assignment does not depend on which
/// parameters are trained.
///
/// If a collective fails, the job ends with an error message; see [`Communicator::end_job`].
pub fn zero1<T>(optimizer: T, comm: &Communicator) -> Zero1<T> {
    Zero1 { inner: optimizer, comm: comm.clone(), reduced: false }
}

/// Panic message: a bug in grove, or another program on another rank.
const FEWER: &str = "a rank has fewer elements than belong to it";

impl<T> Zero1<T> {
    /// Expects gradients that are already means over the ranks: those that `grove_train::fit` passes to an optimizer,
    /// or the output of [`all_reduce_gradients`](crate::all_reduce_gradients) and clipping.
    pub fn of_reduced(self) -> Self {
        Self { reduced: true, ..self }
    }
}

/// Returns the rank of each leaf; `None` for leaves that are not floating-point. Assigns leaves by decreasing size,
/// each to the rank with the fewest elements.
///
/// Absent leaves have a rank too: the state may be made from the trained parameters only, while a step gets all of
/// them.
fn owners<B: Backend, P: Tree<B>>(params: &P, ranks: usize) -> Vec<Option<usize>> {
    let leaves = leaves(params);
    let mut order: Vec<usize> = (0..leaves.len()).collect();
    order.retain(|&i| leaves[i].1.dtype().is_float());
    order.sort_by_key(|&i| std::cmp::Reverse(leaves[i].1.len()));
    let (mut owners, mut loads) = (vec![None; leaves.len()], vec![0usize; ranks]);
    for i in order {
        let least = (0..ranks).min_by_key(|&rank| loads[rank]).unwrap_or(0);
        loads[least] += leaves[i].1.len();
        owners[i] = Some(least);
    }
    owners
}

/// Returns the owners of the leaves that have an update.
fn updated<B: Backend, P: Tree<B>>(updates: &P, owners: &[Option<usize>]) -> Vec<Option<usize>> {
    leaves(updates).iter().zip(owners).map(|((_, leaf), owner)| owner.filter(|_| takes_part(leaf))).collect()
}

/// Keeps the leaves of one rank; the others become absent.
fn owned<B: Backend, P: Tree<B>>(tree: P, owners: &[Option<usize>], rank: usize) -> P {
    let mut owners = owners.iter();
    map(tree, |leaf| match owners.next() {
        Some(Some(owner)) if *owner == rank => leaf,
        _ => leaf.into_absent(),
    })
}

impl<T> Zero1<T> {
    /// Returns the mean gradients of this rank's parameters; the others are absent.
    fn scatter<B: Backend, P: Tree<B>>(&self, updates: P, owners: &[Option<usize>]) -> Result<P, CommError> {
        if self.reduced {
            return Ok(owned(updates, owners, self.comm.rank()));
        }
        let narrow = self.reduce_scatter::<B, f32>(&leaves(&updates), owners)?;
        let wide = self.reduce_scatter::<B, f64>(&leaves(&updates), owners)?;
        let (mut narrow, mut wide) = (narrow.as_slice(), wide.as_slice());
        let updates = owned(updates, owners, self.comm.rank());
        Ok(map(updates, |leaf| {
            let Some(device) = leaf.device().filter(|_| leaf.dtype().is_float()) else { return leaf };
            let (length, shape) = (leaf.len(), leaf.shape().to_vec());
            let data = match leaf.dtype() {
                DType::F64 => TensorData::new(wide.split_off(..length).expect(FEWER).to_vec(), shape),
                _ => TensorData::new(narrow.split_off(..length).expect(FEWER).to_vec(), shape),
            };
            AnyArray::from_data(data, &device)
        }))
    }

    /// Returns the means of the elements that belong to this rank, of the gradients that are computed in `E`: f64 for
    /// f64 gradients, f32 for all others.
    fn reduce_scatter<B: Backend, E: Number + Element + Mul<Output = E>>(
        &self,
        gradients: &[(String, AnyArray<B>)],
        owners: &[Option<usize>],
    ) -> Result<Vec<E>, CommError> {
        let (mut ends, mut values) = (Vec::new(), Vec::<E>::new());
        for owner in 0..self.comm.size() {
            for ((_, leaf), of) in gradients.iter().zip(owners) {
                if *of == Some(owner) && (leaf.dtype() == DType::F64) == (E::dtype() == DType::F64) {
                    values.extend(leaf.clone().widen().into_data().iter().flat_map(|data| data.iter::<E>()));
                }
            }
            ends.push(values.len());
        }
        let sums = self.comm.reduce_scatter_at("gradients", values, &ends)?;
        let mean = E::from_elem(1.0 / self.comm.size() as f64);
        Ok(sums.into_iter().map(|sum| sum * mean).collect())
    }

    /// Gathers the leaves of all ranks, each from its owner. `like` has the shapes, dtypes and devices, and the leaves
    /// that no rank updates.
    fn gather<B: Backend, P: Tree<B>>(
        &self,
        tree: P,
        like: &[AnyArray<B>],
        owners: &[Option<usize>],
    ) -> Result<P, CommError> {
        let rank = self.comm.rank();
        let own: Vec<AnyArray<B>> = leaves(&tree).into_iter().map(|(_, leaf)| leaf).collect();
        let bytes = |leaf: &AnyArray<B>| leaf.clone().into_data().map_or(vec![], |data| data.as_bytes().to_vec());
        let mine = (0..own.len()).filter(|&i| owners[i] == Some(rank));
        let parts = self.comm.all_gather("parameters", mine.flat_map(|i| bytes(&own[i])).collect::<Vec<u8>>())?;
        let mut rest: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut next = 0..own.len();
        Ok(map(tree, |leaf| {
            let Some(i) = next.next() else { return leaf };
            let Some(owner) = owners[i].filter(|_| like[i].is_present()) else { return like[i].clone() };
            let (shape, dtype) = (like[i].shape().to_vec(), like[i].dtype());
            let bytes = rest[owner].split_off(..like[i].len() * dtype.size()).expect(FEWER);
            match like[i].device() {
                Some(device) if owner != rank => {
                    AnyArray::from_data(TensorData::from_bytes_vec(bytes.to_vec(), shape, dtype), &device)
                }
                _ => leaf,
            }
        }))
    }
}

impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>> GradientTransformation<B, P> for Zero1<T> {
    type State = T::State;

    fn init(&self, params: &P) -> Self::State {
        let owners = owners(params, self.comm.size());
        self.inner.init(&owned(params.clone(), &owners, self.comm.rank()))
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        if !self.comm.is_shared() {
            return self.inner.update(updates, state, params);
        }
        let owners = owners(params, self.comm.size());
        let updated = updated(&updates, &owners);
        // Updates are f32, or f64 for f64 gradients.
        let like: Vec<AnyArray<B>> = leaves(&updates).into_iter().map(|(_, leaf)| leaf.widen()).collect();
        let params = owned(params.clone(), &owners, self.comm.rank());
        let mine = self.scatter(updates, &updated).unwrap_or_else(|error| self.comm.end_job(&error));
        let (updates, state) = self.inner.update(mine, state, &params);
        let updates = self.gather(updates, &like, &updated).unwrap_or_else(|error| self.comm.end_job(&error));
        (updates, state)
    }

    /// Gathers the parameters instead of the updates, since the inner `step` may compute them in one pass.
    fn step(&self, updates: P, state: Self::State, params: P) -> (P, Self::State) {
        if !self.comm.is_shared() {
            return self.inner.step(updates, state, params);
        }
        let owners = owners(&params, self.comm.size());
        let updated = updated(&updates, &owners);
        let like: Vec<AnyArray<B>> = leaves(&params).into_iter().map(|(_, leaf)| leaf).collect();
        let params = owned(params, &owners, self.comm.rank());
        let mine = self.scatter(updates, &updated).unwrap_or_else(|error| self.comm.end_job(&error));
        let (params, state) = self.inner.step(mine, state, params);
        let params = self.gather(params, &like, &updated).unwrap_or_else(|error| self.comm.end_job(&error));
        (params, state)
    }
}
