//! Prefetching of batches on a thread.

use grove_backend::panic_hook;
use std::iter::FusedIterator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::{Data, DataError, Position};

/// A batch, and the position after it.
type Item<D> = Result<(Position, <D as Data>::Batch), DataError>;

/// Endless iterator over prefetched batches; see [`prefetch`].
pub struct Prefetch<D: Data> {
    /// `None` once the iterator has ended.
    batches: Option<Receiver<Item<D>>>,
    thread: Option<JoinHandle<()>>,
}

/// Iterates over the batches from a position on, in this epoch and all following ones, and loads them ahead on a
/// thread.
///
/// Each item has the position after the batch, which a checkpoint saves in order to resume behind that batch. An error,
/// or a panic in the thread, is the last item. Dropping the iterator ends the thread after the batch that it is
/// loading.
///
/// - `from`: position of the first batch; the default is the start.
/// - `depth`: number of batches to queue; the thread loads or holds one more. 2 is enough if loading a batch never
///   takes longer than a train step.
pub fn prefetch<D: Data>(data: Arc<D>, from: Position, depth: usize) -> Prefetch<D> {
    let (sender, batches) = sync_channel(depth);
    let work = move || {
        let loaded = catch_unwind(AssertUnwindSafe(|| load(&*data, from, &sender)));
        let loaded = loaded.unwrap_or_else(|panic| {
            let message = panic_hook::message(&*panic).unwrap_or("without a message").to_owned();
            Err(DataError::Panicked { message })
        });
        if let Err(error) = loaded {
            // Sending fails if the iterator was dropped meanwhile.
            let _ = sender.send(Err(error));
        }
    };
    match thread::Builder::new().name("grove-data".into()).spawn(work) {
        Ok(thread) => Prefetch { batches: Some(batches), thread: Some(thread) },
        Err(error) => {
            let (sender, batches) = sync_channel(1);
            let _ = sender.send(Err(DataError::Thread(error)));
            Prefetch { batches: Some(batches), thread: None }
        }
    }
}

/// Loads and sends batches until the receiver is dropped or loading fails.
fn load<D: Data>(data: &D, from: Position, sender: &SyncSender<Item<D>>) -> Result<(), DataError> {
    let mut position = from;
    loop {
        let order = data.order(position.epoch);
        if order.is_empty() {
            return Err(DataError::NoBatches { epoch: position.epoch });
        }
        let first = usize::try_from(position.batch).ok().filter(|&first| first < order.len());
        let Some(first) = first else {
            return Err(DataError::NoSuchPosition { position, batches: order.len() });
        };
        for examples in &order[first..] {
            let batch = data.load(position.epoch, examples)?;
            position = position.following(order.len());
            if sender.send(Ok((position, batch))).is_err() {
                return Ok(());
            }
        }
    }
}

impl<D: Data> Iterator for Prefetch<D> {
    type Item = Item<D>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.batches.as_ref()?.recv().ok()?;
        if item.is_err() {
            self.batches = None;
        }
        Some(item)
    }
}

impl<D: Data> FusedIterator for Prefetch<D> {}

impl<D: Data> Drop for Prefetch<D> {
    fn drop(&mut self) {
        // First close the channel, which ends the thread.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // Panics were caught in the thread.
            let _ = thread.join();
        }
    }
}
