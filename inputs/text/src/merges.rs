//! Recovery of BPE merges from the pieces of a vocabulary.
//!
//! A SentencePiece model lists pieces, not the merges that produced them. Its encoder joins any two neighbours that
//! form a piece, the best piece first. The `tokenizers` crate needs the pairs, in order.

use std::{cmp::Ordering, collections::HashMap};

use tokenizers::models::bpe::Merges;

use crate::pieces::Piece;

/// Maximum cost of the search: the sum of the squared lengths of all pieces. Gemma 3's 262,000 pieces cost about 20
/// million.
const MAX_WORK: usize = 1 << 28;

/// Priority of merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By rank: the piece that comes first in the vocabulary, as transformers reads a `tokenizer.model`.
    Rank,
    /// By score: the piece with the higher score, as transformers and llama.cpp read a GGUF file.
    Score,
}

/// Returns all pairs of pieces that form a piece, in merge order.
pub(crate) fn recover(pieces: &[Piece], order: Order) -> Result<Merges, String> {
    let work = pieces.iter().map(|piece| piece.text.len().saturating_mul(piece.text.len()));
    if work.fold(0, usize::saturating_add) > MAX_WORK {
        return Err("its pieces are too long for their merges to be found".into());
    }
    let ids: HashMap<&str, usize> = pieces.iter().enumerate().map(|(id, piece)| (piece.text.as_str(), id)).collect();
    // Piece, byte offset of its right half, and number of characters in each half.
    let mut found: Vec<(usize, usize, usize, usize)> = Vec::new();
    for (id, piece) in pieces.iter().enumerate() {
        let letters = piece.text.chars().count();
        for (left, (at, _)) in piece.text.char_indices().enumerate().skip(1) {
            let (first, second) = piece.text.split_at(at);
            if ids.contains_key(first) && ids.contains_key(second) {
                found.push((id, at, left, letters - left));
            }
        }
    }
    // By rank, the pairs are already in order: by piece, then shortest left half first. By score, transformers sorts
    // everything in descending order, so longest left half first.
    if order == Order::Score {
        found.sort_by(|a, b| {
            let (first, second) = (pieces[a.0].score, pieces[b.0].score);
            second.partial_cmp(&first).unwrap_or(Ordering::Equal).then_with(|| (b.2, b.3).cmp(&(a.2, a.3)))
        });
    }
    let halves = found.into_iter().map(|(id, at, ..)| {
        let (first, second) = pieces[id].text.split_at(at);
        (first.to_owned(), second.to_owned())
    });
    Ok(halves.collect())
}
