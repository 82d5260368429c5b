//! Windows of a token stream, for language models.

use grove_tree::Key;

use super::{Data, DataError, Order, TokenBatch, TokenStream};

/// Windows of a token stream: rows of `context + 1` tokens. Each window begins with the last token of the one before,
/// so that each token is predicted once.
///
/// With a key, for training: in each epoch the windows start at a random offset among the first `context` tokens, so
/// that window boundaries vary, and are shuffled. An incomplete batch is dropped. The offset drops less than a context
/// of tokens at either end, one window in all.
///
/// Without a key, for evaluation: the windows are in order from the first token on, and the last batch may be smaller.
/// An incomplete window at the end is dropped.
///
/// ```
/// use grove_train::data::{Data, TokenStream, TokenWindows};
///
/// let windows = TokenWindows::new(TokenStream::new((0..12).collect()), 5, 8, None)?;
/// let batches: Vec<_> = windows.epoch(0).collect::<Result<_, _>>()?;
/// assert_eq!(batches[0].tokens, [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10]);
/// # Ok::<(), grove_train::data::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokenWindows {
    stream: TokenStream,
    context: usize,
    order: Order,
    /// Key of the random offsets; `None` for evaluation.
    offsets: Option<Key>,
}

impl TokenWindows {
    /// Cuts a stream into windows.
    ///
    /// - `context`: context length in tokens; a window has one more.
    /// - `batch_size`: number of windows in a batch.
    /// - `key`: key of the order and the offsets; `None` for evaluation.
    ///
    /// # Errors
    /// If the stream is shorter than one window, a size is 0, or with a key the stream has less than one batch.
    pub fn new(stream: TokenStream, context: usize, batch_size: usize, key: Option<Key>) -> Result<Self, DataError> {
        if context == 0 {
            return Err(DataError::Zero { what: "context" });
        }
        if stream.len() <= context {
            return Err(DataError::TooShort { text: stream.description(), tokens: stream.len(), context });
        }
        let Some(key) = key else {
            let windows = (stream.len() - 1) / context;
            return Ok(Self { stream, context, order: Order::new(windows, batch_size)?, offsets: None });
        };
        // As many windows as fit at the largest offset, so that all epochs have the same number. A stream too short for
        // that has one window.
        let windows = (stream.len() / context - 1).max(1);
        let (offsets, shuffle) = key.split();
        let order = Order::new(windows, batch_size)?.shuffle(shuffle);
        let order = order.drop_last().map_err(|_| DataError::BatchTooLarge {
            batch_size,
            examples: windows,
            what: format!("windows of {context} tokens"),
        })?;
        Ok(Self { stream, context, order, offsets: Some(offsets) })
    }

    /// Returns the token stream.
    pub fn stream(&self) -> &TokenStream {
        &self.stream
    }

    /// Context length, in tokens.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Returns the offset of the first window of an epoch, in tokens.
    fn offset(&self, epoch: u64) -> usize {
        let Some(key) = self.offsets else { return 0 };
        let bits = key.fold_in(epoch as u32).bits(2);
        let bits = (u64::from(bits[0]) << 32) | u64::from(bits[1]);
        // At most `context` offsets, so that the modulo bias is below 2^-32.
        let slack = self.stream.len() - 1 - self.order.examples() * self.context;
        let offsets = self.context.min(slack + 1);
        (bits % offsets as u64) as usize
    }
}

impl Data for TokenWindows {
    type Batch = TokenBatch;

    fn order(&self, epoch: u64) -> Vec<Vec<usize>> {
        self.order.batches(epoch)
    }

    fn batches_per_epoch(&self) -> usize {
        self.order.batches_per_epoch()
    }

    fn load(&self, epoch: u64, examples: &[usize]) -> Result<TokenBatch, DataError> {
        let (offset, columns) = (self.offset(epoch), self.context + 1);
        let mut tokens = Vec::with_capacity(examples.len() * columns);
        for window in examples {
            let start = offset + window * self.context;
            self.stream.extend(start..start + columns, &mut tokens);
        }
        Ok(TokenBatch { tokens, rows: examples.len(), columns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_within_the_stream_at_all_offsets() {
        for context in 1..7 {
            for length in context + 1..40 {
                let stream = TokenStream::new((0..length as u32).collect());
                let windows = TokenWindows::new(stream, context, 1, Some(Key::new(2))).expect("long enough");
                let mut offsets: Vec<usize> = (0..50).map(|epoch| windows.offset(epoch)).collect();
                offsets.sort_unstable();
                offsets.dedup();
                if length >= 2 * context {
                    assert_eq!(offsets.len(), context, "all offsets occur");
                }
                for epoch in 0..50 {
                    let last = windows.order.examples() - 1;
                    windows.load(epoch, &[0, last]).expect("within the stream");
                }
                // Training has at most one window less than evaluation.
                assert!(windows.order.examples() + 1 >= (length - 1) / context);
            }
        }
    }
}
