//! Elements of an input, tile by tile.

/// Mapping from output elements to an input: output element `i` uses input element `(i / repeat) % len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Number of consecutive output elements that share an input element.
    pub repeat: usize,
    /// Number of elements of the input.
    pub len: usize,
}

/// An input and its elements for the current tile.
pub(super) struct Source {
    access: Access,
    /// Index of the first element in the input, if the tile's elements are contiguous there.
    at: Option<usize>,
    /// Otherwise a copy of the tile's elements.
    copy: Vec<f32>,
    /// Index of the element that fills the copy, if it is a single one.
    filled: Option<usize>,
}

impl Source {
    pub fn new(access: Access) -> Self {
        Self { access, at: None, copy: Vec::new(), filled: None }
    }

    /// Moves to the tile that starts at output element `from`.
    pub fn advance(&mut self, input: &[f32], from: usize, size: usize) {
        let Access { repeat, len } = self.access;
        self.at = (repeat == 1 && from % len + size <= len).then_some(from % len);
        if self.at.is_some() {
            return;
        }
        if self.copy.len() < size {
            self.copy.resize(size, 0.0);
            self.filled = None;
        }
        let one = from / repeat % len;
        if len > 1 && (from + size - 1) / repeat != from / repeat {
            self.filled = None;
            gather(self.access, input, from, &mut self.copy[..size]);
        } else if self.filled != Some(one) {
            self.copy.fill(input[one]);
            self.filled = Some(one);
        }
    }

    /// Copies the tile's elements, which are about to be overwritten.
    pub fn hold(&mut self, elements: &[f32]) {
        self.at = None;
        self.filled = None;
        self.copy.clear();
        self.copy.extend_from_slice(elements);
    }

    /// Returns the tile's elements.
    pub fn values<'a>(&'a self, input: &'a [f32], size: usize) -> &'a [f32] {
        match self.at {
            Some(at) => &input[at..at + size],
            None => &self.copy[..size],
        }
    }
}

/// Gathers the input elements for the output elements from `from` on.
fn gather(Access { repeat, len }: Access, x: &[f32], from: usize, y: &mut [f32]) {
    if repeat == 1 {
        let (mut at, mut rest) = (from % len, y);
        while !rest.is_empty() {
            let count = rest.len().min(len - at);
            let (first, others) = rest.split_at_mut(count);
            first.copy_from_slice(&x[at..at + count]);
            (at, rest) = (0, others);
        }
        return;
    }
    let (mut at, mut left, mut rest) = (from / repeat % len, repeat - from % repeat, y);
    while !rest.is_empty() {
        let (first, others) = rest.split_at_mut(left.min(rest.len()));
        first.fill(x[at]);
        (at, left, rest) = ((at + 1) % len, repeat, others);
    }
}
