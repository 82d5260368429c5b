//! Elements of an input, tile by tile.

/// The element of an input that belongs to element `i` of the outputs: `(i / repeat) % len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Consecutive elements of the outputs that share an element of the input.
    pub repeat: usize,
    /// Number of elements of the input.
    pub len: usize,
}

/// An input, and the place of its elements for a tile.
pub(super) struct Source {
    access: Access,
    /// The first of them in the input, where they lie in order.
    at: Option<usize>,
    /// Else they are gathered here.
    copy: Vec<f32>,
    /// The element that fills the copy, if it is one.
    filled: Option<usize>,
}

impl Source {
    pub fn new(access: Access) -> Self {
        Self { access, at: None, copy: Vec::new(), filled: None }
    }

    /// Goes to the tile that begins with an element of the outputs.
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

    /// Keeps the elements for the tile, which are about to be overwritten.
    pub fn hold(&mut self, elements: &[f32]) {
        self.at = None;
        self.filled = None;
        self.copy.clear();
        self.copy.extend_from_slice(elements);
    }

    /// The elements for the tile.
    pub fn values<'a>(&'a self, input: &'a [f32], size: usize) -> &'a [f32] {
        match self.at {
            Some(at) => &input[at..at + size],
            None => &self.copy[..size],
        }
    }
}

/// Gathers the elements of an input that belong to the outputs' from `from` on.
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
