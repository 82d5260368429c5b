//! Registry of active traces and lazy devices.
//!
//! The registry belongs to the process. A tensor of Burn has only the number of its device, may be used on any thread, and is
//! dropped there.

use burn_ir::OperationIr;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, ThreadId},
};

use super::{Caller, NONE, TraceDevice, lazy::LazyArrays, recorder::Recorder, sink::Sink};
use crate::types::Types;

/// Traces, indexed by their devices.
static TRACES: Mutex<Vec<Option<Trace>>> = Mutex::new(Vec::new());

/// An active trace, or a lazy device.
struct Trace {
    sink: Arc<Mutex<Sink>>,
    /// Traces nested in this one, at most one per thread. All operations of the thread go to the nested trace while it is
    /// active.
    inner: Vec<(u16, ThreadId)>,
}

/// Number of the next trace. It is part of the ids of tensors. No number is used twice in a process, so that a tensor of another
/// trace is recognised.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Locks the registry.
fn traces() -> MutexGuard<'static, Vec<Option<Trace>>> {
    locked(&TRACES)
}

/// Returns the innermost trace of this thread nested in a trace; the trace itself if there is none.
fn innermost(traces: &[Option<Trace>], mut index: u16) -> u16 {
    let this = thread::current().id();
    while let Some(Some(Trace { inner, .. })) = traces.get(usize::from(index))
        && let Some((inner, _)) = inner.iter().find(|(_, thread)| *thread == this)
    {
        index = *inner;
    }
    index
}

/// Returns the sink of a device.
fn sink_of(traces: &[Option<Trace>], index: u16) -> Option<Arc<Mutex<Sink>>> {
    traces.get(usize::from(index)).and_then(Option::as_ref).map(|trace| trace.sink.clone())
}

/// Returns the sink of the innermost trace nested in a trace; the trace's own sink if there is none.
fn innermost_sink(index: u16) -> Option<Arc<Mutex<Sink>>> {
    let traces = traces();
    sink_of(&traces, innermost(&traces, index))
}

/// Locks a mutex, also after a panic of another thread.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notifies a lazy device that a tensor is no longer referenced.
pub(super) fn dropped(index: u16, operation: OperationIr) {
    let sink = sink_of(&traces(), index);
    if let Some(sink) = sink
        && let Sink::Lazy(device) = &mut *locked(&sink)
    {
        device.operation(operation);
    }
}

/// Notifies a lazy device that a step ends, unless a trace nested in it is active.
pub(super) fn end_step(index: u16, label: u64) {
    if let Some(sink) = innermost_sink(index)
        && let Sink::Lazy(device) = &mut *locked(&sink)
    {
        device.end_step(label);
    }
}

/// Returns true for a lazy device without an active nested trace.
pub(super) fn is_lazy(index: u16) -> bool {
    innermost_sink(index).is_some_and(|sink| matches!(&*locked(&sink), Sink::Lazy(_)))
}

/// Adds a permanent lazy device.
pub(super) fn add_lazy(types: Types, device: impl FnOnce(u32) -> LazyArrays) -> TraceDevice {
    let device = device(next_number());
    TraceDevice { index: add(Sink::Lazy(Box::new(device)), None), types }
}

/// Returns the number of a new trace.
pub(super) fn next_number() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the innermost trace of this thread nested in a trace; the trace itself if there is none.
pub(super) fn innermost_of(index: u16) -> u16 {
    innermost(&traces(), index)
}

/// Ends a trace.
pub(super) fn remove(index: u16, parent: Option<u16>) {
    let mut traces = traces();
    if let Some(place) = traces.get_mut(usize::from(index)) {
        *place = None;
    }
    if let Some(Some(parent)) = parent.and_then(|parent| traces.get_mut(usize::from(parent))) {
        parent.inner.retain(|(inner, _)| *inner != index);
    }
}

/// Adds a sink, nested in a parent if one is given. Returns its index.
pub(super) fn add(sink: Sink, parent: Option<u16>) -> u16 {
    let trace = Some(Trace { sink: Arc::new(Mutex::new(sink)), inner: Vec::new() });
    let mut traces = traces();
    let index = traces.iter().position(Option::is_none).unwrap_or(traces.len());
    assert!(index < usize::from(NONE.index), "{index} traces are active at once, which is the maximum");
    match traces.get_mut(index) {
        Some(place) => *place = trace,
        None => traces.push(trace),
    }
    if let Some(Some(parent)) = parent.and_then(|parent| traces.get_mut(usize::from(parent))) {
        parent.inner.push((index as u16, thread::current().id()));
    }
    index as u16
}

/// Calls a function with the recorder of the innermost trace nested in a trace.
pub(super) fn with<T>(index: u16, f: impl FnOnce(&mut Recorder) -> T) -> T {
    with_sink(index, |sink| match sink {
        Sink::Trace(recorder) => f(recorder),
        Sink::Lazy(_) => unreachable!("a lazy device has no recorder"),
    })
}

/// Like [`with`], but the sink may be a lazy device.
pub(super) fn with_sink<T>(index: u16, f: impl FnOnce(&mut Sink) -> T) -> T {
    let Some(sink) = innermost_sink(index) else {
        panic!(
            "a traced tensor is used outside of its trace, which has ended: return it as a result of the traced function \
             instead of keeping it elsewhere{}",
            Caller::here()
        )
    };
    f(&mut locked(&sink))
}
