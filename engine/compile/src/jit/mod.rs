//! Functions that are traced once and run many times.

mod cache;
mod report;

use grove_backend::{AnyTensor, Backend};
use grove_tree::{AnyArray, Path, Tree, key::traced::take_keys};
use std::{
    any::{Any, TypeId},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    marker::PhantomData,
    panic::Location,
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use crate::{
    Graph, TraceDevice, Traced,
    eval::Program,
    trace::{Recorded, argument, captured_on, key_paths, record},
    traced::Recording,
    types::Types,
};
use cache::{Cache, Compiled, LeafType, Signature};
use report::{short_name, why};

/// Default number of cached programs.
const CAPACITY: usize = 64;

/// Returns a function that is traced once for each structure, shapes, dtypes and static values of its argument and then runs
/// the traced program: `jax.jit`. Random keys in the argument are values, like arrays: one program serves all keys.
///
/// The function takes one tree on the backend [`Traced`] (a tuple for several arguments) and returns one tree.
/// [`call`](Jit::call) takes and returns trees on any backend. Arguments are taken by value: if nothing else holds an array,
/// its memory is reused after its last use, as with `donate_argnums` in JAX. Clone the arrays that are needed afterwards.
///
/// The function may capture arrays of a trace around the call, which become arguments of the program. Such a program is valid
/// only within that trace; in the next trace, the function is traced again.
///
/// Values that do not depend on the argument are computed once, during tracing, and operations without effect are removed; see
/// [`Graph::with_folded_constants`] and [`Graph::simplified`].
///
/// Results equal those of the function bit for bit, unless the backend runs chains of element-wise operations in one pass
/// ([`Backend::CHAINS`]): then they differ by rounding, with a relative error of about 1e-6.
///
/// A jitted function is `Send` and `Sync` if the function and its result are. Threads that need the same program at the same
/// time trace it once.
///
/// With the environment variable `GROVE_LOG_COMPILES=1`, each trace is reported on standard error with the reason for it.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::{Traced, jit};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let double = jit(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val() * 2.0));
/// let x = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
/// assert_eq!(double.call(x).val().to_data().to_vec::<f32>().unwrap(), [2.0, 4.0]);
/// ```
pub fn jit<In: Tree<Traced>, Out: Tree<Traced>, F: Fn(In) -> Out>(f: F) -> Jit<In, Out, F> {
    Jit { f, cache: Cache::new(CAPACITY), input: PhantomData }
}

/// A function with its cached programs; see [`jit`].
pub struct Jit<In, Out, F> {
    f: F,
    cache: Cache<Out>,
    input: PhantomData<fn(In) -> Out>,
}

/// Backend of a call.
struct On<'a> {
    types: Types,
    /// True if chains of element-wise operations are fused.
    fused: bool,
    array_keys: bool,
    backend: TypeId,
    device: &'a dyn Any,
    /// Folds constants on the device of the call.
    fold: &'a dyn Fn(Graph) -> Graph,
}

/// A jitted function on a device; see [`Jit::on`].
pub struct JitOn<B: Backend, In, Out, F> {
    jit: Jit<In, Out, F>,
    device: B::Device,
}

impl<B: Backend, In: Tree<Traced>, Out: Tree<Traced>, F: Fn(In) -> Out> JitOn<B, In, Out, F> {
    /// Calls the function; see [`Jit::call`].
    ///
    /// # Panics
    /// Same as [`Jit::call`].
    #[track_caller]
    pub fn call(&self, args: In::On<B>) -> Out::On<B>
    where
        In::On<B>: Tree<B, On<Traced> = In>,
    {
        self.jit.call_on::<B>(args, Some(&self.device))
    }

    /// Returns the function without the fixed device, which shares the cached programs.
    pub fn jit(&self) -> &Jit<In, Out, F> {
        &self.jit
    }

    /// Returns the device.
    pub fn device(&self) -> &B::Device {
        &self.device
    }
}

impl<B: Backend, In, Out, F> fmt::Debug for JitOn<B, In, Out, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JitOn").field("jit", &self.jit).field("device", &self.device).finish()
    }
}

impl<In: Tree<Traced>, Out: Tree<Traced>, F: Fn(In) -> Out> Jit<In, Out, F> {
    /// Sets the number of cached programs. Default: 64. The least recently used program is evicted first.
    pub fn capacity(self, programs: usize) -> Self {
        Self { cache: self.cache.with_capacity(programs.max(1)), ..self }
    }

    /// Calls the function.
    ///
    /// # Panics
    /// Same as [`trace`](crate::trace()), if the argument requires a new trace.
    #[track_caller]
    pub fn call<B: Backend>(&self, args: In::On<B>) -> Out::On<B>
    where
        In::On<B>: Tree<B, On<Traced> = In>,
    {
        self.call_on::<B>(args, None)
    }

    /// Fixes the device: arguments on other devices are copied to it, and results are on it. The backend is given once instead
    /// of with each call: `jit(f).on::<Xla>(&device)`.
    pub fn on<B: Backend>(self, device: &B::Device) -> JitOn<B, In, Out, F> {
        JitOn { jit: self, device: device.clone() }
    }

    /// Calls the function. Without a fixed device, runs on the device of the first array.
    #[track_caller]
    fn call_on<B: Backend>(&self, args: In::On<B>, fixed: Option<&B::Device>) -> Out::On<B>
    where
        In::On<B>: Tree<B, On<Traced> = In>,
    {
        let (mut values, mut leaves, mut device) = (Vec::new(), Vec::new(), fixed.cloned());
        let (shell, keys): (In, _) = take_keys(|| {
            args.lift::<Traced>(&mut Path::root(), &mut |_, leaf| {
                leaves.push((leaf.shape().to_vec(), leaf.dtype(), leaf.is_present()));
                let absent = AnyArray::absent(leaf.shape(), leaf.dtype());
                device = device.take().or_else(|| leaf.device());
                let leaf = match fixed {
                    Some(fixed) => moved(leaf, fixed),
                    None => leaf,
                };
                values.extend(leaf.into_value());
                absent
            })
        });
        let device = device.unwrap_or_default();
        let array_keys = keys.iter().any(|key| key.is_array());
        if array_keys {
            values.splice(0..0, keys.iter().map(|key| AnyTensor::from(key.data::<B>(&device))));
        }
        let on = On {
            types: Types::of::<B>(Some(&device)),
            fused: B::CHAINS,
            array_keys,
            backend: TypeId::of::<B>(),
            device: &device,
            fold: &|graph: Graph| graph.with_folded_constants::<B>(&device),
        };
        let compiled = self.compiled(shell, leaves, &on);
        values.extend(captured_on::<B>(&compiled.captured));
        let of_graph = &compiled.program.graph().keys;
        let keys = Rc::new(of_graph.with(&keys));
        let results = compiled.program.run_with_keys::<B>(values, &keys, &device);
        if B::LAZY {
            // The operations between two calls are a program too, even if nothing reads their results.
            let mut label = DefaultHasher::new();
            Location::caller().hash(&mut label);
            B::end_step(&device, label.finish());
        }
        compiled.result.filled(results.into_iter().map(Some).collect(), of_graph.results(&keys)).0
    }

    /// Returns the program for arguments with this structure and these leaves; traces it if it is not cached.
    #[track_caller]
    fn compiled(&self, shell: In, leaves: Vec<LeafType>, on: &On<'_>) -> Arc<Compiled<Out>> {
        let tracing = match self.cache.find(&shell, leaves, on) {
            Ok(found) => return found,
            Err(tracing) => tracing,
        };
        let start = Instant::now();
        let compiled = Arc::new(self.traced(shell, &tracing.signature, on));
        if crate::logs_compiles() {
            let reason = why(&compiled, tracing.before.as_deref());
            let count = compiled.program.graph().equations().len();
            let name = short_name(std::any::type_name::<F>());
            eprintln!("jit of {name}: {count} equations in {:.1?}: {reason}", start.elapsed());
        }
        // A program with captured arrays is valid only within their trace, so it is not cached.
        if compiled.captured.iter().all(|x| x.device().is_lazy()) {
            self.cache.add(compiled.clone());
        }
        compiled
    }

    /// Traces the function.
    #[track_caller]
    fn traced(&self, shell: In, signature: &Arc<Signature>, on: &On<'_>) -> Compiled<Out> {
        let mut present = signature.leaves.iter().map(|(_, _, present)| *present);
        let lift = |recording: &Recording| {
            recording.with_key_inputs(key_paths(&shell), on.array_keys, || {
                shell.map(&mut Path::root(), &mut |path, leaf| match present.next() {
                    Some(true) => argument(recording, path, leaf.shape(), leaf.dtype()),
                    _ => leaf,
                })
            })
        };
        let recording = Recording::within(on.types, on.device);
        let Recorded { graph, result, captured } = record(recording, lift, &self.f);
        let graph = graph.without_common_subexpressions().simplified();
        let count = graph.equations().len();
        let graph = (on.fold)(graph);
        let folded_on = (graph.equations().len() < count).then_some(on.backend);
        // Simplified equations may be duplicates of others.
        let graph = graph.without_common_subexpressions();
        let program = Program::new(if on.fused { graph.fused() } else { graph });
        Compiled { signature: signature.clone(), folded_on, program, result, captured }
    }

    /// Returns the graph of the most recently used program.
    pub fn graph(&self) -> Option<Graph> {
        self.cache.programs().first().map(|compiled| compiled.program.graph().clone())
    }

    /// Returns the graphs of all cached programs, the most recently used first.
    pub fn graphs(&self) -> Vec<Graph> {
        self.cache.programs().iter().map(|compiled| compiled.program.graph().clone()).collect()
    }

    /// Drops all cached programs.
    pub fn clear(&self) {
        self.cache.clear();
    }
}

/// Copies an array to a device, unless it is on that device already.
fn moved<B: Backend>(leaf: AnyArray<B>, device: &B::Device) -> AnyArray<B> {
    let Some(own) = leaf.device() else { return leaf };
    // Burn considers all devices of `Traced` to be the same.
    let elsewhere = match (&own as &dyn Any).downcast_ref::<TraceDevice>().zip((device as &dyn Any).downcast_ref()) {
        Some((own, device)) => own.is_lazy() && !own.is_same(device),
        None => return leaf.to_device(device),
    };
    if !elsewhere {
        return leaf;
    }
    let absent = leaf.clone().into_absent();
    leaf.into_data().map_or(absent, |data| AnyArray::from_data(data, device))
}

impl<In, Out, F> fmt::Debug for Jit<In, Out, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let programs = self.cache.programs().len();
        f.debug_struct("Jit").field("programs", &programs).finish_non_exhaustive()
    }
}
