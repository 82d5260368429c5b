//! The merges of a BPE, from its pieces alone.
//!
//! A SentencePiece model lists pieces, not the merges that made them. Its encoder joins any two neighbours that form a
//! piece, the best piece first. The `tokenizers` crate wants the pairs, in order.

use std::{cmp::Ordering, collections::HashMap};

use tokenizers::models::bpe::Merges;

use crate::pieces::Piece;

/// Largest work of the search: the sum of the squares of the pieces' lengths. Gemma 3's 262,000 pieces amount to some
/// 20 million.
const MOST_WORK: usize = 1 << 28;

/// Priority of the merges of pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The one that comes first in the vocabulary, as transformers reads a `tokenizer.model`.
    Rank,
    /// The one of the higher score, as transformers and llama.cpp read a GGUF file.
    Score,
}

/// Every pair of pieces that forms a piece, in the order in which they are joined.
pub(crate) fn recover(pieces: &[Piece], order: Order) -> Result<Merges, String> {
    let work = pieces.iter().map(|piece| piece.text.len().saturating_mul(piece.text.len()));
    if work.fold(0, usize::saturating_add) > MOST_WORK {
        return Err("its pieces are too long for their merges to be found".into());
    }
    let ids: HashMap<&str, usize> = pieces.iter().enumerate().map(|(id, piece)| (piece.text.as_str(), id)).collect();
    // The piece, where its right half begins in bytes, and how many letters each half has.
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
    // By rank they are in order: pieces by rank, and the shortest left half first. By score, transformers sorts in
    // descending order of everything, longest left half first.
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
