//! The cache of a jitted function.

use burn::tensor::DType;
use grove_backend::AnyTensor;
use grove_tree::{Structure, Tree, structure};
use std::{
    any::TypeId,
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

use super::On;
use crate::{Traced, eval::Program, trace::Returned, types::Types};

/// Shape and dtype of a leaf of the argument, and true if it is present.
pub(super) type LeafType = (Vec<usize>, DType, bool);

/// The arguments and the backend that a program is traced for.
pub(super) struct Signature {
    pub structure: Structure,
    pub leaves: Vec<LeafType>,
    pub types: Types,
    /// True if chains of element-wise operations are fused.
    pub fused: bool,
    /// True if random keys are arrays of a trace around the call.
    array_keys: bool,
}

impl Signature {
    fn is<In: Tree<Traced>>(&self, shell: &In, leaves: &[LeafType], on: &On<'_>) -> bool {
        (self.types, self.fused, self.array_keys) == (on.types, on.fused, on.array_keys)
            && self.leaves == leaves
            && self.structure.is_of(shell)
    }
}

/// A traced function, prepared for running.
pub(super) struct Compiled<Out> {
    pub signature: Arc<Signature>,
    /// The backend that folded constants of the program, if any were folded.
    pub folded_on: Option<TypeId>,
    pub program: Program,
    pub result: Returned<Out>,
    /// See [`Recorded::captured`](crate::trace::Recorded::captured).
    pub captured: Vec<AnyTensor<Traced>>,
}

/// The most recently used programs of a function.
pub(super) struct Cache<Out> {
    capacity: usize,
    programs: Mutex<Programs<Out>>,
    /// Notified when a trace ends.
    traced: Condvar,
}

struct Programs<Out> {
    /// The most recently used program comes first.
    retained: VecDeque<Arc<Compiled<Out>>>,
    /// Traces in progress, with their threads.
    tracing: Vec<(ThreadId, Arc<Signature>)>,
}

/// A trace in progress. It ends when the value is dropped, even by a panic.
pub(super) struct Tracing<'a, Out> {
    cache: &'a Cache<Out>,
    pub signature: Arc<Signature>,
    /// The program that was used before.
    pub before: Option<Arc<Compiled<Out>>>,
}

impl<Out> Drop for Tracing<'_, Out> {
    fn drop(&mut self) {
        self.cache.lock().tracing.retain(|(_, signature)| !Arc::ptr_eq(signature, &self.signature));
        self.cache.traced.notify_all();
    }
}

impl<Out> Cache<Out> {
    pub fn new(capacity: usize) -> Self {
        let programs = Programs { retained: VecDeque::new(), tracing: Vec::new() };
        Self { capacity, programs: Mutex::new(programs), traced: Condvar::new() }
    }

    pub fn with_capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, Programs<Out>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the program for arguments with this structure and these leaves. If it is not cached, starts its trace, after
    /// waiting for another thread that traces it.
    pub fn find<In: Tree<Traced>>(
        &self,
        shell: &In,
        leaves: Vec<LeafType>,
        on: &On<'_>,
    ) -> Result<Arc<Compiled<Out>>, Tracing<'_, Out>> {
        let mut programs = self.lock();
        loop {
            let same = |known: &Arc<Compiled<Out>>| {
                known.folded_on.is_none_or(|backend| backend == on.backend) && known.signature.is(shell, &leaves, on)
            };
            let found = programs.retained.iter().position(same);
            if let Some(found) = found.and_then(|i| programs.retained.remove(i)) {
                programs.retained.push_front(found.clone());
                return Ok(found);
            }
            // A trace on this thread surrounds this call, so waiting for it would deadlock.
            let elsewhere = |(thread, signature): &(ThreadId, Arc<Signature>)| {
                *thread != thread::current().id() && signature.is(shell, &leaves, on)
            };
            if !programs.tracing.iter().any(elsewhere) {
                break;
            }
            programs = self.traced.wait(programs).unwrap_or_else(PoisonError::into_inner);
        }
        let On { types, fused, array_keys, .. } = *on;
        let signature = Arc::new(Signature { structure: structure(shell), leaves, types, fused, array_keys });
        programs.tracing.push((thread::current().id(), signature.clone()));
        Err(Tracing { cache: self, signature, before: programs.retained.front().cloned() })
    }

    /// Adds a program. The least recently used one may be evicted.
    pub fn add(&self, compiled: Arc<Compiled<Out>>) {
        let mut programs = self.lock();
        programs.retained.push_front(compiled);
        programs.retained.truncate(self.capacity);
    }

    /// Returns all programs, the most recently used first.
    pub fn programs(&self) -> Vec<Arc<Compiled<Out>>> {
        self.lock().retained.iter().cloned().collect()
    }

    pub fn clear(&self) {
        self.lock().retained.clear();
    }
}
