//! Burn's backward pass, started so that it cannot deadlock with itself.
//!
//! During a backward pass, Burn 0.21 holds the lock of its graph, and every backward pass ends by taking the lock of
//! every graph. CPU kernels run on rayon: a worker that waits inside a kernel steals other work, possibly another
//! `value_and_grad`. The end of that backward pass would wait for a lock held further down the same stack, or on the
//! stack of a worker that waits for this one.
//!
//! Therefore at most one backward pass of the process runs to its end on its caller's thread. Passes that start
//! meanwhile run on helpers: thread pools with one thread, which steal no work. The caller receives the gradients as
//! soon as they are computed, before the helper takes the locks of other graphs, so nothing waits for the helper's
//! cleanup.
//!
//! Traces and searches for captured arrays are thread-local. If their backward pass starts during another one, it runs
//! on the caller's thread without the cleanup: its last step unwinds out of Burn's function, which releases the lock.
//! Burn then keeps the ids of the pass's operations, some tens of bytes each.

use burn::tensor::{backend::AutodiffBackend, ops::FloatTensor};
use burn_autodiff::grads::Gradients;
use grove_backend::{Autodiff, Backend, is_capturing};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::available_parallelism,
};

/// A tensor of the autodiff backend, tracked or not.
pub(crate) type Tracked<B> = FloatTensor<Autodiff<B>>;

/// Number of backward passes of the process that run on their callers' threads: the locks that they take are those of all graphs.
static IN_PLACE: AtomicUsize = AtomicUsize::new(0);

/// A backward pass that runs on its caller's thread.
struct InPlace;

impl InPlace {
    /// Returns the guard if no other backward pass of the process runs in place; otherwise `None`.
    fn only() -> Option<Self> {
        // Constructed only if the counter was incremented, because dropping the guard decrements it.
        IN_PLACE.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok().then(|| Self)
    }

    /// Returns a guard while other passes may run in place.
    fn another() -> Self {
        IN_PLACE.fetch_add(1, Ordering::Acquire);
        Self
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        IN_PLACE.fetch_sub(1, Ordering::Release);
    }
}

/// Callback that receives the gradients as soon as they are computed.
type Collect = Box<dyn FnOnce(&mut Gradients) + Send>;

/// Callback that the last step of a backward pass calls. Empty if the pass runs to its end on the caller's thread.
#[derive(Clone, Default)]
pub(crate) struct Collector(Arc<Mutex<Option<Collect>>>);

impl Collector {
    /// Calls the callback with the gradients, at most once.
    pub(crate) fn collect(&self, grads: &mut Gradients) {
        // Taken before the call, so that the lock is not held during it.
        let collect = self.take();
        if let Some(collect) = collect {
            collect(grads);
        }
    }

    fn take(&self) -> Option<Collect> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, collect: Collect) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(collect);
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

fn backward<B: Backend>(root: Tracked<B>) -> Gradients {
    <Autodiff<B> as AutodiffBackend>::backward(root)
}

/// Returns true if the backward pass must run on the caller's thread.
fn belongs_to_thread<B: Backend>(root: &Tracked<B>) -> bool {
    !B::has_values(&B::float_device(&root.primitive)) || is_capturing()
}

/// Runs the backward pass of a tracked result. Returns the result of `take` on the gradients.
///
/// # Panics
/// If an operation's backward pass panics, on any thread.
pub(crate) fn run<B: Backend, R: Send + 'static>(
    root: Tracked<B>,
    collector: &Collector,
    take: impl FnOnce(&mut Gradients) -> R + Send + 'static,
) -> R {
    match InPlace::only() {
        Some(_in_place) => take(&mut backward::<B>(root)),
        None if belongs_to_thread::<B>(&root) => without_cleaning(root, collector, take),
        None => elsewhere(root, collector, take),
    }
}

/// Like [`run`], on the caller's thread, without the cleanup at the end of the pass.
fn without_cleaning<B: Backend, R: Send + 'static>(
    root: Tracked<B>,
    collector: &Collector,
    take: impl FnOnce(&mut Gradients) -> R + Send + 'static,
) -> R {
    /// Panic payload with which the last step unwinds.
    struct Result<R>(R);

    let _in_place = InPlace::another();
    collector.set(Box::new(move |grads| resume_unwind(Box::new(Result(take(grads))))));
    let pass = AssertUnwindSafe(|| collector.collect(&mut backward::<B>(root)));
    let panic = match catch_unwind(pass) {
        Err(panic) => panic,
        Ok(()) => unreachable!("the collector unwinds"),
    };
    match panic.downcast::<Result<R>>() {
        Ok(result) => result.0,
        Err(panic) => {
            drop(collector.take());
            resume_unwind(panic)
        }
    }
}

/// Like [`run`], on a helper.
fn elsewhere<B: Backend, R: Send + 'static>(
    root: Tracked<B>,
    collector: &Collector,
    take: impl FnOnce(&mut Gradients) -> R + Send + 'static,
) -> R {
    let (sender, receiver) = mpsc::channel();
    let failure = sender.clone();
    // Sending fails only if the receiving thread has ended.
    collector.set(Box::new(move |grads| drop(sender.send(Ok(take(grads))))));
    let collector = collector.clone();
    on_helper(move || {
        let pass = AssertUnwindSafe(|| collector.collect(&mut backward::<B>(root)));
        if let Err(panic) = catch_unwind(pass) {
            drop(collector.take());
            drop(failure.send(Err(panic)));
        }
    });
    match receiver.recv() {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(mpsc::RecvError) => panic!("the thread of a backward pass ended without a result"),
    }
}

/// Runs a backward pass only for the cleanup at its end and drops its gradients. If the pass must run on this thread
/// but another pass is running, the end of a later pass does the cleanup.
pub(crate) fn clear<B: Backend>(root: Tracked<B>) {
    match InPlace::only() {
        Some(_in_place) => drop(backward::<B>(root)),
        None if belongs_to_thread::<B>(&root) => {}
        None => on_helper(move || drop(catch_unwind(AssertUnwindSafe(|| backward::<B>(root))))),
    }
}

/// Like [`clear`], but skipped during another backward pass, whose end does the same cleanup.
pub(crate) fn clear_if_idle<B: Backend>(root: impl FnOnce() -> Tracked<B>) {
    if let Some(_in_place) = InPlace::only() {
        drop(backward::<B>(root()));
    }
}

/// Idle helpers, which any thread may use.
static IDLE: Mutex<Vec<Arc<ThreadPool>>> = Mutex::new(Vec::new());

/// Stack size of a helper in bytes, equal to the usual stack size of a main thread.
const STACK: usize = 8 << 20;

/// Runs a function on a thread that steals no other work. Does not wait for the function to finish.
fn on_helper(run: impl FnOnce() + Send + 'static) {
    let idle = || IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = idle().pop();
    let helper =
        waiting.unwrap_or_else(|| {
            let name = |_| "grove-backward".to_owned();
            let pool = ThreadPoolBuilder::new().num_threads(1).stack_size(STACK).thread_name(name).build();
            Arc::new(pool.unwrap_or_else(|error| {
                panic!("cannot start a thread for another simultaneous backward pass: {error}")
            }))
        });
    let again = helper.clone();
    helper.spawn(move || {
        run();
        let mut idle = idle();
        if idle.len() < available_parallelism().map_or(1, usize::from) {
            idle.push(again);
        }
    });
}
