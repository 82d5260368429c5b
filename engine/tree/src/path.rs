use std::fmt::{self, Write as _};

/// Path of a leaf in its tree: dotted field names and indices, such as `blocks.0.attn.qkv.weight`.
///
/// Paths name leaves in files, errors, masks and printouts. A walk over a tree uses one `Path`, which grows and
/// shrinks. Call `path.to_string()` if the name has to outlive the walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    text: String,
    /// Length of `text` before each pushed segment.
    marks: Vec<usize>,
    /// Number of enclosing fields that are marked `#[tree(buffer)]`.
    buffers: usize,
}

impl Path {
    /// Creates the path of the tree itself, which is empty.
    pub fn root() -> Self {
        Self::default()
    }

    /// Returns the dotted path.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the last segment; an empty string at the root.
    pub fn last(&self) -> &str {
        // A dot precedes each segment after the first. A segment, such as a map's key, may itself contain dots.
        let begin = self.marks.last().map_or(0, |mark| mark + usize::from(*mark > 0));
        &self.text[begin..]
    }

    /// Returns the number of segments.
    pub fn depth(&self) -> usize {
        self.marks.len()
    }

    /// Returns true if the leaf at this path is state rather than a parameter (`#[tree(buffer)]`).
    pub fn is_buffer(&self) -> bool {
        self.buffers > 0
    }

    /// Calls `walk` with `segment` appended to the path.
    pub fn within<R>(&mut self, segment: &str, walk: impl FnOnce(&mut Self) -> R) -> R {
        self.push(segment);
        let result = walk(self);
        self.pop();
        result
    }

    /// Like [`within`](Self::within), for the element `index` of a sequence.
    pub fn within_index<R>(&mut self, index: usize, walk: impl FnOnce(&mut Self) -> R) -> R {
        self.push_index(index);
        let result = walk(self);
        self.pop();
        result
    }

    /// Like [`within`](Self::within), for a field marked as a buffer.
    pub fn within_buffer<R>(&mut self, segment: &str, walk: impl FnOnce(&mut Self) -> R) -> R {
        self.buffers += 1;
        let result = self.within(segment, walk);
        self.buffers -= 1;
        result
    }

    /// Like [`within`](Self::within), for all segments of another path. A buffer's path makes this one a buffer's.
    pub fn within_path<R>(&mut self, other: &Self, walk: impl FnOnce(&mut Self) -> R) -> R {
        let ends = other.marks.iter().skip(1).copied().chain([other.text.len()]);
        for (&mark, end) in other.marks.iter().zip(ends) {
            self.push(&other.text[mark + usize::from(mark > 0)..end]);
        }
        self.buffers += other.buffers;
        let result = walk(self);
        self.buffers -= other.buffers;
        other.marks.iter().for_each(|_| self.pop());
        result
    }

    // Separate from the walks, which are instantiated for each field and backend: these functions are compiled once.

    fn push(&mut self, segment: &str) {
        self.begin();
        self.text.push_str(segment);
    }

    fn push_index(&mut self, index: usize) {
        self.begin();
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{index}");
    }

    fn begin(&mut self) {
        self.marks.push(self.text.len());
        if !self.text.is_empty() {
            self.text.push('.');
        }
    }

    fn pop(&mut self) {
        self.text.truncate(self.marks.pop().unwrap_or_default());
    }
}

/// Names a leaf in a message: "leaf `blocks.0.weight`", or "leaf" if the leaf is the whole tree, whose path is empty. `kind`
/// is the first word.
pub fn leaf_name(kind: &str, path: &str) -> String {
    if path.is_empty() { kind.to_owned() } else { format!("{kind} `{path}`") }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Path, leaf_name};

    #[test]
    fn names_a_leaf_without_a_path() {
        assert_eq!(leaf_name("leaf", "blocks.0.weight"), "leaf `blocks.0.weight`");
        assert_eq!(leaf_name("leaf", Path::root().as_str()), "leaf");
    }

    #[test]
    fn segments_with_dots() {
        let mut path = Path::root();
        assert_eq!(path.last(), "");
        path.within("a.w", |path| {
            assert_eq!(path.last(), "a.w");
            path.within("b.c", |path| assert_eq!((path.as_str(), path.last()), ("a.w.b.c", "b.c")));
        });
    }

    #[test]
    fn segments_of_another_path() {
        let (mut path, mut other) = (Path::root(), Path::root());
        other.within("a.b", |other| {
            other.within_buffer("mean", |other| {
                path.within_index(0, |path| {
                    path.within_path(other, |path| {
                        assert_eq!((path.as_str(), path.last(), path.depth()), ("0.a.b.mean", "mean", 3));
                        assert!(path.is_buffer());
                    });
                    path.within_path(&Path::root(), |path| assert_eq!(path.as_str(), "0"));
                });
            });
        });
        assert_eq!(path, Path::root());
    }

    #[test]
    fn grows_and_shrinks() {
        let mut path = Path::root();
        path.within("blocks", |path| {
            path.within_index(3, |path| {
                assert_eq!(path.as_str(), "blocks.3");
                path.within_buffer("mean", |path| {
                    assert_eq!((path.as_str(), path.last(), path.depth()), ("blocks.3.mean", "mean", 3));
                    assert!(path.is_buffer());
                });
                assert!(!path.is_buffer());
            });
        });
        assert_eq!(path, Path::root());
    }
}
