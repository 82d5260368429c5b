//! Burn's backward pass, started so that it cannot deadlock with itself.
//!
//! While a backward pass computes, Burn 0.21 holds the lock of its graph, and every backward pass ends by taking the
//! lock of every graph. On a CPU the kernels run on rayon: a worker that waits inside a kernel takes up other work,
//! which may be another `value_and_grad`. Its end would then wait for a lock held further down the same stack, or on
//! the stack of a worker that waits for this one.
//!
//! So at most one backward pass of the process runs on its caller's thread. Others that start meanwhile run on
//! helpers, each a pool of one thread, which takes up no other work. The caller gets the gradients as soon as they
//! are computed, before the helper takes the locks of other graphs, so that nothing waits for that part.

use burn::tensor::backend::AutodiffBackend;
use burn_autodiff::grads::Gradients;
use grove_backend::{Autodiff, Backend};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::available_parallelism,
};

use crate::tape::Tracked;

/// True while a backward pass runs on the thread of its caller.
static IN_PLACE: AtomicBool = AtomicBool::new(false);

/// The right to run a backward pass on the caller's thread.
struct Claim;

impl Claim {
    /// Takes the right; `None` while another thread, or this one further down its stack, has it.
    fn take() -> Option<Self> {
        // A `Claim` is constructed only when it is taken, since dropping one releases it.
        if IN_PLACE.swap(true, Ordering::Acquire) { None } else { Some(Self) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        IN_PLACE.store(false, Ordering::Release);
    }
}

/// Called with the gradients as soon as they are computed.
type Collect = Box<dyn FnOnce(&mut Gradients) + Send>;

/// Called by the last step of a backward pass; empty unless the pass runs on a helper.
#[derive(Clone, Default)]
pub(crate) struct Collector(Arc<Mutex<Option<Collect>>>);

impl Collector {
    /// Hands over the gradients, unless that has been done.
    pub(crate) fn collect(&self, grads: &mut Gradients) {
        // Taken first, so that the lock is not held during the call.
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

/// Runs the backward pass of a tracked result, and returns the result of `take` on the gradients.
///
/// # Panics
/// If an operation's backward pass panics, on any thread.
pub(crate) fn run<B: Backend, R: Send + 'static>(
    root: Tracked<B>,
    collector: &Collector,
    take: impl FnOnce(&mut Gradients) -> R + Send + 'static,
) -> R {
    if let Some(_claim) = Claim::take() {
        return take(&mut backward::<B>(root));
    }
    let (sender, receiver) = mpsc::channel();
    let failure = sender.clone();
    // Sending fails only if this thread is gone.
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

/// Runs a backward pass only for the cleaning at its end; its gradients are dropped.
pub(crate) fn clear<B: Backend>(root: Tracked<B>) {
    match Claim::take() {
        Some(_claim) => drop(backward::<B>(root)),
        None => on_helper(move || drop(catch_unwind(AssertUnwindSafe(|| backward::<B>(root))))),
    }
}

/// Like [`clear`], but skipped during another backward pass, whose end cleans as much.
pub(crate) fn clear_if_idle<B: Backend>(root: impl FnOnce() -> Tracked<B>) {
    if let Some(_claim) = Claim::take() {
        drop(backward::<B>(root()));
    }
}

/// Idle helpers.
static IDLE: Mutex<Vec<Arc<ThreadPool>>> = Mutex::new(Vec::new());

/// Stack size of a helper in bytes, that of a program's first thread.
const STACK: usize = 8 << 20;

/// Runs a function on a thread that takes up no other work, without waiting for it.
fn on_helper(run: impl FnOnce() + Send + 'static) {
    let idle = || IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = idle().pop();
    let helper = waiting.unwrap_or_else(|| {
        let name = |_| "grove-backward".to_owned();
        let pool = ThreadPoolBuilder::new().num_threads(1).stack_size(STACK).thread_name(name).build();
        Arc::new(pool.unwrap_or_else(|error| {
            panic!("several backward passes at once need a thread each, and the system gives no more: {error}")
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
