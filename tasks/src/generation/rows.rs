//! Sequences that are being generated.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;

use super::{Finish, Generated};

/// A sequence.
pub(super) struct Row {
    /// Tokens of the prompt, followed by the new ones.
    pub ids: Vec<u32>,
    pub prompt: usize,
    /// Maximum number of new tokens, and the reason for it.
    pub limit: (usize, Finish),
    pub finish: Option<Finish>,
}

impl Row {
    /// Returns the number of new tokens.
    pub(super) fn step(&self) -> usize {
        self.ids.len() - self.prompt
    }

    /// Returns the new tokens, and the reason why the sequence ended.
    pub(super) fn generated(&self) -> Generated {
        Generated { ids: self.ids[self.prompt..].to_vec(), finish: self.finish.unwrap_or(self.limit.1) }
    }
}

/// All sequences, and the conditions that end them.
pub(super) struct Rows<'a> {
    pub rows: Vec<Row>,
    pub ends: Vec<u32>,
    pub on_token: &'a mut dyn FnMut(usize, u32) -> bool,
    pub on_end: &'a mut dyn FnMut(usize, &Generated),
}

impl Rows<'_> {
    /// Returns the maximum number of new tokens that one of these rows still gets; 0 if all have ended.
    pub(super) fn left(&self, rows: &[usize]) -> usize {
        let open = rows.iter().map(|&i| &self.rows[i]).filter(|row| row.finish.is_none());
        open.map(|row| row.limit.0 - row.step()).max().unwrap_or(0)
    }

    pub(super) fn ended(&self, i: usize) -> bool {
        self.rows[i].finish.is_some()
    }

    /// Adds a token to a row, or ends the row if it is an end token.
    pub(super) fn push(&mut self, i: usize, token: u32) {
        let row = &mut self.rows[i];
        if self.ends.contains(&token) {
            return self.end(i, Finish::Stop);
        }
        row.ids.push(token);
        let (is_full, reason) = (row.step() == row.limit.0, row.limit.1);
        if !(self.on_token)(i, token) {
            self.end(i, Finish::Callback);
        } else if is_full {
            self.end(i, reason);
        }
    }

    /// Ends a row.
    pub(super) fn end(&mut self, i: usize, finish: Finish) {
        self.rows[i].finish = Some(finish);
        (self.on_end)(i, &self.rows[i].generated());
    }
}

/// Creates a tensor `[rows, t]` from rows of equal length.
pub(super) fn int_tensor<B: Backend>(rows: &[Vec<u32>], device: &B::Device) -> Tensor<B, 2, Int> {
    let t = rows.first().map_or(0, Vec::len);
    let ids: Vec<i64> = rows.iter().flatten().map(|&id| i64::from(id)).collect();
    Tensor::from_data(TensorData::new(ids, [rows.len(), t]), device)
}

/// Copies the values of a floating-point tensor to the host.
pub(super) fn float_vec<B: Backend>(x: Tensor<B, 2>) -> Vec<f32> {
    let data = x.into_data();
    data.convert::<f32>().into_vec().unwrap_or_default()
}
